//! Extents in memory of somebody else's: from where it is handed over to where it comes back.

#[allow(dead_code, reason = "nothing is lent here")]
mod machine;

use machine::foreign::{Foreign, take_released};
use machine::{BASE, Machine, page_of};
use std::sync::atomic::Ordering::Relaxed;
use uncopy_core::plan::{CopyPlan, InputPlan, OutputPlan, RecallPlan, Went};
use uncopy_core::regions::RegionId;
use uncopy_core::tracker::{Fault, Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Pauses, Policy, Reason};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};

const LEN: usize = 16 * PAGE;
const BUFFER: usize = BASE;
const COPY: usize = BASE + 32 * PAGE;
const REGION: usize = 0x9000_0000;
const REGION_PAGES: usize = 64;
const CALLER: usize = 0x900d;

struct World {
    tracker: Tracker<Machine>,
    counters: &'static Counters,
    region: RegionId,
}

fn world(movable: bool) -> World {
    let mut machine = Machine::new(64, 1024, 1, false);
    machine.foreign = vec![Foreign::new(REGION, REGION_PAGES, movable)];
    let pauses: &'static Pauses = Box::leak(Box::default());
    let costs = Costs { lend: 0, ..Costs::REFERENCE };
    let control = Control::new(Policy::new(false, costs, pauses), 16 << 10);
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    // (Of our own memory, less than one message.)
    let limits = Limits { extent_bytes: LEN / 2, ranges: 100, views: 1000 };
    let shape = PoolShape { boundary: 512, pages: 1024 };
    let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
    let mut tracker = Tracker::new(machine, shape, limits, control, filter, counters);
    let region = tracker.memory.foreign[0].region();
    let region = tracker.begin_region(region).expect("there is memory for that");
    World { tracker, counters, region }
}

impl World {
    /// Receives the bytes at `at` in the region into `BUFFER`, each page full of its own number.
    fn receive(&mut self, at: usize, len: usize) -> Result<(), Reason> {
        let range = Span::sized(REGION + at, len);
        self.tracker.memory.foreign[0].fill(range, |i| (i / PAGE) as u8 + 1);
        let mut plan = InputPlan::default();
        let (buffers, received) = ([(BUFFER, len)], [(self.region, range)]);
        let taken = self.tracker.input_by_reference(&buffers, &received, CALLER, &mut plan);
        assert!(plan.copies.is_empty(), "a buffer of whole pages needs no copy");
        self.tracker.check().unwrap();
        taken
    }

    fn copy(&mut self) {
        let mut plan = CopyPlan::default();
        self.tracker.copy_begin(COPY, BUFFER, LEN, CALLER, true, &mut plan);
        assert!(!plan.bypass && plan.copies.is_empty() && plan.staged.is_empty());
        self.tracker.unpin(&mut plan.pins);
    }

    fn free(&mut self, addr: usize) {
        self.tracker.freed(addr, LEN);
    }

    /// Spans that came back to the owner.
    fn released(&mut self) -> Vec<Span> {
        while let Some(release) = self.tracker.take_release() {
            release.carry_out();
        }
        take_released().into_iter().map(|(_, span)| span).collect()
    }

    /// Touches all of `LEN` bytes, in order, and compares.
    fn read(&mut self, addr: usize) {
        for page in 0..LEN / PAGE {
            let at = addr + page * PAGE;
            while self.tracker.memory.program[page_of(at)].is_none() {
                assert_eq!(self.tracker.fault(at), Fault::Resolved);
            }
            let there = self.tracker.memory.program[page_of(at)].as_ref().unwrap();
            assert!(there.iter().all(|b| *b == page as u8 + 1), "page {page} holds something else");
        }
    }

    fn recall(&mut self) {
        let mut plan = RecallPlan::default();
        self.tracker.recall_begin(Some(self.region), &mut plan).unwrap();
        self.carry_out(plan);
    }

    fn recall_part(&mut self, part: Span) {
        let mut plan = RecallPlan::default();
        self.tracker.recall_part_begin(part, &mut plan).unwrap();
        self.carry_out(plan);
    }

    fn carry_out(&mut self, mut plan: RecallPlan) {
        for c in &plan.copies {
            for i in 0..c.len {
                *self.tracker.memory.pool_byte(c.to + i) =
                    self.tracker.memory.extent_byte(c.from + i);
            }
        }
        self.tracker.recall_commit(&mut plan);
    }
}

#[test]
fn a_range_comes_back_once_its_last_view_has_ended() {
    let mut w = world(false);
    let range = Span::sized(REGION, LEN);
    assert!(w.receive(0, LEN).is_ok());
    w.copy();
    assert_eq!(w.counters.elided_bytes.load(Relaxed), 2 * LEN as u64);
    w.free(BUFFER);
    assert_eq!(w.released(), [], "a copy is a view of it");
    w.free(COPY);
    assert_eq!(w.released(), [range]);
    assert_eq!(w.released(), []);
}

