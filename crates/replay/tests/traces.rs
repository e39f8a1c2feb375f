//! Recordings of real programs: a replay of the recorded controller does what it did, and what
//! every controller makes of them is written down.
//!
//! `UPDATE_EXPECT=1 cargo test -p uncopy-replay` writes the table anew; `git diff` then shows what
//! a changed rule does to each program.

use expect_test::expect_file;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use uncopy_decide::Choice;
use uncopy_replay::{CHOICES, Stage, Unseen, play_choice, recorded, table};
use uncopy_trace::Trace;

/// Processor time of each program, in ns: experiments take longer than the few hundred requests
/// that are recorded.
const CPUS: [u64; 2] = [2_000_000_000, 5_000_000_000];

/// Programs of which eliding a copy, or a MB, costs so many ns that no event shows: what was
/// measured of servers that lost by it (Redis' GET of 64 KB 5 us; gRPC took 1.3 times as long if
/// all was elided), and copies of data in the cache, which cost half of what is modelled.
const UNSEEN: [(&str, i64, i64); 10] = [
    ("redis-get-64k", 5_000, 0),
    ("redis-get-1024k", 5_000, 0),
    ("grpc-bytes-echo-64k", 20_000, 0),
    ("asyncio-readexactly-echo-64k", 3_000, 0),
    ("asyncio-readexactly-echo-1024k", 0, 50_000),
    ("uvicorn-upload-64k", 0, 20_000),
    ("echo-1-copy-64k", 2_000, 0),
    ("echo-4-copies-64k", 0, 20_000),
    ("echo-4-copies-512k", 0, 20_000),
    ("echo-12-copies-64k", 2_500, 0),
];
const NOTHING: Unseen = Unseen { copy: 0, mb: 0 };

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

/// Whether a replay's number is as good as the recorded one: within 2% and 10 of it. (Threads are
/// done again one after the other. Calls are not compared: that a destination was never touched,
/// which takes one more, is not known.)
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
        let again = play_choice(&trace, &stage, 0, NOTHING, choice).tally;
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
        let again = || play_choice(&trace, &stage, CPUS[0] / 10, NOTHING, *choice);
        assert_eq!(again(), again(), "{name}, {choice}");
    }
}

#[test]
fn a_controller_that_elides_nothing_gains_nothing_and_takes_the_programs_time() {
    let stage = Stage::new();
    for (name, trace) in traces() {
        let outcome = play_choice(&trace, &stage, 0, NOTHING, Choice::Never);
        assert_eq!((outcome.tally.elided, outcome.gained()), (0, 0), "{name}");
    }
}

#[test]
fn each_controller_gets_its_known_result_from_each_recording() {
    let traces = traces();
    let plain = traces.iter().map(|(name, trace)| (name.clone(), trace, NOTHING));
    let unseen = UNSEEN.map(|(name, copy, mb)| {
        let (_, trace) = traces.iter().find(|(of, _)| of == name).unwrap();
        let each = format!("{copy} ns for each elided copy and {mb} for each MB");
        (format!("{name}, and what no event shows: {each}"), trace, Unseen { copy, mb })
    });
    let programs: Vec<_> = plain.chain(unseen).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (stage, mut done) = (Stage::new(), Vec::new());
        while let Some((i, (name, trace, unseen))) =
            Some(next.fetch_add(1, Relaxed)).and_then(|i| Some((i, programs.get(i)?)))
        {
            done.push((
                i,
                format!("== {name}\n{}\n", table(trace, &stage, &CPUS, *unseen, CHOICES)),
            ));
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
