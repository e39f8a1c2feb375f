//! Takes the pages of an input away to see whether the program touches them.
//!
//! One input at a time, now and then. Its pages are moved to a shadow (`UFFDIO_MOVE`); a touch of
//! one is a fault, which brings it back and is written down. Calls that we see (copies, inputs,
//! outputs) get them back before: those are no touches. The program computes what it computes:
//! any other that touches a page, in the kernel too, waits until it is back.
//!
//! Two threads with a descriptor table of their own, so that nothing that the program does to its
//! descriptors matters: one answers faults, without a lock; one carries out commands, which come
//! with the follower's lock held.
//!
//! unsafe: starts threads; moves pages of the program, whole and with their content.

use crate::book::thread_ns;
use crate::inside;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use uncopy_flow::Follower;
use uncopy_flow::layout::header;
use uncopy_kernel::placement;
use uncopy_kernel::uffd::{Event, FEATURE_EVENTS, FEATURE_MOVE, Maker, Msg, Uffd};
use uncopy_ranges::span::{PAGE, Span, page_down};

/// A fault is reported with the byte's address.
const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
/// Pages that can be away at once.
const SLOTS: usize = 2048;
/// An input below this size is not watched.
const SMALLEST: usize = 2048;
/// Of the inputs of one site the first ones are watched, then every so many.
const FIRST: u64 = 32;
const EVERY: u64 = 16;
/// How often a page is tried to be taken.
const TRIES: usize = 50;
/// For so long an input is watched, in ms.
const WATCH_MS: u32 = 2000;
/// Around the stack pointer lies the calling thread's stack: below it what it will use, above what
/// it has used.
const STACK_BELOW: usize = 1 << 20;
const STACK_ABOVE: usize = 8 << 20;

/// Where each slot's page belongs; 0: none.
static PAGES: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
/// A slot that still holds what nobody wants back.
const RETIRED: usize = 1;
static SHADOW: AtomicUsize = AtomicUsize::new(0);
static FD: AtomicI32 = AtomicI32::new(-1);
/// Pages may be away.
static ACTIVE: AtomicBool = AtomicBool::new(false);

const TOUCHES: usize = 4096;
static TOUCHED: [AtomicUsize; TOUCHES] = [const { AtomicUsize::new(0) }; TOUCHES];
static TOUCHED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// 0: none, 1: to be carried out, 2: done.
static COMMAND: AtomicU32 = AtomicU32::new(0);
static WHAT: AtomicUsize = AtomicUsize::new(0);
static FROM: AtomicUsize = AtomicUsize::new(0);
static TO: AtomicUsize = AtomicUsize::new(0);

const TAKE: usize = 0;
const GIVE: usize = 1;
const UNREGISTER: usize = 2;

/// 0: not started, 1: starting, 2: runs, 3: cannot.
static HELPER: AtomicU32 = AtomicU32::new(0);
const RUNS: u32 = 2;
const FAILED: u32 = 3;

/// CPU time that each of the two threads has taken, ns.
static HELPED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Both together.
pub fn helped_ns() -> u64 {
    HELPED.iter().map(|ns| ns.load(SeqCst) as u64).sum()
}

/// Whether pages may be away.
pub fn active() -> bool {
    ACTIVE.load(SeqCst)
}

fn wait(word: &AtomicU32, while_it_is: u32) {
    while word.load(SeqCst) == while_it_is {
        let _ = futex::wait(word, futex::Flags::PRIVATE, while_it_is, None);
    }
}

fn tell(word: &AtomicU32, value: u32) {
    word.store(value, SeqCst);
    let _ = futex::wake(word, futex::Flags::PRIVATE, u32::MAX >> 1);
}

/// Has the second thread do something; the follower's lock is held.
fn command(what: usize, span: Span) {
    WHAT.store(what, SeqCst);
    FROM.store(span.start, SeqCst);
    TO.store(span.end, SeqCst);
    tell(&COMMAND, 1);
    wait(&COMMAND, 1);
    COMMAND.store(0, SeqCst);
}

/// In a forked child, where nothing is away and no thread of ours is.
pub fn forked() {
    HELPER.store(0, SeqCst);
    ACTIVE.store(false, SeqCst);
    COMMAND.store(0, SeqCst);
    TOUCHED_COUNT.store(0, SeqCst);
    // (The shadow is copied memory now; pages that nobody wanted back would be in the way.)
    PAGES.iter().for_each(|p| p.store(0, SeqCst));
    SHADOW.store(0, SeqCst);
    HELPED.iter().for_each(|ns| ns.store(0, SeqCst));
}

/// The input that is watched.
#[derive(Debug)]
pub struct Watch {
    wanted: bool,
    registered: Vec<Span>,
    began: u32,
    seen: usize,
}

