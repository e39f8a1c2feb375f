//! The fault-handling thread: answers touches of unmapped pages, also those that the kernel makes
//! on the program's behalf, and heeds the kernel's reports of changes to the memory map.
//!
//! unsafe: makes a thread. It is made through libc (not `clone`), so that `setuid` and its kin
//! reach it too: no thread of ours keeps privileges that the program has dropped.

use crate::freeze::{LIST, Since};
use crate::inject;
use crate::pages::{Fds, WAKE_TRIES};
use crate::place::Place;
use crate::sync::Futex;
use crate::uffd::{Event, Msg, Uffd};
use crate::{critical, procfs, space};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use uncopy_core::inject::Call;
use uncopy_core::span::{PAGE, Span};
use uncopy_core::tracker::Fault;

/// Of the thread, in bytes; the lowest page is its guard.
const STACK: usize = 512 << 10;
/// Faults that wait for the memory map to settle. The kernel hands out all faults before the report
/// that they wait for, so there must be room for those of all threads; beyond it threads fault
/// again and again.
const WAITING_MAX: usize = 4096;

/// How long faults that could not be answered, or a poll that was refused, wait for the next try.
const SOON: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Not [`STARTING`] once the thread has its own descriptors, or has ended because it cannot.
static READY: Futex = Futex::new(STARTING);
const STARTING: u32 = 0;
const RUNS: u32 = 1;
const FAILED: u32 = 2;

/// Makes the thread and waits until the program cannot take its descriptors away; returns whether
/// that worked.
pub(crate) fn spawn() -> bool {
    READY.store(STARTING, Ordering::Relaxed);
    static OWN: Stack = Stack::new();
    if !create(run, &OWN) {
        return false;
    }
    while READY.load(Ordering::Acquire) == STARTING {
        READY.wait(STARTING);
    }
    READY.load(Ordering::Acquire) == RUNS
}

fn tell(ready: u32) {
    READY.store(ready, Ordering::Release);
    READY.wake_one();
}

/// Makes a thread of ours that runs `run`, with all signals blocked.
pub(crate) fn create(
    run: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
    stack: &'static Stack,
) -> bool {
    if inject::check(Call::Thread).is_err() {
        return false;
    }
    let Some(stack) = stack.get() else { return false };
    // SAFETY: plain pthread calls; the thread runs `run` and touches no stack of ours. All signals
    // are blocked while it is made, so it starts (and stays) with all blocked.
    unsafe {
        let mut all = core::mem::zeroed();
        let mut old = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let mut attr = core::mem::zeroed();
        let mut thread = core::mem::zeroed();
        let errno = *libc::__errno_location();
        let made = libc::pthread_attr_init(&mut attr) == 0
            && libc::pthread_attr_setstack(&mut attr, stack.cast(), STACK - PAGE) == 0
            && libc::pthread_attr_setdetachstate(&mut attr, libc::PTHREAD_CREATE_DETACHED) == 0
            && libc::pthread_create(&mut thread, &attr, run, core::ptr::null_mut()) == 0;
        libc::pthread_attr_destroy(&mut attr);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut());
        *libc::__errno_location() = errno;
        made
    }
}

/// The stack of a thread of ours, above its guard: one for each that can be there at a time. Not libc's: in a
/// forked child that could be the stack of a thread of the parent's, with unmapped pages that nobody
/// answers for but our thread. Made once, and used again by the children's threads; never given back,
/// for the kernel writes to it when the thread has ended.
pub(crate) struct Stack(AtomicPtr<u8>);

impl Stack {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    fn get(&self) -> Option<*mut u8> {
        let made = self.0.load(Ordering::Relaxed);
        if !made.is_null() {
            return Some(made);
        }
        inject::check(Call::Mmap).ok()?;
        // SAFETY: fresh memory of our own, of which the lowest page is given up as a guard.
        let stack = unsafe {
            let none = ProtFlags::empty();
            let map = mmap_anonymous(core::ptr::null_mut(), STACK, none, MapFlags::PRIVATE).ok()?;
            let stack = map.cast::<u8>().add(PAGE);
            let use_it = MprotectFlags::READ | MprotectFlags::WRITE;
            if mprotect(stack.cast(), STACK - PAGE, use_it).is_err() {
                let _ = munmap(map, STACK);
                return None;
            }
            stack
        };
        self.0.store(stack, Ordering::Relaxed);
        Some(stack)
    }
}

