//! The program's memory map changes: freed, unmapped, dropped, moved, excluded.

use super::leaving::{Detached, Leaving};
use super::{NOBODY, Tracker};
use crate::excluded::Excluded;
use crate::extents::ExtentId;
use crate::memory::{FillError, Memory};
use crate::view::{Segment, View};
use uncopy_counters::add;
use uncopy_decide::{Act, Event, Operation, Refusal};
use uncopy_ranges::span::{PAGE, Span, page_down};

impl<M: Memory> Tracker<M> {
    /// The program freed `len` bytes at `addr`: nobody is owed their content any more.
    pub fn freed(&mut self, addr: usize, len: usize) {
        self.let_go(Span::sized(addr, len), true);
    }

    /// The work of `freed`; `gives_back`: bytes left over are ordinary from now on.
    fn let_go(&mut self, span: Span, gives_back: bool) {
        self.control.did(|| Operation::Freed(span));
        let mut at = span.start;
        while at < span.end {
            let (run, unmapped) = self.views.covered_run(at, span.end);
            at = run.end;
            if unmapped {
                let site = self.views.at(run.start).map_or(NOBODY, |(_, v)| v.site);
                self.control.tell(site, Event::Freed);
                let left_over = gives_back && self.is_left_over(run);
                self.views.assign(
                    run,
                    ExtentId::NONE,
                    0,
                    site,
                    &mut self.extents,
                    &mut self.backing,
                );
                if left_over {
                    self.control.tell(site, Event::Untracked { pages: 0 });
                    self.untrack_pages(run.core());
                }
            }
        }
        self.trim_pool();
        self.gauges();
    }

    /// Whether the pages of `run`, which is freed, have stayed unmapped since an earlier free, and
    /// no site that elides wants them: they would keep whoever copies beside them in the books.
    fn is_left_over(&mut self, run: Span) -> bool {
        let pages = run.core();
        !pages.is_empty() && self.may_have_holes() && self.is_idle(pages)
    }

    /// Whether nothing of `pages` is owed to anybody, nor wanted by a site that elides.
    pub(super) fn is_idle(&mut self, pages: Span) -> bool {
        let control = &mut self.control;
        let idle = |s: Segment| {
            let empty = |v: View| v.extent == ExtentId::NONE && control.act(v.site, Act::GiveBack);
            s.view.is_none_or(empty)
        };
        self.views.segments(pages).all(idle)
    }

    /// The kernel removed the mapping of `span` (munmap, brk, a mapping over it): all that was
    /// known of it is void.
    pub fn munmapped(&mut self, span: Span) {
        self.control.did(|| Operation::Unmapped(span));
        self.views.remove(span.covering_pages(), &mut self.extents, &mut self.backing);
        self.forget_registration(span.covering_pages());
        self.excluded.munmapped(span.covering_pages());
        self.trim_pool();
        add(&self.counters.events, 1);
        self.gauges();
    }

    /// The kernel is about to drop the pages of `span` (MADV_DONTNEED, MADV_FREE, ...): unmapped
    /// pages read as zeros from now on. Resident pages are not ours, until they are gone.
    pub fn removed(&mut self, span: Span) {
        // (Nothing becomes ordinary before it is dropped. And an end of registration in the midst
        // of it would split the mapping: older kernels then drop the first part alone.)
        self.let_go(span, false);
        // (Rather too much than too little, where there is no room.)
        let more = if self.dropping.is_full() {
            self.dropping.drain(..).fold(span, Span::joined)
        } else {
            span
        };
        self.dropping.push(more);
        for leaving in &mut self.leaving {
            leaving.views.remove(span, &mut self.extents, &mut self.backing);
        }
        add(&self.counters.events, 1);
    }

    /// The part of `span` before all pages that may still be there and that the kernel is about to
    /// drop: it reports that first.
    pub(super) fn before_dropped(&mut self, span: Span) -> Span {
        let there = self.dropping.iter().filter(|s| s.overlaps(span));
        let Some(start) = there.map(|s| s.start).min() else { return span };
        if self.memory.map_changing() == Some(true) {
            return Span::new(span.start, start.max(span.start));
        }
        self.dropping.clear();
        span
    }

    /// The kernel moved the mapping of `len` bytes at `from` to `to`, with its missing pages and
    /// its registration.
    pub fn remapped(&mut self, from: usize, to: usize, len: usize) {
        self.control.did(|| Operation::Remapped { from, to, len });
        let (old, new) = (Span::sized(from, len), Span::sized(to, len));
        self.views.remove(new, &mut self.extents, &mut self.backing);
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
        self.excluded.moved(old, new);
        self.views.shift(old, to.wrapping_sub(from) as isize, &mut self.extents);
        for r in moved {
            self.registered.remove(r);
            let there = Span::sized(r.start - from + to, r.len());
            self.registered.insert(there);
            self.filter.track(there);
        }
        add(&self.counters.events, 1);
    }

    /// The memory that must never be moved. (Pages of it that are unmapped stay so, until they are
    /// touched.)
    pub fn excluded(&mut self) -> &mut Excluded {
        &mut self.excluded
    }

    /// Whether the page at `addr` would be resident, if nothing were elided: a view with content.
    pub fn stands_for_resident(&self, addr: usize) -> bool {
        let page = Span::sized(page_down(addr), PAGE);
        self.views.segments(page).any(|s| s.view.is_some_and(|v| v.extent != ExtentId::NONE))
    }