#[test]
fn a_range_comes_back_only_after_an_output_that_reads_it() {
    let mut w = world(false);
    assert!(w.receive(PAGE, LEN).is_ok());
    let mut plan = OutputPlan::default();
    w.tracker.output_begin(&[(BUFFER, LEN)], &mut plan);
    assert_eq!(plan.pieces.as_slice(), [(REGION + PAGE, LEN)]);
    w.free(BUFFER);
    assert_eq!(w.released(), []);
    w.tracker.output_done(&mut plan, LEN, Went::Copied);
    assert_eq!(w.released(), [Span::sized(REGION + PAGE, LEN)]);
}

#[test]
fn what_is_touched_is_copied_and_then_comes_back() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok());
    w.read(BUFFER);
    assert_eq!(w.released(), [Span::sized(REGION, LEN)]);
    assert_eq!(w.tracker.memory.foreign[0].moved, 0);
}

#[test]
fn pages_of_a_movable_region_are_moved_when_they_are_touched_in_order() {
    let mut w = world(true);
    assert!(w.receive(PAGE, LEN).is_ok());
    w.tracker.memory.foreign[0].hand_over(&[Span::sized(REGION + PAGE, LEN)]);
    w.read(BUFFER);
    assert_eq!(w.tracker.memory.foreign[0].moved, 15, "the second touch in order brings the rest");
    assert_eq!(w.released(), [Span::sized(REGION + PAGE, LEN)], "all of it comes back");
}

#[test]
fn a_page_that_is_not_congruent_is_copied_from_a_movable_region_too() {
    let mut w = world(true);
    assert!(w.receive(PAGE + 1, LEN).is_ok());
    w.read(BUFFER);
    assert_eq!(w.tracker.memory.foreign[0].moved, 0);
    assert_eq!(w.released(), [Span::sized(REGION + PAGE + 1, LEN)]);
}

#[test]
fn memory_of_others_meets_no_limit_of_ours() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok(), "more than our limit for extents");
    assert!(!w.tracker.wants_eviction());
    assert_eq!(w.counters.extent_bytes.load(Relaxed), 0);
}

#[test]
fn memory_of_others_is_never_lent() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok());
    for _ in 0..10 {
        let mut plan = OutputPlan::default();
        w.tracker.output_begin(&[(BUFFER, LEN)], &mut plan);
        assert_eq!(plan.gathered, LEN);
        w.tracker.lend(&mut plan, CALLER);
        assert_eq!(plan.lent, 0, "its owner fills it anew");
        w.tracker.output_done(&mut plan, LEN, Went::Copied);
    }
}

#[test]
fn bytes_of_an_output_that_is_planned_anew_count_once() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok());
    let counted = || w.counters.output_bytes.load(Relaxed);
    let mut plan = OutputPlan::default();
    w.tracker.output_begin(&[(BUFFER, LEN)], &mut plan);
    w.tracker.unpin(&mut plan.pins);
    plan = OutputPlan::default();
    w.tracker.output_begin(&[(BUFFER, LEN)], &mut plan);
    w.tracker.output_done(&mut plan, LEN - 1, Went::Copied);
    assert_eq!(counted(), LEN as u64 - 1);
}

#[test]
fn a_range_comes_back_only_after_a_copy_that_reads_it() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok());
    let resident = page_of(COPY);
    w.tracker.memory.program[resident] = Some(Box::new([0; PAGE]));
    let mut plan = CopyPlan::default();
    // (A page is left where it is.)
    w.tracker.copy_begin(COPY, BUFFER, PAGE, CALLER, true, &mut plan);
    assert!(!plan.bypass && plan.copies.iter().count() == 1);
    w.free(BUFFER);
    assert_eq!(w.released(), []);
    w.tracker.unpin(&mut plan.pins);
    assert_eq!(w.released(), [Span::sized(REGION, LEN)]);
}

#[test]
fn what_is_about_to_be_unmapped_is_called_back_too() {
    let mut w = world(false);
    assert!(w.receive(0, LEN / 2).is_ok());
    let detached = w.tracker.detach(Span::sized(BUFFER, LEN));
    w.recall();
    assert!(!w.tracker.views_abroad());
    assert_eq!(w.released(), [Span::sized(REGION, LEN / 2)]);
    w.tracker.reattach(&detached);
    w.tracker.check().unwrap();
    assert_eq!(w.counters.extents.load(Relaxed), 1);
    assert!(w.tracker.memory.program[page_of(BUFFER)].is_none());
}

