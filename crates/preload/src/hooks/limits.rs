//! The calls that lock all memory, or limit it: address space that only we use must not count then.
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_uint};
use libc::{pid_t, rlimit};
use uncopy_kernel::{limits, user_access};

/// `mlockall(2)`: locked memory is never unmapped, and the pool must not be locked with it.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    PROCESS.before_lock_all();
    PROCESS.twin().close();
    if flags & libc::MCL_ONFAULT == 0 {
        PROCESS.tcp.locks_memory();
    }
    // SAFETY: the program's own argument.
    unsafe { real::mlockall(flags) }
}

/// A limit of this process changes, by `call`: address space that only we use must not count
/// against one that the program sets.
unsafe fn limiting(resource: c_uint, new: *const rlimit, call: impl FnOnce() -> c_int) -> c_int {
    let Some([new, _]) = user_access::read(new.cast::<[u64; 2]>()) else { return call() };
    if !limits::lowers(resource, (new != libc::RLIM_INFINITY).then_some(new)) {
        return call();
    }
    PROCESS.twin().close();
    PROCESS.limiting(call)
}

/// `setrlimit(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
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
/// The caller keeps the contract of the man page.
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
