//! The tracker's [`Memory`], over two userfaultfds: one for the program's pages, with reports of
//! changes to the memory map, and one for the pool, without (nobody else maps there).
//!
//! unsafe: reserves the pool and composes pages in a staging buffer; both are this module's own
//! mappings, reached only through addresses that it handed out.

use crate::held::holding;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use rustix::io::Errno;
use rustix::mm::{Advice, MprotectFlags, mprotect};
use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_core::tracker::PoolShape;
use uncopy_counters::{Counters, add};
use uncopy_decide::Refusal;
use uncopy_inject::Call;
use uncopy_kernel::mapping::{self, BOTH, leave_out_of_dumps};
use uncopy_kernel::placement::{self, Place};
use uncopy_kernel::uffd::{Fds, Uffd};
use uncopy_kernel::{inject, limits};
use uncopy_ranges::allowance::Allowance;
use uncopy_ranges::span::{PAGE, Span};

/// Pages that are composed at once.
const STAGING_PAGES: usize = 64;
/// Smallest pool worth having, in pages.
const POOL_MIN: usize = (8 << 20) / PAGE;
/// A program whose address space is limited must not miss what the pool takes: at most this part
/// of the limit.
const POOL_OF_LIMIT: usize = 32;
/// Pages that are made mappings of their own to see whether there may be more. `mremap` refuses
/// when less than seven are left
/// (mm/mremap.c); each of these makes two.
const SPLITS: usize = 4;
/// How often a contended move is tried again before it counts as refused.
const MOVE_TRIES: usize = 4;
/// The same for waking, where nobody looks again.
pub(crate) const WAKE_TRIES: usize = 100;

/// Copies bytes; set to libc's own routine by the preload library, because the symbol `memcpy`
/// is the library's.
pub type CopyBytes = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;

/// Pages of the program and of the pool.
#[derive(Debug)]
pub struct Pages {
    /// The userfaultfds, as the caller's descriptor table has them; none once they are lost.
    pub fds: Option<Fds>,
    base: usize,
    shape: PoolShape,
    staging: usize,
    /// Behind the pool.
    wake_page: usize,
    /// One page of the staging buffer, for pages that must be moved in.
    spare: usize,
    means: Means,
}

/// The pool's addresses, as long as all of it is ours, for looks without the lock.
#[derive(Debug)]
pub(crate) struct PoolAddresses([AtomicUsize; 2]);

impl PoolAddresses {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; 2])
    }

    fn set(&self, span: Span) {
        self.0[0].store(span.start, Relaxed);
        self.0[1].store(span.end, Relaxed);
    }

    /// It is not whole any more.
    fn forget(&self) {
        self.0[1].store(0, Relaxed);
    }

    /// The part of `span` that is the pool's.
    pub(crate) fn within(&self, span: Span) -> Span {
        Span::new(self.0[0].load(Relaxed), self.0[1].load(Relaxed)).intersect(span)
    }
}

/// The means that a pool is made with.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Copies bytes without being intercepted.
    pub copy_bytes: CopyBytes,
    /// Whether there is no memory left for the books.
    pub books_short: fn() -> bool,
    /// Refusals are counted there.
    pub counters: &'static Counters,
    /// Tells where the pool is.
    pub(crate) addresses: &'static PoolAddresses,
    /// How much may be held.
    pub(crate) allowance: &'static Allowance,
    /// Whether pages that are moved out may be the kernel's to take.
    pub(crate) lazily_freed: &'static AtomicBool,
}

impl Means {
    /// Counts that the kernel refused, and says as what.
    fn refused(&self, why: Errno) -> Refusal {
        let c = self.counters;
        let (why, counter) = match why {
            Errno::BUSY => (Refusal::Busy, &c.refused_busy),
            Errno::AGAIN => (Refusal::Again, &c.refused_again),
            Errno::NOMEM => (Refusal::NoMemory, &c.refused_no_memory),
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => {
                (Refusal::Permission, &c.refused_permission)
            }
            Errno::INVAL | Errno::NOENT | Errno::FAULT => {
                (Refusal::Unsuitable, &c.refused_unsuitable)
            }
            _ => (Refusal::Other, &c.refused_other),
        };
        add(counter, 1);
        why
    }
}

