//! The twin allocator's memory: one reservation of address space, its book, the lock around it.
//!
//! Large blocks have pages of their own, begin on one or a little before it, and are recycled as
//! they are; see [`uncopy_arena`]. The tracker's knowledge of a block ends when it is freed, and
//! its unmapped pages stay unmapped for the next input. Changes that the program made to a block's
//! mapping (locked, protected, advised) end with the block: such pages are mapped anew.
//!
//! unsafe: maps the reservation and its table, opens it for use step by step, and gives pages back
//! to the kernel; all of it address space that nobody else was given.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use uncopy_arena::{Arena, Block, NoBlock, Run, Touched};
use uncopy_counters::add;
use uncopy_inject::Call;
use uncopy_kernel::lock::Lock;
use uncopy_kernel::mapping::{self, BOTH};
use uncopy_kernel::once::OnceInit;
use uncopy_kernel::placement::{self, Place};
use uncopy_kernel::{clock, critical, inject, limits, threads};
use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::span::{PAGE, Span, page_up};
use uncopy_space::space::Space;

/// Address space for each byte of the machine's memory.
const SPACE_PER_MEMORY: usize = 4;
/// Address space at least and at most, in bytes.
const SPACE_MIN: usize = 1 << 30;
const SPACE_MAX: usize = 256 << 30;
/// So much lies unmapped between our book and the first block: nobody's mistake reaches the book.
const GUARD: usize = 1 << 20;
/// The reservation is opened for use in steps of so many bytes.
const STEP: usize = 16 << 20;
/// Blocks of fewer bytes are left to the program's own allocator.
const BLOCK_MIN: usize = 8 << 10;
/// So are blocks of which more than this share would be lost to whole pages.
const WASTE_SHARE: usize = 8;
/// Where near copies are slow, blocks of so many bytes and more that are no whole pages
const LED_MIN: usize = 64 << 10;
/// begin so many bytes before a page: what lies there behind a header of up to 32 bytes is 32 bytes
/// and more away from what the kernel puts first into a page, be that the bytes themselves,
/// received, or a protocol's header that is sent before them.
const LEAD: usize = 64;
/// So are blocks of more than this share of the machine's memory, which is all that extents hold by
/// default: the kernel refuses a mapping that exceeds the memory, but not a part of a reservation.
const BLOCK_SHARE: usize = 8;
/// Pages that are given back at once, at most: on the monitor's thread locks are held meanwhile;
/// and what is too much should be given back, not what lies beside it.
const PART_MAX: usize = (2 << 20) / PAGE;
/// The same, at least: each time costs a call.
const PART_MIN: usize = 64;
/// The clock is looked at once for so many frees.
const TIDY_EVERY: u32 = 64;

struct State {
    arena: Arena,
    opened: usize,
    freed: u32,
    /// Addresses whose mapping the program changed, as far as they are still in that block.
    altered: Ranges,
}

/// The process's part of it: nothing but zeros until [`Twin::init`].
#[derive(Debug, Default)]
pub struct Blocks {
    state: OnceInit<State>,
    lock: Lock,
    /// Where the reservation begins; its length is 0 while there is none.
    base: AtomicUsize,
    length: AtomicUsize,
    /// Where the arena's book begins, and in it the table of blocks.
    book: AtomicUsize,
    table: AtomicUsize,
    /// Smallest block that is taken over, all bits the other way round: none is at first.
    from: AtomicUsize,
    /// Largest block.
    largest: AtomicUsize,
    /// See [`Twin::close`].
    closed: AtomicBool,
    /// Whether blocks begin [`LEAD`] bytes before a page.
    leads: AtomicBool,
}

impl Blocks {
    /// Where in it the words lie that [`Twin::owns`] and [`Twin::wants`] compare with, for the
    /// entry points of allocation.
    pub const BASE: usize = core::mem::offset_of!(Self, base);
    /// See [`Blocks::BASE`].
    pub const LENGTH: usize = core::mem::offset_of!(Self, length);
    /// See [`Blocks::BASE`]; all bits the other way round.
    pub const FROM: usize = core::mem::offset_of!(Self, from);

