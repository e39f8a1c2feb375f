//! The calls that change the memory map.
//!
//! What the kernel reports by itself (munmap, madvise, brk, mappings over others, by whomever:
//! `UFFD_FEATURE_EVENT_*`) needs no shim. These are for what it does not report, or reports too
//! late.
//!
//! unsafe: see the crate.

use crate::real;
use core::ffi::{c_int, c_ulong, c_void};
use libc::{iovec, off_t, size_t};
use uncopy_core::span::{PAGE, Span, page_down};
use uncopy_stack::buffers::each;
use uncopy_vm::{reading, space};

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
    let result = unsafe { real::madvise(addr, n, advice) };
    // A child must not find there what was copied later, either.
    let of_children = [libc::MADV_WIPEONFORK, libc::MADV_DONTFORK];
    if result == 0 && of_children.contains(&advice) && space::wanted() {
        space::exclude(Span::sized(addr as usize, n));
    }
    result
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
    space::before_lock_all();
    uncopy_vm::twin::before_lock_all();
    // SAFETY: the program's own argument.
    unsafe { real::mlockall(flags) }
}

/// The kernel's `UFFDIO_REGISTER`: its argument begins with the range, as address and length.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;

/// `ioctl(2)`: memory that the program registers with a userfaultfd of its own must not be
/// registered with ours, for the kernel allows one (EBUSY).
///
/// # Safety
/// As its man page says. (It is variadic in C; what it reads lies in the same registers.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if request == UFFDIO_REGISTER
            && space::serving()
            && let Some([addr, len]) = reading::read(argument.cast::<[u64; 2]>())
        {
            hand_back(addr as usize, len as usize);
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
        if flags & libc::SHM_REMAP == 0
            || !space::running()
            || libc::shmctl(id, libc::IPC_STAT, &mut about) != 0
        {
            return real::shmat(id, addr, flags);
        }
        let start =
            if flags & libc::SHM_RND != 0 { page_down(addr as usize) } else { addr as usize };
        let span = Span::sized(start, about.shm_segsz).hull();
        if !tracked(span) {
            return real::shmat(id, addr, flags);
        }
        let Some(detached) = space::detach(span) else { return real::shmat(id, addr, flags) };
        let result = real::shmat(id, addr, flags);
        space::after_unmapping(detached, result as isize != -1);
        result
    }
}
