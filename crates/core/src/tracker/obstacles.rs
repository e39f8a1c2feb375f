//! What stood in a copy's way: limits and the kernel's refusals, told from the counters they move.

use super::Tracker;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_decide::Reason;

/// How often each was met so far.
pub(super) type Obstacles = [u64; 10];

const REASONS: [Reason; 10] = [
    Reason::ExhaustedExtents,
    Reason::ExhaustedMappings,
    Reason::ExhaustedViews,
    Reason::ExhaustedBooks,
    Reason::RefusedBusy,
    Reason::RefusedAgain,
    Reason::RefusedNoMemory,
    Reason::RefusedUnsuitable,
    Reason::RefusedOther,
    Reason::RefusedOther,
];

impl<M> Tracker<M> {
    pub(super) fn obstacles(&self) -> Obstacles {
        let c = self.counters;
        [
            &c.exhausted_extents,
            &c.exhausted_mappings,
            &c.exhausted_views,
            &c.exhausted_books,
            &c.refused_busy,
            &c.refused_again,
            &c.refused_no_memory,
            &c.refused_unsuitable,
            &c.refused_permission,
            &c.refused_other,
        ]
        .map(|n| n.load(Relaxed))
    }

    /// The first that was met since.
    pub(super) fn met_since(&self, before: Obstacles) -> Option<Reason> {
        let now = self.obstacles();
        REASONS.into_iter().zip(now.iter().zip(before)).find(|(_, (n, b))| *n != b).map(|m| m.0)
    }
}
