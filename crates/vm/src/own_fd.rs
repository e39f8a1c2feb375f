//! A descriptor that is closed by a direct system call. The standard library's `OwnedFd` is closed by libc's `close`, which is
//! the program's (a cancellation point, our own shim), sets `errno`, and needs a thread that libc knows.
//!
//! unsafe: closes what it owns.

use core::mem::ManuallyDrop;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// See the module.
#[derive(Debug)]
pub(crate) struct OwnFd(ManuallyDrop<OwnedFd>);

impl From<OwnedFd> for OwnFd {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for OwnFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for OwnFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        // SAFETY: owned, and not used after this.
        unsafe { rustix::io::close(self.0.as_raw_fd()) };
    }
}
