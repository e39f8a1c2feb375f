//! Pages are moved in as they are: a view that is its extent's last one, congruent with it, needs
//! no copy
//! (a move costs a fifteenth of one).

use super::Tracker;
use super::moving::POPULATE_MAX;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::view::View;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_counters::add;
use uncopy_decide::{Act, Event};
use uncopy_ranges::span::{PAGE, Span};

/// Fewer pages than these are filled by copying.
const MOVE_MIN: usize = 4;
/// Copies that resting call sites make of an extent before its pages are moved in: what is copied
/// again and again (a cached value) is cheaper as ordinary memory, what is copied once is about to
/// be freed.
const RESTED_MAX: u8 = 2;
/// So many until what cannot be moved in is copied: by then looking at it has cost as much.
const RESTED_LONG: u8 = 16;
/// The same for what is sent, without a copy, again and again: from its beginning so many times.
const SENT_LONG: u8 = 16;

impl<M: Memory> Tracker<M> {
    /// Of the unmapped pages in `run`, moves in what can be moved. The rest stays unmapped.
    pub(super) fn move_in_within(&mut self, run: Span) {
        let mut at = run.start;
        while let Some((start, v)) = self.next_view(at, run.end) {
            at = v.end;
            if start >= run.start && v.end <= run.end {
                self.move_in(start, start, v);
            }
        }
    }

    /// Materializes what is unmapped of `span`, mostly parts of pages, at the cost of who unmapped
    /// it. Returns whether it has.
    pub(super) fn materialize_charged(&mut self, span: Span) -> bool {
        let Some(v) = self.views.segments(span.covering_pages()).find_map(|s| s.view) else {
            return false;
        };
        let before = self.counters.materialized_pages.load(Relaxed);
        let filled = self.materialize(span).is_ok();
        let pages = self.counters.materialized_pages.load(Relaxed) - before;
        self.control.tell(v.site, Event::Materialized { pages: pages as usize });
        filled
    }

    fn next_view(&self, at: usize, end: usize) -> Option<(usize, View)> {
        let (start, v) = self.views.iter_from(at).next()?;
        (start < end).then_some((start, *v))
    }

    /// Moves in the pages from `page` on of the view `v`, which begins at `start`, if it is the
    /// last of its extent and ends with it. Returns how many pages.
    pub(super) fn move_in(&mut self, page: usize, start: usize, v: View) -> usize {
        if !self.may_move_in(page, start, v) {
            return 0;
        }
        let span = Span::new(page, v.end);
        let offset = v.offset as usize + (page - start);
        let e = *self.extents.get(v.extent);
        let used = (e.filled as usize).div_ceil(PAGE);
        if e.pages > used {
            let (at, pages) = self.extents.trim(v.extent);
            self.backing.pool.give(self.backing.pool.page(at), pages);
        }
        let moved = self.memory.move_in(span, e.at + offset);
        add(&self.counters.moves, 1);
        add(&self.counters.moved_in_pages, moved as u64);
        self.control.tell(v.site, Event::Moved { calls: 1, pages: moved });
        if moved == span.pages() && !e.is_foreign() {
            self.extents.cut(v.extent, offset / PAGE);
            self.backing.pool.vacate(self.backing.pool.page(e.at + offset), moved);
        }
        // (An extent whose pages were moved in part has holes, which read as zeros when its pages
        // are used again.)
        let there = Span::sized(page, moved * PAGE);
        self.views.remove(there, &mut self.extents, &mut self.backing);
        moved
    }

    fn may_move_in(&self, page: usize, start: usize, v: View) -> bool {
        if v.extent == ExtentId::NONE {
            return false;
        }
        let span = Span::new(page, v.end);
        let offset = v.offset as usize + (page - start);
        let e = self.extents.get(v.extent);
        // (Pages that somebody may refer to must never be written to.)
        let last = e.refs == 1 && !e.filling && self.backing.may_move(e);
        let congruent = span == span.covering_pages() && (e.at + offset).is_multiple_of(PAGE);
        // (The rest of an extent of ours has to be a run; others get theirs back whole.)
        let ends_it =
            e.is_foreign() || offset / PAGE + span.pages() == (e.filled as usize).div_ceil(PAGE);
        last && congruent && ends_it && span.pages() >= MOVE_MIN
    }

