//! The questions that the kernel is asked of a connection in a set, and what becomes of the entry
//! with the connection's number.

use super::Set;
use super::entry::Entry;
use super::events::{Added, EVENTS, Event, HEARS, OUT, borrowed, flags};
use crate::lock::lock;
use crate::watcher::Watcher;
use libc::{EPOLLET, EPOLLONESHOT};
use rustix::event::epoll;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Entry {
    /// The kernel is asked for these, which follow from what the program wanted when it had changed
    /// it for the `arming`th time.
    pub(super) fn asks_kernel(&self, events: u32, arming: u32) {
        let Some(entries) = self.entries.upgrade() else { return };
        let entries = lock(&entries);
        // The kernel knows what another thread has changed meanwhile.
        if !entries.has(self) || !self.is_known() || self.arming.load(Acquire) != arming {
            return;
        }
        let key = epoll::EventData::new_u64(self.kernel_data.load(Relaxed));
        let number = self.known_by.load(Acquire);
        let (set, file) = (borrowed(self.kernel.load(Relaxed)), borrowed(number));
        if epoll::modify(set, file, key, flags(events)).is_ok() {
            self.kernel_events.store(events, Relaxed);
        }
    }

    /// The kernel is asked for the events of `asked` that are its to tell.
    pub(super) fn mask(&self, sends_by_ring: bool, asked: u32, arming: u32) {
        let wanted = Set::for_kernel(self, asked, sends_by_ring);
        let told = self.kernel_events.load(Relaxed);
        if asked & (EPOLLET | EPOLLONESHOT) as u32 != 0 {
            let room =
                asked & EPOLLET as u32 == 0 && asked & OUT != 0 && told & OUT != wanted & OUT;
            let end = asked & HEARS == 0 && wanted & !told != 0;
            let owed = self.flow.owes() && wanted & !told & OUT != 0;
            if room || end || owed {
                self.asks_kernel(wanted, arming);
            }
            return;
        }
        if sends_by_ring && told & OUT != 0 || wanted & !told != 0 {
            self.asks_kernel(wanted, arming);
        }
    }

    /// It leaves the queue with nothing to tell: where sending goes by Linux, the kernel is to tell
    /// of room, and of a death to who asks for nothing.
    pub(super) fn leaves_rest_to_kernel(&self) {
        let arming = self.arming.load(Acquire);
        let asked = self.events.load(Relaxed);
        let by_ring = self.sends_by_ring();
        if self.is_carried() && (!by_ring || asked & HEARS == 0) {
            self.mask(by_ring, asked, arming);
        }
    }

    /// The kernel can be told of it: by its own number, or by the library's.
    fn is_known(&self) -> bool {
        !self.closed.load(Acquire) && (!self.lost.load(Acquire) || self.was_moved())
    }

    fn was_moved(&self) -> bool {
        self.known_by.load(Acquire) != self.fd
    }

    /// Its number is about to be closed. From then on the kernel could be told nothing of it by
    /// that, but would go on telling of it: so it gets to know it by the library's own number.
    /// (Where another entry has that already, it stays as it is.)
    fn moves(&self) {
        let (own, Some(entries)) = (self.flow.number(), self.entries.upgrade()) else { return };
        // (A child's set is its parent's, too.)
        if own == self.fd || self.process != self.queue.context.process() {
            return;
        }
        let _entries = lock(&entries);
        let key = epoll::EventData::new_u64(self.kernel_data.load(Relaxed));
        let events = flags(self.kernel_events.load(Relaxed));
        let set = borrowed(self.kernel.load(Relaxed));
        if epoll::add(set, borrowed(own), key, events).is_ok() {
            let _ = epoll::delete(set, borrowed(self.fd));
            self.known_by.store(own, Release);
        }
    }
}

impl Watcher for Entry {
    fn news(self: Arc<Self>, asleep_too: bool) {
        self.queue();
        if asleep_too {
            self.queue.wake_sleepers();
        }
        self.settles();
    }

    fn settles(&self) {
        if self.queue.nested.load(Relaxed) {
            self.queue.settle();
        }
    }

    fn gone(&self, number: RawFd) {
        // The service may have a copy of the socket on its way: so long the kernel would go on
        // telling of it, by a number that is another's. (So would it for a number of ours.) Where
        // there is none the kernel forgets it with the close. (The set is also that of a parent
        // process, which goes on with the connection.)
        let is_ours = self.process == self.queue.context.process();
        let known_by = self.known_by.load(Acquire);
        let is_closing =
            self.fd == number && (self.flow.was_shown() || self.flow.number() != number);
        if is_ours && (is_closing || self.was_moved()) {
            let set = borrowed(self.kernel.load(Relaxed));
            let _ = epoll::delete(set, borrowed(known_by));
        }
        self.off.store(true, Release);
        self.closed.store(true, Release);
        // The kernel tells of nothing any more that the program has removed. (The file that has
        // this number and this data next is the program's.)
        self.parked.store(false, Release);
        if let Some(entries) = self.entries.upgrade() {
            lock(&entries).forget(self);
        }
    }

    fn loses(&self, number: RawFd) {
        if self.fd != number {
            return;
        }
        if self.parked.load(Acquire) || self.is_off() {
            // (Soon the kernel would know it by a number that is another's. And what a ring has
            // told once the kernel has not: nobody can arm it anew, and nobody is to be told.)
            let _ = epoll::delete(borrowed(self.kernel.load(Relaxed)), borrowed(number));
            self.closed.store(true, Release);
            self.parked.store(false, Release);
        } else if !self.lost.load(Acquire) {
            self.moves();
        }
        self.lost.store(true, Release);
    }

    fn added(&self) -> Option<Added> {
        let asked = self.events.load(Relaxed);
        // (An entry that has told once asks for nothing until it is changed.)
        let events = if self.is_off() { asked & !EVENTS } else { asked };
        let (kernel, data) = (self.kernel.clone(), self.data.load(Relaxed));
        let event = Event { events, data };
        let is_there = !self.parked.load(Acquire) && self.has_its_number();
        is_there.then_some(Added { kernel, number: self.fd, event })
    }
}
