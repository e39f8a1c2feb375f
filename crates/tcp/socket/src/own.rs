//! This process' own arena: which blocks of it are taken, and by values that have settled.
//!
//! unsafe: a block is filled from memory that the caller names.

use crate::lock::{Guarded, lock};
use crate::views::{Known, Views};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uncopy_kernel::descriptors::Kept;
use uncopy_kernel::{clock, placement};
use uncopy_tcp_blocks::pages::{Block, Pages};
use uncopy_tcp_shared::arena::{ARENA, Arena};
use uncopy_tcp_shared::copy::Fault;
use uncopy_tcp_shared::layout::PAGE;

pub(crate) const PAGES: u32 = (ARENA / PAGE) as u32;

/// Of an arena's pages one in so many may be taken by what has [settled](crate::settling).
const SETTLED_SHARE: u32 = 4;
/// After so many ms in which nobody was given it, what has settled makes room for others.
pub(crate) const UNUSED: u64 = 5000;

/// A block that has settled.
#[derive(Debug)]
struct Settled {
    block: Block,
    /// When it was last given to somebody, in ms.
    given: u64,
    /// So many parts of it are out.
    out: u32,
}

/// This process' arena.
#[derive(Debug)]
pub struct Own {
    pub(crate) memory: Arena,
    fd: Kept,
    pages: Guarded<Pages>,
    /// Pages that never come back.
    lost: AtomicUsize,
    /// See [`Settings`](crate::Settings).
    may_hold: fn(u64) -> bool,
    /// The process that fills it.
    process: u32,
    /// Blocks that have settled, by their first pages.
    settled: Guarded<BTreeMap<u32, Settled>>,
    /// Pages of these.
    settled_pages: AtomicU32,
    /// A bit for each first page of a block that nothing views any more.
    gone: Box<[AtomicU64]>,
    known: Known,
}

impl Drop for Own {
    fn drop(&mut self) {
        // Before its memory.
        self.known.end();
    }
}

impl Own {
    /// A new one.
    pub fn new(may_hold: fn(u64) -> bool) -> Result<Self, Errno> {
        let mut memory = None;
        let fd = Kept::if_room(|| {
            let (mapped, fd) = Arena::create(placement::SHARED.next(ARENA))?;
            memory = Some(mapped);
            Ok(fd)
        })?;
        let memory = memory.ok_or(Errno::NOMEM)?;
        Ok(Self {
            memory,
            fd,
            pages: Guarded::new(Pages::new(PAGES)),
            lost: AtomicUsize::new(0),
            may_hold,
            process: std::process::id(),
            settled: Guarded::default(),
            settled_pages: AtomicU32::new(0),
            gone: (0..PAGES / u64::BITS).map(|_| AtomicU64::new(0)).collect(),
            known: Known::default(),
        })
    }

    /// Where it lies, and how long it is.
    pub fn range(&self) -> (usize, usize) {
        (self.memory.base(), ARENA)
    }

    /// The region that the owner of views knows it by; made once, dropped before its memory goes.
    /// `None`: it could not be made.
    pub fn known<T: Views>(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        self.known.get(make)
    }

    /// A block for so many bytes, for a peer that has `out` bytes. A program that keeps much leaves
    /// as much for others.
    pub(crate) fn take(&self, bytes: u32, out: u64) -> Option<Block> {
        let mut pages = lock(&self.pages);
        self.collects(&mut pages);
        if out + u64::from(bytes) > (pages.free() * PAGE) as u64 {
            return None;
        }
        self.take_pages(&mut pages, bytes.div_ceil(PAGE as u32))
    }

    fn take_pages(&self, pages: &mut Pages, wanted: u32) -> Option<Block> {
        pages.take(wanted, |touched| (self.may_hold)((touched * PAGE) as u64))
    }

    /// It is free again.
    pub(crate) fn give_back(&self, block: Block) {
        lock(&self.pages).give_back(block);
    }

    /// So many pages never come back: a peer that has died may view them still.
    pub(crate) fn loses(&self, pages: usize) {
        self.lost.fetch_add(pages, Ordering::Relaxed);
    }

