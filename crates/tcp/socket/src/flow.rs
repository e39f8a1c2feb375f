//! A connection. It is Linux's until it has been used a few times; then it is shown, and Linux's for good, or attached: it has a slot. When both
//! sides are attached, either direction may go to its ring.
//!
//! unsafe: a descriptor by its number.

use crate::context::{Context, Mapped, Shown, knock_at};
use crate::holders::Holders;
use crate::lock::{Guarded, lock};
use crate::sleepers::{OwnDoor, OwnSleeper};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_timeout};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use uncopy_counters::{Counters, add};
use uncopy_tcp_service::Client;
use uncopy_tcp_service::ends::is_stand_in;
use uncopy_tcp_service::protocol::Reason;
use uncopy_tcp_shared::layout::Direction;
use uncopy_tcp_shared::notice::SLOTS;
use uncopy_tcp_shared::region::Slot;
use uncopy_tcp_shared::ring::{RECEIVES, RING};
use uncopy_tcp_shared::wanted::{ASK, DOORS, Doors};

/// What went how. Each is changed with the lock of its direction held.
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
    sends: AtomicU64,
    receives: AtomicU64,
    /// Of these, what is in the process' totals.
    told: [AtomicU64; 4],
}

/// The process' totals are told once in so many calls: they are on cache lines of all its threads.
const TOLD: u64 = 64;

impl Counts {
    #[inline]
    fn more(counter: &AtomicU64, n: u64) -> u64 {
        let now = counter.load(Ordering::Relaxed) + n;
        counter.store(now, Ordering::Relaxed);
        now
    }

    #[inline]
    pub(crate) fn sent(&self, totals: &Counters, bytes: u64) {
        Self::more(&self.sent_by_ring, bytes);
        if Self::more(&self.sends, 1).is_multiple_of(TOLD) {
            self.tell(totals);
        }
    }

    #[inline]
    pub(crate) fn received(&self, totals: &Counters, bytes: u64) {
        Self::more(&self.received_by_ring, bytes);
        if Self::more(&self.receives, 1).is_multiple_of(TOLD) {
            self.tell(totals);
        }
    }

    fn tell(&self, totals: &Counters) {
        let all = [
            (&self.sends, &totals.tcp_sends),
            (&self.sent_by_ring, &totals.tcp_sent_bytes),
            (&self.receives, &totals.tcp_receives),
            (&self.received_by_ring, &totals.tcp_received_bytes),
        ];
        for (told, (own, total)) in self.told.iter().zip(all) {
            let now = own.load(Ordering::Relaxed);
            // (Of two threads that tell at once each tells its part.)
            let before = told.fetch_max(now, Ordering::Relaxed);
            total.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
        }
    }
}

/// A slot of a region, as one of its sides.
#[derive(Debug)]
pub(crate) struct Attached {
    pub mapped: Arc<Mapped>,
    pub slot: usize,
    generation: u32,
    /// The other side's own door for it.
    other_door: OnceLock<OwnDoor>,
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
        (0..SLOTS).filter_map(|slot| self.mapped.flow(slot)).for_each(|flow| flow.knock());
    }

    /// The other side knocks at our own door for it.
    pub fn other_knocks(&self) -> bool {
        let ends = &self.slot_header().ends;
        ends[1 - self.mapped.side].knocks.load(Ordering::Acquire) == self.generation
    }

    /// Has the other side given a door of our own for it.
    pub fn give_door(&self, client: &Client, door: BorrowedFd) -> Result<(), Errno> {
        let Mapped { id, side, .. } = *self.mapped;
        client.door((id, side), (self.slot, self.generation), door)
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
        if doors.wakes_own()
            && let Some(own) = self.other_door.get()
        {
            knock_at(&own.door);
        }
    }
}

/// Who looks at a connection when there is news of it: a set that it is in.
pub(crate) trait Watcher: std::fmt::Debug + Send + Sync {
    /// There may be news. `asleep_too`: where a thread sleeps over it, that is woken.
    fn news(self: Arc<Self>, asleep_too: bool);
    /// The connection is about to be closed, by this number.
    fn gone(&self, number: RawFd);
}

