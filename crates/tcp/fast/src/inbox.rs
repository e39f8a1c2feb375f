//! Requests of others that a lane send: slots of flows, each in one inbox or list at a time, so
//! that there is always room.

use crate::spin::Spin;
use crate::sync::atomic::AtomicBool;
use crate::sync::atomic::Ordering::{Acquire, Release};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub struct Inbox {
    /// There may be something in it: a poll looks here alone.
    some: AtomicBool,
    slots: Spin<VecDeque<u32>>,
}

impl Inbox {
    /// An empty one with room for so many.
    pub fn new(room: usize) -> Inbox {
        Inbox { some: AtomicBool::new(false), slots: Spin::new(VecDeque::with_capacity(room)) }
    }

    /// Adds a slot.
    pub fn push(&self, slot: u32) {
        let mut slots = self.slots.lock();
        slots.push_back(slot);
        self.some.store(true, Release);
    }

    /// There is nothing in it.
    pub fn is_empty(&self) -> bool {
        !self.some.load(Acquire)
    }

    /// Hands all of them to `each`, in their order.
    #[inline]
    pub fn take(&self, mut each: impl FnMut(u32)) {
        if !self.some.load(Acquire) {
            return;
        }
        let mut slots = self.slots.lock();
        // Under the lock: what comes behind it says so again.
        self.some.store(false, Release);
        slots.drain(..).for_each(&mut each);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn in_every_order_what_was_pushed_is_taken_once() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new(2));
            let pusher = {
                let inbox = inbox.clone();
                thread::spawn(move || {
                    inbox.push(1);
                    inbox.push(2);
                })
            };
            let mut taken = Vec::new();
            inbox.take(|slot| taken.push(slot));
            pusher.join().unwrap();
            inbox.take(|slot| taken.push(slot));
            assert_eq!(taken, [1, 2]);
        });
    }
}