    /// Something of it has settled, in this process.
    pub(crate) fn has_settled(&self) -> bool {
        self.settled_pages.load(Ordering::Acquire) > 0 && self.process == std::process::id()
    }

    /// Whether so many bytes more may settle here.
    pub(crate) fn may_settle(&self, bytes: usize) -> bool {
        self.collects(&mut lock(&self.pages));
        self.room_to_settle() as usize >= bytes.div_ceil(PAGE)
    }

    /// So many pages may be taken by what settles from now on.
    fn room_to_settle(&self) -> u32 {
        (PAGES / SETTLED_SHARE).saturating_sub(self.settled_pages.load(Ordering::Relaxed))
    }

    /// A block for so many bytes that settle.
    pub(crate) fn settle(&self, bytes: usize) -> Option<Block> {
        let wanted = u32::try_from(bytes.div_ceil(PAGE)).ok()?;
        let mut pages = lock(&self.pages);
        self.collects(&mut pages);
        if wanted > self.room_to_settle() {
            return None;
        }
        let block = self.take_pages(&mut pages, wanted)?;
        lock(&self.settled).insert(block.page, Settled { block, given: clock::millis(), out: 0 });
        self.settled_pages.fetch_add(wanted, Ordering::Release);
        Some(block)
    }

    /// Bytes at this offset, which have settled, are given to somebody at this moment, in ms.
    pub(crate) fn is_given(&self, at: u32, now: u64) {
        self.with_settled(at, |block| {
            block.given = now;
            block.out += 1;
        });
    }

    /// They are back.
    pub(crate) fn is_back(&self, at: u32) {
        self.with_settled(at, |block| block.out = block.out.saturating_sub(1));
    }

    fn with_settled(&self, at: u32, change: impl FnOnce(&mut Settled)) {
        let mut settled = lock(&self.settled);
        if let Some((_, block)) = settled.range_mut(..=at / PAGE as u32).next_back() {
            change(block);
        }
    }

    /// Room is short. Of what has settled, and is not out: where that lies which nobody was given
    /// for longest, and for long; it is named once. `None`: all was given lately. (What is out
    /// keeps its block, wherever the program's copy lies.)
    pub(crate) fn unused(&self) -> Option<(usize, usize)> {
        self.unused_at(clock::millis())
    }

    fn unused_at(&self, now: u64) -> Option<(usize, usize)> {
        let mut settled = lock(&self.settled);
        let back = settled.values_mut().filter(|block| block.out == 0);
        let oldest = back.min_by_key(|block| block.given)?;
        if now.saturating_sub(oldest.given) < UNUSED {
            return None;
        }
        oldest.given = now;
        let Block { page, pages } = oldest.block;
        Some((self.memory.base() + page as usize * PAGE, pages as usize * PAGE))
    }

    /// The block that begins here, which had settled, is not viewed any more. Any thread may say
    /// so, and does nothing with this arena afterwards: it may go.
    pub fn released(&self, at: usize) {
        let page = at.wrapping_sub(self.memory.base()) / PAGE;
        if let Some(word) = self.gone.get(page / u64::BITS as usize) {
            word.fetch_or(1 << (page % u64::BITS as usize), Ordering::AcqRel);
        }
    }

    /// Blocks that nothing views any more are free.
    fn collects(&self, pages: &mut Pages) {
        if self.settled_pages.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut settled = lock(&self.settled);
        for (i, word) in self.gone.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let page = i as u32 * u64::BITS + bits.trailing_zeros();
                bits &= bits - 1;
                if let Some(Settled { block, .. }) = settled.remove(&page) {
                    pages.give_back(block);
                    self.settled_pages.fetch_sub(block.pages, Ordering::Release);
                }
            }
        }
    }

    /// As above, for an owner that keeps it only as long as something has settled in it.
    pub(crate) fn forgets_gone(&self) {
        // (A parent's: a thread of it may have had the lock when this process was forked.)
        if self.process != std::process::id() {
            return;
        }
        self.collects(&mut lock(&self.pages));
    }

    /// Half of it never comes back.
    pub fn is_worn(&self) -> bool {
        self.lost.load(Ordering::Relaxed) > PAGES as usize / 2
    }

    /// The descriptor that others map it by.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A block that is to be filled. It is free again when this is dropped, unless it has
