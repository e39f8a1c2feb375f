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
//! unsafe: system calls on signal masks, and the state of this thread: they concern it alone.

use crate::inject;
use crate::thread::own_state;
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};
use uncopy_core::inject::Call;

/// What is kept of each thread.
#[derive(Debug)]
pub struct State {
    inside: Cell<bool>,
    put_off: Cell<bool>,
    mask: Cell<u64>,
    /// Where on the stack the innermost handler of the program began; 0: none runs.
    handler: Cell<usize>,
    mask_before_fork: Cell<u64>,
    forking: Cell<bool>,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            inside: Cell::new(false),
            put_off: Cell::new(false),
            mask: Cell::new(0),
            handler: Cell::new(0),
            mask_before_fork: Cell::new(0),
            forking: Cell::new(false),
        }
    }

    pub(crate) fn set_inside(&self, inside: bool) {
        self.inside.set(inside);
    }
}

thread_local! {
    static STATE: State = const { State::new() };
}

/// Where the state of the calling thread is, which is the program's.
///
/// Never inlined: where a thread's storage is counts as a constant to the compiler, which may ask for it before it is known
/// that the thread has one.
#[inline(never)]
fn of_program_thread() -> *const State {
    STATE.with(core::ptr::from_ref)
}

/// Runs `f` on the calling thread's.
#[inline(always)]
fn with_state<R>(f: impl FnOnce(&State) -> R) -> R {
    match own_state() {
        Some(state) => f(state),
        // SAFETY: this thread's own, which lives as long as the thread, and is reached through shared references only.
        None => f(unsafe { &*of_program_thread() }),
    }
}

const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
/// `sizeof(sigset_t)` for the kernel.
const SIGSET_SIZE: usize = 8;

/// Whether this thread is inside a critical section (or is the monitor).
#[inline]
pub fn inside() -> bool {
    with_state(|s| s.inside.get())
}

/// Begins a critical section. They do not nest.
#[inline]
pub(crate) fn enter() {
    debug_assert!(!inside());
    with_state(|s| s.inside.set(true));
    compiler_fence(Ordering::SeqCst);
}

/// Ends it; signals that were put off are delivered now.
#[inline]
pub(crate) fn leave() {
    compiler_fence(Ordering::SeqCst);
    let put_off = with_state(|s| {
        s.inside.set(false);
        compiler_fence(Ordering::SeqCst);
        s.put_off.get()
    });
    if put_off {
        deliver();
    }
}

fn stack_here() -> usize {
    let here = 0u8;
    core::ptr::from_ref(core::hint::black_box(&here)) as usize
}

/// A handler of the program begins on this thread. Returns what [`handler_ends`] wants.
pub fn handler_begins() -> usize {
    with_state(|s| s.handler.replace(stack_here()))
}

/// It returned. (One that is left by `longjmp` does not: see [`in_handler`].)
pub fn handler_ends(before: usize) {
    with_state(|s| s.handler.set(before));
}

/// Whether a handler of the program runs on this thread: it may have interrupted malloc, so nothing
/// that needs libc may be done. After a `longjmp` out of a handler this holds on until the stack is
/// as short as it was when the handler began.
pub fn in_handler() -> bool {
    with_state(|s| {
        let began = s.handler.get();
        if began != 0 && stack_here() >= began {
            s.handler.set(0);
            return false;
        }
        began != 0
    })
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
    let mask = block_signals();
    with_state(|s| {
        s.mask_before_fork.set(mask);
        s.forking.set(true);
    });
}

/// Whether this thread is in [`block_for_fork`]'s part of a fork. True also on the child's copy of it.
pub fn forking() -> bool {
    with_state(|s| s.forking.get())
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
    let mask = with_state(|s| {
        s.forking.set(false);
        s.mask_before_fork.get()
    });
    sigprocmask(SIG_SETMASK, mask);
}

#[cold]
fn deliver() {
    let mask = with_state(|s| {
        s.put_off.set(false);
        s.mask.get()
    });
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
    with_state(|s| {
        s.mask.set(*interrupted);
        s.put_off.set(true);
    });
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
