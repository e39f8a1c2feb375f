//! One pipe of ours, through which pages reach a socket: made when it is first needed, recognized
//! before each use.
//!
//! unsafe: closes our own descriptor.

use crate::ask::status;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::fd::AsRawFd;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::descriptors::{AtomicFd, OwnFd, lift};
use uncopy_kernel::inject;

/// Bytes that a pipe should hold, best first; 1 MB is what the kernel allows to all
/// (`pipe-max-size`). With less than the last it is of no use.
const ROOM: [usize; 4] = [2 << 20, 1 << 20, 256 << 10, 64 << 10];
/// See the module.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) busy: AtomicBool,
    /// Open for both reading and writing, so that there is one descriptor to be sure of.
    pub(crate) fd: AtomicFd,
    /// Tells whether the number is still ours: programs close numbers past us.
    inode: AtomicU64,
}

impl Slot {
    /// No pipe.
    pub(crate) const fn new() -> Self {
        Self { busy: AtomicBool::new(false), fd: AtomicFd::none(), inode: AtomicU64::new(0) }
    }

    /// Claims it for a call, unless another has it.
    pub(crate) fn claim(&self) -> bool {
        !self.busy.load(Ordering::Relaxed) && !self.busy.swap(true, Ordering::Acquire)
    }

    pub(crate) fn ours(&self) -> bool {
        let fd = self.fd.get();
        fd >= 0 && status(fd) == Some((FileType::Fifo, self.inode.load(Ordering::Relaxed)))
    }

    pub(crate) fn close(&self) {
        let ours = self.ours();
        let fd = self.fd.take();
        if ours {
            // SAFETY: it is our pipe; nobody uses it.
            unsafe { syscall4(libc::SYS_close as usize, fd as usize, 0, 0, 0) };
        }
    }

    /// Its call will not go on.
    pub(crate) fn abandon(&self) {
        self.close();
        self.busy.store(false, Ordering::Release);
    }

    pub(crate) fn open(&self) -> Result<(), Errno> {
        inject::check(Call::Pipe)?;
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        // (Each closed by a direct system call: libc's is where a thread that is to be cancelled
        // would end, in the middle of this.)
        let (read, write) = rustix::pipe::pipe_with(flags)?;
        let (_read, write) = (OwnFd::from(read), OwnFd::from(write));
        let set = |room: &usize| {
            inject::check(Call::PipeSize)
                .and_then(|()| rustix::pipe::fcntl_setpipe_size(&write, *room))
                .is_ok()
        };
        if !ROOM.iter().any(set) && rustix::pipe::fcntl_getpipe_size(&write)? < ROOM[ROOM.len() - 1]
        {
            return Err(Errno::NOMEM);
        }
        let mut path = [0u8; 32];
        let name = {
            use std::io::Write;
            let mut to = &mut path[..31];
            let _ = write!(to, "/proc/self/fd/{}", write.as_raw_fd());
            core::ffi::CStr::from_bytes_until_nul(&path).map_err(|_| Errno::INVAL)?
        };
        inject::check(Call::Open)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let both = OwnFd::from(rustix::fs::open(name, flags, rustix::fs::Mode::empty())?);
        let both = lift(&both).unwrap_or(both);
        let (_, inode) = status(both.as_raw_fd()).ok_or(Errno::BADF)?;
        self.inode.store(inode, Ordering::Relaxed);
        self.fd.set(both.into_raw());
        Ok(())
    }
}
