//! The one tracker of this process, the lock around it, and its life: idle until the first copy
//! worth eliding, running with a monitor thread, frozen during fork, off.
//!
//! unsafe: the tracker lives in a static behind our own lock, and copies of bytes that the tracker
//! planned are carried out here, on the program's memory and the pool's.

use crate::clock::{Lap, Sampler};
use crate::gate::{Gate, IDLE, OFF, RUNNING, SERVING};
use crate::pages::{CopyBytes, Fds, Pages};
use crate::uffd::{Event, Maker, Refusal, duplicate};
use crate::{clock, critical, files, freeze::LIST, inject, lend, monitor, place, procfs, stats};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use uncopy_core::filter::Filter;
use uncopy_core::inject::{Call, Error};
use uncopy_core::memory::FillError;
use uncopy_core::plan::{Copies, Pins};
use uncopy_core::policy::{Costs, Policy};
use uncopy_core::repeats::Repeats;
use uncopy_core::span::{PAGE, Span};
use uncopy_core::tracker::{Detached, Limits, Tracker};
use uncopy_core::trial::Way;

/// What this process's tracker is.
pub type Books = Tracker<Pages>;

/// The lock-free test; see [`Filter`].
pub static FILTER: Filter = Filter::new();
/// What is sent again and again; see [`Repeats`].
pub static REPEATS: Repeats = Repeats::new();
pub use crate::stats::{COPY_PRICES, COUNTERS, PAUSES};

static GATE: Gate = Gate::new();
/// A word that a child made behind our back (clone without fork) finds zeroed.
static ALIVE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

struct Global(UnsafeCell<Option<Space>>);
// SAFETY: reached only with the gate's lock held, or before any second thread can (init, forked child).
unsafe impl Sync for Global {}
static GLOBAL: Global = Global(UnsafeCell::new(None));

struct Space {
    settings: Settings,
    maker: Maker,
    fds: Option<Fds>,
    books: Option<Books>,
    /// For the books to come: see [`exclude`].
    excluded: Vec<Span>,
}

/// How the space is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Smallest copy that is elided, in bytes.
    pub threshold: usize,
    /// Whether call sites whose data gets touched are left alone.
    pub backoff: bool,
    /// Cap on extents, in bytes; 0 for an eighth of the machine's memory.
    pub extent_bytes: usize,
    /// Cap on registered ranges; 0 for a quarter of `vm.max_map_count`.
    pub ranges: usize,
    /// What things cost on this machine.
    pub costs: Costs,
    /// Copies bytes without being intercepted.
    pub copy_bytes: CopyBytes,
}

const VIEWS_MAX: usize = 1 << 20;
/// `vm.max_map_count` where it cannot be read.
const MAP_COUNT: usize = 65530;
/// Pages materialized under one hold of the lock when a cap was met.
const EVICT_PAGES: usize = 256;

/// Makes the userfaultfds (now, before the program drops privileges or enters a sandbox) and
/// becomes idle.
///
/// # Errors
/// [`Refusal`]; the space stays off.
pub fn init(settings: Settings) -> Result<(), Refusal> {
    let made = make(settings);
    if let Err(why) = made {
        off_because(why);
    }
    made
}

/// Writes down why there is no userfaultfd.
fn off_because(why: Refusal) {
    off(match why {
        Refusal::Permission => &COUNTERS.off_permission,
        Refusal::Kernel => &COUNTERS.off_kernel,
        Refusal::Other(_) => &COUNTERS.off_resources,
    });
}

/// Writes down why nothing more is elided.
fn off(why: &AtomicU64) {
    heed_unknown_fork();
    why.store(1, Ordering::Relaxed);
}

fn make(settings: Settings) -> Result<(), Refusal> {
    let maker = Maker::open();
    let mut fds = Fds::make(&maker)?;
    let _ = fds.lift(descriptor_floor());
    let maker = match maker {
        Maker::Device(fd) => Maker::Device(lift(&fd).unwrap_or(fd)),
        other => other,
    };
    plant_alive().map_err(Refusal::Other)?;
    monitor::prepare();
    publish_descriptors(Some(&fds), &maker);
    // SAFETY: called once, by the library's constructor, before the program has threads.
    unsafe {
        *GLOBAL.0.get() =
            Some(Space { settings, maker, fds: Some(fds), books: None, excluded: Vec::new() });
    }
    GATE.set_state(IDLE);
    Ok(())
}