impl Watch {
    /// Nothing yet.
    pub fn new(wanted: bool) -> Self {
        Self { wanted, registered: Vec::new(), began: 0, seen: 0 }
    }

    /// Whether anything is to be watched.
    pub fn wanted(&self) -> bool {
        self.wanted
    }

    /// Tells the follower of touches, and ends what is over.
    pub fn notice(&mut self, follower: &mut Follower<'_>) {
        if !active() {
            return;
        }
        self.tell(follower);
        let over = follower.now.wrapping_sub(self.began) > WATCH_MS;
        if over || follower.watching().is_none() {
            self.end(follower);
        }
    }

    fn tell(&mut self, follower: &mut Follower<'_>) {
        let count = TOUCHED_COUNT.load(SeqCst);
        self.seen = self.seen.max(count.saturating_sub(TOUCHES));
        while self.seen < count {
            follower.touched(TOUCHED[self.seen % TOUCHES].load(SeqCst));
            self.seen += 1;
        }
    }

    /// Watches the input that has just arrived, if it is its turn. `stack` is the stack pointer.
    pub fn consider(
        &mut self,
        follower: &mut Follower<'_>,
        input: u32,
        spans: impl Iterator<Item = (usize, usize)> + Clone,
        bytes: usize,
        stack: usize,
    ) {
        let turn = follower.arrivals(input);
        let its_turn = turn <= FIRST || turn.is_multiple_of(EVERY);
        if !self.wanted || !its_turn || bytes < SMALLEST || follower.watching().is_some() {
            return;
        }
        let its = Span::new(stack.saturating_sub(STACK_BELOW), stack + STACK_ABOVE);
        let large = bytes > (SLOTS / 2) * PAGE;
        if large
            || spans
                .clone()
                .any(|(addr, len)| its.overlaps(Span::sized(addr, len).covering_pages()))
        {
            follower.book().add_head(header::UNWATCHED, bytes as u64);
            return;
        }
        if HELPER.load(SeqCst) == 0 {
            start();
        }
        if HELPER.load(SeqCst) != RUNS {
            follower.book().set_head(header::NO_WATCH, 1);
            self.wanted = false;
            return;
        }
        self.began = follower.now;
        self.seen = TOUCHED_COUNT.load(SeqCst);
        follower.watch(input);
        ACTIVE.store(true, SeqCst);
        let mut rest = bytes;
        for (addr, len) in spans {
            let span = Span::sized(addr, len.min(rest));
            rest -= span.len();
            self.take(follower, &[span]);
        }
    }

    /// Puts the pages of `spans` back, so that their use is no touch. Returns whether watched bytes
    /// are there.
    pub fn release(&mut self, follower: &mut Follower<'_>, spans: &[Span]) -> bool {
        if !active() {
            return false;
        }
        let mut any = false;
        for span in spans {
            any |= !follower.watchable(*span).is_empty();
            let pages = span.covering_pages();
            if PAGES.iter().any(|p| pages.contains(p.load(SeqCst))) {
                command(GIVE, pages);
            }
        }
        self.tell(follower);
        any
    }

    /// Puts all pages back. Returns whether anything is watched.
    pub fn release_all(&mut self, follower: &mut Follower<'_>) -> bool {
        if !active() {
            return false;
        }
        command(GIVE, Span::new(PAGE, usize::MAX));
        self.tell(follower);
        follower.watching().is_some()
    }

    /// Takes away what is watched in `spans`.
    pub fn take(&mut self, follower: &mut Follower<'_>, spans: &[Span]) {
        if !active() {
            return;
        }
        for span in spans {
            for pages in follower.watchable(*span) {
                command(TAKE, pages);
                self.registered.push(pages);
                for page in (pages.start..pages.end).step_by(PAGE) {
                    let away = PAGES.iter().any(|p| p.load(SeqCst) == page);
                    if away {
                        follower.shows(Span::sized(page, PAGE));
                    } else {
                        follower.hides(Span::sized(page, PAGE));
                    }
                }
            }
        }
    }

    /// Takes away all that is watched, wherever it is; if all of it has left, watching ends.
    pub fn take_all(&mut self, follower: &mut Follower<'_>) {
        if !active() {
            return;
        }
        if follower.watched_has_left() {
            self.end(follower);
            return;
        }
        let places: Vec<Span> = follower.watched_places();
        self.take(follower, &places);
    }

    /// Watches nothing from now on; every page is back.
    pub fn end(&mut self, follower: &mut Follower<'_>) {
        if !active() {
            return;
        }
        command(GIVE, Span::new(PAGE, usize::MAX));
        self.tell(follower);
        self.registered.sort_unstable();
        self.registered.dedup();
        for span in self.registered.drain(..) {
            command(UNREGISTER, span);
        }
        follower.unwatch();
        ACTIVE.store(false, SeqCst);
    }
}

