//! The fault-handling thread: answers touches of unmapped pages, also those that the kernel makes
//! on the program's behalf, and heeds the kernel's reports of changes to the memory map.
//!
//! It has no rights ([`crate::thread`]), but the user and the namespaces of the thread that made it. Where the program changes
//! those, another one is made and this one ends (`renew`, `without`).
//!
//! unsafe: touches a page of ours to wake the thread; changes its table of descriptors.

use crate::freeze::{LIST, Since};
use crate::inject;
use crate::lock::Lock;
use crate::pages::{Fds, WAKE_TRIES};
use crate::place::{self, Place};
use crate::sync::Futex;
use crate::thread::{self, Kind, Seat};
use crate::uffd::{Event, Msg, Uffd};
use crate::{critical, space};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::mm::{Advice, madvise};
use uncopy_core::tracker::Fault;
use uncopy_inject::Call;
use uncopy_ranges::span::{PAGE, Span};

/// Faults that wait for the memory map to settle. The kernel hands out all faults before the report
/// that they wait for, so there must be room for those of all threads; beyond it threads fault
/// again and again.
const WAITING_MAX: usize = 4096;

/// How long faults that could not be answered, or a poll that was refused, wait for the next try.
const SOON: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Not [`STARTING`] once the thread that is being made has its own descriptors, or has ended because it cannot.
static READY: Futex = Futex::new(STARTING);
const STARTING: u32 = 0;
const RUNS: u32 = 1;
const FAILED: u32 = 2;

/// Of two: one for the thread, one for its successor.
static POSTS: [Post; 2] = [const {
    Post {
        seat: Seat::new(),
        order: Futex::new(STAY),
        numbers: [const { AtomicI32::new(-1) }; 2],
        own_table: AtomicBool::new(false),
    }
}; 2];
/// Whose thread it is that answers.
static ON_DUTY: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Held by who makes or ends one while other threads could.
static CHANGE: Lock = Lock::new();

struct Post {
    seat: Seat,
    order: Futex,
    /// The userfaultfds, when it was made.
    numbers: [AtomicI32; 2],
    /// See [`Kind`].
    own_table: AtomicBool,
}
const STAY: u32 = 0;
/// It is not to begin before the one whose place it takes has ended: it would take the fault that wakes that one.
const WAIT: u32 = 3;
/// It is to end, as soon as it is no longer needed to answer the fault that tells it so.
const GO: u32 = 1;
/// That fault was answered. (It may have woken by itself just before it.)
const GO_NOW: u32 = 2;

/// Makes the thread and waits until the program cannot take its descriptors away; returns whether
/// that worked.
pub(crate) fn spawn() -> bool {
    spawn_with(STAY)
}

fn spawn_with(order: u32) -> bool {
    READY.store(STARTING, Ordering::Relaxed);
    let Some(next) = seat_next(order, false) else { return false };
    while READY.load(Ordering::Acquire) == STARTING {
        READY.wait(STARTING);
    }
    if READY.load(Ordering::Acquire) != RUNS {
        POSTS[next].seat.await_end();
        return false;
    }
    ON_DUTY.store(next, Ordering::Relaxed);
    RUNNING.store(true, Ordering::Relaxed);
    true
}

/// The same in a forked child, which need not wait: the thread has a copy of its descriptors from the first, and what
/// this process does with its own does not reach it. (Most children execute something, or end, before it has come to life.)
pub(crate) fn spawn_in_child() -> bool {
    let next = seat_next(STAY, true);
    if let Some(next) = next {
        ON_DUTY.store(next, Ordering::Relaxed);
        RUNNING.store(true, Ordering::Relaxed);
    }
    next.is_some()
}

/// Makes the next thread. Returns where it sits.
fn seat_next(order: u32, own_table: bool) -> Option<usize> {
    let next = 1 - ON_DUTY.load(Ordering::Relaxed);
    let post = &POSTS[next];
    post.order.store(order, Ordering::Relaxed);
    for (to, number) in post.numbers.iter().zip(space::program_descriptors()?) {
        to.store(number, Ordering::Relaxed);
    }
    post.own_table.store(own_table, Ordering::Relaxed);
    post.seat.spawn(run, next, Kind { inside: true, own_table }).then_some(next)
}

