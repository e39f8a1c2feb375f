//! Copies between a program's memory and a ring. Two things make them different from `memcpy`: the
//! ring's bytes may change while they are copied (the other program writes to them whenever it
//! likes), which no reference of Rust's may see; and the program's pointer may lead nowhere, which
//! the kernel answers with EFAULT. So they are instructions of their own, known by where they are:
//! a handler of SIGSEGV and SIGBUS asks [`goes_on`].
//!
//! unsafe: the instructions, and what their callers may be given.

use core::arch::global_asm;

/// The first 64 bytes at any address.
macro_rules! first_64 {
    () => {
        "movups xmm0, [rsi]
        movups xmm1, [rsi + 16]
        movups xmm2, [rsi + 32]
        movups xmm3, [rsi + 48]
        movups [rdi], xmm0
        movups [rdi + 16], xmm1
        movups [rdi + 32], xmm2
        movups [rdi + 48], xmm3"
    };
}

// (to, from, bytes) -> whether all of them were copied.
//
// Below 64 bytes 16 at a time; up to 1 KB 64 at a time; beyond that `rep movsb`, which takes about
// 10 ns to begin. But where the destination begins 1 to 63 bytes ahead of the source within the
// page, some processors make `rep movsb` 17 times as slow (16 KB on Zen 3: 5.4 us instead of 0.32;
// see `uncopy_copies`): those copies are the loop's at any size. It goes from the end, so that no
// load follows a store of nearly the same place.
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
    "cmp rdx, 64",
    "jb 4f",
    "cmp rdx, 1024",
    "jbe 2f",
    // (A distance of 0 becomes the largest.)
    "mov eax, edi",
    "sub eax, esi",
    "dec eax",
    "and eax, 4095",
    "cmp eax, 63",
    "jb 2f",
    "mov rcx, rdx",
    "rep movsb",
    "mov eax, 1",
    "ret",
    // The last 16 bytes; then down to where fewer than 64 are left, at places of the destination
    // that are aligned; then the first 64.
    "2:",
    "movups xmm0, [rsi + rdx - 16]",
    "movups [rdi + rdx - 16], xmm0",
    "lea rcx, [rdi + rdx]",
    "and rcx, -16",
    "sub rcx, rdi",
    "cmp rcx, 64",
    "jb 5f",
    "3:",
    "movups xmm0, [rsi + rcx - 16]",
    "movups xmm1, [rsi + rcx - 32]",
    "movups xmm2, [rsi + rcx - 48]",
    "movups xmm3, [rsi + rcx - 64]",
    "movaps [rdi + rcx - 16], xmm0",
    "movaps [rdi + rcx - 32], xmm1",
    "movaps [rdi + rcx - 48], xmm2",
    "movaps [rdi + rcx - 64], xmm3",
    "sub rcx, 64",
    "cmp rcx, 64",
    "jae 3b",
    "5:",
    first_64!(),
    "mov eax, 1",
    "ret",
    "4:",
    "cmp rdx, 16",
    "jb 8f",
    "lea r8, [rsi + rdx - 16]",
    "lea r9, [rdi + rdx - 16]",
    "jmp 7f",
    "6:",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "7:",
    "cmp rdi, r9",
    "jb 6b",
    "movups xmm0, [r8]",
    "movups [r9], xmm0",
    "mov eax, 1",
    "ret",
    "8:",
    "test rdx, rdx",
    "jz 9f",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 8b",
    // The same for 64 bytes and more, by streaming stores: 64 bytes, whole lines from the next one
    // on, the rest.
    ".globl uncopy_shared_stream",
    ".hidden uncopy_shared_stream",
    ".type uncopy_shared_stream, @function",
    ".balign 64",
    "uncopy_shared_stream:",
    first_64!(),
    "lea rcx, [rdi + 64]",
    "and rcx, -64",
    "sub rcx, rdi",
    "add rdi, rcx",
    "add rsi, rcx",
    "sub rdx, rcx",
    "mov rcx, rdx",
    "shr rcx, 6",
    "jz 32f",
    "31:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movntps [rdi], xmm0",
    "movntps [rdi + 16], xmm1",
    "movntps [rdi + 32], xmm2",
    "movntps [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "dec rcx",
    "jnz 31b",
    // (Else they may be seen after what is stored next: that there are bytes.)
    "sfence",
    "32:",
    "and edx, 63",
    "jmp uncopy_shared_copy",
    ".size uncopy_shared_stream, . - uncopy_shared_stream",
    // (at) -> whether it can be written. Nothing is.
    ".globl uncopy_shared_probe",
    ".hidden uncopy_shared_probe",
    ".type uncopy_shared_probe, @function",
    "uncopy_shared_probe:",
    "lock or byte ptr [rdi], 0",
    "mov eax, 1",
    "ret",
    ".size uncopy_shared_probe, . - uncopy_shared_probe",
    "uncopy_shared_copy_ends:",
    "9:",
    "mov eax, 1",
    "ret",
    "uncopy_shared_copy_failed:",
    // (Orders the stores that were streamed before the fault.)
    "sfence",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".size uncopy_shared_copy, . - uncopy_shared_copy",
    ".popsection",
);

