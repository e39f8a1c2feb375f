//! The shims of memory calls share this: whether anything of a range is ours, and what becomes of
//! that.

use crate::process::PROCESS;
use core::ffi::{c_int, c_void};
use uncopy_core::excluded::Parts;
use uncopy_core::tracker::Detached;
use uncopy_ranges::span::{PAGE, Span};

/// Whether any page of `len` bytes at `addr` may be tracked (without the lock).
#[inline]
pub(super) fn perhaps_tracked(addr: usize, len: usize) -> bool {
    PROCESS.space.serving() && len > 0 && PROCESS.space.filter.perhaps_tracked(addr, len)
}

/// Whether a call on `len` bytes at `addr` is the program's own as it is: nothing of them is
/// tracked, and no connection goes through a ring. The state is not asked: the entries have done
/// that, and a thread that changes the books does it with the lock.
///
/// The shims of calls that come with every request ask this first and then *jump* to libc's
/// function. The kernel leaves the processor no memory of where calls return to, so that each frame
/// of ours around a system call costs a mispredicted return: 6 ns on Zen 4, where a jump costs 1.5
/// and a `recv` that finds nothing 320.
#[inline(always)]
pub(super) fn concerns_nobody(addr: usize, len: usize) -> bool {
    !(PROCESS.tcp.in_use() || len > 0 && PROCESS.space.filter.perhaps_tracked(addr, len))
}

pub(super) fn tracked(span: Span) -> bool {
    perhaps_tracked(span.start, span.len()) && PROCESS.space.tracks(span)
}

/// The kernel has put something at `span` that was not there: addresses that come back while the
/// report of their unmapping is still on its way must not be taken for the old ones.
pub(super) fn mapped_anew(span: Span) {
    if tracked(span) {
        PROCESS.space.settle();
        PROCESS.space.with_after_fork(|b| b.forget(span.covering_pages()));
    }
    PROCESS.space.mapped_anew(span);
}

/// Where the addresses of a program end (four levels of page tables; what lies beyond is the
/// kernel's to judge).
pub(super) const ADDRESSES: usize = 1 << 47;

/// Makes a call that ends what is mapped at a range, and may put something else there: others see
/// that before it returns, and before the kernel's report is read. So what is known of the range
/// leaves the books first. Where the kernel refuses (which it may report as an unmapping all the
/// same) its content is put where the mapping still is. `call` says whether it worked.
pub(super) fn over<R>(addr: *const c_void, n: usize, call: impl FnOnce() -> (R, bool)) -> R {
    let span = Span::sized(addr as usize, n).covering_pages();
    // (A call that the kernel refuses at any time needs nothing.)
    if !(addr as usize).is_multiple_of(PAGE) || span.is_empty() || span.end > ADDRESSES {
        return call().0;
    }
    let detached = if tracked(span) { PROCESS.space.detach(span) } else { None };
    let excluded = PROCESS.space.unmapping(span);
    let (result, worked) = call();
    PROCESS.space.await_line();
    let was_tracked = detached.is_some();
    after_unmapping(detached, excluded, worked);
    if was_tracked {
        PROCESS.space.give_way();
    }
    result
}

/// Makes a range ordinary. Returns whether anything of it was
/// ours.
pub(super) fn make_ordinary(addr: usize, len: usize) -> bool {
    let span = Span::sized(addr, len).covering_pages();
    let ours = tracked(span);
    if ours {
        PROCESS.space.make_ordinary(span);
    }
    ours
}

/// The program changes the mapping of a range: what it did to a block ends with that.
#[inline]
pub(super) fn alter<T>(addr: *const T, len: usize) {
    PROCESS.twin().alter(Span::sized(addr as usize, len));
}

/// Makes a call that may need mappings. Where this process has used up its number of them,
/// registering has its part in that: then some of it ends, and the call is made again.
#[inline(always)]
pub(super) fn with_room<T: PartialEq>(refused: T, call: impl Fn() -> T) -> T {
    let result = call();
    if result == refused { once_more(result, refused, call) } else { result }
}

/// (Apart: an allocation that succeeds must not pay for the registers that this needs.)
#[cold]
#[inline(never)]
fn once_more<T: PartialEq>(first: T, refused: T, call: impl Fn() -> T) -> T {
    let mut result = first;
    while result == refused && PROCESS.space.serving() {
        // SAFETY: errno's address is always valid.
        let errno = unsafe { &mut *libc::__errno_location() };
        let why = *errno;
        // (Of `madvise` it is EAGAIN.)
        let again =
            [libc::ENOMEM, libc::EAGAIN].contains(&why) && PROCESS.space.make_room_for_mappings();
        *errno = why;
        if !again {
            break;
        }
        result = call();
    }
    result
}

/// Forgets the memory that was detached before an unmapping, or reattaches it.
pub(super) fn after_unmapping(detached: Option<Detached>, excluded: Option<Parts>, gone: bool) {
    if !gone {
        excluded.iter().for_each(|parts| PROCESS.space.put_exclusions(parts));
    }
    if let Some(detached) = detached {
        PROCESS.space.after_unmapping(detached, gone);
    }
}

/// Makes a call about a range for each part of it that is the program's. Programs say things of all
/// that they find in `/proc/self/maps`, ours too: that has been done, as far as they will ever
/// know.
pub(super) fn on_the_programs(
    addr: *const c_void,
    n: usize,
    call: impl Fn(*mut c_void, usize) -> c_int,
) -> c_int {
    let whole = Span::sized(addr as usize, n);
    let ours = PROCESS.ours_in(whole);
    if ours.is_empty() {
        return with_room(-1, || call(addr.cast_mut(), n));
    }
    let mut at = whole.start;
    for mine in ours.into_iter().chain([Span::sized(whole.end, 0)]) {
        if at < mine.start {
            let result = with_room(-1, || call(at as *mut c_void, mine.start - at));
            if result != 0 {
                return result;
            }
        }
        at = mine.end;
    }
    0
}