#[test]
fn what_cannot_be_taken_stays_its_owners() {
    let mut w = world(false);
    assert_eq!(w.receive(0, 8 << 10), Err(Reason::TooSmall));
    let mut plan = InputPlan::default();
    let outside = [Span::sized(REGION + (REGION_PAGES - 1) * PAGE, LEN)];
    let other = [Span::sized(REGION, LEN / 2), Span::sized(REGION - PAGE, LEN / 2)];
    let buffers = [(BUFFER, LEN)];
    let mut taken = |buffers: &[(usize, usize)], ranges: &[Span]| {
        let received: Vec<_> = ranges.iter().map(|range| (w.region, *range)).collect();
        w.tracker.input_by_reference(buffers, &received, CALLER, &mut plan)
    };
    assert_eq!(taken(&buffers, &outside), Err(Reason::ExhaustedBooks));
    assert_eq!(taken(&buffers, &other), Err(Reason::ExhaustedBooks));
    let inside = [Span::sized(REGION, LEN)];
    let small = [(BUFFER, LEN - 1)];
    assert_eq!(taken(&small, &inside), Err(Reason::Overlap));
    let overlapping = [(BUFFER, LEN / 2 + 1), (BUFFER + LEN / 2, LEN)];
    assert_eq!(taken(&overlapping, &inside), Err(Reason::Overlap));
    assert!(plan.pins.is_empty() && plan.copies.is_empty());
    assert_eq!(w.released(), []);
    assert!(w.tracker.end_region(w.region), "nothing of it is in use");
}

#[test]
fn what_is_called_back_is_copied_home_or_made_the_programs_own() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok());
    assert!(w.tracker.views_abroad());
    // (There is room for less than that at home: so it becomes the program's.)
    w.recall();
    assert!(!w.tracker.views_abroad());
    assert!(w.tracker.memory.program[page_of(BUFFER)].is_some());
    assert_eq!(w.released(), [Span::sized(REGION, LEN)]);
    w.read(BUFFER);

    let mut w = world(false);
    assert!(w.receive(0, LEN / 2).is_ok());
    w.recall();
    assert!(w.tracker.memory.program[page_of(BUFFER)].is_none(), "its views are of the pool now");
    assert_eq!(w.released(), [Span::sized(REGION, LEN / 2)]);
    assert_eq!(w.counters.extent_bytes.load(Relaxed), LEN as u64 / 2);
}

#[test]
fn of_what_is_viewed_a_part_is_called_back() {
    let mut w = world(false);
    assert!(w.receive(4 * PAGE, LEN / 2).is_ok());
    let range = Span::sized(REGION + 4 * PAGE, LEN / 2);
    for other in [Span::sized(REGION, 4 * PAGE), Span::new(range.start + 1, range.end + PAGE)] {
        w.recall_part(other);
        assert!(w.tracker.views_abroad(), "it does not lie within {other:?}");
    }
    assert_eq!(w.released(), []);
    w.recall_part(range);
    assert!(!w.tracker.views_abroad());
    assert_eq!(w.released(), [range]);
    assert!(w.tracker.memory.program[page_of(BUFFER)].is_none(), "its views are of the pool now");
}

#[test]
fn a_region_ends_when_all_of_it_is_back() {
    let mut w = world(false);
    assert!(w.receive(0, LEN).is_ok());
    assert!(!w.tracker.end_region(w.region));
    assert!(w.receive(0, LEN).is_err(), "it takes nothing more");
    w.free(BUFFER);
    assert!(!w.tracker.end_region(w.region), "its owner does not know yet");
    assert_eq!(w.released().len(), 1);
    assert!(w.tracker.end_region(w.region));
}

#[test]
fn a_child_gives_nothing_back_to_its_parents_owners() {
    let mut w = world(false);
    assert!(w.receive(0, LEN / 2).is_ok());
    w.copy_half();
    let mut held = OutputPlan::default();
    w.tracker.output_begin(&[(BUFFER, LEN / 2)], &mut held);
    w.recall();
    // Here the child goes on, in a handler of the program's during that output.
    w.tracker.forget_regions();
    w.tracker.unpin(&mut held.pins);
    assert_eq!(w.released(), []);
    assert!(w.receive(0, LEN).is_err(), "the region is none of its own");
    let region = w.tracker.memory.foreign[0].region();
    w.region = w.tracker.begin_region(region).expect("it begins one itself");
    assert!(w.receive(0, LEN).is_ok());
}

impl World {
    fn copy_half(&mut self) {
        let mut plan = CopyPlan::default();
        self.tracker.copy_begin(COPY, BUFFER, LEN / 2, CALLER, true, &mut plan);
        self.tracker.unpin(&mut plan.pins);
    }
}
