//! The one value of a process: its table of descriptors, and the context of its connections, which
//! is made with the first of them.
//!
//! unsafe: what is made once is reached by its address.

use crate::connection::Connection;
use crate::entry::Entry;
use crate::listeners::Listening;
use crate::over_fork::OverFork;
use crate::said::Early;
use crate::seldom::Seldom;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_counters::{Counters, add};
use uncopy_kernel::critical;
use uncopy_kernel::descriptors::have_room;
use uncopy_kernel::fd_table::{FdGuard, FdTable};
use uncopy_kernel::lock::Lock;
use uncopy_tcp_socket::{
    Blocks, Context, Flow, Rendezvous, Settings as OfContext, StayReason, Waiting, stayed,
};

/// A context's descriptors, with those of one program that it is connected to.
const FEWEST: u64 = 16;

/// The functions that it needs of the process that it runs in.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which service.
    pub service: Rendezvous,
    /// How calls wait.
    pub waiting: Waiting,
    /// Starts a service.
    pub start: fn(),
    /// Calls after which a connection is registered with the service, where a test says it.
    pub after: Option<u32>,
    /// Which messages go in blocks.
    pub blocks: Blocks,
    /// Why this program gives and takes none: where that is counted.
    pub no_blocks: fn() -> Option<&'static AtomicU64>,
    /// Whether these may take so many bytes of memory.
    pub may_hold: fn(u64) -> bool,
    /// Where it counts.
    pub counters: &'static Counters,
    /// There is something to count: others may look at it.
    pub publish: fn(),
    /// A call may sleep: which handlers run from now on is of interest. Returns the value that the
    /// next one is to be told.
    pub sleeps: fn() -> u64,
    /// The call has ended. (It may be a handler's, whose thread is in another call.)
    pub has_slept: fn(u64),
    /// A thread that was cancelled ends here.
    pub ends: fn(),
    /// This thread was cancelled, and is still to end.
    pub is_to_end: fn() -> bool,
    /// All handlers that ran since want interrupted calls to go on (SA_RESTART).
    pub goes_on: fn() -> bool,
}

/// See the module. Zeros at first.
#[derive(Debug)]
pub struct Tcp {
    pub(crate) table: FdTable<Entry>,
    settings: AtomicPtr<Settings>,
    context: AtomicPtr<Arc<Context>>,
    making: Lock,
    pub(crate) process: AtomicU32,
    /// Why no connection is looked up any more; 0: they are.
    pub(crate) stopped: AtomicU64,
    /// Some thread was cancelled.
    pub(crate) cancels: AtomicBool,
    /// It takes and gives no arenas, whichever context it has.
    pub(crate) no_arenas: AtomicBool,
    /// It was asked whether there are to be any.
    blocks_known: AtomicBool,
    /// Some socket has an option that rings do not have.
    pub(crate) options: AtomicBool,
    /// Some socket signs its segments.
    pub(crate) signs: AtomicBool,
    pub(crate) over_fork: AtomicPtr<OverFork>,
    pub(crate) listening: Listening,
    /// There was no service with a wire.
    pub(crate) no_wire: Seldom,
    pub(crate) early: Early,
}

impl Default for Tcp {
    fn default() -> Self {
        Self::new()
    }
}

impl Tcp {
    /// Where in it a word of 32 bits lies that is 0 as long as it is not [in use](Tcp::in_use), for
    /// the entry points of calls.
    pub const IN_USE: usize = core::mem::offset_of!(Self, table) + FdTable::<Entry>::ANY;

    /// Nothing is looked at.
    pub const fn new() -> Self {
        Self {
            table: FdTable::new(),
            settings: AtomicPtr::new(core::ptr::null_mut()),
            context: AtomicPtr::new(core::ptr::null_mut()),
            making: Lock::new(),
            process: AtomicU32::new(0),
            stopped: AtomicU64::new(0),
            cancels: AtomicBool::new(false),
            no_arenas: AtomicBool::new(false),
            blocks_known: AtomicBool::new(false),
            options: AtomicBool::new(false),
            signs: AtomicBool::new(false),
            over_fork: AtomicPtr::new(core::ptr::null_mut()),
            listening: Listening::new(),
            no_wire: Seldom::new(),
            early: Early::new(),
        }
    }

    /// From now on connections within this host are carried.
    pub fn begin(&self, settings: Settings) {
        self.process.store(std::process::id(), Relaxed);
        self.settings.store(Box::into_raw(Box::new(settings)), Release);
        self.table.begin();
    }

    /// Calls come by here from now on, though no descriptor need be a connection: somebody else
    /// asks for them by the same word.
    pub fn attend(&self) {
        self.table.attend();
    }

    /// Connections are carried.
    #[inline]
    pub fn begun(&self) -> bool {
        self.table.begun()
    }

    /// There was a connection within this host, or a set with one.
    #[inline]
    pub fn in_use(&self) -> bool {
        !self.table.is_empty()
    }

