//! Pages are taken out of the pool, and dropped.

use super::pool::Pool;
use super::{NOBODY, Tracker};
use crate::memory::Memory;
use uncopy_counters::add;
use uncopy_decide::Event;
use uncopy_ranges::span::PAGE;

/// Free pages that the pool keeps ready, beyond those that were dropped too early
/// ([`uncopy_ranges::keeping`]); where so many more are ready, they are dropped.
const READY_PAGES: usize = (16 << 20) / PAGE;

/// Idle pages that are dropped at once: the lock is held meanwhile.
const IDLE_PAGES: usize = (2 << 20) / PAGE;

/// Held pages whose extents are gone that wait to be dropped together.
const HELD_PAGES: usize = (2 << 20) / PAGE;

impl<M: Memory> Tracker<M> {
    /// Pages for an extent.
    pub(super) fn take_pages(&mut self, pages: usize) -> Option<usize> {
        self.sweep_if_many();
        self.backing.pool.take(pages).or_else(|| {
            self.sweep_held(0);
            self.backing.pool.take(pages)
        })
    }

    /// Pages that a move may fill.
    pub(super) fn take_vacant(&mut self, pages: usize) -> Option<usize> {
        self.backing.pool.vacant.take(pages).or_else(|| {
            self.sweep_held(0);
            self.backing.pool.vacant.take(pages)
        })
    }

    /// Drops what is held and not viewed any more, if it is much.
    fn sweep_if_many(&mut self) {
        self.sweep_held(HELD_PAGES.min(self.backing.pool.boundary / 16));
    }

    /// Drops what is held and not viewed any more, if it is more than `most` pages.
    fn sweep_held(&mut self, most: usize) {
        if self.backing.pool.held_pages <= most {
            return;
        }
        let mut kept = Vec::new();
        for run in core::mem::take(&mut self.backing.pool.held) {
            // Where the kernel refuses, nobody uses them again.
            if !self.memory.discard(run.page, run.pages) {
                kept.push(run);
                continue;
            }
            self.backing.pool.held_pages -= run.pages;
            if run.site != NOBODY {
                self.control.tell(run.site, Event::Dropped { pages: run.pages });
            }
            let c = self.counters;
            add(if run.lent { &c.dropped_pages } else { &c.retired_pages }, run.pages as u64);
            self.backing.pool.vacate(run.page, run.pages);
        }
        self.backing.pool.held = kept;
    }

    /// Takes every free page out of the pool, for good: `leave` is told their runs, by first page
    /// and number.
    pub fn shed_pool(&mut self, mut leave: impl FnMut(&mut M, usize, usize)) {
        self.backing.pool.merge();
        let Pool { vacant, ready, fresh, .. } = &mut self.backing.pool;
        for runs in [vacant, ready, fresh] {
            while let Some((page, pages)) = runs.take_last(usize::MAX) {
                leave(&mut self.memory, page, pages);
            }
        }
        for run in core::mem::take(&mut self.backing.pool.held) {
            leave(&mut self.memory, run.page, run.pages);
        }
        self.backing.pool.held_pages = 0;
        self.gauges();
    }

    pub(super) fn trim_pool(&mut self) {
        self.sweep_if_many();
        let most = READY_PAGES + self.backing.pool.keeping.regretted();
        if self.backing.pool.ready_pages() > READY_PAGES + most {
            self.drop_ready(most);
        }
        self.drop_over(usize::MAX);
    }

    /// Where more is held than may be, free pages of the pool go first, at most so many.
    fn drop_over(&mut self, most: usize) {
        let ready = self.backing.pool.ready_pages();
        if ready + self.backing.pool.held_pages == 0 {
            return;
        }
        // (The counters' values may be older than this call. Then an extent less was a free page
        // less.)
        let over = self.memory.over().div_ceil(PAGE);
        if over > 0 {
            self.sweep_held(0);
            self.drop_ready(ready.saturating_sub(over.min(most)));
            self.gauges();
        }
    }

    /// As [`Tracker::drop_idle`], where more is held than may be.
    pub fn give_back(&mut self) {
        self.drop_over(IDLE_PAGES);
    }

    /// To be called now and then: it is `now`, in seconds since some beginning. Pages that have
    /// lain idle in the pool are dropped, a part each time.
    pub fn drop_idle(&mut self, now: i64) {
        let free = self.backing.pool.ready_pages();
        let keeping = &mut self.backing.pool.keeping;
        keeping.look(now, free);
        let surplus = keeping.surplus(IDLE_PAGES);
        if surplus > 0 {
            self.drop_ready(free.saturating_sub(surplus));
            self.gauges();
        }
    }

    /// Drops pages, the last first, until no more than `most` are ready.
    fn drop_ready(&mut self, most: usize) {
        let Pool { recent, ready, fresh, keeping, .. } = &mut self.backing.pool;
        while let surplus @ 1.. = (ready.pages() + recent.pages()).saturating_sub(most)
            && let Some((page, pages)) = ready.take_last(surplus).or_else(|| recent.take_any())
        {
            let dropped = pages.min(surplus);
            let left = pages - dropped;
            if !self.memory.discard(page + left, dropped) {
                ready.give(page, pages);
                break;
            }
            ready.give(page, left);
            fresh.give(page + left, dropped);
            keeping.gives_back(dropped);
        }
        keeping.leaves(ready.pages() + recent.pages());
    }
}
