//! How it begins, with the program and in each forked child, and how it ends.
//!
//! unsafe: reads the environment that the kernel passed, registers handlers with libc, and names
//! itself to the dynamic linker's arrays.

use crate::state::{self, State};
use crate::{blocks, book, copy, hooks, inside, sites, watch};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::collections::BTreeMap;
use uncopy_flow::layout::SITES;
use uncopy_flow::{Bounds, Follower};
use uncopy_kernel::critical::{block_signals, restore_signals};
use uncopy_kernel::imports;
use uncopy_options::{PROFILE, PROFILE_LEAST, PROFILE_TOUCH};

/// Most runs of tagged bytes: some 30 MB of books.
const PIECES: usize = 1 << 18;
/// Most fingerprints: they stand for 1 GB of data.
const FINGERPRINTS: usize = 1 << 22;
/// Below this many bytes nothing is followed, if nothing else is said.
pub const LEAST: usize = 512;

/// Where books are made.
static DIRECTORY: AtomicPtr<String> = AtomicPtr::new(core::ptr::null_mut());

/// The constructor's work. It is the first of all constructors (`-z initfirst`, see build.rs),
/// libc's too: what they set up (`environ`, standard streams, the program's malloc) is not used. As
/// a rule the process has one thread; but an auditing library (`LD_AUDIT`) may have started some,
/// or another library, where the linker lets it be the first. So nothing here counts on that.
///
/// # Safety
/// `envp` is a null-terminated list of strings.
pub unsafe fn start(envp: *const *const c_char) {
    imports::bind();
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
    state::begin(state);
    true
}

thread_local! {
    static MASK: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn before_fork() {
    if state::idle() {
        return;
    }
    MASK.with(|m| m.set(block_signals()));
    inside::set(true);
    state::before_fork();
}

fn after_fork() {
    inside::set(false);
    restore_signals(MASK.with(Cell::get));
}

extern "C" fn after_fork_parent() {
    if state::forking() {
        state::after_fork_parent();
        after_fork();
    }
}

extern "C" fn after_fork_child() {
    if state::forking() {
        let touch = state::after_fork_child();
        sites::forget();
        watch::forked();
        begin_anew(copy::least(), touch);
        after_fork();
    }
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
        hooks::find();
        blocks::find();
        start(envp);
        libc::dlerror(); // what our lookups left there is not the program's
        *libc::__errno_location() = errno;
    }
}

extern "C" fn end() {
    state::with(|s| book::note_usage(s.follower.book()));
}
