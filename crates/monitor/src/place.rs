//! On which processor the monitor thread waits for faults: on that of a program of one thread.
//!
//! A thread on another core has to be woken there, and where that core is idle its processor as
//! well: 36 to 50 us on a virtual machine, where one on the same core takes 6
//! (`bench/experiments/fault_answers.c`). The kernel rather wakes on an idle core. So while a
//! program has one thread, which has used the books on one core for some faults together, the
//! monitor is bound to that core; it is unbound with the first fault after the thread has moved, or
//! is not alone any more.
//!
//! Not for real-time threads, which would never let it run; not under a seccomp filter that does
//! not let the calls pass ([`Survey`]); and not where somebody else has changed where it may run,
//! but to what he allows.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering::Relaxed};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use uncopy_counters::add;
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::survey::{Group, Survey};
use uncopy_kernel::threads::LibcsCount;
use uncopy_kernel::{inject, thread};

/// So many faults in a row while the books are used on one core.
const STEADY: u32 = 8;
/// No core.
const NOWHERE: i32 = -1;

/// What filters of system calls let pass when the first thread was made: nobody has asked, or bits.
const UNKNOWN: u8 = 0;
const ASKED: u8 = 1;
const BINDS: u8 = 2;
const GIVES_UP: u8 = 4;

/// Values that the threads of the program tell, and questions that are asked of them.
#[derive(Debug, Default)]
pub struct Whereabouts {
    /// Where the books were used last, and 1 more; 0: nowhere.
    used_on: AtomicI32,
    /// What filters that were there before the program let pass.
    pub survey: Survey,
    /// [`UNKNOWN`], or [`ASKED`] and others.
    passes: AtomicU8,
    /// Whether the monitor may be bound at all.
    allowed: AtomicBool,
    /// Whether the program has one thread.
    pub threads: LibcsCount,
}

impl Whereabouts {
    /// Nobody has used the books.
    pub const fn new() -> Self {
        Self {
            used_on: AtomicI32::new(0),
            survey: Survey::new(),
            passes: AtomicU8::new(UNKNOWN),
            allowed: AtomicBool::new(false),
            threads: LibcsCount::new(),
        }
    }

    /// A thread of the program uses the books.
    #[inline]
    pub fn used_here(&self) {
        let core = this_core() + 1;
        if self.used_on.load(Relaxed) != core {
            self.used_on.store(core, Relaxed);
        }
    }

    fn used_on(&self) -> i32 {
        self.used_on.load(Relaxed) - 1
    }

    /// Binding is over: the program enters a sandbox, which may not know the call. With the lock
    /// held.
    pub fn forbid(&self) {
        self.allowed.store(false, Relaxed);
    }

    /// Whether the monitor's thread may ask where it may run, and change it.
    fn binds(&self) -> bool {
        self.passes() & BINDS != 0
    }

    /// Whether it may give its capabilities up.
    pub(crate) fn gives_up(&self) -> bool {
        self.passes() & GIVES_UP != 0
    }

    /// For the monitor, before it has a filter of its own.
    fn passes(&self) -> u8 {
        // (Asked once: the file would cost each forked child more than its fork.)
        let mut passes = self.passes.load(Relaxed);
        if passes == UNKNOWN {
            passes = ASKED;
            for (group, bit) in [(Group::Binding, BINDS), (Group::Rights, GIVES_UP)] {
                passes |= if self.survey.passes(group) { bit } else { 0 };
            }
            self.passes.store(passes, Relaxed);
        }
        passes
    }

    /// In a forked child: nobody has used its books.
    pub fn forget(&self) {
        self.used_on.store(0, Relaxed);
    }
}

fn this_core() -> i32 {
    if thread::is_ours() {
        // (libc would read it from a thread of its own.)
        return rustix::thread::sched_getcpu() as i32;
    }
    // SAFETY: has no arguments; glibc reads a word that the kernel keeps (rseq), others ask the
    // vDSO.
    unsafe { libc::sched_getcpu() }
}

/// The monitor's own view of it.
pub(crate) struct Affinity {
    known: &'static Whereabouts,
    /// How often it was bound, or let go.
    bindings: &'static AtomicU64,
    /// Where it may run.
    cores: Option<CpuSet>,
    bound_to: i32,
    last: i32,
    steady: u32,
}

impl Affinity {
    /// Wherever the thread may run that made it. Before anybody is told that the monitor runs.
    pub(crate) fn anywhere(known: &'static Whereabouts, bindings: &'static AtomicU64) -> Self {
        let cores = if known.binds() { sched_getaffinity(None).ok() } else { None };
        known.allowed.store(cores.is_some(), Relaxed);
        Self { known, bindings, cores, bound_to: NOWHERE, last: NOWHERE, steady: 0 }
    }

    /// Whether the faults that are to be answered now were most likely taken on this very core.
    pub(crate) fn is_near(&self) -> bool {
        this_core() == self.known.used_on()
    }

    /// Faults were answered. With the server's lock held: see [`Whereabouts::forbid`].
    pub(crate) fn answered(&mut self) {
        let core = self.known.used_on();
        self.steady = if core == self.last { self.steady.saturating_add(1) } else { 0 };
        self.last = core;
        let bound = self.bound_to != NOWHERE;
        let leave = bound && (core != self.bound_to || !self.known.threads.is_one());
        let enter = !bound && self.steady >= STEADY && core != NOWHERE;
        if (leave || enter)
            && self.known.allowed.load(Relaxed)
            && self.change(enter, core).is_none()
        {
            self.known.forbid();
        }
    }

    /// Binds it to `core`, or unbinds it; `None`: not to be had.
    fn change(&mut self, enter: bool, core: i32) -> Option<()> {
        let now = sched_getaffinity(None).ok()?;
        let ours = self.bound_to != NOWHERE && now == only(self.bound_to);
        if !ours {
            self.cores = Some(now);
        }
        self.bound_to = NOWHERE;
        self.steady = 0;
        let cores = self.cores?;
        if enter && !(self.known.threads.is_one() && cores.is_set(core as usize) && !real_time()) {
            return Some(());
        }
        if enter || ours {
            inject::check(Call::Affinity).ok()?;
            sched_setaffinity(None, &if enter { only(core) } else { cores }).ok()?;
            add(self.bindings, 1);
        }
        if enter {
            self.bound_to = core;
        }
        Some(())
    }
}

fn only(core: i32) -> CpuSet {
    let mut one = CpuSet::new();
    one.set(core as usize);
    one
}

/// Whether the program's first thread is scheduled in real time, as far as the kernel tells.
fn real_time() -> bool {
    let pid = rustix::process::getpid().as_raw_pid() as usize;
    // SAFETY: a plain question about our own process.
    let policy = unsafe { syscall4(libc::SYS_sched_getscheduler as usize, pid, 0, 0, 0) };
    !matches!(policy as i32, libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE)
}
