//! The one tracker of this process, the lock around it, and its life: idle until the first copy
//! worth eliding, running with a monitor thread, frozen during fork, off.
//!
//! unsafe: the tracker lives in a static behind our own lock, and copies of bytes that the tracker
//! planned are carried out here, on the program's memory and the pool's.

use crate::pages::{CopyBytes, Fds, Pages};
use crate::uffd::{Event, Maker, Refusal, duplicate};
use crate::{critical, freeze, inject, lock, lock::Lock, monitor};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use uncopy_core::counters::Counters;
use uncopy_core::filter::Filter;
use uncopy_core::inject::{Call, Error};
use uncopy_core::memory::FillError;
use uncopy_core::plan::{Copies, Pins};
use uncopy_core::policy::Policy;
use uncopy_core::span::{PAGE, Span};
use uncopy_core::tracker::{Detached, Limits, Tracker};

/// What this process's tracker is.
pub type Books = Tracker<Pages>;

/// The lock-free test; see [`Filter`].
pub static FILTER: Filter = Filter::new();
/// What was done.
pub static COUNTERS: Counters = Counters::new();

const OFF: u8 = 0;
const IDLE: u8 = 1;
const STARTING: u8 = 2;
const RUNNING: u8 = 3;
/// What is tracked is served, nothing more is tracked.
const SERVING: u8 = 4;

static STATE: AtomicU8 = AtomicU8::new(OFF);
static LOCK: Lock = Lock::new();
/// Forks under way.
static FROZEN: AtomicU32 = AtomicU32::new(0);
/// A word that a child made behind our back (clone without fork) finds zeroed.
static ALIVE: AtomicPtr<AtomicUsize> = AtomicPtr::new(core::ptr::null_mut());

struct Global(UnsafeCell<Option<Space>>);
// SAFETY: reached only with LOCK held, or before any second thread can (init, forked child).
unsafe impl Sync for Global {}
static GLOBAL: Global = Global(UnsafeCell::new(None));

struct Space {
    settings: Settings,
    maker: Maker,
    fds: Option<Fds>,
    books: Option<Books>,
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
    publish_descriptors(Some(&fds), &maker);
    // SAFETY: called once, by the library's constructor, before the program has threads.
    unsafe {
        *GLOBAL.0.get() = Some(Space { settings, maker, fds: Some(fds), books: None });
    }
    STATE.store(IDLE, Ordering::Release);
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

fn in_own_process() -> bool {
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
        let serving = if s.books.is_some() { SERVING } else { OFF };
        STATE.store(serving, Ordering::Relaxed);
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

fn alive() -> bool {
    let word = ALIVE.load(Ordering::Relaxed);
    // SAFETY: planted once, never unmapped.
    word.is_null() || unsafe { (*word).load(Ordering::Relaxed) } == 1
}

/// Whether large input should be remembered, so that the first copy of it starts the space.
#[inline]
pub fn wanted() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
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
    STATE.load(Ordering::Relaxed) == RUNNING
}

/// Whether anything may be tracked still, though nothing more may be.
#[inline]
pub fn serving() -> bool {
    matches!(STATE.load(Ordering::Relaxed), RUNNING | SERVING)
}

/// Starts the monitor, if this is the first copy worth eliding. Returns whether it runs.
pub fn start() -> bool {
    if STATE.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return running();
    }
    if !alive() {
        STATE.store(OFF, Ordering::Release);
        return false;
    }
    let why = if !prepare_books() {
        &COUNTERS.off_resources
    } else if !monitor::spawn() {
        &COUNTERS.off_thread
    } else {
        STATE.store(RUNNING, Ordering::Release);
        return true;
    };
    off(why);
    close_books();
    STATE.store(OFF, Ordering::Release);
    false
}

