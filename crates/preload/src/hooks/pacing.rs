//! listen and connect over the loopback device: such connections are not paced (`uncopy_lend::pacing`), where output goes by reference.
//!
//! unsafe: see the crate.

use crate::process::PROCESS;
use crate::real;
use core::ffi::c_int;
use libc::{sockaddr, socklen_t};
use uncopy_kernel::reading;
use uncopy_lend::pacing;

fn lends() -> bool {
    PROCESS.lending.from() != usize::MAX
}

/// What cannot be read is the kernel's to say.
fn heed(fd: c_int, addr: *const u8, len: usize) {
    if len >= size_of::<libc::sockaddr_in6>() {
        let read: Option<[u8; size_of::<libc::sockaddr_in6>()]> = reading::read(addr.cast());
        read.inspect(|address| pacing::before_connect(fd, address));
    } else if len >= size_of::<libc::sockaddr_in>() {
        let read: Option<[u8; size_of::<libc::sockaddr_in>()]> = reading::read(addr.cast());
        read.inspect(|address| pacing::before_connect(fd, address));
    }
}

/// `listen(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if lends() {
        pacing::before_listen(fd);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::listen(fd, backlog) }
}

/// `connect(2)`.
///
/// # Safety
/// As its man page says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    if lends() {
        heed(fd, addr.cast(), len as usize);
    }
    // SAFETY: the program's own arguments.
    unsafe { real::connect(fd, addr, len) }
}
