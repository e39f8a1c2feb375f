//! Memory that is about to be unmapped, dropped or moved, until the kernel's report is read, or the
//! call has failed.

#[allow(dead_code, reason = "nothing is lent here")]
mod machine;

use machine::{BASE, Machine, page_of};
use std::sync::atomic::Ordering::Relaxed;
use uncopy_core::plan::CopyPlan;
use uncopy_core::tracker::{Fault, Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Pauses, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};

const LEN: usize = 16 * PAGE;
const SOURCE: usize = BASE;
const OTHER: usize = BASE + 16 * PAGE;
const COPY: usize = BASE + 32 * PAGE;
const ALL: Span = Span::new(COPY, COPY + LEN);
const HALF: Span = Span::new(COPY, COPY + LEN / 2);

struct World {
    tracker: Tracker<Machine>,
    counters: &'static Counters,
}

/// Two sources, resident, of which each page is full of its number; a copy of the first that was
/// elided.
fn elided() -> World {
    let mut machine = Machine::new(64, 1024, 1, false);
    for page in 0..32 {
        machine.program[page] = Some(Box::new([page as u8 + 1; PAGE]));
    }
    let pauses: &'static Pauses = Box::leak(Box::default());
    let control = Control::new(Policy::new(false, Costs::REFERENCE, pauses), 16 << 10);
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    let limits = Limits { extent_bytes: 512 * PAGE, ranges: 100, views: 1000 };
    let shape = PoolShape { boundary: 512, pages: 1024 };
    let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
    let tracker = Tracker::new(machine, shape, limits, control, filter, counters);
    let mut world = World { tracker, counters };
    assert!(world.elides(SOURCE));
    world
}

impl World {
    /// Copies to [`COPY`]; returns whether that was elided. (If not, nothing is copied.)
    fn elides(&mut self, source: usize) -> bool {
        let before = self.counters.elided_bytes.load(Relaxed);
        let mut plan = CopyPlan::default();
        self.tracker.copy_begin(COPY, source, LEN, 0x900d, true, &mut plan);
        self.tracker.unpin(&mut plan.pins);
        self.counters.elided_bytes.load(Relaxed) != before
    }

    /// The byte that the program finds at `addr`, which is missing.
    fn touched(&mut self, addr: usize) -> u8 {
        assert_eq!(self.tracker.fault(addr), Fault::Resolved);
        self.tracker.check().unwrap();
        self.tracker.memory.program[page_of(addr)].as_ref().map_or(0, |page| page[addr % PAGE])
    }
}

#[test]
fn views_whose_unmapping_fails_are_as_before() {
    let mut w = elided();
    let detached = w.tracker.detach(ALL);
    w.tracker.munmapped(ALL);
    w.tracker.reattach(&detached);
    assert_eq!(w.touched(COPY + PAGE), 2);
}

#[test]
fn addresses_that_somebody_has_got_meanwhile_are_not_those_that_were_detached() {
    let mut w = elided();
    let detached = w.tracker.detach(ALL);
    assert!(w.tracker.tracks(HALF), "who gets the addresses looks there");
    w.tracker.forget(HALF);
    assert!(!w.tracker.tracks(HALF) && w.tracker.tracks(ALL));
    w.tracker.reattach(&detached);
    w.tracker.check().unwrap();
    assert!(!w.tracker.tracks(HALF));
    assert_eq!(w.touched(HALF.end), 9);
}

#[test]
fn what_is_dropped_while_it_is_detached_reads_as_zeros() {
    let mut w = elided();
    let detached = w.tracker.detach(ALL);
    w.tracker.removed(HALF);
    w.tracker.reattach(&detached);
    assert!(!w.tracker.views_in(HALF));
    assert_eq!(w.touched(HALF.end), 9);
}

#[test]
fn nothing_is_elided_where_views_are_detached() {
    let mut w = elided();
    let detached = w.tracker.detach(ALL);
    assert!(!w.elides(OTHER));
    assert_eq!(w.tracker.fault(COPY), Fault::Resolved, "the copy is made, and touches it");
    w.tracker.drop_detached(&detached);
    assert!(w.elides(OTHER));
}

#[test]
fn views_of_a_call_that_fails_are_written_out() {
    let mut w = elided();
    let detached = w.tracker.detach(ALL);
    w.tracker.munmapped(ALL);
    w.tracker.write_back(&detached).unwrap();
    w.tracker.check().unwrap();
    assert!(!w.tracker.tracks(ALL));
    let page = w.tracker.memory.program[page_of(COPY + PAGE)].as_ref();
    assert_eq!(page.map(|page| page[0]), Some(2));
}

#[test]
fn nothing_is_moved_away_that_is_about_to_be_dropped() {
    let mut w = elided();
    w.tracker.removed(Span::sized(OTHER + 4 * PAGE, PAGE));
    w.tracker.memory.changing = true;
    assert!(!w.elides(OTHER));
    assert!(w.tracker.memory.program[page_of(OTHER)].is_some());
    w.tracker.memory.changing = false;
    assert!(w.elides(OTHER));
}

#[test]
fn who_touches_what_is_being_dropped_waits_until_it_is() {
    let mut w = elided();
    w.tracker.removed(ALL);
    w.tracker.memory.changing = true;
    assert_eq!(w.tracker.fault(COPY), Fault::Again);
    w.tracker.memory.changing = false;
    assert_eq!(w.touched(COPY), 0);
}
