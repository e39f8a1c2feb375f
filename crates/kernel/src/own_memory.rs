//! This process' memory by its own number, as another process reaches it.
//!
//! unsafe: system calls on addresses that need not be memory.

use crate::call::{syscall4, syscall6};

/// `process_vm_readv` or `process_vm_writev` (`call`) between `here` and `there`, both of this
/// process. Returns how many bytes, or an error's number below zero.
///
/// # Safety
/// Memory that is written to may be overwritten; an address without memory is answered with EFAULT.
pub(crate) unsafe fn own_memory(call: i64, here: &libc::iovec, there: &[libc::iovec]) -> isize {
    // SAFETY: the caller's promise.
    let by = |number: isize| unsafe {
        let here = core::ptr::from_ref(here) as usize;
        let arguments = [number as usize, here, 1, there.as_ptr() as usize, there.len(), 0];
        syscall6(call as usize, arguments)
    };
    // SAFETY: calls without arguments.
    let number = |call: i64| unsafe { syscall4(call as usize, 0, 0, 0, 0) };
    match by(number(libc::SYS_getpid)) {
        // The process' number is its first thread's, which may have ended: then it leads to no
        // memory.
        n if n == -(libc::ESRCH as isize) => by(number(libc::SYS_gettid)),
        n => n,
    }
}
