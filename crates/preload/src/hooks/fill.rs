//! memset: zeros that fill whole pages of views take their place, and nothing is touched. A buffer
//! that is cleared before each input (`std::string(n, '\0')`, `bytearray(n)`) stays unmapped.
//!
//! unsafe: see the crate.

use super::memory_common::perhaps_tracked;
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_void};
use uncopy_kernel::critical;
use uncopy_ranges::span::Span;

/// Many zeros, while pages are looked after.
pub(super) unsafe extern "C" fn clear_views(to: *mut c_void, byte: c_int, n: usize) -> *mut c_void {
    // (By threads of ours, and inside our own calls, nothing of the program's is cleared.)
    if critical::inside() || !perhaps_tracked(to as usize, n) {
        // SAFETY: the caller's promise.
        return unsafe { real::libcs_set(to, byte, n) };
    }
    let span = Span::sized(to as usize, n);
    // SAFETY: the program's own memory, which is to hold zeros.
    unsafe { clear(span, span.core()) };
    to
}

/// Has `span` hold zeros; its pages that lie in `whole` and are unmapped stay so, and read as
/// zeros.
///
/// # Safety
/// `span` may be written to, and all of it is the caller's.
pub(super) unsafe fn clear(span: Span, whole: Span) {
    let zero = |from: usize, to: usize| {
        // SAFETY: inside `span`.
        unsafe { real::libcs_set(from as *mut c_void, 0, to - from) };
    };
    let mut at = span.start;
    if !whole.is_empty() && perhaps_tracked(whole.start, whole.len()) {
        for zeros in PROCESS.space.emptied(whole) {
            zero(at, zeros.start);
            at = zeros.end;
        }
    }
    zero(at, span.end);
}
