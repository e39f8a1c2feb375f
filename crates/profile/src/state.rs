//! The one follower of this process, its lock, start and fork.
//!
//! unsafe: the follower lives in a static behind our own lock; reads what the kernel has just written into the
//! program's memory, or read from it.

use crate::{book, copy, sites, watch};
use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};
use std::collections::BTreeMap;
use uncopy_flow::layout::{SITES, header};
use uncopy_flow::{Bounds, Follower, ProgramMemory};
use uncopy_options::{PROFILE, PROFILE_LEAST, PROFILE_TOUCH};
use uncopy_ranges::filter::Filter;
use uncopy_vm::critical::{block_signals, restore_signals};
use uncopy_vm::lock::Lock;

/// Most runs of tagged bytes: some 30 MB of books.
const PIECES: usize = 1 << 18;
/// Most fingerprints: they stand for 1 GB of data.
const FINGERPRINTS: usize = 1 << 22;
/// Below this many bytes nothing is followed, if nothing else is said.
pub const LEAST: usize = 512;

/// What there is one of.
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
    noted: u64,
    /// CPU time of the threads that watch, as far as it is counted, ns.
    helped: u64,
    /// Questions that the filter let through for nothing.
    vain: u32,
}

struct Global(UnsafeCell<Option<State>>);
// SAFETY: reached only with the lock held, or in a forked child, which has one thread.
unsafe impl Sync for Global {}
static GLOBAL: Global = Global(UnsafeCell::new(None));
static LOCK: Lock = Lock::new();
static ON: AtomicBool = AtomicBool::new(false);
/// The process that the follower is of: a child of vfork, or one made behind libc's back, is another.
static PID: AtomicI32 = AtomicI32::new(0);
/// Where books are made.
static DIRECTORY: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());
/// Memory that may hold tagged bytes.
pub static FILTER: Filter = Filter::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The program's memory.
pub struct Program;

impl ProgramMemory for Program {
    fn word(&self, addr: usize) -> u64 {
        // SAFETY: the kernel has just read or written it, or the calling thread is about to.
        unsafe { (addr as *const u64).read_unaligned() }
    }
}

/// This thread is one of ours: what it calls is not followed.
pub fn ours() {
    INSIDE.with(|i| i.set(true));
}

/// Whether this thread is in here already, or nothing is followed.
pub fn idle() -> bool {
    !ON.load(Relaxed) || INSIDE.with(Cell::get)
}

/// Runs `f` on the state. No handler of the program runs on this thread meanwhile: it might leave by `longjmp`.
pub fn with<R>(f: impl FnOnce(&mut State) -> R) -> Option<R> {
    if idle() || PID.load(Relaxed) != rustix::process::getpid().as_raw_pid() {
        return None;
    }
    let began = book::thread_ns();
    let mask = block_signals();
    INSIDE.with(|i| i.set(true));
    LOCK.lock();
    // SAFETY: the lock is held.
    let result = unsafe { &mut *GLOBAL.0.get() }.as_mut().map(|state| {
        state.begin();
        let result = f(state);
        state.end(began);
        result
    });
    LOCK.unlock();
    INSIDE.with(|i| i.set(false));
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
            book::note_cpu(book);
        }
    }

    /// The filter let something through. Now and then it is made anew.
    pub fn was_tagged(&mut self, tagged: bool) {
        const PATIENCE: u32 = 4096;
        self.vain += u32::from(!tagged);
        if self.vain > PATIENCE + self.follower.pieces() as u32 {
            self.vain = 0;
            FILTER.track_only(self.follower.all().map(|p| p.span));
        }
    }
}

/// What [`sites::site`] has forgotten, or never had room for.
pub fn site_known(key: usize) -> Option<u32> {
    with(|s| s.sites.get(&key).copied()).unwrap_or(Some(0))
}

