//! The stores that there are, and what one is.

use crate::home::{self, Homed};
use core::fmt;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Where a log's bytes lie. One process has a log's file at a time, and one thread the store.
pub trait Store: fmt::Debug + Send {
    /// Which it is.
    fn kind(&self) -> Kind;

    /// Length of the log in bytes.
    fn bytes(&self) -> u64;

    /// Memory in which the bytes for the log are put together, [`STAGED`](crate::staging::STAGED)
    /// of them at most. Bytes that were put there before are not in it any more, or are: the thread
    /// that flushes writes all that it flushes.
    fn memory(&mut self) -> &mut [u8];

    /// Puts the first `bytes` of [`memory`](Self::memory) at `at` of the log. They are durable once
    /// it returns (of [`Kind::Memory`]: they outlive the process). Both are whole blocks of 4 KB.
    ///
    /// # Errors
    /// The kernel's. Any part of the bytes may have become durable.
    fn flush(&mut self, at: u64, bytes: usize) -> Result<(), Errno>;

    /// Reads the log from `at` on. Where the file ends before, zeros follow.
    ///
    /// # Errors
    /// The kernel's.
    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Errno>;

    /// Its file, to be handed to another process.
    fn file(&self) -> BorrowedFd<'_>;

    /// Writes held bytes to the file that they belong to: see [`home::home`].
    fn home(&self, file: BorrowedFd<'_>, at: u64, bytes: &[u8], direct: bool) -> Homed {
        home::home(file, at, bytes, direct)
    }
}

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A preallocated file, past the page cache: durable.
    Direct,
    /// Persistent memory: durable.
    Dax,
    /// A file in memory, or one that nobody flushes: not durable, for tests and emulation.
    Memory,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Dax, Self::Memory];

    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Dax => "dax",
            Self::Memory => "memory",
        }
    }

    /// The one of this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
