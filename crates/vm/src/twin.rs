//! The twin allocator's memory: one reservation of address space, its book, the lock around it.
//!
//! Large blocks begin on a page of their own and are recycled as they are; see
//! [`uncopy_core::arena`]. What the tracker knows of a block ends when it is freed, and its unmapped
//! pages stay unmapped for the next input.
//!
//! unsafe: maps the reservation and its table, opens it for use step by step, and gives pages back to
//! the kernel; all of it address space that nobody else was given.

use crate::{critical, lock::Lock, space};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};
use uncopy_core::arena::{Arena, Block, NoBlock, Run};
use uncopy_core::counters::add;
use uncopy_core::span::{PAGE, Span, page_up};

/// Address space for each byte of the machine's memory.
const SPACE_PER_MEMORY: usize = 4;
/// Address space at least and at most, in bytes.
const SPACE_MIN: usize = 1 << 30;
const SPACE_MAX: usize = 256 << 30;
/// The reservation is opened for use in steps of so many bytes.
const STEP: usize = 16 << 20;
/// Blocks of fewer bytes are left to the program's own allocator.
const BLOCK_MIN: usize = 8 << 10;
/// So are blocks of which more than this share would be lost to whole pages.
const WASTE_SHARE: usize = 8;
/// What lay idle for so long, in seconds, is given back by halves.
const IDLE_SECONDS: i64 = 10;

/// The clock is looked at once for so many frees.
const TIDY_EVERY: u32 = 64;

struct Global(UnsafeCell<Option<State>>);
// SAFETY: reached only with LOCK held, or before the program has threads.
unsafe impl Sync for Global {}

struct State {
    arena: Arena,
    /// Where the arena's table begins.
    table: usize,
    opened: usize,
    looked: i64,
    freed: u32,
}

static GLOBAL: Global = Global(UnsafeCell::new(None));
static LOCK: Lock = Lock::new();
/// Where the reservation begins; its length is 0 while there is none.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// Smallest block that is taken over; `usize::MAX` while none is.
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Reserves address space. Without it (RLIMIT_AS, strict overcommit) the program's own allocator
/// serves everything, as before. Called once, before the program has threads.
pub fn init() -> bool {
    use rustix::process::{Resource, getrlimit};
    if getrlimit(Resource::As).current.is_some() {
        return false;
    }
    let memory = rustix::system::sysinfo().totalram as usize;
    let bytes = (memory * SPACE_PER_MEMORY).clamp(SPACE_MIN, SPACE_MAX) / PAGE * PAGE;
    let pages = bytes / PAGE;
    let map = |bytes, protection| {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), bytes, protection, flags) }
    };
    let table_bytes = page_up(pages * size_of::<Block>());
    let Ok(table) = map(table_bytes, ProtFlags::READ | ProtFlags::WRITE) else { return false };
    let Ok(base) = map(bytes, ProtFlags::empty()) else {
        // SAFETY: just mapped, used by nobody.
        let _ = unsafe { rustix::mm::munmap(table, table_bytes) };
        return false;
    };
    // SAFETY: fresh zero pages, page-aligned, never unmapped; zeros are a valid `Block`.
    let blocks = unsafe { core::slice::from_raw_parts_mut(table.cast::<Block>(), pages) };
    // SAFETY: nobody else is here yet.
    unsafe {
        *GLOBAL.0.get() = Some(State {
            arena: Arena::new(blocks),
            table: table as usize,
            opened: 0,
            looked: seconds(),
            freed: 0,
        });
    }
    BASE.store(base as usize, Relaxed);
    LENGTH.store(bytes, Relaxed);
    FROM.store(BLOCK_MIN, Relaxed);
    true
}

/// Takes over no more blocks; those that live stay.
pub fn stop() {
    FROM.store(usize::MAX, Relaxed);
}