/// Unmaps pages of ours that nothing refers to; returns whether that worked.
fn unmap(start: usize, pages: usize) -> bool {
    // SAFETY: our own mapping; the callers say that nothing refers to it.
    unsafe { mapping::unmap(Span::sized(start, pages * PAGE)) }
}

impl Pages {
    /// Reserves a pool with room for about `bytes` of extents (less, where the address space is
    /// limited) and registers its move targets.
    ///
    /// # Errors
    /// When not even a small pool can be had.
    pub fn new(fds: Fds, bytes: usize, means: Means) -> Result<Self, Errno> {
        // (Under strict overcommit all of it counts, in each process.)
        let limit = match limits::address_space() {
            _ if limits::strict_overcommit() => 0,
            limit => limit.map_or(usize::MAX, |l| l / POOL_OF_LIMIT),
        };
        // Behind the pool: the page to wake by, the staging buffer, the spare page, and those to be
        // split (see `mappings_used_up`).
        const BEHIND: usize = 1 + STAGING_PAGES + 1 + 2 * SPLITS;
        let mut half = (bytes.min(limit / 2) / PAGE).max(POOL_MIN);
        let base = loop {
            match mapping::reserve(placement::hint(Place::Pool), (2 * half + BEHIND) * PAGE, BOTH) {
                Ok(base) => break base,
                Err(_) if half > POOL_MIN => half = (half / 2).max(POOL_MIN),
                Err(e) => return Err(e),
            }
        };
        let wake_page = base + 2 * half * PAGE;
        let staging = wake_page + PAGE;
        // SAFETY: our own mapping; the advice only keeps huge pages away, which moves would split.
        unsafe {
            let _ = inject::check(Call::Madvise).and_then(|()| {
                rustix::mm::madvise(base as *mut _, 2 * half * PAGE, Advice::LinuxNoHugepage)
            });
        }
        leave_out_of_dumps(Span::sized(base, (2 * half + 1) * PAGE));
        leave_out_of_dumps(Span::sized(staging, (STAGING_PAGES + 1) * PAGE));
        let mut pages = Self {
            fds: Some(fds),
            base,
            shape: PoolShape { boundary: half, pages: 2 * half },
            staging,
            wake_page,
            spare: staging + STAGING_PAGES * PAGE,
            means,
        };
        if let Err(e) = pages.register_pool() {
            pages.abandon_pool();
            unmap(wake_page, BEHIND);
            return Err(e);
        }
        means.addresses.set(Span::sized(base, (2 * half + BEHIND) * PAGE));
        Ok(pages)
    }

