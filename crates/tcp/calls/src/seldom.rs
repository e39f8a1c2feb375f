//! Work that is not done again soon after it was done.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// So many milliseconds later it may be done again.
const AGAIN: u64 = 1000;

/// When it was done last, in milliseconds; 0: never.
#[derive(Debug)]
pub(crate) struct Seldom(AtomicU64);

impl Seldom {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// It was done a moment ago.
    pub fn is_recent(&self) -> bool {
        now().abs_diff(self.0.load(Relaxed)) < AGAIN
    }

    /// It was done just now.
    pub fn is_done(&self) {
        self.0.store(now(), Relaxed);
    }

    /// True for the one thread that is to do it now.
    pub fn takes_turn(&self) -> bool {
        let (now, before) = (now(), self.0.load(Relaxed));
        now.abs_diff(before) >= AGAIN
            && self.0.compare_exchange(before, now, Relaxed, Relaxed).is_ok()
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}