    /// No reservation.
    pub const fn new() -> Self {
        Self {
            state: OnceInit::new(),
            lock: Lock::new(),
            base: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            book: AtomicUsize::new(0),
            table: AtomicUsize::new(0),
            from: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            leads: AtomicBool::new(false),
        }
    }
}

/// The twin allocator: its blocks, and the books of what lies in them.
#[derive(Clone, Copy, Debug)]
pub struct Twin {
    blocks: &'static Blocks,
    space: &'static Space,
}

impl Twin {
    /// That of these.
    #[inline(always)]
    pub fn of(blocks: &'static Blocks, space: &'static Space) -> Self {
        Self { blocks, space }
    }
}

impl Twin {
    /// Reserves address space. Where that would count (RLIMIT_AS, RLIMIT_DATA, strict overcommit)
    /// the program's own allocator serves everything, as before. `leads`: near copies are slow
    /// here, so blocks that have fringes anyway begin a little before a page. Called once, before
    /// the program has threads.
    pub fn init(self, leads: bool) -> bool {
        if limits::reserving_counts() {
            return false;
        }
        let memory = rustix::system::sysinfo().totalram as usize;
        let bytes = (memory * SPACE_PER_MEMORY).clamp(SPACE_MIN, SPACE_MAX) / PAGE * PAGE;
        let pages = bytes / PAGE;
        let hint = placement::hint(Place::Blocks);
        let Ok(book) = mapping::reserve(hint, book_bytes(pages), BOTH) else { return false };
        let behind = hint + book_bytes(pages) + GUARD;
        let Ok(base) = mapping::reserve(behind, bytes, ProtFlags::empty()) else {
            unmap(Span::sized(book, book_bytes(pages)));
            return false;
        };
        let table = book + touched_bytes(pages);
        let touched = book as *mut u64;
        // SAFETY: fresh zero pages, page-aligned, never unmapped.
        let touched = unsafe { core::slice::from_raw_parts_mut(touched, Touched::words(pages)) };
        // SAFETY: the same, behind these; zeros are a valid `Block`. ([`Twin::close`] unmaps what
        // nobody uses from then on.)
        let blocks = unsafe { core::slice::from_raw_parts_mut(table as *mut Block, pages) };
        // SAFETY: nobody else is here yet.
        unsafe {
            self.blocks.state.make(State {
                arena: Arena::new(blocks, Touched::new(touched)),
                opened: 0,
                freed: 0,
                altered: Ranges::new(),
            });
        }
        self.blocks.book.store(book, Relaxed);
        self.blocks.table.store(table, Relaxed);
        self.blocks.base.store(base, Relaxed);
        self.blocks.length.store(bytes, Relaxed);
        self.blocks.largest.store(memory / BLOCK_SHARE, Relaxed);
        self.blocks.leads.store(leads, Relaxed);
        self.blocks.from.store(!BLOCK_MIN, Relaxed);
        true
    }

    /// Before the program locks all its memory, or limits its address space: from now on its own
    /// allocator serves it, and what is free here, now or later, goes away as that does. Other
    /// mappings may come to lie in the gaps: see [`Twin::holds`].
    pub fn close(self) {
        if self.blocks.length.load(Relaxed) == 0 || self.blocks.closed.swap(true, Relaxed) {
            return;
        }
        self.blocks.from.store(0, Relaxed);
        self.with(|s| {
            let used = s.arena.frontier();
            let all = self.blocks.length.load(Relaxed) / PAGE;
            let table = self.blocks.table.load(Relaxed);
            s.arena.close();
            s.opened = used * PAGE;
            self.blocks.length.store(s.opened, Relaxed);
            // (Beyond what was ever handed out, and beyond what of the table says so.)
            unmap(Span::sized(self.address(used), (all - used) * PAGE));
            unmap(Span::new(table + table_bytes(used), table + table_bytes(all)));
        });
        self.tidy();
    }

