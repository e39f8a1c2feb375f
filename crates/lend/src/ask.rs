//! Questions about the program's descriptors, and options that are set there for one send.
//!
//! unsafe: asks the kernel about a descriptor, into variables of ours.

use core::ffi::c_int;
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use uncopy_inject::Call;
use uncopy_kernel::call::{syscall4, syscall6};
use uncopy_kernel::inject;

/// The type of the open file, and the number of its inode.
pub(crate) fn status(fd: i32) -> Option<(FileType, u64)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: borrowed for one call, which answers EBADF where nothing is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let s = inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(fd)).ok()?;
    Some((FileType::from_raw_mode(s.st_mode), s.st_ino))
}

/// An option of a socket, and its length.
pub(crate) fn ask(fd: i32, level: c_int, name: c_int) -> Option<(c_int, u32)> {
    let (mut value, mut len) = (0u32, 4u32);
    let to = core::ptr::from_mut(&mut value) as usize;
    let length = core::ptr::from_mut(&mut len) as usize;
    let call = libc::SYS_getsockopt as usize;
    // SAFETY: the kernel writes at most four bytes, and how many.
    let r = unsafe { syscall6(call, [fd as usize, level as usize, name as usize, to, length, 0]) };
    (r == 0).then_some((value as c_int, len))
}

/// The flags of its status, as `fcntl` says them; below zero: nothing is open there.
pub(crate) fn status_flags(fd: i32) -> c_int {
    // SAFETY: a question.
    unsafe {
        syscall4(libc::SYS_fcntl as usize, fd as usize, libc::F_GETFL as usize, 0, 0) as c_int
    }
}

/// Whether it takes something now.
pub(crate) fn writable(fd: i32) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    let at = core::ptr::from_mut(&mut poll) as usize;
    // SAFETY: one entry, which the kernel writes to; it does not wait.
    let n = unsafe { syscall4(libc::SYS_poll as usize, at, 1, 0, 0) };
    n == 1 && poll.revents & (libc::POLLERR | libc::POLLHUP) == 0
}

/// Puts a cork into a TCP socket, or takes it out.
pub(crate) fn cork(fd: i32, value: u32) -> bool {
    let at = core::ptr::from_ref(&value) as usize;
    let (level, name) = (libc::SOL_TCP as usize, libc::TCP_CORK as usize);
    let call = libc::SYS_setsockopt as usize;
    // SAFETY: the kernel reads four bytes.
    unsafe { syscall6(call, [fd as usize, level, name, at, 4, 0]) == 0 }
}
