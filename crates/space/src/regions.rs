//! Memory of others that extents lie in: its owners are told what comes back, and it is called back
//! before fork.
//!
//! unsafe: copies what the tracker planned, from a region into the pool.

use crate::space::{Books, Space};
use core::sync::atomic::Ordering;
use uncopy_core::memory::FillError;
use uncopy_core::plan::{Move, RecallPlan};
use uncopy_core::regions::{Region, RegionId};
use uncopy_kernel::critical;
use uncopy_ranges::span::Span;

impl Space {
    /// Whether there may be any region.
    #[inline]
    pub fn has_regions(&self) -> bool {
        self.regions_begun.load(Ordering::Relaxed)
    }

    /// From now on bytes of `region` may be handed over: see [`Region`]. It is this process's: a
    /// forked child has none, and begins its own. `None`: nothing can be tracked now.
    pub fn begin_region(&'static self, region: Region) -> Option<RegionId> {
        // (As for the first elided copy: starting makes a thread.)
        if !self.running() && (critical::inside() || critical::in_handler() || !self.start()) {
            return None;
        }
        self.regions_begun.store(true, Ordering::Relaxed);
        self.with(|b| b.begin_region(region)).flatten()
    }

    /// Nothing more of `region` is handed over. Returns whether it is gone; else something of it is
    /// still to come back: then this is to be asked again. Viewed bytes of it come back by
    /// [`Space::recall`].
    pub fn end_region(&'static self, region: RegionId) -> bool {
        self.with_after_fork(|b| b.end_region(region)).unwrap_or(true)
    }

    /// Views of extents, which the caller has pinned, become views of their copies. Returns a bit
    /// for each of which that is so: the other copies are their owners' still.
    pub fn settle_extents(&'static self, moves: &[Move]) -> u64 {
        if moves.is_empty() { 0 } else { self.with(|b| b.settle(moves)).unwrap_or(0) }
    }

    /// Copies the viewed bytes of `region` (`None`: of all regions) to the pool, and they come
    /// back, but for those that calls under way are reading.
    pub fn recall(&'static self, region: Option<RegionId>) {
        while let Err(error) = self.recall_by(|b, plan| b.recall_begin(region, plan)) {
            match error {
                FillError::Again => rustix::thread::sched_yield(),
                // Only faults can end these views: they do.
                FillError::Refused => {
                    self.make_all_ordinary();
                    return;
                }
            }
        }
    }

    /// As above, of the extents within `part` of a region, as far as there is memory now.
    pub fn recall_part(&'static self, part: Span) {
        // (That makes room. Where it cannot be had what is there stays.)
        let _ = self.recall_by(|b, plan| b.recall_part_begin(part, plan));
    }

    fn recall_by(
        &'static self,
        begin: impl Fn(&mut Books, &mut RecallPlan) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        loop {
            let mut plan = RecallPlan::default();
            let planned = self.with_inner_after_fork(|space| {
                let copy_bytes = space.settings.copy_bytes;
                space.books.as_mut().map(|b| (begin(b, &mut plan), copy_bytes))
            });
            let copy_bytes = match planned.flatten() {
                Some((Ok(()), copy_bytes)) if !plan.moves.is_empty() => copy_bytes,
                Some((Err(error), _)) => return Err(error),
                _ => return Ok(()),
            };
            for c in &plan.copies {
                // SAFETY: from bytes that stay as they are until they are released, into an extent
                // that nobody knows yet.
                unsafe { copy_bytes(c.to as *mut u8, c.from as *const u8, c.len) };
            }
            self.with_after_fork(|b| b.recall_commit(&mut plan));
        }
    }

    /// Tells owners what came back. (Waits for a fork that is under way.)
    #[cold]
    pub(crate) fn carry_out_releases(&'static self) {
        let take =
            || self.with_inner_after_fork(|s| s.books.as_mut().and_then(|b| b.take_release()));
        while let Some(release) = take().flatten() {
            release.carry_out();
        }
    }
}
