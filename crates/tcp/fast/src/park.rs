//! The set that a lane sleeps in: one of the kernel's (epoll) with its bell, the wires that it
//! serves, and what its applications want to be woken by. Where those have a set, it is theirs: so
//! one call sleeps and says of all what woke it, and a program that wakes a lane by a socket or a
//! pipe has the kernel know that it is about to wait for it.

use crate::wires::Wires;
use core::time::Duration;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;

/// The number of events that are said at once, at most. The rest is said the next time.
const EVENTS: usize = 64;

enum Set<'a> {
    Applications(BorrowedFd<'a>),
    Own(OwnedFd),
}

impl AsFd for Set<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Applications(set) => *set,
            Self::Own(set) => set.as_fd(),
        }
    }
}

/// See the module.
pub(crate) struct ParkSet<'a> {
    set: Set<'a>,
    /// The name of what is the lane's.
    own: u64,
    lane: usize,
    /// So many lanes run, as its wires say.
    active: usize,
    said: Vec<epoll::Event>,
}

impl<'a> ParkSet<'a> {
    /// For a lane with this bell, in the applications' set (in which what is the lane's has this
    /// name), if there is one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(
        lane: usize,
        set: Option<(BorrowedFd<'a>, u64)>,
        bell: &OwnedFd,
    ) -> io::Result<Self> {
        let (set, own) = match set {
            Some((set, own)) => (Set::Applications(set), own),
            None => (Set::Own(epoll::create(epoll::CreateFlags::CLOEXEC)?), 0),
        };
        // (It is never read: each time that it is rung is an edge.)
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, bell, epoll::EventData::new_u64(own), edges)?;
        Ok(Self { set, own, lane, active: 0, said: Vec::with_capacity(EVENTS) })
    }

    /// So many lanes run: the wires that this one serves wake it.
    fn watch<W>(&mut self, wires: &Wires<W>, active: usize) -> io::Result<()> {
        if self.active == active {
            return Ok(());
        }
        if self.active > 0 {
            for wire in wires.descriptors(self.lane, self.active) {
                epoll::delete(&self.set, wire)?;
            }
        }
        for wire in wires.descriptors(self.lane, active) {
            let data = epoll::EventData::new_u64(self.own);
            epoll::add(&self.set, wire, data, epoll::EventFlags::IN)?;
        }
        self.active = active;
        Ok(())
    }

    /// Until something is there, and so long at most.
    pub fn sleep<W>(
        &mut self,
        wires: &Wires<W>,
        active: usize,
        limit: Duration,
    ) -> io::Result<&[epoll::Event]> {
        self.watch(wires, active)?;
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        self.said.clear();
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut self.said), Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(&self.said),
            Err(error) => Err(error.into()),
        }
    }
}