    /// Registers the move targets with the pool's userfaultfd (again, after fork), and the page
    /// that wakes the monitor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn register_pool(&self) -> Result<(), Errno> {
        let pool = &self.fds.as_ref().ok_or(Errno::BADF)?.pool;
        if self.shape.boundary > 0 {
            pool.register(self.move_targets())?;
        }
        pool.register(Span::sized(self.wake_page, PAGE))
    }

    /// A page whose first touch wakes the monitor.
    pub fn wake_page(&self) -> usize {
        self.wake_page
    }

    /// Whether `addr` is the pool's.
    pub fn is_pool(&self, addr: usize) -> bool {
        self.pool_span().contains(addr) || Span::sized(self.wake_page, PAGE).contains(addr)
    }

    /// Unmaps the pool, for good: no extent may be left, and none be made.
    pub fn abandon_pool(&mut self) {
        if !unmap(self.base, self.shape.pages) {
            // (`mlockall` would fill it.)
            let len = self.shape.pages * PAGE;
            // SAFETY: our own mapping, which nothing refers to.
            let _ = unsafe { mprotect(self.base as *mut _, len, MprotectFlags::empty()) };
        }
        self.shape = PoolShape { boundary: 0, pages: 0 };
        self.means.addresses.forget();
    }

    /// Unmaps pages of the pool, for good: no extent may have them, or be given them. Nothing is
    /// moved to the pool any more.
    pub fn abandon_slots(&mut self, page: usize, pages: usize) {
        unmap(self.slot(page), pages);
        self.shape.boundary = 0;
        self.means.addresses.forget();
    }

    /// The part of the pool that moves may fill.
    pub fn move_targets(&self) -> Span {
        Span::sized(self.base, self.shape.boundary * PAGE)
    }

    /// Whether this process can have no more mappings (`vm.max_map_count`), or so few that `mremap`
    /// is refused.
    pub fn mappings_used_up(&self) -> bool {
        let probe = |i, access| {
            // SAFETY: every second page behind the spare one, which nobody uses.
            unsafe { mprotect((self.spare + PAGE + 2 * i * PAGE) as *mut _, PAGE, access) }
        };
        let used_up = (0..SPLITS).any(|i| probe(i, MprotectFlags::READ) == Err(Errno::NOMEM));
        for i in 0..SPLITS {
            let _ = probe(i, MprotectFlags::READ | MprotectFlags::WRITE);
        }
        used_up
    }

    /// The pool's page numbers.
    pub fn shape(&self) -> PoolShape {
        self.shape
    }

    fn slot(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    /// Puts a zero page at `addr` (of the program or of the pool) if nothing is there; wakes who
    /// waits. Returns false if it must be tried again.
    pub fn provide_zero(&self, addr: usize) -> bool {
        let Some(fds) = self.fds.as_ref() else { return false };
        let page = Span::sized(addr & !(PAGE - 1), PAGE);
        let uffd = if self.is_pool(addr) { &fds.pool } else { &fds.program };
        match uffd.zero(page).1 {
            None => true,
            Some(Errno::AGAIN | Errno::NOMEM) => {
                add(&self.means.counters.delayed_fills, 1);
                false
            }
            Some(Errno::PERM | Errno::NOSYS) => {
                // SAFETY: the spare page, which only this (locked) code uses.
                unsafe { core::ptr::write_bytes(self.spare as *mut u8, 0, PAGE) };
                match self.fill_otherwise(uffd, page.start) {
                    Ok(()) => true,
                    Err(FillError::Again) => false,
                    // Not registered any more, most likely: threads that wait there fault again, or
                    // not.
                    Err(FillError::Refused) => uffd.wake(page),
                }
            }
            // Already there, or not mapped any more.
            Some(_) => uffd.wake(page),
        }
    }

    /// Fills from consecutive bytes at `src`. One call of the kernel's must stay inside one
    /// mapping, whose ends we do not know: where it refuses, half as much is tried.
    fn fill_from(&self, dst: Span, src: usize) -> (usize, Result<(), FillError>) {
        let Some(fds) = self.fds.as_ref() else { return (0, Err(FillError::Refused)) };
        let uffd = &fds.program;
        let mut at = dst.start;
        let mut step = dst.len();
        while at < dst.end {
            let part = Span::sized(at, step.min(dst.end - at));
            let (done, error) = uffd.copy(part, src + (at - dst.start));
            at += done;
            let result = match error {
                None => Ok(()),
                // Already there: nothing to do, nobody must wait.
                Some(Errno::EXIST) => woken(uffd, &mut at),
                Some(Errno::AGAIN) if done > 0 => Ok(()),
                // Out of memory: threads that wait must go on waiting until there is some.
                Some(Errno::AGAIN | Errno::NOMEM) => Err(FillError::Again),
                Some(Errno::NOENT | Errno::INVAL | Errno::FAULT) if part.len() > PAGE => {
                    step = half(part.len());
                    Ok(())
                }
                // It is being moved elsewhere: with its view, once that is reported.
                Some(Errno::NOENT) if uffd.map_changing() == Some(true) => Err(FillError::Again),
                // Unmapped meanwhile: nobody can be waiting for it.
                Some(Errno::NOENT | Errno::INVAL | Errno::FAULT | Errno::SRCH) => {
                    woken(uffd, &mut at)
                }
                Some(why @ (Errno::PERM | Errno::NOSYS)) => {
                    self.means.refused(why);
                    // SAFETY: from the pool or the staging buffer into its spare page, which only
                    // this (locked) code uses.
                    unsafe {
                        let from = (src + (at - dst.start)) as *const u8;
                        (self.means.copy_bytes)(self.spare as *mut u8, from, PAGE);
                    }
                    let filled = self.fill_otherwise(uffd, at);
                    at += if filled.is_ok() { PAGE } else { 0 };
                    filled
                }
                Some(why) => {
                    self.means.refused(why);
                    Err(FillError::Refused)
                }
            };
            if let Err(why) = result {
                add(&self.means.counters.delayed_fills, 1);
                return (at - dst.start, Err(why));
            }
        }
        (dst.len(), Ok(()))
    }

    /// Where a sandbox forbids the usual call: moves the spare page in.
    #[cold]
    fn fill_otherwise(&self, uffd: &Uffd, page: usize) -> Result<(), FillError> {
        match uffd.move_in(page, Span::sized(self.spare, PAGE)).1 {
            None => {
                add(&self.means.counters.moved_fills, 1);
                Ok(())
            }
            Some(Errno::EXIST) => {
                let _ = (0..WAKE_TRIES).any(|_| uffd.wake(Span::sized(page, PAGE)));
                Ok(())
            }
            Some(Errno::AGAIN | Errno::NOMEM | Errno::BUSY) => Err(FillError::Again),
            // (An unmapped page answers so too; its report will end its views.)
            Some(why) => {
                self.means.refused(why);
                Err(FillError::Refused)
            }
        }
    }

    fn take_out(&self, from: Span, slot: usize, holes_allowed: bool) -> Taken {
        let mut done = 0;
        let mut tries = 0;
        let mut step = from.len();
        loop {
            let rest = Span::new(from.start + done, from.end);
            if rest.is_empty() {
                return Taken { pages: done / PAGE, stop: Stop::Done };
            }
            let part = Span::sized(rest.start, step.min(rest.len()));
            let (moved, error) = match self.fds.as_ref() {
                Some(fds) => fds.pool.move_pages(self.slot(slot) + done, part, holes_allowed),
                None => (0, Some(Errno::BADF)),
            };
            done += moved;
            let stop = match error {
                None => continue,
                Some(Errno::AGAIN) if moved > 0 || tries < MOVE_TRIES => {
                    tries += usize::from(moved == 0);
                    continue;
                }
                // One call of the kernel's must stay inside one mapping.
                Some(Errno::INVAL) if part.len() > PAGE => {
                    step = half(part.len());
                    continue;
                }
                Some(Errno::NOENT) if !holes_allowed => Stop::Hole,
                Some(why) => Stop::Refused(self.means.refused(why)),
            };
            return Taken { pages: done / PAGE, stop };
        }
    }
}

