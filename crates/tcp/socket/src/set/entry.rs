//! A connection in a set, all that are in it, and the queue of those that are to be looked at.

use super::by_number::ByNumber;
use super::events::OUT;
use super::turns::Turns;
use crate::context::Context;
use crate::flow::Flow;
use crate::lock::{Guarded, lock};
use libc::{EPOLLET, EPOLLONESHOT};
use rustix::event::PollFlags;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, fence};
use std::sync::{Arc, OnceLock, Weak};
use uncopy_kernel::descriptors::Kept;

/// See [`super::nested`].
#[derive(Debug, Default)]
pub(super) struct Bell {
    pub(super) eventfd: OnceLock<Kept>,
    /// It can be read.
    pub(super) rings: Guarded<bool>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) turns: Guarded<Turns<Entry>>,
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
    /// A sleeping thread looks at what was queued. (Either it sees that before it sleeps, or it is
    /// seen here.)
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
    /// The entry is in the queue.
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
    /// The events and the data that the kernel was told.
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
    pub(super) fn is_carried(&self) -> bool {
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

    /// By edge: sending has left the ring, and goes by Linux now. The events of `asked` that Linux
    /// has room for are told at once, for it will tell of no edge. `leaves`: how often sending had
    /// left the ring before it was asked where it goes.
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

    /// The kernel is asked for room, and the program does not ask for it.
    pub(super) fn is_owed_room(&self) -> bool {
        self.kernel_events.load(Relaxed) & !self.events.load(Relaxed) & OUT != 0
    }

    /// Queues the entry, to be looked at.
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

    /// As far as is known without taking the service's answer.
    pub(super) fn sends_by_ring(&self) -> bool {
        self.flow.has_slot() && !self.flow.ready().ask.contains(PollFlags::OUT)
    }

    /// Its number is open, and still the connection's.
    pub(super) fn has_its_number(&self) -> bool {
        !self.closed.load(Acquire) && !self.lost.load(Acquire)
    }
}

/// Which connections are in a set, and which is which: by its number, and by the program's data,
/// which is all the kernel says.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) by_fd: ByNumber<RawFd, Arc<Entry>>,
    pub(super) by_data: ByNumber<u64, Vec<Arc<Entry>>>,
    /// Those of which every wait looks: a parent process attached them, for notices of their region
    /// are the parent's.
    pub(super) swept: Vec<Arc<Entry>>,
}

impl Entries {
    pub(super) fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let older = self.remove(entry.fd);
        self.by_data.entry(entry.data.load(Relaxed)).or_default().push(entry.clone());
        self.by_fd.insert(entry.fd, entry);
        older
    }

    pub(super) fn remove(&mut self, fd: RawFd) -> Option<Arc<Entry>> {
        let entry = self.by_fd.remove(&fd)?;
        self.forget_data(&entry);
        self.swept.retain(|other| !Arc::ptr_eq(other, &entry));
        Some(entry)
    }

    /// Removes this one, unless another has its number by now.
    pub(super) fn forget(&mut self, entry: &Entry) {
        if self.has(entry) {
            self.remove(entry.fd);
        }
    }

    /// The connection of this number, as it was added.
    pub(super) fn of_number(&self, fd: RawFd) -> Option<Arc<Entry>> {
        self.by_fd.get(&fd).filter(|entry| entry.has_its_number()).cloned()
    }

    pub(super) fn has(&self, entry: &Entry) -> bool {
        self.by_fd.get(&entry.fd).is_some_and(|other| std::ptr::eq(&raw const **other, entry))
    }

    /// Every wait looks at it, as long as it is in the set.
    pub(super) fn sweep(&mut self, entry: &Arc<Entry>) {
        if self.has(entry) && !self.swept.iter().any(|other| Arc::ptr_eq(other, entry)) {
            self.swept.push(entry.clone());
        }
    }

    pub(super) fn of_data(&self, data: u64) -> Same {
        match self.by_data.get(&data).map(Vec::as_slice) {
            None => Same::None,
            Some([one]) => Same::One([one.clone()]),
            Some(several) => Same::Several(several.to_vec()),
        }
    }

    fn forget_data(&mut self, entry: &Arc<Entry>) {
        let data = entry.data.load(Relaxed);
        if let Some(same) = self.by_data.get_mut(&data) {
            same.retain(|other| !Arc::ptr_eq(other, entry));
            if same.is_empty() {
                self.by_data.remove(&data);
            }
        }
    }

    pub(super) fn change_data(&mut self, entry: &Arc<Entry>, data: u64) {
        // (Another thread may have closed it.)
        if entry.data.load(Relaxed) != data && self.has(entry) {
            self.forget_data(entry);
            entry.data.store(data, Relaxed);
            self.by_data.entry(data).or_default().push(entry.clone());
        }
    }
}

/// Entries with the same data.
pub(super) enum Same {
    None,
    One([Arc<Entry>; 1]),
    Several(Vec<Arc<Entry>>),
}

impl Same {
    pub(super) fn as_slice(&self) -> &[Arc<Entry>] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}
