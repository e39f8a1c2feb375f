//! A connection in a set, and the queue of those that are to be looked at.

use super::entries::Entries;
use super::nested::Bell;
use super::turns::Turns;
use super::{Added, EVENTS, Event, HEARS, OUT, Set};
use crate::context::Context;
use crate::flow::{Flow, Watcher};
use crate::lock::{Guarded, lock};
use libc::{EPOLLET, EPOLLONESHOT};
use rustix::event::{PollFlags, epoll};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, Weak};

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) turns: Guarded<Turns>,
    /// The kernel is to be told when there is news, because the set is itself waited for: by
    /// another set, or by poll.
    pub(super) nested: AtomicBool,
    pub(super) bell: Bell,
    /// Threads that sleep in the set,
    pub(super) sleeping: AtomicU32,
    /// and of these, those that did so before it had a connection: nobody tells them what is
    /// queued.
    pub(super) by_linux: AtomicU32,
    pub(super) context: Arc<Context>,
    pub(super) door: usize,
}

impl Queue {
    /// Who sleeps looks at what was queued. (Either it sees that before it sleeps, or it is seen
    /// here.)
    pub(super) fn wake_sleepers(&self) {
        fence(SeqCst);
        if self.sleeping.load(Relaxed) > 0 {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        self.context.knock_at_own(self.door);
    }
}

/// A descriptor in a set.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) fd: RawFd,
    pub(super) flow: Arc<Flow>,
    pub(super) data: AtomicU64,
    pub(super) events: AtomicU32,
    /// In the queue.
    pub(super) queued: AtomicBool,
    /// It is not in the set: not yet, or not any more.
    pub(super) off: AtomicBool,
    /// The program has removed it, and may add it again.
    pub(super) removed: AtomicBool,
    /// How often the program has added or changed it, each time before the kernel hears of it. With
    /// EPOLLONESHOT it is told of once for each number:
    pub(super) arming: AtomicU32,
    /// the last one for which it was.
    pub(super) told: AtomicU32,
    /// What the kernel was told: events, data.
    pub(super) kernel_events: AtomicU32,
    pub(super) kernel_data: AtomicU64,
    /// The program has removed it, and the kernel does not know yet.
    pub(super) parked: AtomicBool,
    /// The descriptor was closed: the kernel does not know it any more.
    pub(super) closed: AtomicBool,
    /// Its number is not the connection's any more, which has others: what is there now is another
    /// file's.
    pub(super) lost: AtomicBool,
    /// By which number the kernel knows it: its own, or, where that was lost, the library's.
    pub(super) known_by: AtomicI32,
    /// Another file is in the set with the same data: what the kernel says may be of that.
    pub(super) shares: AtomicBool,
    /// It was once at the ring.
    pub(super) at_ring: AtomicBool,
    /// How often sending had left the ring when it was last looked at.
    pub(super) leaves: AtomicU64,
    /// By level: how many bytes had come when the program was told of it last, and one more;
    /// 0: there was nothing since.
    pub(super) had: AtomicU64,
    /// The kernel has told of the end: it need not be asked for that.
    pub(super) ended: AtomicBool,
    /// The process that has added it.
    pub(super) process: u32,
    pub(super) queue: Arc<Queue>,
    /// All of the set's.
    pub(super) entries: Weak<Guarded<Entries>>,
    /// The kernel's set.
    pub(super) kernel: Arc<AtomicI32>,
}

impl Entry {
    /// It is asked for, and has a slot.
    pub(super) fn is_heeded(&self) -> bool {
        !self.is_off() && !self.closed.load(Acquire) && self.flow.has_slot()
    }

    /// Not in the set, or disarmed by EPOLLONESHOT.
    pub(super) fn is_off(&self) -> bool {
        self.off.load(Acquire) || self.asks(EPOLLONESHOT as u32) && !self.is_armed()
    }

    /// With EPOLLONESHOT: the program was not told of it since it armed it last.
    pub(super) fn is_armed(&self) -> bool {
        self.told.load(Acquire) != self.arming.load(Acquire)
    }

    /// The program wants this of it from now on.
    pub(super) fn becomes(self: &Arc<Self>, entries: &mut Entries, events: u32, data: u64) {
        entries.change_data(self, data);
        self.events.store(events, Relaxed);
        self.arming.fetch_add(1, AcqRel);
    }

    /// With EPOLLONESHOT: the one event that the program is told of since it has armed this for the
    /// `arming`th time. False: that was told.
    pub(super) fn takes_its_turn(&self, arming: u32) -> bool {
        let mut told = self.told.load(Acquire);
        while (told.wrapping_sub(arming) as i32) < 0 {
            match self.told.compare_exchange(told, arming, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(other) => told = other,
            }
        }
        false
    }

