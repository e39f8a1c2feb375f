//! System calls that leave `errno` alone, which is the program's, and need no thread that libc
//! knows.
//!
//! unsafe: whatever the call is.

/// A system call that leaves errno alone, of up to four arguments.
///
/// # Safety
/// The caller keeps the contract of the system call.
pub unsafe fn syscall4(n: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { syscall6(n, [a, b, c, d, 0, 0]) }
}

/// A system call that leaves errno alone.
///
/// # Safety
/// The caller keeps the contract of the system call.
#[cfg(target_arch = "x86_64")]
pub unsafe fn syscall6(n: usize, [a, b, c, d, e, f]: [usize; 6]) -> isize {
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
