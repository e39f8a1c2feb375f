//! The calls that change the memory map.
//!
//! What the kernel reports by itself (munmap, madvise, brk, mappings over others, by whomever:
//! `UFFD_FEATURE_EVENT_*`) needs no shim. These are for what it does not report, or reports too
//! late.
//!
//! unsafe: see the crate.

use crate::real;
use core::ffi::{c_int, c_uchar, c_uint, c_ulong, c_void};
use libc::{iovec, off_t, pid_t, rlimit, size_t, ssize_t};
use uncopy_core::excluded::{Parts, Why};
use uncopy_core::tracker::Detached;
use uncopy_ranges::span::{PAGE, Span, page_down, page_up};
use uncopy_stack::buffers::each;
use uncopy_vm::{limits, reading, space, twin};

#[inline]
pub(super) fn perhaps_tracked(addr: usize, len: usize) -> bool {
    space::serving() && len > 0 && space::FILTER.perhaps_tracked(addr, len)
}

fn tracked(span: Span) -> bool {
    perhaps_tracked(span.start, span.len()) && space::tracks(span)
}

/// Makes a call that may need mappings. Where this process has used up its number of them, registering has its part in that: then
/// some of it ends, and the call is made again.
#[inline]
pub(super) fn with_room<T: PartialEq>(refused: T, call: impl Fn() -> T) -> T {
    let mut result = call();
    while result == refused && space::serving() {
        // SAFETY: errno's address is always valid.
        let errno = unsafe { &mut *libc::__errno_location() };
        let why = *errno;
        // (Of `madvise` it is EAGAIN.)
        let again = [libc::ENOMEM, libc::EAGAIN].contains(&why) && space::make_room_for_mappings();
        *errno = why;
        if !again {
            break;
        }
        result = call();
    }
    result
}

/// `mmap(2)`: addresses that come back while the report of their unmapping is still on its way
/// must not be taken for the old ones.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    n: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        alter(addr, n);
    }
    // SAFETY: the program's own arguments.
    let mapped =
        with_room(libc::MAP_FAILED, || unsafe { real::mmap(addr, n, prot, flags, fd, at) });
    if mapped != libc::MAP_FAILED {
        let span = Span::sized(mapped as usize, n);
        if tracked(span) {
            space::settle();
            space::with_after_fork(|b| b.forget(span.hull()));
        }
        space::mapped_anew(span);
    }
    mapped
}

/// `munmap(2)`: the addresses may be another thread's before the kernel's report is read, so they
/// leave the books first.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, n: size_t) -> c_int {
    let span = Span::sized(addr as usize, n).hull();
    alter(addr, n);
    // SAFETY: the program's own arguments.
    unsafe {
        let unmap = || with_room(-1, || real::munmap(addr, n));
        if !(addr as usize).is_multiple_of(PAGE) {
            return unmap();
        }
        let detached = if tracked(span) { space::detach(span) } else { None };
        let excluded = space::unmapping(span);
        let result = unmap();
        after_unmapping(detached, excluded, result == 0);
        result
    }
}

/// What was taken out of the books before an unmapping goes, or is put back.
fn after_unmapping(detached: Option<Detached>, excluded: Option<Parts>, gone: bool) {
    if !gone {
        excluded.iter().for_each(space::put_exclusions);
    }
    if let Some(detached) = detached {
        space::after_unmapping(detached, gone);
    }
}

/// `mmap64`: on x86-64 the same.
///
/// # Safety
/// As for [`mmap`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    n: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    // SAFETY: the same function.
    unsafe { mmap(addr, n, prot, flags, fd, at) }
}

/// A positioned read or write of `/proc/self/mem`: the kernel does not wait for faults there
/// (Linux 6.18, `__access_remote_vm`), so what lies at those addresses is put in place first. A
/// file offset that is a tracked address is nothing else.
#[inline]
pub(super) fn before_positioned(at: off_t, len: usize) {
    if at > 0 && perhaps_tracked(at as usize, len) {
        space::materialize(Span::sized(at as usize, len), false);
    }
}

/// As [`before_positioned`], for the buffers that `iov` lists.
///
/// # Safety
/// As for [`each`].
#[inline]
pub(super) unsafe fn before_positioned_list(at: off_t, iov: *const iovec, count: c_int) {
    if at > 0 && space::serving() {
        // SAFETY: the caller's promise.
        let buffers = unsafe { each(iov, count as usize) };
        before_positioned(at, buffers.fold(0, |n, b| n.saturating_add(b.1)));
    }
}