/// Stops tracking, for good: the program enters a sandbox, or locks its memory. Everything is put in
/// place.
pub fn stand_down() {
    off(&COUNTERS.off_sandbox);
    // Under the lock: whoever begins after this tracks nothing more, and what is under way only
    // fills what is unmapped still.
    let hold = Hold::take();
    let was_running =
        STATE.compare_exchange(RUNNING, SERVING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    drop(hold);
    if was_running && let Some(all) = with_after_fork(|b| b.everything()).flatten() {
        materialize(all, true);
    }
    STATE.store(OFF, Ordering::Release);
}

fn prepare_books() -> bool {
    Hold::take().space().is_some_and(|space| space.books.is_some() || space.open_books())
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
        let policy = Policy::new(s.threshold, s.backoff);
        self.books = Some(Tracker::new(pages, shape, limits, policy, &FILTER, &COUNTERS));
        true
    }
}

fn max_map_count() -> usize {
    use rustix::fs::{Mode, OFlags};
    let read = || {
        inject::check(Call::Open).ok()?;
        let fd = rustix::fs::open(
            c"/proc/sys/vm/max_map_count",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let mut text = [0u8; 32];
        let n = rustix::io::read(&fd, &mut text[..]).ok()?;
        core::str::from_utf8(&text[..n]).ok()?.trim().parse().ok()
    };
    read().unwrap_or(MAP_COUNT)
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

/// Touches every page of `span`, without crashing where there is none.
#[cold]
fn touch(span: Span) {
    for page in (span.hull().start..span.hull().end).step_by(PAGE) {
        if !peek(page) {
            // A sandbox forbids that; this asks for the page too.
            let _ = populate(page, Advice::LinuxPopulateRead);
        }
    }
}

/// Reads a byte of this process. Returns false where that is forbidden.
fn peek(addr: usize) -> bool {
    let mut byte = 0u8;
    let from = libc::iovec { iov_base: addr as *mut _, iov_len: 1 };
    let to = libc::iovec { iov_base: core::ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    // SAFETY: reads a byte of this process into a byte of ours, or answers EFAULT.
    let result = inject::check(Call::Peek).is_ok().then(|| unsafe {
        let (from, to) = (core::ptr::from_ref(&from), core::ptr::from_ref(&to));
        let call = libc::SYS_process_vm_readv as usize;
        critical::syscall6(call, [pid() as usize, to as usize, 1, from as usize, 1, 0])
    });
    result.is_some_and(|r| r == 1 || r == -(libc::EFAULT as isize))
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
        ground_stack();
        critical::enter();
        LOCK.lock();
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
        LOCK.unlock();
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
        STATE.store(OFF, Ordering::Relaxed);
        return None;
    }
    let mut hold = Hold::take();
    if FROZEN.load(Ordering::Relaxed) != 0 || !running() {
        return None;
    }
    hold.books().map(f)
}

/// Runs `f` on the books, after a fork that is under way: for what must not be left out (an input
/// that went into an extent, a pin).
#[inline]
pub fn with_after_fork<R>(f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    loop {
        let mut hold = Hold::take();
        let frozen = FROZEN.load(Ordering::Relaxed);
        if frozen == 0 {
            return hold.books().map(f);
        }
        drop(hold);
        lock::wait(&FROZEN, frozen);
    }
}

/// Runs `f` on the books for the monitor, which is told whether they are frozen.
pub(crate) fn for_monitor<R>(f: impl FnOnce(&mut Books, bool) -> R) -> Option<R> {
    LOCK.lock();
    // SAFETY: the lock is held.
    let books = unsafe { &mut *GLOBAL.0.get() }.as_mut().and_then(|s| s.books.as_mut());
    let result = books.map(|b| {
        b.memory.set_by_monitor(true);
        let result = f(b, FROZEN.load(Ordering::Relaxed) != 0);
        b.memory.set_by_monitor(false);
        result
    });
    LOCK.unlock();
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
                let _ =
                    STATE.compare_exchange(RUNNING, SERVING, Ordering::Relaxed, Ordering::Relaxed);
                let all = with_after_fork(|b| b.unmapped_in(span)).unwrap_or_default();
                all.into_iter().for_each(touch);
                return;
            }
            Some(Ok(())) | None => return,
        }
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
    match with(|b| b.everything()).flatten() {
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
    stand_down();
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
    while STATE.load(Ordering::Acquire) == STARTING {
        rustix::thread::sched_yield();
    }
    critical::block_for_fork();
    freeze_books();
}

/// The books do not change until [`thaw`].
pub fn freeze_books() {
    if !serving() {
        return;
    }
    let hold = Hold::take();
    if FROZEN.fetch_add(1, Ordering::Relaxed) == 0 {
        freeze::clear();
    }
    drop(hold);
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    thaw();
    critical::unblock_after_fork();
}

/// Ends [`freeze_books`]: catches up with what happened meanwhile.
pub fn thaw() {
    if FROZEN.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut hold = Hold::take();
    if FROZEN.load(Ordering::Relaxed) == 1 {
        if let Some(books) = hold.books() {
            for event in freeze::lines() {
                match event {
                    Event::Fault(addr) => books.filled_meanwhile(addr),
                    other => monitor::report(books, other),
                }
            }
        }
        freeze::clear();
    }
    FROZEN.fetch_sub(1, Ordering::Relaxed);
    let _ = futex::wake(&FROZEN, futex::Flags::PRIVATE, u32::MAX >> 1);
    drop(hold);
}

/// After fork, in the child: its own userfaultfds, its own monitor, the same views.
pub fn after_fork_child() {
    renew_child();
    critical::unblock_after_fork();
}

/// In a child that was made without fork's handlers, after everything was put in place: it goes on
/// without us.
pub fn after_bare_fork_child() {
    monitor::is_gone();
    LOCK.reset();
    FROZEN.store(0, Ordering::Relaxed);
    STATE.store(OFF, Ordering::Relaxed);
}

fn renew_child() {
    LOCK.reset();
    monitor::is_gone();
    let frozen = FROZEN.swap(0, Ordering::Relaxed) != 0;
    COUNTERS.reset();
    // (The word is there: it was planted before anything else.)
    let _ = plant_alive();
    let state = STATE.load(Ordering::Relaxed);
    if state == OFF {
        return;
    }
    STATE.store(OFF, Ordering::Relaxed);
    let mut hold = Hold::take();
    let Some(space) = hold.space() else { return };
    if !space.renew(frozen) {
        return;
    }
    let tracked = space.books.as_ref().is_some_and(|b| b.everything().is_some());
    if !tracked {
        STATE.store(IDLE, Ordering::Release);
        return;
    }
    drop(hold);
    if monitor::spawn() {
        STATE.store(RUNNING, Ordering::Release);
    } else if let Some(space) = Hold::take().space() {
        // Nobody would answer a fault: everything in place, now.
        off(&COUNTERS.off_thread);
        space.serve_without_monitor(false);
    }
}

impl Space {
    /// In the child: userfaultfds for its own memory map. Returns whether eliding can go on.
    fn renew(&mut self, frozen: bool) -> bool {
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
            self.serve_without_monitor(frozen);
            return false;
        }
        if frozen {
            for event in freeze::lines() {
                match event {
                    Event::Fault(addr) => books.refill(addr),
                    other => monitor::report(books, other),
                }
            }
            freeze::clear();
        }
        true
    }

    /// In a child that cannot have a userfaultfd or a thread: missing pages are ordinary there, so the
    /// views are simply written out.
    fn serve_without_monitor(&mut self, frozen: bool) {
        let Some(books) = &mut self.books else { return };
        // Closing them ends all registrations: what we touch now must not wait for anybody. (Not ours
        // any more first: our own `close` spares ours.)
        publish_descriptors(None, &self.maker);
        books.memory.fds = None;
        if frozen {
            let lines = freeze::lines().count();
            for (i, event) in freeze::lines().enumerate() {
                match event {
                    // First the line, then the deed: of the last one fork may have seen the line only.
                    Event::Fault(addr) if i + 1 < lines || present(addr) => {
                        books.filled_meanwhile(addr);
                    }
                    Event::Fault(_) => {}
                    other => monitor::report(books, other),
                }
            }
            freeze::clear();
        }
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