    /// A core has neither our table nor what nobody used of the reservation.
    pub fn leave_out_of_dumps(self) {
        if self.blocks.length.load(Relaxed) == 0 {
            return;
        }
        let (book, used) = (self.blocks.book.load(Relaxed), self.with(|s| s.arena.frontier()));
        let all = self.blocks.length.load(Relaxed) / PAGE;
        let unused = Span::sized(self.address(used), (all - used) * PAGE);
        mapping::leave_out_of_dumps(unused);
        mapping::leave_out_of_dumps(Span::sized(book, book_bytes(all)));
    }

    /// Whether a block of `size` bytes may be taken over.
    #[inline(always)]
    pub fn wants(self, size: usize) -> bool {
        size >= !self.blocks.from.load(Relaxed)
    }

    /// Whether `addr` lies in the reservation.
    #[inline(always)]
    pub fn owns(self, addr: usize) -> bool {
        addr.wrapping_sub(self.blocks.base.load(Relaxed)) < self.blocks.length.load(Relaxed)
    }

    /// Whether the block at `addr`, which lies in the reservation, is one of ours: as long as it is
    /// whole nobody else's can be there.
    #[inline(always)]
    pub fn holds(self, addr: usize) -> bool {
        !self.blocks.closed.load(Relaxed) || self.holds_since_closed(addr)
    }

    #[cold]
    #[inline(never)]
    fn holds_since_closed(self, addr: usize) -> bool {
        self.usable_size(addr).is_ok()
    }

    /// The parts of `span` that are ours: in the book, and in the reservation, but in no block.
    pub fn ours_in(self, span: Span) -> Vec<Span> {
        let inside = self.within_reservation(span);
        let length = self.blocks.length.load(Relaxed);
        let (book, table) = (self.blocks.book.load(Relaxed), self.blocks.table.load(Relaxed));
        let book = Span::new(book, table + table_bytes(length / PAGE)).intersect(span);
        let mut ours = Vec::new();
        if !inside.is_empty() && !self.blocks.closed.load(Relaxed) {
            let page = |addr| (addr - self.address(0)) / PAGE;
            let free =
                self.with(|s| s.arena.free_in(Span::new(page(inside.start), page(inside.end))));
            ours.extend(
                free.into_iter().map(|p| Span::new(self.address(p.start), self.address(p.end))),
            );
        }
        if !book.is_empty() {
            ours.push(book);
        }
        ours
    }

    /// The program changes the mapping of `span`: blocks in it will not be handed out again as they
    /// are.
    pub fn alter(self, span: Span) {
        let inside = self.within_reservation(span);
        if !inside.is_empty() && !self.blocks.closed.load(Relaxed) {
            self.with(|s| s.altered.insert(inside));
        }
    }

    fn within_reservation(self, span: Span) -> Span {
        span.covering_pages()
            .intersect(Span::sized(self.address(0), self.blocks.length.load(Relaxed)))
    }

    /// A block of `size` bytes. `None`: the program's own allocator should serve it.
    pub fn allocate(self, size: usize) -> Option<Given> {
        self.hand_out(size, self.lead(size), Arena::allocate)
    }

    /// One that begins at a multiple of `align` bytes, a page's at most.
    pub fn allocate_aligned(self, size: usize, align: usize) -> Option<Given> {
        let lead = if align <= LEAD { self.lead(size) } else { 0 };
        self.hand_out(size, lead, Arena::allocate)
    }

    /// How far into its first page a block of `size` bytes begins. (One of whole pages has no
    /// fringes; it stays so.)
    fn lead(self, size: usize) -> usize {
        let leads = self.blocks.leads.load(Relaxed);
        if leads && size >= LED_MIN && !size.is_multiple_of(PAGE) { PAGE - LEAD } else { 0 }
    }