/// Where our descriptors live: high, but not so high that the table grows for them alone.
fn descriptor_floor() -> i32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.unwrap_or(1024).min(1024).saturating_sub(16) as i32
}

/// A duplicate of `fd` where our descriptors live.
///
/// # Errors
/// When no descriptor is free there.
pub fn lift(fd: impl rustix::fd::AsFd) -> rustix::io::Result<rustix::fd::OwnedFd> {
    duplicate(fd, descriptor_floor())
}

static PID: AtomicI32 = AtomicI32::new(0);

fn pid() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

pub(crate) fn in_own_process() -> bool {
    PID.load(Ordering::Relaxed) == pid()
}

static OURS: [AtomicI32; 3] = [const { AtomicI32::new(-1) }; 3];

/// Our descriptors: `close` and its kin leave them alone.
pub fn descriptors() -> [i32; 3] {
    [0, 1, 2].map(|i| OURS[i].load(Ordering::Relaxed))
}

fn publish_descriptors(fds: Option<&Fds>, maker: &Maker) {
    PID.store(pid(), Ordering::Relaxed);
    use rustix::fd::AsRawFd;
    let device = match maker {
        Maker::Device(fd) => fd.as_raw_fd(),
        Maker::SystemCall => -1,
    };
    let [program, pool] =
        fds.map_or([-1; 2], |f| [f.program.fd().as_raw_fd(), f.pool.fd().as_raw_fd()]);
    let all = [program, pool, device];
    for (to, fd) in OURS.iter().zip(all) {
        to.store(fd, Ordering::Relaxed);
    }
}

/// The program wants the number `fd` for itself (dup2): ours moves elsewhere.
pub fn make_way(fd: i32) {
    // A child of vfork has a table of its own, but our memory: there they may go.
    if !descriptors().contains(&fd) || !in_own_process() {
        return;
    }
    let mut hold = Hold::take();
    let Some(s) = hold.space() else { return };
    use rustix::fd::AsRawFd;
    if let Maker::Device(d) = &mut s.maker
        && d.as_raw_fd() == fd
    {
        match duplicate(&*d, fd + 1).or_else(|_| duplicate(&*d, 0)) {
            Ok(other) => *d = other,
            // The number is the program's: not ours to close, or to use.
            Err(_) => {
                core::mem::forget(core::mem::replace(&mut s.maker, Maker::SystemCall));
            }
        }
    }
    let fds = match &mut s.books {
        Some(b) => &mut b.memory.fds,
        None => &mut s.fds,
    };
    if let Some(f) = fds
        && f.numbers().contains(&fd)
        && f.lift(fd + 1).or_else(|_| f.lift(0)).is_err()
    {
        // The monitor has its own: what is tracked is served.
        core::mem::forget(fds.take());
        off(&COUNTERS.off_descriptors);
        GATE.stand_down();
    }
    let fds = match &s.books {
        Some(b) => &b.memory.fds,
        None => &s.fds,
    };
    publish_descriptors(fds.as_ref(), &s.maker);
}

/// Makes the word, or in a forked child sets it again.
fn plant_alive() -> Result<(), Errno> {
    let word = ALIVE.load(Ordering::Relaxed);
    if !word.is_null() {
        // SAFETY: planted once, never unmapped; fork's child has found it zeroed.
        unsafe { (*word).store(1, Ordering::Relaxed) };
        return Ok(());
    }
    inject::check(Call::Mmap)?;
    // SAFETY: a fresh page of our own.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }?;
    // SAFETY: the page is ours, and zeroing it in a child is what we want.
    unsafe {
        inject::check(Call::Madvise)?;
        rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork)?;
    }
    let word = page.cast::<AtomicUsize>();
    // SAFETY: aligned, mapped, never unmapped.
    unsafe { (*word).store(1, Ordering::Relaxed) };
    ALIVE.store(word, Ordering::Release);
    Ok(())
}

pub(crate) fn alive() -> bool {
    let word = ALIVE.load(Ordering::Relaxed);
    // SAFETY: planted once, never unmapped.
    word.is_null() || unsafe { (*word).load(Ordering::Relaxed) } == 1
}

/// A child that was made behind our back must not count in its parent's statistics.
#[inline]
pub(crate) fn heed_unknown_fork() {
    if stats::published() && !alive() {
        stats::keep_private();
    }
}

