//! A connection. It is shown; then Linux's for good, or attached: it has a slot. When both sides are attached, either direction may go to its
//! ring.

use crate::context::{Context, Mapped, Shown};
use crate::lock::lock;
use rustix::event::PollFlags;
use rustix::net::sockopt::{Timeout, socket_timeout};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use uncopy_tcp_service::protocol::Reason;
use uncopy_tcp_shared::layout::Direction;
use uncopy_tcp_shared::region::Slot;
use uncopy_tcp_shared::ring::{RECEIVES, RING};
use uncopy_tcp_shared::wanted::{ASK, DOORS, Doors};

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
        self.mapped.set_flow(self.slot, None);
        self.slot_header().ends[self.mapped.side].closed.store(self.generation, Ordering::Release);
    }

    /// Room enough for poll to say so, as Linux does: a third of the buffer.
    pub fn has_room(&self) -> bool {
        let out = self.out();
        let head = out.consumed.head.load(Ordering::Relaxed);
        let used = out.produced.tail.load(Ordering::Relaxed).wrapping_sub(head);
        RING.saturating_sub(used) >= RING / 3
    }

    /// The other side may offer its ring: we look for bytes.
    pub fn receives(&self) {
        let flags = &self.inward().consumed.flags;
        if flags.load(Ordering::Relaxed) & RECEIVES == 0 {
            flags.fetch_or(RECEIVES, Ordering::Release);
        }
    }

    /// Asks the other side to look at the phase of what it sends: who attends to that, and whoever sleeps.
    pub fn ask(&self) {
        self.mapped.region.notice(1 - self.mapped.side, ASK).post(self.slot);
        for door in (0..DOORS).chain([ASK]) {
            self.mapped.knock(door);
        }
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

/// Who looks at a connection when there is news of it: a set that it is in.
pub(crate) trait Watcher: std::fmt::Debug + Send + Sync {
    /// There may be news.
    fn news(self: Arc<Self>);
}

/// See above.
#[derive(Debug)]
pub struct Flow {
    pub(crate) context: Arc<Context>,
    fd: RawFd,
    nonblocking: AtomicBool,
    attached: OnceLock<Option<Attached>>,
    reason: OnceLock<Reason>,
    watchers: Mutex<Vec<Arc<dyn Watcher>>>,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds; 0: none.
    pub(crate) timeouts: [AtomicU64; 2],
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
            watchers: Mutex::default(),
            timeouts: [const { AtomicU64::new(0) }; 2],
            waiting: AtomicU32::new(0),
            ask: AtomicBool::new(false),
            counts: Counts::default(),
        })
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

    /// Linux's for good: every call is Linux's, just as it is.
    #[inline]
    pub fn is_linux(&self) -> bool {
        matches!(self.attached.get(), Some(None))
    }

    #[inline]
    pub(crate) fn take_ask(&self) -> bool {
        self.ask.load(Ordering::Relaxed) && self.ask.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn watch(&self, watcher: Arc<dyn Watcher>) {
        lock(&self.watchers).push(watcher);
    }

    pub(crate) fn unwatch(&self, watcher: &Arc<impl Watcher>) {
        lock(&self.watchers)
            .retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(watcher)));
    }

    /// The program has set SO_RCVTIMEO or SO_SNDTIMEO: what the kernel says is what counts, and asking it for each wait is a tenth of one.
    pub fn refresh_timeouts(&self) {
        for (timeout, which) in self.timeouts.iter().zip([Timeout::Recv, Timeout::Send]) {
            let set = socket_timeout(self.fd(), which).ok().flatten();
            timeout.store(set.map_or(0, |set| set.as_nanos() as u64), Ordering::Relaxed);
        }
    }

    /// Asks the kernel's connection.
    pub(crate) fn kernel_poll(&self, events: PollFlags) -> PollFlags {
        crate::kernel::poll_now(self.fd(), events)
    }
}

impl Shown for Flow {
    fn fd(&self) -> BorrowedFd<'_> {
        Flow::fd(self)
    }

    fn stays(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        let _ = self.attached.set(None);
    }

    fn attach(self: Arc<Self>, mapped: Arc<Mapped>, slot: usize, generation: u32) {
        // Shown long ago, perhaps: attach only what is connected still. Then its other end is the one that the service matched: names of ends
        // that live are unique.
        if uncopy_tcp_service::ends::name(self.fd()).is_err() {
            let attached = Attached { mapped, slot, generation };
            attached.detach();
            self.stays(Reason::NotConnected);
            return;
        }
        self.refresh_timeouts();
        mapped.ends.begin(slot, mapped.side);
        let itself: Weak<Self> = Arc::downgrade(&self);
        mapped.set_flow(slot, Some(itself));
        let side = mapped.side;
        let attached = Attached { mapped, slot, generation };
        attached.slot_header().ends[side].attached.store(generation, Ordering::Release);
        let _ = self.attached.set(Some(attached));
        self.tell_sets();
        // Who fell asleep over Linux' socket alone must know of the ring.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 || !lock(&self.watchers).is_empty() {
            self.context.knock_here();
        }
    }

    fn is_asked_for(&self) {
        let _ = self.serve();
    }

    #[inline]
    fn tell_sets(&self) {
        for watcher in lock(&self.watchers).iter() {
            watcher.clone().news();
        }
    }
}

impl Context {
    /// A socket that was just connected or accepted. It is Linux's until the service says that its other end was shown too. One short message;
    /// none for a peer on another host.
    pub fn show(self: &Arc<Self>, fd: RawFd, nonblocking: bool) -> Arc<Flow> {
        let flow = Flow::new(self.clone(), fd, nonblocking);
        match uncopy_tcp_service::ends::name(flow.fd()) {
            Ok(name) if name.is_local() => self.show_to_service(flow.clone()),
            Ok(_) => flow.stays(Reason::Remote),
            Err(reason) => flow.stays(reason),
        }
        flow
    }
}