/// A futex operation that changes its word (FUTEX_WAKE_OP, the PI ones): the kernel does not wait for
/// that fault (Linux 6.18, `fault_in_user_writeable`).
pub(super) fn before_futex(operation: c_int, words: [usize; 2]) {
    let changes = [
        libc::FUTEX_WAKE_OP,
        libc::FUTEX_LOCK_PI,
        libc::FUTEX_LOCK_PI2,
        libc::FUTEX_TRYLOCK_PI,
        libc::FUTEX_UNLOCK_PI,
        libc::FUTEX_WAIT_REQUEUE_PI,
        libc::FUTEX_CMP_REQUEUE_PI,
    ];
    for word in words.into_iter().filter(|w| perhaps_tracked(*w, size_of::<u32>())) {
        if changes.contains(&(operation & libc::FUTEX_CMD_MASK)) {
            super::process::written_by_kernel(word, size_of::<u32>());
        } else {
            space::materialize(Span::sized(word, size_of::<u32>()), false);
        }
    }
}

/// Gives a range back to the kernel's and the program's own care, its content in place. Returns
/// whether anything of it was ours.
pub(super) fn hand_back(addr: usize, len: usize) -> bool {
    let span = Span::sized(addr, len).hull();
    let ours = tracked(span);
    if ours {
        space::materialize(span, true);
    }
    ours
}

/// The program changes the mapping of a range: what it did to a block ends with that.
#[inline]
pub(super) fn alter<T>(addr: *const T, len: usize) {
    twin::alter(Span::sized(addr as usize, len));
}

/// Makes a call about a range for each part of it that is the program's. Programs say things of all that they find in
/// `/proc/self/maps`, ours too: that has been done, as far as they will ever know.
fn on_the_programs(
    addr: *const c_void,
    n: usize,
    call: impl Fn(*mut c_void, usize) -> c_int,
) -> c_int {
    let whole = Span::sized(addr as usize, n);
    let ours = space::ours_in(whole);
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

/// `madvise(2)`: what children see, or how pages are made, is decided for resident memory; the
/// dropping of pages is reported by the kernel.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, n: size_t, advice: c_int) -> c_int {
    let span = Span::sized(addr as usize, page_up(n));
    before_advice(span, advice);
    let given = if advice == libc::MADV_DONTNEED { space::dropping(span) } else { None };
    // SAFETY: the program's own arguments.
    let result = on_the_programs(addr, n, |addr, n| unsafe { real::madvise(addr, n, advice) });
    if result == 0 {
        after_advice(span, advice);
    } else {
        given.iter().for_each(space::put_exclusions);
    }
    result
}

/// `process_madvise(2)`: as [`madvise`], if it is this process that is meant.
///
/// # Safety
/// As its man page says.
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
    // What is done once, and what ends other advice.
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
    let stays = advice == libc::MADV_DONTDUMP
        || !(dropped.contains(&advice) || harmless.contains(&advice) || passing.contains(&advice));
    if stays {
        twin::alter(span);
    }
    if !dropped.contains(&advice) && !harmless.contains(&advice) {
        hand_back(span.start, span.len());
    }
}

/// A child must not find there what was copied later, either.
fn after_advice(span: Span, advice: c_int) {
    let of_children = [libc::MADV_WIPEONFORK, libc::MADV_DONTFORK];
    if of_children.contains(&advice) && space::wanted() {
        space::exclude(span, Why::WhileMapped);
    }
}

/// Pages of a call's answer that are looked at together.
const ANSWER: usize = 64;

/// `mincore(2)`: pages that only elision made missing are there.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(addr: *mut c_void, n: size_t, answer: *mut c_uchar) -> c_int {
    // SAFETY: the program's own arguments; the kernel has just written a byte for each page.
    unsafe {
        let result = real::mincore(addr, n, answer);
        if result == 0 && perhaps_tracked(addr as usize, n) {
            let count = Span::sized(addr as usize, n).hull().pages();
            for first in (0..count).step_by(ANSWER) {
                let there = space::resident_views::<ANSWER>(addr as usize + first * PAGE);
                for i in (0..ANSWER.min(count - first)).filter(|i| there[*i]) {
                    *answer.add(first + i) |= 1;
                }
            }
        }
        result
    }
}

/// `mprotect(2)`: memory that the program must not reach is not ours to serve.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, n: size_t, prot: c_int) -> c_int {
    if prot != libc::PROT_READ | libc::PROT_WRITE {
        hand_back(addr as usize, n);
        alter(addr, n);
    }
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::mprotect(addr, n, prot) })
}