/// Whether large input should be remembered, so that the first copy of it starts the space.
#[inline]
pub fn wanted() -> bool {
    GATE.state() != OFF
}

/// Not 0 once input that may be worth moving has arrived.
pub static INPUT_SEEN: AtomicU8 = AtomicU8::new(0);

/// Input that may be worth moving has arrived: from now on large copies are looked at.
#[inline]
pub fn input_seen() {
    INPUT_SEEN.store(1, Ordering::Relaxed);
}

/// Whether anything can be tracked.
#[inline]
pub fn running() -> bool {
    GATE.state() == RUNNING
}

/// Whether anything may be tracked still, though nothing more may be.
#[inline]
pub fn serving() -> bool {
    matches!(GATE.state(), RUNNING | SERVING)
}

/// Set for good, children included, once anything may have been registered.
static HAS_RUN: AtomicBool = AtomicBool::new(false);

/// Whether mappings of the program may be in more parts than it knows of: they stay so in a child that
/// goes on without us, and after the end of all tracking.
pub fn may_have_split_mappings() -> bool {
    HAS_RUN.load(Ordering::Relaxed)
}

/// Threads that are in [`start`].
static STARTS: AtomicU32 = AtomicU32::new(0);

/// Starts the monitor, if this is the first copy worth eliding. Returns whether it runs.
pub fn start() -> bool {
    if GATE.state() != IDLE || critical::inside() {
        return running();
    }
    // No handler of the program runs on this thread until the start is done: it might fork, which
    // waits for that.
    let mask = critical::block_signals();
    critical::enter();
    STARTS.fetch_add(1, Ordering::SeqCst);
    let claimed = GATE.begin_start();
    let lives = claimed && alive();
    let ready = lives && {
        // SAFETY: the lock is held.
        let space = unsafe { &mut *GLOBAL.0.get() }.as_mut();
        space.is_some_and(|space| space.books.is_some() || space.open_books())
    };
    if claimed {
        GATE.unlock();
    }
    critical::leave();
    if claimed {
        let started = ready && monitor::spawn();
        HAS_RUN.fetch_or(started, Ordering::Relaxed);
        if started {
            stats::publish();
        }
        if lives && !started {
            off(if ready { &COUNTERS.off_thread } else { &COUNTERS.off_resources });
            close_books();
        }
        critical::within(|| GATE.end_start(started));
    }
    STARTS.fetch_sub(1, Ordering::SeqCst);
    critical::restore_signals(mask);
    running()
}

/// Stops tracking anything new, for good: the program enters a sandbox, or locks its memory. What is
/// tracked is put in place; what cannot be stays served. A program of one thread has one thread from
/// then on.
pub fn stand_down() {
    off(&COUNTERS.off_sandbox);
    lend::close();
    files::stop();
    with_space_after_fork(|_| {
        place::forbid();
        GATE.stand_down();
    });
    materialize_all();
    stats::close();
    let page = with_space_after_fork(|space| {
        let tracked = |b: &Books| b.everything().is_some();
        if space.books.as_ref().is_some_and(tracked) {
            return None;
        }
        GATE.set_state(OFF);
        space.books.as_ref().map(|b| b.memory.wake_page())
    });
    if let Some(page) = page.flatten()
        && monitor::runs()
        && monitor::alone_with_program()
    {
        monitor::dismiss(page);
    }
    if page.flatten().is_some() && in_own_process() {
        with_space_after_fork(Space::close_userfaultfds);
    }
}

/// [`stand_down`] before a call that the kernel refuses to, or makes otherwise in, a process of several
/// threads, if the second one is ours.
pub fn stand_down_if_alone() {
    if monitor::runs() && monitor::alone_with_program() {
        stand_down();
    }
}

/// Nothing was ever tracked, nothing will be: memory, addresses and descriptors go back.
fn close_books() {
    let mut hold = Hold::take();
    let Some(space) = hold.space() else { return };
    publish_descriptors(None, &Maker::SystemCall);
    space.maker = Maker::SystemCall;
    space.fds = None;
    if let Some(mut books) = space.books.take() {
        books.memory.abandon_pool();
    }
}