    /// A copy of `from` was made although it is viewed, because its call site rests: what is copied
    /// so repeatedly is made ordinary, if its pages need only be moved. (Copied, it would cost what
    /// eliding has saved: WiredTiger's log and block manager read each document once more. But what
    /// goes on being copied for long is copied in the end.) Returns whether anything may have: also
    /// what failed midway has filled pages, of which the destination may have a part.
    pub(super) fn rested_copy(&mut self, from: Span) -> bool {
        let mut back = false;
        let mut last = ExtentId::NONE;
        let mut at = from.start;
        while let Some(s) = self.views.segments(Span::new(at, from.end)).next() {
            at = s.span.end;
            let Some(v) = s.view.filter(|v| v.extent != ExtentId::NONE) else { continue };
            let e = self.extents.get_mut(v.extent);
            e.rested = e.rested.saturating_add(u8::from(last != v.extent));
            last = v.extent;
            let (often, long) = (e.rested >= RESTED_MAX, e.rested >= RESTED_LONG);
            let Some((start, whole)) = self.views.at(s.span.start).filter(|_| often) else {
                continue;
            };
            // (All of it, not just what is copied: the rest would keep whoever copies it in the
            // books. But the lock is held.)
            let all = Span::new(start, whole.end);
            let moves = self.may_move_in(start, start, whole);
            if moves || long {
                self.control.tell(whole.site, Event::Untracked { pages: 0 });
                back = true;
                self.make_origin(if moves || all.pages() <= POPULATE_MAX { all } else { s.span });
            }
        }
        back
    }

    /// `span` becomes an origin again, in ordinary memory; whether that came about. It holds input
    /// still: once its call sites rest no longer, copies of it are elided again.
    fn make_origin(&mut self, span: Span) -> bool {
        let done = self.make_ordinary(span).is_ok();
        self.filter.input(span.start, span.len());
        done
    }

    /// Whether `v` has been sent again and again without saving anything: as bytes, not by
    /// reference, and of a call site that rests, so none of its copies is elided. (An object that a
    /// cache stored once: each time it is sent it has to be found, and lies where the processor's
    /// caches do not expect it.)
    pub(super) fn is_worn(&mut self, v: View) -> bool {
        let e = self.extents.get(v.extent);
        let often = e.passes >= SENT_LONG && !e.lent && !e.adopted;
        often && self.control.act(v.site, Act::GiveBack)
    }

    /// Makes the worn views of `buffers`, which are about to be sent, ordinary: some 2 MB at once,
    /// for the lock is held.
    pub(super) fn rested_output(&mut self, buffers: &[(usize, usize)]) {
        let mut pages = 0;
        for &(addr, len) in buffers {
            let buffer = Span::sized(addr, len);
            let mut at = buffer.start;
            while let Some(s) = self.views.segments(Span::new(at, buffer.end)).next() {
                at = s.span.end;
                let view = s.view.filter(|v| v.extent != ExtentId::NONE && self.is_worn(*v));
                let Some((v, (start, whole))) = view.zip(self.views.at(s.span.start)) else {
                    continue;
                };
                // (Sent in parts, it is moved in as a whole all the same.)
                let whole_moves = self.may_move_in(start, start, whole);
                let span = if whole_moves { Span::new(start, whole.end) } else { s.span };
                self.control.tell(v.site, Event::Untracked { pages: 0 });
                if !self.make_origin(span) && self.extents.alive(v.extent) {
                    // It is not tried again at once.
                    self.extents.get_mut(v.extent).passes = 0;
                }
                pages += span.pages();
                if pages >= POPULATE_MAX {
                    return;
                }
            }
        }
    }
}
