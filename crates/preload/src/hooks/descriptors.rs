//! close and its kin: our descriptors are not the program's to close. (If it closes them past
//! these shims, the monitor's own table still holds them: nothing is lost, eliding stops.)
//!
//! unsafe: see the crate.

pub use super::own::close;
use crate::process::PROCESS;
use crate::{real, summary};
use core::ffi::{c_int, c_uint};
use libc::{EBADF, EBUSY};
use uncopy_kernel::descriptors::{is_kept, kept_between, perhaps_ours};
use uncopy_lend::pipes::PIPES;
use uncopy_log_service::PlainReason;

fn all_ours() -> [c_int; 4 + PIPES] {
    let mut all = [-1; 4 + PIPES];
    all[..3].copy_from_slice(&PROCESS.space.descriptors());
    all[3] = summary::descriptor();
    all[4..].copy_from_slice(&PROCESS.lending.descriptors());
    all
}

#[inline]
fn ours(fd: c_int) -> bool {
    perhaps_ours(fd) && is_listed(fd)
}

#[cold]
fn is_listed(fd: c_int) -> bool {
    all_ours().contains(&fd) || is_kept(fd)
}

/// `close(2)` of what is perhaps ours, or a ring's.
pub(super) unsafe extern "C" fn close_perhaps_ours(fd: c_int) -> c_int {
    // SAFETY: the program's own argument; to it, ours are not open.
    unsafe {
        if ours(fd) {
            *libc::__errno_location() = EBADF;
            return -1;
        }
        PROCESS.log.closes(fd);
        if PROCESS.tcp.in_use() {
            return PROCESS.tcp.close(fd, || real::close(fd));
        }
        real::close(fd)
    }
}

/// `close_range(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if first <= last && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        // SAFETY: the program's own.
        PROCESS.tcp.close_between(first, last, |fd| unsafe { _ = real::close(fd) });
    }
    let of_sockets = PROCESS.tcp.in_use().then(|| {
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            PROCESS.log.close_between(first, last);
        }
        kept_between(first, last)
    });
    let others = all_ours().into_iter().filter(|fd| *fd >= 0).map(|fd| fd as c_uint);
    let mut kept: Vec<c_uint> = others.chain(of_sockets.into_iter().flatten()).collect();
    kept.sort_unstable();
    let kept = kept.into_iter();
    let mut from = first;
    // SAFETY: the program's own range, in parts that leave ours out. The first call takes the
    // flags' meaning for all (CLOSE_RANGE_UNSHARE makes the table private once).
    unsafe {
        if first > last || !kept.clone().any(|fd| (first..=last).contains(&fd)) {
            return real::close_range(first, last, flags);
        }
        for fd in kept.filter(|fd| (first..=last).contains(fd)) {
            if from < fd && real::close_range(from, fd - 1, flags) != 0 {
                return -1;
            }
            from = fd + 1;
        }
        if from <= last { real::close_range(from, last, flags) } else { 0 }
    }
}

/// `closefrom(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as above; where close_range is refused, libc's own way is taken.
    unsafe {
        if close_range(first.max(0) as c_uint, c_uint::MAX, 0) != 0 {
            real::closefrom(first);
        }
    }
}

/// Makes way for a descriptor that the program wants at `new`. False: there is none. (`EBUSY` is
/// what the kernel says where another thread is about to open that number.)
fn make_way(new: c_int) -> bool {
    if is_kept(new) {
        // SAFETY: errno's address is always valid.
        unsafe { *libc::__errno_location() = EBUSY };
        return false;
    }
    if ours(new) {
        PROCESS.make_way(new);
    }
    true
}

/// Makes a duplicate of `old` by `call`; one with this number, which closes what it is. (Where
/// there is a log `tcp` is in use: `Tcp::attend`.)
#[inline]
fn duplicate(old: c_int, new: Option<c_int>, call: impl FnOnce() -> c_int) -> c_int {
    if PROCESS.tcp.in_use() { duplicate_perhaps_ours(old, new, call) } else { call() }
}