impl Space {
    fn open_books(&mut self) -> bool {
        let s = self.settings;
        let memory = rustix::system::sysinfo().totalram as usize;
        let extent_bytes = if s.extent_bytes == 0 { memory / 8 } else { s.extent_bytes };
        let ranges = if s.ranges == 0 { max_map_count() / 4 } else { s.ranges };
        let Some(fds) = self.fds.take() else {
            return false;
        };
        let Ok(pages) = Pages::new(fds, extent_bytes, s.copy_bytes) else {
            return false;
        };
        let shape = pages.shape();
        let limits = Limits {
            extent_bytes: extent_bytes.min((shape.pages - shape.boundary) * PAGE),
            ranges,
            views: VIEWS_MAX,
        };
        let policy = Policy::new(s.threshold, s.backoff, s.costs, PAUSES)
            .recording(&stats::SHARED.records)
            .priced_by(COPY_PRICES)
            .timed_by(clock::times);
        let mut books = Tracker::new(pages, shape, limits, policy, &FILTER, COUNTERS);
        self.excluded.drain(..).for_each(|s| books.exclude(s));
        self.books = Some(books);
        true
    }
}

pub(crate) fn with_lock(f: impl FnOnce()) {
    let hold = Hold::take();
    f();
    drop(hold);
}

/// The page whose first touch wakes the monitor, if there is a monitor. Waits for a start that is under
/// way.
pub(crate) fn page_to_wake_by() -> Option<usize> {
    while GATE.starting() {
        rustix::thread::sched_yield();
    }
    if !monitor::runs() {
        return None;
    }
    with_after_fork(|b| b.memory.wake_page())
}

fn max_map_count() -> usize {
    let mut room = [0; 32];
    let text = procfs::read(c"/proc/sys/vm/max_map_count", &mut room);
    let text = text.and_then(|text| core::str::from_utf8(text).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(MAP_COUNT)
}

/// How much of the stack is used at most while the lock is held, in bytes.
const STACK_UNDER_LOCK: usize = 16 << 10;

/// A stack may lie on unmapped pages (a coroutine's or thread's, on memory that was freed): what is
/// used of it under the lock is touched before, while the monitor can still answer.
#[inline]
fn ground_stack() {
    let here = 0u8;
    let below = core::ptr::from_ref(&here) as usize - STACK_UNDER_LOCK;
    if FILTER.perhaps_tracked(below, STACK_UNDER_LOCK) {
        touch(Span::sized(below, STACK_UNDER_LOCK));
    }
}

/// Touches every page of `span`, without crashing where there is none. (As many as a stack has under the lock in one
/// system call: the filter errs, and a stack that it takes for tracked is so in every call.)
#[cold]
fn touch(span: Span) {
    const PAGES: usize = STACK_UNDER_LOCK / PAGE + 2;
    let mut pages = span.hull();
    while !pages.is_empty() {
        let mut there = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 1 }; PAGES];
        let mut bytes = [0u8; PAGES];
        let count = pages.pages().min(PAGES);
        for (i, place) in there[..count].iter_mut().enumerate() {
            place.iov_base = (pages.start + i * PAGE) as *mut _;
        }
        let all = peek(&there[..count], &mut bytes);
        for i in 0..if all { 0 } else { count } {
            if !peek(&there[i..=i], &mut bytes) {
                // A sandbox forbids that; this asks for the page too.
                let _ = populate(pages.start + i * PAGE, Advice::LinuxPopulateRead);
            }
        }
        pages = Span::new(pages.start + count * PAGE, pages.end);
    }
}

/// Reads a byte of this process from each of the places. Returns false where that is forbidden, or where one of
/// several is no memory.
fn peek(places: &[libc::iovec], bytes: &mut [u8]) -> bool {
    let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: places.len() };
    // SAFETY: reads bytes of this process into bytes of ours, or answers EFAULT.
    let result = inject::check(Call::Peek).is_ok().then(|| unsafe {
        let (from, to) = (places.as_ptr(), core::ptr::from_ref(&to));
        let call = libc::SYS_process_vm_readv as usize;
        let arguments = [pid() as usize, to as usize, 1, from as usize, places.len(), 0];
        critical::syscall6(call, arguments)
    });
    let nowhere = -(libc::EFAULT as isize);
    result.is_some_and(|r| r == places.len() as isize || r == nowhere && places.len() == 1)
}

