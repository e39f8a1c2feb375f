//! The socket to Linux' rtnetlink.

use crate::messages::{self, All, Said};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The groups of linux/rtnetlink.h: RTMGRP_LINK, RTMGRP_NEIGH, RTMGRP_IPV4_IFADDR,
/// RTMGRP_IPV4_ROUTE.
const NEWS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 6;
/// A datagram of the kernel's is 32 KB at most (NLMSG_GOODSIZE and what a dump asks for).
const LONGEST: usize = 32 << 10;

/// See the module.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Kernel {
    /// A socket that hears of changes, if `news`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open(news: bool) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // (NETLINK_ROUTE is the first protocol.)
            None,
        )?;
        let groups = if news { NEWS } else { 0 };
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { socket, buffer: vec![0; LONGEST].into() })
    }

    /// Readable when there is something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Those of sendto(2).
    pub fn send(&self, request: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, request, SendFlags::empty(), &kernel)?;
        Ok(())
    }

    /// Sends a request that is answered, and waits for that.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.send(request)?;
        loop {
            match self.receive(true)?.and_then(|said| said.answer) {
                None => {}
                Some(0) => return Ok(()),
                Some(error) => return Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// The next datagram; none, where there is none and it is not to be waited for.
    ///
    /// # Errors
    /// ENOBUFS: there was more news than room. All is to be asked for anew.
    pub fn receive(&mut self, wait: bool) -> io::Result<Option<Said>> {
        let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            return match rustix::net::recvfrom(&self.socket, &mut *self.buffer, flags) {
                Ok((length, _, from)) => {
                    let from = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if from.is_none_or(|from| from.pid() != 0) {
                        // Not the kernel's.
                        continue;
                    }
                    Ok(Some(messages::read(&self.buffer[..length])))
                }
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }

    /// Asks for all of a kind, and hands what is said until that has come to `each`.
    ///
    /// # Errors
    /// As of [`receive`](Self::receive).
    pub fn all(&mut self, what: All, mut each: impl FnMut(Said)) -> io::Result<()> {
        self.send(&messages::dump(what))?;
        loop {
            let Some(said) = self.receive(true)? else { continue };
            let done = said.done;
            if let Some(error) = said.answer.filter(|error| *error != 0) {
                return Err(io::Error::from_raw_os_error(error));
            }
            each(said);
            if done {
                return Ok(());
            }
        }
    }
}