/// The page at `at` needs nothing: goes on behind it. (It counts as done also where waking failed:
/// it is there, and the program may write to it.)
fn woken(uffd: &Uffd, at: &mut usize) -> Result<(), FillError> {
    let page = Span::sized(*at, PAGE);
    *at += PAGE;
    if uffd.wake(page) { Ok(()) } else { Err(FillError::Again) }
}

/// Half of `bytes`, in whole pages, at least one.
fn half(bytes: usize) -> usize {
    (bytes / PAGE / 2).max(1) * PAGE
}

impl Memory for Pages {
    fn pool_span(&self) -> Span {
        Span::sized(self.base, self.shape.pages * PAGE)
    }

    fn register(&mut self, span: Span) -> Result<(), Refusal> {
        let fds = self.fds.as_ref().ok_or(Errno::BADF);
        fds.and_then(|fds| fds.program.register(span)).map_err(|why| self.means.refused(why))
    }

    fn unregister(&mut self, span: Span) {
        let Some(fds) = self.fds.as_ref() else { return };
        if let Err(why) = fds.program.unregister(span) {
            // A part was unmapped meanwhile, or there is no memory for splitting a mapping: faults
            // there are answered with zeros from now on.
            self.means.refused(why);
            let _ = (0..WAKE_TRIES).any(|_| fds.program.wake(span));
        }
    }

