//! The memory that extents lie in: the pool, and regions of others.

use super::pool::{Pool, PoolShape};
use crate::extents::Extent;
use crate::regions::Regions;
use crate::views::Reclaim;

/// The memory that extents lie in.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) pool: Pool,
    pub(super) regions: Regions,
}

impl Backing {
    /// A pool at the address `base`, and nothing else.
    pub(super) fn new(shape: PoolShape, base: usize) -> Self {
        Self { pool: Pool::new(shape, base), regions: Regions::new() }
    }

    /// Whether pages of `e` may become the program's, which writes to them, once nobody else views
    /// them.
    pub(super) fn may_move(&self, e: &Extent) -> bool {
        if e.is_foreign() { self.regions.movable(e.region) } else { self.pool.is_ours_alone(e) }
    }
}

impl Reclaim for Backing {
    #[inline]
    fn reclaim(&mut self, e: Extent) {
        if e.is_foreign() {
            self.regions.release(e.region, e.span());
        } else {
            self.pool.reattach_leaving(&e);
        }
    }
}
