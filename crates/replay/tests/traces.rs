//! Recordings of real programs: a replay of the recorded controller does what it did, and what every controller makes of them is written down.
//!
//! `UPDATE_EXPECT=1 cargo test -p uncopy-replay` writes the table anew; `git diff` then shows what a changed rule does to each program.

use expect_test::expect_file;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use uncopy_decide::Choice;
use uncopy_replay::{CHOICES, Stage, play_choice, recorded, table};
use uncopy_trace::Trace;

/// Processor time of each program, in ns: experiments take longer than the few hundred requests that are recorded.
const CPU: u64 = 2_000_000_000;

fn traces() -> Vec<(String, Trace)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "trace")).collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |file: &Path| {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let trace = Trace::read(&std::fs::read(file).unwrap());
        (name.clone(), trace.unwrap_or_else(|why| panic!("{name}: {why}")))
    };
    files.iter().map(|file| read(file)).collect()
}

/// Whether a replay's number is as good as the recorded one: within 2% and 10 of it. (Threads are done again one after the other. Calls are not
/// compared: that a destination was never touched, which takes one more, is not known.)
fn agrees(recorded: u64, again: u64) -> bool {
    recorded.abs_diff(again) <= 10 + recorded / 50
}

#[test]
fn a_replay_of_the_recorded_controller_does_what_it_did() {
    let stage = Stage::new();
    let mut wrong = Vec::new();
    for (name, trace) in traces() {
        let was = recorded(&trace);
        let choice = Choice::parse(&trace.start.controller).unwrap();
        let again = play_choice(&trace, &stage, 0, choice).tally;
        for (what, was, again) in [
            ("copies", was.copies, again.copies),
            ("elided copies", was.elided, again.elided),
            ("KB elided", was.elided_bytes >> 10, again.elided_bytes >> 10),
            ("faults", was.faults, again.faults),
            ("pages moved", was.moved, again.moved),
        ] {
            if !agrees(was, again) {
                wrong.push(format!("{name}: {was} {what}, and {again} when it was done again"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_replay_is_the_same_every_time() {
    let stage = Stage::new();
    let (name, trace) = traces().swap_remove(0);
    for choice in CHOICES {
        let once = play_choice(&trace, &stage, CPU / 10, *choice);
        assert_eq!(play_choice(&trace, &stage, CPU / 10, *choice), once, "{name}, {choice}");
    }
}

#[test]
fn who_elides_nothing_gains_nothing_and_takes_the_time_that_the_program_takes() {
    let stage = Stage::new();
    for (name, trace) in traces() {
        let outcome = play_choice(&trace, &stage, 0, Choice::Never);
        assert_eq!((outcome.tally.elided, outcome.gained()), (0, 0), "{name}");
    }
}

#[test]
fn what_each_controller_makes_of_each_recording() {
    let traces = traces();
    let next = AtomicUsize::new(0);
    let work = || {
        let (stage, mut done) = (Stage::new(), Vec::new());
        while let Some((i, (name, trace))) =
            Some(next.fetch_add(1, Relaxed)).and_then(|i| Some((i, traces.get(i)?)))
        {
            done.push((i, format!("== {name}\n{}\n", table(trace, &stage, CPU, CHOICES))));
        }
        done
    };
    let mut tables: Vec<(usize, String)> = std::thread::scope(|threads| {
        let all = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads: Vec<_> = (0..all).map(|_| threads.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    tables.sort();
    let text: String = tables.into_iter().map(|(_, text)| text).collect();
    expect_file!["../traces/table.txt"].assert_eq(&text);
}
