//! Pages that go back to the program as they are.

mod machine;

use machine::{BASE, Machine, POOL, page_of};
use std::sync::atomic::Ordering::Relaxed;
use uncopy_core::plan::{CopyPlan, InputPlan, MAX_PIECES, OutputPlan, Went};
use uncopy_core::tracker::{Fault, Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Controller, Costs, Event, Pauses, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};

const LEN: usize = 16 * PAGE;
const SOURCE: usize = BASE;
const COPY: usize = BASE + 32 * PAGE;
/// The call site that returns here rests from the start.
const RESTING: usize = 0xbad;
const CALLER: usize = 0x900d;
/// Lending pays at once.
const COSTS: Costs = Costs { lend: 0, ..Costs::REFERENCE };

struct World {
    tracker: Tracker<Machine>,
    counters: &'static Counters,
    pauses: &'static Pauses,
    filter: &'static Filter,
}

/// A program that has received 16 pages into an extent, each full of its own number, and a copy of
/// them that was elided.
fn elided() -> World {
    let mut world = moved_out();
    let mut plan = InputPlan::default();
    world.tracker.input_begin(&[(SOURCE, LEN)], &mut plan);
    for t in &plan.targets {
        for i in 0..t.len {
            *world.tracker.memory.pool_byte(t.at + i) = ((t.addr + i - SOURCE) / PAGE) as u8 + 1;
        }
    }
    world.tracker.input_commit(&mut plan, LEN);
    world.copy(COPY, SOURCE, CALLER);
    assert_eq!(world.counters.elided_bytes.load(Relaxed), 2 * LEN as u64);
    assert!(!world.resident(SOURCE) && !world.resident(COPY));
    world
}

/// The same, but the 16 pages were resident, and so moved out for the copy.
fn moved_out() -> World {
    let mut machine = Machine::new(64, 1024, 1, false);
    for page in 0..16 {
        machine.program[page] = Some(Box::new([page as u8 + 1; PAGE]));
    }
    let pauses: &'static Pauses = Box::leak(Box::default());
    let mut policy = Policy::new(true, COSTS, pauses).without_experiments();
    for len in [LEN, LEN / 2] {
        let site = policy.site(RESTING, len);
        (0..1_000).for_each(|_| assert!(!policy.event(site, Event::Fault { pages: 1 })));
    }
    let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
    let limits = Limits { extent_bytes: 512 * PAGE, ranges: 100, views: 1000 };
    let shape = PoolShape { boundary: 512, pages: 1024 };
    let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
    let control = Control::new(policy, 16 << 10);
    let tracker = Tracker::new(machine, shape, limits, control, filter, counters);
    let mut world = World { tracker, counters, pauses, filter };
    world.copy(COPY, SOURCE, CALLER);
    assert_eq!(counters.elided_bytes.load(Relaxed), LEN as u64);
    assert!(!world.resident(SOURCE) && !world.resident(COPY));
    world
}

impl World {
    /// Copies `LEN` bytes as a shim does; returns whether the tracker left it to libc.
    fn copy(&mut self, dst: usize, src: usize, caller: usize) -> bool {
        self.copy_bytes(dst, src, LEN, caller)
    }

    fn copy_bytes(&mut self, dst: usize, src: usize, len: usize, caller: usize) -> bool {
        let mut plan = CopyPlan::default();
        self.tracker.copy_begin(dst, src, len, caller, true, &mut plan);
        if plan.bypass {
            self.move_bytes(dst, src, len);
        } else {
            let staged = std::mem::take(&mut plan.staged);
            staged.iter().for_each(|c| self.move_bytes(c.to, c.from, c.len));
            if !staged.is_empty() {
                plan.staged = staged;
                self.tracker.copy_commit(&mut plan);
            }
            plan.copies.iter().for_each(|c| self.move_bytes(c.to, c.from, c.len));
        }
        self.tracker.unpin(&mut plan.pins);
        self.tracker.check().unwrap();
        plan.bypass
    }

