//! Features of the processor and the kernel that make a difference here.
//!
//! unsafe: asks both by instructions. One `cpuid` only: a virtual machine's monitor answers it,
//! which takes microseconds (6 in one of ours; `is_x86_feature_detected!` asks eight times).

use core::arch::x86_64::{__cpuid, _xgetbv};

use crate::routine::Vectors;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// AVX: vectors of 32 bytes.
    pub avx: bool,
}

/// In ECX of leaf 1: the kernel saves what it says it does; the processor has AVX.
const OSXSAVE: u32 = 1 << 27;
const AVX: u32 = 1 << 28;
/// In the kernel's mask: both halves of the vectors.
const HALVES: u64 = 0b110;

impl Features {
    /// The features of this processor.
    pub fn own() -> Self {
        // SAFETY: every x86-64 processor has leaf 1. (Newer compilers know.)
        #[allow(unused_unsafe)]
        let ecx = unsafe { __cpuid(1) }.ecx;
        // SAFETY: asked only where OSXSAVE says that it can be.
        let saved = || unsafe { kernels_mask() } & HALVES == HALVES;
        Self { avx: ecx & (OSXSAVE | AVX) == OSXSAVE | AVX && saved() }
    }

    /// The widest vectors that our routine is written for. (With 64 bytes nearly every load of a
    /// near copy meets two cache lines, and the processors that need it and have AVX-512 execute it
    /// in two halves.)
    pub const fn widest(self) -> Vectors {
        if self.avx { Vectors::Avx } else { Vectors::Sse2 }
    }
}

/// Which registers the kernel saves.
///
/// # Safety
/// The processor has `xgetbv`.
#[target_feature(enable = "xsave")]
unsafe fn kernels_mask() -> u64 {
    // SAFETY: the caller's promise; register 0 is always there.
    #[allow(unused_unsafe)]
    unsafe {
        _xgetbv(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_that_the_standard_library_finds() {
        assert_eq!(Features::own().avx, std::arch::is_x86_feature_detected!("avx"));
    }
}
