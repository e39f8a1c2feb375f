//! The pool's free pages, by what is behind them.

use super::Tracker;
use crate::extents::Extent;
use crate::memory::Memory;
use crate::policy::SiteId;
use crate::runs::{FreeRuns, RecentRuns};
use crate::span::PAGE;
use crate::views::Reclaim;

/// Free pages that the pool keeps ready, in pages; from twice as many on they are given back.
const READY_PAGES: usize = (16 << 20) / PAGE;

/// Lent pages whose extents are gone that wait to be dropped together.
const LENT_PAGES: usize = (2 << 20) / PAGE;

/// The pool's page numbers: `0..boundary` are targets of moves, `boundary..pages` are ordinary
/// fresh memory for extents when no page is ready.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape {
    /// First page that is not a target of moves.
    pub boundary: usize,
    /// Number of pages.
    pub pages: usize,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) boundary: usize,
    /// Missing pages that moves may fill.
    pub(super) vacant: FreeRuns,
    /// Runs given back last, of few different lengths: taken again first, while in the cache.
    pub(super) recent: RecentRuns,
    /// Pages that were moved in or used before.
    pub(super) ready: FreeRuns,
    /// Pages of the ordinary part, used before.
    pub(super) ready_plain: FreeRuns,
    /// Pages of the ordinary part, never used or given back.
    pub(super) fresh_plain: FreeRuns,
    /// Runs that the kernel may still refer to, and who lent them: never handed out as they are.
    pub(super) lent: Vec<(usize, usize, SiteId)>,
    pub(super) lent_pages: usize,
}

impl Pool {
    pub(super) fn give(&mut self, page: usize, pages: usize) {
        let Self { recent, ready, ready_plain, boundary, .. } = self;
        recent.give(page, pages, |page, pages| {
            Self::used(page, *boundary, ready, ready_plain).give(page, pages);
        });
    }

    fn settle(&mut self, page: usize, pages: usize) {
        let Self { ready, ready_plain, boundary, .. } = self;
        Self::used(page, *boundary, ready, ready_plain).give(page, pages);
    }

    fn used<'a>(
        page: usize,
        boundary: usize,
        ready: &'a mut FreeRuns,
        ready_plain: &'a mut FreeRuns,
    ) -> &'a mut FreeRuns {
        if page < boundary { ready } else { ready_plain }
    }

    /// Pages whose memory was moved away.
    pub(super) fn vacate(&mut self, page: usize, pages: usize) {
        if page < self.boundary {
            self.vacant.give(page, pages);
        } else {
            self.fresh_plain.give(page, pages);
        }
    }

    pub(super) fn take(&mut self, pages: usize) -> Option<usize> {
        self.recent
            .take(pages)
            .or_else(|| self.ready.take(pages))
            .or_else(|| self.ready_plain.take(pages))
            .or_else(|| self.fresh_plain.take(pages))
    }

    /// Up to `pages` consecutive pages that were used before, `least` at least: the first, and how many. (Some may
    /// have no memory behind them: see [`Memory::clear`].)
    pub(super) fn take_ready(&mut self, pages: usize, least: usize) -> Option<(usize, usize)> {
        let whole = self
            .recent
            .take(pages)
            .or_else(|| self.ready.take(pages))
            .or_else(|| self.ready_plain.take(pages));
        if let Some(page) = whole {
            return Some((page, pages));
        }
        for runs in [&mut self.ready, &mut self.ready_plain] {
            match runs.take_longest() {
                Some((page, len)) if len >= least => return Some((page, len)),
                Some((page, len)) => runs.give(page, len),
                None => {}
            }
        }
        // (Each is settled or handed out: it ends.)
        while let Some((page, len)) = self.recent.take_any() {
            let taken = if len < least { 0 } else { len.min(pages) };
            self.settle(page + taken, len - taken);
            if taken > 0 {
                return Some((page, taken));
            }
        }
        None
    }

    pub(super) fn ready_pages(&self) -> usize {
        self.ready.pages() + self.ready_plain.pages() + self.recent.pages()
    }
}

impl Reclaim for Pool {
    fn reclaim(&mut self, e: Extent) {
        if e.lent {
            self.lent.push((e.page, e.pages, e.lender));
            self.lent_pages += e.pages;
        } else {
            self.give(e.page, e.pages);
        }
    }
}

impl<M: Memory> Tracker<M> {
    /// Drops what was lent, if much of it waits.
    pub(super) fn sweep_if_many(&mut self) {
        self.sweep_lent(LENT_PAGES.min(self.pool.boundary / 16));
    }

    /// Takes every free page out of the pool, for good: `leave` is told their runs, by first page and number.
    pub fn shed_pool(&mut self, mut leave: impl FnMut(&mut M, usize, usize)) {
        let Pool { vacant, recent, ready, ready_plain, fresh_plain, .. } = &mut self.pool;
        while let Some((page, pages)) = recent.take_any() {
            leave(&mut self.memory, page, pages);
        }
        for runs in [vacant, ready, ready_plain, fresh_plain] {
            while let Some((page, pages)) = runs.take_longest() {
                leave(&mut self.memory, page, pages);
            }
        }
        for (page, pages, _) in std::mem::take(&mut self.pool.lent) {
            leave(&mut self.memory, page, pages);
        }
        self.pool.lent_pages = 0;
        self.gauges();
    }

    pub(super) fn trim_pool(&mut self) {
        self.sweep_if_many();
        if self.pool.ready_pages() <= 2 * READY_PAGES {
            return;
        }
        self.policy.page_work();
        while self.pool.ready_pages() > READY_PAGES {
            if let Some((page, pages)) = self.pool.recent.take_any() {
                self.pool.settle(page, pages);
            } else if let Some((page, pages)) = self.pool.ready.take_longest() {
                if !self.memory.discard(page, pages) {
                    self.pool.ready.give(page, pages);
                    return;
                }
                self.pool.vacant.give(page, pages);
            } else if let Some((page, pages)) = self.pool.ready_plain.take_longest() {
                if !self.memory.discard(page, pages) {
                    self.pool.ready_plain.give(page, pages);
                    return;
                }
                self.pool.fresh_plain.give(page, pages);
            } else {
                return;
            }
        }
    }
}
