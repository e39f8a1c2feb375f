//! Knocks that are made together. Who serves many connections in turn, and knocks at a program's
//! door for the first, has the program awake, done and asleep again before it comes to the second.
//! So it may knock once it has come to all of them.

use crate::context::{Context, Mapped, knock_at};
use crate::lock::{Guarded, lock};
use crate::signals::Signals;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_kernel::descriptors::Kept;

/// Of a process.
#[derive(Debug, Default)]
pub(crate) struct Knocks {
    /// How it is knocked where others may mean harm.
    signals: Option<Signals>,
    /// Changed with the lock of `held`.
    later: AtomicBool,
    held: Guarded<Vec<(Arc<Mapped>, usize)>>,
}

impl Knocks {
    /// `wary`: others may mean harm.
    pub fn new(wary: bool) -> Result<Self, Errno> {
        let signals = wary.then(Signals::new).transpose()?;
        Ok(Self { signals, ..Self::default() })
    }

    /// Knocks at a door of another program's.
    pub fn knock(&self, door: &Kept) {
        // (Where no memory is left for that, it is one that does not wait, or the connection is not
        // the only thing that does.)
        if self.signals.as_ref().is_none_or(|signals| signals.at(door).is_err()) {
            knock_at(door);
        }
    }

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
    /// Until [`knocks_now`](Self::knocks_now), which has to follow soon, nobody is woken because of
    /// bytes or room.
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
