//! Memory that is given back where the kernel has no more: ranges where there are too many
//! mappings, the pool where the program locks all its memory or limits its address space.

use crate::gate::{IDLE, STARTING};
use crate::hold::Hold;
use crate::space::Space;
use core::sync::atomic::Ordering;
use uncopy_kernel::critical;
use uncopy_ranges::span::Span;

impl Space {
    /// The part of `span` that is the pool's.
    pub fn pool_in(&self, span: Span) -> Span {
        self.pool.within(span)
    }

    /// The pool (which would be filled and locked whole) goes away, but for what calls under way
    /// have of it. Nothing more is tracked before.
    pub fn shed_pool(&'static self) {
        self.with_after_fork(|b| {
            if self.counters().extents.load(Ordering::Relaxed) == 0 {
                b.memory.abandon_pool();
            } else {
                b.shed_pool(|memory, page, pages| memory.abandon_slots(page, pages));
            }
        });
    }

    /// Claims the start for something else, if there is no pool yet, and nobody is to make one
    /// meanwhile; a fork waits for its end
    /// ([`Space::cancel_start`]), so nothing until then may wait for a fork. Returns false where
    /// there is a pool, or will be none. Signals are blocked by the caller.
    pub fn claim_start(&'static self) -> bool {
        loop {
            self.own.detect_unknown_fork();
            critical::enter();
            if self.gate.begin_start() {
                // (Which gives the lock up.)
                let none = Hold::of(self).inner().is_some_and(|s| s.books.is_none());
                if !none {
                    self.gate.cancel_start();
                }
                return none;
            }
            critical::leave();
            if !matches!(self.gate.state(), IDLE | STARTING) {
                return false;
            }
            rustix::thread::sched_yield();
        }
    }

    /// See [`Space::claim_start`].
    pub fn cancel_start(&self) {
        self.gate.cancel_start();
    }

    /// The kernel refused the program memory. Returns whether it is to be asked again: there were
    /// too many mappings, and half of those that registering makes were untracked. (So many are
    /// never made again.)
    pub fn make_room_for_mappings(&'static self) -> bool {
        if !self.serving() || critical::inside() {
            return false;
        }
        let half = self
            .with_after_fork(|b| b.memory.mappings_used_up().then(|| b.halve_ranges()).flatten());
        half.flatten().map(|span| self.make_ordinary(span)).is_some()
    }
}