/// Has the kernel make the page at `addr` present.
fn populate(addr: usize, how: Advice) -> Result<(), Errno> {
    // SAFETY: a page of the program's, which keeps its content.
    unsafe { rustix::mm::madvise((addr & !(PAGE - 1)) as *mut _, PAGE, how) }
}

/// Holds the lock.
struct Hold;

impl Hold {
    #[inline]
    fn take() -> Self {
        heed_unknown_fork();
        ground_stack();
        critical::enter();
        GATE.lock();
        Self
    }

    fn space(&mut self) -> Option<&mut Space> {
        // SAFETY: the lock is held as long as `self` lives, and `self` is borrowed.
        unsafe { &mut *GLOBAL.0.get() }.as_mut()
    }

    fn books(&mut self) -> Option<&mut Books> {
        self.space()?.books.as_mut()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        GATE.unlock();
        critical::leave();
    }
}

/// Runs `f` on the books. `None`: nothing is tracked, or a fork is under way: the call goes on
/// without us (the fault path serves what it touches).
#[inline]
pub fn with<R>(f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    if !running() || critical::inside() {
        return None;
    }
    if !alive() {
        stats::keep_private();
        GATE.set_state(OFF);
        return None;
    }
    ground_stack();
    place::used_here();
    critical::enter();
    if !GATE.enter() {
        critical::leave();
        return None;
    }
    let mut hold = Hold;
    hold.books().map(f)
}

/// Runs `f` on the books, after a fork that is under way: for what must not be left out (an input
/// that went into an extent, a pin).
#[inline]
pub fn with_after_fork<R>(f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    with_space_after_fork(|space| space.books.as_mut().map(f)).flatten()
}

/// Runs `f`, which notes what an input or output call did; if our part of that is timed (`lap`), prices learn from it.
#[inline]
pub fn note<R>(b: &mut Books, lap: Option<Lap>, f: impl FnOnce(&mut Books) -> R) -> R {
    b.charged(); // (by others)
    let result = f(b);
    if let Some(lap) = lap {
        let charged = b.charged();
        b.took(0, charged, lap.taken(), 0);
    }
    result
}

/// The program frees `span`, in which there may be views.
pub fn freed(span: Span) {
    static FREES: Sampler = Sampler::new();
    let lap = Lap::begin(&FREES);
    with(|b| note(b, lap, |b| b.freed(span.start, span.len())));
}

/// As [`with_after_fork`], for a thread with a descriptor table of its own, in which our descriptors
/// are `fds`.
pub(crate) fn with_fds<R>(fds: &mut Option<Fds>, f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    with_after_fork(|b| {
        core::mem::swap(&mut b.memory.fds, fds);
        let result = f(b);
        core::mem::swap(&mut b.memory.fds, fds);
        result
    })
}

#[inline]
fn with_space_after_fork<R>(f: impl FnOnce(&mut Space) -> R) -> Option<R> {
    heed_unknown_fork();
    loop {
        ground_stack();
        critical::enter();
        match GATE.enter_after_fork() {
            Ok(()) => return Hold.space().map(f),
            Err(forks) => {
                critical::leave();
                GATE.await_thaw(forks);
            }
        }
    }
}

/// Runs `f` on the books for the monitor, which is told whether they are frozen.
pub(crate) fn for_monitor<R>(f: impl FnOnce(&mut Books, bool) -> R) -> Option<R> {
    GATE.lock();
    // SAFETY: the lock is held.
    let books = unsafe { &mut *GLOBAL.0.get() }.as_mut().and_then(|s| s.books.as_mut());
    let result = books.map(|b| {
        b.memory.set_by_monitor(true);
        let result = f(b, GATE.frozen());
        b.memory.set_by_monitor(false);
        result
    });
    GATE.unlock();
    result
}

/// Lets go of extents.
#[inline]
pub fn release(pins: &mut Pins) {
    if !pins.is_empty() {
        with_after_fork(|b| b.release(pins));
    }
}

/// Carries copies out.
///
/// # Safety
/// They come from a plan whose pins are still held, or from a plain copy's own arguments.
pub unsafe fn execute(copies: &Copies, copy_bytes: CopyBytes) {
    for c in copies.iter() {
        // SAFETY: the program asked for these bytes to be copied, or they are pool memory that is
        // pinned; pages that are unmapped by now are served by the monitor.
        unsafe { copy_bytes(c.to as *mut u8, c.from as *const u8, c.len) };
    }
}

