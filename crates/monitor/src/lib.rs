//! The fault-handling thread: answers touches of unmapped pages, also those that the kernel makes
//! on the program's behalf, and handles the kernel's reports of changes to the memory map.
//!
//! It reads what the kernel says and hands it to a [`Server`], which it knows nothing more of: what
//! is tracked, and what a page consists of, is not its business.
//!
//! It has no rights ([`thread`]), but the user and the namespaces of the thread that made it. Where
//! the program changes those, another one is made and this one ends ([`Monitor::renew`],
//! [`Monitor::without`]).
//!
//! | module | one idea |
//! | --- | --- |
//! | [`serve`] | what answers, as the thread sees it; faults that have to wait |
//! | [`place`] | on which core it waits |
//!
//! unsafe: touches a page of ours to wake the thread; takes its userfaultfds by their numbers;
//! finds its server behind the word that a thread is made with.

// (`make loom` tries what `uncopy-space` has beside it.)
#![cfg(not(loom))]

pub mod place;
pub mod serve;

use crate::place::{Affinity, Whereabouts};
use crate::serve::{Server, Watch};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, madvise};
use uncopy_inject::Call;
use uncopy_kernel::clock;
use uncopy_kernel::descriptors::keep_only;
use uncopy_kernel::inject;
use uncopy_kernel::lock::Lock;
use uncopy_kernel::sync::Futex;
use uncopy_kernel::thread::{self, Kind, ThreadSlot};
use uncopy_kernel::uffd::{Fds, Uffd};
use uncopy_ranges::span::PAGE;

/// How long faults that could not be answered, or a poll that was refused, wait for the next try.
const SOON: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// The thread of a process, and the one that takes its place.
#[derive(Debug)]
pub struct Monitor {
    /// Not [`STARTING`] once the thread that is being made has its own descriptors, or has ended
    /// because it cannot.
    ready: Futex,
    /// Two: one for the thread, one for its successor.
    slots: [Slot; 2],
    /// The thread that answers.
    on_duty: AtomicUsize,
    running: AtomicBool,
    /// See [`Monitor::faults_wait`].
    faults_wait: AtomicBool,
    /// Held by who makes or ends one while other threads could.
    change: Lock,
    /// Where the program's threads run.
    pub whereabouts: Whereabouts,
}

const STARTING: u32 = 0;
const RUNS: u32 = 1;
const FAILED: u32 = 2;

#[derive(Debug)]
struct Slot {
    thread: ThreadSlot,
    order: Futex,
    /// The userfaultfds, when it was made.
    numbers: [AtomicI32; 2],
    /// See [`Kind`].
    own_table: AtomicBool,
    /// Its [`Server`].
    server: AtomicPtr<()>,
}

const STAY: u32 = 0;
/// It is not to begin before the one whose place it takes has ended: it would take the fault that
/// wakes that one.
const WAIT: u32 = 3;
/// It is to end, as soon as it is no longer needed to answer the fault that tells it so.
const GO: u32 = 1;
/// That fault was answered. (It may have woken by itself just before it.)
const GO_NOW: u32 = 2;

impl Default for Monitor {
    fn default() -> Self {
        Self::new()
    }
}

impl Monitor {
    /// No thread.
    pub const fn new() -> Self {
        Self {
            ready: Futex::new(STARTING),
            slots: [const {
                Slot {
                    thread: ThreadSlot::new(),
                    order: Futex::new(STAY),
                    numbers: [const { AtomicI32::new(0) }; 2],
                    own_table: AtomicBool::new(false),
                    server: AtomicPtr::new(core::ptr::null_mut()),
                }
            }; 2],
            on_duty: AtomicUsize::new(0),
            running: AtomicBool::new(false),
            faults_wait: AtomicBool::new(false),
            change: Lock::new(),
            whereabouts: Whereabouts::new(),
        }
    }

    /// Makes the thread, which serves `server`, and waits until the program cannot take its
    /// descriptors away; returns whether that worked.
    pub fn spawn<S: Server>(&'static self, server: &'static S) -> bool {
        self.spawn_with(server, STAY)
    }