    fn move_bytes(&mut self, to: usize, from: usize, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|i| self.load(from + i)).collect();
        bytes.into_iter().enumerate().for_each(|(i, b)| *self.byte(to + i) = b);
    }

    fn load(&mut self, addr: usize) -> u8 {
        *self.byte(addr)
    }

    /// Where the byte at `addr` is, which the program touches.
    fn byte(&mut self, addr: usize) -> &mut u8 {
        if addr >= POOL {
            return self.tracker.memory.pool_byte(addr);
        }
        let page = page_of(addr);
        while self.tracker.memory.program[page].is_none() {
            let ours = self.tracker.memory.registered.touches(Span::sized(addr, 1));
            if !ours || self.tracker.fault(addr) == Fault::Unknown {
                self.tracker.memory.program[page] = Some(Box::new([0; PAGE]));
            }
        }
        &mut self.tracker.memory.program[page].as_mut().unwrap()[addr % PAGE]
    }

    /// 16 resident pages that are nobody's view.
    fn another_buffer(&mut self) -> usize {
        let at = BASE + 48 * PAGE;
        for page in 0..16 {
            self.tracker.memory.program[page_of(at) + page] = Some(Box::new([0; PAGE]));
        }
        at
    }

    fn resident(&self, addr: usize) -> bool {
        self.tracker.memory.program[page_of(addr)].is_some()
    }

    fn assert_holds_the_numbers(&self, at: usize) {
        for page in 0..16 {
            let there = self.tracker.memory.program[page_of(at) + page].as_deref();
            assert_eq!(there, Some(&[page as u8 + 1; PAGE]), "page {page}");
        }
    }

    fn returned(&self) -> u64 {
        self.counters.moved_in_pages.load(Relaxed)
    }
}

#[test]
fn the_last_view_of_an_extent_is_moved_back_and_its_place_in_the_pool_is_vacant_again() {
    let mut w = elided();
    w.tracker.freed(COPY, LEN);
    w.tracker.make_ordinary(Span::sized(SOURCE, LEN)).unwrap();
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 16);
    assert_eq!(w.counters.extents.load(Relaxed), 0);
    // (The machine asserts that moves go to vacant pages only.)
    w.copy(COPY, SOURCE, CALLER);
    w.tracker.check().unwrap();
}

#[test]
fn a_view_that_is_not_the_last_one_is_copied() {
    let mut w = elided();
    w.tracker.make_ordinary(Span::sized(SOURCE, LEN)).unwrap();
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 0);
    w.tracker.make_ordinary(Span::sized(COPY, LEN)).unwrap();
    w.assert_holds_the_numbers(COPY);
    assert_eq!(w.returned(), 16);
}

#[test]
fn the_second_touch_in_order_moves_back_the_rest_of_a_last_view() {
    let mut w = elided();
    w.tracker.freed(COPY, LEN);
    assert_eq!(w.tracker.fault(SOURCE), Fault::Resolved);
    assert!(w.resident(SOURCE) && !w.resident(SOURCE + PAGE));
    assert_eq!(w.tracker.fault(SOURCE + PAGE), Fault::Resolved);
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 15);
    assert_eq!(w.counters.extents.load(Relaxed), 0);
    w.tracker.check().unwrap();
}

#[test]
fn what_a_resting_site_copies_twice_is_ordinary_memory_from_then_on() {
    let mut w = elided();
    w.tracker.freed(COPY, LEN);
    let other = w.another_buffer();
    assert!(!w.copy(other, SOURCE, RESTING), "the first copy is made from the extent");
    w.assert_holds_the_numbers(other);
    assert!(!w.resident(SOURCE));
    assert!(w.copy(other, SOURCE, RESTING), "the second one is libc's");
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 16);
    assert!(w.tracker.memory.registered.next_in(SOURCE, SOURCE + LEN).is_none());
}

#[test]
fn what_a_resting_site_goes_on_copying_is_copied_back_where_it_cannot_be_moved() {
    let mut w = elided();
    let other = w.another_buffer();
    let from_the_extent = (0..100).take_while(|_| !w.copy(other, SOURCE, RESTING)).count();
    assert_eq!(from_the_extent, 15);
    w.assert_holds_the_numbers(SOURCE);
    w.assert_holds_the_numbers(other);
    assert_eq!(w.returned(), 0);
    assert!(!w.resident(COPY), "the other view stays");
}

#[test]
fn of_what_a_resting_site_goes_on_copying_no_rest_stays_unmapped() {
    let mut w = elided();
    let other = w.another_buffer();
    let copy = |w: &mut World| w.copy_bytes(other, SOURCE + LEN / 2, LEN / 2, RESTING);
    let from_the_extent = (0..100).take_while(|_| !copy(&mut w)).count();
    assert_eq!(from_the_extent, 15);
    w.assert_holds_the_numbers(SOURCE);
    assert!(!w.tracker.tracks(Span::sized(SOURCE, LEN)), "copies of the other half are libc's too");
}

