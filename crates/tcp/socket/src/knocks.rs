//! Knocks that are made together. Who serves many connections in turn, and knocks at a program's door for the first, has the program awake, done and asleep again before it comes to
//! the second. So it may knock once it has come to all of them.

use crate::context::{Context, Mapped};
use crate::lock::{Guarded, lock};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Of a process.
#[derive(Debug, Default)]
pub(crate) struct Knocks {
    /// Changed with the lock of `held`.
    later: AtomicBool,
    held: Guarded<Vec<(Arc<Mapped>, usize)>>,
}

impl Knocks {
    /// At this door of the other side's: now, or with the others.
    #[inline]
    pub fn at(&self, mapped: &Arc<Mapped>, door: usize) {
        if self.later.load(Relaxed) {
            let mut held = lock(&self.held);
            if self.later.load(Relaxed) {
                if !held.iter().any(|(other, at)| *at == door && Arc::ptr_eq(other, mapped)) {
                    held.push((mapped.clone(), door));
                }
                return;
            }
        }
        mapped.knock(door);
    }
}

impl Context {
    /// Until [`knocks_now`](Self::knocks_now), which has to follow soon, nobody is woken because of bytes or room.
    pub fn knocks_later(&self) {
        let _held = lock(&self.knocks.held);
        self.knocks.later.store(true, Relaxed);
    }

    /// Wakes who was to be woken.
    pub fn knocks_now(&self) {
        let mut held = lock(&self.knocks.held);
        self.knocks.later.store(false, Relaxed);
        held.drain(..).for_each(|(mapped, door)| mapped.knock(door));
    }
}
