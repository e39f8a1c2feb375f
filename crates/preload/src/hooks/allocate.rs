//! malloc and its kin: large blocks go to the twin allocator ([`uncopy_twin`]), all others to the
//! allocator behind us. And what ends with a block: its views.
//!
//! unsafe: see the crate.

use super::fill::clear;
use super::memory_common::{perhaps_tracked, with_room};
pub use super::own::{calloc, free, malloc, malloc_usable_size, posix_memalign, realloc};
use crate::facts::{GLIBC_MALLOC, USABLE_SIZE};
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;
use libc::size_t;
use uncopy_ranges::span::{PAGE, Span};
use uncopy_twin::Given;

/// Alignment that malloc promises.
const ALIGNED: usize = 16;

#[inline(never)]
fn large(size: usize) -> *mut c_void {
    address(PROCESS.twin().allocate(size))
}

#[inline(never)]
fn large_aligned(size: usize, align: usize) -> *mut c_void {
    address(PROCESS.twin().allocate_aligned(size, align))
}

fn grown(size: usize, from: *mut c_void) -> *mut c_void {
    address(PROCESS.twin().allocate_grown(size, from as usize))
}

/// Whether `p` is a block of the twin allocator's.
#[inline]
fn is_twins(p: *mut c_void) -> bool {
    PROCESS.twin().owns(p as usize) && PROCESS.twin().holds(p as usize)
}

fn address(given: Option<Given>) -> *mut c_void {
    given.map_or(core::ptr::null_mut(), |given| given.addr as *mut c_void)
}