    /// A block that has grown to `size` bytes, with address space to grow further: out of the one
    /// at `from`, which is to be freed, if that lay here. `None`: the program's own allocator
    /// should serve it.
    pub fn allocate_grown(self, size: usize, from: usize) -> Option<Given> {
        let from = self.page_of(from).ok().filter(|_| self.owns(from));
        self.hand_out(size, self.lead(size), |arena, pages| arena.allocate_grown(pages, from))
    }

    fn hand_out(
        self,
        size: usize,
        lead: usize,
        take: impl FnOnce(&mut Arena, usize) -> Option<Run>,
    ) -> Option<Given> {
        if size > self.blocks.largest.load(Relaxed) || self.space.tight() {
            return None;
        }
        let bytes = page_up(lead + size);
        if bytes - size > size / WASTE_SHARE {
            return None;
        }
        let pages = bytes / PAGE;
        let missing = self.space.counters().missing_bytes.load(Relaxed) as usize / PAGE;
        let run = self.with(|s| {
            s.arena.missing(missing);
            let run = take(&mut s.arena, pages)?;
            if !self.open(s) {
                let _ = s.arena.free(run.page);
                return None;
            }
            Some(run)
        })?;
        add(&self.space.counters().twin_blocks, 1);
        // (Where a block gets new memory, what is kept is of no use just now.)
        if run.gained > 0 && self.space.over() > 0 {
            self.tidy();
        }
        Some(Given { addr: self.address(run.page) + lead, zeros: run.fresh })
    }

    /// Bytes that the program may use of the block at `addr`.
    ///
    /// # Errors
    /// Where no block begins.
    pub fn usable_size(self, addr: usize) -> Result<usize, NoBlock> {
        let page = self.page_of(addr)?;
        let lead = addr % PAGE;
        self.with(|s| s.arena.block(page)).map(|b| b.used as usize * PAGE - lead).ok_or(NoBlock)
    }

    /// Ends the block at `addr`: its views end, its pages are kept.
    ///
    /// # Errors
    /// Where no block begins.
    pub fn free(self, addr: usize) -> Result<(), NoBlock> {
        let page = self.page_of(addr)?;
        let mut viewed = None;
        let rest = self.with(|s| {
            let bytes = s.arena.block(page).ok_or(NoBlock)?.reserved as usize * PAGE;
            let span = Span::sized(self.address(page), bytes);
            if self.space.serving() && self.space.filter.perhaps_tracked(span.start, bytes) {
                viewed = Some(span);
                return Ok(Rest::Nothing);
            }
            self.end(s, page, Arena::keep)
        })?;
        let rest = match viewed {
            // Its views end before anybody else can be given it, and without our lock. (Its pages
            // stay together: that they are registered is what makes the next message cheap.)
            Some(span) => {
                self.space.freed(span);
                self.with(|s| self.end(s, page, Arena::keep_apart))?
            }
            None => rest,
        };
        match rest {
            Rest::Nothing => {}
            Rest::Tidy => self.tidy(),
            Rest::Renew(span) => self.purge(span, false),
        }
        Ok(())
    }

    /// Makes the block at `addr` `size` bytes long where it lies; false if it cannot grow there, or
    /// would waste too much.
    ///
    /// # Errors
    /// Where no block begins.
    pub fn resize(self, addr: usize, size: usize) -> Result<bool, NoBlock> {
        let page = self.page_of(addr)?;
        let bytes = page_up(addr % PAGE + size);
        if size < BLOCK_MIN || size > self.blocks.largest.load(Relaxed) {
            return Ok(false);
        }
        let pages = bytes / PAGE;
        let mut rest = None;
        let fits = self.with(|s| {
            let block = s.arena.block(page).ok_or(NoBlock)?;
            let (reserved, used) = (block.reserved as usize, block.used as usize);
            if pages < used && !s.arena.stays_whole(page, pages) {
                let more = self.span(page + pages, reserved - pages);
                // (What the program mapped otherwise ends with the block.)
                rest = Some(more).filter(|_| s.altered.count() == 0 || !s.altered.touches(more));
                return Ok(true);
            }
            if !s.arena.resize(page, pages)? {
                return Ok(false);
            }
            if !self.open(s) {
                let _ = s.arena.resize(page, used);
                return Ok(false);
            }
            Ok(true)
        });
        if let Some(rest) = rest {
            self.shrink(page, pages, rest)?;
        }
        if self.blocks.closed.load(Relaxed) {
            self.tidy();
        }
        fits
    }

