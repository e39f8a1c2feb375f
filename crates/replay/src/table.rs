//! The results of each controller on a recording, as text.

use crate::hindsight::hindsight;
use crate::play::{Outcome, Unseen, play, recorded};
use crate::stage::Stage;
use crate::tally::Tally;
use core::fmt::Write;
use uncopy_decide::Choice;
use uncopy_trace::Trace;

/// The controllers that [`table`] compares.
pub const CHOICES: &[Choice] =
    &[Choice::Never, Choice::From(0), Choice::From(256 << 10), Choice::Accounts];

/// A controller with foresight needs no time to learn: so much processor time tells what it gains,
/// in ns.
const HINDSIGHT: u64 = 200_000_000;

/// Replays `trace` with `choice`: see [`play`].
pub fn play_choice(
    trace: &Trace,
    stage: &Stage,
    cpu: u64,
    unseen: Unseen,
    choice: Choice,
) -> Outcome {
    play(trace, stage, cpu, unseen, |basis, _| choice.control(basis))
}

/// The results of each of `choices`, and of a controller with foresight, on `trace`, whose second
/// half is done again until the program has used so much processor time, in ns: each of `cpus`, of
/// which the first is shown in detail. Eliding costs it what is `unseen`, too.
///
/// Of the best that is known in hindsight: one that each of `choices` finds is known too.
pub fn table(
    trace: &Trace,
    stage: &Stage,
    cpus: &[u64],
    unseen: Unseen,
    choices: &[Choice],
) -> String {
    let mut text = String::new();
    let who = &trace.start.controller;
    let seen = recorded(trace);
    let wall = trace.entries.last().map_or(0, |e| e.at.wall);
    let _ = writeln!(
        text,
        "{}, recorded with '{who}': {} entries, {} ms, {} copies of {}{}",
        trace.start.command,
        trace.entries.len(),
        wall / 1_000_000,
        seen.copies,
        size(seen.bytes),
        if trace.full { " (then it was full)" } else { "" },
    );
    let _ = write!(
        text,
        "{:<18}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "of 1000 copies:", "elided", "bytes", "faults", "pages", "ns each"
    );
    for cpu in cpus {
        let _ = write!(text, "{:>9}", format!("of {:.1} s", *cpu as f64 / 1e9));
    }
    text.push('\n');
    row(&mut text, "as recorded", &seen, &[]);
    if let Some(choice) = Choice::parse(who) {
        let again = play_choice(trace, stage, 0, Unseen::default(), choice);
        row(&mut text, &format!("{who} again"), &again.tally, &[]);
    }
    let mut best =
        hindsight(trace, stage, cpus.first().map_or(0, |cpu| HINDSIGHT.min(*cpu)), unseen);
    for choice in choices {
        let play = |cpu: &u64| play_choice(trace, stage, *cpu, unseen, *choice);
        let outcomes: Vec<Outcome> = cpus.iter().map(play).collect();
        let Some(first) = outcomes.first() else { continue };
        row(&mut text, &choice.to_string(), &first.tally, &outcomes);
        if first.share() > best.share() {
            best = *first;
        }
    }
    row(&mut text, "with hindsight", &best.tally, &[best]);
    text
}

fn row(text: &mut String, name: &str, t: &Tally, outcomes: &[Outcome]) {
    let each = |part: f64| part / (t.copies.max(1) as f64);
    let bytes = format!("{:.1}%", 100.0 * t.elided_bytes as f64 / t.bytes.max(1) as f64);
    let [elided, faults, moved] = [t.elided, t.faults, t.moved].map(|n| 1000.0 * each(n as f64));
    let _ = write!(text, "{name:<18}{elided:>9.0}{bytes:>9}{faults:>9.0}{moved:>9.0}");
    if let Some(first) = outcomes.first() {
        let _ = write!(text, "{:>9.0}", each(first.gained() as f64));
    }
    for o in outcomes {
        let _ = write!(text, "{:>9}", format!("{:+.1}%", 100.0 * o.share()));
    }
    text.push('\n');
}

fn size(bytes: u64) -> String {
    if bytes < 10 << 20 { format!("{} KB", bytes >> 10) } else { format!("{} MB", bytes >> 20) }
}