/// `pkey_mprotect(2)`: as [`mprotect`].
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    addr: *mut c_void,
    n: size_t,
    prot: c_int,
    key: c_int,
) -> c_int {
    hand_back(addr as usize, n);
    alter(addr, n);
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::pkey_mprotect(addr, n, prot, key) })
}

/// `mlock(2)`: the kernel itself has views put in place, by faults.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, n: size_t) -> c_int {
    alter(addr, n);
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::mlock(addr, n) })
}

/// `mlock2(2)`: as [`mlock`].
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, n: size_t, flags: c_uint) -> c_int {
    alter(addr, n);
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::mlock2(addr, n, flags) })
}

/// `mlockall(2)`: locked memory is never unmapped, and the pool must not be locked with it.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    space::before_lock_all();
    twin::close();
    // SAFETY: the program's own argument.
    unsafe { real::mlockall(flags) }
}

/// A limit of this process changes, by `call`: address space that only we use must not count against one that the program sets.
unsafe fn limiting(resource: c_uint, new: *const rlimit, call: impl FnOnce() -> c_int) -> c_int {
    let Some([new, _]) = reading::read(new.cast::<[u64; 2]>()) else { return call() };
    if !limits::lowers(resource, (new != libc::RLIM_INFINITY).then_some(new)) {
        return call();
    }
    twin::close();
    space::limiting(call)
}

/// `setrlimit(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, new: *const rlimit) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { limiting(resource, new, || real::setrlimit(resource, new)) }
}

/// `setrlimit64`: on x86-64 the same.
///
/// # Safety
/// As for [`setrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, new: *const rlimit) -> c_int {
    // SAFETY: the same function.
    unsafe { setrlimit(resource, new) }
}

/// `prlimit(2)`, perhaps of another process.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let call = || real::prlimit(pid, resource, new, old);
        if [0, libc::getpid(), libc::gettid()].contains(&pid) {
            return limiting(resource, new, call);
        }
        call()
    }
}

/// `prlimit64`: on x86-64 the same.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: pid_t,
    resource: c_uint,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the same function.
    unsafe { prlimit(pid, resource, new, old) }
}

/// The kernel's `UFFDIO_REGISTER`: its argument begins with the range, as address and length.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
/// `UFFDIO_MOVE`: its argument begins with destination, source and length.
const UFFDIO_MOVE: c_ulong = 0xc028_aa05;

/// `ioctl(2)`: memory that the program registers with a userfaultfd of its own must not be
/// registered with ours, for the kernel allows one (EBUSY); and what it moves must be there (ENOENT). All other operations
/// of a userfaultfd name memory that is registered with it, and so not with ours; the source of `UFFDIO_COPY` is read with faults.
///
/// # Safety
/// As its man page says. (It is variadic in C; what it reads lies in the same registers.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if request == UFFDIO_REGISTER
            && let Some([addr, len]) = reading::read(argument.cast::<[u64; 2]>())
        {
            twin::alter(Span::sized(addr as usize, len as usize));
            hand_back(addr as usize, len as usize);
        }
        if request == UFFDIO_MOVE
            && space::wanted()
            && let Some(words) = reading::read(argument.cast::<[u64; 3]>())
        {
            let [to, from, len] = words.map(|n| n as usize);
            hand_back(from, len);
            // (Those of the pages that are not moved stay excluded for nothing.)
            let from = Span::sized(from, len);
            if let Some(given) = space::exclusions(from) {
                space::put_exclusions(&given.moved(from, Span::sized(to, len)));
            }
        }
        real::ioctl(fd, request, argument)
    }
}

/// `shmat(2)`: a segment put in place of other memory (`SHM_REMAP`). The kernel reports the unmapping
/// of every other call, but not of this one (ipc/shm.c, `do_shmat`).
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: the program's own arguments; the segment's size is written where the kernel knows it.
    unsafe {
        let mut about: libc::shmid_ds = core::mem::zeroed();
        if flags & libc::SHM_REMAP == 0 || libc::shmctl(id, libc::IPC_STAT, &mut about) != 0 {
            return real::shmat(id, addr, flags);
        }
        let start =
            if flags & libc::SHM_RND != 0 { page_down(addr as usize) } else { addr as usize };
        let span = Span::sized(start, about.shm_segsz).hull();
        twin::alter(span);
        let detached = if tracked(span) { space::detach(span) } else { None };
        let excluded = space::unmapping(span);
        let result = real::shmat(id, addr, flags);
        after_unmapping(detached, excluded, result as isize != -1);
        result
    }
}
