//! A call that must not raise SIGPIPE, made by a system call that cannot be told so: the signal is
//! blocked on this thread, and taken away if the call raised it. A handler that interrupts the
//! call, and a thread that is cancelled in it, get the mask that was: see `undo`.
//!
//! A thread's own: what its mask was.
//!
//! unsafe: system calls on this thread's signals alone.

use crate::call::syscall4;
use core::cell::Cell;
use core::ffi::c_int;

const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;
const SIG_SETMASK: usize = 2;
/// `sizeof(sigset_t)` for the kernel.
const SET: usize = 8;
const SIGPIPE: u64 = 1 << (libc::SIGPIPE - 1);
/// Not blocked by us. (In a mask before ours, all blocked: then there is nothing to undo.)
const NOT_OURS: u64 = !0;

thread_local! {
    /// The mask before. The kernel itself writes it, in the call that blocks: no handler comes
    /// between.
    static BEFORE: Cell<u64> = const { Cell::new(NOT_OURS) };
}

/// SIGPIPE is blocked as long as this is not ended.
pub struct WithoutSigpipe {
    mask: u64,
    pending: bool,
}

fn address(set: &mut u64) -> usize {
    core::ptr::from_mut(set) as usize
}

impl WithoutSigpipe {
    /// It is blocked from here on.
    pub fn begin() -> Self {
        let (mut block, mut pending) = (SIGPIPE, 0u64);
        let before = BEFORE.with(Cell::as_ptr);
        // SAFETY: concerns this thread's mask; the kernel writes eight bytes each.
        let mask = unsafe {
            let from = address(&mut block);
            syscall4(libc::SYS_rt_sigprocmask as usize, SIG_BLOCK, from, before as usize, SET);
            before.read_volatile()
        };
        // Only where it was blocked can one have been pending.
        if mask & SIGPIPE != 0 {
            // SAFETY: as above.
            unsafe {
                syscall4(libc::SYS_rt_sigpending as usize, address(&mut pending), SET, 0, 0);
            }
        }
        Self { mask, pending: pending & SIGPIPE != 0 }
    }

    /// `raised`: the call was answered with EPIPE.
    pub fn end(mut self, raised: bool) {
        if raised && !self.pending {
            take_away();
        }
        // SAFETY: as above.
        unsafe {
            let mask = address(&mut self.mask);
            syscall4(libc::SYS_rt_sigprocmask as usize, SIG_SETMASK, mask, 0, SET);
        }
        forget();
    }
}

/// A SIGPIPE that is pending is not any more.
fn take_away() {
    let (mut set, now) = (SIGPIPE, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    let now = core::ptr::from_ref(&now) as usize;
    // SAFETY: as above; the wait is none.
    unsafe { syscall4(libc::SYS_rt_sigtimedwait as usize, address(&mut set), 0, now, SET) };
}

/// Nothing of ours is blocked.
pub fn forget() {
    BEFORE.with(|b| b.set(NOT_OURS));
}

/// SIGPIPE is not blocked by us any more: on the way out of the call for good, or at the beginning
/// of a handler for a signal that interrupted what had this mask. Returns what [`again`] wants.
pub fn undo(interrupted: Option<(c_int, u64)>) -> u64 {
    let before = BEFORE.with(Cell::get);
    let blocked = interrupted.is_none_or(|(_, mask)| mask & SIGPIPE != 0);
    if before & SIGPIPE != 0 || !blocked {
        forget();
        return before;
    }
    // (Only our own call can have raised one on this thread.)
    take_away();
    if interrupted.is_none_or(|(signal, _)| !blocks_sigpipe(signal)) {
        let mut set = SIGPIPE;
        // SAFETY: concerns this thread's mask.
        unsafe {
            let set = address(&mut set);
            syscall4(libc::SYS_rt_sigprocmask as usize, SIG_UNBLOCK, set, 0, SET);
        }
    }
    // (Not before: a handler that interrupts this one must know it.)
    forget();
    before
}

/// The handler returned: the kernel gives the mask back that it interrupted.
pub fn again(before: u64) {
    BEFORE.with(|b| b.set(before));
}

/// Whether the handler of `signal` runs with SIGPIPE blocked.
fn blocks_sigpipe(signal: c_int) -> bool {
    // The kernel's `struct sigaction`: handler, flags, restorer, mask.
    let mut action = [0u64; 4];
    let to = action.as_mut_ptr() as usize;
    // SAFETY: a question; the kernel writes 32 bytes.
    unsafe { syscall4(libc::SYS_rt_sigaction as usize, signal as usize, 0, to, SET) };
    action[3] & SIGPIPE != 0
}
