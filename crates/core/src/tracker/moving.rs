//! From resident to unmapped, and to ordinary memory again: registering, moving out, untracking.

use super::limits::Lack;
use super::{ISLAND_PAGES, NOBODY, Tracker};
use crate::extents::{Extent, ExtentId};
use crate::memory::{Memory, Piece, Stop};
use crate::plan::MAX_PIECES;
use arrayvec::ArrayVec;
use uncopy_counters::add;
use uncopy_decide::{Event, Operation, Reason, Refusal, SiteId};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};

/// Pages that are populated or moved in at once: the lock is held meanwhile.
pub(super) const POPULATE_MAX: usize = 512;
/// Most pages that freed memory gets for those that were moved out, before they are touched one by
/// one: 32 MB.
const DISPLACED_MAX: usize = 16 * POPULATE_MAX;
/// The filter is rebuilt after this many ranges were unregistered.
const FILTER_RENEWAL: usize = 32;
/// The filter is also rebuilt after this many false positives, if any range was unregistered
/// meanwhile. After this many of resting sites, idle memory beside them is unregistered, too.
const FALSE_POSITIVES_MAX: usize = 32;
/// One in this many copies that find registered memory without views ends the registration.
const USELESS_MAX: usize = 64;

/// Pages of the program's that were moved out.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovedOut {
    /// The first of them in the pool.
    pub(super) slot: usize,
    /// Where they were: unmapped now, and tiled by empty views. Empty where none was moved.
    pub(super) span: Span,
    /// Why the others that were meant were not.
    pub(super) rest: Result<(), Reason>,
}

impl<M: Memory> Tracker<M> {
    /// Registers `span` and moves its pages to vacant pool pages, as many as there are up to the
    /// first that is refused. Memory that is to be discarded may have holes.
    ///
    /// # Errors
    /// Returns the reason why none was moved.
    pub(super) fn move_out(
        &mut self,
        span: Span,
        discard: bool,
        site: SiteId,
    ) -> Result<MovedOut, Reason> {
        if self.excluded.touches(span) {
            return Err(self.refused(span, Refusal::Stays, site));
        }
        self.register(span, site)?;
        // (Pages that are reported to be dropped have still to go: moved away they would stay.)
        if !discard && self.before_dropped(span) != span {
            return Err(self.refused(span, Refusal::Stays, site));
        }
        let pages = span.pages();
        let Some(slot) = self.take_vacant(pages) else {
            return Err(self.exhausted(Lack::Extents));
        };
        let mut taken = self.memory.move_out(span, slot, false);
        let mut calls = 1;
        let moved = taken.pages;
        let mut gone = moved;
        let mut vacant = moved;
        if discard && taken.stop == Stop::Hole {
            // A destination that was never touched (fresh from the allocator) has holes.
            let rest = Span::new(span.start + moved * PAGE, span.end);
            taken = self.memory.move_out(rest, slot + moved, true);
            calls += 1;
            gone += taken.pages;
            if !self.memory.discard(slot + moved, taken.pages) {
                self.backing.pool.hold(slot + moved, taken.pages, NOBODY, false);
                vacant = gone;
            }
        }
        add(&self.counters.moves, calls);
        add(&self.counters.moved_pages, moved as u64);
        let rest = match taken.stop {
            Stop::Done | Stop::Hole => Ok(()),
            Stop::Refused(why) => {
                Err(self.refused(Span::sized(span.start + gone * PAGE, PAGE), why, site))
            }
        };
        self.control.tell(site, Event::Moved { calls, pages: gone });
        self.displaced = (self.displaced + moved).min(DISPLACED_MAX);
        self.backing.pool.vacant.give(slot + vacant, pages - vacant);
        let unmapped = Span::sized(span.start, gone * PAGE);
        self.views.assign(unmapped, ExtentId::NONE, 0, site, &mut self.extents, &mut self.backing);
        match rest {
            Err(why) if gone == 0 => Err(why),
            _ => Ok(MovedOut { slot, span: Span::sized(span.start, moved * PAGE), rest }),
        }
    }