/// After a limit was met: materializes least-recently-used views, a few at a time.
pub fn evict_if_wanted() {
    while with(|b| b.wants_eviction()) == Some(true) {
        match with(|b| b.evict(EVICT_PAGES)) {
            Some(Ok(true)) => {}
            Some(Err(FillError::Again)) => rustix::thread::sched_yield(),
            _ => return,
        }
    }
}

/// Fills every unmapped page of `span`; with `forget`, its registration ends too. Waits for a fork
/// that is under way.
pub fn materialize(span: Span, forget: bool) {
    loop {
        match with_after_fork(|b| b.materialize(span, forget)) {
            Some(Err(FillError::Again)) => rustix::thread::sched_yield(),
            Some(Err(FillError::Refused)) => {
                // The program has closed our descriptors past us; the monitor has its own.
                off(&COUNTERS.off_descriptors);
                let gone = with_after_fork(|b| b.memory.forget_descriptors_if_gone());
                if gone == Some(true) {
                    OURS[..2].iter().for_each(|fd| fd.store(-1, Ordering::Relaxed));
                }
                let all = with_after_fork(|b| {
                    GATE.stand_down();
                    b.unmapped_in(span)
                })
                .unwrap_or_default();
                all.into_iter().for_each(touch);
                return;
            }
            Some(Ok(())) | None => return,
        }
    }
}

/// Leaves `span` resident from now on, for good; also if nothing is tracked yet.
pub fn exclude(span: Span) {
    if with_after_fork(|b| b.exclude(span)).is_none()
        && let Some(space) = Hold::take().space()
    {
        space.excluded.push(span);
    }
}

/// Takes `span`, which is about to be unmapped, out of the books.
pub fn detach(span: Span) -> Option<Detached> {
    with_after_fork(|b| b.detach(span))
}

/// Whether anything of `span` is tracked. Waits for a fork that is under way.
pub fn tracks(span: Span) -> bool {
    with_after_fork(|b| b.tracks(span)) == Some(true)
}

/// Ends all tracking of `span`, whose content nobody needs. Waits for a fork that is under way.
pub fn relinquish(span: Span) {
    with_after_fork(|b| b.relinquish(span));
}

/// Ends the views of `span`, whose content nobody needs, and returns what of it is unmapped and so
/// reads as zeros. Waits for a fork that is under way.
pub fn emptied(span: Span) -> Vec<Span> {
    with_after_fork(|b| {
        b.freed(span.start, span.len());
        b.unmapped_in(span)
    })
    .unwrap_or_default()
}

/// After [`detach`]: the mapping is gone, or not.
pub fn after_unmapping(detached: Detached, gone: bool) {
    with_after_fork(|b| {
        if gone {
            b.drop_detached(detached);
        } else {
            b.reattach(detached);
        }
    });
}

/// Fills every unmapped page there is. Returns whether there was anything to do.
pub fn materialize_all() -> bool {
    if matches!(GATE.state(), OFF | IDLE) || critical::inside() {
        return false;
    }
    match with_after_fork(|b| b.everything()).flatten() {
        Some(all) => {
            materialize(all, true);
            true
        }
        None => false,
    }
}

/// Before the program locks all its memory, present and future: nothing more is tracked, and the
/// pool (which would be filled and locked whole) goes away if no extent is left in it.
pub fn before_lock_all() {
    if wanted() {
        stand_down();
    }
    let mut hold = Hold::take();
    if let Some(books) = hold.books()
        && COUNTERS.extents.load(Ordering::Relaxed) == 0
    {
        books.memory.abandon_pool();
    }
}

/// Waits until every report of the kernel about changes to the memory map has been heeded.
pub fn settle() {
    let changing = |b: &mut Books| b.memory.own().and_then(|fds| fds.program.map_changing());
    while with_after_fork(changing).flatten() == Some(true) {
        rustix::thread::sched_yield();
    }
}

/// Before fork: the books do not change until [`after_fork_parent`].
///
/// No handler of the program runs on this thread until then: the child's would read zeros where
/// its views are not served yet.
pub fn before_fork() {
    critical::block_for_fork();
    freeze_books();
}

/// The books do not change until [`thaw`].
pub fn freeze_books() {
    ground_stack();
    critical::within(|| GATE.freeze(|| LIST.clear(), rustix::thread::sched_yield));
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    thaw();
    critical::unblock_after_fork();
}

