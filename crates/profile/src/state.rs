//! The one follower of this process, and its lock.
//!
//! unsafe: the follower lives in a static behind our own lock; reads what the kernel has just
//! written into the program's memory, or read from it.

use crate::{book, inside, watch};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::collections::BTreeMap;
use uncopy_flow::layout::header;
use uncopy_flow::{Follower, ProgramMemory};
use uncopy_kernel::critical::{block_signals, restore_signals};
use uncopy_kernel::lock::Lock;
use uncopy_ranges::filter::Filter;

/// The profiler's state, of which there is one.
pub struct State {
    /// Follows.
    pub follower: Follower<'static>,
    /// Numbers of sites, by call and return address.
    pub sites: BTreeMap<usize, u32>,
    /// Numbers of modules, by path.
    pub modules: BTreeMap<Vec<u8>, u64>,
    /// Which pages are away.
    pub watch: watch::Watch,
    /// When the CPU time was noted, ns.
    pub noted: u64,
    /// CPU time of the threads that watch, as far as it is counted, ns.
    pub helped: u64,
    /// Questions that the filter let through for nothing.
    pub vain: u32,
}

/// All that this library has of its process. A static: the program calls in with nothing in hand.
struct Global {
    state: UnsafeCell<Option<State>>,
    lock: Lock,
    on: AtomicBool,
    /// The process that the follower is of: a child of vfork, or one made behind libc's back, is
    /// another.
    pid: AtomicI32,
}
// SAFETY: the state is reached only with the lock held, or in a forked child, which has one thread.
unsafe impl Sync for Global {}
static GLOBAL: Global = Global {
    state: UnsafeCell::new(None),
    lock: Lock::new(),
    on: AtomicBool::new(false),
    pid: AtomicI32::new(0),
};
/// Memory that may hold tagged bytes.
pub static FILTER: Filter = Filter::new();

/// The program's memory.
pub struct Program;

impl ProgramMemory for Program {
    fn word(&self, addr: usize) -> u64 {
        // SAFETY: the kernel has just read or written it, or the calling thread is about to.
        unsafe { (addr as *const u64).read_unaligned() }
    }
}

/// Whether this thread is in here already, or nothing is followed.
pub fn idle() -> bool {
    !GLOBAL.on.load(Relaxed) || inside::is()
}

/// Runs `f` on the state. No handler of the program runs on this thread meanwhile: it might leave
/// by `longjmp`.
pub fn with<R>(f: impl FnOnce(&mut State) -> R) -> Option<R> {
    if idle() || GLOBAL.pid.load(Relaxed) != rustix::process::getpid().as_raw_pid() {
        return None;
    }
    let began = book::thread_ns();
    let mask = block_signals();
    inside::set(true);
    GLOBAL.lock.lock();
    // SAFETY: the lock is held.
    let result = unsafe { &mut *GLOBAL.state.get() }.as_mut().map(|state| {
        state.begin();
        let result = f(state);
        state.end(began);
        result
    });
    GLOBAL.lock.unlock();
    inside::set(false);
    restore_signals(mask);
    result
}

impl State {
    fn begin(&mut self) {
        self.follower.now = (book::now_ns() / 1_000_000) as u32;
        self.watch.notice(&mut self.follower);
    }

    fn end(&mut self, began: u64) {
        let book = self.follower.book();
        let now = book::now_ns();
        book.set_head(header::SEEN, now);
        let helped = watch::helped_ns();
        let took = book::thread_ns().saturating_sub(began) + helped - self.helped;
        self.helped = helped;
        book.add_head(header::FOLLOW_NS, took);
        const EVERY: u64 = 20_000_000;
        if now - self.noted > EVERY {
            self.noted = now;
            book::note_usage(book);
        }
    }

    /// The filter let something through. Now and then it is made anew.
    pub fn was_tagged(&mut self, tagged: bool) {
        const MOST_IN_VAIN: u32 = 4096;
        self.vain += u32::from(!tagged);
        if self.vain > MOST_IN_VAIN + self.follower.pieces() as u32 {
            self.vain = 0;
            FILTER.track_only(self.follower.all().map(|p| p.span));
        }
    }
}

/// The number of a site that `sites::site` has forgotten, or never had room for.
pub fn site_known(key: usize) -> Option<u32> {
    with(|s| s.sites.get(&key).copied()).unwrap_or(Some(0))
}

/// Moves every watched page in before the memory is copied behind libc's back.
pub fn before_unknown_fork() {
    with(|s| s.watch.end(&mut s.follower));
}

/// Another follower takes the place of the one that was there, which is left as it is: a child's is
/// its parent's.
pub fn begin(state: State) {
    GLOBAL.lock.lock();
    // SAFETY: the lock is held.
    unsafe { core::mem::forget((*GLOBAL.state.get()).replace(state)) };
    GLOBAL.lock.unlock();
    GLOBAL.pid.store(rustix::process::getpid().as_raw_pid(), Relaxed);
    GLOBAL.on.store(true, Relaxed);
}

/// Before fork, on a thread that is in here until after the fork: takes the lock.
pub fn before_fork() {
    GLOBAL.lock.lock();
    // SAFETY: the lock is held.
    if let Some(s) = unsafe { &mut *GLOBAL.state.get() } {
        s.watch.end(&mut s.follower);
    }
}

/// Whether this thread has the lock since [`before_fork`].
pub fn forking() -> bool {
    GLOBAL.on.load(Relaxed) && inside::is()
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    GLOBAL.lock.unlock();
}

/// After fork, in the child: nothing is followed. Returns whether pages were watched.
pub fn after_fork_child() -> bool {
    GLOBAL.lock.reset();
    GLOBAL.on.store(false, Relaxed);
    // SAFETY: a forked child has one thread.
    unsafe { (*GLOBAL.state.get()).as_ref() }.is_some_and(|s| s.watch.wanted())
}