    /// Makes moved pages an extent, and the program's pages views of it.
    pub(super) fn view_moved(&mut self, moved: MovedOut, site: SiteId) -> &mut Extent {
        let (at, pages) = (self.backing.pool.address(moved.slot), moved.span.pages());
        self.clock += 1;
        let extent = self.extents.create(at, pages, (pages * PAGE) as u32, self.clock);
        let (extents, backing) = (&mut self.extents, &mut self.backing);
        self.views.assign(moved.span, extent, 0, site, extents, backing);
        self.drop_extent(extent);
        self.extents.get_mut(extent)
    }

    /// `span` was not registered, or not moved, for `site`. Says as what that is told.
    fn refused(&mut self, span: Span, why: Refusal, site: SiteId) -> Reason {
        self.control.did(|| Operation::Refused { span, why });
        if why != Refusal::Stays {
            add(&self.counters.refusals, 1);
            self.control.tell(site, Event::Refused);
        }
        why.into()
    }

    /// Registers what of `span` is not yet.
    pub(super) fn register(&mut self, span: Span, site: SiteId) -> Result<(), Reason> {
        let mut gaps = ArrayVec::new();
        let complete = self.register_gaps(span, site, &mut gaps);
        // New ranges are trusted only when no unmap of the same addresses is still on its way
        // to us: its event would end the views of the new mapping.
        if !gaps.is_empty() && self.memory.map_changing() != Some(false) {
            for gap in gaps {
                self.memory.unregister(gap);
                self.registered.remove(gap);
            }
            return complete.and_then(|()| Err(self.refused(span, Refusal::Stays, site)));
        }
        complete
    }

    /// The same; `gaps` is told what it was, also where that is not all of it.
    fn register_gaps(
        &mut self,
        span: Span,
        site: SiteId,
        gaps: &mut ArrayVec<Span, MAX_PIECES>,
    ) -> Result<(), Reason> {
        while let Some(gap) = self.registered.next_gap(span.start, span.end) {
            if gaps.is_full() {
                return Err(Reason::Resident);
            }
            // (A fault in detached memory is answered from there, until it is known what became of
            // it.)
            if self.leaving.iter().any(|l| l.tracked(gap)) {
                return Err(self.refused(gap, Refusal::Stays, site));
            }
            if self.registered.count() >= self.limits.ranges {
                return Err(self.exhausted(Lack::Mappings));
            }
            add(&self.counters.registrations, 1);
            self.control.tell(site, Event::Registered);
            if let Err(why) = self.memory.register(gap) {
                return Err(self.refused(gap, why, site));
            }
            self.registered.insert(gap);
            self.filter.track(gap);
            gaps.push(gap);
        }
        Ok(())
    }

    /// Untracks whole pages, whose content nobody is owed, and populates the first 2 MB of them, as
    /// far as that many were moved out before. (128 pages that are touched one by one take 82 us,
    /// populated by one call 32; copying them four times takes less.) `site` pays.
    pub(super) fn untrack_and_populate(&mut self, pages: Span, site: SiteId) {
        self.views.remove(pages, &mut self.extents, &mut self.backing);
        let wanted = pages.pages().min(POPULATE_MAX).min(self.displaced);
        let mut filled = 0;
        if wanted >= ISLAND_PAGES {
            let there = Span::sized(pages.start, wanted * PAGE);
            filled = self.memory.fill(there, &[Piece::Zero { len: there.len() }]).0;
            self.displaced -= filled;
            add(&self.counters.populated_pages, filled as u64);
            self.control.tell(site, Event::Populated { pages: filled });
        }
        self.control.tell(site, Event::Untracked { pages: pages.pages() - filled });
        self.untrack_pages(pages);
    }

    /// Untracks whole pages: their views end, and the kernel provides fresh ones when they are
    /// touched.
    pub(super) fn untrack_pages(&mut self, pages: Span) {
        self.views.remove(pages, &mut self.extents, &mut self.backing);
        self.memory.unregister(pages);
        add(&self.counters.registrations, 1);
        self.forget_registration(pages);
    }

    /// A copy of `site` that is not elided came here for nothing: the memory is registered and has
    /// no views. As long as it is, every call on it takes the lock to find nothing; but another
    /// site may be using it, so only one in some is listened to.
    pub(super) fn count_useless_call(&mut self, from: Span, to: Span, site: SiteId, weight: usize) {
        self.useless_calls += weight;
        // (It may leave a hole in a long range.)
        if self.useless_calls >= USELESS_MAX && self.may_have_holes() {
            self.useless_calls = 0;
            self.untrack_unused(from, site);
            self.untrack_unused(to, site);
        }
    }