    fn spawn_with<S: Server>(&'static self, server: &'static S, order: u32) -> bool {
        self.ready.store(STARTING, Ordering::Relaxed);
        let Some(next) = self.spawn_next(server, order, false) else { return false };
        while self.ready.load(Ordering::Acquire) == STARTING {
            self.ready.wait(STARTING);
        }
        if self.ready.load(Ordering::Acquire) != RUNS {
            self.slots[next].thread.await_end();
            return false;
        }
        self.on_duty.store(next, Ordering::Relaxed);
        self.running.store(true, Ordering::Relaxed);
        true
    }

    /// The same in a forked child, which need not wait: the thread has a copy of its descriptors
    /// from the first, and what this process does with its own does not reach it. (Most children
    /// execute something, or end, before it has come to life.)
    pub fn spawn_in_child<S: Server>(&'static self, server: &'static S) -> bool {
        let next = self.spawn_next(server, STAY, true);
        if let Some(next) = next {
            self.on_duty.store(next, Ordering::Relaxed);
            self.running.store(true, Ordering::Relaxed);
        }
        next.is_some()
    }

    /// Makes the next thread. Returns its slot.
    fn spawn_next<S: Server>(
        &'static self,
        server: &'static S,
        order: u32,
        own_table: bool,
    ) -> Option<usize> {
        let next = 1 - self.on_duty.load(Ordering::Relaxed);
        let slot = &self.slots[next];
        slot.order.store(order, Ordering::Relaxed);
        for (to, number) in slot.numbers.iter().zip(server.descriptors()?) {
            to.store(number, Ordering::Relaxed);
        }
        slot.own_table.store(own_table, Ordering::Relaxed);
        slot.server.store(core::ptr::from_ref(server).cast_mut().cast(), Ordering::Relaxed);
        let argument = core::ptr::from_ref(slot) as usize;
        slot.thread.spawn(run::<S>, argument, Kind { inside: true, own_table }).then_some(next)
    }

    /// Ends the thread `which` and waits until it is gone; `wake_page` is registered with the
    /// second userfaultfd.
    fn end(&self, which: usize, wake_page: usize) {
        let slot = &self.slots[which];
        slot.order.store(GO, Ordering::Release);
        let page = wake_page as *mut u8;
        // SAFETY: a page of ours that nobody uses, which is missing from here on; touching it wakes
        // the thread. (Where it cannot be dropped, because it is locked, the thread looks by
        // itself: see `poll_timeout`.)
        unsafe {
            let _ = madvise(page.cast(), PAGE, Advice::LinuxDontNeed);
            core::ptr::read_volatile(page);
        }
        slot.order.store(GO_NOW, Ordering::Release);
        slot.thread.await_end();
    }

    /// Ends the thread, for good: nothing is tracked any more.
    pub fn dismiss(&self, wake_page: usize) {
        thread::change(&self.change, || {
            if self.running.swap(false, Ordering::Relaxed) {
                self.end(self.on_duty.load(Ordering::Relaxed), wake_page);
            }
        });
    }

    /// Another thread, with the caller's user and namespaces, takes the place of the one that
    /// answers. Returns false where that is not to be had: then the old one goes on.
    pub fn renew<S: Server>(&'static self, server: &'static S, wake_page: usize) -> bool {
        thread::change(&self.change, || {
            let old = self.on_duty.load(Ordering::Relaxed);
            if !self.runs() {
                return true;
            }
            if !self.spawn_with(server, WAIT) {
                return false;
            }
            self.end(old, wake_page);
            let order = &self.slots[self.on_duty.load(Ordering::Relaxed)].order;
            order.store(STAY, Ordering::Release);
            order.wake_one();
            true
        })
    }

    /// Runs `call` while the process has no thread of this kind, which is made anew then; the
    /// caller is the only thread of the program, and `call` touches none of its memory. The second
    /// result is false where there is none now: nobody answers faults.
    pub fn without<S: Server, R>(
        &'static self,
        server: &'static S,
        wake_page: usize,
        call: impl FnOnce() -> R,
    ) -> (R, bool) {
        thread::change(&self.change, || {
            self.running.store(false, Ordering::Relaxed);
            self.end(self.on_duty.load(Ordering::Relaxed), wake_page);
            let result = call();
            (result, self.spawn(server))
        })
    }

