//! Descriptors of our own: how they are closed, where they lie in the program's table, and tables of our threads' own.
//!
//! unsafe: closes what it owns; changes the calling thread's table of descriptors.

use crate::call::syscall4;
use crate::inject;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, Ordering};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use uncopy_inject::Call;

/// A descriptor that is closed by a direct system call. The standard library's `OwnedFd` is closed by libc's `close`, which is
/// the program's (a cancellation point, our own shim), sets `errno`, and needs a thread that libc knows.
#[derive(Debug)]
pub struct OwnFd(ManuallyDrop<OwnedFd>);

impl OwnFd {
    /// It is not owned any more: its number.
    pub fn into_raw(self) -> i32 {
        ManuallyDrop::new(self).as_raw_fd()
    }
}

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

/// The number of a descriptor of ours, for whoever asks without a lock. (Zeros are none, so that what has many costs no memory before
/// they are used.)
#[derive(Debug)]
pub struct AtomicFd(AtomicI32);

impl Default for AtomicFd {
    fn default() -> Self {
        Self::none()
    }
}

impl AtomicFd {
    /// None.
    pub const fn none() -> Self {
        Self(AtomicI32::new(0))
    }

    /// The number; -1: none.
    #[inline]
    pub fn get(&self) -> i32 {
        !self.0.load(Ordering::Relaxed)
    }

    /// It is `fd` from now on; -1: none.
    pub fn set(&self, fd: i32) {
        self.0.store(!fd, Ordering::Relaxed);
    }

    /// There is none any more. Returns what there was.
    pub fn take(&self) -> i32 {
        !self.0.swap(!-1, Ordering::Relaxed)
    }

    /// The number `fd` is somebody else's now.
    pub fn forget(&self, fd: i32) {
        let _ = self.0.compare_exchange(!fd, !-1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A duplicate of `fd`, at a number from `least` on.
///
/// # Errors
/// When no descriptor is free there.
pub fn duplicate(fd: impl AsFd, least: i32) -> Result<OwnFd, Errno> {
    inject::check(Call::Dup)?;
    rustix::io::fcntl_dupfd_cloexec(fd, least).map(OwnFd::from)
}

/// Where our descriptors lie in the program's table: high, but not so high that the table grows for them alone.
pub fn floor() -> i32 {
    getrlimit(Resource::Nofile).current.unwrap_or(1024).min(1024).saturating_sub(16) as i32
}

/// A duplicate of `fd` where our descriptors lie.
///
/// # Errors
/// When no descriptor is free there.
pub fn lift(fd: impl AsFd) -> Result<OwnFd, Errno> {
    duplicate(fd, floor())
}

/// Leaves this thread with a descriptor table of its own that holds only ours: what the program
/// closes is closed, and what it closes of ours stays open here. Returns false where that is not to be
/// had: then the thread must end (a file of the program's would stay open as long as it lives, or the
/// program could put another file at our number).
pub fn keep_only(ours: [i32; 2]) -> bool {
    let (low, high) = (ours[0].min(ours[1]) as u32, ours[0].max(ours[1]) as u32);
    // SAFETY: from the first call on the table is this thread's alone (CLOSE_RANGE_UNSHARE).
    unsafe {
        let close = |from: u32, to: u32, flags: usize| {
            let call = libc::SYS_close_range as usize;
            from > to
                || inject::check(Call::CloseRange).is_ok()
                    && syscall4(call, from as usize, to as usize, flags, 0) == 0
        };
        const UNSHARE: usize = 2;
        close(high + 1, u32::MAX, UNSHARE)
            && close(low + 1, high - 1, 0)
            && (low == 0 || close(0, low - 1, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_none_until_it_is_set_and_after_it_was_somebody_elses() {
        let fd = AtomicFd::none();
        assert_eq!(fd.get(), -1);
        fd.set(0);
        assert_eq!(fd.get(), 0);
        fd.forget(1);
        assert_eq!(fd.get(), 0);
        fd.forget(0);
        assert_eq!(fd.get(), -1);
        fd.set(7);
        assert_eq!((fd.take(), fd.get()), (7, -1));
    }
}
