//! The store for tests, and to emulate persistent memory: a file that is written and never flushed.
//! In tmpfs it outlives programs, and no reboot.

use crate::failed::Failed;
use crate::file::{Staged, new_file, read_by};
use crate::store::{Kind, Store};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::ftruncate;
use rustix::io::{Errno, pwrite};
use uncopy_inject::Call;
use uncopy_kernel::inject;

/// See the module.
#[derive(Debug)]
pub struct Memory(Staged);

impl Memory {
    /// A new one, of zeros.
    ///
    /// # Errors
    /// The step that failed.
    pub fn create(directory: BorrowedFd<'_>, name: &str, bytes: u64) -> Result<Self, Failed> {
        let file = new_file(directory, name)?;
        inject::check(Call::LogZeros)
            .and_then(|()| ftruncate(&file, bytes))
            .map_err(Failed::to("give the log file its length"))?;
        Self::open(file)
    }

    /// One that was made before.
    ///
    /// # Errors
    /// The step that failed.
    pub fn open(file: OwnedFd) -> Result<Self, Failed> {
        Staged::open(file).map(Self)
    }
}

impl Store for Memory {
    fn kind(&self) -> Kind {
        Kind::Memory
    }

    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn memory(&mut self) -> &mut [u8] {
        self.0.staging.bytes_mut()
    }

    fn flush(&mut self, at: u64, bytes: usize) -> Result<(), Errno> {
        self.0.flush(at, bytes, |file, piece, at| pwrite(file, piece, at))
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        read_by(&self.0.file, at, to)
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}