/// As [`freeze_books`], and no page of the program is missing meanwhile.
pub fn freeze_with_everything_in_place() {
    files::let_go();
    loop {
        while materialize_all() {}
        freeze_books();
        // Another thread may have tracked something in between.
        if Hold::take().books().is_none_or(|b| b.everything().is_none()) {
            return;
        }
        thaw();
    }
}

/// Ends [`freeze_books`]: catches up with what happened meanwhile.
pub fn thaw() {
    ground_stack();
    critical::within(|| {
        GATE.thaw(|| {
            // SAFETY: the lock is held.
            let space = unsafe { &mut *GLOBAL.0.get() }.as_mut();
            if let Some(books) = space.and_then(|s| s.books.as_mut()) {
                for event in LIST.lines() {
                    match event {
                        Event::Fault(addr) => books.filled_meanwhile(addr),
                        other => monitor::report(books, other),
                    }
                }
            }
            LIST.clear();
        });
    });
}

/// After fork, in the child: its own userfaultfds, its own monitor, the same views.
pub fn after_fork_child() {
    renew_child();
    critical::unblock_after_fork();
}

/// In a child that was made without fork's handlers, after everything was put in place: it goes on
/// without us.
pub fn after_bare_fork_child() {
    stats::keep_private();
    monitor::is_gone();
    files::after_bare_fork_child();
    GATE.reset();
    GATE.set_state(OFF);
}

fn renew_child() {
    stats::keep_private();
    let state = GATE.reset();
    STARTS.store(0, Ordering::SeqCst);
    monitor::is_gone();
    COUNTERS.reset();
    lend::after_fork_child();
    // (The word is there: it was planted before anything else.)
    let _ = plant_alive();
    if state == OFF {
        return;
    }
    GATE.set_state(OFF);
    let mut hold = Hold::take();
    let Some(space) = hold.space() else { return };
    if !space.renew() {
        return;
    }
    let tracked = space.books.as_ref().is_some_and(|b| b.everything().is_some());
    if !tracked {
        if state == SERVING {
            space.close_userfaultfds();
        } else {
            // (While no call site elides, nothing would ever begin anew.)
            PAUSES.way.store(Way::Accounts as u32, Ordering::Relaxed);
            GATE.set_state(IDLE);
        }
        return;
    }
    drop(hold);
    if monitor::spawn() {
        stats::publish();
        GATE.set_state(if state == SERVING { SERVING } else { RUNNING });
    } else if let Some(space) = Hold::take().space() {
        // Nobody would answer a fault: everything in place, now.
        off(&COUNTERS.off_thread);
        space.serve_without_monitor();
    }
}

impl Space {
    /// Where nothing is tracked and nobody answers: closing them ends all registrations, also those that could not be
    /// ended one by one and that of the pool. A touch of such memory would wait for ever.
    fn close_userfaultfds(&mut self) {
        // (A thread that is being made has them still to take.)
        if monitor::runs() || STARTS.load(Ordering::SeqCst) > 0 {
            return;
        }
        publish_descriptors(None, &self.maker);
        if let Some(books) = &mut self.books
            && !books.memory.forget_descriptors_if_gone()
        {
            books.memory.fds = None;
        }
    }

    /// In the child: userfaultfds for its own memory map. Returns whether eliding can go on.
    fn renew(&mut self) -> bool {
        // The inherited ones would act on the parent's memory: never used here, only closed.
        let made = Fds::make(&self.maker).map(|mut f| {
            let _ = f.lift(descriptor_floor());
            f
        });
        if let Err(why) = made {
            off_because(why);
        }
        let fds = made.ok();
        publish_descriptors(fds.as_ref(), &self.maker);
        let Some(books) = &mut self.books else {
            self.fds = fds;
            return self.fds.is_some();
        };
        books.memory.fds = fds;
        books.memory.set_by_monitor(false);
        let ready = books.memory.fds.is_some()
            && (books.memory.register_pool().is_ok() && books.register_all_again() || {
                off(&COUNTERS.off_resources);
                false
            });
        if !ready {
            self.serve_without_monitor();
            return false;
        }
        for (line, event) in LIST.lines().enumerate() {
            match event {
                // Filled, then dropped: it is missing here because it has to be.
                Event::Fault(addr) if LIST.gone_after(line, addr) => {
                    books.filled_meanwhile(addr);
                }
                Event::Fault(addr) => books.refill(addr),
                other => monitor::report(books, other),
            }
        }
        LIST.clear();
        true
    }

