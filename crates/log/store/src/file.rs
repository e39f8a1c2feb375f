//! The common part of stores: calls on a log's file.

use crate::failed::Failed;
use crate::staging::{STAGED, Staging};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use uncopy_inject::{Call, Error};
use uncopy_kernel::inject;

/// Opens a file anew, as empty.
pub(crate) fn new_file(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Failed> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    inject::check(Call::LogOpen)
        .and_then(|()| openat(directory, name, flags, Mode::RUSR | Mode::WUSR))
        .map_err(Failed::to("make the log file"))
}

/// A log's file, and memory in which records are put together for it.
#[derive(Debug)]
pub(crate) struct Staged {
    pub file: OwnedFd,
    pub bytes: u64,
    pub staging: Staging,
}

impl Staged {
    /// Of a file that has its length.
    pub fn open(file: OwnedFd) -> Result<Self, Failed> {
        let bytes = length(&file)?;
        let staging = Staging::new(STAGED).map_err(Failed::to("get memory for the log"))?;
        Ok(Self { file, bytes, staging })
    }

    /// Writes so many bytes of that memory to `at`, in parts, by `write`, which is told what and
    /// where.
    pub fn flush(
        &self,
        at: u64,
        bytes: usize,
        write: impl Fn(&OwnedFd, &[u8], u64) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let from = self.staging.bytes();
        let mut done = 0;
        while done < bytes {
            done += written(Call::LogFlush, bytes - done, |most| {
                write(&self.file, &from[done..done + most], at + done as u64)
            })?;
        }
        Ok(())
    }
}

pub(crate) fn length(file: impl AsFd) -> Result<u64, Failed> {
    let stat = fstat(file).map_err(Failed::to("ask how long the log file is"))?;
    Ok(stat.st_size as u64)
}

/// Makes a call that writes `most` bytes, again where it was interrupted. (A part that is no whole
/// block could not be gone on with; one of whole blocks is what a test asks for.)
pub(crate) fn written(
    call: Call,
    most: usize,
    write: impl Fn(usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    loop {
        let most = match inject::draw(call, most <= 4096) {
            Some(Error::Short) => most / 2 / 4096 * 4096,
            Some(error) => return Err(inject::errno(error)),
            None => most,
        };
        match write(most.max(4096)) {
            Err(Errno::INTR) => {}
            // A device that takes nothing, and says no reason.
            Ok(0) => return Err(Errno::IO),
            other => return other,
        }
    }
}

/// Reads a log's file through memory that is aligned, whatever `to` is.
pub(crate) fn read_by(file: &OwnedFd, at: u64, to: &mut [u8]) -> Result<(), Errno> {
    let mut staging = Staging::new(STAGED)?;
    let mut done = 0;
    while done < to.len() {
        let place = at + done as u64;
        let (first, skip) = (place / 4096 * 4096, (place % 4096) as usize);
        inject::check(Call::LogRead)?;
        let got = match rustix::io::pread(file, &mut *staging.bytes_mut(), first) {
            Err(Errno::INTR) => continue,
            got => got?,
        };
        if got <= skip {
            to[done..].fill(0);
            return Ok(());
        }
        let n = (got - skip).min(to.len() - done);
        to[done..done + n].copy_from_slice(&staging.bytes()[skip..skip + n]);
        done += n;
    }
    Ok(())
}
