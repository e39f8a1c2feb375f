//! io_uring: what is done through its rings goes past us. A program that sets one up has its
//! connections by Linux from then on.
//!
//! libuv is spared that. Since 1.49 it makes a ring for each loop, and does nothing with it but to
//! tell its epoll set of descriptors, several at a time. Where the kernel has no io_uring, as in
//! most containers, it calls `epoll_ctl` instead: so it is told that there is none. The test that
//! tells it apart is exact: the process has libuv, and the ring is as libuv makes that one. libuv's
//! other ring, for files (`UV_USE_IO_URING=1`), is polled by the kernel, and is like anybody's.
//!
//! unsafe: see the crate; the linker is asked for a symbol.

use crate::process::PROCESS;
use crate::real;
use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use uncopy_counters::add;
use uncopy_kernel::user_access;
use uncopy_tcp_socket::StayReason;

/// The kernel's `struct io_uring_params`: what the program asks for comes first, then what the
/// kernel answers.
const ASKED: usize = 10;
const FLAGS: usize = 2;
/// IORING_SETUP_NO_SQARRAY: libuv sets it where the kernel knows it (Linux 6.6).
const NO_SQARRAY: u32 = 1 << 16;
/// Entries of the ring by which libuv tells its set.
const OF_LIBUV: usize = 256;

/// `io_uring_setup(2)`.
///
/// # Safety
/// The caller keeps the contract of the man page.
pub(super) unsafe fn setup(entries: usize, parameters: *mut c_void) -> isize {
    let tcp = &PROCESS.tcp;
    if tcp.begun() && !tcp.is_stopped() {
        let asked: Option<[u32; ASKED]> = user_access::read(parameters.cast());
        if entries == OF_LIBUV && asked.is_some_and(is_as_libuvs) && has_libuv() {
            add(&PROCESS.space.counters().tcp_io_uring_refused, 1);
            // SAFETY: errno's address is always valid.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            return -1;
        }
        tcp.stop(StayReason::IoUring);
    }
    if PROCESS.log.begun() {
        PROCESS.log.stop(uncopy_log_service::PlainReason::PastUs);
    }
    // SAFETY: the program's own arguments.
    unsafe {
        real::syscall(libc::SYS_io_uring_setup as isize, entries, parameters as usize, 0, 0, 0, 0)
    }
}

fn is_as_libuvs(asked: [u32; ASKED]) -> bool {
    asked.iter().enumerate().all(|(at, word)| *word == 0 || at == FLAGS && *word == NO_SQARRAY)
}

/// Some object of this process defines libuv's functions. (They are public wherever they are:
/// Node's extensions call them, and uvloop, which nobody else can see, has not hidden them.)
fn has_libuv() -> bool {
    const NAME: &CStr = c"uv_loop_init";
    // SAFETY: a plain lookup.
    if !unsafe { libc::dlsym(libc::RTLD_DEFAULT, NAME.as_ptr()) }.is_null() {
        return true;
    }
    objects().iter().any(|object| {
        // SAFETY: it is not loaded by this, and not unloaded.
        unsafe {
            let handle = libc::dlopen(object.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            let found = !handle.is_null() && !libc::dlsym(handle, NAME.as_ptr()).is_null();
            if !handle.is_null() {
                libc::dlclose(handle);
            }
            found
        }
    })
}

/// The files that are loaded. (Not asked while the linker goes through them: it holds a lock then.)
fn objects() -> Vec<CString> {
    unsafe extern "C" fn one(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
        // SAFETY: the linker's own, for this call; the list is the caller's below.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() && *name != 0 {
                (*to.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    let mut all: Vec<CString> = Vec::new();
    // SAFETY: called while this function waits.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut all).cast()) };
    all
}
