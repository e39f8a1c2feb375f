//! A connection. It is Linux's until it has been used a few times; then it is registered, and
//! Linux's for good, or attached: it has a slot. When both sides are attached, either direction may
//! go to its ring.
//!
//! unsafe: a descriptor by its number.

use crate::asks::Asks;
use crate::attached::Attached;
use crate::context::Context;
use crate::counts::{Counts, stayed};
use crate::full::Full;
use crate::holders::Holders;
use crate::kernel;
use crate::lock::{Guarded, lock};
use crate::mapped::Registered;
use crate::set::events::Added;
use crate::sleepers::OwnSleeper;
use crate::watcher::Watcher;
use rustix::event::PollFlags;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_cookie, socket_timeout};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use uncopy_counters::add;
use uncopy_tcp_service::protocol::StayReason;

/// The other side changes the phase as often at most while a call looks at it: each honest change
/// takes calls of its own. More of them are nonsense, by which it would hold a thread, and the
/// flow's lock: a round may take system calls.
pub(crate) const ROUNDS: u32 = 32;

/// See above.
#[derive(Debug)]
pub struct Flow {
    pub(crate) context: Arc<Context>,
    fd: AtomicI32,
    nonblocking: AtomicBool,
    pub(crate) calls: AtomicU32,
    /// It is registered after this many calls.
    pub(crate) registers_after: u32,
    pub(crate) registered: AtomicBool,
    /// The name by which it is registered.
    pub(crate) token: AtomicU64,
    /// Calls that bypass the ring.
    pub(crate) bypassing: AtomicU32,
    /// This process has closed it, and no other one holds it.
    pub(crate) closed_for_all: AtomicBool,
    pub(crate) holders: Holders,
    pub(crate) attached: OnceLock<Option<Attached>>,
    /// Both directions are Linux's for good, though it has a slot.
    pub(crate) left: AtomicBool,
    pub(crate) reason: OnceLock<StayReason>,
    pub(crate) watchers: Guarded<Vec<Arc<dyn Watcher>>>,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds; 0: none.
    pub(crate) timeouts: [AtomicU64; 2],
    /// A set that it is in is itself waited for.
    pub(crate) nested: AtomicBool,
    /// See [`Flow::may_be_set_elsewhere`].
    is_set_elsewhere: AtomicBool,
    /// Threads that sleep over it.
    pub(crate) waiting: AtomicU32,
    /// The kernel has said something: it is to be asked what.
    pub(crate) ask: AtomicBool,
    /// The program has set TCP_NODELAY.
    pub(crate) nodelay: AtomicBool,
    pub(crate) own_sleeper: OwnSleeper,
    /// The program has closed it: its number, and its slot, are another's, or will be.
    closed: AtomicBool,
    /// A forked child has inherited it.
    inherited: bool,
    /// This process has said that the program receives no more: see [`Attached::is_shut`].
    pub(crate) shut: AtomicBool,
    /// The program has ended its stream, or is about to.
    pub(crate) finishes: AtomicBool,
    /// See [`Flow::owes`].
    pub(crate) owes: AtomicBool,
    /// The ring that it sends to.
    pub(crate) full: Full,
    /// See [`Flow::brings_much`].
    pub(crate) much: AtomicBool,
    /// The next call that receives looks whether the other side's arena has come.
    pub(crate) awaits_arena: AtomicBool,
    /// Parts of files that were tried by the ring in vain: see `settling`.
    pub(crate) files: AtomicU32,
    /// The first bytes of the inward ring are lent, so many: see `lent`.
    pub(crate) lent: AtomicU32,
    /// The counts by way.
    pub counts: Counts,
}

impl Flow {
    pub(crate) fn new(
        context: Arc<Context>,
        fd: RawFd,
        nonblocking: bool,
        inherited: bool,
    ) -> Arc<Self> {
        let registers_after = context.lengths.begins();
        // (A connection is news to who listens.)
        context.by_linux.sent();
        Arc::new(Self {
            context,
            registers_after,
            fd: AtomicI32::new(fd),
            nonblocking: AtomicBool::new(nonblocking),
            calls: AtomicU32::new(0),
            registered: AtomicBool::new(false),
            token: AtomicU64::new(u64::MAX),
            bypassing: AtomicU32::new(0),
            closed_for_all: AtomicBool::new(false),
            holders: Holders::default(),
            attached: OnceLock::new(),
            left: AtomicBool::new(false),
            reason: OnceLock::new(),
            watchers: Guarded::default(),
            timeouts: [const { AtomicU64::new(0) }; 2],
            nested: AtomicBool::new(false),
            is_set_elsewhere: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            ask: AtomicBool::new(false),
            nodelay: AtomicBool::new(false),
            own_sleeper: OwnSleeper::default(),
            closed: AtomicBool::new(false),
            inherited,
            shut: AtomicBool::new(false),
            finishes: AtomicBool::new(false),
            owes: AtomicBool::new(false),
            full: Full::default(),
            much: AtomicBool::new(false),
            awaits_arena: AtomicBool::new(false),
            files: AtomicU32::new(0),
            lent: AtomicU32::new(0),
            counts: Counts::default(),
        })
    }

