//! The memory that a process holds, as its counters say, and where its group of memory is.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use uncopy_cgroup::Place;
use uncopy_counters::Counters;
use uncopy_ranges::allowance::Holding;

/// The memory that the process holds.
pub(crate) fn holding(c: &Counters) -> Holding {
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    Holding {
        promised: read(&c.twin_live_bytes).saturating_sub(read(&c.twin_slack_bytes)),
        touched: read(&c.twin_touched_bytes),
        pool: read(&c.extent_bytes) + read(&c.pool_free_bytes) + read(&c.pool_held_bytes),
        missing: read(&c.missing_bytes),
    }
}

/// The place of a process's group, and the text that said so.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) groups: Vec<u8>,
    pub(crate) place: Option<Place>,
}
