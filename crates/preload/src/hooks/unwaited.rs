//! Memory that the kernel reads or writes without waiting for a fault: it is put in place before,
//! and stays where it is if the kernel comes back to it.
//!
//! unsafe: reads the program's lists of buffers.

use super::memory_common::perhaps_tracked;
use crate::process::PROCESS;
use core::ffi::c_int;
use libc::{iovec, off_t};
use uncopy_ranges::span::Span;
use uncopy_stack::buffers::{each, plausible};

/// A positioned read or write of `/proc/self/mem`: the kernel does not wait for faults there
/// (Linux 6.18, `__access_remote_vm`), so what lies at those addresses is materialized first. A
/// file offset that is a tracked address is nothing else.
#[inline]
pub(super) fn before_positioned(at: off_t, len: usize) {
    if at > 0 && perhaps_tracked(at as usize, len) {
        PROCESS.space.materialize(Span::sized(at as usize, len));
    }
}

/// As [`before_positioned`], for the buffers that `iov` lists.
///
/// # Safety
/// As for [`each`].
#[inline]
pub(super) unsafe fn before_positioned_list(at: off_t, iov: *const iovec, count: c_int) {
    if at > 0 && PROCESS.space.serving() {
        // SAFETY: the caller's promise.
        let buffers = unsafe { each(iov, count as usize) };
        before_positioned(at, buffers.fold(0, |n, b| n.saturating_add(b.1)));
    }
}

/// A futex operation that changes its word (FUTEX_WAKE_OP, the PI ones): the kernel does not wait
/// for that fault (Linux 6.18, `fault_in_user_writeable`).
pub(super) fn before_futex(operation: c_int, words: [usize; 2]) {
    let changes = [
        libc::FUTEX_WAKE_OP,
        libc::FUTEX_LOCK_PI,
        libc::FUTEX_LOCK_PI2,
        libc::FUTEX_TRYLOCK_PI,
        libc::FUTEX_UNLOCK_PI,
        libc::FUTEX_WAIT_REQUEUE_PI,
        libc::FUTEX_CMP_REQUEUE_PI,
    ];
    for word in words.into_iter().filter(|w| perhaps_tracked(*w, size_of::<u32>())) {
        if changes.contains(&(operation & libc::FUTEX_CMD_MASK)) {
            written_by_kernel(word, size_of::<u32>());
        } else {
            PROCESS.space.materialize(Span::sized(word, size_of::<u32>()));
        }
    }
}

/// Words that the kernel reads or writes where a thread ends, or as a lock that hands priority on.
/// The kernel does not wait for a fault there (Linux 6.18: `handle_userfault` for a task that
/// exits, `fault_in_user_writeable`), so the page stays where it is.
pub(super) fn written_by_kernel(addr: usize, len: usize) {
    let span = Span::sized(addr, len);
    if PROCESS.space.wanted() && plausible(addr as *const u8) {
        PROCESS.space.keep_resident(span);
    }
}
