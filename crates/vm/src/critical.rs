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
//! unsafe: system calls on signal masks; they concern this thread alone.

use crate::inject;
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};
use uncopy_core::inject::Call;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static PUT_OFF: Cell<bool> = const { Cell::new(false) };
    static MASK: Cell<u64> = const { Cell::new(0) };
}

const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
/// `sizeof(sigset_t)` for the kernel.
const SIGSET_SIZE: usize = 8;

/// Whether this thread is inside a critical section (or is the monitor).
#[inline]
pub fn inside() -> bool {
    INSIDE.with(Cell::get)
}

/// Begins a critical section. They do not nest.
#[inline]
pub(crate) fn enter() {
    debug_assert!(!inside());
    INSIDE.with(|i| i.set(true));
    compiler_fence(Ordering::SeqCst);
}

/// Ends it; signals that were put off are delivered now.
#[inline]
pub(crate) fn leave() {
    compiler_fence(Ordering::SeqCst);
    INSIDE.with(|i| i.set(false));
    compiler_fence(Ordering::SeqCst);
    if PUT_OFF.with(Cell::get) {
        deliver();
    }
}

thread_local! {
    /// Where on the stack the innermost handler of the program began; 0: none runs.
    static HANDLER: Cell<usize> = const { Cell::new(0) };
}

fn stack_here() -> usize {
    let here = 0u8;
    core::ptr::from_ref(core::hint::black_box(&here)) as usize
}

/// A handler of the program begins on this thread. Returns what [`handler_ends`] wants.
pub fn handler_begins() -> usize {
    HANDLER.with(|h| h.replace(stack_here()))
}

/// It returned. (One that is left by `longjmp` does not: see [`in_handler`].)
pub fn handler_ends(before: usize) {
    HANDLER.with(|h| h.set(before));
}

/// Whether a handler of the program runs on this thread: it may have interrupted malloc, so nothing
/// that needs libc may be done. After a `longjmp` out of a handler this holds on until the stack is
/// as short as it was when the handler began.
pub fn in_handler() -> bool {
    let began = HANDLER.with(Cell::get);
    if began != 0 && stack_here() >= began {
        HANDLER.with(|h| h.set(0));
        return false;
    }
    began != 0
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

thread_local! {
    static MASK_BEFORE_FORK: Cell<u64> = const { Cell::new(0) };
}

/// No handler of the program runs on this thread from here to [`unblock_after_fork`].
pub fn block_for_fork() {
    MASK_BEFORE_FORK.with(|m| m.set(block_signals()));
}

/// No handler of the program runs on this thread until [`restore_signals`] is given what this returns.
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
    sigprocmask(SIG_SETMASK, MASK_BEFORE_FORK.with(Cell::get));
}

/// This thread is ours for good (the monitor).
pub(crate) fn forever() {
    INSIDE.with(|i| i.set(true));
}

#[cold]
fn deliver() {
    PUT_OFF.with(|p| p.set(false));
    let mask = MASK.with(Cell::get);
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
/// `info` is the `siginfo_t` that the kernel passed to the handler.
pub unsafe fn put_off(signal: i32, info: *const libc::siginfo_t, interrupted: &mut u64) {
    // Blocked before it is queued again: with SA_NODEFER it would come back at once.
    sigprocmask(SIG_BLOCK, !0);
    // SAFETY: queues to this very thread; `info` is what the kernel gave.
    unsafe {
        let pid = syscall4(libc::SYS_getpid as usize, 0, 0, 0, 0);
        let tid = syscall4(libc::SYS_gettid as usize, 0, 0, 0, 0);
        let queue = libc::SYS_rt_tgsigqueueinfo as usize;
        let (pid, tid) = (pid as usize, tid as usize);
        let queued = inject::check(Call::Sigqueue).is_ok()
            && syscall4(queue, pid, tid, signal as usize, info as usize) == 0;
        if !queued {
            // The queue is full (RLIMIT_SIGPENDING): without its details it always has a place.
            syscall4(libc::SYS_tgkill as usize, pid, tid, signal as usize, 0);
        }
    }
    // Of several handlers stacked at once, the outermost runs last and knows the true mask.
    MASK.with(|m| m.set(*interrupted));
    PUT_OFF.with(|p| p.set(true));
    *interrupted = !0;
}

/// A system call that leaves errno alone, of up to four arguments.
///
/// # Safety
/// As the system call demands.
pub(crate) unsafe fn syscall4(n: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { syscall6(n, [a, b, c, d, 0, 0]) }
}

/// Copies within this process, through the kernel, which answers EFAULT where we would crash.
///
/// # Safety
/// Both pieces are addresses of this process that may be read and overwritten.
pub(crate) unsafe fn process_vm_writev(pid: usize, from: &libc::iovec, to: &libc::iovec) -> isize {
    let address = |v: &libc::iovec| core::ptr::from_ref(v) as usize;
    // SAFETY: the caller's promise.
    unsafe {
        syscall6(libc::SYS_process_vm_writev as usize, [pid, address(from), 1, address(to), 1, 0])
    }
}

/// A system call that leaves errno alone.
///
/// # Safety
/// As the system call demands.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn syscall6(n: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 system call convention; the caller vouches for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") n as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
