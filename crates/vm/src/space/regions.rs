//! Memory of others that extents lie in: its owners are told what comes back, and it is called back before fork.
//!
//! unsafe: copies what the tracker planned, from a region into the pool.

use super::events::materialize_all;
use super::hold::{with, with_after_fork, with_space_after_fork};
use super::life::start;
use super::running;
use crate::critical;
use core::sync::atomic::{AtomicBool, Ordering};
use uncopy_core::memory::FillError;
use uncopy_core::plan::RecallPlan;
use uncopy_core::regions::{Region, RegionId, Release};

/// Set for good once there was any region.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether there may be any region.
#[inline]
pub(super) fn any() -> bool {
    BEGUN.load(Ordering::Relaxed)
}

/// From now on bytes of `region` may be handed over: see [`Region`]. It is this process's: a forked child has none, and begins its own.
/// `None`: nothing can be tracked now.
pub fn begin_region(region: Region) -> Option<RegionId> {
    // (As for the first elided copy: starting makes a thread.)
    if !running() && (critical::inside() || critical::in_handler() || !start()) {
        return None;
    }
    BEGUN.store(true, Ordering::Relaxed);
    with(|b| b.begin_region(region)).flatten()
}

/// Nothing more of `region` is handed over. Returns whether it is gone; else something of it is still to come back: then this is to be
/// asked again. What is viewed of it comes back by [`recall`].
pub fn end_region(region: RegionId) -> bool {
    with_after_fork(|b| b.end_region(region)).unwrap_or(true)
}

/// What is viewed of `region` (`None`: of all of them) is copied to the pool and comes back, but for what calls under way are
/// reading.
pub fn recall(region: Option<RegionId>) {
    loop {
        let mut plan = RecallPlan::default();
        let planned = with_space_after_fork(|space| {
            let copy_bytes = space.settings.copy_bytes;
            space.books.as_mut().map(|b| (b.recall_begin(region, &mut plan), copy_bytes))
        });
        let copy_bytes = match planned.flatten() {
            Some((Ok(()), copy_bytes)) if !plan.moves.is_empty() => copy_bytes,
            Some((Err(FillError::Again), _)) => {
                rustix::thread::sched_yield();
                continue;
            }
            // Only faults can end these views: they do.
            Some((Err(FillError::Refused), _)) => {
                materialize_all();
                return;
            }
            _ => return,
        };
        for c in &plan.copies {
            // SAFETY: from bytes that stay as they are until they are released, into an extent that nobody knows yet.
            unsafe { copy_bytes(c.to as *mut u8, c.from as *const u8, c.len) };
        }
        with_after_fork(|b| b.recall_commit(&mut plan));
    }
}

/// Tells owners what came back. (Waits for a fork that is under way.)
#[cold]
pub(super) fn carry_out_releases() {
    let take = || with_space_after_fork(|s| s.books.as_mut().and_then(|b| b.take_release()));
    while let Some(release) = take().flatten() {
        release.carry_out();
    }
}

/// The same for the monitor, which must not wait: `take` takes one, or none while the books are frozen.
#[cold]
pub(super) fn carry_out(mut take: impl FnMut() -> Option<Release>) {
    while let Some(release) = take() {
        release.carry_out();
    }
}