    /// The same of an input to `buffers`, or an output from them.
    pub(super) fn count_useless_buffers(&mut self, buffers: &[(usize, usize)]) {
        let large = self.control.threshold();
        let mut weight = 1;
        for span in buffers.iter().map(|&(addr, len)| Span::sized(addr, len)) {
            if self.registered.touches(span) {
                self.count_useless_call(span, span, NOBODY, weight);
                weight = 0;
            } else if span.len() >= large {
                self.count_false_positive(span, span);
            }
        }
    }

    /// Ends the registration of `span`, which has no views, for `site`.
    fn untrack_unused(&mut self, span: Span, site: SiteId) {
        // (Views tile each page that they touch: none reaches into the pages at the ends either.)
        let pages = span.covering_pages();
        debug_assert!(!self.views.touches(pages));
        let mut at = pages.start;
        while let Some(there) = self.registered.next_in(at, pages.end) {
            at = there.end;
            self.control.tell(site, Event::Untracked { pages: 0 });
            self.untrack_pages(there);
        }
    }

    /// `span` is not registered any more. The filter, which only ever adds, is made anew now and
    /// then: else calls on memory that was tracked once would take the lock for ever.
    pub(super) fn forget_registration(&mut self, span: Span) {
        self.registered.remove(span);
        self.unregistered += 1;
        if self.unregistered >= FILTER_RENEWAL {
            self.renew_filter();
        }
    }

    fn renew_filter(&mut self) {
        (self.unregistered, self.false_positives) = (0, 0);
        let leaving = self.leaving.iter().flat_map(|l| l.registered.iter().copied());
        self.filter.track_only(self.registered.iter().chain(leaving));
    }

    /// Whether there is room for ranges that are registered in parts.
    pub(super) fn may_have_holes(&self) -> bool {
        self.registered.count() < self.limits.ranges / 2
    }

    fn perhaps_tracked(&self, span: Span) -> bool {
        self.filter.perhaps_tracked(span.start, span.len())
    }

    /// A copy of memory that is not registered came here, perhaps by a false positive of the
    /// filter.
    pub(super) fn count_false_positive(&mut self, from: Span, to: Span) {
        let empty = to.is_empty();
        let here = !empty && (self.perhaps_tracked(from) || self.perhaps_tracked(to));
        if self.unregistered == 0 || !here {
            return;
        }
        self.false_positives += 1;
        if self.false_positives >= FALSE_POSITIVES_MAX {
            self.renew_filter();
        }
    }

    /// The same of a site that rests: what is registered so near that the filter does not tell them
    /// apart, and idle, ends to be registered after so many.
    pub(super) fn came_beside(&mut self, from: Span, to: Span, site: SiteId) {
        if to.is_empty() || !(self.perhaps_tracked(from) || self.perhaps_tracked(to)) {
            return;
        }
        self.came_beside += 1;
        if self.came_beside < FALSE_POSITIVES_MAX {
            return;
        }
        self.came_beside = 0;
        // (Pages that are about to be dropped are left alone, as in `removed`. Where that cannot be
        // known it is not asked at each copy.)
        if self.may_have_holes() && self.memory.map_changing() == Some(false) {
            self.untrack_beside(from, site);
            self.untrack_beside(to, site);
            self.renew_filter();
        }
    }

    fn untrack_beside(&mut self, span: Span, site: SiteId) {
        let near = Filter::neighbourhood(span);
        let mut at = near.start;
        while let Some(r) = self.registered.next_in(at, near.end) {
            at = r.end;
            let mut idle = ArrayVec::<Span, MAX_PIECES>::new();
            for page in (r.start..r.end).step_by(PAGE).map(|page| Span::sized(page, PAGE)) {
                if !self.is_idle(page) {
                    continue;
                }
                if let Some(last) = idle.last_mut().filter(|last| last.end == page.start) {
                    last.end = page.end;
                } else if idle.try_push(page).is_err() {
                    break;
                }
            }
            for pages in idle {
                self.control.tell(site, Event::Untracked { pages: 0 });
                self.untrack_pages(pages);
            }
        }
    }
}
