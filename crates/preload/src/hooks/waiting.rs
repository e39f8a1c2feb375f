//! poll, select, epoll.
//!
//! unsafe: see the crate; the program's lists are read and written.

pub use super::own::{epoll_pwait, epoll_wait, poll, ppoll};
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_ulong, c_void};
use core::time::Duration;
use libc::{epoll_event, fd_set, pollfd, sigset_t, timespec, timeval};
use rustix::io::Errno;
use uncopy_kernel::user_access;
use uncopy_stack::buffers::give;
use uncopy_tcp_calls::data::answer;
use uncopy_tcp_socket::set::{self, Event};

fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A time of the program's: `None`, it is not to be read, or none that the kernel takes; without
/// one a call waits without end.
fn time(at: *const timespec) -> Option<Option<Duration>> {
    if at.is_null() {
        return Some(None);
    }
    let [seconds, nanoseconds] = user_access::read(at.cast::<[i64; 2]>())?;
    let seconds = u64::try_from(seconds).ok()?;
    let nanoseconds = u32::try_from(nanoseconds).ok().filter(|n| *n < 1_000_000_000)?;
    Some(Some(Duration::new(seconds, nanoseconds)))
}

fn mask_of(mask: *const sigset_t) -> Option<u64> {
    if mask.is_null() { None } else { user_access::read(mask.cast()) }
}

/// `None`: it is Linux's.
fn polled(
    fds: *mut pollfd,
    count: c_ulong,
    timeout: impl FnOnce() -> Option<Option<Duration>>,
    mask: *const sigset_t,
) -> Option<c_int> {
    // More the kernel refuses where it is as many as a process may have.
    const MOST: c_ulong = 1 << 20;
    if !PROCESS.tcp.in_use() || count > MOST {
        return None;
    }
    PROCESS.tcp.thread_may_end();
    let mut list: Vec<pollfd> = Vec::with_capacity(count as usize);
    let mut any = false;
    for i in 0..count as usize {
        let word: u64 = user_access::read(fds.wrapping_add(i).cast())?;
        let [fd, events] = [word as c_int, (word >> 32) as c_int];
        any |= PROCESS.tcp.find(fd).is_some();
        list.push(pollfd { fd, events: events as i16, revents: 0 });
    }
    if !any {
        return None;
    }
    let result = PROCESS.tcp.poll(&mut list, timeout()?, mask_of(mask))?;
    if result.is_ok() {
        for (i, fd) in list.iter().enumerate() {
            // SAFETY: the program's own list.
            let at = unsafe { &raw mut (*fds.wrapping_add(i)).revents };
            // SAFETY: as above.
            if !unsafe { give(at, fd.revents) } {
                return Some(answer(Err(Errno::FAULT)) as c_int);
            }
        }
    }
    drop(list);
    Some(said(result))
}

/// The return value of libc's function. A thread that was interrupted because it was cancelled ends
/// here.
fn said(result: Result<usize, Errno>) -> c_int {
    if result == Err(Errno::INTR) {
        PROCESS.tcp.thread_may_end();
    }
    answer(result) as c_int
}

pub(super) unsafe extern "C" fn poll_ours(
    fds: *mut pollfd,
    count: c_ulong,
    timeout: c_int,
) -> c_int {
    polled(fds, count, || Some(milliseconds(timeout)), core::ptr::null())
        // SAFETY: the program's own arguments.
        .unwrap_or_else(|| unsafe { real::poll(fds, count, timeout) })
}

/// `poll(2)` with a list of known size.
///
/// # Safety
/// As for [`poll`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: c_ulong,
    timeout: c_int,
    room: usize,
) -> c_int {
    // SAFETY: libc's check reports the overflow.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__poll_chk(fds, count, timeout, room);
        }
        poll(fds, count, timeout)
    }
}

pub(super) unsafe extern "C" fn ppoll_ours(
    fds: *mut pollfd,
    count: c_ulong,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    polled(fds, count, || time(timeout), mask)
        // SAFETY: the program's own arguments.
        .unwrap_or_else(|| unsafe { real::ppoll(fds, count, timeout, mask) })
}

/// `ppoll(2)` with a list of known size.
///
/// # Safety
/// As for [`ppoll`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: c_ulong,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        if room / size_of::<pollfd>() < count as usize {
            return real::__ppoll_chk(fds, count, timeout, mask, room);
        }
        ppoll(fds, count, timeout, mask)
    }
}

/// `None`: it is Linux's.
fn selected(
    n: c_int,
    sets: [*mut fd_set; 3],
    timeout: impl FnOnce() -> Option<Option<Duration>>,
    mask: *const sigset_t,
) -> Option<c_int> {
    // (Sets of any size, as the kernel takes them.)
    if !PROCESS.tcp.in_use() || !(0..=1 << 20).contains(&n) {
        return None;
    }
    PROCESS.tcp.thread_may_end();
    let words = (n as usize).div_ceil(64);
    let mut lists: [Option<Vec<u64>>; 3] = [const { None }; 3];
    for (list, set) in lists.iter_mut().zip(sets) {
        if !set.is_null() {
            let set = set.cast::<u64>();
            let read: Option<Vec<u64>> =
                (0..words).map(|i| user_access::read(set.wrapping_add(i))).collect();
            *list = Some(read?);
        }
    }
    let result = PROCESS.tcp.select(n, &mut lists, timeout()?, mask_of(mask))?;
    if result.is_ok() {
        for (list, set) in lists.iter().zip(sets) {
            for (i, word) in list.iter().flatten().enumerate() {
                // SAFETY: the program's own set.
                if !unsafe { give(set.cast::<u64>().wrapping_add(i), *word) } {
                    return Some(answer(Err(Errno::FAULT)) as c_int);
                }
            }
        }
    }
    drop(lists);
    Some(said(result))
}

