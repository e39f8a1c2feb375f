//! Critical sections: while a thread holds the tracker's lock, no signal handler of the program
//! may run on it, because a handler may call anything (rule 4 of the design), touch an unmapped
//! page, and so wait for itself.
//!
//! Masking signals would cost two system calls a copy (300 ns here, more than all the rest). So
//! the preload library wraps the handlers that the program installs, and a wrapper that finds the
//! thread inside a critical section puts the signal off: it queues the signal to its own thread
//! again, lets the interrupted code go on with all signals blocked, and the end of the critical
//! section unblocks them.
//!
//! unsafe: system calls on signal masks; they concern this thread alone. The state of a thread lies
//! in its thread-local storage under a name, because the entry of a signal handler must find it
//! without a stack (`preload::hooks::signals`).

use crate::call::syscall4;
use crate::{inject, user_access};
use core::arch::{asm, global_asm};
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed, compiler_fence,
};
use uncopy_inject::Call;

/// How many signals there are, and one: they count from 1.
pub const SIGNALS: usize = 65;

/// The state of a thread. All of it is this thread's; atomics, because its signal handlers change
/// it.
#[repr(C)]
pub struct Thread {
    inside: AtomicBool,
    /// Something is under way of which handlers must be told when they begin and end: they are
    /// called, not jumped to.
    attended: AtomicBool,
    put_off: AtomicBool,
    mask: AtomicU64,
    mask_before_fork: AtomicU64,
    forking: AtomicBool,
    /// Where on the stack the innermost handler of the program began that we called ourselves; 0:
    /// none runs.
    handler: AtomicUsize,
    /// The signals of which handlers ran since that was last forgotten, a bit each.
    ran: AtomicU64,
    /// Where handlers return to: what lies at the beginning of a signal's frame.
    returns_to: AtomicUsize,
    /// Where the frame of each signal was when its handler was last jumped to.
    frames: [AtomicUsize; SIGNALS],
}

/// Where in [`Thread`] the entry of a signal handler looks and writes.
impl Thread {
    /// Whether it is inside a critical section; in the byte behind, whether its handlers are to be
    /// called.
    pub const INSIDE: usize = core::mem::offset_of!(Thread, inside);
    /// See the field.
    pub const RAN: usize = core::mem::offset_of!(Thread, ran);
    /// See the field.
    pub const RETURNS_TO: usize = core::mem::offset_of!(Thread, returns_to);
    /// See the field.
    pub const FRAMES: usize = core::mem::offset_of!(Thread, frames);
}

// One for each thread, zeroed. (The library is loaded with the program: its threads have room for
// it from the start.)
global_asm!(
    ".pushsection .tbss.uncopy_thread, \"awT\", @nobits",
    ".globl uncopy_thread",
    ".hidden uncopy_thread",
    ".type uncopy_thread, @object",
    ".size uncopy_thread, {size}",
    ".balign 8",
    "uncopy_thread:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Thread>(),
);

/// This thread's.
#[inline(always)]
fn thread() -> &'static Thread {
    let at: *const Thread;
    // SAFETY: the variable above, relative to the thread control block's own address; zeros are a
    // valid `Thread`, and nobody keeps the reference beyond the thread.
    unsafe {
        asm!(
            "mov {at}, qword ptr fs:[0]",
            "add {at}, qword ptr [rip + uncopy_thread@GOTTPOFF]",
            at = out(reg) at,
            options(pure, nomem, nostack),
        );
        &*at
    }
}

/// How far below the address in `fs` a thread's [`Thread`] begins, in bytes.
pub fn below_fs() -> usize {
    let offset: usize;
    // SAFETY: reads the offset that the dynamic linker has put there.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + uncopy_thread@GOTTPOFF]",
            offset = out(reg) offset,
            options(pure, nomem, nostack),
        );
    }
    offset.wrapping_neg()
}

/// Makes the [`Thread`] of a thread whose `fs` will be `fs`. `inside`: all that it does is a
/// critical section.
///
/// # Safety
/// There are [`below_fs`] bytes below `fs` that nobody uses.
pub unsafe fn prepare_thread(fs: usize, inside: bool) {
    let at = (fs - below_fs()) as *mut Thread;
    // SAFETY: the caller's promise; zeros are a valid `Thread`.
    unsafe {
        at.write_bytes(0, 1);
        (*at).inside.store(inside, Relaxed);
    }
}