    /// In a child that cannot have a userfaultfd or a thread: missing pages are ordinary there, so the
    /// views are simply written out.
    fn serve_without_monitor(&mut self) {
        let Some(books) = &mut self.books else { return };
        // Closing them ends all registrations: what we touch now must not wait for anybody. (Not ours
        // any more first: our own `close` spares ours.)
        publish_descriptors(None, &self.maker);
        books.memory.fds = None;
        let lines = LIST.lines().count();
        for (i, event) in LIST.lines().enumerate() {
            match event {
                // First the line, then the deed: of the last one fork may have seen the line only.
                Event::Fault(addr)
                    if i + 1 < lines || LIST.gone_after(i, addr) || present(addr) =>
                {
                    books.filled_meanwhile(addr);
                }
                Event::Fault(_) => {}
                other => monitor::report(books, other),
            }
        }
        LIST.clear();
        let copy_bytes = self.settings.copy_bytes;
        books.give_up(|c| write_out(c, copy_bytes));
    }
}

/// Whether there is a page at `addr`, in memory or in swap.
fn present(addr: usize) -> bool {
    use rustix::fs::{Mode, OFlags};
    let look = || {
        inject::check(Call::Open).ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(c"/proc/self/pagemap", flags, Mode::empty()).ok()?;
        let mut entry = [0u8; 8];
        let n = rustix::io::pread(&fd, &mut entry[..], (addr / PAGE * 8) as u64).ok()?;
        (n == 8).then(|| u64::from_ne_bytes(entry) >> 62 != 0)
    };
    look().unwrap_or_else(|| {
        // Without /proc: whether it is in memory; it was made a moment ago.
        let mut resident = 0u8;
        let page = addr & !(PAGE - 1);
        let to = core::ptr::from_mut(&mut resident) as usize;
        // SAFETY: writes the one byte for one page.
        let result = unsafe { critical::syscall4(libc::SYS_mincore as usize, page, PAGE, to, 0) };
        result == 0 && resident & 1 != 0
    })
}

/// Writes viewed bytes to their (missing, unregistered) pages in a child. Through the kernel: a
/// mapping that went away meanwhile answers EFAULT there.
fn write_out(c: uncopy_core::plan::Copy, copy_bytes: CopyBytes) {
    let mut done = 0;
    while done < c.len {
        let to = c.to + done;
        let in_page = (PAGE - to % PAGE).min(c.len - done);
        done += match poke(to, c.from + done, c.len - done) {
            Ok(n) if n > 0 => n,
            Ok(_) | Err(Errno::FAULT) => in_page,
            // A sandbox forbids that, or there is no memory: then by hand, where there is a page.
            Err(_) => {
                if populate(to, Advice::LinuxPopulateWrite).is_ok() {
                    // SAFETY: the page was there a moment ago, and this process has no other thread;
                    // from the pool.
                    unsafe { copy_bytes(to as *mut u8, (c.from + done) as *const u8, in_page) };
                }
                in_page
            }
        };
    }
}

/// Copies within this process through the kernel. Returns how much of it, or an error's number below
/// zero.
pub fn copy_within(from: &libc::iovec, to: &libc::iovec) -> isize {
    let address = |v: &libc::iovec| core::ptr::from_ref(v) as usize;
    let call = libc::SYS_process_vm_readv as usize;
    // SAFETY: whatever is not there is answered with EFAULT; the callers may overwrite what is.
    unsafe { critical::syscall6(call, [pid() as usize, address(to), 1, address(from), 1, 0]) }
}

/// Copies within this process through the kernel, as much of it as is there.
fn poke(to: usize, from: usize, len: usize) -> Result<usize, Errno> {
    let len = match inject::draw(Call::Poke, len <= PAGE) {
        None => len,
        Some(Error::Short) => len / 2,
        Some(error) => return Err(inject::errno(error)),
    };
    let piece = |addr: usize| libc::iovec { iov_base: addr as *mut _, iov_len: len };
    // SAFETY: the destination is the program's own memory, the source the pool.
    let n = unsafe { critical::process_vm_writev(pid() as usize, &piece(from), &piece(to)) };
    usize::try_from(n).map_err(|_| Errno::from_raw_os_error(-n as i32))
}
