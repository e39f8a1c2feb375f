//! Copies before the constructor has found libc's routines: the dynamic linker and the constructors
//! of other libraries copy too.
//!
//! unsafe: assembly, since a compiled loop may become a call of the very function that it stands
//! for, and nothing may need a relocation, which may not have happened yet.

use core::arch::asm;
use core::ffi::{c_int, c_void};

/// As `memmove(3)`, so it serves `memcpy` too.
///
/// # Safety
/// As for `memmove`.
pub unsafe extern "C" fn copy(dst: *mut c_void, src: *const c_void, n: usize) -> *mut c_void {
    let (d, s) = (dst as usize, src as usize);
    // SAFETY: the caller's promise; the direction flag is restored.
    unsafe {
        if d <= s || d >= s + n {
            asm!("rep movsb", inout("rcx") n => _, inout("rdi") d => _, inout("rsi") s => _,
                options(nostack, preserves_flags));
        } else {
            asm!("std", "rep movsb", "cld", inout("rcx") n => _,
                inout("rdi") d.wrapping_add(n).wrapping_sub(1) => _,
                inout("rsi") s.wrapping_add(n).wrapping_sub(1) => _, options(nostack));
        }
    }
    dst
}

/// As `mempcpy(3)`: [`copy`], and returns the end of the destination.
///
/// # Safety
/// As for `memmove`.
pub unsafe extern "C" fn copy_to_end(
    dst: *mut c_void,
    src: *const c_void,
    n: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy(dst, src, n).byte_add(n) }
}

/// As `memset(3)`.
///
/// # Safety
/// As for `memset`.
pub unsafe extern "C" fn set(to: *mut c_void, byte: c_int, n: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep stosb", inout("rcx") n => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: usize, to: usize, n: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..64).collect();
        let at = bytes.as_mut_ptr();
        // SAFETY: the tests' places lie within the vector.
        let end = unsafe { copy_to_end(at.add(to).cast(), at.add(from).cast(), n) };
        assert_eq!(end as usize, at as usize + to + n);
        bytes
    }

    #[test]
    fn overlapping_bytes_move_in_either_direction() {
        for (from, to, n) in [(0, 8, 32), (8, 0, 32), (5, 5, 20), (0, 40, 24), (3, 4, 0)] {
            let mut simple: Vec<u8> = (0..64).collect();
            simple.copy_within(from..from + n, to);
            assert_eq!(moved(from, to, n), simple, "{n} bytes from {from} to {to}");
        }
    }

    #[test]
    fn set_writes_its_bytes_and_no_other() {
        let mut bytes = [1u8; 16];
        // SAFETY: within the array.
        unsafe { set(bytes[4..].as_mut_ptr().cast(), 0x107, 8) };
        assert_eq!(bytes, [1, 1, 1, 1, 7, 7, 7, 7, 7, 7, 7, 7, 1, 1, 1, 1]);
    }
}