/// Ends the thread `which` and waits until it is gone; `wake_page` is [`crate::pages::Pages::wake_page`].
fn end(which: usize, wake_page: usize) {
    let post = &POSTS[which];
    post.order.store(GO, Ordering::Release);
    let page = wake_page as *mut u8;
    // SAFETY: a page of ours that nobody uses, which is missing from here on; touching it wakes the thread. (Where it cannot be
    // dropped, because it is locked, the thread looks by itself: see `patience`.)
    unsafe {
        let _ = madvise(page.cast(), PAGE, Advice::LinuxDontNeed);
        core::ptr::read_volatile(page);
    }
    post.order.store(GO_NOW, Ordering::Release);
    post.seat.await_end();
}

/// Ends the thread, for good: nothing is tracked any more.
pub(crate) fn dismiss(wake_page: usize) {
    thread::change(&CHANGE, || {
        if RUNNING.swap(false, Ordering::Relaxed) {
            end(ON_DUTY.load(Ordering::Relaxed), wake_page);
        }
    });
}

/// Another thread, with the caller's user and namespaces, takes the place of the one that answers. Returns false where that is
/// not to be had: then the old one goes on.
pub(crate) fn renew(wake_page: usize) -> bool {
    thread::change(&CHANGE, || {
        let old = ON_DUTY.load(Ordering::Relaxed);
        if !runs() {
            return true;
        }
        if !spawn_with(WAIT) {
            return false;
        }
        end(old, wake_page);
        let order = &POSTS[ON_DUTY.load(Ordering::Relaxed)].order;
        order.store(STAY, Ordering::Release);
        order.wake_one();
        true
    })
}

/// Runs `call` while the process has no thread of this kind, which is made anew then; the caller is the only thread of the
/// program, and `call` touches none of its memory. The second result is false where there is none now: nobody answers faults.
pub(crate) fn without<R>(wake_page: usize, call: impl FnOnce() -> R) -> (R, bool) {
    thread::change(&CHANGE, || {
        RUNNING.store(false, Ordering::Relaxed);
        end(ON_DUTY.load(Ordering::Relaxed), wake_page);
        let result = call();
        (result, spawn())
    })
}

fn tell(ready: u32) {
    READY.store(ready, Ordering::Release);
    READY.wake_one();
}

/// glibc's count of threads, in which ours is not. The symbol is there for libthread_db; null in a libc without it.
static COUNT: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Looks for what must not be looked up later, in the middle of a copy.
pub(crate) fn prepare() {
    // SAFETY: a plain lookup.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr()) };
    COUNT.store(found.cast(), Ordering::Relaxed);
}

