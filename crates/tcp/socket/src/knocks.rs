//! Knocks that are made together. A thread that serves many connections in turn, and knocks at a
//! program's door for the first, has the program awake, done and asleep again before it comes to
//! the second. So it may knock once it has come to all of them.

use crate::door::knock_at;
use crate::lock::{Guarded, lock};
use crate::signals::Signals;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_kernel::descriptors::Kept;

/// The knocks of a process.
#[derive(Debug, Default)]
pub(crate) struct Knocks {
    /// How it is knocked where others may mean harm.
    signals: Option<Signals>,
    /// Changed with the lock of `held`.
    later: AtomicBool,
    held: Guarded<Vec<(Arc<[Kept]>, usize)>>,
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

    /// At this one of another program's doors: now, or with the others.
    #[inline]
    pub fn at(&self, doors: &Arc<[Kept]>, door: usize) {
        if self.later.load(Relaxed) {
            let mut held = lock(&self.held);
            if self.later.load(Relaxed) {
                if !held.iter().any(|(other, at)| *at == door && Arc::ptr_eq(other, doors)) {
                    held.push((doors.clone(), door));
                }
                return;
            }
        }
        self.knock_one(doors, door);
    }

    /// At this one of another program's doors, now.
    pub fn knock_one(&self, doors: &[Kept], door: usize) {
        if let Some(door) = doors.get(door) {
            self.knock(door);
        }
    }

    /// Until [`now`](Self::now) nobody is woken by [`at`](Self::at).
    pub fn later(&self) {
        let _held = lock(&self.held);
        self.later.store(true, Relaxed);
    }

    /// Wakes who was to be woken.
    pub fn now(&self) {
        let mut held = lock(&self.held);
        self.later.store(false, Relaxed);
        held.drain(..).for_each(|(doors, door)| self.knock_one(&doors, door));
    }
}