type Thread = extern "C" fn(*mut c_void) -> *mut c_void;

fn spawn(run: Thread) -> bool {
    // SAFETY: a detached thread with a stack of its own; signals are blocked here, and so there.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&mut attributes, 256 << 10);
        let mut thread = 0;
        let made = libc::pthread_create(&mut thread, &attributes, run, core::ptr::null_mut()) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        made
    }
}

/// Starts both threads.
fn start() {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let at = placement::SMALL.next(SLOTS * PAGE) as *mut _;
    // SAFETY: a new mapping where there is none.
    let shadow = unsafe {
        rustix::mm::mmap_anonymous(
            at,
            SLOTS * PAGE,
            access,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let Ok(shadow) = shadow else {
        HELPER.store(FAILED, SeqCst);
        return;
    };
    SHADOW.store(shadow as usize, SeqCst);
    HELPER.store(1, SeqCst);
    if !spawn(answer_faults) {
        HELPER.store(FAILED, SeqCst);
    }
    wait(&HELPER, 1);
}

/// libc counts threads, to end the process with the last one (see `uncopy_kernel::thread`): not
/// ours.
fn uncounted() {
    // SAFETY: an `unsigned int` of libc's data, changed only atomically; null in a libc without it.
    unsafe {
        let count = libc::dlsym(libc::RTLD_DEFAULT, c"__nptl_nthreads".as_ptr());
        if let Some(count) = count.cast::<AtomicU32>().as_ref() {
            count.fetch_sub(1, SeqCst);
        }
    }
}

/// Opened at the start, because a process that has changed its user may not: descriptor and device
/// number.
static DEVICE: AtomicI32 = AtomicI32::new(-1);
static DEVICE_NUMBER: AtomicUsize = AtomicUsize::new(0);

/// Opens the device while that is permitted, at a number where programs do not look.
pub fn prepare() {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(device) = rustix::fs::open(c"/dev/userfaultfd", flags, Mode::empty()) else { return };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let floor = limit.unwrap_or(1024).min(1024).saturating_sub(8) as i32;
    let (Ok(high), Ok(stat)) =
        (uncopy_kernel::descriptors::duplicate(&device, floor), rustix::fs::fstat(&device))
    else {
        return;
    };
    DEVICE_NUMBER.store(stat.st_rdev as usize, SeqCst);
    DEVICE.store(high.into_raw(), SeqCst);
}

/// Makes a userfaultfd in a descriptor table of this thread's own, which holds nothing else.
fn make() -> Option<Uffd> {
    use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
    // SAFETY: this thread has a table of its own from here on, in which nobody else uses anything.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) != 0 {
            return None;
        }
        let device = DEVICE.load(SeqCst);
        let is_ours = |fd: &OwnedFd| {
            rustix::fs::fstat(fd).is_ok_and(|s| s.st_rdev as usize == DEVICE_NUMBER.load(SeqCst))
        };
        // (The program may have closed it, or opened something else at its number.)
        let device = (device >= 0).then(|| OwnedFd::from_raw_fd(device));
        let maker = match device {
            Some(fd) if is_ours(&fd) => Maker::Device(fd.into()),
            other => {
                core::mem::forget(other);
                Maker::open()
            }
        };
        let features = FEATURE_MOVE | FEATURE_EVENTS | FEATURE_EXACT_ADDRESS;
        let uffd = maker.make(features).ok()?;
        core::mem::forget(maker);
        let only = uffd.fd().as_raw_fd() as u32;
        if only > 0 {
            libc::syscall(libc::SYS_close_range, 0, only - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, only + 1, u32::MAX, 0);
        Some(uffd)
    }
}

extern "C" fn answer_faults(_: *mut c_void) -> *mut c_void {
    inside::set(true);
    let shadow = Span::sized(SHADOW.load(SeqCst), SLOTS * PAGE);
    let Some(uffd) = make().filter(|u| u.register(shadow).is_ok()) else {
        // (It stays counted: libc will count it out.)
        tell(&HELPER, FAILED);
        return core::ptr::null_mut();
    };
    use rustix::fd::AsRawFd;
    FD.store(uffd.fd().as_raw_fd(), SeqCst);
    if !spawn(carry_out) {
        tell(&HELPER, FAILED);
        return core::ptr::null_mut();
    }
    uncounted();
    tell(&HELPER, RUNS);
    let mut messages = [Msg::default(); 32];
    loop {
        let mut fds = [PollFd::from_borrowed_fd(uffd.fd(), PollFlags::IN)];
        HELPED[0].store(thread_ns() as usize, SeqCst);
        let _ = poll(&mut fds, None);
        for message in uffd.read(&mut messages) {
            match message.event() {
                Event::Fault(addr) => answer(&uffd, addr),
                Event::Unmap(span) | Event::Remove(span) => {
                    for page in PAGES.iter().filter(|p| span.contains(p.load(SeqCst))) {
                        page.store(RETIRED, SeqCst);
                    }
                }
                Event::Remap(from, to, len) => {
                    let moved = Span::sized(from, len);
                    for page in PAGES.iter().filter(|p| moved.contains(p.load(SeqCst))) {
                        page.store(page.load(SeqCst) - from + to, SeqCst);
                    }
                }
                Event::Other(_) => {}
            }
        }
    }
}

fn shadow(slot: usize) -> Span {
    Span::sized(SHADOW.load(SeqCst) + slot * PAGE, PAGE)
}

fn answer(uffd: &Uffd, addr: usize) {
    let page = Span::sized(page_down(addr), PAGE);
    let slot = PAGES.iter().position(|p| p.load(SeqCst) == page.start);
    let woken = match slot {
        Some(slot) => {
            if uffd.move_without_waking(page.start, shadow(slot)).0 == PAGE {
                // Written down before who touched it goes on, and before anybody can see that the
                // slot is free.
                let count = TOUCHED_COUNT.load(SeqCst);
                TOUCHED[count % TOUCHES].store(addr, SeqCst);
                TOUCHED_COUNT.store(count + 1, SeqCst);
                PAGES[slot].store(0, SeqCst);
            }
            false
        }
        // It was never there, or the program dropped it.
        None => uffd.zero(page).1.is_none(),
    };
    if !woken {
        // It is back, by this or already, or the memory map is changing: threads that wait try
        // again.
        let _ = uffd.wake(page);
    }
}

extern "C" fn carry_out(_: *mut c_void) -> *mut c_void {
    inside::set(true);
    uncounted();
    // SAFETY: the other thread keeps it open for the life of the process; their table is shared.
    let uffd = core::mem::ManuallyDrop::new(unsafe { Uffd::from_raw(FD.load(SeqCst)) });
    loop {
        let idle = COMMAND.load(SeqCst);
        if idle != 1 {
            let _ = futex::wait(&COMMAND, futex::Flags::PRIVATE, idle, None);
            continue;
        }
        let span = Span::new(FROM.load(SeqCst), TO.load(SeqCst));
        match WHAT.load(SeqCst) {
            TAKE => take(&uffd, span),
            GIVE => give(&uffd, span),
            _ => drop(uffd.unregister(span)),
        }
        HELPED[1].store(thread_ns() as usize, SeqCst);
        tell(&COMMAND, 2);
    }
}

fn take(uffd: &Uffd, span: Span) {
    if uffd.register(span).is_err() {
        return;
    }
    let mut free = PAGES.iter().enumerate().filter(|(_, p)| p.load(SeqCst) == 0);
    for page in (span.start..span.end).step_by(PAGE) {
        if PAGES.iter().any(|p| p.load(SeqCst) == page) {
            continue;
        }
        let Some((slot, entry)) = free.next() else { return };
        // Before it is away, so that a thread that touches it finds it.
        entry.store(page, SeqCst);
        let mut result = (0, None);
        for _ in 0..TRIES {
            result = uffd.move_pages(shadow(slot).start, Span::sized(page, PAGE), false);
            // (Somebody in the kernel holds the page, or the memory map is changing: mostly not for
            // long.)
            if !matches!(result.1, Some(Errno::AGAIN | Errno::BUSY)) {
                break;
            }
            rustix::thread::sched_yield();
        }
        if result.0 != PAGE {
            entry.store(if result.1 == Some(Errno::EXIST) { RETIRED } else { 0 }, SeqCst);
        }
    }
}

fn give(uffd: &Uffd, span: Span) {
    for (slot, entry) in PAGES.iter().enumerate() {
        loop {
            let page = entry.load(SeqCst);
            if page <= RETIRED || !span.contains(page) {
                break;
            }
            let (moved, why) = uffd.move_pages(page, shadow(slot), false);
            if moved == PAGE || matches!(why, Some(Errno::NOENT)) {
                // (It is back; by ours, or the other thread's doing.)
                let _ = entry.compare_exchange(page, 0, SeqCst, SeqCst);
                break;
            }
            if matches!(why, Some(Errno::EXIST | Errno::INVAL)) {
                // The program has put something else there.
                let _ = entry.compare_exchange(page, RETIRED, SeqCst, SeqCst);
                break;
            }
            // The memory map is changing; or there is no memory for a page table: not for long.
            rustix::thread::sched_yield();
        }
    }
}
