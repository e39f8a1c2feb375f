//! The tracker's books alone, on memory that does not exist: what they cost is measured so.

use std::thread;

use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_core::plan::{CopyPlan, InputPlan, OutputPlan, Went};
use uncopy_core::tracker::{Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Pauses, Policy, Refusal};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::Span;

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

    fn register(&mut self, span: Span) -> Result<(), Refusal> {
        if self.unsuitable.overlaps(span) { Err(Refusal::Unsuitable) } else { Ok(()) }
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
pub const BUFFERS: usize = 64;
/// Bytes of each.
pub const SIZE: usize = 64 << 10;

/// Where buffer number `i` of a kind lies.
pub fn buffer(kind: usize, i: usize) -> usize {
    (1 << 40) + kind * (1 << 32) + i * 2 * SIZE
}

/// The kind that is received into.
pub const RECEIVED: usize = 0;
/// The kind that is copied to.
pub const COPIED: usize = 1;
/// The kind that cannot be tracked.
pub const UNSUITABLE: usize = 2;

/// The tracker and its plans.
pub struct TrackerAlone {
    tracker: Tracker<Nowhere>,
    copy: CopyPlan,
    input: InputPlan,
    output: OutputPlan,
    counters: &'static Counters,
}

/// Made on a stack with room for two of it: an unoptimized build makes it there, and it is larger
/// than what a thread has as a rule.
fn filter() -> Box<Filter> {
    let stack = 2 * size_of::<Filter>() + (1 << 20);
    let thread = thread::Builder::new().stack_size(stack).spawn(|| Box::new(Filter::new()));
    let made = thread.map(thread::JoinHandle::join);
    made.expect("a thread can be made").expect("making it does not panic")
}

impl Default for TrackerAlone {
    fn default() -> Self {
        Self::new()
    }
}

impl TrackerAlone {
    /// A tracker with nothing in it.
    pub fn new() -> Self {
        // Once in the life of the process.
        let filter: &'static Filter = Box::leak(filter());
        let pauses: &'static Pauses = Box::leak(Box::new(Pauses::new()));
        let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
        let tracker = Tracker::new(
            Nowhere { unsuitable: Span::sized(buffer(UNSUITABLE, 0), 1 << 32) },
            PoolShape { boundary: POOL_PAGES / 2, pages: POOL_PAGES },
            Limits { extent_bytes: POOL.len() / 2, ranges: 1 << 20, views: 1 << 20 },
            Control::new(Policy::new(false, Costs::REFERENCE, pauses), SIZE / 4),
            filter,
            counters,
        );
        let (copy, input, output) = Default::default();
        Self { tracker, copy, input, output, counters }
    }

    /// The tracker's work for a copy, outside of the lock included.
    pub fn copy(&mut self, to: usize, from: usize, len: usize) {
        self.copy = CopyPlan::default();
        self.tracker.copy_begin(to, from, len, 0x1234_5678, true, &mut self.copy);
        self.tracker.unpin(&mut self.copy.pins);
    }

    /// The tracker's work for an input of a whole buffer.
    pub fn receive(&mut self, at: usize) {
        self.input = InputPlan::default();
        self.tracker.input_begin(&[(at, SIZE)], &mut self.input);
        self.tracker.input_commit(&mut self.input, SIZE);
        self.tracker.unpin(&mut self.input.pins);
    }

    /// The tracker's work for an output of a whole buffer.
    pub fn send(&mut self, from: usize) {
        self.output = OutputPlan::default();
        self.tracker.output_begin(&[(from, SIZE)], &mut self.output);
        self.tracker.output_done(&mut self.output, SIZE, Went::Copied);
    }

    /// Copies elided so far.
    pub fn elided(&self) -> u64 {
        self.counters.snapshot().elided_copies
    }
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
