//! close and its kin: our descriptors are not the program's to close. (If it closes them past
//! these shims, the monitor's own table still holds them: nothing is lost, eliding stops.)
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::{real, summary};
use core::ffi::{c_int, c_uint};
use libc::EBADF;
use uncopy_lend::pipes::PIPES;

fn all_ours() -> [c_int; 4 + PIPES] {
    let mut all = [-1; 4 + PIPES];
    all[..3].copy_from_slice(&PROCESS.space.descriptors());
    all[3] = summary::descriptor();
    all[4..].copy_from_slice(&PROCESS.lending.descriptors());
    all
}

fn ours(fd: c_int) -> bool {
    fd >= 0 && all_ours().contains(&fd)
}

/// `close(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    // SAFETY: the program's own argument; to it, ours are not open.
    unsafe {
        if ours(fd) {
            *libc::__errno_location() = EBADF;
            return -1;
        }
        real::close(fd)
    }
}

/// `close_range(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut kept = all_ours();
    kept.sort_unstable();
    let kept = kept.into_iter().filter(|fd| *fd >= 0).map(|fd| fd as c_uint);
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
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: as above; where close_range is refused, libc's own way is taken.
    unsafe {
        if close_range(first.max(0) as c_uint, c_uint::MAX, 0) != 0 {
            real::closefrom(first);
        }
    }
}

/// `dup2(2)`: a number that the program wants and we hold is made free.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if ours(new) {
        PROCESS.make_way(new);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::dup2(old, new) }
}

/// `dup3(2)`: as [`dup2`].
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if ours(new) {
        PROCESS.make_way(new);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::dup3(old, new, flags) }
}