extern "C" fn run(which: usize) {
    let Post { order, numbers, own_table, .. } = &POSTS[which];
    let _ = rustix::thread::set_name(c"uncopy");
    let [program, pool] = [0, 1].map(|i| numbers[i].load(Ordering::Relaxed));
    // (Of a table that it began with alone it keeps more than it should, rather than leave its process without answers.)
    let mine = keep_only([program, pool]) || own_table.load(Ordering::Relaxed);
    // SAFETY: this thread's own table has just these, and only this thread uses them, until it ends: whatever the program does
    // to its own table does not reach them.
    let own = unsafe { Fds { program: Uffd::from_raw(program), pool: Uffd::from_raw(pool) } };
    // (The program may have put another file there a moment before.)
    if !mine || own.are_gone() {
        core::mem::forget(own);
        tell(FAILED);
        return;
    }
    let mut own = Some(own);
    let mut place = Place::anywhere();
    thread::give_up_rights(place::unfiltered());
    tell(RUNS);
    while order.load(Ordering::Acquire) == WAIT {
        order.wait(WAIT);
    }
    // SAFETY: `own` keeps them open.
    let (program, pool) =
        unsafe { (BorrowedFd::borrow_raw(program), BorrowedFd::borrow_raw(pool)) };
    let mut waiting = Waiting { pages: [0; WAITING_MAX], count: 0 };
    while order.load(Ordering::Acquire) != GO_NOW {
        let mut fds = [PollFd::new(&program, PollFlags::IN), PollFd::new(&pool, PollFlags::IN)];
        let patience = patience(waiting.count > 0 || order.load(Ordering::Acquire) == GO);
        let polled = inject::check(Call::Poll).and_then(|()| poll(&mut fds, patience.as_ref()));
        if polled.is_err() {
            // Not to be had: looked at now and then instead.
            let _ = rustix::thread::nanosleep(&SOON);
        }
        if polled.is_err() || fds[1].revents().contains(PollFlags::IN) {
            space::for_monitor(&mut own, |b, frozen| {
                let mut messages = [Msg::default(); READ_AT_ONCE];
                let Some(own) = &b.memory.fds else { return };
                for m in own.pool.read(&mut messages) {
                    if let Event::Fault(addr) = m.event() {
                        waiting.answer(b, frozen, addr);
                    }
                }
            });
        }
        // Reports are read with the lock held: once the kernel lets the reported call return,
        // nobody sees the books without it.
        let mut faults = false;
        space::for_monitor(&mut own, |b, frozen| {
            b.answers_near(place.is_near());
            waiting.try_again(b, frozen);
            if frozen && !LIST.has_room(READ_AT_ONCE) {
                return;
            }
            let mut messages = [Msg::default(); READ_AT_ONCE];
            loop {
                let Some(own) = &b.memory.fds else { return };
                let read = own.program.read(&mut messages);
                for m in read {
                    match m.event() {
                        Event::Fault(addr) => {
                            faults = true;
                            waiting.answer(b, frozen, addr);
                        }
                        event if frozen => {
                            LIST.push(event);
                        }
                        event => report(b, event),
                    }
                }
                if read.len() < READ_AT_ONCE || frozen && !LIST.has_room(READ_AT_ONCE) {
                    break;
                }
            }
        });
        if faults {
            space::for_monitor(&mut own, |_, _| place.answered());
        }
    }
    space::for_monitor(&mut own, |b, _| waiting.leave(b));
    // (Its table, and with it the descriptors, go with the thread.)
    core::mem::forget(own);
}

/// How long the thread sleeps at most.
fn patience(soon: bool) -> Option<rustix::event::Timespec> {
    if soon {
        return Some(SOON);
    }
    // Once we stand aside, the page that wakes us may have been locked, and so touched.
    (!space::running()).then_some(rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 })
}

/// Reports read under one hold of the lock.
const READ_AT_ONCE: usize = 32;

/// Whether the thread runs: it is one more than the program knows of.
pub fn runs() -> bool {
    RUNNING.load(Ordering::Relaxed)
}

/// After fork, in the child: the thread was not taken along, nor one that was changing it.
pub(crate) fn is_gone() {
    RUNNING.store(false, Ordering::Relaxed);
    CHANGE.reset();
    crate::place::forget();
}

/// How many threads are ours.
fn ours() -> usize {
    usize::from(runs()) + usize::from(crate::leases::running())
}

/// How many threads the process has; one that has ended counts if it is the first.
fn threads() -> Option<usize> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let tasks = inject::check(Call::Open)
        .and_then(|()| rustix::fs::open(c"/proc/self/task", flags, Mode::empty()))
        .ok()?;
    let mut buffer = [core::mem::MaybeUninit::uninit(); 1024];
    let mut entries = rustix::fs::RawDir::new(tasks, &mut buffer);
    let mut count = 0;
    while let Some(Ok(entry)) = entries.next() {
        count += usize::from(!entry.file_name().to_bytes().starts_with(b"."));
    }
    Some(count)
}

/// Whether the program has no thread but the calling one.
pub fn alone_with_program() -> bool {
    match threads() {
        Some(n) => n == 1 + ours(),
        // In a chroot without /proc.
        None => program_has_one_thread(),
    }
}

/// Whether the program has one thread besides ours, as far as libc counts.
pub(crate) fn program_has_one_thread() -> bool {
    // SAFETY: an `unsigned int` of libc's data, which is never unmapped, changed only atomically.
    let count = unsafe { COUNT.load(Ordering::Relaxed).as_ref() };
    count.is_some_and(|c| c.load(Ordering::Relaxed) == 1)
}

