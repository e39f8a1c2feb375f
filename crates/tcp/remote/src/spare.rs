//! Bytes that buffers may have together, beside what each has by right.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// See the module. (A count, and no memory: so its order with anything else is nobody's matter.)
#[derive(Debug)]
pub struct Spare(AtomicU64);

impl Spare {
    /// So many.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(bytes)))
    }

    /// Both ways' of a service: each has so many, so that peers who take nothing do not keep from
    /// others what comes before its turn.
    pub fn of_both_ways(bytes: u64) -> Spares {
        Spares { inward: Self::new(bytes), outward: Self::new(bytes) }
    }

    /// So many are no buffer's.
    pub fn left(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// So many of them are a buffer's from now on, if they are there.
    pub fn take(&self, bytes: usize) -> bool {
        let less = |left: u64| left.checked_sub(bytes as u64);
        self.0.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    /// So many are a buffer's no more.
    pub fn give(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Relaxed);
    }
}

/// The bytes that buffers of each way may have.
#[derive(Clone, Debug)]
pub struct Spares {
    /// From the wire.
    pub inward: Arc<Spare>,
    /// To it.
    pub outward: Arc<Spare>,
}
