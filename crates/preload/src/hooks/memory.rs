//! The calls that change the memory map.
//!
//! What the kernel reports by itself (munmap, madvise, brk, mappings over others, by whomever:
//! `UFFD_FEATURE_EVENT_*`) needs no shim. These are for what it does not report, or reports too
//! late.
//!
//! unsafe: see the crate.

use crate::real;
use core::ffi::{c_int, c_void};
use libc::{off_t, size_t};
use uncopy_core::span::{PAGE, Span};
use uncopy_vm::space;

#[inline]
pub(super) fn perhaps_tracked(addr: usize, len: usize) -> bool {
    space::serving() && len > 0 && space::FILTER.perhaps_tracked(addr, len)
}

fn tracked(span: Span) -> bool {
    perhaps_tracked(span.start, span.len()) && space::tracks(span)
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
    // SAFETY: the program's own arguments.
    let mapped = unsafe { real::mmap(addr, n, prot, flags, fd, at) };
    if mapped != libc::MAP_FAILED {
        let span = Span::sized(mapped as usize, n);
        if tracked(span) {
            space::settle();
            space::with_after_fork(|b| b.forget(span.hull()));
        }
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
    // SAFETY: the program's own arguments.
    unsafe {
        if !(addr as usize).is_multiple_of(PAGE) || !tracked(span) {
            return real::munmap(addr, n);
        }
        let Some(detached) = space::detach(span) else { return real::munmap(addr, n) };
        let result = real::munmap(addr, n);
        space::after_unmapping(detached, result == 0);
        result
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

/// `madvise(2)`: what children see, or how pages are made, is decided for resident memory; the
/// dropping of pages is reported by the kernel.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, n: size_t, advice: c_int) -> c_int {
    let dropped = [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE];
    let harmless = [
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
    ];
    if !dropped.contains(&advice) && !harmless.contains(&advice) {
        hand_back(addr as usize, n);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::madvise(addr, n, advice) }
}

/// `mprotect(2)`: memory that the program must not reach is not ours to serve.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, n: size_t, prot: c_int) -> c_int {
    if prot != libc::PROT_READ | libc::PROT_WRITE {
        hand_back(addr as usize, n);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::mprotect(addr, n, prot) }
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
    // SAFETY: the program's own arguments.
    unsafe { real::pkey_mprotect(addr, n, prot, key) }
}

/// `mlockall(2)`: locked memory is never unmapped, and the pool must not be locked with it.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    if space::wanted() {
        space::before_lock_all();
    }
    // SAFETY: the program's own argument.
    unsafe { real::mlockall(flags) }
}
