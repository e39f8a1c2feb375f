//! A call that must not raise SIGPIPE, made by a system call that cannot be told so: the signal is blocked on
//! this thread, and taken away if the call raised it.
//!
//! unsafe: system calls on this thread's signals alone.

use crate::critical::syscall4;

const SIG_BLOCK: usize = 0;
const SIG_SETMASK: usize = 2;
/// `sizeof(sigset_t)` for the kernel.
const SET: usize = 8;
const SIGPIPE: u64 = 1 << (libc::SIGPIPE - 1);

/// SIGPIPE is blocked as long as this is not ended.
pub(crate) struct WithoutSigpipe {
    mask: u64,
    pending: bool,
}

fn address(set: &mut u64) -> usize {
    core::ptr::from_mut(set) as usize
}

impl WithoutSigpipe {
    pub(crate) fn begin() -> Self {
        let (mut block, mut mask, mut pending) = (SIGPIPE, 0u64, 0u64);
        // SAFETY: concerns this thread's mask; the kernel writes eight bytes each.
        unsafe {
            let (from, to) = (address(&mut block), address(&mut mask));
            syscall4(libc::SYS_rt_sigprocmask as usize, SIG_BLOCK, from, to, SET);
            // Only where it was blocked can one have been pending.
            if mask & SIGPIPE != 0 {
                syscall4(libc::SYS_rt_sigpending as usize, address(&mut pending), SET, 0, 0);
            }
        }
        Self { mask, pending: pending & SIGPIPE != 0 }
    }

    /// `raised`: the call was answered with EPIPE.
    pub(crate) fn end(mut self, raised: bool) {
        // SAFETY: as above; the wait is none.
        unsafe {
            if raised && !self.pending {
                let (mut set, now) = (SIGPIPE, libc::timespec { tv_sec: 0, tv_nsec: 0 });
                let now = core::ptr::from_ref(&now) as usize;
                syscall4(libc::SYS_rt_sigtimedwait as usize, address(&mut set), 0, now, SET);
            }
            let mask = address(&mut self.mask);
            syscall4(libc::SYS_rt_sigprocmask as usize, SIG_SETMASK, mask, 0, SET);
        }
    }
}