/// `select(2)`. As Linux does, it says how much time is left.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    x: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let given = || {
        if timeout.is_null() {
            return Some(None);
        }
        let [seconds, microseconds] = user_access::read(timeout.cast::<[i64; 2]>())?;
        let (seconds, more) = (u64::try_from(seconds).ok()?, u64::try_from(microseconds).ok()?);
        Some(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(more))))
    };
    let begun = PROCESS.tcp.in_use().then(std::time::Instant::now);
    let before = begun.and_then(|_| given()).flatten();
    match selected(n, [r, w, x], given, core::ptr::null()) {
        // SAFETY: the program's own arguments.
        None => unsafe { real::select(n, r, w, x, timeout) },
        Some(result) => {
            if let (Some(begun), Some(before)) = (begun, before) {
                let left = before.saturating_sub(begun.elapsed());
                let left = [left.as_secs() as i64, i64::from(left.subsec_micros())];
                // SAFETY: the program's own.
                unsafe { give(timeout.cast(), left) };
            }
            result
        }
    }
}

/// `pselect(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    x: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own arguments.
    selected(n, [r, w, x], || time(timeout), mask)
        .unwrap_or_else(|| unsafe { real::pselect(n, r, w, x, timeout, mask) })
}

/// `epoll_create(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's own argument.
    made(unsafe { real::epoll_create(size) })
}

/// `epoll_create1(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's own argument.
    made(unsafe { real::epoll_create1(flags) })
}

fn made(set: c_int) -> c_int {
    if set >= 0 && PROCESS.tcp.begun() {
        PROCESS.tcp.set_made(set);
    }
    set
}

/// `epoll_ctl(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // (Packed: twelve bytes.)
    let given = || {
        let [events, low, high]: [u32; 3] = user_access::read(event.cast())?;
        Some(Event { events, data: u64::from(low) | u64::from(high) << 32 })
    };
    let ours =
        if PROCESS.tcp.in_use() { PROCESS.tcp.epoll_ctl(set, operation, fd, given) } else { None };
    match ours {
        Some(result) => answer(result) as c_int,
        // SAFETY: the program's own arguments.
        None => unsafe { real::epoll_ctl(set, operation, fd, event) },
    }
}

/// So many events are told at once at most.
const EVENTS: usize = 64;

/// Waits: here, where a connection is in the set; else by `plain`, as long as that is so. (Closures
/// that own what they name let the compiler make the plain call with a jump: see
/// [`concerns_nobody`](super::memory_common::concerns_nobody).)
#[inline]
fn waited(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: impl Fn() -> Option<Option<Duration>>,
    mask: *const sigset_t,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    if !PROCESS.tcp.in_use() || room <= 0 {
        return plain();
    }
    waited_for_rings(set, events, room, timeout, mask, plain)
}

#[inline(never)]
fn waited_for_rings(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: impl Fn() -> Option<Option<Duration>>,
    mask: *const sigset_t,
    plain: impl FnOnce() -> c_int,
) -> c_int {
    let here = || {
        PROCESS.tcp.thread_may_end();
        let mut got = [Event::default(); EVENTS];
        let room = (room as usize).min(EVENTS);
        let result = PROCESS.tcp.epoll_wait(set, &mut got[..room], timeout()?, mask_of(mask))?;
        if let Ok(count) = result {
            for (i, event) in got[..count].iter().enumerate() {
                let words = [event.events, event.data as u32, (event.data >> 32) as u32];
                // SAFETY: the program's own list.
                if !unsafe { give(events.wrapping_add(i).cast(), words) } {
                    return Some(answer(Err(Errno::FAULT)) as c_int);
                }
            }
        }
        Some(said(result))
    };
    if let Some(result) = here() {
        return result;
    }
    let count = plain();
    if count <= 0 {
        return count;
    }
    // A connection was added meanwhile: its door is no event of the program's.
    let mut left = 0;
    for i in 0..count as usize {
        let Some(event) = user_access::read(events.wrapping_add(i).cast::<[u32; 3]>()) else {
            return count;
        };
        if u64::from(event[1]) | u64::from(event[2]) << 32 == set::door() {
            continue;
        }
        if left != i {
            // SAFETY: the program's own list.
            unsafe { give(events.wrapping_add(left).cast(), event) };
        }
        left += 1;
    }
    if left == 0 { here().unwrap_or(0) } else { left as c_int }
}

pub(super) unsafe extern "C" fn epoll_wait_ours(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
) -> c_int {
    let time = move || Some(milliseconds(timeout));
    // SAFETY: the program's own arguments.
    let plain = move || unsafe { real::epoll_wait(set, events, room, timeout) };
    waited(set, events, room, time, core::ptr::null(), plain)
}

pub(super) unsafe extern "C" fn epoll_pwait_ours(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let time = move || Some(milliseconds(timeout));
    // SAFETY: the program's own arguments.
    let plain = move || unsafe { real::epoll_pwait(set, events, room, timeout, mask) };
    waited(set, events, room, time, mask, plain)
}

/// `epoll_pwait2(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own arguments.
    let plain = move || unsafe { real::epoll_pwait2(set, events, room, timeout, mask) };
    waited(set, events, room, move || time(timeout), mask, plain)
}

const _: () = assert!(size_of::<epoll_event>() == 12 && size_of::<pollfd>() == 8);
const _: () = assert!(size_of::<*mut c_void>() == 8);