/// A short copy of 8 KB to `to`, three quarters of a page into it, from `from`; again and again
/// until it is libc's.
fn short_copies(w: &mut World, to: usize, from: usize) -> usize {
    let copy = |w: &mut World| w.copy_bytes(to + 3 * PAGE / 4, from, 2 * PAGE, CALLER);
    (0..100).take_while(|_| !copy(w)).count()
}

#[test]
fn short_copies_end_what_a_site_left_unmapped_only_while_it_rests() {
    for (rests, from_views, into_views) in [(true, 1, 0), (false, 100, 100)] {
        let world = || if rests { elided_until_it_rested() } else { elided() };
        let mut w = world();
        let other = w.another_buffer();
        assert_eq!(short_copies(&mut w, other, SOURCE), from_views);
        assert_eq!([0, 1, 15].map(|page| w.load(SOURCE + page * PAGE)), [1, 2, 16]);
        let mut w = world();
        let other = w.another_buffer();
        assert_eq!(short_copies(&mut w, SOURCE, other), into_views);
    }
}

/// The registered part of `LEN` bytes.
fn registered(w: &World, at: usize) -> bool {
    w.tracker.memory.registered.touches(Span::sized(at, LEN))
}

#[test]
fn what_is_freed_again_and_was_not_used_meanwhile_is_ordinary_where_its_site_rests() {
    for rests in [false, true] {
        let mut w = if rests { elided_until_it_rested() } else { elided() };
        w.tracker.freed(SOURCE + 100, LEN - 100);
        assert!(registered(&w, SOURCE), "its pages may come round");
        w.tracker.freed(SOURCE + 100, LEN - 100);
        assert!(registered(&w, SOURCE), "of the first page a part is in use");
        let second = Span::sized(SOURCE + PAGE, LEN - PAGE);
        assert_eq!(w.tracker.memory.registered.touches(second), !rests);
        assert_eq!(w.load(SOURCE), 1);
        w.tracker.check().unwrap();
    }
}

#[test]
fn what_is_registered_for_nothing_beside_what_resting_sites_copy_is_so_no_longer() {
    for rests in [false, true] {
        let mut w = if rests { elided_until_it_rested() } else { elided() };
        w.tracker.untrack(Span::sized(COPY, LEN));
        w.tracker.freed(SOURCE, LEN);
        let (near, other) = (SOURCE + LEN / 2, w.another_buffer());
        w.tracker.untrack(Span::sized(near, LEN / 2));
        assert!(w.filter.perhaps_tracked(near, 1), "it does not tell it from the other half");
        let copy = |w: &mut World| assert!(w.copy_bytes(near, other, LEN / 2, RESTING));
        (0..31).for_each(|_| copy(&mut w));
        assert!(registered(&w, SOURCE));
        copy(&mut w);
        assert_eq!(registered(&w, SOURCE), !rests, "what elides still wants it");
        assert_eq!(w.filter.perhaps_tracked(near, 1), !rests, "else nobody is asked from now on");
        w.tracker.check().unwrap();
    }
}

/// A program that has touched every page of both: registered memory without views.
fn touched() -> World {
    let mut w = elided();
    for page in 0..16 {
        w.load(SOURCE + page * PAGE);
        w.load(COPY + page * PAGE);
    }
    w
}

#[test]
fn what_resting_sites_go_on_copying_is_not_registered_for_ever() {
    let mut w = touched();
    let other = w.another_buffer();
    let registered = |w: &World, at| w.tracker.memory.registered.touches(Span::sized(at, LEN));
    assert!(registered(&w, SOURCE) && w.copy(other, SOURCE, RESTING));
    assert!(registered(&w, SOURCE), "another site may be using it");
    (0..64).for_each(|_| assert!(w.copy(other, SOURCE, RESTING)));
    assert!(!registered(&w, SOURCE) && registered(&w, COPY));
    w.assert_holds_the_numbers(other);
    w.tracker.check().unwrap();
}

#[test]
fn what_other_sites_copy_that_is_no_input_any_more_is_not_registered_for_ever() {
    let mut w = touched();
    let other = w.another_buffer();
    let registered = |w: &World| w.tracker.memory.registered.touches(Span::sized(COPY, LEN));
    let copy = |w: &mut World, times| {
        for _ in 0..times {
            let mut plan = CopyPlan::default();
            w.tracker.copy_begin(other, COPY, LEN, CALLER, false, &mut plan);
            assert!(plan.bypass);
        }
    };
    copy(&mut w, 32);
    assert!(registered(&w), "what elides may be using it");
    copy(&mut w, 32);
    assert!(!registered(&w));
}

