//! The memory that is given back where the program wants for mappings, or locks its memory.

#[allow(dead_code, reason = "other tests use more of it")]
mod machine;

use machine::{BASE, Machine, POOL, page_of};
use uncopy_core::plan::CopyPlan;
use uncopy_core::tracker::{Fault, Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Pauses, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::PAGE;

const LEN: usize = 8 * PAGE;
const POOL_PAGES: usize = 256;
const CALLER: usize = 0x900d;

/// The `n`th pair of buffers, with a page between any two of them, so that each is a range of its
/// own.
fn pair(n: usize) -> (usize, usize) {
    let at = BASE + n * 2 * (LEN + PAGE);
    (at, at + LEN + PAGE)
}

/// A program whose buffers are resident, each page full of the number of its pair and its own.
fn program(pairs: usize) -> Tracker<Machine> {
    let mut machine = Machine::new(pairs * 2 * (LEN / PAGE + 1), POOL_PAGES, 1, false);
    for n in 0..pairs {
        for page in 0..LEN / PAGE {
            machine.program[page_of(pair(n).0) + page] = Some(Box::new([byte(n, page); PAGE]));
            machine.program[page_of(pair(n).1) + page] = Some(Box::new([0; PAGE]));
        }
    }
    let pauses: &'static Pauses = Box::leak(Box::default());
    let control = Control::new(Policy::new(false, Costs::REFERENCE, pauses), 16 << 10);
    let limits = Limits { extent_bytes: POOL_PAGES / 2 * PAGE, ranges: 100, views: 1000 };
    let shape = PoolShape { boundary: POOL_PAGES / 2, pages: POOL_PAGES };
    let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    Tracker::new(machine, shape, limits, control, filter, counters)
}

fn byte(pair: usize, page: usize) -> u8 {
    (pair * 16 + page + 1) as u8
}

/// Copies the first buffer of a pair to the second, as a shim does. Returns whether any of that was
/// elided.
fn copy(tracker: &mut Tracker<Machine>, n: usize) -> bool {
    let (from, to) = pair(n);
    let mut plan = CopyPlan::default();
    tracker.copy_begin(to, from, LEN, CALLER, true, &mut plan);
    assert!(plan.staged.is_empty(), "whole pages need no fringes");
    let elided = !plan.bypass;
    if plan.bypass {
        for i in 0..LEN {
            let byte = *loaded(tracker, from + i);
            *loaded(tracker, to + i) = byte;
        }
    }
    tracker.unpin(&mut plan.pins);
    elided
}

/// The byte at `addr`, which the program touches.
fn loaded(tracker: &mut Tracker<Machine>, addr: usize) -> &mut u8 {
    let page = page_of(addr);
    while tracker.memory.program[page].is_none() {
        if tracker.fault(addr) == Fault::Unknown {
            tracker.memory.program[page] = Some(Box::new([0; PAGE]));
        }
    }
    &mut tracker.memory.program[page].as_mut().unwrap()[addr % PAGE]
}

/// Both buffers of a pair hold what was copied.
fn assert_copied(tracker: &mut Tracker<Machine>, n: usize) {
    for page in 0..LEN / PAGE {
        for buffer in [pair(n).0, pair(n).1] {
            assert_eq!(
                *loaded(tracker, buffer + page * PAGE + 7),
                byte(n, page),
                "{n}, page {page}"
            );
        }
    }
}

#[test]
fn half_of_the_ranges_go_and_no_more_are_registered_than_were_left() {
    const PAIRS: usize = 6;
    let mut tracker = program(PAIRS + 2);
    for n in 0..PAIRS {
        assert!(copy(&mut tracker, n), "pair {n}");
    }
    let before = tracker.memory.registered.count();
    assert_eq!(before, 2 * PAIRS, "each buffer is a range of its own");
    let half = tracker.halve_ranges().unwrap();
    tracker.make_ordinary(half).unwrap();
    assert_eq!(tracker.memory.registered.count(), before / 2);
    // Copies that would need new ranges are made from now on.
    for n in PAIRS..PAIRS + 2 {
        assert!(!copy(&mut tracker, n), "pair {n}");
    }
    assert!(tracker.memory.registered.count() <= before / 2);
    for n in 0..PAIRS + 2 {
        assert_copied(&mut tracker, n);
    }
    tracker.check().unwrap();
}

#[test]
fn where_nothing_is_registered_there_is_nothing_to_halve() {
    assert!(program(1).halve_ranges().is_none());
}

#[test]
fn the_last_range_can_be_given_back_too() {
    let mut tracker = program(1);
    assert!(copy(&mut tracker, 0));
    while let Some(half) = tracker.halve_ranges() {
        tracker.make_ordinary(half).unwrap();
    }
    assert_eq!(tracker.memory.registered.count(), 0);
    assert_copied(&mut tracker, 0);
}

#[test]
fn a_pool_that_is_shed_keeps_only_what_extents_hold_and_gives_out_nothing_more() {
    let mut tracker = program(4);
    for n in 0..2 {
        assert!(copy(&mut tracker, n), "pair {n}");
    }
    let mut gone = [false; POOL_PAGES];
    tracker.shed_pool(|_, page, pages| {
        for (n, gone) in gone[page..page + pages].iter_mut().enumerate() {
            assert!(!std::mem::replace(gone, true), "page {} goes twice", page + n);
        }
    });
    let held: Vec<usize> = (0..POOL_PAGES).filter(|page| !gone[*page]).collect();
    assert_eq!(held.len(), 2 * LEN / PAGE, "what two copies hold: {held:?}");
    for page in &held {
        assert!(tracker.memory.pool[*page].is_some(), "page {page} of {POOL:#x}");
    }
    // The books go on with what there is.
    assert!(!copy(&mut tracker, 2), "a new extent would need room");
    for n in 0..3 {
        assert_copied(&mut tracker, n);
    }
    tracker.check().unwrap();
}
