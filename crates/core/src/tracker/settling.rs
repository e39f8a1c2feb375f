//! Extents that are sent again and again move to memory that their receivers read: a region of a
//! sender's own.
//!
//! Such an extent is copied once, and from then on it is named where it lies. It stays there as
//! long as anything views it, as every extent of a region does, and comes home like them.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::{MAX_PIECES, Move, OutputPlan};
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

    /// The bytes of extents, which the caller has pinned, have been copied: their views become
    /// views of the copies. Returns a bit for each of which that is so: the other copies are their
    /// owners' still. At most [`MAX_PIECES`] at once.
    pub fn settle(&mut self, moves: &[Move]) -> u64 {
        const _: () = assert!(MAX_PIECES <= u64::BITS as usize);
        let mut copies = ArrayVec::<(ExtentId, ExtentId), MAX_PIECES>::new();
        let mut settled = 0;
        for (i, &Move { id, region, to }) in moves.iter().take(MAX_PIECES).enumerate() {
            let e = *self.extents.get(id);
            let fits = !e.is_foreign() && !e.filling && e.filled as usize == to.len();
            if !fits || !self.extents.reserve() || !self.backing.regions.hand_over(region, to) {
                continue;
            }
            let copy = self.extents.create_foreign(region, to, e.used);
            let c = self.extents.get_mut(copy);
            (c.warm, c.passes, c.mark) = (e.warm, e.passes, e.mark);
            (c.adopted, c.lender) = (e.adopted, e.lender);
            copies.push((id, copy));
            settled |= 1 << i;
        }
        // (One walk for all of them.)
        if !copies.is_empty() {
            self.follow_copies(|of, _| copies.iter().find(|c| c.0 == of).map(|c| c.1));
        }
        // (A copy that nothing views any more goes back at once.)
        copies.into_iter().for_each(|(_, copy)| self.drop_extent(copy));
        self.gauges();
        settled
    }
}
