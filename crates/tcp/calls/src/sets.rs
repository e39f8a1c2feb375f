//! epoll: a set is the kernel's until a connection is added to it.

use crate::entry::Entry;
use crate::epoll::Epoll;
use crate::tcp::Tcp;
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use uncopy_tcp_socket::Set;
use uncopy_tcp_socket::set::Event;

/// By level: the kernel, whose buffers have room while the ring has none, would say so again and
/// again. And what is exclusive cannot be changed there.
fn asks_for_room_exclusively(events: u32) -> bool {
    let room = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
    let has = |flag: i32| events & flag as u32 != 0;
    events & room != 0 && has(libc::EPOLLEXCLUSIVE) && !has(libc::EPOLLET)
}

impl Tcp {
    /// `fd` is a new set.
    pub fn set_made(&self, fd: RawFd) {
        if self.is_own() {
            let older = self.table.put(fd, Entry::Set(Arc::new(Epoll::new(fd))));
            self.was_closed(older);
        }
    }

    fn epoll(&self, fd: RawFd) -> Option<Arc<Epoll>> {
        match &*self.find(fd)? {
            Entry::Set(epoll) => Some(epoll.clone()),
            Entry::Connection(_) => None,
        }
    }

    /// epoll_ctl(2). `None`: it is Linux's.
    pub fn epoll_ctl(
        &self,
        set: RawFd,
        operation: i32,
        fd: RawFd,
        event: impl Fn() -> Option<Event>,
    ) -> Option<Result<usize, Errno>> {
        let connection = self.connection(fd);
        if connection.is_none()
            && operation == libc::EPOLL_CTL_ADD
            && let Some(inner) = self.epoll(fd)
        {
            inner.is_waited_for();
        }
        if connection.is_none() && self.is_own() && self.find(fd).is_none() {
            match operation {
                libc::EPOLL_CTL_ADD => self.added_early(set, fd, event()?),
                libc::EPOLL_CTL_MOD => self.changed_early(set, fd, Some(event()?)),
                _ => self.changed_early(set, fd, None),
            }
        }
        let epoll = self.epoll(set);
        if operation != libc::EPOLL_CTL_ADD {
            // A descriptor that was added once is known by the set, whatever became of it.
            let set = epoll?.set()?;
            return match operation {
                libc::EPOLL_CTL_MOD => {
                    let Event { events, data } = event()?;
                    Some(set.modify(fd, events, data).map(|()| 0))
                }
                libc::EPOLL_CTL_DEL => Some(set.remove(fd).map(|()| 0)),
                _ => None,
            };
        }
        let connection = connection?;
        let Event { events, data } = event()?;
        if asks_for_room_exclusively(events) {
            self.give_to_linux(fd);
        }
        let set = self.set_with(set).ok()?;
        Some(set.add(fd, Some(connection.flow.clone()), events, data).map(|()| 0))
    }

    /// The set `fd`, which gets a connection. One that was made past us is known from now on; a
    /// number that is a connection's is no set.
    pub(crate) fn set_with(&self, fd: RawFd) -> Result<Arc<Set>, Errno> {
        if self.find(fd).is_none() {
            self.set_made(fd);
        }
        let epoll = self.epoll(fd).ok_or(Errno::INVAL)?;
        match epoll.set() {
            Some(set) => Ok(set),
            None if !self.is_own() => Err(Errno::INVAL),
            None => epoll.made(self.context().ok_or(Errno::NOMEM)?),
        }
    }

    /// The set `fd`, if it has a connection.
    pub fn set(&self, fd: RawFd) -> Option<Arc<Set>> {
        match &*self.find(fd)? {
            Entry::Set(epoll) => epoll.set(),
            Entry::Connection(_) => None,
        }
    }

    /// epoll_wait(2) and its kin. `None`: it is Linux's.
    pub fn epoll_wait(
        &self,
        fd: RawFd,
        events: &mut [Event],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Option<Result<usize, Errno>> {
        let set = self.set(fd)?;
        Some(self.waits(|| set.wait_with(events, timeout, mask)))
    }
}