/// glibc's count of threads. The one that finds itself the last one ends the process as `exit(0)` does,
/// with the program's exit handlers and its descriptors, which our thread does not have: so ours must
/// not be counted. The symbol is there for libthread_db; null in a libc without it.
static COUNTED: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Looks for what must not be looked up later, in the middle of a copy.
pub(crate) fn prepare() {
    // SAFETY: a plain lookup.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr()) };
    COUNTED.store(found.cast(), Ordering::Relaxed);
}

pub(crate) fn count_of_threads() -> Option<&'static AtomicU32> {
    // SAFETY: an `unsigned int` of libc's data, which is never unmapped, changed only atomically.
    unsafe { COUNTED.load(Ordering::Relaxed).as_ref() }
}

extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
    critical::forever();
    THREAD.store(rustix::thread::gettid().as_raw_pid(), Ordering::Relaxed);
    let _ = rustix::thread::set_name(c"uncopy");
    let fds = space::for_monitor(|b, _| {
        let fds = b.memory.fds.as_ref()?;
        Some([fds.program.fd().as_raw_fd(), fds.pool.fd().as_raw_fd()])
    });
    let Some([program, pool]) = fds.flatten().filter(|ours| keep_only(*ours)) else {
        tell(FAILED);
        return core::ptr::null_mut();
    };
    // SAFETY: this thread's own table has just these, and only this thread uses them: whatever the
    // program does to its own table does not reach them.
    let own = unsafe { Fds { program: Uffd::from_raw(program), pool: Uffd::from_raw(pool) } };
    space::for_monitor(|b, _| b.memory.set_monitor(own));
    if let Some(count) = count_of_threads() {
        count.fetch_sub(1, Ordering::Relaxed);
    }
    let mut place = Place::anywhere();
    tell(RUNS);
    // SAFETY: the books keep them open for the life of the process.
    let (program, pool) =
        unsafe { (BorrowedFd::borrow_raw(program), BorrowedFd::borrow_raw(pool)) };
    let mut waiting = Waiting { pages: [0; WAITING_MAX], count: 0 };
    loop {
        let mut fds = [PollFd::new(&program, PollFlags::IN), PollFd::new(&pool, PollFlags::IN)];
        let patience = if waiting.count > 0 || DISMISSED.load(Ordering::Acquire) {
            Some(SOON)
        } else if MAIN_THREAD_ENDED.load(Ordering::Relaxed) {
            Some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 })
        } else if !space::running() {
            // The page that wakes us may have been locked, and so touched.
            Some(rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 })
        } else {
            None
        };
        let polled = inject::check(Call::Poll).and_then(|()| poll(&mut fds, patience.as_ref()));
        if polled.is_err() {
            // Not to be had: looked at now and then instead.
            let _ = rustix::thread::nanosleep(&SOON);
        }
        if polled.is_err() || fds[1].revents().contains(PollFlags::IN) {
            space::for_monitor(|b, frozen| {
                let mut messages = [Msg::default(); READ_AT_ONCE];
                let Some(own) = b.memory.own() else { return };
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
        space::for_monitor(|b, frozen| {
            b.answers_near(place.is_near());
            waiting.try_again(b, frozen);
            if frozen && !LIST.has_room(READ_AT_ONCE) {
                return;
            }
            let mut messages = [Msg::default(); READ_AT_ONCE];
            loop {
                let Some(own) = b.memory.own() else { return };
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
            space::for_monitor(|_, _| place.answered());
        }
        if MAIN_THREAD_ENDED.load(Ordering::Relaxed) && last_thread() {
            // What libc does when its last thread ends; it counts this one too.
            // SAFETY: no other thread is left to be surprised.
            unsafe { libc::exit(0) };
        }
        if TOUCHED.load(Ordering::Acquire) {
            // libc takes this thread off its count now.
            if let Some(count) = count_of_threads() {
                count.fetch_add(1, Ordering::Relaxed);
            }
            return core::ptr::null_mut();
        }
    }
}

/// Reports read under one hold of the lock.
const READ_AT_ONCE: usize = 32;

/// The first thread has ended by `pthread_exit`: the process ends with the last of the others. (For a
/// libc that counts this thread.)
static MAIN_THREAD_ENDED: AtomicBool = AtomicBool::new(false);

/// The first thread is about to end by `pthread_exit`.
pub fn main_thread_ends() {
    if count_of_threads().is_some() {
        return;
    }
    // With the lock held: either a start that comes later finds this, or we find the start.
    space::with_lock(|| MAIN_THREAD_ENDED.store(true, Ordering::Relaxed));
    if let Some(page) = space::page_to_wake_by() {
        // SAFETY: a page of ours that nobody else uses.
        unsafe { core::ptr::read_volatile(page as *const u8) };
    }
}

/// Whether the thread runs: it is one more than the program knows of.
pub fn runs() -> bool {
    READY.load(Ordering::Relaxed) == RUNS
}

/// After fork, in the child: the thread was not taken along.
pub(crate) fn is_gone() {
    READY.store(STARTING, Ordering::Relaxed);
    MAIN_THREAD_ENDED.store(false, Ordering::Relaxed);
    crate::place::forget();
}

/// How many threads are ours.
fn ours() -> usize {
    1 + usize::from(crate::leases::running())
}

/// Whether only the first thread, which has ended, and ours are left.
fn last_thread() -> bool {
    threads() == Some(1 + ours()) && first_thread_is_dead()
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

/// Whether the first thread has run all that it runs before its end.
fn first_thread_is_dead() -> bool {
    // Of the whole process, which is its first thread; the state follows the name in parentheses.
    let mut room = [0; 128];
    let state = procfs::read(c"/proc/self/stat", &mut room).and_then(|text| {
        let name_ends = text.iter().rposition(|b| *b == b')')?;
        text.get(name_ends + 2)
    });
    matches!(state, Some(b'Z' | b'X'))
}

/// Whether the program has no thread but the calling one.
pub fn alone_with_program() -> bool {
    match threads() {
        Some(n) => n == 1 + ours(),
        // In a chroot without /proc.
        None => count_of_threads().is_some_and(|c| c.load(Ordering::Relaxed) == 1),
    }
}

/// The thread is to end, as soon as it is no longer needed to answer the fault that tells it so.
static DISMISSED: AtomicBool = AtomicBool::new(false);
/// That fault was answered. (The thread may have woken by itself just before it.)
static TOUCHED: AtomicBool = AtomicBool::new(false);
static THREAD: AtomicI32 = AtomicI32::new(0);

/// Whether the program has one thread besides ours, as far as libc counts.
pub(crate) fn program_has_one_thread() -> bool {
    count_of_threads().is_some_and(|c| c.load(Ordering::Relaxed) == 1)
}

/// Ends the thread and waits until it is gone. Nothing is tracked any more, and the caller is the
/// only other thread; `pool_page` is one that nobody uses.
pub(crate) fn dismiss(pool_page: usize) {
    DISMISSED.store(true, Ordering::Release);
    // SAFETY: a page of the pool; touching it for the first time wakes the thread. Signal 0 is none.
    unsafe {
        core::ptr::read_volatile(pool_page as *const u8);
        TOUCHED.store(true, Ordering::Release);
        let (pid, tid) = (libc::getpid() as usize, THREAD.load(Ordering::Relaxed) as usize);
        while critical::syscall4(libc::SYS_tgkill as usize, pid, tid, 0, 0) == 0 {
            rustix::thread::sched_yield();
        }
    }
    READY.store(STARTING, Ordering::Relaxed);
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
            if let Some(fds) = books.memory.own() {
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
