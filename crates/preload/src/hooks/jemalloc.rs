//! jemalloc's own interface (`jemalloc(3)`), where a program links jemalloc: blocks of `malloc` may be given to it, so the twin
//! allocator's have to be known here; and large ones come from there too.
//!
//! A program that asks by weak symbols whether there is a jemalloc also asks for `mallctl`, which is not here. Without a
//! jemalloc behind us all of these still do what their man page says.
//!
//! unsafe: see the crate.

use super::allocate::{clear, end_views_of, free, invalid, malloc_usable_size, memalign};
use super::copy::move_block;
use crate::real;
use core::ffi::{c_int, c_void};
use libc::size_t;
use uncopy_core::span::{PAGE, Span, page_up};
use uncopy_vm::twin::{self, NoBlock};

/// `MALLOCX_LG_ALIGN`'s bits.
const LG_ALIGN: c_int = 63;
/// `MALLOCX_ZERO`.
const ZERO: c_int = 64;
/// `MALLOCX_ARENA` begins here: an arena of the program's own, which may end with all its blocks.
const ARENA_SHIFT: u32 = 20;
/// What every allocator aligns by.
const ALIGNED: usize = 16;

fn alignment(flags: c_int) -> usize {
    1 << (flags & LG_ALIGN)
}

fn zeroed(flags: c_int) -> bool {
    flags & ZERO != 0
}

/// Whether a block of `n` bytes may come from the twin allocator.
fn joins(n: usize, flags: c_int) -> bool {
    twin::wants(n) && flags.cast_unsigned() >> ARENA_SHIFT == 0 && alignment(flags) <= PAGE
}

fn owned_size(p: *const c_void) -> usize {
    twin::usable_size(p as usize).unwrap_or_else(|NoBlock| invalid("sallocx"))
}

/// `mallocx(3)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallocx(n: size_t, flags: c_int) -> *mut c_void {
    // SAFETY: a new block, or the program's own arguments.
    unsafe {
        if joins(n, flags)
            && let Some(given) = twin::allocate(n)
        {
            if zeroed(flags) && !given.zeros {
                clear(Span::sized(given.addr, page_up(n)));
            }
            return given.addr as *mut c_void;
        }
        if real::jemalloc() {
            return real::mallocx(n, flags);
        }
        let p = memalign(alignment(flags).max(ALIGNED), n);
        if zeroed(flags) && !p.is_null() {
            p.cast::<u8>().write_bytes(0, malloc_usable_size(p));
        }
        p
    }
}

/// `rallocx(3)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rallocx(p: *mut c_void, n: size_t, flags: c_int) -> *mut c_void {
    // SAFETY: the program's block; what it held moves along.
    unsafe {
        let ours = twin::owns(p as usize);
        if !ours && real::jemalloc() && !joins(n, flags) {
            return real::rallocx(p, n, flags);
        }
        let size = sallocx(p, flags);
        // (Its pages are aligned as whatever may be asked of them.)
        if ours && alignment(flags) <= PAGE && resize(p, n) {
            zero_behind(p, size, flags);
            return p;
        }
        let grown = if joins(n, flags) { twin::allocate_grown(n, p as usize) } else { None };
        let other = match grown {
            Some(given) => given.addr as *mut c_void,
            None => mallocx(n, flags & !ZERO),
        };
        if other.is_null() {
            return other;
        }
        move_block(other, p, size.min(n));
        zero_behind(other, size.min(n), flags);
        dallocx(p, flags);
        other
    }
}

/// Where zeros are asked for: what the block at `p` has beyond `size` bytes.
unsafe fn zero_behind(p: *mut c_void, size: usize, flags: c_int) {
    // SAFETY: the program's block.
    unsafe {
        let now = sallocx(p, flags);
        if zeroed(flags) && now > size {
            p.cast::<u8>().add(size).write_bytes(0, now - size);
        }
    }
}

fn resize(p: *mut c_void, n: usize) -> bool {
    twin::resize(p as usize, n).unwrap_or_else(|NoBlock| invalid("rallocx"))
}

/// `xallocx(3)`: grows or shrinks the block where it lies, as far as it can.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(p: *mut c_void, n: size_t, extra: size_t, flags: c_int) -> size_t {
    // SAFETY: the program's block.
    unsafe {
        if !twin::owns(p as usize) {
            return if real::jemalloc() {
                real::xallocx(p, n, extra, flags)
            } else {
                malloc_usable_size(p)
            };
        }
        let size = owned_size(p);
        let _ = resize(p, n.saturating_add(extra)) || resize(p, n);
        zero_behind(p, size, flags);
        owned_size(p)
    }
}

/// `sallocx(3)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(p: *const c_void, flags: c_int) -> size_t {
    if twin::owns(p as usize) {
        return owned_size(p);
    }
    // SAFETY: the program's own arguments.
    unsafe {
        if real::jemalloc() { real::sallocx(p, flags) } else { malloc_usable_size(p.cast_mut()) }
    }
}

/// `dallocx(3)`: ends the views of the block.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dallocx(p: *mut c_void, flags: c_int) {
    // SAFETY: the program's block.
    unsafe {
        if twin::owns(p as usize) || !real::jemalloc() || real::is_early(p) {
            return free(p);
        }
        end_views_of(p);
        real::dallocx(p, flags);
    }
}

/// `sdallocx(3)`: likewise.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdallocx(p: *mut c_void, n: size_t, flags: c_int) {
    // SAFETY: the program's block.
    unsafe {
        if twin::owns(p as usize) || !real::jemalloc() || real::is_early(p) {
            return free(p);
        }
        end_views_of(p);
        real::sdallocx(p, n, flags);
    }
}

/// `nallocx(3)`: what [`sallocx`] would say of a block that [`mallocx`] would return.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nallocx(n: size_t, flags: c_int) -> size_t {
    if joins(n, flags) && twin::suits(n) {
        return page_up(n);
    }
    // SAFETY: the program's own arguments. (No block is shorter than what was asked for.)
    if real::jemalloc() { unsafe { real::nallocx(n, flags) } } else { n }
}