/// Aborts with a message, as glibc does with a pointer that is no block.
#[cold]
fn invalid(call: &str) -> ! {
    // (Written past libc.)
    PROCESS.log.await_answers();
    let _ = rustix::io::write(rustix::stdio::stderr(), call.as_bytes());
    let _ = rustix::io::write(rustix::stdio::stderr(), b"(): invalid pointer\n");
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// A large block, or one that may be the mapping too many.
pub(super) unsafe extern "C" fn malloc_ours(n: size_t) -> *mut c_void {
    if PROCESS.twin().wants(n) {
        let p = large(n);
        if !p.is_null() {
            return p;
        }
    }
    // SAFETY: the program's own argument.
    with_room(core::ptr::null_mut(), || unsafe { real::malloc(n) })
}

/// The same, cleared: recycled pages are, but for those that are unmapped and read as zeros.
pub(super) unsafe extern "C" fn calloc_ours(n: size_t, each: size_t) -> *mut c_void {
    if let Some(bytes) = n.checked_mul(each)
        && PROCESS.twin().wants(bytes)
        && let Some(given) = PROCESS.twin().allocate(bytes)
    {
        if !given.zeros {
            // SAFETY: a block of that many bytes that nobody else has.
            unsafe { clear(Span::sized(given.addr, bytes), Span::sized(given.addr, bytes)) };
        }
        return given.addr as *mut c_void;
    }
    // SAFETY: the program's own arguments.
    with_room(core::ptr::null_mut(), || unsafe { real::calloc(n, each) })
}

/// `memalign(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: size_t, n: size_t) -> *mut c_void {
    if align <= PAGE && PROCESS.twin().wants(n) {
        let p = large_aligned(n, align);
        if !p.is_null() {
            return p;
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::memalign(align, n) }
}

/// `aligned_alloc(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: size_t, n: size_t) -> *mut c_void {
    if align <= PAGE && align.is_power_of_two() && PROCESS.twin().wants(n) {
        let p = large_aligned(n, align);
        if !p.is_null() {
            return p;
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::aligned_alloc(align, n) }
}

/// A large block.
pub(super) unsafe extern "C" fn posix_memalign_ours(
    to: *mut *mut c_void,
    align: size_t,
    n: size_t,
) -> c_int {
    let plain = align <= PAGE && align.is_power_of_two() && align >= size_of::<usize>();
    if plain && PROCESS.twin().wants(n) {
        let p = large_aligned(n, align);
        if !p.is_null() {
            // SAFETY: where the program wants the address.
            unsafe { *to = p };
            return 0;
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real::posix_memalign(to, align, n) }
}

/// Of a block that is perhaps the twin allocator's.
pub(super) unsafe extern "C" fn usable_size(p: *mut c_void) -> size_t {
    if is_twins(p) {
        return PROCESS
            .twin()
            .usable_size(p as usize)
            .unwrap_or_else(|_| invalid("malloc_usable_size"));
    }
    // SAFETY: the program's own argument.
    unsafe { real::malloc_usable_size(p) }
}

/// glibc keeps the size of a block in the word before it; its low three bits are flags.
const FLAGS: usize = 7;
/// This one says that the block is a mapping of its own, which `free` unmaps (malloc/malloc.c,
/// `IS_MMAPPED`).
const IS_MMAPPED: usize = 2;

/// Frees a block that is, or holds, something of ours; or nothing of ours after all.
pub(super) unsafe extern "C" fn free_ours(p: *mut c_void) {
    if is_twins(p) {
        return free_large(p);
    }
    // SAFETY: the program's own argument: a block of the allocator behind us.
    unsafe {
        if PROCESS.space.running() {
            before_free(p);
        }
        if !real::is_early(p) {
            real::free(p);
        }
    }
}

// (Apart, as is the next one: most blocks are small, and programs free them by the million.)
#[inline(never)]
fn free_large(p: *mut c_void) {
    if PROCESS.twin().free(p as usize).is_err() {
        invalid("free");
    }
}

/// Ends the views of a block of the allocator behind us, if there are any.
#[inline(never)]
unsafe fn before_free(p: *mut c_void) {
    if p.is_null() || !USABLE_SIZE.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the caller's promise; glibc keeps the word before a block.
    unsafe {
        if GLIBC_MALLOC.load(Ordering::Relaxed) {
            let word = *p.cast::<usize>().sub(1);
            let size = word & !FLAGS;
            if size > PAGE && perhaps_tracked(p as usize, size) {
                end_views(p, word & IS_MMAPPED != 0);
            }
        } else if perhaps_tracked(p as usize, PAGE + 1) {
            end_views(p, false);
        }
    }
}

/// `free_sized` (C23; glibc has it since 2.43): the block knows its size itself.
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(p: *mut c_void, _size: size_t) {
    // SAFETY: the program's own argument.
    unsafe { free(p) }
}

/// `free_aligned_sized` (C23).
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(p: *mut c_void, _alignment: size_t, _size: size_t) {
    // SAFETY: the program's own argument.
    unsafe { free(p) }
}

/// glibc's own `free`, which a program's wrapper may call for what our `malloc` gave it. (Before us
/// another allocator may stand: its `free` does not know glibc's blocks.)
///
/// # Safety
/// As for [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_free(p: *mut c_void) {
    // SAFETY: the program's own argument.
    unsafe {
        if is_twins(p) || real::is_early(p) || GLIBC_MALLOC.load(Ordering::Relaxed) {
            free(p);
        } else {
            real::__libc_free(p);
        }
    }
}

/// glibc's own `realloc`: as [`__libc_free`].
///
/// # Safety
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_realloc(p: *mut c_void, n: size_t) -> *mut c_void {
    // SAFETY: the program's own arguments.
    unsafe {
        if is_twins(p) || GLIBC_MALLOC.load(Ordering::Relaxed) {
            realloc(p, n)
        } else {
            real::__libc_realloc(p, n)
        }
    }
}

#[cold]
unsafe fn end_views(p: *mut c_void, unmaps: bool) {
    // SAFETY: a block of the allocator behind us, as the program's `free` promises.
    let size = unsafe { real::malloc_usable_size(p) };
    // A smaller block cannot hold a whole unmapped page: what is left of its bytes in a neighbour's
    // page ends with that.
    if size < PAGE {
        return;
    }
    let block = Span::sized(p as usize, size);
    if unmaps {
        // Another thread may be given the same addresses by an allocator whose mmap we do not see,
        // before the kernel's report of the unmapping is read: forget them now.
        PROCESS.space.with_after_fork(|b| b.forget(block));
    } else {
        PROCESS.space.freed(block);
    }
}

/// A block that holds views grows by views, not by libc's own (unseen) copy, which
/// would touch every page. A block of the twin allocator grows where it lies, as a rule.
pub(super) unsafe extern "C" fn realloc_ours(p: *mut c_void, n: size_t) -> *mut c_void {
    // SAFETY: the program's own arguments; a new block is as good as a grown one.
    unsafe {
        if p.is_null() {
            return malloc(n);
        }
        if is_twins(p) {
            return resize(p, n);
        }
        if n == 0 || !USABLE_SIZE.load(Ordering::Relaxed) {
            return real::realloc(p, n);
        }
        let joins = PROCESS.twin().wants(n);
        if !joins && !perhaps_tracked(p as usize, PAGE + 1) {
            return real::realloc(p, n);
        }
        let size = real::malloc_usable_size(p);
        let block = Span::sized(p as usize, size);
        let viewed = size >= PROCESS.space.threshold()
            && perhaps_tracked(p as usize, size)
            && PROCESS.space.with(|b| b.views_in(block)) == Some(true);
        if n <= size || !(joins || viewed) {
            return real::realloc(p, n);
        }
        let mut other = if joins { grown(n, p) } else { core::ptr::null_mut() };
        if other.is_null() {
            if !viewed {
                return real::realloc(p, n);
            }
            other = real::malloc(n);
        }
        move_block(p, other, size)
    }
}

/// Grows or shrinks a block of the twin allocator.
unsafe fn resize(p: *mut c_void, n: usize) -> *mut c_void {
    // SAFETY: the program's block; what it held moves along.
    unsafe {
        if n == 0 {
            free(p);
            return core::ptr::null_mut();
        }
        match PROCESS.twin().resize(p as usize, n) {
            Ok(true) => return p,
            Ok(false) => {}
            Err(_) => invalid("realloc"),
        }
        let size = malloc_usable_size(p).min(n);
        let mut other = if PROCESS.twin().wants(n) { grown(n, p) } else { core::ptr::null_mut() };
        if other.is_null() {
            other = real::malloc(n);
        }
        move_block(p, other, size)
    }
}

unsafe fn move_block(from: *mut c_void, to: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: two blocks of at least `size` bytes; the caller gives `from` up.
    unsafe {
        if !to.is_null() {
            super::copy::move_block(to, from, size);
            free(from);
        }
    }
    to
}

/// `reallocarray(3)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(p: *mut c_void, n: size_t, each: size_t) -> *mut c_void {
    // SAFETY: the program's own arguments.
    unsafe {
        match n.checked_mul(each) {
            Some(bytes) => realloc(p, bytes),
            None => real::reallocarray(p, n, each),
        }
    }
}

const _: () = assert!(PAGE.is_multiple_of(ALIGNED), "blocks begin on pages");
