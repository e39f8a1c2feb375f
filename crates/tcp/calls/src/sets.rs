//! epoll: a set is the kernel's until a connection is added to it.

use crate::tcp::Entry;
use crate::tcp::Tcp;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uncopy_kernel::descriptors::Kept;
use uncopy_tcp_socket::Set;
use uncopy_tcp_socket::set::Event;

/// A set, by however many numbers the program knows it.
#[derive(Debug)]
pub struct Epoll {
    number: AtomicI32,
    /// A number of our own, if it ever had several.
    own: AtomicI32,
    set: OnceLock<Arc<Set>>,
    waited_for: AtomicBool,
}

impl Epoll {
    fn new(number: RawFd) -> Self {
        Self {
            number: AtomicI32::new(number),
            own: AtomicI32::new(-1),
            set: OnceLock::new(),
            waited_for: AtomicBool::new(false),
        }
    }

    /// The set, if it has a connection.
    pub fn set(&self) -> Option<Arc<Set>> {
        self.set.get().cloned()
    }

    /// It gets a second number, or more. (Before the program knows it.)
    pub(crate) fn one_more(&self) -> Result<(), Errno> {
        if self.own.load(Relaxed) >= 0 {
            return Ok(());
        }
        // SAFETY: the program's, open.
        let number = unsafe { BorrowedFd::borrow_raw(self.number.load(Relaxed)) };
        let own = Kept::duplicate_of(number)?;
        self.number.store(own.as_raw_fd(), Relaxed);
        if let Some(set) = self.set.get() {
            set.set_number(own.as_raw_fd());
        }
        self.own.store(own.into_raw(), Relaxed);
        Ok(())
    }

    pub(crate) fn close_own(&self) {
        let own = self.own.swap(-1, Relaxed);
        if own >= 0 {
            // SAFETY: ours, and nobody uses it any more.
            drop(unsafe { Kept::from_raw(own) });
        }
    }

    /// By another set, or by poll.
    pub(crate) fn is_waited_for(&self) {
        self.waited_for.store(true, Relaxed);
        if let Some(set) = self.set.get() {
            set.nest();
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        self.close_own();
    }
}

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
            // What was added once is known by the set, whatever became of it.
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
            None => {
                let context = self.context().ok_or(Errno::NOMEM)?;
                let made = Set::around(context, epoll.number.load(Relaxed))?;
                // Whoever sleeps in the kernel's set is woken by the door, and comes here.
                made.wake();
                let set = epoll.set.get_or_init(|| Arc::new(made)).clone();
                if epoll.waited_for.load(Relaxed) {
                    set.nest();
                }
                Ok(set)
            }
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
        Some(self.set(fd)?.wait_with(events, timeout, mask))
    }
}