    /// The context that it belongs to.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Why it is Linux's for good, if it is.
    pub fn reason(&self) -> Option<StayReason> {
        self.reason.get().copied()
    }

    /// The socket.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the maker of the flow keeps the socket open until `close`.
        unsafe { BorrowedFd::borrow_raw(self.number()) }
    }

    /// This is its socket. In a child of vfork, which has its parent's memory, and descriptors of
    /// its own, a number may be another file's. (One that has no slot is believed: nothing is sent
    /// for it.)
    pub fn is_socket(&self, fd: BorrowedFd) -> bool {
        match self.attached.get() {
            Some(Some(attached)) => socket_cookie(fd) == Ok(attached.cookie),
            _ => true,
        }
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

    /// It is one for Linux, for good.
    pub fn leave_to_linux(self: &Arc<Self>, reason: StayReason) {
        self.clone().stays(reason);
    }

    /// It may have been registered, and nobody has said what becomes of it.
    pub(crate) fn is_pending(&self) -> bool {
        self.attached.get().is_none() && self.registered.load(Ordering::Relaxed)
    }

    /// The service may have a copy of the socket. (The thread that closes it says so before it
    /// asks: see `undecided` of `way`.)
    pub(crate) fn was_shown(&self) -> bool {
        self.registered.load(Ordering::SeqCst)
    }

    /// Nobody has said what becomes of it.
    pub fn is_undecided(&self) -> bool {
        self.attached.get().is_none()
    }

    /// The other side wrote nonsense: one direction carries nothing any more.
    #[cold]
    pub(crate) fn poison<T>(&self, poisoned: &mut bool) -> Result<T, Errno> {
        if !std::mem::replace(poisoned, true) {
            add(&self.context.settings.counters.tcp_poisoned, 1);
        }
        Err(Errno::CONNRESET)
    }

    /// In a forked child: no other thread is here.
    pub(crate) fn in_child(&self) {
        self.bypassing.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        self.own_sleeper.ends();
        if let Some(attached) = self.attached()
            && self.context.is_in_its_place()
        {
            attached.mapped.ends.is_held_by(attached.slot, self.context.process());
        }
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
        // The number gets no slot from here on.
        self.forget(number);
        self.close();
        self.tell_totals();
        if self.registered.load(Ordering::Relaxed) {
            self.context.lengths.ended(self.registers_after, self.counts.calls());
        }
    }

    /// One of its numbers is about to be closed, and it has others: it stays in sets that know it
    /// by that one, but what is said of the number is the next file's.
    pub fn loses(&self, number: RawFd) {
        lock(&self.watchers).iter().for_each(|watcher| watcher.loses(number));
    }

    /// Nobody has said what becomes of it, and it is Linux's from now on. False: somebody has.
    pub(crate) fn stays_linuxs(&self) -> bool {
        let none = self.attached.set(None).is_ok();
        if none && self.was_shown() {
            self.context.forgets(self.token.load(Ordering::Relaxed));
        }
        none
    }

    /// The program has closed it: no set looks at it any more, and it gets no slot.
    fn forget(&self, number: RawFd) {
        let sole = self.holders.sole();
        self.holders.one_less();
        self.ends_here();
        if self.stays_linuxs() {
            self.stayed_to_the_end(sole);
        }
        let watchers = std::mem::take(&mut *lock(&self.watchers));
        watchers.iter().for_each(|watcher| watcher.gone(number));
    }

    /// It was closed, or the program ends, and nobody has said what becomes of it: a reason, too.
    /// (Not where another process holds it, and this one has hardly used it: that one says what
    /// becomes of it. Nor where a forked child has never used what it inherited.)
    fn stayed_to_the_end(&self, sole: bool) {
        let calls = self.calls.load(Ordering::Relaxed);
        let reason = if self.was_shown() {
            StayReason::Waiting
        } else if !sole && calls >= self.registers_after {
            StayReason::Forked
        } else if sole && (calls > 0 || !self.inherited) {
            StayReason::Short
        } else {
            return;
        };
        if self.reason.set(reason).is_ok() {
            add(stayed(self.context.settings.counters, reason), 1);
        }
    }

    /// The program ends, and has not closed it.
    pub fn program_ends(&self) {
        self.tell_totals();
        if self.is_undecided() {
            self.stayed_to_the_end(self.holders.sole());
        }
    }

    /// The program has closed it past us.
    pub fn was_closed(&self) {
        self.forget(-1);
        if let Some(Some(attached)) = self.attached.get() {
            self.was_closed_past(attached);
            self.context.has_ended_in(&attached.mapped);
        }
    }

    /// From now on no call of another thread, which may have waited since before, uses its number
    /// or its slot. (Those that wait go on sleeping, as with Linux, until somebody wakes them.)
    pub(crate) fn ends_here(&self) {
        {
            // (A look at whether it is closed, and no more, must not find that of one whose thread
            // is about to be handed blocks: their memory would go.)
            let receiving = match self.attached.get() {
                Some(Some(Attached { mapped, slot, .. })) => {
                    Some(mapped.ends.receiving(*slot, self.context.process()))
                }
                _ => None,
            };
            self.closed.store(true, Ordering::SeqCst);
            drop(receiving);
        }
        self.own_sleeper.ends();
        if let Some(Some(attached @ Attached { mapped, slot, .. })) = self.attached.get() {
            // A thread that was in a call is not any more; one that comes later sees it.
            drop(mapped.ends.receiving(*slot, self.context.process()));
            let mut own = mapped.ends.sending(*slot, self.context.process());
            own.batch.end(&mapped.prices, attached.out());
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

    /// Calls do not wait. (Asked when one is about to wait, or would have to.)
    pub fn is_nonblocking(&self) -> bool {
        if self.is_set_elsewhere.load(Ordering::Relaxed)
            && let Ok(flags) = fcntl_getfl(self.fd())
        {
            self.set_nonblocking(flags.contains(OFlags::NONBLOCK));
        }
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// How long a call waits, in nanoseconds, as the socket has it now; 0: without end.
    pub(crate) fn timeout(&self, room: bool) -> u64 {
        if self.is_set_elsewhere.load(Ordering::Relaxed) {
            self.refresh_timeouts();
        }
        self.timeouts[usize::from(room)].load(Ordering::Relaxed)
    }

    /// SO_RCVTIMEO; none: a call waits without end.
    pub fn receive_timeout(&self) -> Option<std::time::Duration> {
        let nanoseconds = self.timeout(false);
        (nanoseconds != 0).then(|| std::time::Duration::from_nanos(nanoseconds))
    }

    /// Another process has it from now on, or had it: what it sets of the socket nobody tells here.
    pub(crate) fn may_be_set_elsewhere(&self) {
        self.is_set_elsewhere.store(true, Ordering::Relaxed);
    }

    /// A process that had it, too, has shut receiving down.
    pub(crate) fn was_shut_elsewhere(&self) -> bool {
        self.is_set_elsewhere.load(Ordering::Relaxed)
            && kernel::hung_up(self.fd())
            && !kernel::has_peer_ended(self.fd())
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

    /// As above, as far as is known without asking.
    pub(crate) fn has_slot(&self) -> bool {
        matches!(self.attached.get(), Some(Some(_)))
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

    /// A call is made: whether Linux is to be asked if the peer lives.
    #[inline]
    pub(crate) fn is_to_ask(&self, asks: &mut Asks) -> bool {
        self.context.settings.asks && asks.is_due()
    }

    #[inline]
    pub(crate) fn take_ask(&self) -> bool {
        self.ask.load(Ordering::Relaxed) && self.ask.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn watch(&self, watcher: Arc<dyn Watcher>) {
        lock(&self.watchers).push(watcher);
    }

    /// From now on sets are told when less is there.
    pub(crate) fn in_nested_set(&self) {
        self.nested.store(true, Ordering::Relaxed);
    }

    /// The program has taken something.
    pub(crate) fn settles(&self) {
        lock(&self.watchers).iter().for_each(|watcher| watcher.settles());
    }

    /// The sets that it is in.
    pub fn added_to(&self) -> Vec<Added> {
        lock(&self.watchers).iter().filter_map(|watcher| watcher.added()).collect()
    }

    /// It is in a set.
    pub(crate) fn is_watched(&self) -> bool {
        !lock(&self.watchers).is_empty()
    }

    pub(crate) fn unwatch(&self, watcher: &Arc<impl Watcher>) {
        lock(&self.watchers)
            .retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(watcher)));
    }

    /// The program has set SO_RCVTIMEO or SO_SNDTIMEO: what the kernel says is what counts, and
    /// asking it for each wait is a tenth of one.
    pub fn refresh_timeouts(&self) {
        for (timeout, which) in self.timeouts.iter().zip([Timeout::Recv, Timeout::Send]) {
            let set = socket_timeout(self.fd(), which).ok().flatten();
            timeout.store(set.map_or(0, |set| set.as_nanos() as u64), Ordering::Relaxed);
        }
    }

    /// Asks the kernel's connection.
    pub(crate) fn kernel_poll(&self, events: PollFlags) -> PollFlags {
        self.with_error(kernel::poll_now(self.fd(), events))
    }

    /// The bits that the kernel says of the connection; POLLERR too, where its error is kept here.
    pub(crate) fn with_error(&self, said: PollFlags) -> PollFlags {
        let kept = said.contains(PollFlags::HUP) && self.has_error();
        if kept { said | PollFlags::ERR } else { said }
    }
}
