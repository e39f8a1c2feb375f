//! A set of connections, over either stack.

use crate::calls;
use crate::event::Id;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Context as Library, Flow, Set, Waiting};

/// See above.
#[derive(Debug)]
pub(crate) enum Watch {
    /// The library's.
    Rings(Set),
    /// epoll.
    Sockets {
        /// The set.
        set: OwnedFd,
        /// It asks again and again instead of sleeping.
        spins: bool,
    },
}

impl Watch {
    pub fn new(library: Option<&Arc<Library>>, waiting: Waiting) -> Result<Self, Errno> {
        Ok(match library {
            Some(library) => {
                let kernel = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                Self::Rings(Set::new(library.clone(), kernel)?)
            }
            None => Self::Sockets { set: calls::epoll_create()?, spins: waiting == Waiting::Spin },
        })
    }

    pub fn add(
        &self,
        fd: RawFd,
        flow: Option<&Arc<Flow>>,
        events: u32,
        id: Id,
    ) -> Result<(), Errno> {
        match self {
            Self::Rings(set) => set.add(fd, flow.cloned(), events, id.0),
            Self::Sockets { set, .. } => {
                calls::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, Event { events, data: id.0 })
            }
        }
    }

    pub fn modify(&self, fd: RawFd, events: u32, id: Id) -> Result<(), Errno> {
        match self {
            Self::Rings(set) => set.modify(fd, events, id.0),
            Self::Sockets { set, .. } => {
                calls::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, Event { events, data: id.0 })
            }
        }
    }

    pub fn remove(&self, fd: RawFd) -> Result<(), Errno> {
        match self {
            Self::Rings(set) => set.remove(fd),
            Self::Sockets { set, .. } => {
                calls::epoll_ctl(set, libc::EPOLL_CTL_DEL, fd, Event::default())
            }
        }
    }

    /// Those that have something. None waits without end.
    pub fn wait(&self, events: &mut [Event], timeout: Option<Duration>) -> Result<usize, Errno> {
        match self {
            Self::Rings(set) => set.wait(events, timeout),
            Self::Sockets { set, spins: false } => calls::epoll_wait(set, events, timeout),
            Self::Sockets { set, spins: true } => {
                let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                loop {
                    match calls::epoll_wait(set, events, Some(Duration::ZERO)) {
                        Ok(0) if end.is_none_or(|end| Instant::now() < end) => {}
                        done => return done,
                    }
                }
            }
        }
    }
}
