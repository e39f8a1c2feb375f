//! A log's file is made, and opened, by the kind of its store.

use crate::dax::Dax;
use crate::direct::Direct;
use crate::failed::Failed;
use crate::memory::Memory;
use crate::store::{Kind, Store};
use rustix::fd::{AsFd, OwnedFd};

/// A new log file `name` in `directory`, `bytes` long, all of it zeros; one that was there is
/// written over. Takes as long as the disk needs for so much.
///
/// # Errors
/// The step that failed, with the kernel's reason.
pub fn create(
    directory: impl AsFd,
    name: &str,
    bytes: u64,
    kind: Kind,
) -> Result<Box<dyn Store>, Failed> {
    let directory = directory.as_fd();
    Ok(match kind {
        Kind::Direct => Box::new(Direct::create(directory, name, bytes)?),
        Kind::Dax => Box::new(Dax::create(directory, name, bytes)?),
        Kind::Memory => Box::new(Memory::create(directory, name, bytes)?),
    })
}

/// The log file `file`, as [`create`] made it, whoever opened it.
///
/// # Errors
/// As [`create`].
pub fn open(file: OwnedFd, kind: Kind) -> Result<Box<dyn Store>, Failed> {
    Ok(match kind {
        Kind::Direct => Box::new(Direct::open(file)?),
        Kind::Dax => Box::new(Dax::open(file)?),
        Kind::Memory => Box::new(Memory::open(file)?),
    })
}