    /// Leaves `rest` to others, which is the block at `page` beyond `pages` pages.
    fn shrink(self, page: usize, pages: usize, rest: Span) -> Result<(), NoBlock> {
        // (Its views end before anybody else can be given it, and without our lock.)
        if self.space.serving() && self.space.filter.perhaps_tracked(rest.start, rest.len()) {
            self.space.freed(rest);
        }
        self.with(|s| s.arena.resize(page, pages)).map(|_| ())
    }

    /// Before fork: nobody changes the book.
    pub fn before_fork(self) {
        self.blocks.lock.lock();
    }

    /// After fork, in the parent.
    pub fn after_fork_parent(self) {
        self.blocks.lock.unlock();
    }

    /// After fork, in the child.
    pub fn after_fork_child(self) {
        self.blocks.lock.reset();
    }

    /// Notes how much there is.
    fn gauges(self, state: &State) {
        let c = self.space.counters();
        self.space.promises((state.arena.promised_pages() * PAGE) as u64);
        c.twin_touched_bytes.store((state.arena.touched_pages() * PAGE) as u64, Relaxed);
        c.twin_live_bytes.store((state.arena.live_pages() * PAGE) as u64, Relaxed);
        c.twin_kept_bytes.store((state.arena.kept_pages() * PAGE) as u64, Relaxed);
        c.twin_slack_bytes.store((state.arena.slack_pages() * PAGE) as u64, Relaxed);
    }

    /// Ends the block that begins at `page`, with the lock held; `keep` has its pages.
    fn end(
        self,
        state: &mut State,
        page: usize,
        keep: fn(&mut Arena, usize, usize),
    ) -> Result<Rest, NoBlock> {
        let pages = state.arena.end(page)?;
        let span = Span::sized(self.address(page), pages * PAGE);
        if state.altered.count() > 0 && state.altered.touches(span) {
            state.altered.remove(span);
            return Ok(Rest::Renew(span));
        }
        keep(&mut state.arena, page, pages);
        state.freed = state.freed.wrapping_add(1);
        // (The counters learn of this block with the next one.)
        let tidies = state.arena.has_surplus()
            || self.space.over() > 0
            || state.freed.is_multiple_of(TIDY_EVERY)
            || self.blocks.closed.load(Relaxed);
        Ok(if tidies { Rest::Tidy } else { Rest::Nothing })
    }

    /// Opens the reservation for use up to the book's frontier, with the lock held.
    fn open(self, state: &mut State) -> bool {
        let needed = state.arena.frontier() * PAGE;
        if needed <= state.opened {
            return true;
        }
        let end = needed.next_multiple_of(STEP).min(self.blocks.length.load(Relaxed));
        let start = self.blocks.base.load(Relaxed) + state.opened;
        let all = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: a part of our reservation that was not handed out yet.
        let opened = unsafe { rustix::mm::mprotect(start as *mut _, end - state.opened, all) };
        if opened.is_ok() {
            state.opened = end;
        }
        opened.is_ok()
    }

    fn address(self, page: usize) -> usize {
        self.blocks.base.load(Relaxed) + page * PAGE
    }

