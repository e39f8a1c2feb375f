//! The one tracker of this process, the lock around it, and its life: idle until the first copy
//! worth eliding, running with a monitor thread, frozen during fork, off.
//!
//! unsafe: the tracker lives in a static behind our own lock, and copies of bytes that the tracker
//! planned are carried out here, on the program's memory and the pool's.

use crate::pages::{CopyBytes, Fds, Pages};
use crate::uffd::{Event, Maker, Refusal};
use crate::{critical, freeze, lock::Lock, monitor};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;
use uncopy_core::counters::Counters;
use uncopy_core::filter::Filter;
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
    let maker = Maker::open();
    let mut fds = Fds::make(&maker)?;
    let least = descriptor_floor();
    fds.lift(least);
    let maker = match maker {
        Maker::Device(fd) => Maker::Device(lift(&fd).unwrap_or(fd)),
        other => other,
    };
    plant_alive();
    monitor::prepare();
    publish_descriptors(&fds, &maker);
    // SAFETY: called once, by the library's constructor, before the program has threads.
    unsafe {
        *GLOBAL.0.get() =
            Some(Space { settings, maker, fds: Some(fds), books: None, excluded: Vec::new() });
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
    rustix::io::fcntl_dupfd_cloexec(fd, descriptor_floor())
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

fn publish_descriptors(fds: &Fds, maker: &Maker) {
    PID.store(pid(), Ordering::Relaxed);
    use rustix::fd::AsRawFd;
    let device = match maker {
        Maker::Device(fd) => fd.as_raw_fd(),
        Maker::SystemCall => -1,
    };
    let all = [fds.program.fd().as_raw_fd(), fds.pool.fd().as_raw_fd(), device];
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
    let space = hold.space();
    if let Some(s) = space {
        if let Maker::Device(d) = &mut s.maker
            && let Ok(other) = rustix::io::fcntl_dupfd_cloexec(&*d, fd + 1)
        {
            *d = other;
        }
        let fds = match (&mut s.books, &mut s.fds) {
            (Some(b), _) => &mut b.memory.fds,
            (None, Some(f)) => f,
            (None, None) => return,
        };
        fds.lift(fd + 1);
        publish_descriptors(fds, &s.maker);
    }
}

fn plant_alive() {
    // SAFETY: a fresh page of our own.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let Ok(page) = page else { return };
    // SAFETY: the page is ours, and zeroing it in a child is what we want.
    let wiped = unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork) };
    if wiped.is_ok() {
        let word = page.cast::<AtomicUsize>();
        // SAFETY: aligned, mapped, never unmapped.
        unsafe { (*word).store(1, Ordering::Relaxed) };
        ALIVE.store(word, Ordering::Release);
    }
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

/// Starts the monitor, if this is the first copy worth eliding. Returns whether it runs.
pub fn start() -> bool {
    if STATE.compare_exchange(IDLE, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return running();
    }
    let started = alive() && prepare_books() && monitor::spawn();
    STATE.store(if started { RUNNING } else { OFF }, Ordering::Release);
    started
}

/// Stops tracking anything new, for good. What is tracked stays served. A program of one thread has
/// one thread from then on.
pub fn stand_down() {
    let _ = materialize_all();
    let nothing_left = with(|b| b.everything().is_none()) == Some(true);
    let page = match nothing_left && monitor::alone_with_program() {
        true => with(|b| b.spare_pool_page()).flatten(),
        false => None,
    };
    STATE.store(OFF, Ordering::Release);
    if let Some(page) = page {
        monitor::dismiss(page);
    }
}

/// [`stand_down`] before a call that the kernel refuses to, or makes otherwise in, a process of several
/// threads, if the second one is ours.
pub fn stand_down_if_alone() {
    if running() && monitor::alone_with_program() {
        stand_down();
    }
}

fn prepare_books() -> bool {
    Hold::take().space().is_some_and(|space| space.books.is_some() || space.open_books())
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
        let mut books = Tracker::new(pages, shape, limits, policy, &FILTER, &COUNTERS);
        self.excluded.drain(..).for_each(|s| books.exclude(s));
        self.books = Some(books);
        true
    }
}

fn max_map_count() -> usize {
    use rustix::fs::{Mode, OFlags};
    let read = || {
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
        let mut byte = 0u8;
        let from = libc::iovec { iov_base: page as *mut _, iov_len: 1 };
        let to = libc::iovec { iov_base: core::ptr::from_mut(&mut byte).cast(), iov_len: 1 };
        // SAFETY: reads a byte of this process into a byte of ours, or answers EFAULT.
        unsafe {
            let pid = critical::syscall4(libc::SYS_getpid as usize, 0, 0, 0, 0) as usize;
            let (from, to) = (core::ptr::from_ref(&from), core::ptr::from_ref(&to));
            let call = libc::SYS_process_vm_readv as usize;
            critical::syscall6(call, [pid, to as usize, 1, from as usize, 1, 0]);
        }
    }
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
    if FROZEN.load(Ordering::Relaxed) != 0 {
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
        let _ = futex::wait(&FROZEN, futex::Flags::PRIVATE, frozen, None);
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
    use uncopy_core::memory::Memory;
    while with_after_fork(|b| b.memory.map_changing()) == Some(true) {
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
    if STATE.load(Ordering::Relaxed) != RUNNING {
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
    LOCK.reset();
    FROZEN.store(0, Ordering::Relaxed);
    STATE.store(OFF, Ordering::Relaxed);
}

fn renew_child() {
    LOCK.reset();
    plant_alive();
    let frozen = FROZEN.swap(0, Ordering::Relaxed) != 0;
    COUNTERS.reset();
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
        space.serve_without_monitor(true);
    }
}

impl Space {
    /// In the child: userfaultfds for its own memory map. Returns whether eliding can go on.
    fn renew(&mut self, frozen: bool) -> bool {
        // The inherited ones would act on the parent's memory: never used here, only closed.
        let fds = Fds::make(&self.maker).map(|mut f| {
            f.lift(descriptor_floor());
            publish_descriptors(&f, &self.maker);
            f
        });
        let Some(books) = &mut self.books else {
            self.fds = fds.ok();
            return self.fds.is_some();
        };
        match fds {
            Ok(fds) => {
                books.memory.fds = fds;
                books.memory.set_by_monitor(false);
            }
            Err(_) => {
                self.serve_without_monitor(false);
                return false;
            }
        }
        if books.memory.register_pool().is_err() {
            self.serve_without_monitor(true);
            return false;
        }
        books.register_all_again(write_out);
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

    /// In a child that cannot have a userfaultfd (`own_fds` false) or a thread: missing pages are
    /// ordinary there, so the views are simply written out.
    fn serve_without_monitor(&mut self, own_fds: bool) {
        if let Some(books) = &mut self.books {
            books.give_up(own_fds, write_out);
        }
    }
}

/// Writes viewed bytes to their (missing, unregistered) pages in a child. Through the kernel: a
/// mapping that went away meanwhile answers EFAULT there.
fn write_out(c: uncopy_core::plan::Copy) {
    let piece = |addr: usize| libc::iovec { iov_base: addr as *mut _, iov_len: c.len };
    let (from, to) = (piece(c.from), piece(c.to));
    // SAFETY: the destination is the program's own memory, the source the pool.
    unsafe {
        let pid = critical::syscall4(libc::SYS_getpid as usize, 0, 0, 0, 0) as usize;
        critical::process_vm_writev(pid, &from, &to);
    }
}
