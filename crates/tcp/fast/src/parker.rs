//! How a thread sleeps, and how others wake it, without a system call while it is awake.
//!
//! A thread that parks says so, looks once more whether there is work, and blocks on an eventfd
//! (and on its wire). A thread with work for it publishes the work, and writes to the eventfd only
//! if it said that it sleeps. One of the two sees the other.

use crate::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::sync::atomic::{AtomicBool, fence};

/// Says that a thread sleeps, or is about to.
#[derive(Debug)]
pub struct Parker(AtomicBool);

impl Parker {
    /// Awake.
    pub fn new() -> Parker {
        Parker(AtomicBool::new(false))
    }

    /// It is about to sleep. It looks for work once more after this.
    pub fn begin(&self) {
        self.0.store(true, Relaxed);
        fence(SeqCst);
    }

    /// It is awake again.
    pub fn end(&self) {
        self.0.store(false, Relaxed);
    }

    /// Work was published: does it have to be woken? One of several who ask is told so.
    #[inline]
    pub fn wake(&self) -> bool {
        fence(SeqCst);
        self.0.load(Relaxed) && self.0.swap(false, SeqCst)
    }
}

impl Default for Parker {
    fn default() -> Self {
        Parker::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::atomic::AtomicU32;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn in_every_order_work_is_seen_before_sleep_or_wakes_it() {
        loom::model(|| {
            let (parker, work) = (Arc::new(Parker::new()), Arc::new(AtomicU32::new(0)));
            let giver = {
                let (parker, work) = (parker.clone(), work.clone());
                thread::spawn(move || {
                    work.store(1, Relaxed);
                    parker.wake()
                })
            };
            parker.begin();
            let seen = work.load(Relaxed) == 1;
            let woken = giver.join().unwrap();
            assert!(seen || woken, "it would sleep for ever");
        });
    }
}