/// Calls before a connection is shown. Showing both ends costs about as much as Linux takes for three requests and their answers; so whoever
/// ends before has lost nothing, and whoever goes on at most as much again.
const CALLS: u32 = 4;

/// A call that goes past the ring, begun before there was one. As long as one is under way sending does not go to the ring: its bytes would
/// come first.
#[derive(Debug)]
pub struct Past<'a>(&'a Flow);

impl<'a> Past<'a> {
    fn begin(flow: &'a Flow) -> Self {
        flow.past.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Self(flow)
    }
}

impl Drop for Past<'_> {
    fn drop(&mut self) {
        self.0.past.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whose a call is.
#[derive(Debug)]
pub enum Way<'a> {
    /// Linux's, just as it is.
    Linux,
    /// As above, and this is to be kept meanwhile.
    Past(Past<'a>),
    /// It is to be made here.
    Here,
}

/// See above.
#[derive(Debug)]
pub struct Flow {
    pub(crate) context: Arc<Context>,
    fd: AtomicI32,
    nonblocking: AtomicBool,
    calls: AtomicU32,
    shown: AtomicBool,
    past: AtomicU32,
    pub(crate) holders: Holders,
    attached: OnceLock<Option<Attached>>,
    reason: OnceLock<Reason>,
    watchers: Guarded<Vec<Arc<dyn Watcher>>>,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds; 0: none.
    pub(crate) timeouts: [AtomicU64; 2],
    /// Threads that sleep over it.
    pub(crate) waiting: AtomicU32,
    /// The kernel has said something: it is to be asked what.
    pub(crate) ask: AtomicBool,
    pub(crate) own_sleeper: OwnSleeper,
    /// The program has closed it: its number, and its slot, are another's, or will be.
    closed: AtomicBool,
    /// The program receives no more.
    pub(crate) shut: AtomicBool,
    /// What went how.
    pub counts: Counts,
}

impl Flow {
    pub(crate) fn new(context: Arc<Context>, fd: RawFd, nonblocking: bool) -> Arc<Self> {
        Arc::new(Self {
            context,
            fd: AtomicI32::new(fd),
            nonblocking: AtomicBool::new(nonblocking),
            calls: AtomicU32::new(0),
            shown: AtomicBool::new(false),
            past: AtomicU32::new(0),
            holders: Holders::default(),
            attached: OnceLock::new(),
            reason: OnceLock::new(),
            watchers: Guarded::default(),
            timeouts: [const { AtomicU64::new(0) }; 2],
            waiting: AtomicU32::new(0),
            ask: AtomicBool::new(false),
            own_sleeper: OwnSleeper::default(),
            closed: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// Whose it is.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Why it is Linux's for good, if it is.
    pub fn reason(&self) -> Option<Reason> {
        self.reason.get().copied()
    }

    /// The socket.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: whoever made the flow keeps the socket open until `close`.
        unsafe { BorrowedFd::borrow_raw(self.number()) }
    }

    /// Its number.
    pub fn number(&self) -> RawFd {
        self.fd.load(Ordering::Relaxed)
    }

    /// The same socket has another number, which stays open until `close`.
    pub fn set_number(&self, fd: RawFd) {
        let older = self.fd.swap(fd, Ordering::Relaxed);
        // SAFETY: it is open still.
        let socket = unsafe { BorrowedFd::borrow_raw(older) };
        self.context.sleepers.forget(socket, older);
        self.own_sleeper.forget(socket, older);
    }

    /// Whose a call is. A connection that was used a few times is shown.
    #[inline]
    pub fn way(self: &Arc<Self>) -> Way<'_> {
        match self.attached.get() {
            Some(Some(_)) => Way::Here,
            Some(None) => Way::Linux,
            None => self.undecided(),
        }
    }

    fn undecided(self: &Arc<Self>) -> Way<'_> {
        if self.shown.load(Ordering::Acquire) {
            return Way::Here;
        }
        let used = self.calls.fetch_add(1, Ordering::Relaxed) + 1 >= CALLS;
        if used && self.holders.sole() && !self.shown.swap(true, Ordering::SeqCst) {
            fence(Ordering::SeqCst);
            // Whoever waits in the kernel now would not see the ring.
            if self.past.load(Ordering::SeqCst) == 0 {
                self.show();
                return Way::Here;
            }
            self.not_yet();
        }
        let past = Past::begin(self);
        if self.shown.load(Ordering::SeqCst) { Way::Here } else { Way::Past(past) }
    }

    fn show(self: &Arc<Self>) {
        match uncopy_tcp_service::ends::name(self.fd()) {
            Ok(name) if name.is_local() || is_stand_in(self.fd()) => {
                self.context.show_to_service(self.clone());
            }
            Ok(_) => self.clone().stays(Reason::Remote),
            // Still on its way, or none any more.
            Err(_) => self.not_yet(),
        }
    }

    /// It is one for Linux, for good.
    pub fn leave_to_linux(self: &Arc<Self>, reason: Reason) {
        self.clone().stays(reason);
    }

    /// It may have been shown, and nobody has said what becomes of it.
    pub(crate) fn is_pending(&self) -> bool {
        self.attached.get().is_none() && self.shown.load(Ordering::Relaxed)
    }

    /// Nobody has said what becomes of it.
    pub fn is_undecided(&self) -> bool {
        self.attached.get().is_none()
    }

    /// A call of Linux' while it is not attached; `None`: it is.
    #[inline]
    pub(crate) fn unattached(&self) -> Option<Past<'_>> {
        let past = Past::begin(self);
        if matches!(self.attached.get(), Some(Some(_))) { None } else { Some(past) }
    }

    /// The program sends by a call that rings do not carry: sending is Linux's as long as this is kept.
    pub fn sends_past(&self) -> Past<'_> {
        let past = Past::begin(self);
        let _ = self.send_by_linux(false);
        past
    }

    /// No call goes past the ring.
    pub(crate) fn none_past(&self) -> bool {
        fence(Ordering::SeqCst);
        self.past.load(Ordering::SeqCst) == 0
    }

    /// In a forked child: no other thread is here.
    pub(crate) fn in_child(&self) {
        self.past.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        self.own_sleeper.ends();
    }

    pub(crate) fn hold(&self) {
        self.own_sleeper.hold();
        self.holders.hold();
        self.watchers.hold();
    }

    pub(crate) fn let_go(&self) {
        self.watchers.let_go();
        self.holders.let_go();
        self.own_sleeper.let_go();
    }

    /// SO_RCVTIMEO or SO_SNDTIMEO (`room`) is set.
    pub fn has_timeout(&self, room: bool) -> bool {
        self.timeouts[usize::from(room)].load(Ordering::Relaxed) != 0
    }

    /// The process' totals know all of it.
    pub fn tell_totals(&self) {
        self.counts.tell(self.context.settings.counters);
    }

    /// Before the last close in this process: [`Flow::close`], and all the rest.
    pub fn closes(&self, number: RawFd) {
        // From here on it gets no slot.
        self.forget(number);
        self.close();
        self.tell_totals();
    }

    /// The program has closed it: no set looks at it any more, and it gets no slot.
    pub fn forget(&self, number: RawFd) {
        self.holders.one_less();
        self.ends_here();
        let _ = self.attached.set(None);
        let watchers = std::mem::take(&mut *lock(&self.watchers));
        watchers.iter().for_each(|watcher| watcher.gone(number));
    }

    /// From now on no call of another thread, which may have waited since before, uses its number or its slot. (Those that wait go on sleeping, as with Linux, until
    /// somebody wakes them.)
    pub(crate) fn ends_here(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.own_sleeper.ends();
        if let Some(Some(Attached { mapped, slot, .. })) = self.attached.get() {
            // Who was in a call is not any more; who comes later sees it.
            drop(mapped.ends.receiving(*slot, self.context.process()));
            drop(mapped.ends.sending(*slot, self.context.process()));
        }
    }

    /// The program has closed it.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
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

    /// It is in a set.
    pub(crate) fn is_watched(&self) -> bool {
        !lock(&self.watchers).is_empty()
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
        if self.attached.set(None).is_ok() && self.reason.set(reason).is_ok() {
            let counters = self.context.settings.counters;
            let counter = match reason {
                Reason::PeerNotHere => &counters.tcp_stayed_peer,
                Reason::NotConnected => &counters.tcp_stayed_unconnected,
                Reason::OverLimit => &counters.tcp_stayed_limit,
                Reason::NoMemory => &counters.tcp_stayed_memory,
                Reason::NoService => &counters.tcp_stayed_service,
                Reason::Remote => &counters.tcp_stayed_remote,
                // (What is a direction's only never comes here.)
                _ => &counters.tcp_stayed_use,
            };
            add(counter, 1);
        }
    }

    fn not_yet(&self) {
        self.calls.store(0, Ordering::Relaxed);
        self.shown.store(false, Ordering::SeqCst);
    }

    fn attach(self: Arc<Self>, mapped: Arc<Mapped>, slot: usize, generation: u32) {
        let other_door = OnceLock::new();
        let attached = Attached { mapped: mapped.clone(), slot, generation, other_door };
        // Shown long ago, perhaps: attach only what is connected still. Then its other end is the one that the service matched: names of ends
        // that live are unique.
        if !self.is_undecided() || uncopy_tcp_service::ends::name(self.fd()).is_err() {
            attached.detach();
            self.stays(Reason::NotConnected);
            return;
        }
        self.refresh_timeouts();
        mapped.ends.begin(slot, mapped.side);
        let itself: Weak<Self> = Arc::downgrade(&self);
        mapped.set_flow(slot, Some(itself));
        if let Err(Some(attached)) = self.attached.set(Some(attached)) {
            // It was closed meanwhile.
            attached.detach();
            return;
        }
        let Some(Some(attached)) = self.attached.get() else { return };
        attached.slot_header().ends[mapped.side].attached.store(generation, Ordering::Release);
        add(&self.context.settings.counters.tcp_connections, 1);
        self.tell_sets(false);
        // Who fell asleep over Linux' socket alone must know of the ring.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 || !lock(&self.watchers).is_empty() {
            self.context.knock_here();
        }
    }

    fn is_asked_for(&self) {
        let _ = self.serve();
    }

    fn take_door(&self, generation: u32, door: OwnedFd) {
        let Some(Some(attached)) = self.attached.get() else { return };
        // Another process that has this end too would not have the door.
        let sole = attached.mapped.ends.processes(attached.slot).load(Ordering::Acquire) == 1;
        if generation == attached.generation
            && sole
            && let Ok(door) = OwnDoor::new(door, &self.context)
            && attached.other_door.set(door).is_ok()
        {
            let ends = &attached.slot_header().ends;
            ends[attached.mapped.side].knocks.store(generation, Ordering::Release);
        }
    }

    fn knock(&self) {
        if let Some(Some(attached)) = self.attached.get()
            && let Some(own) = attached.other_door.get()
        {
            knock_at(&own.door);
        }
    }

    #[inline]
    fn tell_sets(&self, asleep_too: bool) {
        for watcher in lock(&self.watchers).iter() {
            watcher.clone().news(asleep_too);
        }
    }
}

impl Context {
    /// A socket that was just connected or accepted, or is about to be. It is shown when it has been used a few times ([`Flow::way`]).
    pub fn flow(self: &Arc<Self>, fd: RawFd, nonblocking: bool) -> Arc<Flow> {
        Flow::new(self.clone(), fd, nonblocking)
    }

    /// A socket that was just connected or accepted. It is Linux's until the service says that its other end was shown too. One short message;
    /// none for a peer on another host.
    pub fn show(self: &Arc<Self>, fd: RawFd, nonblocking: bool) -> Arc<Flow> {
        let flow = self.flow(fd, nonblocking);
        flow.shown.store(true, Ordering::Relaxed);
        match uncopy_tcp_service::ends::name(flow.fd()) {
            Ok(name) if name.is_local() || is_stand_in(flow.fd()) => {
                self.show_to_service(flow.clone());
            }
            Ok(_) => flow.stays(Reason::Remote),
            Err(reason) => flow.stays(reason),
        }
        flow
    }
}
