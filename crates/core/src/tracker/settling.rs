//! Extents that are sent again and again move to memory that their receivers read: a region of a
//! sender's own.
//!
//! Such an extent is copied once, and from then on it is named where it lies. It stays there as
//! long as anything views it, as every extent of a region does, and comes home like them.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::{MAX_PIECES, OutputPlan};
use crate::regions::RegionId;
use arrayvec::ArrayVec;
use uncopy_ranges::span::Span;

/// An extent moves as a whole. So at least one in so many of its bytes is sent by the call.
const SENT_SHARE: usize = 2;

impl<M: Memory> Tracker<M> {
    /// The extents of a planned output that may [move](Self::settle), and where their bytes lie:
    /// they are ours, were sent before, and this call sends `least` bytes of each and more.
    pub fn sent_again(
        &self,
        plan: &OutputPlan,
        least: usize,
    ) -> ArrayVec<(ExtentId, Span), MAX_PIECES> {
        let mut found = ArrayVec::<(ExtentId, Span), MAX_PIECES>::new();
        for &id in &plan.pins {
            let e = self.extents.get(id);
            if e.is_foreign() || e.filling || found.iter().any(|f| f.0 == id) {
                continue;
            }
            let pieces = plan.pieces.iter().zip(&plan.extents).filter(|(_, of)| **of == id);
            let (mut bytes, mut again) = (0, e.passes > 0);
            for (&(at, len), _) in pieces {
                again |= ((at - e.at) as u32) < e.mark;
                bytes += len;
            }
            if again && bytes >= least.max(e.filled as usize / SENT_SHARE) {
                found.push((id, e.span()));
            }
        }
        found
    }

    /// The bytes of `id`, which the caller has pinned, have been copied to `to` in `region`: what
    /// views them views the copy from now on. False: nothing does, and the copy is its owner's
    /// still.
    pub fn settle(&mut self, id: ExtentId, region: RegionId, to: Span) -> bool {
        let e = *self.extents.get(id);
        let fits = !e.is_foreign() && !e.filling && e.filled as usize == to.len();
        if !fits || !self.extents.reserve() || !self.backing.regions.hand_over(region, to) {
            return false;
        }
        let copy = self.extents.create_foreign(region, to, e.used);
        let c = self.extents.get_mut(copy);
        (c.warm, c.adopted, c.passes, c.mark) = (e.warm, e.adopted, e.passes, e.mark);
        self.follow_copies(|of, _| (of == id).then_some(copy));
        // (Where nothing viewed it any more the copy goes back at once.)
        self.drop_extent(copy);
        self.gauges();
        true
    }
}
