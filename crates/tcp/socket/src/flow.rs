//! A connection. It is shown; then Linux's for good, or attached: it has a slot. When both sides are attached, either direction may go to its
//! ring.

use crate::context::{Context, Mapped, lock};
use crate::set::Entry;
use rustix::event::PollFlags;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use uncopy_tcp_service::protocol::Reason;
use uncopy_tcp_shared::layout::Direction;
use uncopy_tcp_shared::region::Slot;
use uncopy_tcp_shared::wanted::Doors;

/// What went how.
#[derive(Debug, Default)]
pub struct Counts {
    /// Bytes sent through the ring.
    pub sent_by_ring: AtomicU64,
    /// Bytes received from it.
    pub received_by_ring: AtomicU64,
    /// Times that sending went to the ring.
    pub offers: AtomicU64,
    /// Times that it went back to Linux.
    pub leaves: AtomicU64,
}

/// A slot of a region, as one of its sides.
#[derive(Debug)]
pub(crate) struct Attached {
    pub mapped: Arc<Mapped>,
    pub slot: usize,
    generation: u32,
}

impl Attached {
    #[inline]
    pub fn slot(&self) -> Slot<'_> {
        self.mapped.region.slot(self.slot)
    }

    /// The direction that we write.
    #[inline]
    pub fn out(&self) -> &Direction {
        &self.slot_header().directions[self.mapped.side]
    }

    /// The direction that we read.
    #[inline]
    pub fn inward(&self) -> &Direction {
        &self.slot_header().directions[1 - self.mapped.side]
    }

    #[inline]
    fn slot_header(&self) -> &uncopy_tcp_shared::layout::Header {
        self.slot().header
    }

    /// The other side has attached: its socket is our peer.
    #[inline]
    pub fn peer_is_here(&self) -> bool {
        let ends = &self.slot_header().ends;
        ends[1 - self.mapped.side].attached.load(Ordering::Acquire) == self.generation
    }

    /// We will not look at the slot again.
    pub fn detach(&self) {
        self.mapped.set_flow(self.slot, std::sync::Weak::new());
        self.slot_header().ends[self.mapped.side].closed.store(self.generation, Ordering::Release);
    }

    /// Tells who wanted to be told.
    #[inline]
    pub fn tell(&self, doors: Doors) {
        if doors.is_empty() {
            return;
        }
        let other = 1 - self.mapped.side;
        for door in doors.notices() {
            if self.mapped.region.notice(other, door).post(self.slot) {
                self.mapped.knock(door);
            }
        }
        for door in doors.wakes() {
            self.mapped.knock(door);
        }
    }
}

/// See above.
#[derive(Debug)]
pub struct Flow {
    pub(crate) context: Arc<Context>,
    fd: RawFd,
    nonblocking: AtomicBool,
    attached: OnceLock<Option<Attached>>,
    reason: OnceLock<Reason>,
    entries: Mutex<Vec<Arc<Entry>>>,
    /// Threads that sleep over it.
    pub(crate) waiting: AtomicU32,
    /// The kernel has said something: it is to be asked what.
    pub(crate) ask: AtomicBool,
    /// What went how.
    pub counts: Counts,
}

impl Flow {
    pub(crate) fn new(context: Arc<Context>, fd: RawFd, nonblocking: bool) -> Arc<Self> {
        Arc::new(Self {
            context,
            fd,
            nonblocking: AtomicBool::new(nonblocking),
            attached: OnceLock::new(),
            reason: OnceLock::new(),
            entries: Mutex::default(),
            waiting: AtomicU32::new(0),
            ask: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// Linux's for good.
    pub(crate) fn stays(self: Arc<Self>, reason: Reason) -> Arc<Self> {
        let _ = self.reason.set(reason);
        let _ = self.attached.set(None);
        self
    }

    /// Why it is Linux's for good, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.reason.get().copied()
    }

    /// The socket.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: whoever made the flow keeps the socket open until `close`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    /// Its number.
    pub fn number(&self) -> RawFd {
        self.fd
    }

    /// The program set or cleared O_NONBLOCK.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Calls do not wait.
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// Its slot, if it has one. `None`: every call is Linux's, just as it is.
    #[inline]
    pub(crate) fn attached(&self) -> Option<&Attached> {
        match self.attached.get() {
            Some(attached) => attached.as_ref(),
            None => {
                self.context.pump();
                self.attached.get()?.as_ref()
            }
        }
    }

    /// It has a slot: its calls must come here. (Before, they may be Linux's, just as they are.)
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.attached().is_some()
    }

    /// A parent process attached it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.attached().is_some_and(|attached| attached.mapped.process != self.context.process())
    }

    /// Both sides are attached.
    pub fn is_shared(&self) -> bool {
        self.attached().is_some_and(Attached::peer_is_here)
    }

    pub(crate) fn attach(self: &Arc<Self>, mapped: Arc<Mapped>, slot: usize, generation: u32) {
        // Shown long ago, perhaps: attach only what is connected still. Then its other end is the one that the service matched: names of ends
        // that live are unique.
        if uncopy_tcp_service::ends::name(self.fd()).is_err() {
            let attached = Attached { mapped, slot, generation };
            attached.detach();
            let _ = self.reason.set(Reason::NotConnected);
            let _ = self.attached.set(None);
            return;
        }
        mapped.ends.begin(slot, mapped.side);
        mapped.set_flow(slot, Arc::downgrade(self));
        let side = mapped.side;
        let attached = Attached { mapped, slot, generation };
        attached.slot_header().ends[side].attached.store(generation, Ordering::Release);
        let _ = self.attached.set(Some(attached));
        self.tell_sets();
        // Who fell asleep over Linux' socket alone must know of the ring.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 || !lock(&self.entries).is_empty() {
            self.context.knock_here();
        }
    }

    /// Linux's for good: every call is Linux's, just as it is.
    #[inline]
    pub fn is_linux(&self) -> bool {
        matches!(self.attached.get(), Some(None))
    }

    #[inline]
    pub(crate) fn take_ask(&self) -> bool {
        self.ask.load(Ordering::Relaxed) && self.ask.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn watch(&self, entry: Arc<Entry>) {
        lock(&self.entries).push(entry);
    }

    pub(crate) fn unwatch(&self, entry: &Arc<Entry>) {
        lock(&self.entries).retain(|other| !Arc::ptr_eq(other, entry));
    }

    /// The sets that it is in look at it.
    #[inline]
    pub(crate) fn tell_sets(&self) {
        for entry in lock(&self.entries).iter() {
            entry.queue();
        }
    }

    /// Asks the kernel's connection.
    pub(crate) fn kernel_poll(&self, events: PollFlags) -> PollFlags {
        crate::kernel::poll_now(self.fd(), events)
    }
}
