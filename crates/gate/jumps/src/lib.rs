//! The gate below libc: every system call that libc and the dynamic linker make can be judged
//! before it is made. `docs/inside/gate.md` says how, and what holds it.
//!
//! [`install`] displaces instructions before each `syscall` by a jump to a *trampoline*, which
//! compares one word ([`pending`]). While that is zero, the call is made as ever; only calls of
//! [`ALWAYS`] are judged then, too.
//!
//! Statics: instructions in the text of others have nothing in hand.
//!
//! unsafe: changes text, and enters Rust from there.

mod cancellable;
mod enter;
mod install;
mod loaded;
mod look;
mod patch;
mod room;
mod trampoline;

pub use enter::after_fork_in_child;
pub use install::install;
pub use look::Gate;

use core::fmt;
use core::sync::atomic::AtomicU64;

/// A system call that the program is about to make, in the kernel's registers.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// `rax`. The kernel looks at its lower 32 bits.
    pub number: u64,
    /// `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`.
    pub args: [u64; 6],
}

/// The judge's word on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is made, with this result: what the kernel would leave in `rax` (an error is `-errno`).
    Made(i64),
    /// It is made now, with the registers as they are.
    GoOn,
}

/// Says what becomes of a call.
///
/// It is called on the thread that makes the call, with that thread's signal mask (see below), and
/// may block. A signal's handler may run meanwhile, have its own calls judged, and leave by
/// `longjmp`, so the judge holds no lock while it blocks. `errno` is the program's. It makes system
/// calls by instructions of its own: what it asks of libc would be judged. It calls no cancellation
/// point; cancellation is deferred while it runs (but a handler on top of it may make such a point:
/// the judge's frames are unwound then). Vector registers are its to use. It takes little
/// of the program's stack: 4 KB are there on an alternate signal stack, since on one with less room
/// it runs on a stack of the gate's, with all signals blocked but SIGSEGV and SIGBUS.
///
/// Once it has let a call go on that puts a filter of system calls in force (`seccomp`, or `prctl`
/// with PR_SET_SECCOMP), or has them dispatched (`prctl` with PR_SET_SYSCALL_USER_DISPATCH), in
/// this process, nothing is judged any more: a filter might end the process for a call of the
/// gate's. So nothing may be pending by then, nor later.
///
/// In the child of `vfork` it runs in the parent's memory. It may make a `fork` itself, and return
/// twice; not a call by which the child shares memory.
pub type Judge = fn(&Call) -> Verdict;

static PENDING: AtomicU64 = AtomicU64::new(0);

/// The word that each trampoline compares: while it is not zero every call is judged.
///
/// A call that has been compared when it changes is made: it came before.
pub fn pending() -> &'static AtomicU64 {
    &PENDING
}

/// Numbers of calls that are judged whether something is pending or not, in order:
///
/// - the syncs (74, 75);
/// - those after which nobody could wait for what had been promised between the compare and the
///   call, by a handler or by another thread: `clone` (56), `fork` (57), `vfork` (58), `execve`
///   (59), `exit` (60), `exit_group` (231), `execveat` (322), `clone3` (435);
/// - what opens other ways, or changes what others see, for good: `mmap` (9) that shares or makes
///   code, `mprotect` (10) and `pkey_mprotect` (329) that make code, `shmat` (30), `sendto` (44),
///   `sendmsg` (46) and `sendmmsg` (307) with MSG_ZEROCOPY, `setsockopt` (54), users and rights
///   (105, 106, 113, 114, 116, 117, 119, 122, 123, 126, 446), `personality` (135), `prctl` (157),
///   `iopl` and `ioperm` (172, 173), `io_setup` (206), `io_submit` (209), `unshare` (272),
///   `vmsplice` (278), `setns` (308), `seccomp` (317), `userfaultfd` (323), `io_uring_setup`,
///   `_enter` and `_register` (425, 426, 427), `close_range` (436);
/// - `sigaltstack` (131), which the gate itself wants to know of: its judge is asked only while
///   something is pending.
///
/// So is every number from 512 on, which is none that is known.
pub const ALWAYS: [u32; 45] = [
    9,
    10,
    30,
    44,
    46,
    54,
    56,
    57,
    58,
    59,
    60,
    74,
    75,
    105,
    106,
    113,
    114,
    116,
    117,
    119,
    122,
    123,
    126,
    SIGALTSTACK,
    135,
    157,
    172,
    173,
    206,
    209,
    231,
    272,
    278,
    307,
    308,
    317,
    322,
    323,
    329,
    425,
    426,
    427,
    435,
    436,
    446,
];

const SIGALTSTACK: u32 = 131;

/// Returns from a signal's handler. It leaves nothing and is not led through the gate: unwinders
/// and debuggers know its instructions.
const RT_SIGRETURN: u32 = 15;

/// Why nothing was installed, or a look found that the gate no longer has all calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its kind.
    pub reason: Reason,
    /// The finding, for people.
    pub what: String,
}

/// The kinds of refusals, by the names of `docs/decisions/answers-that-wait.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A system call that cannot be led through the gate.
    PastUs,
    /// Text that cannot be changed, or executable memory that is no object's text.
    Code,
    /// A filter of system calls is in force.
    Sandbox,
}

impl Reason {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PastUs => "answers-past-us",
            Self::Code => "answers-code",
            Self::Sandbox => "answers-sandbox",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.reason.name(), self.what)
    }
}

impl Refusal {
    fn new(reason: Reason, what: impl Into<String>) -> Self {
        Self { reason, what: what.into() }
    }
}
