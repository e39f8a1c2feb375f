//! The pool's free pages, by what is behind them.

use super::Tracker;
use crate::extents::Extent;
use crate::memory::Memory;
use uncopy_counters::add;
use uncopy_decide::{Event, SiteId};
use uncopy_ranges::keeping::Keeping;
use uncopy_ranges::runs::{FreeRuns, RecentRuns};
use uncopy_ranges::span::PAGE;

/// Free pages that the pool keeps ready, beyond those that were dropped too early ([`Keeping`]);
/// where so many more are ready, they are dropped.
const READY_PAGES: usize = (16 << 20) / PAGE;

/// Idle pages that are dropped at once: the lock is held meanwhile.
const IDLE_PAGES: usize = (2 << 20) / PAGE;

/// Held pages whose extents are gone that wait to be dropped together.
const HELD_PAGES: usize = (2 << 20) / PAGE;

/// The pool's page numbers: `0..boundary` are targets of moves: what lies there was the program's.
/// `boundary..pages` are ordinary fresh memory, which never was.
#[derive(Clone, Copy, Debug)]
pub struct PoolShape {
    /// First page that is not a target of moves.
    pub boundary: usize,
    /// Number of pages.
    pub pages: usize,
}

/// Pages that somebody may still refer to.
#[derive(Clone, Copy, Debug)]
struct Held {
    page: usize,
    pages: usize,
    /// Who pays for dropping them.
    site: SiteId,
    /// We handed them out ourselves.
    lent: bool,
}

/// What was the program's may be referred to by whoever the program gave it to: a pipe
/// (`vmsplice`), a socket's queue
/// (`MSG_ZEROCOPY`, io_uring's `SEND_ZC`), a device. The kernel moves such pages, for it refuses
/// only those that are pinned, and tells nobody that they are referred to. So, like what was lent,
/// they are never filled anew: dropped, they stay what they are for whoever has them, and our
/// addresses get others.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Where its page number 0 is.
    base: usize,
    boundary: usize,
    /// Missing pages that moves may fill.
    pub(super) vacant: FreeRuns,
    /// Runs freed last, of few different lengths: taken again first, while in the cache.
    recent: RecentRuns,
    /// Pages of the ordinary part, used before.
    ready: FreeRuns,
    /// Pages of the ordinary part, never used or dropped.
    fresh: FreeRuns,
    keeping: Keeping,
    /// Runs that are not handed out as they are.
    held: Vec<Held>,
    pub(super) held_pages: usize,
}

impl Pool {
    /// All of it, from the address `base` on, without memory behind it.
    pub(super) fn new(shape: PoolShape, base: usize) -> Self {
        let mut pool = Self { base, boundary: shape.boundary, ..Self::default() };
        pool.vacant.give(0, shape.boundary);
        pool.fresh.give(shape.boundary, shape.pages - shape.boundary);
        pool
    }

    /// Whether the pages from `page` on were the program's.
    pub(super) fn was_programs(&self, page: usize) -> bool {
        page < self.boundary
    }

    /// Whether nobody but us ever had the pages of `e`, which lies here, so that they may be
    /// written to.
    pub(super) fn is_ours_alone(&self, e: &Extent) -> bool {
        !e.lent && !self.was_programs(self.page(e.at))
    }

    /// Where the page of number `page` is.
    #[inline]
    pub(super) fn address(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    /// The number of the page at `at`.
    #[inline]
    pub(super) fn page(&self, at: usize) -> usize {
        (at - self.base) / PAGE
    }

    /// Pages that nobody else has ever had.
    pub(super) fn give(&mut self, page: usize, pages: usize) {
        debug_assert!(!self.was_programs(page), "pages that were the program's are recycled");
        let Self { recent, ready, .. } = self;
        recent.give(page, pages, |page, pages| ready.give(page, pages));
    }

    /// Pages that somebody may refer to, for as long as he likes.
    pub(super) fn hold(&mut self, page: usize, pages: usize, site: SiteId, lent: bool) {
        if pages > 0 {
            self.held.push(Held { page, pages, site, lent });
            self.held_pages += pages;
        }
    }

    /// Pages without memory behind them.
    pub(super) fn vacate(&mut self, page: usize, pages: usize) {
        if self.was_programs(page) {
            self.vacant.give(page, pages);
        } else {
            self.fresh.give(page, pages);
        }
    }

    /// The extent `e`, which lay here, is gone.
    #[inline]
    pub(super) fn reattach_leaving(&mut self, e: &Extent) {
        let page = self.page(e.at);
        if self.is_ours_alone(e) {
            self.give(page, e.pages);
        } else {
            self.hold(page, e.pages, e.lender, e.lent);
        }
    }

    fn take(&mut self, pages: usize) -> Option<usize> {
        let taken = self.recent.take(pages).or_else(|| self.ready.take(pages)).or_else(|| {
            let fresh = self.fresh.take(pages)?;
            self.keeping.regrets(pages);
            Some(fresh)
        });
        self.keeping.leaves(self.ready_pages());
        taken
    }

    pub(super) fn ready_pages(&self) -> usize {
        self.ready.pages() + self.recent.pages()
    }
}

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
            if run.lent {
                self.control.tell(run.site, Event::Dropped { pages: run.pages });
                add(&self.counters.dropped_pages, run.pages as u64);
            } else {
                add(&self.counters.retired_pages, run.pages as u64);
            }
            self.backing.pool.vacate(run.page, run.pages);
        }
        self.backing.pool.held = kept;
    }

    /// Takes every free page out of the pool, for good: `leave` is told their runs, by first page
    /// and number.
    pub fn shed_pool(&mut self, mut leave: impl FnMut(&mut M, usize, usize)) {
        let Pool { vacant, recent, ready, fresh, .. } = &mut self.backing.pool;
        while let Some((page, pages)) = recent.take_any() {
            leave(&mut self.memory, page, pages);
        }
        for runs in [vacant, ready, fresh] {
            while let Some((page, pages)) = runs.take_longest() {
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
        // (What the counters say may be of before this call. Then an extent less was a free page
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

    /// To be called now and then: it is `now`, in seconds since some beginning. What has lain idle
    /// in the pool is dropped, a part each time.
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

    /// Drops pages until no more than `most` are ready.
    fn drop_ready(&mut self, most: usize) {
        let Pool { recent, ready, fresh, keeping, .. } = &mut self.backing.pool;
        while let surplus @ 1.. = (ready.pages() + recent.pages()).saturating_sub(most) {
            let run = ready.take_longest().or_else(|| recent.take_any());
            let Some((page, pages)) = run else { break };
            let dropped = pages.min(surplus);
            if !self.memory.discard(page, dropped) {
                ready.give(page, pages);
                break;
            }
            ready.give(page + dropped, pages - dropped);
            fresh.give(page, dropped);
            keeping.gives_back(dropped);
        }
        keeping.leaves(ready.pages() + recent.pages());
    }
}
