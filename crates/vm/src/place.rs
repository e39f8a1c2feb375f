//! On which processor the monitor thread waits for faults: on that of the program's one thread which has them.
//!
//! A thread on another core has to be woken there, and where that core is idle its processor as well: 36 to 50 us on a virtual
//! machine, where one on the same core takes 6 (`bench/experiments/fault_answers.c`). The kernel rather wakes on an idle core. So
//! where the books were used on one core for some faults together the monitor is bound to it, and let go with the first
//! fault that comes while they are used on another: a program with several threads that fault keeps the kernel's choice.
//!
//! Not under a seccomp filter: it might end the process for the call.

use crate::inject;
use crate::stats::COUNTERS;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use rustix::thread::CpuSet;
use uncopy_core::counters::add;
use uncopy_core::inject::Call;

/// So many faults in a row while the books are used on one core.
const STEADY: u32 = 8;
/// No core.
const NOWHERE: i32 = -1;

/// Where the books were used last.
static USED_ON: AtomicI32 = AtomicI32::new(NOWHERE);
/// Whether it may be bound at all.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// A thread of the program uses the books.
#[inline]
pub(crate) fn used_here() {
    // SAFETY: has no arguments; glibc reads a word that the kernel keeps (rseq), others ask the vDSO.
    let core = unsafe { libc::sched_getcpu() };
    if USED_ON.load(Relaxed) != core {
        USED_ON.store(core, Relaxed);
    }
}

/// Binding is over: the program enters a sandbox, which may not know the call.
pub(crate) fn forbid() {
    ALLOWED.store(false, Relaxed);
}

/// The monitor's own view of it.
pub(crate) struct Place {
    /// Where the thread that made it could run.
    cores: Option<CpuSet>,
    bound_to: i32,
    last: i32,
    steady: u32,
}

impl Place {
    /// Wherever the kernel puts it.
    pub(crate) fn anywhere() -> Self {
        let allowed = unfiltered();
        let cores = if allowed { rustix::thread::sched_getaffinity(None).ok() } else { None };
        ALLOWED.store(cores.is_some(), Relaxed);
        Self { cores, bound_to: NOWHERE, last: NOWHERE, steady: 0 }
    }

    /// Whether the faults that are to be answered now were most likely taken on this very core.
    pub(crate) fn is_near(&self) -> bool {
        // SAFETY: as above.
        unsafe { libc::sched_getcpu() == USED_ON.load(Relaxed) }
    }

    /// Faults were answered. Without the lock.
    pub(crate) fn answered(&mut self) {
        let core = USED_ON.load(Relaxed);
        self.steady = if core == self.last { self.steady.saturating_add(1) } else { 0 };
        self.last = core;
        let Some(cores) = self.cores.filter(|_| ALLOWED.load(Relaxed)) else { return };
        if core == NOWHERE || core == self.bound_to {
            return;
        }
        let bound = if self.bound_to != NOWHERE {
            self.bound_to = NOWHERE;
            bind(&cores)
        } else if self.steady >= STEADY {
            self.bound_to = core;
            let mut one = CpuSet::new();
            one.set(core as usize);
            bind(&one)
        } else {
            return;
        };
        if bound.is_err() {
            forbid();
        }
    }
}

fn bind(cores: &CpuSet) -> rustix::io::Result<()> {
    inject::check(Call::Affinity)?;
    rustix::thread::sched_setaffinity(None, cores)?;
    add(&COUNTERS.handler_bindings, 1);
    Ok(())
}

/// Whether no seccomp filter is in force, as far as `/proc` tells.
fn unfiltered() -> bool {
    use rustix::fs::{Mode, OFlags};
    let read = || {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let status = inject::check(Call::Open)
            .and_then(|()| rustix::fs::open(c"/proc/thread-self/status", flags, Mode::empty()))
            .ok()?;
        let mut text = [0u8; 4096];
        let n = rustix::io::read(&status, &mut text[..]).ok()?;
        let line = b"\nSeccomp:\t";
        let at = text[..n].windows(line.len()).position(|w| w == line)?;
        text.get(at + line.len()).copied()
    };
    read() == Some(b'0')
}
