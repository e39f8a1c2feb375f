//! The orders of a sender, and the memory that it works with.

// Unsafe: blocks of malloc and a mapped file, which live as long as the process.

use std::io;

use serde::{Deserialize, Serialize};

use super::content::fill;
use super::receiver::Address;

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SendMethod {
    /// `send`.
    Send,
    /// `send` with `MSG_ZEROCOPY`, its completions reaped.
    Zerocopy,
    /// `sendfile` from a file in memory.
    Sendfile,
    /// `IORING_OP_SEND_ZC`, its notifications reaped.
    Uring,
}

impl SendMethod {
    /// The name that people write.
    pub fn text(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Zerocopy => "MSG_ZEROCOPY",
            Self::Sendfile => "sendfile",
            Self::Uring => "io_uring SEND_ZC",
        }
    }
}

/// The sender's orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SendPlan {
    /// Bytes in a message.
    pub size: usize,
    /// Buffers that are sent in turns.
    pub buffers: usize,
    /// Whether every byte of a buffer is written anew before each send.
    pub fresh: bool,
    /// How.
    pub way: SendMethod,
    /// Where to.
    pub address: Address,
}

impl SendPlan {
    /// The content of message number `n`.
    pub fn content(&self, n: u64) -> u64 {
        if self.fresh { n } else { n % self.buffers as u64 }
    }
}

/// The buffers: blocks of malloc, or pieces of a mapped file in memory for `sendfile`.
pub struct SendBuffers {
    buffers: Vec<*mut u8>,
    size: usize,
    /// The file, where there is one.
    pub file: Option<std::os::fd::OwnedFd>,
}

impl SendBuffers {
    /// The buffers that the plan asks for.
    pub fn new(plan: &SendPlan) -> io::Result<Self> {
        let size = plan.size;
        let mut memory = if plan.way == SendMethod::Sendfile {
            Self::in_file(plan.buffers, size)?
        } else {
            let block = |_| {
                // SAFETY: any size may be asked for.
                let block: *mut u8 = unsafe { libc::calloc(size, 1) }.cast();
                if block.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(block) }
            };
            let buffers = (0..plan.buffers).map(block).collect::<io::Result<_>>()?;
            Self { buffers, size, file: None }
        };
        for i in 0..plan.buffers {
            fill(memory.buffer(i), plan.content(i as u64));
        }
        Ok(memory)
    }

    fn in_file(count: usize, size: usize) -> io::Result<Self> {
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"uncopy-bench".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = count * size;
        let failed = || io::Error::last_os_error();
        // SAFETY: calls on our own descriptor; a new mapping that replaces nothing.
        let at = unsafe {
            if libc::ftruncate(file.as_raw_fd(), len as i64) != 0 {
                return Err(failed());
            }
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(failed());
        }
        let buffers = (0..count).map(|i| at.cast::<u8>().wrapping_add(i * size)).collect();
        Ok(Self { buffers, size, file: Some(file) })
    }

    /// Buffer number `i`.
    pub fn buffer(&mut self, i: usize) -> &mut [u8] {
        // SAFETY: blocks of `size` initialized bytes that live as long as the process, each lent
        // once at a time; the kernel only reads them.
        unsafe { std::slice::from_raw_parts_mut(self.buffers[i], self.size) }
    }
}
