//! A replay tells of each copy that was refused the reason that the program was told.

use std::sync::{Arc, Mutex};
use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_core::plan::CopyPlan;
use uncopy_core::tracker::{Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{
    Basis, Choice, Costs, Event, Observer, Operation, Pauses, REASONS, Reason, Records, Refusal,
    SiteId, Times,
};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::Span;
use uncopy_replay::{Stage, Unseen, play_choice, recorded};
use uncopy_trace::{Head, Start, Trace, Writer};

const POOL: Span = Span::sized(1 << 44, 1 << 30);
const LEN: usize = 64 << 10;
const THRESHOLD: usize = 16 << 10;
const LIMITS: Limits = Limits { extent_bytes: 1 << 28, ranges: 100, views: 1000 };

/// A machine that refuses what the next copy needs.
struct Refusing {
    /// The refusal to register.
    register: Option<Refusal>,
    /// To move the page behind so many others.
    take: Option<(usize, Refusal)>,
    changing: bool,
}

impl Memory for Refusing {
    fn pool_span(&self) -> Span {
        POOL
    }

    fn register(&mut self, _: Span) -> Result<(), Refusal> {
        self.register.map_or(Ok(()), Err)
    }

    fn unregister(&mut self, _: Span) {}

    fn map_changing(&mut self) -> Option<bool> {
        Some(self.changing)
    }

    fn move_out(&mut self, from: Span, _: usize, _: bool) -> Taken {
        let whole = Taken { pages: from.pages(), stop: Stop::Done };
        self.take.map_or(whole, |(pages, why)| Taken { pages, stop: Stop::Refused(why) })
    }

    fn move_in(&mut self, to: Span, _: usize) -> usize {
        to.pages()
    }

    fn discard(&mut self, _: usize, _: usize) -> bool {
        true
    }

    fn fill(&mut self, span: Span, _: &[Piece]) -> (usize, Result<(), FillError>) {
        (span.pages(), Ok(()))
    }
}

/// Writes entries as the library does.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<(Writer, Vec<u8>)>>);

impl Observer for Recorder {
    fn did(&mut self, operation: Operation) {
        let (writer, bytes) = &mut *self.0.lock().unwrap();
        bytes.extend(writer.did(Times::default(), operation));
    }

    fn told(&mut self, site: SiteId, event: Event) {
        let (writer, bytes) = &mut *self.0.lock().unwrap();
        bytes.extend(writer.told(site, event));
    }
}

impl Recorder {
    /// The file, read.
    fn trace(&self) -> Trace {
        let start = Start {
            command: "refused".to_owned(),
            controller: "always".to_owned(),
            threshold: THRESHOLD,
            backoff: false,
            extent_bytes: LIMITS.extent_bytes,
            ranges: LIMITS.ranges,
            costs: Costs::REFERENCE,
        };
        let (text, (_, bytes)) = (start.to_string(), &*self.0.lock().unwrap());
        let head = Head { text: text.len() as u32, used: bytes.len() as u64, full: false };
        Trace::read(&[&head.bytes()[..], text.as_bytes(), bytes].concat()).unwrap()
    }
}

fn leaked<T: Default>() -> &'static T {
    Box::leak(Box::default())
}

// (Larger than a test's stack.)
static FILTER: Filter = Filter::new();
static COUNTERS: Counters = Counters::new();

/// A copy for each way in which one can be refused, and one that is elided between any two.
fn record(ways: &[Refusing]) -> Trace {
    let (recorder, records) = (Recorder::default(), leaked::<Records>());
    let pages = POOL.pages();
    let basis = Basis {
        threshold: THRESHOLD,
        backoff: false,
        costs: Costs::REFERENCE,
        pauses: leaked::<Pauses>(),
        records,
    };
    let mut tracker = Tracker::new(
        Refusing { register: None, take: None, changing: false },
        PoolShape { boundary: pages / 2, pages },
        LIMITS,
        Choice::From(0).control(basis),
        &FILTER,
        &COUNTERS,
    );
    tracker.observed_by(Some(Box::new(recorder.clone())));
    for (i, way) in ways.iter().enumerate() {
        for (n, refuses) in [(2 * i, true), (2 * i + 1, false)] {
            let Refusing { register, take, changing } = *way;
            tracker.memory = match refuses {
                true => Refusing { register, take, changing },
                false => Refusing { register: None, take: None, changing: false },
            };
            let (from, to) = ((1 << 40) + n * 4 * LEN, (1 << 40) + n * 4 * LEN + 2 * LEN);
            let mut plan = CopyPlan::default();
            tracker.copy_begin(to, from, LEN, 0x1000 + n, true, &mut plan);
            assert!(plan.staged.is_empty(), "whole pages");
            tracker.unpin(&mut plan.pins);
        }
    }
    recorder.trace()
}

#[test]
fn a_refused_copy_has_the_same_reason_when_it_is_done_again() {
    let never = Refusing { register: None, take: None, changing: false };
    let mut ways = vec![Refusing { changing: true, ..never }];
    for why in Refusal::ALL {
        ways.push(Refusing { register: Some(why), take: None, changing: false });
        ways.push(Refusing { register: None, take: Some((0, why)), changing: false });
    }
    let trace = record(&ways);
    let was = recorded(&trace);
    let reasons: Vec<Reason> =
        REASONS.iter().map(|r| r.0).filter(|r| was.missed[*r as usize] > 0).collect();
    let expected = [
        Reason::Resident,
        Reason::RefusedBusy,
        Reason::RefusedAgain,
        Reason::RefusedNoMemory,
        Reason::RefusedUnsuitable,
        Reason::RefusedOther,
    ];
    assert_eq!((reasons, was.elided), (expected.to_vec(), ways.len() as u64));
    let stage = Stage::new();
    let again = play_choice(&trace, &stage, 0, Unseen::default(), Choice::From(0)).tally;
    assert_eq!((again.missed, again.elided), (was.missed, was.elided));
}
