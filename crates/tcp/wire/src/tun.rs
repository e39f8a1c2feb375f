//! A TUN device: IPv4 packets that Linux sends by it are read here. It is gone, with its routes,
//! when its descriptor is closed, also by the death of its process.

use crate::tap::attach;
use libc::{IFF_NO_PI, IFF_TUN};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read};
use std::io;

/// See the module.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
}

impl Tun {
    /// Makes a device; a `%d` in the name becomes the first number that is free. It is down.
    ///
    /// # Errors
    /// No `/dev/net/tun`, or no right to use it (CAP_NET_ADMIN); a name that the kernel does not
    /// take.
    pub fn open(name: &str) -> io::Result<Self> {
        let (fd, name) = attach(name, IFF_TUN | IFF_NO_PI)?;
        Ok(Self { fd, name })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next packet's length, up to the buffer's; none, where none is there.
    ///
    /// # Errors
    /// The device is gone, or down.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match read(&self.fd, packet) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
