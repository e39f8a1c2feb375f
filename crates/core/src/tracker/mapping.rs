//! The program's memory map changes: freed, unmapped, dropped, moved, excluded.

use super::Tracker;
use crate::costs::share_of_mb;
use crate::counters::add;
use crate::extents::ExtentId;
use crate::memory::Memory;

use crate::span::Span;
use crate::views::View;

/// Tracking that was taken out of the books; see [`Tracker::detach`].
#[derive(Debug)]
pub struct Detached {
    views: Vec<(usize, View)>,
    registered: Vec<Span>,
}

impl<M: Memory> Tracker<M> {
    /// The program freed `len` bytes at `addr`: nobody is owed their content any more.
    pub fn freed(&mut self, addr: usize, len: usize) {
        let span = Span::sized(addr, len);
        let mut at = span.start;
        while at < span.end {
            let (run, unmapped) = self.views.covered_run(at, span.end);
            at = run.end;
            if unmapped {
                let first = self.views.at(run.start).map(|(_, v)| v);
                let site = first.map_or(0, |v| v.site);
                // Input that nobody copied or sent: this site's buffers are better left resident. (Redis' SET
                // receives into extents that the cache has long forgotten: 28 us more for 512 KB.)
                let wasted =
                    |v: &View| v.extent != ExtentId::NONE && !self.extents.get(v.extent).useful;
                if first.as_ref().is_some_and(wasted) {
                    let c = self.policy.costs;
                    let end = first.map_or(run.start, |v| v.end.min(run.end));
                    let cold = share_of_mb(end - run.start, c.copy_mb);
                    self.policy.charge(site, c.wasted_input + cold);
                }
                self.policy.freed(site);
                self.views.assign(run, ExtentId::NONE, 0, site, &mut self.extents, &mut self.pool);
            }
        }
        self.trim_pool();
        self.gauges();
    }

    /// The kernel removed the mapping of `span` (munmap, brk, a mapping over it): all that was
    /// known of it is void.
    pub fn unmapped(&mut self, span: Span) {
        self.views.remove(span.hull(), &mut self.extents, &mut self.pool);
        self.forget_registration(span.hull());
        self.excluded.remove(span.hull());
        add(&self.counters.events, 1);
        self.gauges();
    }

    /// The kernel is about to drop the pages of `span` (MADV_DONTNEED, MADV_FREE, ...): unmapped
    /// pages read as zeros from now on. Resident pages are not ours.
    pub fn removed(&mut self, span: Span) {
        self.freed(span.start, span.len());
        add(&self.counters.events, 1);
    }

    /// The kernel moved the mapping of `len` bytes at `from` to `to`, with its missing pages and
    /// its registration.
    pub fn remapped(&mut self, from: usize, to: usize, len: usize) {
        let (old, new) = (Span::sized(from, len), Span::sized(to, len));
        self.views.remove(new, &mut self.extents, &mut self.pool);
        self.registered.remove(new);
        let moved: Vec<Span> = {
            let mut found = Vec::new();
            let mut at = old.start;
            while let Some(r) = self.registered.next_in(at, old.end) {
                found.push(r);
                at = r.end;
            }
            found
        };
        self.views.shift(old, to.wrapping_sub(from) as isize, &mut self.extents);
        for r in moved {
            self.registered.remove(r);
            let there = Span::sized(r.start - from + to, r.len());
            self.registered.insert(there);
            self.filter.track(there);
        }
        add(&self.counters.events, 1);
    }

    /// Pages of `span` must never be moved: the kernel holds them by reference (vmsplice,
    /// MSG_ZEROCOPY) beyond the call. They must be resident already.
    pub fn exclude(&mut self, span: Span) {
        self.excluded.insert(span.hull());
    }

    /// Forgets all tracking of `span` without touching memory or kernel: its mapping is about to
    /// go away inside the allocator, and its addresses may come back before the kernel's report.
    pub fn forget(&mut self, span: Span) {
        self.views.remove(span.core(), &mut self.extents, &mut self.pool);
        self.forget_registration(span.core());
        self.gauges();
    }

    /// Ends all tracking of `span`, whose content nobody needs: its unmapped pages become ordinary
    /// fresh memory.
    pub fn relinquish(&mut self, span: Span) {
        let span = span.hull();
        self.views.remove(span, &mut self.extents, &mut self.pool);
        let mut at = span.start;
        while let Some(r) = self.registered.next_in(at, span.end) {
            self.memory.unregister(r);
            add(&self.counters.registrations, 1);
            self.forget_registration(r);
            at = r.end;
        }
        self.trim_pool();
        self.gauges();
    }

    /// Takes all tracking of `span` out of the books, whose mapping is about to be removed: the
    /// addresses may belong to somebody else before the kernel's report of it is read. The extents
    /// stay, for [`Tracker::reattach`].
    pub fn detach(&mut self, span: Span) -> Detached {
        let mut views = Vec::new();
        self.views.detach(span, &mut self.extents, &mut views);
        let mut registered = Vec::new();
        let mut at = span.start;
        while let Some(r) = self.registered.next_in(at, span.end) {
            registered.push(r);
            at = r.end;
        }
        self.registered.remove(span);
        Detached { views, registered }
    }

    /// The mapping is gone: so is what was detached.
    pub fn drop_detached(&mut self, detached: Detached) {
        for (_, v) in detached.views {
            self.drop_extent(v.extent);
        }
        self.gauges();
    }

    /// The mapping was not removed after all.
    pub fn reattach(&mut self, detached: Detached) {
        for r in detached.registered {
            self.registered.insert(r);
            // (It may have been made anew meanwhile.)
            self.filter.track(r);
        }
        for (start, v) in detached.views {
            let span = Span::new(start, v.end);
            let (extents, pool) = (&mut self.extents, &mut self.pool);
            self.views.assign(span, v.extent, v.offset, v.site, extents, pool);
            self.drop_extent(v.extent);
        }
    }

    /// Whether any page of `span` is unmapped by us or registered.
    pub fn tracks(&self, span: Span) -> bool {
        self.views.touches(span) || self.registered.touches(span)
    }

    /// The unmapped stretches of `span`.
    pub fn unmapped_in(&self, span: Span) -> Vec<Span> {
        self.views.segments(span).filter(|s| s.view.is_some()).map(|s| s.span).collect()
    }

    /// Whether any byte of `span` is a view.
    pub fn views_in(&self, span: Span) -> bool {
        self.views.touches(span)
    }
}