    /// Whether the thread runs: it is one more than the program knows of.
    pub fn runs(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Whether there are faults that cannot be answered before the memory map stops changing.
    #[inline]
    pub fn faults_wait(&self) -> bool {
        self.faults_wait.load(Ordering::Relaxed)
    }

    /// After fork, in the child: the thread was not taken along, nor one that was changing it.
    pub fn is_gone(&self) {
        self.running.store(false, Ordering::Relaxed);
        self.faults_wait.store(false, Ordering::Relaxed);
        self.change.reset();
        self.whereabouts.forget();
    }

    fn tell(&self, ready: u32) {
        self.ready.store(ready, Ordering::Release);
        self.ready.wake_one();
    }
}

extern "C" fn run<S: Server>(slot: usize) {
    // SAFETY: `spawn_next` made this thread with the address of a slot, in which a server of this
    // type stands; both are never given back.
    let (slot, server) = unsafe {
        let slot = &*(slot as *const Slot);
        (slot, &*slot.server.load(Ordering::Relaxed).cast::<S>())
    };
    let monitor = server.monitor();
    let Slot { order, numbers, own_table, .. } = slot;
    let _ = rustix::thread::set_name(c"uncopy");
    let [program, pool] = [0, 1].map(|i| numbers[i].load(Ordering::Relaxed));
    // (Of a table that it began with alone it keeps more than it should, rather than leave its
    // process without answers.)
    let mine = keep_only([program, pool]) || own_table.load(Ordering::Relaxed);
    // SAFETY: this thread's own table has just these, and only this thread uses them, until it
    // ends: whatever the program does to its own table does not reach them.
    let own = unsafe { Fds { program: Uffd::from_raw(program), pool: Uffd::from_raw(pool) } };
    // (The program may have put another file there a moment before.)
    if !mine || own.are_gone() {
        core::mem::forget(own);
        monitor.tell(FAILED);
        return;
    }
    let mut own = Some(own);
    let mut place = Affinity::anywhere(&monitor.whereabouts, server.bindings());
    let mut sources = server.sources();
    thread::give_up_rights(monitor.whereabouts.gives_up());
    monitor.tell(RUNS);
    while order.load(Ordering::Acquire) == WAIT {
        order.wait(WAIT);
    }
    // SAFETY: `own` keeps them open.
    let (program, pool) =
        unsafe { (BorrowedFd::borrow_raw(program), BorrowedFd::borrow_raw(pool)) };
    let mut watch = Watch::new();
    let mut due = clock::millis();
    while order.load(Ordering::Acquire) != GO_NOW {
        let mut fds = [PollFd::new(&program, PollFlags::IN), PollFd::new(&pool, PollFlags::IN)];
        let soon = watch.waits() || order.load(Ordering::Acquire) == GO;
        let polled = inject::check(Call::Poll)
            .and_then(|()| poll(&mut fds, poll_timeout(soon, server.runs(), due).as_ref()));
        if polled.is_err() {
            // Not to be had: looked at now and then instead.
            let _ = rustix::thread::nanosleep(&SOON);
        }
        if polled.is_err() || fds[1].revents().contains(PollFlags::IN) {
            server.serve(&mut own, &mut |locked| watch.serve_pool(locked));
        }
        let mut faults = false;
        server.serve(&mut own, &mut |locked| {
            locked.near(place.is_near());
            faults = watch.serve_program(locked);
        });
        monitor.faults_wait.store(watch.waits(), Ordering::Relaxed);
        if faults {
            server.serve(&mut own, &mut |_| place.answered());
        }
        if server.runs() && clock::millis() >= due && !watch.waits() {
            due = clock::millis() + server.tend(&mut own, &mut sources);
        }
    }
    server.serve(&mut own, &mut |locked| watch.leave(locked));
    monitor.faults_wait.store(false, Ordering::Relaxed);
    // (Its table, and with it the descriptors, go with the thread.)
    core::mem::forget((own, sources));
}

/// How long the thread sleeps at most; `due`: when it is to look after what lies idle, in ms.
fn poll_timeout(soon: bool, runs: bool, due: u64) -> Option<rustix::event::Timespec> {
    if soon {
        return Some(SOON);
    }
    // Once the server stands aside, the page that wakes us may have been locked, and so touched.
    let left = if runs { due.saturating_sub(clock::millis()) } else { 1000 };
    let (seconds, rest) = (left / 1000, left % 1000);
    Some(rustix::event::Timespec { tv_sec: seconds as i64, tv_nsec: rest as i64 * 1_000_000 })
}

#[cfg(test)]
mod tests;