const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
/// `sizeof(sigset_t)` for the kernel.
const SIGSET_SIZE: usize = 8;

/// Whether this thread is inside a critical section (or is the monitor).
#[inline]
pub fn inside() -> bool {
    thread().inside.load(Relaxed)
}

/// Begins a critical section. They do not nest.
#[inline]
pub fn enter() {
    debug_assert!(!inside());
    thread().inside.store(true, Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Ends it; signals that were put off are delivered now.
#[inline]
pub fn leave() {
    compiler_fence(Ordering::SeqCst);
    thread().inside.store(false, Relaxed);
    compiler_fence(Ordering::SeqCst);
    if thread().put_off.load(Relaxed) {
        deliver();
    }
}

/// The program's handlers on this thread are called, not jumped to, from now on, or no longer.
#[inline]
pub fn attend(attended: bool) {
    thread().attended.store(attended, Relaxed);
}

const _: () = assert!(core::mem::offset_of!(Thread, attended) == Thread::INSIDE + 1);

fn stack_here() -> usize {
    let here = 0u8;
    core::ptr::from_ref(core::hint::black_box(&here)) as usize
}

/// From now on it is of interest which handlers run on this thread. Which have run before, for
/// [`remember_handlers`].
#[inline]
pub fn forget_handlers() -> u64 {
    let before = thread().ran.load(Relaxed);
    thread().ran.store(0, Relaxed);
    before
}

/// It is not any more: this was a call of a handler's, whose thread is in another call.
#[inline]
pub fn remember_handlers(before: u64) {
    if before != 0 {
        thread().ran.fetch_or(before, Relaxed);
    }
}

/// A handler of `signal` is about to be called.
pub fn handler_runs(signal: i32) {
    thread().ran.fetch_or(1 << (signal - 1), Relaxed);
}

/// The signals of which handlers ran since, a bit each.
pub fn handlers_that_ran() -> u64 {
    thread().ran.load(Relaxed)
}

/// A handler of the program is called on this thread. Returns what [`handler_ends`] wants.
pub fn handler_begins() -> usize {
    thread().handler.swap(stack_here(), Relaxed)
}

/// It returned. (One that is left by `longjmp` does not: see [`in_handler`].)
pub fn handler_ends(before: usize) {
    thread().handler.store(before, Relaxed);
}

/// Whether a handler of the program runs on this thread: it may have interrupted malloc, so nothing
/// that needs libc may be done. After a `longjmp` out of a handler this holds on until the stack is
/// as short as it was when the handler began.
pub fn in_handler() -> bool {
    let began = thread().handler.load(Relaxed);
    if began != 0 && stack_here() >= began {
        thread().handler.store(0, Relaxed);
        return in_frame();
    }
    began != 0 || in_frame()
}

/// The kernel's signal frame as far as it is looked at: where the handler returns to, and the
/// beginning of the interrupted context, with the alternate stack as it was.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Frame {
    returns_to: usize,
    context: [usize; 2],
    stack: usize,
    stack_flags: usize,
    stack_size: usize,
}
// SAFETY: plain words.
unsafe impl user_access::Plain for Frame {}

/// The same of handlers that were jumped to: nobody was told of their end. But until then the frame
/// is below us, as it was, and the signal is blocked.
fn in_frame() -> bool {
    let here = stack_here();
    (1..SIGNALS).any(|signal| {
        let at = thread().frames[signal].load(Relaxed);
        if at == 0 || here >= at {
            return false;
        }
        let Some(frame) = user_access::read(at as *const Frame) else { return false };
        let alternate = |p: usize| p.wrapping_sub(frame.stack) < frame.stack_size;
        frame.returns_to == thread().returns_to.load(Relaxed)
            && (!alternate(at) || alternate(here))
            && blocked() >> (signal - 1) & 1 != 0
    })
}

/// The signals that are blocked.
fn blocked() -> u64 {
    let mut mask = 0u64;
    let to = core::ptr::from_mut(&mut mask) as usize;
    // SAFETY: asks for this thread's signal mask.
    unsafe { syscall4(libc::SYS_rt_sigprocmask as usize, SIG_BLOCK, 0, to, SIGSET_SIZE) };
    mask
}

/// Runs `f` in a critical section of its own, or in the one that this thread is in.
pub fn within<R>(f: impl FnOnce() -> R) -> R {
    if inside() {
        return f();
    }
    enter();
    let result = f();
    leave();
    result
}

/// No handler of the program runs on this thread from here to [`unblock_after_fork`].
pub fn block_for_fork() {
    thread().mask_before_fork.store(block_signals(), Relaxed);
    thread().forking.store(true, Relaxed);
}

/// Whether this thread is between [`block_for_fork`] and [`unblock_after_fork`]. True also in the
/// child.
pub fn forking() -> bool {
    thread().forking.load(Relaxed)
}

/// Whether what waits for a thaw, or for a lock, may be begun by this thread: it is in no critical
/// section, nor is it about to fork, when it is the one that others wait for.
pub fn may_wait() -> bool {
    !inside() && !forking()
}

/// No handler of the program runs on this thread until [`restore_signals`] is given what this
/// returns.
pub fn block_signals() -> u64 {
    let mut old = 0u64;
    // SAFETY: changes this thread's signal mask only.
    unsafe {
        syscall4(
            libc::SYS_rt_sigprocmask as usize,
            SIG_SETMASK,
            core::ptr::from_ref(&!0u64) as usize,
            core::ptr::from_mut(&mut old) as usize,
            SIGSET_SIZE,
        );
    }
    old
}

/// See [`block_signals`].
pub fn restore_signals(mask: u64) {
    sigprocmask(SIG_SETMASK, mask);
}

/// In the parent and in the child.
pub fn unblock_after_fork() {
    thread().forking.store(false, Relaxed);
    sigprocmask(SIG_SETMASK, thread().mask_before_fork.load(Relaxed));
}

#[cold]
fn deliver() {
    thread().put_off.store(false, Relaxed);
    let mask = thread().mask.load(Relaxed);
    sigprocmask(SIG_SETMASK, mask);
}

fn sigprocmask(how: usize, mask: u64) {
    // SAFETY: changes this thread's signal mask only.
    unsafe {
        syscall4(
            libc::SYS_rt_sigprocmask as usize,
            how,
            core::ptr::from_ref(&mask) as usize,
            0,
            SIGSET_SIZE,
        );
    }
}

/// Puts a signal off, from inside its handler. `interrupted` is the mask of the interrupted
/// context (`uc_sigmask`), which this changes to "all blocked".
///
/// # Safety
/// `info` is the `siginfo_t` that the kernel passed to the handler; null if it was not told to.
pub unsafe fn put_off(signal: i32, info: *const libc::siginfo_t, interrupted: &mut u64) {
    // Blocked before it is queued again: with SA_NODEFER it would come back at once.
    sigprocmask(SIG_BLOCK, !0);
    // SAFETY: the caller's promise.
    unsafe { queue_again(signal, info) };
    // Of several handlers stacked at once, the outermost runs last and knows the true mask.
    thread().mask.store(*interrupted, Relaxed);
    thread().put_off.store(true, Relaxed);
    *interrupted = !0;
}

/// Queues a signal to this very thread, from inside its handler, with the details that it came
/// with.
///
/// # Safety
/// As for [`put_off`].
pub unsafe fn queue_again(signal: i32, info: *const libc::siginfo_t) {
    // SAFETY: queues to this very thread; `info` is what the kernel gave.
    unsafe {
        let pid = syscall4(libc::SYS_getpid as usize, 0, 0, 0, 0);
        let tid = syscall4(libc::SYS_gettid as usize, 0, 0, 0, 0);
        let queue = libc::SYS_rt_tgsigqueueinfo as usize;
        let (pid, tid) = (pid as usize, tid as usize);
        let queued = !info.is_null()
            && inject::check(Call::Sigqueue).is_ok()
            && syscall4(queue, pid, tid, signal as usize, info as usize) == 0;
        if !queued {
            // The queue is full (RLIMIT_SIGPENDING): without its details it always has a place.
            syscall4(libc::SYS_tgkill as usize, pid, tid, signal as usize, 0);
        }
    }
}
