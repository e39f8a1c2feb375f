//! The twin allocator's memory: one reservation of address space, its book, the lock around it.
//!
//! Large blocks begin on a page of their own and are recycled as they are; see
//! [`uncopy_arena`]. What the tracker knows of a block ends when it is freed, and its unmapped
//! pages stay unmapped for the next input. What the program changed of a block's mapping (locked,
//! protected, advised) ends with the block: such pages are mapped anew.
//!
//! unsafe: maps the reservation and its table, opens it for use step by step, and gives pages back to
//! the kernel; all of it address space that nobody else was given.

use crate::{critical, inject, limits, lock::Lock, space};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::time::{ClockId, clock_gettime};
use uncopy_arena::{Arena, Block, NoBlock, Run};
use uncopy_counters::add;
use uncopy_inject::Call;
use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::span::{PAGE, Span, page_up};

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
/// So are blocks of more than this share of the machine's memory, which is all that extents hold by default: the kernel refuses a
/// mapping that exceeds the memory, but not a part of a reservation.
const BLOCK_SHARE: usize = 8;
/// What lay idle for so long, in seconds, is given back by halves.
const IDLE_SECONDS: i64 = 10;

/// The clock is looked at once for so many frees.
const TIDY_EVERY: u32 = 64;

struct Global(UnsafeCell<Option<State>>);
// SAFETY: reached only with LOCK held, or before the program has threads.
unsafe impl Sync for Global {}

struct State {
    arena: Arena,
    opened: usize,
    looked: i64,
    freed: u32,
    /// Addresses whose mapping the program changed, as far as they are still in that block.
    altered: Ranges,
}

