//! A stack may lie on unmapped pages: what is used of it under the lock is touched before.

use crate::space::Space;
use rustix::mm::Advice;
use uncopy_kernel::remote_mem::{peek, populate};
use uncopy_ranges::span::{PAGE, Span};

/// How much of the stack is used at most while the lock is held, in bytes.
const STACK_UNDER_LOCK: usize = 16 << 10;

impl Space {
    /// A stack may lie on unmapped pages (a coroutine's or thread's, on memory that was freed):
    /// what is used of it under the lock is touched before, while the monitor can still answer.
    #[inline]
    pub(crate) fn prefault_stack(&self) {
        let here = 0u8;
        let below = core::ptr::from_ref(&here) as usize - STACK_UNDER_LOCK;
        if self.filter.perhaps_tracked(below, STACK_UNDER_LOCK) {
            touch(Span::sized(below, STACK_UNDER_LOCK));
        }
    }
}

/// Touches every page of `span`, without crashing where there is none. (As many as a stack has
/// under the lock in one system call: the filter errs, and a stack that it takes for tracked is so
/// in every call.)
#[cold]
pub(crate) fn touch(span: Span) {
    const PAGES: usize = STACK_UNDER_LOCK / PAGE + 2;
    let mut pages = span.covering_pages();
    while !pages.is_empty() {
        let mut there = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 }; PAGES];
        let mut bytes = [0u8; PAGES];
        let count = pages.pages().min(PAGES);
        for (i, place) in there[..count].iter_mut().enumerate() {
            place.iov_base = (pages.start + i * PAGE) as *mut _;
        }
        let all = peek(&there[..count], &mut bytes);
        for i in 0..if all { 0 } else { count } {
            if !peek(&there[i..=i], &mut bytes) {
                // A sandbox forbids that; this asks for the page too.
                let _ = populate(pages.start + i * PAGE, Advice::LinuxPopulateRead);
            }
        }
        pages = Span::new(pages.start + count * PAGE, pages.end);
    }
}
