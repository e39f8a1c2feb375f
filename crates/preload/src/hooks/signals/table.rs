//! The program's own action for each signal, where the kernel has our entry.
//!
//! Statics: the entry of a signal handler finds them at addresses of their own, with nothing in
//! hand (`entry`).
//!
//! unsafe: see the crate; plain data of libc's.

use crate::process::PROCESS;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use libc::{SIG_DFL, sigaction as Sigaction};
use uncopy_kernel::critical::{self, SIGNALS};
use uncopy_kernel::lock::Lock;
use uncopy_kernel::user_access::{self, Fault};

/// The program's handler of each signal, with the marks below; `SIG_DFL` of held signals. Of use
/// only where the kernel has our entry.
pub(in crate::hooks) static HANDLERS: [AtomicUsize; SIGNALS] =
    [const { AtomicUsize::new(SIG_DFL) }; SIGNALS];

/// There is more to do than to jump there.
pub(in crate::hooks) const MARKED: usize = 1 << 63;

/// It is called once (`SA_RESETHAND`).
pub(in crate::hooks) const ONCE: usize = 1 << 62;

pub(in crate::hooks) const ADDRESS: usize = ONCE - 1;

/// The program's flags and mask beside the handler, where they differ from what the kernel knows.
pub(in crate::hooks) struct Said {
    pub(in crate::hooks) flags: AtomicI32,
    pub(in crate::hooks) mask: AtomicU64,
}

pub(in crate::hooks) static SAID: [Said; SIGNALS] =
    [const { Said { flags: AtomicI32::new(0), mask: AtomicU64::new(0) } }; SIGNALS];

/// Held signals, as a mask.
pub(in crate::hooks) static HELD: AtomicU64 = AtomicU64::new(0);

/// Around all of that, and every change of the kernel's. Its holder is in a critical section: no
/// handler comes here meanwhile.
static LOCK: Lock = Lock::new();

pub(in crate::hooks) fn locked<R>(f: impl FnOnce() -> R) -> R {
    critical::within(|| {
        // (Where nobody handles forks, a child would find it held for ever.)
        let handles_forks = OWNER.load(Relaxed) != 0;
        if handles_forks {
            LOCK.lock();
        }
        let result = f();
        if handles_forks {
            LOCK.unlock();
        }
        result
    })
}

/// The kernel's: the action says where its handler returns to.
pub(in crate::hooks) const SA_RESTORER: c_int = 0x0400_0000;

/// Whether the program's handlers go through ours. Not where nothing is done that they could
/// interrupt, nor before that is known.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Has the program's handlers go through ours from now on.
pub fn enter() {
    ENTERED.store(true, Relaxed);
}

/// Whether they do.
pub(in crate::hooks) fn entered() -> bool {
    ENTERED.load(Relaxed)
}

/// The process whose table this is; 0 until that is known, and where nobody handles forks.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// This process has the table, and handles forks: at its start, or as fork's child.
pub(in crate::hooks) fn own() {
    // (A sandbox may forbid the question: then nobody asks whose the table is.)
    // SAFETY: a plain question.
    let owner = if user_access::without_calls() { 0 } else { unsafe { libc::getpid() } };
    OWNER.store(owner, Relaxed);
    LOCK.reset();
}

/// Before fork.
pub fn before_fork() {
    LOCK.lock();
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    LOCK.unlock();
}

/// Whether our memory is another process's, which waits for this one (vfork): it has its own
/// handlers, but the table is not its.
pub(in crate::hooks) fn borrowed() -> bool {
    let owner = OWNER.load(Relaxed);
    // SAFETY: a plain question.
    owner != 0 && owner != unsafe { libc::getpid() } && PROCESS.space.own.alive()
}

pub(in crate::hooks) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

pub(in crate::hooks) fn fault_of(signal: c_int) -> Option<Fault> {
    match signal {
        libc::SIGSEGV => Some(Fault::Segv),
        libc::SIGBUS => Some(Fault::Bus),
        _ => None,
    }
}

/// Those whose default action is a core dump.
pub(in crate::hooks) const DUMPING: [c_int; 10] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGSYS,
];

/// Those by which programs are ended as a rule, and whose default action does that.
pub(in crate::hooks) const ENDING: [c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];

/// The default action of a held signal, with what the program said beside it.
pub(in crate::hooks) fn as_said(signal: c_int) -> Sigaction {
    let said = &SAID[signal as usize];
    // SAFETY: plain data, of which zeros are valid.
    let mut action: Sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = SIG_DFL;
    action.sa_flags = said.flags.load(Relaxed);
    set_mask(&mut action, said.mask.load(Relaxed));
    action
}

/// The kernel's part of libc's signal set.
pub(in crate::hooks) fn mask_of(action: &Sigaction) -> u64 {
    // SAFETY: a set of signals is words.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

pub(in crate::hooks) fn set_mask(action: &mut Sigaction, mask: u64) {
    // SAFETY: a set of signals is words.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(mask) }
}

/// The program said so. (libc adds where handlers return to.)
pub(in crate::hooks) fn note(signal: c_int, action: &Sigaction, by_libc: bool) {
    let said = &SAID[signal as usize];
    said.flags.store(action.sa_flags | if by_libc { SA_RESTORER } else { 0 }, Relaxed);
    said.mask.store(mask_of(action), Relaxed);
}

/// Nobody handles forks from now on.
pub(super) fn disown() {
    OWNER.store(0, Relaxed);
}