static GLOBAL: Global = Global(UnsafeCell::new(None));
static LOCK: Lock = Lock::new();
/// Where the reservation begins; its length is 0 while there is none.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
/// Where the arena's table begins.
static TABLE: AtomicUsize = AtomicUsize::new(0);
/// Smallest block that is taken over; `usize::MAX` while none is.
static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Largest block.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// See [`close`].
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Reserves address space. Where that would count (RLIMIT_AS, RLIMIT_DATA, strict overcommit) the program's own allocator
/// serves everything, as before. Called once, before the program has threads.
pub fn init() -> bool {
    if limits::reserving_counts() {
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
    let Ok(table) = map(table_bytes(pages), ProtFlags::READ | ProtFlags::WRITE) else {
        return false;
    };
    let Ok(base) = map(bytes, ProtFlags::empty()) else {
        // SAFETY: just mapped, used by nobody.
        let _ = unsafe { rustix::mm::munmap(table, table_bytes(pages)) };
        return false;
    };
    // SAFETY: fresh zero pages, page-aligned, never unmapped; zeros are a valid `Block`.
    let blocks = unsafe { core::slice::from_raw_parts_mut(table.cast::<Block>(), pages) };
    // SAFETY: nobody else is here yet.
    unsafe {
        *GLOBAL.0.get() = Some(State {
            arena: Arena::new(blocks),
            opened: 0,
            looked: seconds(),
            freed: 0,
            altered: Ranges::new(),
        });
    }
    TABLE.store(table as usize, Relaxed);
    BASE.store(base as usize, Relaxed);
    LENGTH.store(bytes, Relaxed);
    LARGEST.store(memory / BLOCK_SHARE, Relaxed);
    FROM.store(BLOCK_MIN, Relaxed);
    true
}

/// Before the program locks all its memory, or limits its address space: from now on its own allocator serves it, and what is free
/// here, now or later, goes away as that does. Other mappings may come to lie in the gaps: see [`holds`].
pub fn close() {
    if LENGTH.load(Relaxed) == 0 || CLOSED.swap(true, Relaxed) {
        return;
    }
    FROM.store(usize::MAX, Relaxed);
    with(|s| {
        let used = s.arena.frontier();
        let all = LENGTH.load(Relaxed) / PAGE;
        let table = TABLE.load(Relaxed);
        s.arena.close();
        s.opened = used * PAGE;
        LENGTH.store(s.opened, Relaxed);
        // (Beyond what was ever handed out, and beyond what of the table says so.)
        unmap(Span::sized(address(used), (all - used) * PAGE));
        unmap(Span::new(table + table_bytes(used), table + table_bytes(all)));
    });
    tidy();
}

/// Unmaps memory of ours that nobody has. (Where the kernel refuses, it stays as it is and is never used again.)
fn unmap(span: Span) {
    if !span.is_empty() {
        // SAFETY: the caller's promise.
        let _ = unsafe { rustix::mm::munmap(span.start as *mut _, span.len()) };
    }
}

/// A core has neither our table nor what nobody used of the reservation.
pub(crate) fn leave_out_of_dumps() {
    if LENGTH.load(Relaxed) == 0 {
        return;
    }
    let (table, used) = (TABLE.load(Relaxed), with(|s| s.arena.frontier()));
    let all = LENGTH.load(Relaxed) / PAGE;
    let unused = Span::sized(address(used), (all - used) * PAGE);
    crate::pages::leave_out_of_dumps(unused);
    crate::pages::leave_out_of_dumps(Span::sized(table, table_bytes(all)));
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

/// Whether the block at `addr`, which lies in the reservation, is one of ours: as long as it is whole nobody else's can be there.
pub fn holds(addr: usize) -> bool {
    !CLOSED.load(Relaxed) || usable_size(addr).is_ok()
}

/// What of `span` is ours: in the table, and in the reservation, but in no block.
pub(crate) fn ours_in(span: Span) -> Vec<Span> {
    let inside = within_reservation(span);
    let length = LENGTH.load(Relaxed);
    let table = Span::sized(TABLE.load(Relaxed), table_bytes(length / PAGE)).intersect(span);
    let mut ours = Vec::new();
    if !inside.is_empty() && !CLOSED.load(Relaxed) {
        let page = |addr| (addr - address(0)) / PAGE;
        let free = with(|s| s.arena.free_in(Span::new(page(inside.start), page(inside.end))));
        ours.extend(free.into_iter().map(|p| Span::new(address(p.start), address(p.end))));
    }
    if !table.is_empty() {
        ours.push(table);
    }
    ours
}

/// Bytes of the table of so many pages.
const fn table_bytes(pages: usize) -> usize {
    page_up(pages * size_of::<Block>())
}

/// The program changes the mapping of `span`: blocks in it will not be handed out again as they are.
pub fn alter(span: Span) {
    let inside = within_reservation(span);
    if !inside.is_empty() && !CLOSED.load(Relaxed) {
        with(|s| s.altered.insert(inside));
    }
}

fn within_reservation(span: Span) -> Span {
    span.hull().intersect(Span::sized(address(0), LENGTH.load(Relaxed)))
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
    if size > LARGEST.load(Relaxed) {
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

/// What is to be done, without the lock, after a block was ended.
enum Rest {
    Nothing,
    /// [`tidy`] should look.
    Tidy,
    /// The pages, which are on no list, cannot be used again as they are.
    Renew(Span),
}

/// Ends the block at `addr`: its views end, its pages are kept.
///
/// # Errors
/// Where no block begins.
pub fn free(addr: usize) -> Result<(), NoBlock> {
    let page = page_of(addr)?;
    let mut viewed = None;
    let rest = with(|s| {
        let bytes = s.arena.block(page).ok_or(NoBlock)?.reserved as usize * PAGE;
        if space::serving() && space::FILTER.perhaps_tracked(addr, bytes) {
            viewed = Some(bytes);
            return Ok(Rest::Nothing);
        }
        s.free(page)
    })?;
    let rest = match viewed {
        // Its views end before anybody else can be given it, and without our lock.
        Some(bytes) => {
            space::freed(Span::sized(addr, bytes));
            with(|s| s.free(page))?
        }
        None => rest,
    };
    match rest {
        Rest::Nothing => {}
        Rest::Tidy => tidy(),
        Rest::Renew(span) => give_back(span, false),
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
    if size < BLOCK_MIN || size > LARGEST.load(Relaxed) {
        return Ok(false);
    }
    let fits = with(|s| {
        let before = s.arena.block(page).ok_or(NoBlock)?;
        if !s.arena.resize(page, bytes / PAGE)? {
            return Ok(false);
        }
        if !s.open() {
            let _ = s.arena.resize(page, before.used as usize);
            return Ok(false);
        }
        Ok(true)
    });
    if CLOSED.load(Relaxed) {
        tidy();
    }
    fits
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

    fn free(&mut self, page: usize) -> Result<Rest, NoBlock> {
        let pages = self.arena.end(page)?;
        let span = Span::sized(address(page), pages * PAGE);
        if self.altered.count() > 0 && self.altered.touches(span) {
            self.altered.remove(span);
            return Ok(Rest::Renew(span));
        }
        self.arena.keep(page, pages);
        self.freed = self.freed.wrapping_add(1);
        let tidies = self.arena.has_surplus()
            || self.freed.is_multiple_of(TIDY_EVERY)
            || CLOSED.load(Relaxed);
        Ok(if tidies { Rest::Tidy } else { Rest::Nothing })
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

/// Gives pages back to the kernel: what is beyond the cap, and now and then what lies idle; all that is free, once closed.
fn tidy() {
    let closed = CLOSED.load(Relaxed);
    let now = seconds();
    let mut idle = with(|s| {
        if now - s.looked < IDLE_SECONDS {
            return 0;
        }
        s.looked = now;
        s.arena.idle_pages()
    });
    loop {
        let run = with(|s| match idle {
            _ if closed => s.arena.take_free(),
            0 => s.arena.surplus(),
            _ => s.arena.release_one(),
        });
        let Some((page, pages)) = run else { return };
        idle = idle.saturating_sub(pages);
        give_back(Span::sized(address(page), pages * PAGE), true);
    }
}

/// Gives what is behind `span`, which nobody has, to the kernel; `plain`: its mapping is as it was made. It may be handed out
/// again if it reads as zeros; else nobody ever gets it.
fn give_back(span: Span, plain: bool) {
    if space::serving() && space::FILTER.perhaps_tracked(span.start, span.len()) {
        space::relinquish(span);
    }
    let _ = space::dropping(span);
    if CLOSED.load(Relaxed) {
        unmap(span);
    } else if (plain && drop_pages(span)) || renew(span) {
        with(|s| s.arena.gave_back((span.start - address(0)) / PAGE, span.pages()));
    }
}

/// Gives what is behind `span`, which nobody has, to the kernel. Returns whether it is gone: locked memory is not.
fn drop_pages(span: Span) -> bool {
    // SAFETY: pages of ours that are in no block and on no list.
    inject::check(Call::Madvise)
        .and_then(|()| unsafe {
            rustix::mm::madvise(span.start as *mut _, span.len(), Advice::LinuxDontNeed)
        })
        .is_ok()
}

/// Maps `span`, which nobody has, anew: content, locks, protection and advice end. Returns whether that worked.
fn renew(span: Span) -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: pages of ours that are in no block and on no list.
    let mapped = inject::check(Call::Mmap).and_then(|()| unsafe {
        rustix::mm::mmap_anonymous(span.start as *mut _, span.len(), access, flags)
    });
    if mapped.is_ok() {
        space::renewed(span);
    }
    mapped.is_ok()
}
