//! Memory that outlives the program, for bytes that are held: a file in tmpfs. A touched page of it
//! without room behind it is SIGBUS, so room is taken first.

use crate::failed::Failed;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstat, ftruncate, open};
use rustix::io::Errno;
use std::path::Path;
use uncopy_inject::Call;
use uncopy_kernel::inject;

/// See the module.
#[derive(Debug)]
pub struct HeldMemory {
    file: OwnedFd,
}

impl HeldMemory {
    /// A new file at `path`, `bytes` long, without room for any of them.
    ///
    /// # Errors
    /// The step that failed; EEXIST: there is one.
    pub fn create(path: &Path, bytes: u64) -> Result<Self, Failed> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = inject::check(Call::LogOpen)
            .and_then(|()| open(path, flags, Mode::RUSR | Mode::WUSR))
            .map_err(Failed::to("make the log's memory"))?;
        inject::check(Call::LogMemory)
            .and_then(|()| ftruncate(&file, bytes))
            .map_err(Failed::to("give the log's memory its length"))?;
        Ok(Self { file })
    }

    /// The one at `path`; its length in bytes beside it.
    ///
    /// # Errors
    /// The step that failed; ENOENT: there is none. EINVAL: it is no file of this user's alone.
    pub fn open(path: &Path) -> Result<(Self, u64), Failed> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = inject::check(Call::LogOpen)
            .and_then(|()| open(path, flags, Mode::empty()))
            .map_err(Failed::to("open the log's memory"))?;
        let stat = fstat(&file).map_err(Failed::to("look at the log's memory"))?;
        // (In a directory that all users write to, somebody else may have been faster.)
        let own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0;
        if !own {
            return Err(Failed::to("trust the log's memory: it is another user's")(Errno::INVAL));
        }
        Ok((Self { file }, stat.st_size as u64))
    }

    /// Memory that another process handed over.
    pub fn of(file: OwnedFd) -> Self {
        Self { file }
    }

    /// Takes room for `bytes` from `at` on, so that touching them is no SIGBUS.
    ///
    /// # Errors
    /// The kernel's: ENOSPC where tmpfs has no more.
    pub fn back(&self, at: u64, bytes: u64) -> Result<(), Errno> {
        back(self.file.as_fd(), at, bytes)
    }
}

/// As [`HeldMemory::back`], of a file that somebody else keeps.
///
/// # Errors
/// As [`HeldMemory::back`].
pub fn back(file: BorrowedFd<'_>, at: u64, bytes: u64) -> Result<(), Errno> {
    loop {
        let taken = inject::check(Call::LogMemory)
            .and_then(|()| fallocate(file, FallocateFlags::empty(), at, bytes));
        // (tmpfs gives up where a signal is pending, and has taken nothing then.)
        if taken != Err(Errno::INTR) {
            return taken;
        }
    }
}

impl AsFd for HeldMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
