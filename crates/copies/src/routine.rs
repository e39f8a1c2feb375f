//! The routine: loops of plain loads and stores, in the direction in which no load follows a store
//! of nearly the same place.
//!
//! A processor that sees a load compares the last 12 bits of its address with those of stores that
//! are still under way, and waits where they overlap. From the beginning a near copy meets that in
//! every step: it loads what lies (within the page) just below what it has stored. From the end it
//! never does. So that is the direction, unless the source begins within the destination.
//!
//! Not here: stores past the caches, which pay for more than we take over, and `rep movsb`.
//!
//! unsafe: assembly, because a compiled loop may become a call of `memmove`, which may be the one
//! that calls us.

use core::arch::naked_asm;

/// A `memmove`.
pub type Routine = unsafe extern "C" fn(to: *mut u8, from: *const u8, n: usize) -> *mut u8;

/// The vector registers that it works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// 16 bytes at a time: every x86-64 processor.
    Sse2,
    /// 32 bytes.
    Avx,
}

impl Vectors {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sse2, Self::Avx];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sse2 => "SSE2",
            Self::Avx => "AVX",
        }
    }
}

/// The routine with these vectors, which the processor must have. At least [`FEWEST`] bytes.
pub fn of(vectors: Vectors) -> Routine {
    match vectors {
        Vectors::Sse2 => sse2,
        Vectors::Avx => avx,
    }
}

/// It takes so many bytes at the least: the first or last vector, up to one until the destination
/// is aligned, and four at the other end.
pub const FEWEST: usize = 6 * 32;

macro_rules! routine {
    ($name:ident, $bytes:literal, $r:literal, $load:literal, $store:literal, $aligned:literal, $end:literal, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As for `memmove`; at least [`FEWEST`] bytes; the processor has these vectors.
        #[unsafe(naked)]
        unsafe extern "C" fn $name(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
            naked_asm!(
                "mov rax, rdi",
                // The destination begins within the source: from the end.
                "mov rcx, rdi",
                "sub rcx, rsi",
                "cmp rcx, rdx",
                "jb 4f",
                // The source begins within the destination: from the beginning.
                "mov r8, rsi",
                "sub r8, rdi",
                "cmp r8, rdx",
                "jb 2f",
                // Apart: from the end, if the destination is (within the page) rather ahead than
                // behind.
                "test ecx, 2048",
                "jz 4f",
                // From the beginning. Bytes that the loop does not reach at both ends are loaded
                // before it, and stored behind it.
                "2:",
                concat!($load, " ", $r, "4, [rsi + rdx - 4 * ", $bytes, "]"),
                concat!($load, " ", $r, "5, [rsi + rdx - 3 * ", $bytes, "]"),
                concat!($load, " ", $r, "6, [rsi + rdx - 2 * ", $bytes, "]"),
                concat!($load, " ", $r, "7, [rsi + rdx - ", $bytes, "]"),
                concat!($load, " ", $r, "8, [rsi]"),
                concat!("lea r9, [rdi + rdx - 4 * ", $bytes, "]"),
                concat!("lea rcx, [rdi + ", $bytes, "]"),
                concat!("and rcx, -", $bytes),
                "sub rsi, rdi",
                ".balign 32",
                // (rcx: where to; rsi: how far from there the source is.)
                "3:",
                concat!($load, " ", $r, "0, [rcx + rsi]"),
                concat!($load, " ", $r, "1, [rcx + rsi + ", $bytes, "]"),
                concat!($load, " ", $r, "2, [rcx + rsi + 2 * ", $bytes, "]"),
                concat!($load, " ", $r, "3, [rcx + rsi + 3 * ", $bytes, "]"),
                concat!($aligned, " [rcx], ", $r, "0"),
                concat!($aligned, " [rcx + ", $bytes, "], ", $r, "1"),
                concat!($aligned, " [rcx + 2 * ", $bytes, "], ", $r, "2"),
                concat!($aligned, " [rcx + 3 * ", $bytes, "], ", $r, "3"),
                concat!("sub rcx, -4 * ", $bytes),
                "cmp rcx, r9",
                "jb 3b",
                concat!($store, " [r9], ", $r, "4"),
                concat!($store, " [r9 + ", $bytes, "], ", $r, "5"),
                concat!($store, " [r9 + 2 * ", $bytes, "], ", $r, "6"),
                concat!($store, " [r9 + 3 * ", $bytes, "], ", $r, "7"),
                concat!($store, " [rax], ", $r, "8"),
                $end,
                "ret",
                // From the end: the same the other way round.
                "4:",
                concat!($load, " ", $r, "4, [rsi]"),
                concat!($load, " ", $r, "5, [rsi + ", $bytes, "]"),
                concat!($load, " ", $r, "6, [rsi + 2 * ", $bytes, "]"),
                concat!($load, " ", $r, "7, [rsi + 3 * ", $bytes, "]"),
                concat!($load, " ", $r, "8, [rsi + rdx - ", $bytes, "]"),
                "lea r8, [rdi + rdx]",
                concat!("lea r9, [rdi + 4 * ", $bytes, "]"),
                "lea rcx, [r8 - 1]",
                concat!("and rcx, -", $bytes),
                "sub rsi, rdi",
                ".balign 32",
                "5:",
                concat!($load, " ", $r, "0, [rcx + rsi - ", $bytes, "]"),
                concat!($load, " ", $r, "1, [rcx + rsi - 2 * ", $bytes, "]"),
                concat!($load, " ", $r, "2, [rcx + rsi - 3 * ", $bytes, "]"),
                concat!($load, " ", $r, "3, [rcx + rsi - 4 * ", $bytes, "]"),
                concat!($aligned, " [rcx - ", $bytes, "], ", $r, "0"),
                concat!($aligned, " [rcx - 2 * ", $bytes, "], ", $r, "1"),
                concat!($aligned, " [rcx - 3 * ", $bytes, "], ", $r, "2"),
                concat!($aligned, " [rcx - 4 * ", $bytes, "], ", $r, "3"),
                concat!("add rcx, -4 * ", $bytes),
                "cmp rcx, r9",
                "ja 5b",
                concat!($store, " [rax], ", $r, "4"),
                concat!($store, " [rax + ", $bytes, "], ", $r, "5"),
                concat!($store, " [rax + 2 * ", $bytes, "], ", $r, "6"),
                concat!($store, " [rax + 3 * ", $bytes, "], ", $r, "7"),
                concat!($store, " [r8 - ", $bytes, "], ", $r, "8"),
                $end,
                "ret",
            )
        }
    };
}

routine!(sse2, 16, "xmm", "movups", "movups", "movaps", "", "16 bytes at a time.");
routine!(
    avx,
    32,
    "ymm",
    "vmovups",
    "vmovups",
    "vmovaps",
    "vzeroupper",
    "32 bytes at a time. (The upper halves are cleared behind it: old SSE code is slow beside \
     them.)"
);
