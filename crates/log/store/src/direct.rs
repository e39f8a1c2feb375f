//! The store for today's disks: a file whose blocks were all written once, so that a flush changes
//! no metadata and needs no journal, and O_DIRECT with RWF_DSYNC, so that it is one write. (A file
//! that was only `fallocate`d has extents that are unwritten: each first write to one of these is a
//! change of metadata, and no faster than an append.)

use crate::failed::Failed;
use crate::file::{Staged, new_file, read_by, written};
use crate::staging::{STAGED, Staging};
use crate::store::{Kind, Store};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fcntl_setfl, fdatasync, openat};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, pwrite, pwritev2};
use uncopy_inject::Call;
use uncopy_kernel::inject;

/// Zeros are written in pieces of this many bytes.
const ZEROS: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub struct Direct(Staged);

impl Direct {
    /// A new one, of zeros that are on the disk once it returns.
    ///
    /// # Errors
    /// The step that failed.
    pub fn create(directory: BorrowedFd<'_>, name: &str, bytes: u64) -> Result<Self, Failed> {
        let file = new_file(directory, name)?;
        let mut staging = Staging::new(STAGED).map_err(Failed::to("get memory for the log"))?;
        direct(&file)?;
        write_zeros(&file, &mut staging, bytes)?;
        inject::check(Call::LogSync)
            .and_then(|()| fdatasync(&file))
            .map_err(Failed::to("make the new log file durable"))?;
        sync_directory(directory)?;
        Ok(Self(Staged { file, bytes, staging }))
    }

    /// One that was made before.
    ///
    /// # Errors
    /// The step that failed.
    pub fn open(file: OwnedFd) -> Result<Self, Failed> {
        direct(&file)?;
        Staged::open(file).map(Self)
    }
}

/// The file system takes writes past the page cache.
fn direct(file: &OwnedFd) -> Result<(), Failed> {
    inject::check(Call::LogDirect)
        .and_then(|()| rustix::fs::fcntl_getfl(file))
        .and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT))
        .map_err(|why| Failed {
            what: "write the log past the page cache (O_DIRECT)",
            why,
            hint: "name a directory on a file system that has O_DIRECT: --log=DIR",
        })
}

/// The directory's entry is durable: a log that cannot be found was none.
fn sync_directory(directory: BorrowedFd<'_>) -> Result<(), Failed> {
    // (A descriptor that is a path alone cannot be synced.)
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(directory, ".", flags, Mode::empty())
        .and_then(rustix::fs::fsync)
        .map_err(Failed::to("make the log's directory durable"))
}

fn write_zeros(file: &OwnedFd, staging: &mut Staging, bytes: u64) -> Result<(), Failed> {
    let zeros = &mut staging.bytes_mut()[..ZEROS];
    zeros.fill(0);
    let mut at = 0;
    while at < bytes {
        let most = zeros.len().min((bytes - at) as usize);
        let wrote = written(Call::LogZeros, most, |most| pwrite(file, &zeros[..most], at))
            .map_err(Failed::to("fill the new log file with zeros"))?;
        at += wrote as u64;
    }
    Ok(())
}

impl Store for Direct {
    fn kind(&self) -> Kind {
        Kind::Direct
    }

    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    fn memory(&mut self) -> &mut [u8] {
        self.0.staging.bytes_mut()
    }

    fn flush(&mut self, at: u64, bytes: usize) -> Result<(), Errno> {
        self.0.flush(at, bytes, |file, piece, at| {
            pwritev2(file, &[IoSlice::new(piece)], at, ReadWriteFlags::DSYNC)
        })
    }

    fn read(&self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        read_by(&self.0.file, at, to)
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}
