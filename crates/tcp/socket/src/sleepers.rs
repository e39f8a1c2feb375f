//! The sets that threads sleep in, until a door is knocked at or a socket has news.
//!
//! The first few sleepers have the process' doors. Where more threads sleep at once, each of these
//! would be woken for another's bytes; so what a further one sleeps in has a door of its own, and
//! belongs to the connection that it was made for. The other side is given that door by the
//! service, and says in the slot that it has it. Until then the sleeper listens at one of the
//! process' doors too.
//!
//! unsafe: a descriptor by its number.

use crate::door::OwnDoor;
use crate::lock::{Guarded, lock};
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use uncopy_kernel::descriptors::Kept;
use uncopy_tcp_shared::wanted::{DOORS, Doors};

/// The set that a thread sleeps in: an epoll set of a door and at most one socket. Each has a view
/// of its own of the door's edges, so that no sleeper takes another's knock.
#[derive(Debug)]
pub(crate) struct Sleeper {
    pub set: Kept,
    /// Which of the process' doors it listens at.
    pub door: usize,
    /// Its connection's own, which it listens at too.
    pub own: Option<OwnDoor>,
    /// It listens at that alone.
    pub alone: bool,
    /// It shares the process' door with others, and nobody has tried to give it one of its own.
    pub shares: bool,
    pub socket: Option<(RawFd, epoll::EventFlags)>,
}

/// As many as threads ever slept at once.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    idle: Guarded<Vec<Sleeper>>,
    made: AtomicU32,
}

pub(crate) const EDGES: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

impl Sleepers {
    /// One that nobody sleeps in, if possible one that watches this socket already. None: one that
    /// watches no socket.
    pub fn take(&self, doors: &[Kept], socket: Option<RawFd>) -> Result<Sleeper, Errno> {
        {
            let mut idle = lock(&self.idle);
            let of = |sleeper: &Sleeper| sleeper.socket.map(|(fd, _)| fd);
            if let Some(i) = idle.iter().position(|sleeper| of(sleeper) == socket) {
                return Ok(idle.swap_remove(i));
            }
            if socket.is_some()
                && let Some(sleeper) = idle.pop()
            {
                return Ok(sleeper);
            }
        }
        let set = Kept::if_room(|| epoll::create(epoll::CreateFlags::CLOEXEC))?;
        let number = self.made.fetch_add(1, Relaxed) as usize;
        // (The sets begin at the other end: what wakes a sleeper is not to knock at their doors.)
        let door = DOORS - 1 - number % DOORS;
        epoll::add(&set, &doors[door], epoll::EventData::new_u64(0), EDGES)?;
        let shares = number >= DOORS;
        Ok(Sleeper { set, door, own: None, alone: false, shares, socket: None })
    }

    /// Nobody sleeps in it any more, if `as_it_is` still says that what it watches is that.
    pub fn give_back(&self, sleeper: Sleeper, as_it_is: impl FnOnce(&Sleeper) -> bool) {
        let mut idle = lock(&self.idle);
        if as_it_is(&sleeper) {
            idle.push(sleeper);
        }
    }

    /// The program closes this number.
    pub fn forget(&self, socket: BorrowedFd, number: RawFd) {
        lock(&self.idle).iter_mut().for_each(|sleeper| sleeper.forget(socket, number));
    }

    /// In a forked child: they are the parent's.
    pub fn clear(&self) {
        lock(&self.idle).clear();
    }

    pub fn hold(&self) {
        self.idle.hold();
    }

    pub fn let_go(&self) {
        self.idle.let_go();
    }
}

impl Sleeper {
    /// Somebody knocked at the door: that is known.
    pub fn knocked(&self) {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.set, &mut [nothing], Some(&now));
    }

    /// Of this socket these events, from now on, and of no other.
    pub fn watch(
        &mut self,
        socket: BorrowedFd,
        number: RawFd,
        events: epoll::EventFlags,
    ) -> Result<(), Errno> {
        if self.socket == Some((number, events)) {
            return Ok(());
        }
        let data = epoll::EventData::new_u64(1);
        if self.socket.is_some_and(|(fd, _)| fd == number) {
            epoll::modify(&self.set, socket, data, events)?;
        } else {
            self.unwatch();
            epoll::add(&self.set, socket, data, events)?;
        }
        self.socket = Some((number, events));
        Ok(())
    }

    /// Watches no socket from now on.
    pub fn unwatch(&mut self) {
        if let Some((fd, _)) = self.socket.take() {
            // SAFETY: only a number for the kernel; `forget` has been called if it is another
            // file's now.
            let _ = epoll::delete(&self.set, unsafe { BorrowedFd::borrow_raw(fd) });
        }
    }

    fn forget(&mut self, socket: BorrowedFd, number: RawFd) {
        if self.socket.is_some_and(|(fd, _)| fd == number) {
            let _ = epoll::delete(&self.set, socket);
            self.socket = None;
        }
    }

    /// A knock for another connection would wake it.
    pub fn is_crowded(&self) -> bool {
        self.shares || self.own.is_some() && !self.alone
    }

    /// Where it is to be knocked for news of its connection.
    pub fn doors(&self) -> Doors {
        if self.alone { Doors::own() } else { Doors::wake(self.door) }
    }
}

/// The set that threads sleep in over just this connection, once there was a crowd.
#[derive(Debug, Default)]
pub(crate) struct OwnSleeper {
    pub idle: Guarded<Option<Sleeper>>,
    pub made: AtomicBool,
    pub closed: AtomicBool,
}

impl OwnSleeper {
    /// The one that nobody sleeps in, if there is one.
    pub fn take(&self) -> Option<Sleeper> {
        if self.made.load(Relaxed) { lock(&self.idle).take() } else { None }
    }

    /// The connection is closed; or, in a forked child, it is the parent's.
    pub fn ends(&self) {
        self.made.store(true, Relaxed);
        self.closed.store(true, Relaxed);
        let ended = lock(&self.idle).take();
        drop(ended);
    }

    /// The program closes this number.
    pub fn forget(&self, socket: BorrowedFd, number: RawFd) {
        lock(&self.idle).iter_mut().for_each(|sleeper| sleeper.forget(socket, number));
    }

    pub fn hold(&self) {
        self.idle.hold();
    }

    pub fn let_go(&self) {
        self.idle.let_go();
    }
}