    fn page_of(self, addr: usize) -> Result<usize, NoBlock> {
        let offset = addr.wrapping_sub(self.blocks.base.load(Relaxed));
        let leads = offset % PAGE == PAGE - LEAD && self.blocks.leads.load(Relaxed);
        if leads || offset.is_multiple_of(PAGE) { Ok(offset / PAGE) } else { Err(NoBlock) }
    }

    fn with<R>(self, f: impl FnOnce(&mut State) -> R) -> R {
        // A handler that forks must not find its own thread holding the lock.
        self.space.own.detect_unknown_fork();
        critical::within(|| {
            // (`f` starts no thread, and nothing else runs on this one before it ends.)
            let alone = threads::single() && !self.space.visited();
            self.blocks.lock.lock_unless(alone);
            // SAFETY: the lock is held; `f` does not come back here. A caller has an address in the
            // reservation, or a block large enough: both only after `init`.
            let state = unsafe { self.blocks.state.get() };
            let state = state.expect("init makes it before there is an address in it");
            let result = f(state);
            self.gauges(state);
            self.blocks.lock.unlock_unless(alone);
            result
        })
    }

    /// Gives pages back to the kernel: what is beyond the cap, and now and then what lies idle; all
    /// that is free, once closed.
    fn tidy(self) {
        let closed = self.blocks.closed.load(Relaxed);
        let now = clock::seconds();
        let mut idle = self.with(|s| s.arena.idle_pages(now, usize::MAX));
        if self.space.over() > 0 {
            self.space.read_limits();
        }
        self.space.looks(now);
        if self.space.serving() {
            self.space.with(|b| {
                b.drop_idle(now);
                b.give_back();
            });
        }
        loop {
            let run = self.with(|s| match idle {
                _ if closed => {
                    s.arena.merge();
                    s.arena.take_free()
                }
                0 => s.arena.surplus(),
                _ => s.arena.release_last(idle),
            });
            let Some((page, pages)) = run else { break };
            idle = idle.saturating_sub(pages);
            self.purge(self.span(page, pages), true);
        }
        if !closed {
            self.give_back();
        }
    }

    /// Gives back what is held beyond what may be.
    fn give_back(self) {
        // (To keep registered what is, is what makes the next message cheap.)
        self.give_back_suiting(|span| self.space.surely_plain(span));
        self.give_back_suiting(|span| !self.space.mostly_missing(span));
        if self.space.over() > 0 {
            self.with(|s| s.arena.merge());
            self.give_back_suiting(|span| !self.space.mostly_missing(span));
        }
        if self.space.over() > 0 {
            self.space.nothing_given_back();
        }
    }

    /// The same, from the last free pages on, as far as `suits` says yes to them.
    fn give_back_suiting(self, suits: impl Fn(Span) -> bool) {
        let mut end = usize::MAX;
        while let over @ 1.. = self.space.over()
            && let Some((page, pages)) = self.with(|s| s.arena.kept_before(end, part(over)))
        {
            end = page;
            // (They may be another's meanwhile.)
            if suits(self.span(page, pages)) && self.with(|s| s.arena.release(page, pages)) {
                self.space.gave_back();
                self.purge(self.span(page, pages), true);
            }
        }
    }

    /// Gives back a part of what lies idle, or is held beyond what may be, on the monitor's thread:
    /// it is `now`, in seconds, and `drop` drops pages that nobody has, or refuses. Returns whether
    /// something was given back. Does nothing where the program is in here at this moment.
    pub fn tend(self, now: i64, drop: &mut dyn FnMut(Span) -> bool) -> bool {
        let none = self.blocks.length.load(Relaxed) == 0 || self.blocks.closed.load(Relaxed);
        if none || !self.blocks.lock.try_lock() {
            return false;
        }
        // SAFETY: the lock is held; it was made before there was a monitor.
        let state = unsafe { self.blocks.state.get() };
        let gave = state.is_some_and(|state| self.tend_with(state, now, drop));
        self.blocks.lock.unlock();
        gave
    }

