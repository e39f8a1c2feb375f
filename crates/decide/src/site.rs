//! Which account a copy belongs to: its call site and size class.

/// Names the account of a call site and size class; 0 is nobody's.
pub type SiteId = u16;

/// Low bits of a key that hold the size class.
pub const CLASS_BITS: u32 = 5;
/// Largest size class told apart: copies of 1 MB and more are one.
const CLASS_MAX: u32 = 20;
/// How many size classes there are.
pub(crate) const CLASSES: usize = CLASS_MAX as usize + 1;

/// Call site and size class (powers of two) in one word.
#[inline]
pub(crate) fn key(caller: usize, len: usize) -> usize {
    let class = len.max(1).ilog2().min(CLASS_MAX) as usize;
    caller << CLASS_BITS | class
}

/// The size class in a key.
pub(crate) fn class(key: usize) -> usize {
    (key & ((1 << CLASS_BITS) - 1)).min(CLASSES - 1)
}

/// A hash of a key.
#[inline]
pub(crate) fn hash(key: usize) -> usize {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Its place in [`Pauses`](crate::Pauses).
pub(crate) fn slot(key: usize) -> usize {
    hash(key) % PAUSES
}

/// How many pauses there are; sites share them by hash.
pub const PAUSES: usize = 4096;