/// [settled](Self::is_settled).
#[derive(Debug)]
pub struct Settling {
    own: Arc<Own>,
    block: Block,
    bytes: usize,
    settled: Cell<bool>,
}

impl Settling {
    pub(crate) fn new(own: Arc<Own>, bytes: usize) -> Option<Self> {
        let block = own.settle(bytes)?;
        Some(Self { own, block, bytes, settled: Cell::new(false) })
    }

    /// The arena that it lies in.
    pub fn own(&self) -> &Arc<Own> {
        &self.own
    }

    /// Where its bytes lie, and how many they are.
    pub fn range(&self) -> (usize, usize) {
        (self.own.range().0 + self.block.page as usize * PAGE, self.bytes)
    }

    /// Copies its bytes into it.
    ///
    /// # Errors
    /// They are not there, or there is no memory for the block.
    ///
    /// # Safety
    /// `from` is the program's, or an extent: nothing of ours.
    pub unsafe fn fill(&self, from: *const u8) -> Result<(), Fault> {
        let at = (self.block.page as usize * PAGE) as u32;
        // SAFETY: the caller's promise; nobody has been given the block.
        unsafe { self.own.memory.put(at, from, self.bytes as u32) }
    }

    /// Its bytes are viewed: it comes back by [`Own::released`].
    pub fn is_settled(self) {
        self.settled.set(true);
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if !self.settled.get() {
            self.own.released(self.range().0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(own: &Arc<Own>, bytes: usize) -> Option<usize> {
        let block = Settling::new(own.clone(), bytes)?;
        let at = block.range().0;
        block.is_settled();
        Some(at)
    }

    #[test]
    fn what_nobody_was_given_for_long_makes_room_the_oldest_first() {
        let own = Arc::new(Own::new(|_| true).unwrap());
        let quarter = ARENA / SETTLED_SHARE as usize;
        let [a, b] = [(); 2].map(|()| settled(&own, quarter / 2).unwrap());
        assert_eq!(settled(&own, 1), None, "a quarter is taken");
        let now = clock::millis();
        assert_eq!(own.unused_at(now), None);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let in_a = (a - own.range().0) as u32 + 5000;
        own.is_given(in_a, clock::millis());
        own.is_back(in_a);
        let later = clock::millis() + UNUSED - 10;
        assert_eq!(own.unused_at(later), Some((b, quarter / 2)));
        assert_eq!(own.unused_at(later), None, "the other one was given since");
        own.released(b);
        assert_eq!(settled(&own, 1), Some(b));
        assert_eq!(own.unused_at(later + UNUSED), Some((a, quarter / 2)));
    }

    #[test]
    fn what_is_out_makes_no_room_and_the_next_oldest_does() {
        let own = Arc::new(Own::new(|_| true).unwrap());
        let half = ARENA / SETTLED_SHARE as usize / 2;
        let [a, b] = [(); 2].map(|()| settled(&own, half).unwrap());
        let offset = |at: usize| (at - own.range().0) as u32;
        let now = clock::millis();
        // (Two parts of the one are out, and the other one was given since.)
        (1..3).for_each(|part| own.is_given(offset(a) + part, now));
        own.is_given(offset(b), now + 1);
        own.is_back(offset(b));
        assert_eq!(own.unused_at(now + 2 * UNUSED), Some((b, half)));
        assert_eq!(own.unused_at(now + 4 * UNUSED), Some((b, half)));
        own.is_back(offset(a) + 1);
        assert_eq!(own.unused_at(now + 6 * UNUSED), Some((b, half)), "a part of it is out");
        own.is_back(offset(a) + 2);
        assert_eq!(own.unused_at(now + 8 * UNUSED), Some((a, half)));
    }
}
