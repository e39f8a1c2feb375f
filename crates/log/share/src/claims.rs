//! Claims to live, and to take over what a dead service has left: locks on bytes of the shared
//! file. They are the description's (F_OFD_SETLK), so that they end with whoever has it, and nobody
//! has to find out whether a holder lives.
//!
//! unsafe: a system call with a structure of ours.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::descriptors::OwnFd;

/// Bytes behind all that is mapped: of entries, then of programs.
const ENTRIES: i64 = 1 << 40;
const CLIENTS: i64 = 1 << 62;

/// A claim.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// To bring the bytes of this entry home in the service's place.
    Entry(usize),
    /// The claim to be this program.
    Client(u64),
}

/// This process's own description of the shared file: claims are its.
#[derive(Debug)]
pub struct Claims(OwnFd);

impl Claims {
    /// Of the shared file `memory`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(memory: impl AsFd) -> Result<Self, Errno> {
        Self::kept(memory, Ok)
    }

    /// As [`Claims::of`]; its descriptor goes through `keep`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kept(
        memory: impl AsFd,
        keep: impl Fn(OwnedFd) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Errno> {
        let path = format!("/proc/self/fd/{}", memory.as_fd().as_raw_fd());
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        keep(fd).map(|fd| Self(OwnFd::from(fd)))
    }

    fn lock(&self, command: i32, kind: i32, what: Claim) -> Result<libc::flock, Errno> {
        let start = match what {
            Claim::Entry(slot) => ENTRIES + slot as i64,
            Claim::Client(client) => CLIENTS + (client % (1 << 61)) as i64,
        };
        let mut lock = libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: start,
            l_len: 1,
            l_pid: 0,
        };
        let fd = self.0.as_fd().as_raw_fd() as usize;
        let at = (&raw mut lock) as usize;
        // SAFETY: the structure that the call wants, as long as it takes.
        let result = unsafe { syscall4(libc::SYS_fcntl as usize, fd, command as usize, at, 0) };
        if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(lock) }
    }

    /// Claims it, if nobody else does; true: it is this process's from now on.
    pub fn claim(&self, what: Claim) -> bool {
        self.lock(libc::F_OFD_SETLK, libc::F_WRLCK, what).is_ok()
    }

    /// Gives it up.
    pub fn give_up(&self, what: Claim) {
        let _ = self.lock(libc::F_OFD_SETLK, libc::F_UNLCK, what);
    }

    /// Somebody else has claimed it.
    pub fn is_others(&self, what: Claim) -> bool {
        // (Where that cannot be asked, somebody may have.)
        self.lock(libc::F_OFD_GETLK, libc::F_WRLCK, what)
            .is_ok_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
    }

    /// Its number, to be kept open.
    pub fn fd(&self) -> i32 {
        self.0.as_fd().as_raw_fd()
    }
}
