//! Connections whose peer's program has ended, which Linux may not know of each yet: what a process
//! has is closed one after the other.
//!
//! A program looks for two milliseconds at all of them, who may not wait does not. At what is left
//! both look again later, each time after twice as long, and at so many at once.

use crate::lock::{Guarded, lock};
use crate::mapped::Registered;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use uncopy_kernel::clock;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_tcp_service::diag::Diag;

/// How often a program looks, and how long it sleeps in between.
const LOOKS: usize = 3;
const MOMENT: Duration = Duration::from_millis(1);
/// Connections at which is looked at once, later: each takes some ten microseconds.
const AT_ONCE: usize = 64;
/// How long a connection is looked at, in ms.
const LOOKS_FOR_MS: u64 = 2000;

/// Those that are to be looked at: when, in ms, and for how long after that they rest.
#[derive(Debug, Default)]
struct Dying {
    next: u64,
    by_time: BTreeMap<(u64, u64), (Weak<dyn Registered>, u64)>,
}

impl Dying {
    fn add(&mut self, at: u64, flow: Weak<dyn Registered>, rest: u64) {
        self.next += 1;
        self.by_time.insert((at, self.next), (flow, rest));
    }

    fn take(&mut self, now: u64) -> Option<(Weak<dyn Registered>, u64)> {
        let first = self.by_time.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

/// Those of a process.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    dying: Guarded<Dying>,
    /// There are some.
    some: AtomicBool,
}

impl Deaths {
    /// Before fork: nothing of it changes.
    pub fn hold(&self) {
        self.dying.hold();
    }

    /// After fork.
    pub fn let_go(&self) {
        self.dying.let_go();
    }

    /// None any more.
    pub fn clear(&self) {
        lock(&self.dying).by_time.clear();
    }

    /// The program at the other end of these has ended, or a process of it.
    pub fn look(&self, mut flows: Vec<Arc<dyn Registered>>, may_wait: bool) {
        if may_wait {
            let mut diag = None;
            for look in 0..LOOKS {
                if look > 0 && !flows.is_empty() {
                    std::thread::sleep(MOMENT);
                }
                flows.retain(|flow| !flow.may_have_ended(&mut diag));
            }
            closes(diag);
        }
        if !flows.is_empty() {
            let mut dying = lock(&self.dying);
            flows.iter().for_each(|flow| dying.add(0, Arc::downgrade(flow), 1));
            self.some.store(true, Relaxed);
        }
    }

    /// Of who has so long to sleep: until some are to be looked at.
    #[inline]
    pub fn wake(&self, left: Option<Duration>) -> Option<Duration> {
        if self.some.load(Relaxed) { self.wake_for_some(left) } else { left }
    }

    #[cold]
    fn wake_for_some(&self, left: Option<Duration>) -> Option<Duration> {
        let first = lock(&self.dying).by_time.keys().next().map(|key| key.0);
        // (The clock is not finer than this.)
        let until =
            |first: u64| Duration::from_millis(first.saturating_sub(clock::millis()).max(1));
        first.map(until).map(|most| left.map_or(most, |left| left.min(most))).or(left)
    }

    /// Looks at those whose time has come, if there are any.
    #[inline]
    pub fn look_again(&self) {
        if self.some.load(Relaxed) {
            self.look_on();
        }
    }

    /// Some are to be looked at now.
    pub fn are_due(&self) -> bool {
        let due =
            |dying: &Dying| dying.by_time.keys().next().is_some_and(|key| key.0 <= clock::millis());
        self.some.load(Relaxed) && due(&lock(&self.dying))
    }

    #[cold]
    fn look_on(&self) {
        let now = clock::millis();
        let mut diag = None;
        for _ in 0..AT_ONCE {
            let next = lock(&self.dying).take(now);
            let Some((flow, rest)) = next else { break };
            let over = flow.upgrade().is_none_or(|flow| flow.may_have_ended(&mut diag));
            if !over && rest < LOOKS_FOR_MS {
                lock(&self.dying).add(now + rest, flow, rest * 2);
            }
        }
        closes(diag);
        let dying = lock(&self.dying);
        self.some.store(!dying.by_time.is_empty(), Relaxed);
    }
}

/// (Past libc: a thread that is cancelled would end in its `close`.)
fn closes(diag: Option<Diag>) {
    drop(diag.map(|diag| OwnFd::from(diag.into_fd())));
}