#[test]
fn what_is_received_or_sent_in_place_any_more_is_not_registered_for_ever() {
    let at = Span::sized(COPY, LEN);
    let pass: [fn(&mut World); 2] = [
        |w| w.tracker.input_begin(&[(COPY, LEN)], &mut InputPlan::default()),
        |w| w.tracker.output_begin(&[(COPY, LEN)], &mut OutputPlan::default()),
    ];
    for pass in pass {
        let mut w = elided();
        w.tracker.materialize(at).unwrap();
        let registered = |w: &World| w.tracker.memory.registered.touches(at);
        (0..50).for_each(|_| pass(&mut w));
        assert!(registered(&w), "it may come round");
        (0..50).for_each(|_| pass(&mut w));
        assert!(!registered(&w));
        w.assert_holds_the_numbers(COPY);
    }
}

/// An input call into the freed copy and the resident page before it, which `received` so many
/// bytes.
fn receive_from_the_page_before(w: &mut World, received: usize) {
    let mut plan = InputPlan::default();
    w.tracker.input_begin(&[(COPY - PAGE, PAGE + LEN)], &mut plan);
    if !plan.bypass {
        assert_eq!(plan.targets[0].at, COPY - PAGE, "the first page is received in place");
        w.tracker.input_commit(&mut plan, received);
        w.tracker.unpin(&mut plan.pins);
    }
    w.tracker.check().unwrap();
}

#[test]
fn freed_memory_behind_a_buffer_whose_messages_are_short_is_ordinary_once_they_have_cost_its_site_too_much()
 {
    let mut w = elided();
    w.tracker.memory.program[page_of(COPY - PAGE)] = Some(Box::new([77; PAGE]));
    w.tracker.freed(COPY, LEN);
    let freed = Span::sized(COPY, LEN);
    (0..50).for_each(|_| receive_from_the_page_before(&mut w, 40));
    assert!(w.tracker.tracks(freed), "the next message may be longer");
    (0..10_000).for_each(|_| receive_from_the_page_before(&mut w, 40));
    assert!(!w.tracker.tracks(freed));
    assert_eq!(w.load(COPY - PAGE), 77);
    assert!((0..16).all(|page| w.load(SOURCE + page * PAGE) == page as u8 + 1));
}

#[test]
fn freed_memory_behind_a_buffer_goes_on_being_received_into_extents_where_nothing_comes_or_messages_are_long()
 {
    for received in [0, PAGE + LEN] {
        let mut w = elided();
        w.tracker.memory.program[page_of(COPY - PAGE)] = Some(Box::new([77; PAGE]));
        w.tracker.freed(COPY, LEN);
        (0..100).for_each(|_| receive_from_the_page_before(&mut w, received));
        assert!(w.tracker.tracks(Span::sized(COPY, LEN)));
    }
}

#[test]
fn what_is_copied_back_in_part_only_is_looked_at_anew_where_the_destination_shares_a_page() {
    for seed in 0..40 {
        let mut w = elided();
        let len = LEN - 100;
        let before = COPY + 100 - len;
        for page in page_of(before)..page_of(COPY) {
            w.tracker.memory.program[page] = Some(Box::new([0; PAGE]));
        }
        w.tracker.memory.random = machine::Random(seed);
        w.tracker.memory.refusals = true;
        for _ in 0..20 {
            w.copy_bytes(before, COPY + 100, len, RESTING);
        }
        // (The destination's last bytes lie in the source's first page.)
        for i in 0..100 {
            let at = len - 100 + i;
            assert_eq!(w.load(COPY + i), (1 + (100 + at) / PAGE) as u8, "seed {seed}, byte {at}");
        }
    }
}

#[test]
fn what_is_received_into_is_ordinary_memory_first_where_its_call_site_rests() {
    let mut w = elided();
    // The program keeps touching the copy, from its end on, until the site rests.
    while !w.resident(COPY) {
        for page in (0..16).rev().map(|i| COPY + i * PAGE) {
            if !w.resident(page) {
                assert_eq!(w.tracker.fault(page), Fault::Resolved);
            }
        }
        w.copy(COPY, SOURCE, CALLER);
    }
    assert!(!w.resident(SOURCE));
    let mut plan = InputPlan::default();
    w.tracker.input_begin(&[(SOURCE, LEN)], &mut plan);
    assert!(plan.bypass, "it is received in place");
    w.assert_holds_the_numbers(SOURCE);
    w.tracker.check().unwrap();
}