unsafe extern "C" {
    fn uncopy_shared_copy(to: *mut u8, from: *const u8, bytes: usize) -> bool;
    fn uncopy_shared_stream(to: *mut u8, from: *const u8, bytes: usize) -> bool;
    fn uncopy_shared_probe(at: *mut u8) -> bool;
    fn uncopy_shared_copy_ends();
    fn uncopy_shared_copy_failed();
}

/// A pointer of the program's led nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Where a fault at `rip` goes on, if it is one of ours. For a handler of SIGSEGV and SIGBUS;
/// without one such a fault kills, as any other.
pub fn goes_on(rip: usize) -> Option<usize> {
    let ends = uncopy_shared_copy_ends as *const () as usize;
    (uncopy_shared_copy as *const () as usize..ends)
        .contains(&rip)
        .then_some(uncopy_shared_copy_failed as *const () as usize)
}

/// Copies.
///
/// # Safety
/// One of the two ranges lies in a mapped region. The other is the program's: whatever it named.
/// They do not overlap.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise; a fault comes back as false where a handler asks `goes_on`.
    if unsafe { uncopy_shared_copy(to, from, bytes) } { Ok(()) } else { Err(Fault) }
}

/// Whether the program's byte at this address can be written. It stays as it is, whoever writes it
/// meanwhile.
#[must_use]
pub fn can_be_written(at: usize) -> bool {
    // SAFETY: an instruction that changes nothing; a fault comes back as false where a handler asks
    // `goes_on`.
    unsafe { uncopy_shared_probe(at as *mut u8) }
}

/// Copies by streaming stores ([`crate::stores`]).
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn stream(to: *mut u8, from: *const u8, bytes: usize) -> Result<(), Fault> {
    if bytes < 64 {
        // SAFETY: the caller's promise.
        return unsafe { copy(to, from, bytes) };
    }
    // SAFETY: as for `copy`.
    if unsafe { uncopy_shared_stream(to, from, bytes) } { Ok(()) } else { Err(Fault) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks both routines.
    fn check(bytes: usize, from_at: usize, to_at: usize) {
        for copy in [copy, stream] {
            check_one(copy, bytes, from_at, to_at);
        }
    }

    /// In blocks that begin pages: source and destination at any distance within the page.
    fn check_one(
        copy: unsafe fn(*mut u8, *const u8, usize) -> Result<(), Fault>,
        bytes: usize,
        from_at: usize,
        to_at: usize,
    ) {
        const PAGE: usize = 4096;
        let block = || {
            let block = vec![0xEEu8; bytes + 3 * PAGE];
            let begins = block.as_ptr().align_offset(PAGE);
            (block, begins)
        };
        let ((mut from, a), (mut to, b)) = (block(), block());
        let source = a + from_at..a + from_at + bytes;
        (0..).zip(&mut from[source.clone()]).for_each(|(i, byte)| *byte = (i * 7 % 251) as u8);
        // SAFETY: both are long enough.
        unsafe { copy(to[b + to_at..].as_mut_ptr(), from[source.clone()].as_ptr(), bytes) }
            .unwrap();
        let (before, rest) = to.split_at(b + to_at);
        let (copied, behind) = rest.split_at(bytes);
        assert_eq!(copied, &from[source], "{bytes} bytes from {from_at} to {to_at}");
        assert!(before.iter().chain(behind).all(|&byte| byte == 0xEE), "{bytes} {from_at} {to_at}");
    }

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        for bytes in (0..1100).chain([2000, 2990]) {
            for from_at in [0, 1, 7] {
                check(bytes, from_at, 8);
            }
        }
    }

    #[test]
    fn a_byte_that_is_probed_stays_as_it_is() {
        let byte = 7u8;
        assert!(can_be_written(&raw const byte as usize));
        assert_eq!(byte, 7);
    }

    #[test]
    fn near_copies_of_every_length_are_copied_and_nothing_beside_them() {
        for bytes in (60..200).chain(1020..1100).chain([4095, 4096, 4097, 16 << 10]) {
            for ahead in [0, 1, 15, 16, 17, 31, 32, 62, 63, 64, 65, 2048, 4033, 4095] {
                check(bytes, 5, 5 + ahead);
                check(bytes, 4090, (4090 + ahead) % 4096);
            }
        }
    }
}
