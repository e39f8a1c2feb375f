//! Whether spinning pays: it does not where the other side has no core to run on meanwhile, or has
//! nothing to say.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Spins where that has paid lately, then sleeps.
    Adaptive,
    /// Spins.
    Spin,
    /// Sleeps.
    Sleep,
}

/// Whether it has paid lately, in this process.
#[derive(Debug)]
pub(crate) struct Spinning {
    waiting: Waiting,
    failures: AtomicU32,
}

/// As long as falling asleep and being woken cost both sides: a side that spins longer than that
/// wastes no more than as much again.
const SPIN_TIME: Duration = Duration::from_micros(10);
/// After so many in vain it is left, ...
const FAILURES: u32 = 4;
/// ... and tried once in so many: 10 us in 64 sleeps of 5 us and more.
const AGAIN: u32 = 64;

impl Spinning {
    pub fn new(waiting: Waiting) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let waiting =
            if waiting == Waiting::Adaptive && cores < 2 { Waiting::Sleep } else { waiting };
        Self { waiting, failures: AtomicU32::new(0) }
    }

    /// Until `done`, if that pays. False: sleep.
    #[inline]
    pub fn spin(&self, mut done: impl FnMut() -> bool) -> bool {
        match self.waiting {
            Waiting::Sleep => return false,
            Waiting::Spin => {
                // The kernel's side of the connection is looked at by the sleep that follows.
                for _ in 0..20_000 {
                    if done() {
                        return true;
                    }
                    std::hint::spin_loop();
                }
                return false;
            }
            Waiting::Adaptive => {}
        }
        let failures = self.failures.load(Relaxed);
        if failures >= FAILURES && !failures.is_multiple_of(AGAIN) {
            self.failures.store(failures.wrapping_add(1).max(FAILURES), Relaxed);
            return false;
        }
        let begun = Instant::now();
        loop {
            for _ in 0..16 {
                if done() {
                    if failures != 0 {
                        self.failures.store(0, Relaxed);
                    }
                    return true;
                }
                std::hint::spin_loop();
            }
            if begun.elapsed() > SPIN_TIME {
                self.failures.store(failures.wrapping_add(1), Relaxed);
                return false;
            }
        }
    }

    /// It never sleeps for longer than it takes to look.
    pub fn only_looks(&self) -> bool {
        self.waiting == Waiting::Spin
    }
}