/// Copies from `from` to where views of `elided` end within pages; the copy's site rests.
fn resting_copy_between_pages(w: &mut World, from: usize) {
    w.copy_bytes(COPY + 100, from, LEN - 200, RESTING);
}

#[test]
fn pages_that_a_resting_copy_overwrites_in_part_are_ordinary_memory_too_and_keep_the_rest() {
    let mut w = elided();
    let from = w.another_buffer();
    for page in 0..16 {
        w.tracker.memory.program[page_of(from) + page] = Some(Box::new([99; PAGE]));
    }
    resting_copy_between_pages(&mut w, from);
    assert!((0..16).all(|page| w.resident(COPY + page * PAGE)));
    for at in 0..LEN {
        let overwritten = (100..LEN - 100).contains(&at);
        let expected = if overwritten { 99 } else { (1 + at / PAGE) as u8 };
        assert_eq!(w.load(COPY + at), expected, "byte {at}");
    }
    // No small view is left to be handed on from copy to copy.
    assert!(w.copy_bytes(from, COPY + 100, LEN - 200, RESTING));
    w.tracker.check().unwrap();
}

/// The world that [`elided`] makes, after the program has touched the copy, from its end on, until
/// the site rests.
fn elided_until_it_rested() -> World {
    let mut w = elided();
    while !w.pauses.rests(CALLER, LEN) {
        let views = (0..16).rev().map(|i| COPY + i * PAGE).find(|page| !w.resident(*page));
        match views {
            Some(page) => assert_eq!(w.tracker.fault(page), Fault::Resolved),
            None => drop(w.copy(COPY, SOURCE, CALLER)),
        }
    }
    for page in 0..16 {
        w.load(COPY + page * PAGE);
    }
    w
}

#[test]
fn parts_of_pages_that_are_received_into_are_ordinary_memory_first_where_their_call_site_rests() {
    let mut w = elided_until_it_rested();
    let mut plan = InputPlan::default();
    w.tracker.input_begin(&[(SOURCE + 100, 300), (SOURCE + LEN - 500, 300)], &mut plan);
    assert!(plan.bypass, "it is received in place");
    assert!(w.resident(SOURCE) && w.resident(SOURCE + LEN - PAGE) && !w.resident(SOURCE + PAGE));
    assert_eq!((w.load(SOURCE), w.load(SOURCE + LEN - 1)), (1, 16));
    w.tracker.check().unwrap();
}

/// Sends `SOURCE` so many times, as bytes. Returns how many of these were gathered from extents.
fn send(w: &mut World, times: usize) -> usize {
    let sent_gathered = |_: &usize| {
        let mut plan = OutputPlan::default();
        w.tracker.output_begin(&[(SOURCE, LEN)], &mut plan);
        let gathered = !plan.bypass;
        if gathered {
            w.tracker.output_done(&mut plan, LEN, Went::Copied);
        }
        gathered
    };
    (0..times).filter(sent_gathered).count()
}

#[test]
fn what_is_sent_again_and_again_is_ordinary_memory_where_the_call_site_that_unmapped_it_rests() {
    let mut w = elided_until_it_rested();
    assert!(!w.resident(SOURCE));
    let gathered = send(&mut w, 100);
    assert!((10..20).contains(&gathered), "{gathered}");
    assert!((0..16).all(|page| w.resident(SOURCE + page * PAGE)));
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 16, "its pages are moved in");
    assert!(w.filter.is_input(SOURCE, LEN), "copies of it may be elided again");
    w.tracker.check().unwrap();
}

#[test]
fn a_buffer_of_more_parts_than_a_send_is_planned_with_is_filled_at_once() {
    let mut w = elided();
    // (Every other 64 bytes are of another page.)
    for part in 0..MAX_PIECES {
        w.copy_bytes(COPY + part * 128, SOURCE + PAGE + part * 128, 64, CALLER);
    }
    assert!(!w.resident(COPY));
    let mut plan = OutputPlan::default();
    w.tracker.output_begin(&[(COPY, LEN)], &mut plan);
    assert!(plan.bypass && plan.pins.is_empty());
    assert!((0..16).all(|page| w.resident(COPY + page * PAGE)));
    assert_eq!((w.load(COPY), w.load(COPY + 64), w.load(COPY + LEN - 1)), (2, 1, 16));
    assert_eq!(w.counters.faults.load(Relaxed), 0);
    w.tracker.check().unwrap();
}