    pub(crate) fn settings(&self) -> Option<&'static Settings> {
        // SAFETY: made once, never freed.
        unsafe { self.settings.load(Acquire).as_ref() }
    }

    /// The table is this process's. (A child of vfork shares our memory, but has descriptors of its
    /// own.)
    pub fn is_own(&self) -> bool {
        self.process.load(Relaxed) == std::process::id()
    }

    /// The entry of `fd`.
    #[inline]
    pub fn find(&self, fd: RawFd) -> Option<FdGuard<'_, Entry>> {
        self.table.find(fd)
    }

    /// The connection `fd`, unless it is Linux's.
    pub(crate) fn connection(&self, fd: RawFd) -> Option<Arc<Connection>> {
        self.any_connection(fd).filter(|connection| !connection.flow.is_linux())
    }

    /// The connection `fd`, also where it is Linux' for good.
    pub(crate) fn any_connection(&self, fd: RawFd) -> Option<Arc<Connection>> {
        match &*self.find(fd)? {
            Entry::Connection(connection) => Some(connection.clone()),
            Entry::Set(_) => None,
        }
    }

    /// The context of this process' connections. `None`: it cannot be made (no descriptors).
    pub(crate) fn context(&self) -> Option<Arc<Context>> {
        let known = || {
            // SAFETY: made once, freed by nobody.
            unsafe { self.context.load(Acquire).as_ref() }.cloned()
        };
        known().or_else(|| {
            critical::within(|| {
                self.making.lock();
                let made = known().or_else(|| self.make_context());
                self.making.unlock();
                made
            })
        })
    }

    /// The same, for what may as well be Linux's: none is made where the program may want the
    /// descriptors for itself.
    pub(crate) fn context_if_room(&self) -> Option<Arc<Context>> {
        self.known_context().or_else(|| have_room(FEWEST).then(|| self.context()).flatten())
    }

    fn make_context(&self) -> Option<Arc<Context>> {
        let settings = self.settings()?;
        (settings.publish)();
        // A filter might end the program for the calls that arenas take (memfd_create, fstatfs,
        // locks of files), which it makes nowhere else. (Asked once: forked children have the
        // same.)
        if settings.blocks != Blocks::NONE
            && !self.blocks_known.swap(true, Relaxed)
            && let Some(reason) = (settings.no_blocks)()
        {
            self.no_arenas.store(true, Relaxed);
            reason.store(1, Relaxed);
        }
        let context = Context::new(OfContext {
            waiting: settings.waiting,
            start: Some(settings.start),
            after: settings.after,
            blocks: if self.no_arenas.load(Relaxed) { Blocks::NONE } else { settings.blocks },
            may_hold: settings.may_hold,
            counters: settings.counters,
            interrupted: settings.is_to_end,
            ..OfContext::new(settings.service.clone())
        });
        let context = context.ok()?;
        self.context.store(Box::into_raw(Box::new(context.clone())), Release);
        Some(context)
    }

    /// In a forked child: it makes one of its own. (The parent's is that of the connections that it
    /// inherited.)
    pub(crate) fn no_context(&self) {
        self.context.store(core::ptr::null_mut(), Release);
    }

    /// A thread was cancelled: threads that sleep over connections look whether they are to end.
    pub fn thread_cancelled(&self) {
        self.cancels.store(true, Relaxed);
        if let Some(context) = self.known_context() {
            context.wake_sleepers();
        }
    }

    pub(crate) fn known_context(&self) -> Option<Arc<Context>> {
        // SAFETY: as above.
        unsafe { self.context.load(Acquire).as_ref() }.cloned()
    }

    pub(crate) fn hold(&self) {
        self.making.lock();
        self.early.hold();
        self.table.hold();
    }

    pub(crate) fn let_go(&self) {
        self.table.let_go();
        self.early.let_go();
        self.making.unlock();
    }

    /// All that was sent and received is counted.
    pub fn tell_totals(&self) {
        self.each(Flow::tell_totals);
    }

    /// The program ends: so is what became of connections that it has not closed.
    pub fn program_ends(&self) {
        // (In a sandbox, for which it has stopped, not even the question who one is may be asked.
        // Nothing is undecided then.)
        if self.in_use() && !self.is_stopped() && self.is_own() {
            self.each(Flow::program_ends);
        } else {
            self.tell_totals();
        }
    }

    fn each(&self, f: impl Fn(&Flow)) {
        for (_, what) in self.table.all(0, u32::MAX) {
            if let Entry::Connection(connection) = what {
                f(&connection.flow);
            }
        }
    }

    /// A connection stays with Linux, of which nothing else is known here.
    #[cold]
    pub(crate) fn stays(&self, reason: StayReason) {
        if let Some(settings) = self.settings() {
            (settings.publish)();
            add(stayed(settings.counters, reason), 1);
        }
    }
}
