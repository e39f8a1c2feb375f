//! Sockets that are added to a set before they connect, as nginx and asio do: a set has to know of
//! a connection what was said of its socket.
//!
//! unsafe: descriptors by their numbers; the list is behind its lock.

use crate::tcp::Tcp;
use core::cell::UnsafeCell;
use core::ops::RangeInclusive;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use rustix::io::Errno;
use rustix::net::{getpeername, ipproto, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{BorrowedFd, RawFd};
use uncopy_kernel::critical;
use uncopy_kernel::lock::Lock;
use uncopy_tcp_socket::Reason;
use uncopy_tcp_socket::set::Event;

/// What was said. (Zeros where nothing was, which a `Vec` has not.)
#[derive(Debug)]
struct Said {
    /// By the socket's number and the set's.
    of: BTreeMap<(RawFd, RawFd), Event>,
    /// The same the other way round.
    by_set: BTreeSet<(RawFd, RawFd)>,
}

impl Said {
    fn insert(&mut self, fd: RawFd, set: RawFd, event: Event) {
        self.of.insert((fd, set), event);
        self.by_set.insert((set, fd));
    }

    fn remove(&mut self, fd: RawFd, set: RawFd) -> Option<Event> {
        self.by_set.remove(&(set, fd));
        self.of.remove(&(fd, set))
    }

    fn sets_of(&self, fds: RangeInclusive<RawFd>) -> Vec<(RawFd, RawFd)> {
        let range = (*fds.start(), 0)..=(*fds.end(), RawFd::MAX);
        self.of.range(range).map(|(&both, _)| both).collect()
    }

    /// What was said of these numbers, as sockets or as sets, is over.
    fn forget(&mut self, numbers: RangeInclusive<RawFd>) {
        let range = (*numbers.start(), 0)..=(*numbers.end(), RawFd::MAX);
        let mut all: Vec<_> = self.by_set.range(range).map(|&(set, fd)| (fd, set)).collect();
        all.extend(self.sets_of(numbers));
        all.into_iter().for_each(|(fd, set)| _ = self.remove(fd, set));
    }
}

/// See the module. Zeros at first.
#[derive(Debug)]
pub(crate) struct Early {
    /// There was something: closes look.
    any: AtomicBool,
    lock: Lock,
    said: UnsafeCell<Said>,
}

// SAFETY: the list is used with the lock.
unsafe impl Sync for Early {}

impl Early {
    pub const fn new() -> Self {
        let said = Said { of: BTreeMap::new(), by_set: BTreeSet::new() };
        Self { any: AtomicBool::new(false), lock: Lock::new(), said: UnsafeCell::new(said) }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Said) -> R) -> R {
        critical::within(|| {
            self.lock.lock();
            // SAFETY: the lock is held.
            let result = f(unsafe { &mut *self.said.get() });
            self.lock.unlock();
            result
        })
    }

    /// Something was said of these numbers, perhaps.
    pub fn is_any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// They are about to be closed: what was said of them is not true of whatever has these numbers
    /// next.
    pub fn closes(&self, numbers: RangeInclusive<RawFd>) {
        if self.is_any() {
            self.with(|said| said.forget(numbers));
        }
    }

    pub fn hold(&self) {
        self.lock.lock();
    }

    pub fn let_go(&self) {
        self.lock.unlock();
    }
}

/// It may connect yet.
fn is_unconnected(fd: RawFd) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: the program's, or a number for the kernel, which checks it; only asked.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP))
        && getpeername(socket) == Err(Errno::NOTCONN)
        && sockopt::socket_acceptconn(socket) == Ok(false)
}

impl Tcp {
    /// Something that is no connection was added to a set.
    #[cold]
    pub(crate) fn added_early(&self, set: RawFd, fd: RawFd, event: Event) {
        if is_unconnected(fd) {
            self.early.any.store(true, Relaxed);
            self.early.with(|said| said.insert(fd, set, event));
        } else {
            self.changed_early(set, fd, None);
        }
    }

    /// It was changed there (`None`: removed).
    pub(crate) fn changed_early(&self, set: RawFd, fd: RawFd, event: Option<Event>) {
        if self.early.is_any() {
            self.early.with(|said| match event {
                Some(event) => said.of.get_mut(&(fd, set)).map(|said| *said = event),
                None => said.remove(fd, set).map(drop),
            });
        }
    }

    /// The socket connects: the sets that it is in know of it from now on.
    pub(crate) fn tell_sets_of(&self, fd: RawFd) {
        let of: Vec<(RawFd, Event)> = self.early.with(|said| {
            let all = said.sets_of(fd..=fd).into_iter();
            all.filter_map(|(fd, set)| Some((set, said.remove(fd, set)?))).collect()
        });
        let Some(connection) = self.connection(fd) else { return };
        let unknown = |&(set, event): &(RawFd, Event)| match self.set_with(set) {
            // (It is not there: closed since, or another file's number.)
            Ok(set) => !matches!(
                set.adopt(fd, &connection.flow, event),
                Ok(()) | Err(Errno::NOENT | Errno::BADF)
            ),
            // (Any other: that number is no set.)
            Err(error) => matches!(error, Errno::NOMEM | Errno::NOSPC),
        };
        if of.iter().filter(|of| unknown(of)).count() > 0 {
            // The kernel tells of it there, and nobody would of a ring.
            connection.flow.leave_to_linux(Reason::Used);
        }
    }
}
