//! Memory of others that extents lie in: it is handed over, released, and called back.
//!
//! Memory that was handed over may stay in use for as long as the program likes. An owner that
//! wants it back sooner (it is short of room; it goes away) has it *called back*: what is viewed is
//! copied to the pool, and the views follow. So it is before fork, too: views of the pool's pages
//! come along as the pages do, copied when either side writes, but the bytes of a region may be
//! shared with others, and its owner will use them again once the *parent* has let go of them. A
//! child therefore begins without any region.

use super::Tracker;
use crate::extents::{Extent, ExtentId};
use crate::memory::{FillError, Memory};
use crate::plan::{Copy, MAX_PIECES, RecallPlan};
use crate::regions::{Region, RegionId, Release};
use arrayvec::ArrayVec;
use uncopy_ranges::span::Span;

impl<M: Memory> Tracker<M> {
    /// From now on extents may lie in `region`. `None`: there is no memory for the books of it.
    pub fn begin_region(&mut self, region: Region) -> Option<RegionId> {
        self.backing.regions.begin(region)
    }

    /// Nothing more of `region` is taken. Returns whether it is gone; else something of it is still
    /// in use, or waits to be released: then this is to be asked again. (See
    /// [`Tracker::recall_begin`].)
    pub fn end_region(&mut self, region: RegionId) -> bool {
        self.backing.regions.end(region)
    }

    /// Whether [`Tracker::take_release`] has any.
    #[inline]
    pub fn releases_wait(&self) -> bool {
        self.backing.regions.releases_wait()
    }

    /// Something that nobody uses any more, of whose owner's memory it is; to be carried out
    /// without the lock.
    pub fn take_release(&mut self) -> Option<Release> {
        self.backing.regions.take_release()
    }

    /// Whether any byte of the program is a view of somebody else's memory.
    pub fn views_abroad(&self) -> bool {
        self.backing.regions.extents() > 0 && !self.abroad(&|_: &Extent| true).is_empty()
    }

    /// Plans to bring home what is viewed of `region` (`None`: of all of them), as much as one plan
    /// has room for; nothing, if nothing is. The copies are to be made without the lock, then
    /// follows [`Tracker::recall_commit`], then this again. Bytes that the pool has no room for
    /// become the program's own.
    ///
    /// # Errors
    /// [`FillError::Again`]: read events first. [`FillError::Refused`]: only the faults of who
    /// touches it can end these views.
    pub fn recall_begin(
        &mut self,
        region: Option<RegionId>,
        plan: &mut RecallPlan,
    ) -> Result<(), FillError> {
        self.recall_some(|e| region.is_none_or(|region| region == e.region), plan)
    }

    /// As above, of the extents that lie within `part` of a region.
    ///
    /// # Errors
    /// As above.
    pub fn recall_part_begin(
        &mut self,
        part: Span,
        plan: &mut RecallPlan,
    ) -> Result<(), FillError> {
        self.recall_some(|e| part.intersect(e.span()) == e.span(), plan)
    }

    fn recall_some(
        &mut self,
        concerned: impl Fn(&Extent) -> bool,
        plan: &mut RecallPlan,
    ) -> Result<(), FillError> {
        while plan.moves.is_empty() {
            let abroad = self.abroad(&concerned);
            if abroad.is_empty() {
                break;
            }
            self.clock += 1;
            for id in abroad {
                let from = self.extents.get(id).span();
                let Ok(home) = self.new_extent(from.len()) else {
                    match self.end_views_of(id) {
                        Err(why) if plan.moves.is_empty() => return Err(why),
                        // (Others may have ended with it. First those that are planned; what is
                        // left is found again.)
                        _ => break,
                    }
                };
                let e = *self.extents.get(id);
                let h = self.extents.get_mut(home);
                (h.filled, h.used) = (e.filled, e.used);
                // (Who sends it goes on earning, and losing, by it.)
                (h.adopted, h.lender, h.passes, h.mark) = (e.adopted, e.lender, e.passes, e.mark);
                self.extents.hold(id);
                plan.moves.push((id, home));
                plan.copies.push(Copy {
                    to: self.address(home, 0),
                    from: from.start,
                    len: from.len(),
                });
            }
        }
        self.gauges();
        Ok(())
    }

    /// The plan's copies were made: views of what is abroad become views of the copies.
    pub fn recall_commit(&mut self, plan: &mut RecallPlan) {
        plan.copies.clear();
        // (Only extents in regions have a home to go to.)
        self.follow_copies(|id, e| {
            let moved = plan.moves.iter().find(|m| e.is_foreign() && m.0 == id);
            moved.map(|m| m.1)
        });
        for (id, home) in plan.moves.drain(..) {
            self.drop_extent(id);
            self.drop_extent(home);
        }
        self.gauges();
    }

    /// Every view of an extent of which `copy` names a copy becomes a view of that.
    pub(super) fn follow_copies(&mut self, copy: impl Fn(ExtentId, &Extent) -> Option<ExtentId>) {
        self.views.follow_copies(&copy, &mut self.extents, &mut self.backing);
        for leaving in &mut self.leaving {
            leaving.views.follow_copies(&copy, &mut self.extents, &mut self.backing);
        }
    }

    /// In a forked child, before anything else: its parent's regions are none of its own.
    pub fn forget_regions(&mut self) {
        self.backing.regions.inherited();
    }

    /// Some of what is viewed of regions, and is `concerned`.
    fn abroad(&self, concerned: &impl Fn(&Extent) -> bool) -> ArrayVec<ExtentId, MAX_PIECES> {
        let mut found: ArrayVec<ExtentId, MAX_PIECES> = ArrayVec::new();
        let leaving = self.leaving.iter().flat_map(|l| l.views.iter_from(0));
        for (_, v) in self.views.iter_from(0).chain(leaving) {
            if v.extent == ExtentId::NONE || found.last() == Some(&v.extent) {
                continue;
            }
            let e = self.extents.get(v.extent);
            let abroad = e.is_foreign() && concerned(e);
            if abroad && !found.contains(&v.extent) && found.try_push(v.extent).is_err() {
                break;
            }
        }
        found
    }

    /// Makes all views of the extent the program's own bytes.
    fn end_views_of(&mut self, id: ExtentId) -> Result<(), FillError> {
        self.fill_views_of(id)?;
        for i in 0..self.leaving.len() {
            core::mem::swap(&mut self.views, &mut self.leaving[i].views);
            let filled = self.fill_views_of(id);
            core::mem::swap(&mut self.views, &mut self.leaving[i].views);
            filled?;
        }
        Ok(())
    }

    fn fill_views_of(&mut self, id: ExtentId) -> Result<(), FillError> {
        let mut at = 0;
        while let Some(pages) = self.pages_of(id, at) {
            at = pages.end;
            self.materialize_pages(pages)?;
        }
        Ok(())
    }

    /// The pages of the first view of the extent from `at` on.
    fn pages_of(&self, id: ExtentId, at: usize) -> Option<Span> {
        let mut views = self.views.iter_from(at);
        views
            .find(|(_, v)| v.extent == id)
            .map(|(start, v)| Span::new(start, v.end).covering_pages())
    }
}