    fn map_changing(&mut self) -> Option<bool> {
        self.fds.as_ref()?.program.map_changing()
    }

    fn room(&mut self) -> bool {
        inject::check(Call::Extent).is_ok()
    }

    fn books_have_room(&mut self) -> bool {
        !(self.means.books_short)()
    }

    fn over(&mut self) -> usize {
        self.means.allowance.over(&holding(self.means.counters)) as usize
    }

    fn move_out(&mut self, from: Span, slot: usize, holes_allowed: bool) -> Taken {
        let taken = self.take_out(from, slot, holes_allowed);
        // Pages that were freed lazily and not written to since are so still: the kernel would take
        // them out of the extent.
        if !holes_allowed && taken.pages > 0 && self.means.lazily_freed.load(Relaxed) {
            // SAFETY: pool pages that have just arrived; they keep their content.
            let _ = unsafe {
                let at = self.slot(slot) as *mut _;
                rustix::mm::madvise(at, taken.pages * PAGE, Advice::LinuxPopulateWrite)
            };
        }
        taken
    }

    fn move_in(&mut self, to: Span, from: usize) -> usize {
        let Some(fds) = self.fds.as_ref() else { return 0 };
        let mut done = 0;
        let mut tries = 0;
        let mut step = to.len();
        while done < to.len() {
            let part = Span::sized(from + done, step.min(to.len() - done));
            let (moved, error) = fds.program.move_in(to.start + done, part);
            done += moved;
            match error {
                None => step = to.len(),
                Some(Errno::AGAIN) if moved > 0 || tries < MOVE_TRIES => {
                    tries += usize::from(moved == 0);
                }
                // One call of the kernel's must stay inside one mapping.
                Some(Errno::INVAL) if part.len() > PAGE => step = half(part.len()),
                Some(why) => {
                    self.means.refused(why);
                    break;
                }
            }
        }
        done / PAGE
    }

    fn discard(&mut self, slot: usize, pages: usize) -> bool {
        if pages == 0 {
            return true;
        }
        if self.shape.pages == 0 {
            return false;
        }
        // SAFETY: pool pages that no extent holds; the program never had their addresses.
        unsafe {
            let at = self.slot(slot) as *mut _;
            inject::check(Call::Madvise)
                .and_then(|()| rustix::mm::madvise(at, pages * PAGE, Advice::LinuxDontNeed))
                .is_ok()
        }
    }

    fn fill(&mut self, span: Span, pieces: &[Piece]) -> (usize, Result<(), FillError>) {
        // Several pages out of one extent need no staging.
        if let [Piece::Bytes { from, .. }] = *pieces {
            let (bytes, result) = self.fill_from(span, from);
            return (bytes / PAGE, result);
        }
        let mut at = span.start;
        let mut piece = 0;
        let mut used = 0;
        while at < span.end {
            let chunk = Span::sized(at, (span.end - at).min(STAGING_PAGES * PAGE));
            let mut composed = 0;
            while composed < chunk.len() {
                let Some(this) = pieces.get(piece) else { return (0, Err(FillError::Refused)) };
                let (from, len) = match *this {
                    Piece::Bytes { from, len } => (Some(from), len),
                    Piece::Zero { len } => (None, len),
                };
                let n = (len - used).min(chunk.len() - composed);
                let to = (self.staging + composed) as *mut u8;
                // SAFETY: `to..to+n` lies in the staging buffer, which only this (locked) method
                // writes; `from` is memory of an extent, which the tracker's views keep alive.
                unsafe {
                    match from {
                        Some(from) => {
                            (self.means.copy_bytes)(to, (from + used) as *const u8, n);
                        }
                        None => core::ptr::write_bytes(to, 0, n),
                    }
                }
                composed += n;
                used += n;
                if used == len {
                    piece += 1;
                    used = 0;
                }
            }
            let (bytes, result) = self.fill_from(chunk, self.staging);
            if result.is_err() {
                return ((chunk.start + bytes - span.start) / PAGE, result);
            }
            at = chunk.end;
        }
        (span.pages(), Ok(()))
    }
}
