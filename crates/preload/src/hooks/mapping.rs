//! The calls that map, and unmap.
//!
//! Changes that the kernel reports by itself (munmap, madvise, brk, mappings over others, by
//! whomever: `UFFD_FEATURE_EVENT_*`) need no shim. These shims are for changes that it does not
//! report, or reports too late.
//!
//! unsafe: see the crate.

use super::memory_common::{after_unmapping, alter, mapped_anew, over, tracked, with_room};
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_void};
use libc::{off_t, size_t};
use uncopy_ranges::span::{Span, page_down};

/// `mmap(2)`: addresses that come back while the report of their unmapping is still on its way
/// must not be taken for the old ones.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    n: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    // SAFETY: the program's own arguments.
    let map =
        || with_room(libc::MAP_FAILED, || unsafe { real::mmap(addr, n, prot, flags, fd, at) });
    if flags & libc::MAP_FIXED != 0 {
        alter(addr, n);
        return over(addr, n, || {
            let mapped = map();
            (mapped, mapped != libc::MAP_FAILED)
        });
    }
    let mapped = map();
    PROCESS.space.await_line();
    if mapped != libc::MAP_FAILED {
        mapped_anew(Span::sized(mapped as usize, n));
    }
    mapped
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

/// `munmap(2)`: the addresses may be another thread's before the kernel's report is read, so they
/// leave the books first.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, n: size_t) -> c_int {
    alter(addr, n);
    over(addr, n, || {
        // SAFETY: the program's own arguments.
        let result = with_room(-1, || unsafe { real::munmap(addr, n) });
        (result, result == 0)
    })
}

/// `shmat(2)`: as `mmap`, and a segment put in place of other memory (`SHM_REMAP`). The kernel
/// reports the unmapping of every other call, but not of this one (ipc/shm.c, `do_shmat`).
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: the program's own arguments; the segment's size is written where the kernel knows it.
    unsafe {
        let mut about: libc::shmid_ds = core::mem::zeroed();
        if !PROCESS.space.serving() || libc::shmctl(id, libc::IPC_STAT, &mut about) != 0 {
            return real::shmat(id, addr, flags);
        }
        if flags & libc::SHM_REMAP == 0 {
            let at = real::shmat(id, addr, flags);
            if at as isize != -1 {
                mapped_anew(Span::sized(at as usize, about.shm_segsz));
            }
            return at;
        }
        let start =
            if flags & libc::SHM_RND != 0 { page_down(addr as usize) } else { addr as usize };
        let span = Span::sized(start, about.shm_segsz).covering_pages();
        PROCESS.twin().alter(span);
        let detached = if tracked(span) { PROCESS.space.detach(span) } else { None };
        let excluded = PROCESS.space.unmapping(span);
        let result = real::shmat(id, addr, flags);
        after_unmapping(detached, excluded, result as isize != -1);
        result
    }
}
