//! System calls by inline assembly: no library sees them. The log and the other ends of channels
//! use them, so that what is tested is the script; and some operations do, as programs do.

use core::arch::asm;

/// A system call; the kernel's own result (an error is a small negative number).
///
/// # Safety
/// The caller keeps the contract of the system call.
pub unsafe fn call(number: i64, a: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel preserves all but these registers; memory is the caller's affair.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4],
            in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// `write` of all of `bytes`; gives up on an error.
pub fn write_all(fd: i32, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let arguments = [fd as usize, rest.as_ptr() as usize, rest.len(), 0, 0, 0];
        // SAFETY: reads the slice.
        let n = unsafe { call(libc::SYS_write, arguments) };
        if n == -libc::EINTR as isize {
            continue;
        }
        if n <= 0 {
            return false;
        }
        rest = &rest[n as usize..];
    }
    true
}

/// `read`; 0 at the end or on an error.
pub fn read(fd: i32, to: &mut [u8]) -> usize {
    loop {
        let arguments = [fd as usize, to.as_mut_ptr() as usize, to.len(), 0, 0, 0];
        // SAFETY: writes the slice.
        let n = unsafe { call(libc::SYS_read, arguments) };
        if n != -libc::EINTR as isize {
            return n.max(0) as usize;
        }
    }
}

/// The process's number, past libc.
pub fn pid() -> isize {
    // SAFETY: touches no memory.
    unsafe { call(libc::SYS_getpid, [0; 6]) }
}
