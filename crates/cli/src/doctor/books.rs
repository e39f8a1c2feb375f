//! What the tracker's books cost alone: it is run here on memory that does not exist.

use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_core::plan::{CopyPlan, InputPlan, OutputPlan};
use uncopy_core::tracker::{Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Costs, Pauses, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::Span;

use super::measured::{Measured, Work};
use super::sample::{of, time};
use crate::Outcome;

/// A machine where everything works at once, except on what lies in `unsuitable`.
struct Nowhere {
    unsuitable: Span,
}

const POOL: Span = Span::sized(1 << 44, 1 << 30);
const POOL_PAGES: usize = POOL.pages();

impl Memory for Nowhere {
    fn pool_span(&self) -> Span {
        POOL
    }

    fn register(&mut self, span: Span) -> Result<(), ()> {
        if self.unsuitable.overlaps(span) { Err(()) } else { Ok(()) }
    }

    fn unregister(&mut self, _: Span) {}

    fn map_changing(&mut self) -> Option<bool> {
        Some(false)
    }

    fn move_out(&mut self, from: Span, _: usize, _: bool) -> Taken {
        Taken { pages: from.pages(), stop: Stop::Done }
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

/// Buffers of a program with some connections.
const BUFFERS: usize = 64;
const SIZE: usize = 64 << 10;

fn buffer(kind: usize, i: usize) -> usize {
    (1 << 40) + kind * (1 << 32) + i * 2 * SIZE
}

const RECEIVED: usize = 0;
const COPIED: usize = 1;
const UNSUITABLE: usize = 2;

/// The tracker and its plans.
pub struct TrackerAlone {
    tracker: Tracker<Nowhere>,
    copy: CopyPlan,
    input: InputPlan,
    output: OutputPlan,
    counters: &'static Counters,
}

impl TrackerAlone {
    /// A tracker with nothing in it.
    pub fn new() -> Self {
        // Once in the life of the process.
        let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
        let pauses: &'static Pauses = Box::leak(Box::new(Pauses::new()));
        let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
        let tracker = Tracker::new(
            Nowhere { unsuitable: Span::sized(buffer(UNSUITABLE, 0), 1 << 32) },
            PoolShape { boundary: POOL_PAGES / 2, pages: POOL_PAGES },
            Limits { extent_bytes: POOL.len() / 2, ranges: 1 << 20, views: 1 << 20 },
            Policy::new(SIZE / 4, false, Costs::REFERENCE, pauses),
            filter,
            counters,
        );
        let (copy, input, output) = Default::default();
        Self { tracker, copy, input, output, counters }
    }

    /// What the tracker does for a copy, outside of the lock included.
    pub fn copy(&mut self, to: usize, from: usize, len: usize) {
        self.copy = CopyPlan::default();
        self.tracker.copy_begin(to, from, len, 0x1234_5678, true, &mut self.copy);
        self.tracker.unpin(&mut self.copy.pins);
    }

    fn receive(&mut self, at: usize) {
        self.input = InputPlan::default();
        self.tracker.input_begin(&[(at, SIZE)], &mut self.input);
        self.tracker.input_commit(&mut self.input, SIZE);
        self.tracker.unpin(&mut self.input.pins);
    }

    fn send(&mut self, from: usize) {
        self.output = OutputPlan::default();
        self.tracker.output_begin(&[(from, SIZE)], &mut self.output);
        self.tracker.unpin(&mut self.output.pins);
    }

    /// Time of `work` for one of all buffers.
    fn each(&mut self, mut work: impl FnMut(&mut Self, usize)) -> f64 {
        time(|| (0..BUFFERS).for_each(|i| work(self, i))) / BUFFERS as f64
    }

    /// Copies elided so far.
    pub fn elided(&self) -> u64 {
        self.counters.snapshot().elided_copies
    }
}

/// Measures; calls `done` after each piece of work.
pub fn measure(results: &mut Vec<Measured>, mut done: impl FnMut()) -> Outcome {
    let mut books = TrackerAlone::new();
    let mut put = |work, ns| {
        results.push(Measured { work, bytes: 0, ns });
        done();
    };
    // The first copy moves the source out; from then on both sides are unmapped.
    for i in 0..BUFFERS {
        books.copy(buffer(COPIED, i), buffer(RECEIVED, i), SIZE);
    }
    if books.elided() != BUFFERS as u64 {
        return Err("the simulated tracker elided nothing".to_owned());
    }
    put(Work::BooksInput, of(|| books.each(|b, i| b.receive(buffer(RECEIVED, i)))));
    put(
        Work::BooksAgain,
        of(|| {
            books.each(|b, i| b.receive(buffer(RECEIVED, i)));
            books.each(|b, i| b.copy(buffer(COPIED, i), buffer(RECEIVED, i), SIZE))
        }),
    );
    put(Work::BooksOutput, of(|| books.each(|b, i| b.send(buffer(COPIED, i)))));
    let mut parts = 0;
    put(
        Work::BooksElide,
        of(|| {
            // Never as long as the last one.
            parts = (parts + 1) % 2;
            let len = SIZE - parts * (SIZE / 4);
            books.each(|b, i| b.copy(buffer(COPIED, i), buffer(RECEIVED, i), len))
        }),
    );
    put(
        Work::BooksLook,
        of(|| books.each(|b, i| b.copy(buffer(UNSUITABLE, i) + SIZE, buffer(UNSUITABLE, i), SIZE))),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_work_does_what_it_is_measured_for() {
        let mut b = TrackerAlone::new();
        let (from, to) = (buffer(RECEIVED, 0), buffer(COPIED, 0));
        b.copy(to, from, SIZE);
        b.receive(from);
        assert_eq!(b.counters.snapshot().input_bytes, SIZE as u64);
        for (n, len) in [(2, SIZE), (3, SIZE / 4 * 3), (4, SIZE)] {
            b.copy(to, from, len);
            assert_eq!(b.elided(), n);
        }
        b.send(to);
        assert_eq!(b.counters.snapshot().output_bytes, SIZE as u64);
        b.copy(buffer(UNSUITABLE, 0) + SIZE, buffer(UNSUITABLE, 0), SIZE);
        assert_eq!(b.elided(), 4);
        assert!(b.copy.bypass && b.counters.snapshot().refusals > 0);
    }
}