/// Leaves this thread with a descriptor table of its own that holds only ours: what the program
/// closes is closed, and what it closes of ours stays open here. Returns false where that is not to be
/// had: then the thread must end (a file of the program's would stay open as long as it lives, or the
/// program could put another file at our number).
pub(crate) fn keep_only(ours: [i32; 2]) -> bool {
    let (low, high) = (ours[0].min(ours[1]) as u32, ours[0].max(ours[1]) as u32);
    // SAFETY: from the first call on the table is this thread's alone (CLOSE_RANGE_UNSHARE).
    unsafe {
        let close = |from: u32, to: u32, flags: usize| {
            let call = libc::SYS_close_range as usize;
            from > to
                || inject::check(Call::CloseRange).is_ok()
                    && critical::syscall4(call, from as usize, to as usize, flags, 0) == 0
        };
        const UNSHARE: usize = 2;
        close(high + 1, u32::MAX, UNSHARE)
            && close(low + 1, high - 1, 0)
            && (low == 0 || close(0, low - 1, 0))
    }
}

/// Heeds a report.
pub(crate) fn report(books: &mut space::Books, event: Event) {
    match event {
        Event::Unmap(span) => books.unmapped(span),
        Event::Remove(span) => books.removed(span),
        Event::Remap(from, to, len) => books.remapped(from, to, len),
        Event::Fault(_) | Event::Other(_) => return,
    }
    space::publish_exclusions(books.excluded());
}

/// Faults that cannot be answered while the memory map is changing.
struct Waiting {
    pages: [usize; WAITING_MAX],
    count: usize,
}

impl Waiting {
    fn answer(&mut self, books: &mut space::Books, frozen: bool, addr: usize) {
        if Self::resolve(books, frozen, addr) {
            return;
        }
        if self.count < WAITING_MAX {
            self.pages[self.count] = addr;
            self.count += 1;
        } else {
            // Too many to remember: the thread faults again. Never stop reading, for what the
            // others wait for may be a report behind these faults.
            if let Some(fds) = &books.memory.fds {
                let page = Span::sized(addr & !(PAGE - 1), PAGE);
                let _ = (0..WAKE_TRIES).any(|_| fds.program.wake(page));
            }
        }
    }

    /// Whoever still waits faults again, for somebody else to answer.
    fn leave(&mut self, books: &space::Books) {
        for addr in &self.pages[..core::mem::take(&mut self.count)] {
            if let Some(fds) = &books.memory.fds {
                let page = Span::sized(addr & !(PAGE - 1), PAGE);
                let _ = (0..WAKE_TRIES).any(|_| fds.program.wake(page));
            }
        }
    }

    fn try_again(&mut self, books: &mut space::Books, frozen: bool) {
        let count = core::mem::take(&mut self.count);
        for i in 0..count {
            // (Never ahead of what is still to be read: at most `i` were put back.)
            let addr = self.pages[i];
            self.answer(books, frozen, addr);
        }
    }

    /// Returns false if it has to be tried again.
    fn resolve(books: &mut space::Books, frozen: bool, addr: usize) -> bool {
        if books.memory.is_pool(addr) {
            return books.memory.provide_zero(addr);
        }
        let outcome = match frozen.then(|| LIST.since(addr)) {
            None => books.fault(addr),
            Some(Since::Moved) => Fault::Again,
            Some(_) if !LIST.has_room(1) => Fault::Again,
            Some(since) => {
                let line = LIST.push(Event::Fault(addr));
                let outcome = match since {
                    Since::Gone if books.memory.provide_zero(addr) => Fault::Resolved,
                    Since::Same => books.fault_while_frozen(addr),
                    _ => Fault::Again,
                };
                if outcome != Fault::Resolved {
                    LIST.cancel(line);
                }
                outcome
            }
        };
        match outcome {
            Fault::Resolved => true,
            Fault::Unknown => books.memory.provide_zero(addr),
            Fault::Again => false,
        }
    }
}
