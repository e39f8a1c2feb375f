//! A set that is itself waited for, by another set or by poll: the kernel's set has to be ready
//! while a ring has something that was asked for.
//!
//! Two things make it so. A sender that brings news knocks at the door, besides posting a notice.
//! And a *bell*, an eventfd in the kernel's set, can be read as long as a connection in the queue
//! is ready: it is set and reset ([`Set::settle`]) after each wait, and whenever the program has
//! received, found no room, or changed what it asks for.

use super::Set;
use super::entry::{Entry, Queue};
use super::events::{HEARS, OUT, door};
use crate::lock::lock;
use libc::EPOLLET;
use rustix::event::{EventfdFlags, PollFlags, epoll, eventfd};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use uncopy_kernel::descriptors::{Kept, OwnFd};
use uncopy_tcp_shared::wanted::Doors;

impl Set {
    /// It is itself waited for, by another set or by poll: from now on the kernel's set is ready
    /// when a ring has news.
    pub fn nest(&self) {
        if !self.queue.nested.swap(true, AcqRel) {
            // (Without a descriptor for it only news are told, not what is left of them.)
            let _ = self.hang_bell();
            let all: Vec<_> = lock(&self.entries).by_fd.values().cloned().collect();
            for entry in all {
                entry.flow.in_nested_set();
                if entry.events.load(Relaxed) & EPOLLET as u32 == 0 {
                    entry.queue();
                } else {
                    entry.arm_all();
                }
            }
        }
        self.settle();
    }

    fn hang_bell(&self) -> Result<(), Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = Kept::new(OwnFd::from(eventfd(0, flags)?))?;
        let data = epoll::EventData::new_u64(door());
        epoll::add(self.kernel(), bell.as_fd(), data, epoll::EventFlags::IN)?;
        let _ = self.queue.bell.eventfd.set(bell);
        Ok(())
    }

    pub(super) fn is_nested(&self) -> bool {
        self.queue.nested.load(Relaxed)
    }

    /// Where it is nested: the bell rings if something is there; else whoever brings something
    /// knocks.
    pub(super) fn settle(&self) {
        if self.is_nested() {
            self.collect();
            self.queue_swept();
            self.queue.settle();
        }
    }
}

impl Queue {
    /// As above, of what is queued.
    pub(super) fn settle(&self) {
        let mut left = vec![];
        self.settle_bell(&mut left);
        // (Without the bell's lock, which comes after that of the entries.)
        left.iter().for_each(|entry| entry.leaves_rest_to_kernel());
    }

    fn settle_bell(&self, left: &mut Vec<Arc<Entry>>) {
        let mut rings = lock(&self.bell.rings);
        let ready = self.has_ready(left);
        if ready != *rings
            && let Some(bell) = self.bell.eventfd.get()
        {
            *rings = ready;
            let _ = if ready {
                rustix::io::write(bell, &1u64.to_ne_bytes())
            } else {
                rustix::io::read(bell, &mut [0; 8])
            };
        }
    }

    /// Something of what is queued is ready. Entries that are not ready leave the queue: of these
    /// `left` gets those of which the kernel is to tell something.
    fn has_ready(&self, left: &mut Vec<Arc<Entry>>) -> bool {
        loop {
            let Some(entry) = lock(&self.turns).entries.pop_front() else { return false };
            entry.queued.swap(false, AcqRel);
            if entry.is_ready() {
                // (The one that was told of last stays last.)
                entry.queue_first();
                self.wake_sleepers();
                return true;
            }
            if entry.asks(OUT) || !entry.asks(HEARS) {
                left.push(entry);
            }
        }
    }
}

impl Entry {
    /// Where it is to be told of news.
    pub(super) fn doors(&self) -> Doors {
        let Queue { door, nested, .. } = &*self.queue;
        if self.flow.is_inherited() {
            // (Its notices are the parent's.)
            Doors::wake(*door)
        } else if nested.load(Relaxed) {
            Doors::notice(*door).and(Doors::wake(*door))
        } else {
            Doors::notice(*door)
        }
    }

    fn arm_all(&self) {
        let asked = PollFlags::from_bits_retain(self.events.load(Relaxed) as u16);
        self.flow.arm(asked, self.doors());
    }

    /// Something is so of what is asked. If not, it will be told.
    fn is_ready(self: &Arc<Self>) -> bool {
        if !self.is_carried() {
            return false;
        }
        let ready = || {
            let asked = self.events.load(Relaxed);
            let leaves = self.flow.leaves();
            let (now, sends_by_ring) = Set::now(&self.flow, asked);
            now | self.room_of_linux(sends_by_ring, asked, leaves) != 0
        };
        ready() || {
            self.arm_all();
            ready()
        }
    }
}
