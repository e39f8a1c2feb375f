//! epoll over connections and everything else. The kernel's set stays what it is, and knows every
//! descriptor with the program's own data; connections whose bytes go through rings are looked at
//! here, and only those that have news. One door wakes the kernel's set.
//!
//! | module | one idea |
//! | --- | --- |
//! | `events` | what is asked and told, and how a descriptor is in a set |
//! | `by_number` | maps by descriptors and by the program's data |
//! | `entry` | a connection in a set, all of a set, and the queue of those to be looked at |
//! | `watching` | what the kernel is asked of one, and what becomes of it |
//! | `control` | added, changed, removed: the kernel is told what it must know |
//! | `wait` | epoll_wait |
//! | `turns` | whose turn it is: the rings', or the kernel's |
//! | `look` | what the rings say |
//! | `heard` | what the kernel says |
//! | `elsewhere` | a thread that waits for other things besides |
//! | `nested` | a set that is itself waited for |
//!
//! unsafe: descriptors by their numbers.

mod by_number;
mod control;
mod elsewhere;
mod entry;
pub(crate) mod events;
mod heard;
mod look;
mod nested;
mod turns;
mod wait;
mod watching;

use self::entry::{Bell, Entries, Queue};
use self::events::borrowed;
pub use self::events::{Added, Event, door};
use crate::context::Context;
use crate::lock::{Guarded, lock};
use crate::order::Marks;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// See above.
#[derive(Debug)]
pub struct Set {
    context: Arc<Context>,
    kernel: Arc<AtomicI32>,
    owned: Option<OwnedFd>,
    door: usize,
    entries: Arc<Guarded<Entries>>,
    queue: Arc<Queue>,
    /// One of its connections was at the ring.
    at_ring: AtomicBool,
    /// When the kernel was asked last ([`ticks`](uncopy_tcp_shared::ticks)),
    asked: AtomicU64,
    /// and when it answered.
    heard: AtomicU64,
    /// The knocks at its door since Linux was asked.
    marks: Marks,
}

impl Set {
    /// Around a set of the kernel's. It is the program's descriptor; this one is a duplicate or the
    /// only one.
    pub fn new(context: Arc<Context>, kernel: OwnedFd) -> Result<Self, Errno> {
        use std::os::fd::AsRawFd;
        let mut set = Self::around(context, kernel.as_raw_fd())?;
        set.owned = Some(kernel);
        Ok(set)
    }

    /// Around a set of the kernel's that the program keeps open.
    pub fn around(context: Arc<Context>, kernel: RawFd) -> Result<Self, Errno> {
        let door = context.next_door();
        let set = Self {
            context: context.clone(),
            kernel: Arc::new(AtomicI32::new(kernel)),
            owned: None,
            door,
            entries: Arc::default(),
            queue: Arc::new(Queue {
                turns: Guarded::default(),
                nested: AtomicBool::new(false),
                bell: Bell::default(),
                sleeping: AtomicU32::new(0),
                by_linux: AtomicU32::new(0),
                context: context.clone(),
                door,
            }),
            at_ring: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            marks: Marks::default(),
        };
        set.watch_door(&context, door)?;
        Ok(set)
    }

    pub(super) fn watch_door(&self, context: &Context, number: usize) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(door());
        match epoll::add(self.kernel(), context.doors[number].as_fd(), data, flags) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    pub(super) fn kernel<'a>(&self) -> BorrowedFd<'a> {
        borrowed(self.kernel.load(Relaxed))
    }

    /// The same set of the kernel's has another number, which stays open.
    pub fn set_number(&self, fd: RawFd) {
        self.kernel.store(fd, Relaxed);
    }

    /// Threads that sleep in it look.
    pub fn wake(&self) {
        self.queue.wake();
    }

    pub(crate) fn hold(&self) {
        self.entries.hold();
    }

    pub(crate) fn hold_queue(&self) {
        self.queue.bell.rings.hold();
        self.queue.turns.hold();
    }

    pub(crate) fn let_go(&self) {
        self.queue.turns.let_go();
        self.queue.bell.rings.let_go();
        self.entries.let_go();
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let all: Vec<_> = lock(&self.entries).by_fd.values().cloned().collect();
        all.iter().for_each(Self::end);
        // (Each queued entry has the queue in turn.)
        let queued = std::mem::take(&mut lock(&self.queue.turns).entries);
        drop(queued);
        self.context.no_set(self.door);
    }
}
