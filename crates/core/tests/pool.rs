//! How much memory the pool keeps between the messages that it holds.

#[allow(dead_code, reason = "other tests use more of it")]
mod machine;

use machine::{BASE, Machine, POOL, page_of};
use uncopy_core::plan::{CopyPlan, InputPlan};
use uncopy_core::tracker::{Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Pauses, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::PAGE;

const MB: usize = 1 << 20;
/// The pages that the pool keeps at most after it has dropped nothing too early.
const MOST: usize = (32 * MB) / PAGE;

/// A server with a buffer of 1 MB for each connection.
struct Server {
    tracker: Tracker<Machine>,
    boundary: usize,
}

impl Server {
    fn new(connections: usize) -> Self {
        let pages = 2 * connections * (MB / PAGE + 1);
        let mut machine = Machine::new(pages, 2 * pages, 1, false);
        machine.program.iter_mut().for_each(|page| *page = Some(Box::new([1; PAGE])));
        let pauses: &'static Pauses = Box::leak(Box::default());
        let control = Control::new(Policy::new(false, Costs::REFERENCE, pauses), 16 << 10);
        let limits = Limits { extent_bytes: pages * PAGE, ranges: 1000, views: 10_000 };
        let shape = PoolShape { boundary: pages, pages: 2 * pages };
        let filter: &'static Filter = Box::leak(Box::new(Filter::new()));
        let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
        let tracker = Tracker::new(machine, shape, limits, control, filter, counters);
        let mut server = Self { tracker, boundary: pages };
        // A site that copies once receives into extents from then on.
        for n in 0..connections {
            let (buffer, other) = (server.buffer(n), server.buffer(connections + n));
            let mut plan = CopyPlan::default();
            server.tracker.copy_begin(buffer, other, MB, 0x900d, true, &mut plan);
            assert!(!plan.bypass, "connection {n}");
            server.tracker.unpin(&mut plan.pins);
            server.tracker.freed(buffer, MB);
            server.tracker.freed(other, MB);
        }
        server
    }

    fn buffer(&self, n: usize) -> usize {
        let at = BASE + n * (MB + PAGE);
        assert!(page_of(at) < self.tracker.memory.program.len());
        at
    }

    /// So many connections receive a message, all of them, and are done with it. Returns how many
    /// pages the kernel had to clear for that.
    fn wave(&mut self, connections: usize) -> usize {
        let mut cleared = 0;
        for n in 0..connections {
            let mut plan = InputPlan::default();
            self.tracker.input_begin(&[(self.buffer(n), MB)], &mut plan);
            assert!(!plan.bypass, "connection {n}");
            for target in &plan.targets {
                for at in (target.at..target.at + target.len).step_by(PAGE) {
                    cleared += usize::from(self.tracker.memory.pool[(at - POOL) / PAGE].is_none());
                    *self.tracker.memory.pool_byte(at) = 2;
                }
            }
            self.tracker.input_commit(&mut plan, MB);
        }
        for n in 0..connections {
            self.tracker.freed(self.buffer(n), MB);
        }
        cleared
    }

    /// Pages that the pool has memory for, but for what was the program's.
    fn kept(&self) -> usize {
        self.tracker.memory.pool[self.boundary..].iter().flatten().count()
    }
}

#[test]
fn what_many_connections_need_in_each_wave_is_kept_for_the_next() {
    let mut server = Server::new(64);
    let message = MB / PAGE;
    assert_eq!(server.wave(64), 64 * message);
    let kept = server.kept();
    assert!(kept <= MOST, "a first wave may be the last");
    assert_eq!(server.wave(64), 64 * message - kept);
    assert_eq!((server.wave(64), server.wave(64)), (0, 0));
    server.tracker.check().unwrap();
}

#[test]
fn what_was_not_needed_for_10_seconds_is_dropped_by_halves_in_parts_of_2_mb() {
    let mut server = Server::new(64);
    for _ in 0..3 {
        server.wave(64);
    }
    let idle = |kept: usize| kept - 4 * MB / PAGE;
    let before = server.kept();
    server.tracker.drop_idle(10);
    server.wave(4);
    server.tracker.drop_idle(20);
    assert_eq!(before - server.kept(), 2 * MB / PAGE, "the lock is held");
    for _ in 0..100 {
        server.tracker.drop_idle(20);
    }
    let half = server.kept();
    assert_eq!(idle(half), idle(before).div_ceil(2));
    server.wave(4);
    for _ in 0..100 {
        server.tracker.drop_idle(30);
    }
    assert!(server.kept() < half);
    assert_eq!(server.wave(4), 0, "what is needed stays");
    server.tracker.check().unwrap();
}

#[test]
fn a_pool_that_was_shed_has_nothing_to_drop() {
    let mut server = Server::new(64);
    for _ in 0..3 {
        server.wave(64);
    }
    server.tracker.drop_idle(10);
    let (all, boundary) = (server.kept(), server.boundary);
    let mut shed = 0;
    server.tracker.shed_pool(|memory, page, pages| {
        let had_memory = memory.pool[page..page + pages].iter().flatten().count();
        shed += if page < boundary { 0 } else { had_memory };
    });
    assert_eq!(shed, all);
    for now in [20, 30] {
        server.tracker.drop_idle(now);
    }
    assert_eq!(server.kept(), all, "whose they are since is not ours to drop");
    server.tracker.check().unwrap();
}
