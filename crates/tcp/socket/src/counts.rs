//! Counts of one connection: how much went by the ring, and when the process' totals learn of it;
//! and which of these a connection is counted in that stays with Linux.

use std::sync::atomic::{AtomicU64, Ordering};
use uncopy_counters::{Counters, connections};
use uncopy_tcp_service::protocol::StayReason;

/// Where connections are counted that stay with Linux for this reason.
pub fn stayed(counters: &Counters, reason: StayReason) -> &AtomicU64 {
    // (A reason that is a direction's only never comes here.)
    connections::stays(reason.name())
        .map_or(&counters.tcp_stayed_use, |stays| (stays.counter)(counters))
}

/// The counts by way. Each is changed with the lock of its direction held.
#[derive(Debug, Default)]
pub struct Counts {
    /// Bytes sent through the ring.
    pub sent_by_ring: AtomicU64,
    /// Of these by streaming stores (`uncopy_tcp_shared::stores`).
    pub streamed: AtomicU64,
    /// Bytes received from it.
    pub received_by_ring: AtomicU64,
    /// Times that sending went to the ring.
    pub offers: AtomicU64,
    /// Times that it went back to Linux.
    pub leaves: AtomicU64,
    sends: AtomicU64,
    receives: AtomicU64,
    /// Of these, what is in the process' totals.
    told: [AtomicU64; 4],
}

/// The process' totals are told once in so many calls: they are on cache lines of all its threads.
const TOLD: u64 = 64;

impl Counts {
    #[inline]
    fn more(counter: &AtomicU64, n: u64) -> u64 {
        let now = counter.load(Ordering::Relaxed) + n;
        counter.store(now, Ordering::Relaxed);
        now
    }

    #[inline]
    pub(crate) fn sent(&self, totals: &Counters, bytes: u64) {
        Self::more(&self.sent_by_ring, bytes);
        if Self::more(&self.sends, 1).is_multiple_of(TOLD) {
            self.tell(totals);
        }
    }

    #[inline]
    pub(crate) fn received(&self, totals: &Counters, bytes: u64) {
        Self::more(&self.received_by_ring, bytes);
        if Self::more(&self.receives, 1).is_multiple_of(TOLD) {
            self.tell(totals);
        }
    }

    /// Calls that went by the ring.
    pub(crate) fn calls(&self) -> u64 {
        self.sends.load(Ordering::Relaxed) + self.receives.load(Ordering::Relaxed)
    }

    pub(crate) fn tell(&self, totals: &Counters) {
        let all = [
            (&self.sends, &totals.tcp_sends),
            (&self.sent_by_ring, &totals.tcp_sent_bytes),
            (&self.receives, &totals.tcp_receives),
            (&self.received_by_ring, &totals.tcp_received_bytes),
        ];
        for (told, (own, total)) in self.told.iter().zip(all) {
            let now = own.load(Ordering::Relaxed);
            // (Of two threads that tell at once each tells its part.)
            let before = told.fetch_max(now, Ordering::Relaxed);
            total.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        }
    }
}