#[test]
fn what_is_sent_again_and_again_stays_where_copies_of_it_are_elided() {
    let mut w = elided();
    assert_eq!(send(&mut w, 100), 100);
    assert!(!w.resident(SOURCE + PAGE));
}

#[test]
fn what_was_lent_is_copied_back_never_moved() {
    let mut w = elided();
    w.tracker.freed(COPY, LEN);
    let mut plan = OutputPlan::default();
    // An extent that was sent so often may be lent, whatever its call site has proved.
    for _ in 0..7 {
        w.tracker.output_begin(&[(SOURCE, LEN)], &mut plan);
        w.tracker.output_done(&mut plan, LEN, Went::Copied);
        plan = OutputPlan::default();
    }
    w.tracker.output_begin(&[(SOURCE, LEN)], &mut plan);
    w.tracker.lend(&mut plan, CALLER);
    assert_ne!(plan.lent, 0);
    for &(at, len) in &plan.pieces {
        w.tracker.memory.lend(at, len);
    }
    w.tracker.output_done(&mut plan, LEN, Went::Lent);
    w.tracker.make_ordinary(Span::sized(SOURCE, LEN)).unwrap();
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 0);
    w.tracker.memory.check_lent();
}

/// Somebody outside refers to the pages that were moved out, which the program wrote to before.
fn held_by_the_kernel(w: &mut World) {
    let at = (0..w.tracker.memory.pool.len()).find(|p| w.tracker.memory.pool[*p].is_some());
    w.tracker.memory.lend(POOL + at.unwrap() * PAGE, LEN);
}

#[test]
fn pages_that_were_the_programs_are_copied_back_never_moved() {
    let mut w = moved_out();
    held_by_the_kernel(&mut w);
    w.tracker.freed(COPY, LEN);
    w.tracker.make_ordinary(Span::sized(SOURCE, LEN)).unwrap();
    w.assert_holds_the_numbers(SOURCE);
    assert_eq!(w.returned(), 0);
    (0..LEN).for_each(|at| *w.byte(SOURCE + at) = 99);
    w.tracker.memory.check_lent();
}

#[test]
fn pages_that_were_the_programs_are_dropped_never_filled_again() {
    let mut w = moved_out();
    held_by_the_kernel(&mut w);
    for (buffer, times) in [(SOURCE, 1), (COPY, 60)] {
        w.tracker.freed(buffer, LEN);
        for _ in 0..times {
            let mut plan = InputPlan::default();
            w.tracker.input_begin(&[(buffer, LEN)], &mut plan);
            for t in &plan.targets {
                (0..t.len).for_each(|i| *w.tracker.memory.pool_byte(t.at + i) = 99);
            }
            w.tracker.input_commit(&mut plan, LEN);
            w.tracker.memory.check_lent();
        }
    }
    // A destination's, too.
    let to = w.another_buffer();
    w.copy(to, SOURCE, CALLER);
    assert!(!w.resident(to));
    let at = (0..512).rfind(|p| w.tracker.memory.pool[*p].is_some()).unwrap();
    w.tracker.memory.lend(POOL + at * PAGE, PAGE);
    for _ in 0..60 {
        let mut plan = InputPlan::default();
        w.tracker.input_begin(&[(to, LEN)], &mut plan);
        for t in &plan.targets {
            (0..t.len).for_each(|i| *w.tracker.memory.pool_byte(t.at + i) = 98);
        }
        w.tracker.input_commit(&mut plan, LEN);
        w.tracker.memory.check_lent();
    }
}

/// A program that has freed both buffers, of which 16 pages were moved out.
fn freed() -> World {
    let mut w = elided();
    w.tracker.freed(COPY, LEN);
    w.tracker.freed(SOURCE, LEN);
    assert_eq!(w.counters.pool_free_bytes.load(Relaxed), LEN as u64);
    w
}

impl World {
    fn recycled(&self) -> u64 {
        self.counters.populated_pages.load(Relaxed)
    }
}

