//! The tracker's [`Memory`], over two userfaultfds: one for the program's pages, with reports of
//! changes to the memory map, and one for the pool, without (nobody else maps there).
//!
//! unsafe: reserves the pool and composes pages in a staging buffer; both are this module's own
//! mappings, reached only through addresses that it handed out.

use crate::uffd::{FEATURE_EVENTS, FEATURE_MOVE, Maker, Refusal, Uffd};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_core::span::{PAGE, Span};
use uncopy_core::tracker::PoolShape;

/// Pages that are composed at once.
const STAGING_PAGES: usize = 64;
/// Smallest pool worth having, in pages.
const POOL_MIN: usize = (8 << 20) / PAGE;
/// A program whose address space is limited must not miss what the pool takes: at most this part
/// of the limit.
const POOL_OF_LIMIT: usize = 32;
/// How often a contended move is tried again before it counts as refused.
const MOVE_TRIES: usize = 4;

/// Copies bytes; set to libc's own routine by the preload library, because the symbol `memcpy`
/// is the library's.
pub type CopyBytes = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;

/// The two userfaultfds of a process.
#[derive(Debug)]
pub struct Fds {
    /// For the program's pages.
    pub program: Uffd,
    /// For the pool.
    pub pool: Uffd,
}

impl Fds {
    /// Makes both for the calling process.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn make(maker: &Maker) -> Result<Self, Refusal> {
        Ok(Self {
            program: maker.make(FEATURE_MOVE | FEATURE_EVENTS)?,
            pool: maker.make(FEATURE_MOVE)?,
        })
    }

    /// Puts both at descriptors from `least` on, where that is possible.
    pub fn lift(&mut self, least: i32) {
        let _ = self.program.lift(least);
        let _ = self.pool.lift(least);
    }
}

/// Pages of the program and of the pool.
#[derive(Debug)]
pub struct Pages {
    /// The userfaultfds, as the program's descriptor table has them.
    pub fds: Fds,
    /// The same, as the monitor's own table has them, and whether it is the monitor that calls.
    monitor: Option<Fds>,
    by_monitor: bool,
    base: usize,
    shape: PoolShape,
    staging: usize,
    copy_bytes: CopyBytes,
}