/// Before the program locks all its memory: what nobody uses of the reservation and of its table goes
/// back, so that it is neither filled nor counted. Blocks are served from what was used before.
pub fn before_lock_all() {
    if LENGTH.load(Relaxed) == 0 {
        return;
    }
    with(|s| {
        let used = s.arena.frontier();
        let all = LENGTH.load(Relaxed) / PAGE;
        let table = s.table + page_up(used * size_of::<Block>());
        s.arena.close();
        s.opened = used * PAGE;
        LENGTH.store(s.opened, Relaxed);
        // SAFETY: beyond what was ever handed out, and beyond what of the table says so.
        unsafe {
            let _ = rustix::mm::munmap(address(used) as *mut _, (all - used) * PAGE);
            let end = s.table + page_up(all * size_of::<Block>());
            if end > table {
                let _ = rustix::mm::munmap(table as *mut _, end - table);
            }
        }
    });
}

/// A core has neither our table nor what nobody used of the reservation.
pub(crate) fn leave_out_of_dumps() {
    if LENGTH.load(Relaxed) == 0 {
        return;
    }
    let (table, used) = with(|s| (s.table, s.arena.frontier()));
    let all = LENGTH.load(Relaxed) / PAGE;
    let unused = Span::sized(address(used), (all - used) * PAGE);
    crate::pages::leave_out_of_dumps(unused);
    crate::pages::leave_out_of_dumps(Span::sized(table, page_up(all * size_of::<Block>())));
}

/// Whether a block of `size` bytes may be taken over.
#[inline(always)]
pub fn wants(size: usize) -> bool {
    size >= FROM.load(Relaxed)
}

/// Whether `addr` lies in the reservation.
#[inline(always)]
pub fn owns(addr: usize) -> bool {
    addr.wrapping_sub(BASE.load(Relaxed)) < LENGTH.load(Relaxed)
}

/// Memory that a block was given, for [`allocate`]'s caller.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Its address, a page's.
    pub addr: usize,
    /// Whether all of it reads as zeros.
    pub zeros: bool,
}

/// A block of `size` bytes. `None`: the program's own allocator should serve it.
pub fn allocate(size: usize) -> Option<Given> {
    hand_out(size, Arena::allocate)
}

/// A block that has grown to `size` bytes, with address space to grow further: out of the one at `from`, which is to be freed,
/// if that lay here. `None`: the program's own allocator should serve it.
pub fn allocate_grown(size: usize, from: usize) -> Option<Given> {
    let from = page_of(from).ok().filter(|_| owns(from));
    hand_out(size, |arena, pages| arena.allocate_grown(pages, from))
}

fn hand_out(size: usize, take: impl FnOnce(&mut Arena, usize) -> Option<Run>) -> Option<Given> {
    if size > LENGTH.load(Relaxed) / 2 {
        return None;
    }
    let bytes = page_up(size);
    if bytes - size > size / WASTE_SHARE {
        return None;
    }
    let pages = bytes / PAGE;
    let run = with(|s| {
        let run = take(&mut s.arena, pages)?;
        if !s.open() {
            let _ = s.arena.free(run.page);
            return None;
        }
        Some(run)
    })?;
    add(&space::COUNTERS.twin_blocks, 1);
    Some(Given { addr: address(run.page), zeros: run.fresh })
}

/// Bytes that the program may use of the block at `addr`.
///
/// # Errors
/// Where no block begins.
pub fn usable_size(addr: usize) -> Result<usize, NoBlock> {
    let page = page_of(addr)?;
    with(|s| s.arena.block(page)).map(|b| b.used as usize * PAGE).ok_or(NoBlock)
}

/// Ends the block at `addr`: its views end, its pages are kept.
///
/// # Errors
/// Where no block begins.
pub fn free(addr: usize) -> Result<(), NoBlock> {
    let page = page_of(addr)?;
    let mut viewed = None;
    let tidies = with(|s| {
        let bytes = s.arena.block(page).ok_or(NoBlock)?.reserved as usize * PAGE;
        if space::serving() && space::FILTER.perhaps_tracked(addr, bytes) {
            viewed = Some(bytes);
            return Ok(false);
        }
        s.free(page)
    })?;
    let tidies = match viewed {
        // Its views end before anybody else can be given it, and without our lock.
        Some(bytes) => {
            space::freed(Span::sized(addr, bytes));
            with(|s| s.free(page))?
        }
        None => tidies,
    };
    if tidies {
        tidy();
    }
    Ok(())
}