#[inline(never)]
fn duplicate_perhaps_ours(old: c_int, new: Option<c_int>, call: impl FnOnce() -> c_int) -> c_int {
    if let Some(new) = new
        && old != new
        && PROCESS.log.in_use()
        // SAFETY: asks only. (Where it is no descriptor nothing is closed.)
        && unsafe { real::fcntl(old, libc::F_GETFD, 0) } >= 0
    {
        PROCESS.log.replaced(new);
    }
    let made = PROCESS.tcp.duplicate(old, new, call);
    PROCESS.log.duplicated(old, made);
    made
}

/// `dup(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(old: c_int) -> c_int {
    // SAFETY: the program's own argument.
    duplicate(old, None, || unsafe { real::dup(old) })
}

/// `pidfd_getfd(2)`: of this process itself that is a duplicate. (A duplicate that another process
/// takes so of a descriptor of ours is reported to nobody.)
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
    let [process, fd, flags] = [process as usize, fd as usize, flags as usize];
    // SAFETY: the program's own arguments. (Older libraries have no function of this name.)
    let got = unsafe { real::syscall(libc::SYS_pidfd_getfd as isize, process, fd, flags, 0, 0, 0) };
    PROCESS.tcp.came(got as c_int);
    got as c_int
}

/// `dup2(2)`: a number that the program wants and we hold is made free.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if !make_way(new) {
        return -1;
    }
    // SAFETY: the program's own arguments.
    duplicate(old, Some(new), || unsafe { real::dup2(old, new) })
}

/// `dup3(2)`: as [`dup2`].
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if flags & !libc::O_CLOEXEC != 0 {
        // SAFETY: the program's own arguments. The kernel refuses them, and closes nothing.
        return unsafe { real::dup3(old, new, flags) };
    }
    if !make_way(new) {
        return -1;
    }
    // SAFETY: the program's own arguments.
    duplicate(old, Some(new), || unsafe { real::dup3(old, new, flags) })
}

/// `fcntl(2)`: duplicates, and says whether calls wait. (It is variadic in C; what it reads lies in
/// the same registers.)
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if PROCESS.tcp.in_use() {
            return fcntl_perhaps_ours(fd, command, argument);
        }
        real::fcntl(fd, command, argument)
    }
}

#[inline(never)]
unsafe fn fcntl_perhaps_ours(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own arguments.
    let call = || unsafe { fcntl_of_file(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => PROCESS.tcp.duplicate(fd, None, call),
        libc::F_SETFL => {
            let result = call();
            if result == 0 {
                let nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
                PROCESS.tcp.set_nonblocking(fd, nonblocking);
                if argument as c_int & libc::O_ASYNC != 0 {
                    // Only the kernel sends its signal.
                    PROCESS.tcp.give_to_linux(fd);
                }
            }
            result
        }
        _ => call(),
    }
}

/// The commands of `fcntl(2)` that concern files whose appends may be held.
unsafe fn fcntl_of_file(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real::fcntl(fd, command, argument) };
    if !PROCESS.log.in_use() {
        return call();
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let made = call();
            PROCESS.log.duplicated(fd, made);
            made
        }
        libc::F_GETFL => PROCESS.log.flags_told(fd, call()),
        libc::F_SETFL => {
            let plain = PROCESS.log.plainly(fd, PlainReason::NotAppended);
            let result = call();
            drop(plain);
            if result == 0 {
                PROCESS.log.flags_set(fd, argument as c_int);
            }
            result
        }
        // (A lease, or signals, of the program's own.)
        libc::F_SETLEASE | libc::F_GETLEASE | libc::F_SETOWN | 10 | 15 => {
            PROCESS.log.plain_for_good(fd, PlainReason::Mode);
            call()
        }
        _ => call(),
    }
}

/// `fcntl64`: on x86-64 the same.
///
/// # Safety
/// As for [`fcntl`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same function.
    unsafe { fcntl(fd, command, argument) }
}
