//! What threads sleep in, until a door is knocked at or a socket has news.
//!
//! unsafe: a descriptor by its number.

use crate::lock::{Guarded, lock};
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_kernel::descriptors::{Kept, OwnFd};
use uncopy_tcp_shared::wanted::DOORS;

/// What a thread sleeps in: an epoll set of one door and one socket. Each has a view of its own of the door's edges, so that no sleeper takes
/// another's knock.
#[derive(Debug)]
pub(crate) struct Sleeper {
    pub set: Kept,
    pub door: usize,
    socket: Option<(RawFd, epoll::EventFlags)>,
}

/// As many as threads ever slept at once.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    idle: Guarded<Vec<Sleeper>>,
    made: AtomicU32,
}

impl Sleepers {
    /// One that nobody sleeps in, if possible one that watches this socket already.
    pub fn take(&self, doors: &[Kept], socket: RawFd) -> Result<Sleeper, Errno> {
        let mut idle = lock(&self.idle);
        let same = |sleeper: &Sleeper| sleeper.socket.is_some_and(|(fd, _)| fd == socket);
        if let Some(i) = idle.iter().position(same) {
            return Ok(idle.swap_remove(i));
        }
        if let Some(sleeper) = idle.pop() {
            return Ok(sleeper);
        }
        drop(idle);
        self.make(doors)
    }

    /// One that watches its door only.
    pub fn take_for_door(&self, doors: &[Kept]) -> Result<Sleeper, Errno> {
        let idle = {
            let mut idle = lock(&self.idle);
            let alone = idle.iter().position(|sleeper| sleeper.socket.is_none());
            alone.map(|i| idle.swap_remove(i))
        };
        match idle {
            Some(sleeper) => Ok(sleeper),
            None => self.make(doors),
        }
    }

    fn make(&self, doors: &[Kept]) -> Result<Sleeper, Errno> {
        let door = self.made.fetch_add(1, Relaxed) as usize % DOORS;
        let set = Kept::new(OwnFd::from(epoll::create(epoll::CreateFlags::CLOEXEC)?))?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &doors[door], epoll::EventData::new_u64(0), edges)?;
        Ok(Sleeper { set, door, socket: None })
    }

    /// Nobody sleeps in it any more.
    pub fn give_back(&self, sleeper: Sleeper) {
        lock(&self.idle).push(sleeper);
    }

    /// The program closes this number.
    pub fn forget(&self, socket: BorrowedFd, number: RawFd) {
        for sleeper in lock(&self.idle).iter_mut() {
            if sleeper.socket.is_some_and(|(fd, _)| fd == number) {
                let _ = epoll::delete(&sleeper.set, socket);
                sleeper.socket = None;
            }
        }
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
        let data = epoll::EventData::new_u64(1);
        match self.socket {
            Some((fd, now)) if fd == number => {
                if now != events {
                    epoll::modify(&self.set, socket, data, events)?;
                }
            }
            other => {
                if let Some((fd, _)) = other {
                    // SAFETY: only a number for the kernel; `forget` has been called if it is another file's now.
                    let _ = epoll::delete(&self.set, unsafe { BorrowedFd::borrow_raw(fd) });
                }
                epoll::add(&self.set, socket, data, events)?;
            }
        }
        self.socket = Some((number, events));
        Ok(())
    }
}