#[test]
fn freed_memory_that_is_in_use_again_gets_as_many_pages_as_were_moved_out() {
    let mut w = freed();
    // (The first page comes alone: see below.)
    *w.byte(COPY + 5) = 7;
    *w.byte(COPY + PAGE) = 7;
    assert!((0..16).all(|page| w.resident(COPY + page * PAGE)));
    assert_eq!(w.recycled(), 15);
    assert!(!w.tracker.tracks(Span::sized(COPY + PAGE, LEN - PAGE)));
    // The other buffer's come when they are touched: no more were moved out.
    *w.byte(SOURCE) = 7;
    assert!(!w.resident(SOURCE + PAGE) && !w.tracker.tracks(Span::sized(SOURCE, LEN)));
    w.tracker.check().unwrap();
}

#[test]
fn the_first_byte_of_freed_memory_has_one_page_if_the_rest_is_copied_to() {
    let mut w = freed();
    let from = w.another_buffer();
    // (A buffer that grows takes its few bytes along into a larger block, and copies there.)
    *w.byte(COPY) = 7;
    assert!(w.resident(COPY) && !w.resident(COPY + PAGE));
    assert!(!w.copy_bytes(COPY + PAGE, from, 7 * PAGE, CALLER));
    assert!(!w.resident(COPY + PAGE));
    assert_eq!(w.recycled(), 0);
    w.tracker.check().unwrap();
}

#[test]
fn who_writes_page_after_page_of_freed_memory_among_copies_gets_the_rest_with_the_second() {
    let mut w = freed();
    let from = w.another_buffer();
    *w.byte(COPY) = 7;
    assert!(w.resident(COPY) && !w.resident(COPY + PAGE));
    assert!(!w.copy_bytes(COPY + 12 * PAGE, from, 4 * PAGE, CALLER));
    *w.byte(COPY + PAGE) = 7;
    assert!((1..12).all(|page| w.resident(COPY + page * PAGE)));
    w.tracker.check().unwrap();
}

#[test]
fn a_byte_far_into_freed_memory_has_one_page_if_the_rest_is_copied_to() {
    let mut w = freed();
    let from = w.another_buffer();
    // (A buffer that grows by copies of 7 pages: its last byte is written before each of them.)
    for part in 0..2 {
        let at = COPY + part * 7 * PAGE;
        *w.byte(at + 7 * PAGE) = 7;
        assert!(w.resident(at + 7 * PAGE) && !w.resident(at + 6 * PAGE), "part {part}");
        assert!(!w.resident(at + 8 * PAGE), "part {part}");
        assert!(!w.copy_bytes(at, from, 7 * PAGE, CALLER));
        assert_eq!(w.recycled(), 0);
    }
    w.tracker.check().unwrap();
}

#[test]
fn a_byte_far_into_freed_memory_has_the_rest_where_the_site_that_unmapped_it_rests() {
    let mut w = elided_until_it_rested();
    w.tracker.freed(SOURCE, LEN);
    assert!(w.tracker.tracks(Span::sized(SOURCE, LEN)));
    *w.byte(SOURCE + 7 * PAGE) = 7;
    assert!((7..16).all(|page| w.resident(SOURCE + page * PAGE)));
    w.tracker.check().unwrap();
}

#[test]
fn bytes_far_into_freed_memory_that_nothing_is_copied_to_have_all_of_it() {
    let mut w = freed();
    *w.byte(COPY + 9 * PAGE) = 7;
    assert!(!w.resident(COPY + 10 * PAGE));
    *w.byte(COPY + 4 * PAGE) = 7;
    assert!((4..9).all(|page| w.resident(COPY + page * PAGE)));
    assert!(!w.resident(COPY + 3 * PAGE));
    *w.byte(COPY) = 7;
    assert!((0..4).all(|page| w.resident(COPY + page * PAGE)));
    w.tracker.check().unwrap();
}

#[test]
fn memory_that_is_in_use_again_reads_as_zeros_whatever_its_pages_held() {
    let mut w = freed();
    assert!((0..LEN).all(|at| w.load(COPY + at) == 0));
    assert_eq!(w.recycled(), 15);
}

#[test]
fn the_destination_of_a_resting_copy_gets_pages_for_those_that_were_moved_out() {
    let mut w = freed();
    let from = w.another_buffer();
    assert!(w.copy(COPY, from, RESTING));
    assert_eq!(w.recycled(), 16);
    assert!((0..LEN).all(|at| w.load(COPY + at) == 0));
}
