//! Copies between a program's memory and a ring. Two things make them different from `memcpy`: the ring's bytes may change while they are
//! copied (the other program writes to them whenever it likes), which no reference of Rust's may see; and the program's pointer may lead nowhere, which
//! the kernel answers with EFAULT. So they are instructions of their own, known by where they are: a handler of SIGSEGV and
//! SIGBUS asks [`goes_on`].
//!
//! unsafe: the instructions, and what their callers may be given.

use core::arch::global_asm;

// (to, from, bytes) -> whether all of them were copied. `rep movsb` takes about 30 cycles to begin; below that, 16 bytes at a time are
// faster (64 bytes: 2 ns instead of 8).
global_asm!(
    ".pushsection .text.uncopy_shared_copy, \"ax\", @progbits",
    ".globl uncopy_shared_copy",
    ".hidden uncopy_shared_copy",
    ".type uncopy_shared_copy, @function",
    ".globl uncopy_shared_copy_ends",
    ".hidden uncopy_shared_copy_ends",
    ".globl uncopy_shared_copy_failed",
    ".hidden uncopy_shared_copy_failed",
    ".balign 64",
    "uncopy_shared_copy:",
    ".cfi_startproc",
    "cmp rdx, 16",
    "jb 4f",
    "cmp rdx, 1024",
    "ja 3f",
    "lea r8, [rsi + rdx - 16]",
    "lea r9, [rdi + rdx - 16]",
    "jmp 6f",
    "2:",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "6:",
    "cmp rdi, r9",
    "jb 2b",
    "movups xmm0, [r8]",
    "movups [r9], xmm0",
    "mov eax, 1",
    "ret",
    "3:",
    "mov rcx, rdx",
    "rep movsb",
    "mov eax, 1",
    "ret",
    "4:",
    "test rdx, rdx",
    "jz 5f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 4b",
    "uncopy_shared_copy_ends:",
    "5:",
    "mov eax, 1",
    "ret",
    "uncopy_shared_copy_failed:",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size uncopy_shared_copy, . - uncopy_shared_copy",
    ".popsection",
);

unsafe extern "C" {
    fn uncopy_shared_copy(to: *mut u8, from: *const u8, bytes: usize) -> bool;
    fn uncopy_shared_copy_ends();
    fn uncopy_shared_copy_failed();
}

/// A pointer of the program's led nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Where a fault at `rip` goes on, if it is one of ours. For a handler of SIGSEGV and SIGBUS; without one such a fault kills, as
/// any other.
pub fn goes_on(rip: usize) -> Option<usize> {
    let ends = uncopy_shared_copy_ends as *const () as usize;
    (uncopy_shared_copy as *const () as usize..ends)
        .contains(&rip)
        .then_some(uncopy_shared_copy_failed as *const () as usize)
}

/// Copies.
///
/// # Safety
/// One of the two ranges lies in a mapped region. The other is the program's: whatever it named. They do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise; a fault comes back as false where a handler asks `goes_on`.
    if unsafe { uncopy_shared_copy(to, from, bytes) } { Ok(()) } else { Err(Fault) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        let from: Vec<u8> = (0..3000).map(|i| (i * 7 % 251) as u8).collect();
        for bytes in (0..1100).chain([2000, 2990]) {
            for offset in [0, 1, 7] {
                let mut to = vec![0xEE; bytes + 16];
                // SAFETY: both are long enough.
                unsafe { copy(to[8..].as_mut_ptr(), from[offset..].as_ptr(), bytes) }.unwrap();
                assert_eq!(to[8..8 + bytes], from[offset..offset + bytes]);
                assert!(to[..8].iter().chain(&to[8 + bytes..]).all(|&b| b == 0xEE));
            }
        }
    }
}
