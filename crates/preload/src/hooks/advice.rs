//! Calls by which the program advises the kernel about its pages, and asks about them.
//!
//! unsafe: see the crate.

use super::memory_common::{make_ordinary, on_the_programs, perhaps_tracked};
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_uchar, c_uint, c_void};
use libc::{iovec, size_t, ssize_t};
use uncopy_ranges::span::{PAGE, Span, page_up};
use uncopy_stack::buffers::each;

/// `madvise(2)`: what children see, or how pages are made, is decided for resident memory; the
/// dropping of pages is reported by the kernel.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, n: size_t, advice: c_int) -> c_int {
    let span = Span::sized(addr as usize, page_up(n));
    before_advice(span, advice);
    let given = if advice == libc::MADV_DONTNEED { PROCESS.space.dropping(span) } else { None };
    // SAFETY: the program's own arguments.
    let result = on_the_programs(addr, n, |addr, n| unsafe { real::madvise(addr, n, advice) });
    PROCESS.space.await_line();
    give_way(span);
    if result == 0 {
        after_advice(span, advice);
    } else {
        given.iter().for_each(|parts| PROCESS.space.put_exclusions(parts));
    }
    result
}

/// `process_madvise(2)`: as [`madvise`], if it is this process that is meant.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    iov: *const iovec,
    count: size_t,
    advice: c_int,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    unsafe {
        let parts = || each(iov, count).map(|(addr, n)| Span::sized(addr, n));
        parts().for_each(|span| before_advice(span, advice));
        let result = real::process_madvise(process, iov, count, advice, flags);
        PROCESS.space.await_line();
        parts().for_each(give_way);
        if result > 0 {
            parts().for_each(|span| after_advice(span, advice));
        }
        result
    }
}

fn before_advice(span: Span, advice: c_int) {
    let dropped = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE];
    let harmless = [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
    ];
    // Advice that is done once, and advice that ends other advice.
    let passing = [
        libc::MADV_DODUMP,
        libc::MADV_DOFORK,
        libc::MADV_KEEPONFORK,
        libc::MADV_UNMERGEABLE,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_POPULATE_READ,
        libc::MADV_POPULATE_WRITE,
        libc::MADV_DONTNEED_LOCKED,
        libc::MADV_COLLAPSE,
    ];
    if advice == libc::MADV_FREE {
        PROCESS.space.frees_lazily();
    }
    let stays = advice == libc::MADV_DONTDUMP
        || !(dropped.contains(&advice) || harmless.contains(&advice) || passing.contains(&advice));
    if stays {
        PROCESS.twin().alter(span);
    }
    if !dropped.contains(&advice) && !harmless.contains(&advice) {
        make_ordinary(span.start, span.len());
    }
}

fn give_way(span: Span) {
    if perhaps_tracked(span.start, span.len()) {
        PROCESS.space.give_way();
    }
}

/// A child must not find there what was copied later, either, or while the call was made.
fn after_advice(span: Span, advice: c_int) {
    let of_children = [libc::MADV_WIPEONFORK, libc::MADV_DONTFORK];
    if of_children.contains(&advice) && PROCESS.space.wanted() {
        PROCESS.space.keep_resident(span);
    }
}

/// Pages of a call's answer that are looked at together.
const ANSWER: usize = 64;

/// `mincore(2)`: pages that only elision made missing are there.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(addr: *mut c_void, n: size_t, answer: *mut c_uchar) -> c_int {
    // SAFETY: the program's own arguments; the kernel has just written a byte for each page.
    unsafe {
        let result = real::mincore(addr, n, answer);
        if result == 0 && perhaps_tracked(addr as usize, n) {
            let count = Span::sized(addr as usize, n).covering_pages().pages();
            for first in (0..count).step_by(ANSWER) {
                let there = PROCESS.space.resident_views::<ANSWER>(addr as usize + first * PAGE);
                for i in (0..ANSWER.min(count - first)).filter(|i| there[*i]) {
                    *answer.add(first + i) |= 1;
                }
            }
        }
        result
    }
}
