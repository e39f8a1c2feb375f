//! The pool's free pages, by what is behind them.

use crate::extents::Extent;
use uncopy_decide::SiteId;
use uncopy_ranges::keeping::Keeping;
use uncopy_ranges::runs::{FreeRuns, RecentRuns};
use uncopy_ranges::span::PAGE;

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
pub(super) struct Referenced {
    pub(super) page: usize,
    pub(super) pages: usize,
    /// The call site that pays for dropping them, if any does.
    pub(super) site: SiteId,
    /// We handed them out ourselves.
    pub(super) lent: bool,
}

/// Pages that were the program's may be referred to by whoever the program gave them to: a pipe
/// (`vmsplice`), a socket's queue (`MSG_ZEROCOPY`, io_uring's `SEND_ZC`), a device. The kernel
/// moves such pages, for it refuses only those that are pinned, and tells nobody that they are
/// referred to. So, like what was lent, they are never filled anew: dropped, they stay what they
/// are for those that have them, and our addresses get others.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Where its page number 0 is.
    base: usize,
    pub(super) boundary: usize,
    /// Missing pages that moves may fill.
    pub(super) vacant: FreeRuns,
    /// Runs freed last, of few different lengths: taken again first, while in the cache.
    pub(super) recent: RecentRuns,
    /// Pages of the ordinary part, used before.
    pub(super) ready: FreeRuns,
    /// Pages of the ordinary part, never used or dropped.
    pub(super) fresh: FreeRuns,
    pub(super) keeping: Keeping,
    /// Runs that are not handed out as they are.
    pub(super) held: Vec<Referenced>,
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
            self.held.push(Referenced { page, pages, site, lent });
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

    pub(super) fn take(&mut self, pages: usize) -> Option<usize> {
        let recent = self.recent.take(pages).or_else(|| self.ready.take(pages));
        let taken = recent.or_else(|| {
            self.merge();
            self.ready.take(pages)
        });
        let taken = taken.or_else(|| {
            let fresh = self.fresh.take(pages)?;
            self.keeping.regrets(pages);
            Some(fresh)
        });
        self.keeping.leaves(self.ready_pages());
        taken
    }

    /// Runs that were freed last are as others.
    pub(super) fn merge(&mut self) {
        while let Some((page, pages)) = self.recent.take_any() {
            self.ready.give(page, pages);
        }
    }

    pub(super) fn ready_pages(&self) -> usize {
        self.ready.pages() + self.recent.pages()
    }
}