fn reserve(pages: usize) -> Result<usize, Errno> {
    // SAFETY: a new private mapping at an address of the kernel's choice.
    unsafe {
        rustix::mm::mmap_anonymous(
            core::ptr::null_mut(),
            pages * PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .map(|p| p as usize)
}

impl Pages {
    /// Reserves a pool with room for about `bytes` of extents (less, where the address space is
    /// limited) and registers its move targets.
    ///
    /// # Errors
    /// When not even a small pool can be had.
    pub fn new(fds: Fds, bytes: usize, copy_bytes: CopyBytes) -> Result<Self, Errno> {
        let staging = reserve(STAGING_PAGES)?;
        use rustix::process::{Resource, getrlimit};
        let limit = [Resource::As, Resource::Data]
            .into_iter()
            .filter_map(|r| getrlimit(r).current)
            .min()
            .map_or(usize::MAX, |l| l as usize / POOL_OF_LIMIT);
        let mut half = (bytes.min(limit / 2) / PAGE).max(POOL_MIN);
        let base = loop {
            match reserve(2 * half) {
                Ok(base) => break base,
                Err(_) if half > POOL_MIN => half /= 2,
                Err(e) => return Err(e),
            }
        };
        // SAFETY: our own mapping; the advice only keeps huge pages away, which moves would split.
        unsafe {
            let _ = rustix::mm::madvise(base as *mut _, 2 * half * PAGE, Advice::LinuxNoHugepage);
        }
        let pages = Self {
            fds,
            monitor: None,
            by_monitor: false,
            base,
            shape: PoolShape { boundary: half, pages: 2 * half },
            staging,
            copy_bytes,
        };
        pages.register_pool()?;
        Ok(pages)
    }

    /// The monitor has its own descriptors from now on.
    pub fn set_monitor(&mut self, fds: Fds) {
        // The ones of a monitor that fork left behind are not this process's to close.
        core::mem::forget(self.monitor.replace(fds));
    }

    /// Whose descriptors the next calls use.
    pub fn set_by_monitor(&mut self, by_monitor: bool) {
        self.by_monitor = by_monitor;
    }

    /// The descriptors of whoever calls.
    pub fn own(&self) -> &Fds {
        match &self.monitor {
            Some(fds) if self.by_monitor => fds,
            _ => &self.fds,
        }
    }

    /// Registers the move targets with the pool's userfaultfd (again, after fork).
    ///
    /// # Errors
    /// The kernel's.
    pub fn register_pool(&self) -> Result<(), Errno> {
        self.own().pool.register(self.move_targets())
    }

    /// Unmaps the pool, for good: no extent may be left, and none be made.
    pub fn abandon_pool(&mut self) {
        // SAFETY: our own mapping; the caller says that nothing refers to it.
        unsafe {
            let _ = rustix::mm::munmap(self.base as *mut _, self.shape.pages * PAGE);
        }
        self.shape = PoolShape { boundary: 0, pages: 0 };
    }

    /// The part of the pool that moves may fill.
    pub fn move_targets(&self) -> Span {
        Span::sized(self.base, self.shape.boundary * PAGE)
    }

    /// The pool's page numbers.
    pub fn shape(&self) -> PoolShape {
        self.shape
    }

    fn slot(&self, page: usize) -> usize {
        self.base + page * PAGE
    }

    /// Puts a zero page at `addr` of the program if nothing is there; wakes who waits.
    /// Returns false while the memory map is changing.
    pub fn provide_zero(&self, addr: usize) -> bool {
        zero_or_wake(&self.own().program, addr)
    }

    /// The same in the pool.
    pub fn provide_pool_zero(&self, addr: usize) {
        zero_or_wake(&self.own().pool, addr);
    }

    /// Fills from consecutive bytes at `src`. One call of the kernel's must stay inside one
    /// mapping, whose ends we do not know: where it refuses, half as much is tried.
    fn fill_from(&self, dst: Span, src: usize) -> (usize, Result<(), FillError>) {
        let uffd = &self.own().program;
        let mut at = dst.start;
        let mut step = dst.len();
        while at < dst.end {
            let part = Span::sized(at, step.min(dst.end - at));
            let (done, error) = uffd.copy(part, src + (at - dst.start));
            at += done;
            match error {
                None => {}
                // Already there: nothing to do, nobody must wait.
                Some(Errno::EXIST) => {
                    uffd.wake(Span::sized(at, PAGE));
                    at += PAGE;
                }
                Some(Errno::AGAIN) if done > 0 => {}
                // Out of memory: who waits must go on waiting until there is some.
                Some(Errno::AGAIN | Errno::NOMEM) => {
                    return (at - dst.start, Err(FillError::Again));
                }
                Some(Errno::NOENT | Errno::INVAL | Errno::FAULT) if part.len() > PAGE => {
                    step = half(part.len());
                }
                // Unmapped meanwhile: nobody can be waiting for it.
                Some(Errno::NOENT | Errno::INVAL | Errno::FAULT | Errno::SRCH) => {
                    uffd.wake(Span::sized(at, PAGE));
                    at += PAGE;
                }
                Some(_) => return (at - dst.start, Err(FillError::Refused)),
            }
        }
        (dst.len(), Ok(()))
    }
}

/// Half of `bytes`, in whole pages, at least one.
fn half(bytes: usize) -> usize {
    (bytes / PAGE / 2).max(1) * PAGE
}

fn zero_or_wake(uffd: &Uffd, addr: usize) -> bool {
    let page = Span::sized(addr & !(PAGE - 1), PAGE);
    match uffd.zero(page).1 {
        Some(Errno::AGAIN | Errno::NOMEM) => return false,
        Some(_) => uffd.wake(page),
        None => {}
    }
    true
}

impl Memory for Pages {
    fn pool_span(&self) -> Span {
        Span::sized(self.base, self.shape.pages * PAGE)
    }

    fn register(&mut self, span: Span) -> Result<(), ()> {
        self.own().program.register(span).map_err(drop)
    }

    fn unregister(&mut self, span: Span) {
        if self.own().program.unregister(span).is_err() {
            // A part was unmapped meanwhile: nobody can wait there.
            self.own().program.wake(span);
        }
    }

    fn map_changing(&mut self) -> bool {
        self.own().program.map_changing()
    }

    fn take(&mut self, from: Span, slot: usize, holes_allowed: bool) -> Taken {
        let mut done = 0;
        let mut tries = 0;
        let mut step = from.len();
        loop {
            let rest = Span::new(from.start + done, from.end);
            if rest.is_empty() {
                return Taken { pages: done / PAGE, stop: Stop::Done };
            }
            let part = Span::sized(rest.start, step.min(rest.len()));
            let (moved, error) =
                self.own().pool.move_pages(self.slot(slot) + done, part, holes_allowed);
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
                Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM | Errno::EXIST) => Stop::Busy,
                Some(_) => Stop::Unsuitable,
            };
            return Taken { pages: done / PAGE, stop };
        }
    }

    fn discard(&mut self, slot: usize, pages: usize) {
        if pages == 0 {
            return;
        }
        // SAFETY: pool pages that no extent holds; the program never had their addresses.
        unsafe {
            let at = self.slot(slot) as *mut _;
            let _ = rustix::mm::madvise(at, pages * PAGE, Advice::LinuxDontNeed);
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
                let (from, len) = match pieces[piece] {
                    Piece::Bytes { from, len } => (Some(from), len),
                    Piece::Zero { len } => (None, len),
                };
                let n = (len - used).min(chunk.len() - composed);
                let to = (self.staging + composed) as *mut u8;
                // SAFETY: `to..to+n` lies in the staging buffer, which only this (locked) method
                // writes; `from` is pool memory that the tracker's views keep alive.
                unsafe {
                    match from {
                        Some(from) => {
                            (self.copy_bytes)(to, (from + used) as *const u8, n);
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
