//! The calls that protect memory, or lock ranges of it.
//!
//! unsafe: see the crate.

use super::memory_common::{alter, make_ordinary, on_the_programs};
use crate::real;
use core::ffi::{c_int, c_uint, c_void};
use libc::size_t;

/// `mprotect(2)`: memory that the program must not reach is not ours to serve.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, n: size_t, prot: c_int) -> c_int {
    if prot != libc::PROT_READ | libc::PROT_WRITE {
        make_ordinary(addr as usize, n);
        alter(addr, n);
    }
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::mprotect(addr, n, prot) })
}

/// `pkey_mprotect(2)`: as [`mprotect`].
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    addr: *mut c_void,
    n: size_t,
    prot: c_int,
    key: c_int,
) -> c_int {
    make_ordinary(addr as usize, n);
    alter(addr, n);
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::pkey_mprotect(addr, n, prot, key) })
}

/// `mlock(2)`: the kernel itself has views materialized, by faults.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(addr: *const c_void, n: size_t) -> c_int {
    alter(addr, n);
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::mlock(addr, n) })
}

/// `mlock2(2)`: as [`mlock`].
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(addr: *const c_void, n: size_t, flags: c_uint) -> c_int {
    alter(addr, n);
    // SAFETY: the program's own arguments.
    on_the_programs(addr, n, |addr, n| unsafe { real::mlock2(addr, n, flags) })
}