    fn tend_with(self, state: &mut State, now: i64, drop: &mut dyn FnMut(Span) -> bool) -> bool {
        // (What lies idle counts as given back: no more than can be at once.)
        let last = state.arena.kept_before(usize::MAX, PART_MAX);
        let idle = state.arena.idle_pages(now, last.map_or(PART_MAX, |(_, pages)| pages));
        let most = self.space.over().max(idle * PAGE);
        if most == 0 {
            return false;
        }
        if self.tend_listed(state, most, drop) {
            return true;
        }
        state.arena.merge();
        self.tend_listed(state, most, drop)
    }

    /// The same for about `most` bytes of what is not kept apart.
    fn tend_listed(
        self,
        state: &mut State,
        most: usize,
        drop: &mut dyn FnMut(Span) -> bool,
    ) -> bool {
        let mut end = usize::MAX;
        while let Some((page, pages)) = state.arena.kept_before(end, part(most)) {
            end = page;
            // (Nobody takes what is refused meanwhile: it stays where it is.)
            if drop(self.span(page, pages)) && state.arena.release(page, pages) {
                state.arena.purged(page, pages);
                self.gauges(state);
                return true;
            }
        }
        false
    }

    fn span(self, page: usize, pages: usize) -> Span {
        Span::sized(self.address(page), pages * PAGE)
    }

    /// Purges `span`, which nobody has; `plain`: its mapping is as it was made. It may be handed
    /// out again if it reads as zeros; else nobody ever gets it.
    fn purge(self, span: Span, plain: bool) {
        if self.space.serving() && self.space.filter.perhaps_tracked(span.start, span.len()) {
            self.space.untrack(span);
        }
        let _ = self.space.dropping(span);
        if self.blocks.closed.load(Relaxed) {
            unmap(span);
        // SAFETY: pages of ours that are in no block and on no list. (Locked ones are not gone.)
        } else if (plain && unsafe { mapping::empty(span) }) || self.renew(span) {
            self.with(|s| s.arena.purged((span.start - self.address(0)) / PAGE, span.pages()));
        }
    }

    /// Maps `span`, which nobody has, anew: content, locks, protection and advice end. Returns
    /// whether that worked.
    fn renew(self, span: Span) -> bool {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: pages of ours that are in no block and on no list.
        let mapped = inject::check(Call::Mmap).and_then(|()| unsafe {
            rustix::mm::mmap_anonymous(span.start as *mut _, span.len(), access, flags)
        });
        if mapped.is_ok() {
            self.space.renewed(span);
        }
        mapped.is_ok()
    }
}

/// How many pages are given back at once where so many bytes are too much.
fn part(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).clamp(PART_MIN, PART_MAX)
}

/// Unmaps memory of ours that nobody has. (Where the kernel refuses, it stays as it is and is never
/// used again.)
fn unmap(span: Span) {
    if !span.is_empty() {
        // SAFETY: the caller's promise.
        let _ = unsafe { rustix::mm::munmap(span.start as *mut _, span.len()) };
    }
}

/// Bytes of the table of so many pages.
const fn table_bytes(pages: usize) -> usize {
    page_up(pages * size_of::<Block>())
}

/// Bytes of what says which of so many pages have memory.
const fn touched_bytes(pages: usize) -> usize {
    page_up(Touched::words(pages) * size_of::<u64>())
}

/// Bytes of the whole book of so many pages.
const fn book_bytes(pages: usize) -> usize {
    touched_bytes(pages) + table_bytes(pages)
}

/// Memory that a block was given, for [`Twin::allocate`]'s caller.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Its address: a page's, or a little before one.
    pub addr: usize,
    /// Whether all of it reads as zeros.
    pub zeros: bool,
}

/// The rest that is to be done, without the lock, after a block was ended.
enum Rest {
    Nothing,
    /// [`tidy`] should look.
    Tidy,
    /// The pages, which are on no list, cannot be used again as they are.
    Renew(Span),
}
