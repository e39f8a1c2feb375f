//! Readers of bytes that somebody else may have written never panic, and never run round in
//! circles: parts of a profile, recordings, options, costs, rules of the injector.
//!
//! `cargo test` tries some thousand random inputs, and all that are kept in `__fuzz__/`; what fails
//! is made smaller, and printed with the seed. With a nightly compiler and cargo-bolero the same
//! tests are led by what the code does:
//! `cargo +nightly bolero test -p uncopy --test foreign_bytes a_damaged_part_is_read_or_refused`.

use bolero::{TypeGenerator, check};
use uncopy_decide::{Choice, Costs, Event, Operation, Times};
use uncopy_flow::layout::{LAYOUT, MAGIC, WORDS, header};
use uncopy_flow::part::Part;
use uncopy_inject::Plan;
use uncopy_options::{self as options, OPTIONS};
use uncopy_ranges::span::Span;
use uncopy_replay::{Stage, Unseen, play_choice};
use uncopy_trace::{Head, Trace, Writer};

/// A word that is written over a whole file's.
#[derive(Clone, Debug, TypeGenerator)]
struct Damage {
    /// In the header (most of what matters is there), or anywhere.
    in_header: bool,
    at: u32,
    value: Value,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Value {
    Small(u8),
    Most,
    Any(u64),
}

/// A part of a process that did something: with one record in each table.
fn part() -> Vec<u64> {
    let mut words = vec![0; WORDS];
    words[header::MAGIC] = MAGIC;
    words[header::LAYOUT] = LAYOUT;
    for used in [header::SITES, header::NODES, header::ROWS, header::MODULES] {
        words[used] = 3;
    }
    words
}

#[test]
fn a_damaged_part_is_read_or_refused() {
    check!().with_type::<(Vec<Damage>, u8)>().with_iterations(3000).for_each(|(damages, cut)| {
        let mut words = part();
        for damage in damages {
            let reach = if damage.in_header { header::WORDS } else { words.len() };
            words[damage.at as usize % reach] = match damage.value {
                Value::Small(n) => n.into(),
                Value::Most => u64::MAX,
                Value::Any(n) => n,
            };
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // (One in sixteen is cut off.)
        if *cut < 16 {
            bytes.truncate(bytes.len() - usize::from(*cut));
        }
        let Some(part) = Part::read(&bytes) else { return };
        // (Before anything follows them.)
        assert!(part.nodes.iter().enumerate().all(|(i, node)| node.parent <= i));
        for row in &part.rows {
            let chain = part.chain(row.node);
            assert!(!chain.is_empty() && chain.len() <= part.nodes.len());
            assert!(chain.iter().all(|node| *node < part.nodes.len()));
        }
    });
}

#[test]
fn bytes_that_are_no_part_are_refused() {
    check!().for_each(|bytes: &[u8]| assert!(Part::read(bytes).is_none()));
}

#[test]
fn any_text_is_a_value_in_its_range_or_refused() {
    check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        for spec in OPTIONS {
            if let Ok(value) = options::parse(spec, &text) {
                assert!((spec.min..=spec.max).contains(&value), "{}={text}: {value}", spec.name);
            }
        }
    });
}

/// Text made of pieces that mean something, so that what lies behind them is reached.
fn pieces(numbers: &[(u8, u64)], known: &[&str]) -> String {
    let piece = |(kind, number): &(u8, u64)| match usize::from(*kind) {
        kind if kind < 128 => known[kind % known.len()].to_owned(),
        kind if kind < 192 => number.to_string(),
        kind => [",", "=", ":", "/", "+", "-", " ", "K", "G"][kind % 9].to_owned(),
    };
    numbers.iter().map(piece).collect()
}

#[test]
fn any_text_of_pieces_is_a_value_in_its_range_or_refused() {
    check!().with_type::<Vec<(u8, u64)>>().with_iterations(20_000).for_each(|numbers| {
        let text = pieces(numbers, &["yes", "0", "off", "K", "m", "G", "9"]);
        for spec in OPTIONS {
            if let Ok(value) = options::parse(spec, &text) {
                assert!((spec.min..=spec.max).contains(&value), "{}={text}: {value}", spec.name);
            }
        }
    });
}

#[test]
fn costs_that_are_understood_are_written_and_read_alike() {
    let names: Vec<&str> = Costs::REFERENCE.iter().map(|(name, _)| name).collect();
    check!().with_type::<Vec<(u8, u64)>>().with_iterations(20_000).for_each(|numbers| {
        if let Ok(costs) = Costs::parse(&pieces(numbers, &names)) {
            assert_eq!(
                Costs::parse(&costs.to_string()).map(|again| again.to_string()),
                Ok(costs.to_string())
            );
        }
    });
}

#[test]
fn rules_of_the_injector_are_understood_or_refused() {
    let known = ["move", "all", "register", "seed=", "EBUSY", "short", "1/3", "ENOMEM"];
    check!().with_type::<Vec<(u8, u64)>>().with_iterations(20_000).for_each(|numbers| {
        let _ = Plan::parse(&pieces(numbers, &known));
    });
}

/// A recording of a program that copies, with a head that is right.
fn recording() -> Vec<u8> {
    let (mut writer, mut entries) = (Writer::new(), Vec::new());
    let (addr, len) = (0x7fff_0000_0000, 64 << 10);
    for round in 0..8 {
        let now = Times { cpu: round * 100_000, wall: round * 200_000 };
        let (call, to, caller) = (round as u32, addr + (1 << 20), 0x1234);
        for operation in [
            Operation::Receive { call, addr, len },
            Operation::Received { call, bytes: len },
            Operation::Copy { to, from: addr, len, caller, input: round == 0 },
            Operation::Touch { addr: to },
            Operation::Send { call, addr: to, len },
            Operation::Sent { call, bytes: len },
            Operation::Freed(Span::sized(to, len)),
        ] {
            entries.extend(writer.did(now, operation));
        }
        entries.extend(writer.told(1, Event::Elided { bytes: len }));
    }
    let costs = Costs::REFERENCE;
    let text = format!(
        "command=x\ncontroller=always\nthreshold=16384\nbackoff=1\nextent_bytes=1000000\n\
         ranges=10\ncosts={costs}\n"
    );
    let head = Head { text: text.len() as u32, used: entries.len() as u64, full: false };
    [&head.bytes()[..], text.as_bytes(), &entries].concat()
}

#[test]
fn a_damaged_recording_is_done_again_or_refused() {
    let stage = Stage::new();
    let whole = recording();
    assert!(Trace::read(&whole).is_ok());
    check!().with_type::<(Vec<(u16, u8)>, u8)>().with_iterations(3000).for_each(
        |(damages, cut)| {
            let mut bytes = whole.clone();
            for (at, value) in damages {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *value;
            }
            if *cut < 16 {
                bytes.truncate(bytes.len() - usize::from(*cut));
            }
            let Ok(trace) = Trace::read(&bytes) else { return };
            for choice in [Choice::From(0), Choice::Accounts] {
                let outcome = play_choice(&trace, &stage, 1_000_000, Unseen::default(), choice);
                assert!(outcome.tally.elided_bytes <= outcome.tally.bytes.saturating_mul(2));
            }
        },
    );
}

#[test]
fn bytes_that_are_no_recording_are_refused() {
    check!().for_each(|bytes: &[u8]| {
        let behind_a_head = [&recording()[..200], bytes].concat();
        let _ = (Trace::read(bytes), Trace::read(&behind_a_head));
    });
}