/// The constructor's work. It is the first of all constructors (`-z initfirst`, see build.rs), libc's too: what they
/// set up (`environ`, standard streams, the program's malloc) is not used. As a rule the process has one thread; but an
/// auditing library (`LD_AUDIT`) may have started some, or another library, where the linker lets it be the first.
/// So nothing here counts on that.
///
/// # Safety
/// `envp` is a null-terminated list of strings.
pub unsafe fn start(envp: *const *const c_char) {
    let mut least = LEAST;
    let mut touch = true;
    let mut directory = None;
    let mut i = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while !envp.is_null() && !(*envp.add(i)).is_null() {
            let line = CStr::from_ptr(*envp.add(i)).to_str().unwrap_or_default();
            i += 1;
            match line.split_once('=') {
                Some((PROFILE, value)) => directory = Some(value.to_owned()),
                Some((PROFILE_LEAST, value)) => least = value.parse().unwrap_or(LEAST),
                Some((PROFILE_TOUCH, value)) => touch = value != "0",
                _ => {}
            }
        }
        let secure = libc::getauxval(libc::AT_SECURE) != 0;
        let Some(directory) = directory.filter(|_| !secure) else { return };
        DIRECTORY.store(Box::into_raw(Box::new(directory)), Relaxed);
        if !begin_anew(least.max(16), touch) {
            return;
        }
        if touch {
            watch::prepare();
        }
        libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
    }
    copy::follow_from(least.max(16));
}

fn begin_anew(least: usize, touch: bool) -> bool {
    // SAFETY: leaked by `start`.
    let Some(directory) = (unsafe { DIRECTORY.load(Relaxed).as_ref() }) else { return false };
    let Some(book) = book::open(directory) else { return false };
    // Number 0 of the sites stands for those that had no room.
    book.open(SITES);
    let bounds = Bounds { least, pieces: PIECES, words: FINGERPRINTS };
    let state = State {
        follower: Follower::new(book, bounds),
        sites: BTreeMap::new(),
        modules: BTreeMap::new(),
        watch: watch::Watch::new(touch),
        noted: 0,
        helped: watch::helped_ns(),
        vain: 0,
    };
    LOCK.lock();
    // SAFETY: the lock is held. (What a child inherited is left as it is: it is the parent's.)
    unsafe { core::mem::forget((*GLOBAL.0.get()).replace(state)) };
    LOCK.unlock();
    PID.store(rustix::process::getpid().as_raw_pid(), Relaxed);
    ON.store(true, Relaxed);
    true
}

thread_local! {
    static MASK: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn before_fork() {
    if idle() {
        return;
    }
    MASK.with(|m| m.set(block_signals()));
    INSIDE.with(|i| i.set(true));
    LOCK.lock();
    // SAFETY: the lock is held.
    if let Some(s) = unsafe { &mut *GLOBAL.0.get() } {
        s.watch.end(&mut s.follower);
    }
}

fn after_fork() {
    INSIDE.with(|i| i.set(false));
    restore_signals(MASK.with(Cell::get));
}

extern "C" fn after_fork_parent() {
    if ON.load(Relaxed) && INSIDE.with(Cell::get) {
        LOCK.unlock();
        after_fork();
    }
}

extern "C" fn after_fork_child() {
    if ON.load(Relaxed) && INSIDE.with(Cell::get) {
        LOCK.reset();
        ON.store(false, Relaxed);
        sites::forget();
        // SAFETY: a forked child has one thread.
        unsafe {
            let touch = (*GLOBAL.0.get()).as_ref().is_some_and(|s| s.watch.wanted());
            watch::forked();
            begin_anew(copy::least(), touch);
        }
        after_fork();
    }
}

/// Puts everything in place before the memory is copied behind libc's back.
pub fn before_unknown_fork() {
    with(|s| s.watch.end(&mut s.follower));
}

// SAFETY: the dynamic linker calls what stands in these arrays, with (argc, argv, envp) at start.
#[unsafe(link_section = ".init_array")]
#[used]
static CONSTRUCTOR: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;
// SAFETY: as above, at exit.
#[unsafe(link_section = ".fini_array")]
#[used]
static DESTRUCTOR: extern "C" fn() = end;

unsafe extern "C" fn begin(_: c_int, _: *const *const c_char, envp: *const *const c_char) {
    // SAFETY: errno is libc's; the rest as the dynamic linker promises.
    unsafe {
        let errno = *libc::__errno_location();
        copy::find();
        crate::hooks::find();
        crate::blocks::find();
        start(envp);
        libc::dlerror(); // what our lookups left there is not the program's
        *libc::__errno_location() = errno;
    }
}

extern "C" fn end() {
    with(|s| book::note_cpu(s.follower.book()));
}
