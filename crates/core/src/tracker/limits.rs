//! Limits, and least-recently-used views that give way to them (zIO 3.1.7).

use super::{Limits, Tracker};
use crate::extents::ExtentId;
use crate::memory::{FillError, Memory};
use uncopy_counters::add;
use uncopy_decide::Reason;
use uncopy_ranges::span::{Span, page_down};

/// Distance within which an eviction takes a whole registered range, in bytes.
const NEAR: usize = 4 << 20;

/// The resource that was used up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lack {
    /// Extent memory, or room in the pool.
    Extents,
    /// Registered ranges.
    Mappings,
    /// Views.
    Views,
    /// Memory for the books themselves.
    Books,
}

impl From<Lack> for Reason {
    fn from(lack: Lack) -> Self {
        match lack {
            Lack::Extents => Self::ExhaustedExtents,
            Lack::Mappings => Self::ExhaustedMappings,
            Lack::Views => Self::ExhaustedViews,
            Lack::Books => Self::ExhaustedBooks,
        }
    }
}

impl<M: Memory> Tracker<M> {
    /// The limits of what may be used up.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Counts that `lack` stands in the way, which it is to be told as.
    pub(super) fn exhausted(&mut self, lack: Lack) -> Reason {
        self.count(lack);
        self.wants_eviction = true;
        lack.into()
    }

    fn count(&self, lack: Lack) {
        let c = self.counters;
        let why = match lack {
            Lack::Extents => &c.exhausted_extents,
            Lack::Mappings => &c.exhausted_mappings,
            Lack::Views => &c.exhausted_views,
            Lack::Books => &c.exhausted_books,
        };
        add(why, 1);
        add(&c.exhausted, 1);
    }

    /// Whether the books can take what one call adds to them, without an allocation that might fail
    /// (Rust's own answer to that would be to abort the program).
    pub(super) fn books_have_room(&mut self) -> Result<(), Reason> {
        let room = self.memory.books_have_room() && self.views.reserve() && self.extents.reserve();
        if room { Ok(()) } else { Err(self.exhausted(Lack::Books)) }
    }

    /// The program wants for mappings of its own: from now on at most half as many ranges are
    /// registered as there are now. Returns where the others are, to be materialized.
    pub fn halve_ranges(&mut self) -> Option<Span> {
        let count = self.registered.count();
        let start = self.registered.iter().next()?.start;
        let end = self.registered.iter().nth(count.div_ceil(2) - 1)?.end;
        self.limits.ranges = count / 2;
        self.count(Lack::Mappings);
        Some(Span::new(start, end))
    }

    /// Whether a limit was met and [`Tracker::evict`] should be called.
    pub fn wants_eviction(&self) -> bool {
        self.wants_eviction
    }

    /// Materializes and unregisters least-recently-used views (zIO 3.1.7), about `pages` of them.
    /// The caller drops the lock between calls. Returns whether more should follow.
    ///
    /// # Errors
    /// [`FillError::Again`]: read events first.
    pub fn evict(&mut self, pages: usize) -> Result<bool, FillError> {
        let books_over = |t: &Self| {
            t.registered.count() > t.limits.ranges / 4 * 3
                || t.views.count() > t.limits.views / 4 * 3
        };
        let over = |t: &Self| t.extents.bytes() > t.limits.extent_bytes / 4 * 3 || books_over(t);
        if !over(self) {
            self.wants_eviction = false;
            return Ok(false);
        }
        let mut used: Vec<u64> = Vec::new();
        if used.try_reserve_exact(self.extents.count()).is_err() {
            self.wants_eviction = false;
            return Ok(false);
        }
        // (Of memory, only our own is short.)
        let all = books_over(self);
        used.extend(
            self.extents.iter().filter(|(_, e)| all || !e.is_foreign()).map(|(_, e)| e.used),
        );
        let oldest = used.len().div_ceil(8).saturating_sub(1);
        let limit = if used.is_empty() { 0 } else { *used.select_nth_unstable(oldest).1 };
        let mut victims: Vec<Span> = Vec::new();
        let mut found = 0;
        for (start, v) in self.views.iter_from(0) {
            if found >= pages {
                break;
            }
            let e = (v.extent != ExtentId::NONE).then(|| self.extents.get(v.extent));
            let old = e.is_none_or(|e| e.used <= limit && (all || !e.is_foreign()));
            if old && victims.last().is_none_or(|l| start >= l.end) {
                // Whole registered ranges, where they are not huge: a hole would make two of one.
                let near = Span::sized(page_down(start).saturating_sub(NEAR), 2 * NEAR);
                let mut victim = Span::new(start, v.end).covering_pages();
                if let Some(r) = self.registered.around(start)
                    && r.intersect(near) == r
                {
                    victim = r;
                }
                found += victim.pages();
                victims.push(victim);
            }
        }
        if victims.is_empty() {
            self.wants_eviction = false;
            return Ok(false);
        }
        for victim in victims {
            self.make_ordinary(victim)?;
            add(&self.counters.evicted_views, 1);
        }
        self.trim_pool();
        self.gauges();
        self.wants_eviction = over(self);
        Ok(self.wants_eviction)
    }
}