    /// Forgets all tracking of `span` without touching memory or kernel: its mapping is about to
    /// go away inside the allocator, and its addresses may come back before the kernel's report.
    pub fn forget(&mut self, span: Span) {
        let span = span.core();
        self.control.did(|| Operation::Unmapped(span));
        self.views.remove(span, &mut self.extents, &mut self.backing);
        self.forget_registration(span);
        for leaving in &mut self.leaving {
            leaving.views.remove(span, &mut self.extents, &mut self.backing);
            leaving.registered = leaving.registered.iter().flat_map(|r| r.without(span)).collect();
        }
        self.gauges();
    }

    /// Untracks `span`, whose content nobody needs: its unmapped pages read as
    /// zeros.
    pub fn untrack(&mut self, span: Span) {
        self.control.did(|| Operation::Untracked(span));
        let span = span.covering_pages();
        self.views.remove(span, &mut self.extents, &mut self.backing);
        self.unregister_within(span);
        self.trim_pool();
        self.gauges();
    }

    /// Ends every registration in `span`.
    pub(super) fn unregister_within(&mut self, span: Span) {
        let mut at = span.start;
        while let Some(r) = self.registered.next_in(at, span.end) {
            self.memory.unregister(r);
            add(&self.counters.registrations, 1);
            self.forget_registration(r);
            at = r.end;
        }
    }

    /// Takes all tracking of `span` out of the books, whose mapping is about to be removed: the
    /// addresses may belong to somebody else before the kernel's report of it is read. Its views
    /// are kept aside: if the kernel refuses, and somebody touches it before [`Tracker::reattach`],
    /// his fault is answered from there.
    pub fn detach(&mut self, span: Span) -> Detached {
        self.control.did(|| Operation::Unmapped(span));
        let views = self.views.split_off(span, &mut self.extents);
        let mut registered = Vec::new();
        let mut at = span.start;
        while let Some(r) = self.registered.next_in(at, span.end) {
            registered.push(r);
            at = r.end;
        }
        self.registered.remove(span);
        self.detached += 1;
        self.leaving.push(Leaving { number: self.detached, views, registered });
        Detached(self.detached)
    }

    fn leaves(&mut self, detached: &Detached) -> Option<Leaving> {
        let i = self.leaving.iter().position(|l| l.number == detached.0)?;
        Some(self.leaving.swap_remove(i))
    }

    /// The mapping is gone: so is what was detached.
    pub fn drop_detached(&mut self, detached: &Detached) {
        if let Some(mut leaving) = self.leaves(detached) {
            leaving.views.remove(Span::new(0, usize::MAX), &mut self.extents, &mut self.backing);
        }
        self.trim_pool();
        self.gauges();
    }

    /// The call failed. Some of the mapping may be gone all the same (the kernel, or we, may have
    /// unmapped it before), and these addresses somebody else's: so what is there still is made
    /// ordinary. `Err(Again)` means: read events, then call again.
    ///
    /// # Errors
    /// [`FillError`]: then [`Tracker::reattach`] is left.
    pub fn write_back(&mut self, detached: &Detached) -> Result<(), FillError> {
        let Some(i) = self.leaving.iter().position(|l| l.number == detached.0) else {
            return Ok(());
        };
        core::mem::swap(&mut self.views, &mut self.leaving[i].views);
        let filled = self.fill_all_views();
        core::mem::swap(&mut self.views, &mut self.leaving[i].views);
        filled?;
        if let Some(mut leaving) = self.leaves(detached) {
            for r in leaving.registered {
                self.memory.unregister(r);
                add(&self.counters.registrations, 1);
                self.forget_registration(r);
            }
            leaving.views.remove(Span::new(0, usize::MAX), &mut self.extents, &mut self.backing);
        }
        self.trim_pool();
        self.gauges();
        Ok(())
    }

    /// (Those without content read as zeros once they are not registered.)
    fn fill_all_views(&mut self) -> Result<(), FillError> {
        let mut at = 0;
        loop {
            let next = self.views.iter_from(at).next().map(|(start, v)| (start, *v));
            let Some((start, v)) = next else { return Ok(()) };
            at = v.end;
            if v.extent != ExtentId::NONE {
                self.materialize_pages(Span::new(start, v.end).covering_pages())?;
            }
        }
    }

    /// The mapping was not removed after all.
    pub fn reattach(&mut self, detached: &Detached) {
        if let Some(leaving) = self.leaves(detached) {
            self.reattach_leaving(leaving, |_, _| Ok(()));
        }
    }

    /// Puts detached memory back into the books, where it may be registered.
    fn reattach_leaving(
        &mut self,
        leaving: Leaving,
        mut register: impl FnMut(&mut M, Span) -> Result<(), Refusal>,
    ) {
        for r in leaving.registered {
            if register(&mut self.memory, r).is_err() {
                continue;
            }
            self.registered.insert(r);
            // (It may have been made anew meanwhile.)
            self.filter.track(r);
            for (start, v) in leaving.views.iter_from(r.start).take_while(|(s, _)| *s < r.end) {
                let span = Span::new(start, v.end);
                let (extents, backing) = (&mut self.extents, &mut self.backing);
                self.views.assign(span, v.extent, v.offset, v.site, extents, backing);
            }
        }
        let mut views = leaving.views;
        views.remove(Span::new(0, usize::MAX), &mut self.extents, &mut self.backing);
    }

    /// In a forked child: nobody here carries on with the calls that were about to unmap.
    pub(super) fn reattach_all(
        &mut self,
        mut register: impl FnMut(&mut M, Span) -> Result<(), Refusal>,
    ) {
        while let Some(leaving) = self.leaving.pop() {
            self.reattach_leaving(leaving, &mut register);
        }
    }

    /// Whether any page of `span` is unmapped by us or registered, or was before it was detached.
    pub fn tracks(&self, span: Span) -> bool {
        self.views.touches(span)
            || self.registered.touches(span)
            || self.leaving.iter().any(|l| l.tracked(span))
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