    /// By edge: sending has left the ring, and goes by Linux now. What of `asked` that has room for
    /// at once, for it will tell of no edge. `leaves`: how often sending had left the ring before
    /// it was asked where it goes.
    pub(super) fn room_of_linux(&self, sends_by_ring: bool, asked: u32, leaves: u64) -> u32 {
        let by_edge = asked & EPOLLET as u32 != 0 && asked & OUT != 0;
        if !by_edge || sends_by_ring || self.leaves.load(Relaxed) == leaves {
            return 0;
        }
        let room = PollFlags::from_bits_retain((asked & OUT) as u16);
        u32::from(self.flow.kernel_poll(room).bits()) & OUT & asked
    }

    /// By level: this is so `now`, and the program has left it as it was when it was told of it
    /// before: nothing has come since that it could have meant, or it does not use the room.
    pub(super) fn is_left(&self, now: u32) -> bool {
        let has = u64::from(self.flow.come()) + 1;
        let had = self.had.swap(has, Relaxed);
        had == has || had != 0 && now & OUT != 0
    }

    /// The program asks for one of these.
    pub(super) fn asks(&self, events: u32) -> bool {
        self.events.load(Relaxed) & events != 0
    }

    /// To be looked at.
    #[inline]
    pub(super) fn queue(self: &Arc<Self>) {
        if !self.queued.swap(true, AcqRel) {
            lock(&self.queue.turns).entries.push_back(self.clone());
        }
    }

    /// As above, before all others.
    pub(super) fn queue_first(self: &Arc<Self>) {
        if !self.queued.swap(true, AcqRel) {
            lock(&self.queue.turns).entries.push_front(self.clone());
        }
    }
}

impl Entry {
    /// The kernel is asked for these, which follow from what the program wanted when it had changed
    /// it for the `arming`th time.
    pub(super) fn asks_kernel(&self, events: u32, arming: u32) {
        let Some(entries) = self.entries.upgrade() else { return };
        let entries = lock(&entries);
        // What another thread has changed meanwhile the kernel knows.
        if !entries.has(self) || !self.is_known() || self.arming.load(Acquire) != arming {
            return;
        }
        let key = epoll::EventData::new_u64(self.kernel_data.load(Relaxed));
        let number = self.known_by.load(Acquire);
        let (set, file) = (Set::borrowed(self.kernel.load(Relaxed)), Set::borrowed(number));
        if epoll::modify(set, file, key, Set::flags(events)).is_ok() {
            self.kernel_events.store(events, Relaxed);
        }
    }

    /// What of `asked` is the kernel's to tell, it is asked for.
    pub(super) fn mask(&self, sends_by_ring: bool, asked: u32, arming: u32) {
        let wanted = Set::for_kernel(self, asked, sends_by_ring);
        let told = self.kernel_events.load(Relaxed);
        if asked & (EPOLLET | EPOLLONESHOT) as u32 != 0 {
            let room =
                asked & EPOLLET as u32 == 0 && asked & OUT != 0 && told & OUT != wanted & OUT;
            let end = asked & HEARS == 0 && wanted & !told != 0;
            if room || end {
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
        let by_linux = self.flow.ready().ask.contains(PollFlags::OUT);
        if self.is_heeded() && (by_linux || asked & HEARS == 0) {
            self.mask(!by_linux, asked, arming);
        }
    }

    /// Its number is open, and still the connection's.
    pub(super) fn has_its_number(&self) -> bool {
        !self.closed.load(Acquire) && !self.lost.load(Acquire)
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
        let events = Set::flags(self.kernel_events.load(Relaxed));
        let set = Set::borrowed(self.kernel.load(Relaxed));
        if epoll::add(set, Set::borrowed(own), key, events).is_ok() {
            let _ = epoll::delete(set, Set::borrowed(self.fd));
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
            let set = Set::borrowed(self.kernel.load(Relaxed));
            let _ = epoll::delete(set, Set::borrowed(known_by));
        }
        self.off.store(true, Release);
        self.closed.store(true, Release);
        // The kernel tells of nothing any more that the program has removed. (What has this number
        // and this data next is the program's.)
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
            let _ = epoll::delete(Set::borrowed(self.kernel.load(Relaxed)), Set::borrowed(number));
            self.closed.store(true, Release);
            self.parked.store(false, Release);
        } else if !self.lost.load(Acquire) {
            self.moves();
        }
        self.lost.store(true, Release);
    }

    fn added(&self) -> Option<Added> {
        let asked = self.events.load(Relaxed);
        // (What has told once asks for nothing until it is changed.)
        let events = if self.is_off() { asked & !EVENTS } else { asked };
        let (kernel, data) = (self.kernel.clone(), self.data.load(Relaxed));
        let event = Event { events, data };
        let is_there = !self.parked.load(Acquire) && self.has_its_number();
        is_there.then_some(Added { kernel, number: self.fd, event })
    }
}