/// Makes the block at `addr` `size` bytes long where it lies; false if it cannot grow there, or
/// would waste too much.
///
/// # Errors
/// Where no block begins.
pub fn resize(addr: usize, size: usize) -> Result<bool, NoBlock> {
    let page = page_of(addr)?;
    let bytes = page_up(size);
    if size < BLOCK_MIN || size > LENGTH.load(Relaxed) / 2 {
        return Ok(false);
    }
    with(|s| {
        let before = s.arena.block(page).ok_or(NoBlock)?;
        if !s.arena.resize(page, bytes / PAGE)? {
            return Ok(false);
        }
        if !s.open() {
            let _ = s.arena.resize(page, before.used as usize);
            return Ok(false);
        }
        Ok(true)
    })
}

/// Before fork: nobody changes the book.
pub fn before_fork() {
    LOCK.lock();
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    LOCK.unlock();
}

/// After fork, in the child.
pub fn after_fork_child() {
    LOCK.reset();
}

impl State {
    fn gauges(&self) {
        let c = space::COUNTERS;
        c.twin_live_bytes.store((self.arena.live_pages() * PAGE) as u64, Relaxed);
        c.twin_kept_bytes.store((self.arena.kept_pages() * PAGE) as u64, Relaxed);
        c.twin_slack_bytes.store((self.arena.slack_pages() * PAGE) as u64, Relaxed);
    }

    /// Ends a block. Returns whether [`tidy`] should look.
    fn free(&mut self, page: usize) -> Result<bool, NoBlock> {
        self.arena.free(page)?;
        self.freed = self.freed.wrapping_add(1);
        Ok(self.arena.has_surplus() || self.freed.is_multiple_of(TIDY_EVERY))
    }

    /// Opens the reservation for use up to the book's frontier.
    fn open(&mut self) -> bool {
        let needed = self.arena.frontier() * PAGE;
        if needed <= self.opened {
            return true;
        }
        let end = needed.next_multiple_of(STEP).min(LENGTH.load(Relaxed));
        let start = BASE.load(Relaxed) + self.opened;
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: a part of our reservation that was not handed out yet.
        let opened = unsafe { rustix::mm::mprotect(start as *mut _, end - self.opened, all) };
        if opened.is_ok() {
            self.opened = end;
        }
        opened.is_ok()
    }
}

fn address(page: usize) -> usize {
    BASE.load(Relaxed) + page * PAGE
}

fn page_of(addr: usize) -> Result<usize, NoBlock> {
    let offset = addr.wrapping_sub(BASE.load(Relaxed));
    if offset.is_multiple_of(PAGE) { Ok(offset / PAGE) } else { Err(NoBlock) }
}

fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    // A handler that forks must not find its own thread holding the lock.
    space::heed_unknown_fork();
    critical::within(|| {
        LOCK.lock();
        // SAFETY: the lock is held; `f` does not come back here. Whoever comes here has an address
        // in the reservation, or `FROM` set: both only after `init`.
        let state = unsafe { &mut *GLOBAL.0.get() }.as_mut();
        let state = state.expect("init makes it before there is an address in it");
        let result = f(state);
        state.gauges();
        LOCK.unlock();
        result
    })
}

fn seconds() -> i64 {
    clock_gettime(ClockId::MonotonicCoarse).tv_sec
}

/// Gives pages back to the kernel: what is beyond the cap, and now and then what lies idle.
fn tidy() {
    let now = seconds();
    let mut idle = with(|s| {
        if now - s.looked < IDLE_SECONDS {
            return 0;
        }
        s.looked = now;
        s.arena.idle_pages()
    });
    loop {
        let run = with(|s| if idle > 0 { s.arena.release_one() } else { s.arena.surplus() });
        let Some((page, pages)) = run else { return };
        idle = idle.saturating_sub(pages);
        let span = Span::sized(address(page), pages * PAGE);
        if space::serving() && space::FILTER.perhaps_tracked(span.start, span.len()) {
            space::relinquish(span);
        }
        // SAFETY: pages of ours that are in no block and on no list.
        unsafe {
            let _ = rustix::mm::madvise(span.start as *mut _, span.len(), Advice::LinuxDontNeed);
        }
        with(|s| s.arena.gave_back(page, pages));
    }
}
