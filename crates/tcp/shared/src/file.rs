//! Memory files. The limit of a file's length (RLIMIT_FSIZE) is theirs, too: what is longer raises
//! SIGXFSZ, which ends a program that does not expect it.

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::os::fd::OwnedFd;

/// EFBIG: this process makes no file of so many bytes.
pub fn may_be_of(bytes: u64) -> Result<(), Errno> {
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|most| most < bytes) { Err(Errno::FBIG) } else { Ok(()) }
}

/// A new one of so many bytes, all zeros, to be sealed.
pub fn create(name: &str, bytes: usize) -> Result<OwnedFd, Errno> {
    may_be_of(bytes as u64)?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Rlimit, setrlimit};

    /// (All of a process' threads have one limit: a test of its own kind would meet others' files.
    /// These are few pages.)
    #[test]
    fn none_is_made_that_the_limit_of_files_forbids() {
        let before = getrlimit(Resource::Fsize);
        let most = 1 << 40;
        setrlimit(Resource::Fsize, Rlimit { current: Some(most), ..before }).unwrap();
        assert_eq!(may_be_of(most), Ok(()));
        assert_eq!(create("x", most as usize + 1).unwrap_err(), Errno::FBIG);
        setrlimit(Resource::Fsize, before).unwrap();
        assert_eq!(may_be_of(u64::MAX >> 1), Ok(()));
    }
}
