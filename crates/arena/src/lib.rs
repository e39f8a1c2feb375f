//! The twin allocator's book: which pages of one large reservation are whose (ZCopy 3.2.1).
//!
//! Large blocks live apart from the program's other memory: each begins on a page and shares none,
//! so that all of it can be a view; what is freed is kept as it is, resident or unmapped, and
//! handed out again, so that no page is faulted in anew. Blocks that grow get room in advance.
//!
//! One list has all free pages, whatever is behind them. A run of exactly the length is handed out,
//! else of the lowest that is long enough: so blocks stay together, pages with memory are taken
//! again before those beyond, and what is too much is given back from the end. Pages are *touched*
//! that may have memory behind them (or were unmapped by the tracker). Beyond the *frontier*
//! nothing was ever handed out.
//!
//! These hold between two calls:
//!
//! - A page is in one block, in one free run, or nobody's: of a block that was ended, or released,
//!   until it is kept or purged. Runs of the list have no free neighbours but those kept apart.
//! - A page that is not touched reads as zeros. The pages that the program is promised are touched.
//! - The touched pages are those promised, those kept (free), those that blocks have beyond their
//!   promise (no more than a bound when they were handed out), and nobody's.
//! - From the frontier on nothing is touched, and all of it is free or, once closed, nobody's.
#![forbid(unsafe_code)]

mod growth;
mod touched;

use self::growth::Growth;
pub use self::touched::Touched;
use uncopy_ranges::keeping::Keeping;
use uncopy_ranges::runs::{FreeRuns, RecentRuns};
use uncopy_ranges::span::Span;

/// The state of the block that begins at a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Pages that belong to it; 0: no block begins here.
    pub reserved: u32,
    /// Pages of these that the program was promised.
    pub used: u32,
    /// Pages that it began with when it came here, perhaps as another block; 0: it was moved, and
    /// goes on elsewhere.
    pub first: u32,
    /// Most pages that it ever was promised.
    pub most: u32,
}

/// Pages handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first page.
    pub page: usize,
    /// Pages of what was asked for that had no memory.
    pub gained: usize,
    /// Whether that is all of it: it reads as zeros.
    pub fresh: bool,
}

/// Free pages kept with their memory, at least, in pages.
const KEEP_MIN: usize = 16 << 10;
/// Beyond that, one page for so many that are in use, and as many as were purged too early
/// ([`Keeping`]).
const KEEP_SHARE: usize = 4;
/// Surplus pages that are given back at once, at least: each time costs a call.
const AT_ONCE: usize = 64;
/// Pages that blocks which are expected to grow may hold beyond what was promised, all together: so
/// many,
const SLACK_MAX: usize = 8 << 10;
/// and one for so many that are in use.
const SLACK_SHARE: usize = 8;
/// So many of the pages in blocks beyond what was promised may have memory, besides as many as the
/// program's are missing ([`Arena::missing`]): others could use it.
const SLACK_TOUCHED_MAX: usize = 1 << 10;
/// A block that has grown gets room for so many times its size. (A longer one than that gets room
/// for one page in so many in any case: if others are put behind it all the time it is copied a few
/// times, and not as often as it grows.)
const ROOM: usize = 2;
const ROOM_SHARE: usize = 8;

/// The book of one reservation. Pages are numbered from its start.
pub struct Arena {
    blocks: &'static mut [Block],
    free: FreeRuns,
    /// Free pages that are kept apart.
    apart: RecentRuns,
    frontier: usize,
    live: usize,
    slack: usize,
    touched: Touched,
    /// Free pages that are touched.
    kept: usize,
    /// Pages of blocks that are touched, though not promised.
    slack_touched: usize,
    missing: usize,
    keeping: Keeping,
    growth: Growth,
}

impl Arena {
    /// All pages beyond the frontier. `blocks` has an entry for each page, all zero, and so has
    /// `touched`.
    pub fn new(blocks: &'static mut [Block], touched: Touched) -> Self {
        let mut free = FreeRuns::new();
        free.give(0, blocks.len());
        Self {
            blocks,
            free,
            apart: RecentRuns::default(),
            frontier: 0,
            live: 0,
            slack: 0,
            touched,
            kept: 0,
            slack_touched: 0,
            missing: 0,
            keeping: Keeping::new(),
            growth: Growth::default(),
        }
    }

    /// Pages in blocks.
    pub fn live_pages(&self) -> usize {
        self.live
    }

    /// Pages that may have memory behind them: the program was promised them since they were
    /// purged.
    pub fn touched_pages(&self) -> usize {
        self.touched.count()
    }

    /// Pages that the program is promised.
    pub fn promised_pages(&self) -> usize {
        self.live - self.slack
    }

    /// Free pages kept for the next blocks with what is behind them.
    pub fn kept_pages(&self) -> usize {
        self.kept
    }

    /// Pages reserved for blocks beyond what the program was promised.
    pub fn slack_pages(&self) -> usize {
        self.slack
    }

    /// Pages up to which memory was ever handed out.
    pub fn frontier(&self) -> usize {
        self.frontier
    }

    /// Nothing beyond the frontier is handed out any more, and blocks keep no pages beyond what was
    /// promised: all those are free now.
    pub fn close(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        self.merge();
        self.free.take_at(self.frontier, blocks.len() - self.frontier);
        self.blocks = &mut blocks[..self.frontier];
        let mut page = 0;
        while page < self.frontier {
            let Block { reserved, used, .. } = self.blocks[page];
            let (reserved, used) = (reserved as usize, used as usize);
            self.blocks[page].reserved = used as u32;
            self.slack_touched -= self.touched.count_in(page + used, reserved - used);
            self.keep(page + used, reserved - used);
            self.live -= reserved - used;
            self.slack -= reserved - used;
            page += reserved.max(1);
        }
    }

    /// Any free run of a closed arena; its pages are nobody's from then on.
    pub fn take_free(&mut self) -> Option<(usize, usize)> {
        let (page, pages) = self.free.take_last(usize::MAX)?;
        self.kept -= self.touched.count_in(page, pages);
        self.touched.clear(page, pages);
        Some((page, pages))
    }

    /// The free ones of `pages`, in order.
    pub fn free_in(&mut self, pages: Span) -> Vec<Span> {
        self.merge();
        let runs = self.free.iter_in(pages);
        runs.map(|(page, n)| Span::sized(page, n).intersect(pages)).collect()
    }

    /// The block that begins at `page`; `None` where none does.
    pub fn block(&self, page: usize) -> Option<Block> {
        self.blocks.get(page).copied().filter(|b| b.reserved > 0)
    }

    /// Makes a block of `pages` pages, with room to grow if blocks that begin so do. `None`: the
    /// reservation is used up.
    pub fn allocate(&mut self, pages: usize) -> Option<Run> {
        let room = self.growth.expected(pages).max(pages);
        let room = if self.slack + (room - pages) <= self.slack_max() { room } else { pages };
        self.hand_out(pages, pages, room, pages)
    }

    /// The same for a block that has just grown to `pages` pages, and has more room to do so: out
    /// of the block at `from`, which is to be freed, if it was one.
    pub fn allocate_grown(&mut self, pages: usize, from: Option<usize>) -> Option<Run> {
        let before = from.and_then(|page| self.block(page));
        let first = before.map_or(pages, |b| b.first as usize);
        // (How far such blocks grow is known better than by doubling.)
        let room = match self.growth.expected(first) {
            known if known > first && known >= pages => known,
            _ => pages.saturating_mul(ROOM),
        };
        let share = if pages > SLACK_TOUCHED_MAX { pages / ROOM_SHARE } else { 0 };
        let run = self.hand_out(pages, room.min(pages + share), room, first)?;
        if let Some(from) = from.filter(|_| before.is_some()) {
            self.blocks[from].first = 0;
        }
        Some(run)
    }

    /// So many of the program's pages are views, without memory of their own: as many more touched
    /// ones may be room of blocks. (Where a block has none, parts of a message are put together
    /// elsewhere each time it grows: that costs as many views again.)
    pub fn missing(&mut self, pages: usize) {
        self.missing = pages;
    }

    /// Whether the block at `page` keeps its pages if it shrinks to `pages`, so that the next one
    /// of its first length finds them in one piece: not more of them than are missing elsewhere.
    pub fn stays_whole(&self, page: usize, pages: usize) -> bool {
        self.block(page).is_some_and(|block| {
            let more = (block.used as usize).saturating_sub(pages);
            self.slack_touched + more <= self.missing && self.slack + more <= self.slack_max()
        })
    }

    fn slack_max(&self) -> usize {
        SLACK_MAX + self.live / SLACK_SHARE
    }

    /// A block of `pages` pages that began with `first`, with room for `most`, or for `least` where
    /// others could use the memory that is there.
    fn hand_out(&mut self, pages: usize, least: usize, most: usize, first: usize) -> Option<Run> {
        if pages == 0 || u32::try_from(most).is_err() {
            return None;
        }
        let (page, reserved) = self.take(pages, least, most)?;
        self.frontier = self.frontier.max(page + reserved);
        let slack_touched = self.touched.count_in(page + pages, reserved - pages);
        let gained = self.touched.mark(page, pages);
        self.kept -= pages - gained + slack_touched;
        self.slack_touched += slack_touched;
        let (used, first) = (pages as u32, first as u32);
        self.blocks[page] = Block { reserved: reserved as u32, used, first, most: used };
        self.live += reserved;
        self.slack += reserved - pages;
        self.keeping.regrets(gained);
        self.keeping.leaves(self.kept);
        Some(Run { page, gained, fresh: gained == pages })
    }

    /// Takes the lowest free pages for [`Arena::hand_out`]: the first, and how many.
    fn take(&mut self, pages: usize, least: usize, most: usize) -> Option<(usize, usize)> {
        // (Of the length that is asked for: with lengths rounded up by an eighth, so that there are
        // few, an upload to aiohttp over 64 connections faulted 24 pages in, and 3 without.)
        if most > least
            && let Some(page) = self.find(most)
        {
            let idle = self.touched.count_in(page + pages, most - pages);
            if idle == 0 || self.slack_touched + idle <= SLACK_TOUCHED_MAX + self.missing {
                return Some((page, most));
            }
            self.free.give(page, most);
        }
        // (The length that was asked for is taken where address space is short.)
        let lengths = [least, pages];
        lengths.into_iter().find_map(|len| self.find(len).map(|page| (page, len)))
    }

    /// Takes so many free pages: of what is kept apart a run of that length; else of the others, of
    /// all before there are none.
    fn find(&mut self, pages: usize) -> Option<usize> {
        if self.apart.pages() == 0 {
            return self.free.take(pages);
        }
        self.apart.take(pages).or_else(|| self.free.take(pages)).or_else(|| {
            self.merge();
            self.free.take(pages)
        })
    }

    /// The runs that are kept apart become free runs like any other.
    pub fn merge(&mut self) {
        while let Some((page, pages)) = self.apart.take_any() {
            self.free.give(page, pages);
        }
    }

    /// Ends the block at `page`. Its pages are kept.
    ///
    /// # Errors
    /// Where no block begins: the program's own mistake.
    pub fn free(&mut self, page: usize) -> Result<(), NoBlock> {
        let pages = self.end(page)?;
        self.keep(page, pages);
        Ok(())
    }

    /// Pages of a block that was ended are kept for the next one, as they are.
    pub fn keep(&mut self, page: usize, pages: usize) {
        self.kept += self.touched.count_in(page, pages);
        self.free.give(page, pages);
    }

    /// The same, for a block of that length: they do not become a part of others before
    /// [`Arena::merge`]. (Where they did as soon as new memory was needed, pieces of views came to
    /// lie in blocks of all lengths: uploads over 64 connections took twice the time.)
    pub fn keep_apart(&mut self, page: usize, pages: usize) {
        self.kept += self.touched.count_in(page, pages);
        let free = &mut self.free;
        self.apart.give(page, pages, |page, pages| free.give(page, pages));
    }

    /// Ends the block at `page`; returns the number of its pages. They are nobody's until
    /// [`Arena::keep`] or [`Arena::purged`].
    ///
    /// # Errors
    /// Where no block begins: the program's own mistake.
    pub fn end(&mut self, page: usize) -> Result<usize, NoBlock> {
        let Block { reserved, used, first, most } = self.block(page).ok_or(NoBlock)?;
        let (reserved, used) = (reserved as usize, used as usize);
        if first > 0 {
            self.growth.ended(first as usize, most as usize);
        }
        self.blocks[page] = Block::default();
        self.live -= reserved;
        self.slack -= reserved - used;
        self.slack_touched -= self.touched.count_in(page + used, reserved - used);
        Ok(reserved)
    }

    /// Makes the block at `page` `pages` long where it lies: what it needs no more is kept for
    /// others. Returns false if it cannot grow there.
    ///
    /// # Errors
    /// Where no block begins.
    pub fn resize(&mut self, page: usize, pages: usize) -> Result<bool, NoBlock> {
        let Block { reserved, used, first, most } = self.block(page).ok_or(NoBlock)?;
        let (mut reserved, used) = (reserved as usize, used as usize);
        if pages == 0 || u32::try_from(pages).is_err() {
            return Ok(false);
        }
        let slack = reserved - used;
        let slack_touched = self.touched.count_in(page + used, slack);
        if pages > reserved {
            let (end, more) = (page + reserved, pages - reserved);
            if !self.free.take_at(end, more) {
                return Ok(false);
            }
            self.kept -= self.touched.count_in(end, more);
            self.frontier = self.frontier.max(end + more);
            self.live += more;
            reserved = pages;
        } else if pages < used && !self.stays_whole(page, pages) {
            self.keep(page + pages, reserved - pages);
            self.live -= reserved - pages;
            reserved = pages;
        }
        self.slack = self.slack + (reserved - pages) - slack;
        self.slack_touched -= slack_touched;
        self.slack_touched += self.touched.count_in(page + pages, reserved - pages);
        // (The pages that were promised before are touched.)
        let gained = self.touched.mark(page + used, pages.saturating_sub(used));
        self.keeping.regrets(gained);
        self.keeping.leaves(self.kept);
        self.blocks[page] = Block {
            reserved: reserved as u32,
            used: pages as u32,
            first,
            most: most.max(pages as u32),
        };
        Ok(true)
    }

    /// Pages to be purged now, if more are kept than is worth it: first page and
    /// number. They are nobody's until [`Arena::purged`].
    pub fn surplus(&mut self) -> Option<(usize, usize)> {
        let surplus = self.kept.saturating_sub(self.kept_max());
        if surplus > 0 { self.release_last(surplus.max(AT_ONCE)) } else { None }
    }

    /// Whether [`Arena::surplus`] has something to say.
    pub fn has_surplus(&self) -> bool {
        self.kept > self.kept_max()
    }

    fn kept_max(&self) -> usize {
        KEEP_MIN + self.live / KEEP_SHARE + self.keeping.regretted()
    }

    /// How many pages have lain idle, so that they are surplus, at most `most`; it is `now`, in
    /// seconds ([`Keeping::look`]).
    pub fn idle_pages(&mut self, now: i64, most: usize) -> usize {
        self.keeping.look(now, self.kept);
        self.keeping.surplus(most)
    }

    /// The last free pages before `page` that may have memory, at most `most` of them with what
    /// lies in between: the first and their number. (Not those that are kept apart.)
    pub fn kept_before(&mut self, page: usize, most: usize) -> Option<(usize, usize)> {
        if self.kept == 0 || most == 0 {
            return None;
        }
        let (before, touched) = (page.min(self.frontier), &self.touched);
        self.free
            .find_before(before, |start, len| touched.last_in(start, len.min(before - start), most))
    }

    /// Takes these pages, if all of them are free; nobody's until [`Arena::purged`] or
    /// [`Arena::keep`]. Returns whether they are.
    pub fn release(&mut self, page: usize, pages: usize) -> bool {
        if !self.free.take_at(page, pages) {
            return false;
        }
        let touched = self.touched.count_in(page, pages);
        self.kept -= touched;
        self.keeping.leaves(self.kept);
        self.keeping.gives_back(touched);
        true
    }

    /// Takes the last free pages that may have memory, at most `most` such; nobody's until
    /// [`Arena::purged`].
    pub fn release_last(&mut self, most: usize) -> Option<(usize, usize)> {
        let last = self.kept_before(usize::MAX, most).or_else(|| {
            self.merge();
            self.kept_before(usize::MAX, most)
        });
        last.filter(|&(page, pages)| self.release(page, pages))
    }

    /// These pages read as zeros and hold no memory again.
    pub fn purged(&mut self, page: usize, pages: usize) {
        self.touched.clear(page, pages);
        self.free.give(page, pages);
    }
}

/// No block begins at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBlock;

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(pages: usize) -> Arena {
        let words = Touched::words(pages);
        let touched = Touched::new(Box::leak(vec![0; words].into_boxed_slice()));
        Arena::new(Box::leak(vec![Block::default(); pages].into_boxed_slice()), touched)
    }

    #[test]
    fn a_freed_block_is_handed_out_again_as_it_is() {
        let mut a = arena(1024);
        let first = a.allocate(16).unwrap();
        assert!(first.fresh);
        a.free(first.page).unwrap();
        assert_eq!(a.allocate(16), Some(Run { page: first.page, gained: 0, fresh: false }));
    }

    #[test]
    fn the_lowest_pages_are_handed_out_also_where_a_part_of_them_has_no_memory() {
        let mut a = arena(1024);
        let blocks: Vec<_> = (0..4).map(|_| a.allocate(16).unwrap().page).collect();
        blocks.iter().for_each(|&page| a.free(page).unwrap());
        assert_eq!((a.kept_pages(), a.release_last(32)), (64, Some((32, 32))));
        a.purged(32, 32);
        assert_eq!(a.allocate(40), Some(Run { page: 0, gained: 8, fresh: false }));
        assert_eq!(a.allocate(40), Some(Run { page: 40, gained: 40, fresh: true }));
        assert_eq!(a.kept_pages(), 0);
    }

    #[test]
    fn a_block_that_grows_does_so_in_place_while_there_is_room() {
        let mut a = arena(1024);
        let b = a.allocate_grown(16, None).unwrap();
        let behind = a.allocate(16).unwrap();
        assert_eq!(a.resize(b.page, 32), Ok(true));
        assert_eq!(a.resize(b.page, 33), Ok(false));
        a.free(b.page).unwrap();
        assert_eq!(a.resize(behind.page, 40), Ok(true), "at the frontier there is room");
    }

    /// A block of 16 pages that grows to 60, part by part, as a program that calls `realloc` makes
    /// it. Returns how often it had to be moved.
    fn collect(a: &mut Arena) -> u32 {
        let mut page = a.allocate(16).unwrap().page;
        let mut moved = 0;
        // (Another block lies behind it, for ever.)
        a.allocate(1).unwrap();
        for pages in (20..=60).step_by(4) {
            if !a.resize(page, pages).unwrap() {
                let there = a.allocate_grown(pages, Some(page)).unwrap().page;
                a.allocate(1).unwrap();
                a.free(page).unwrap();
                (page, moved) = (there, moved + 1);
            }
        }
        // (Some programs shrink what they are about to free.)
        assert_eq!(a.resize(page, 2), Ok(true));
        a.free(page).unwrap();
        moved
    }

    #[test]
    fn a_block_of_a_length_that_grew_before_is_not_moved_again() {
        let mut a = arena(4096);
        assert!(collect(&mut a) > 0);
        (0..10).for_each(|_| assert_eq!(collect(&mut a), 0));
    }

    #[test]
    fn blocks_that_are_expected_to_grow_do_not_reserve_more_than_a_bound() {
        let mut a = arena(64 * SLACK_MAX);
        collect(&mut a);
        for _ in 0..SLACK_MAX {
            a.allocate(16).unwrap();
            assert!(a.slack_pages() <= a.slack_max());
        }
        assert!(a.slack_pages() > SLACK_MAX - 64);
    }

    #[test]
    fn room_with_memory_that_others_could_use_is_bounded() {
        let mut a = arena(64 * SLACK_MAX);
        collect(&mut a);
        let all = a.allocate(2 * SLACK_MAX).unwrap().page;
        a.free(all).unwrap();
        let blocks: Vec<_> = (0..100).map(|_| a.allocate(16).unwrap().page).collect();
        assert!((SLACK_TOUCHED_MAX - 64..=SLACK_TOUCHED_MAX).contains(&a.slack_touched));
        // (One that is moved and not long is no exception.)
        let moved = a.allocate_grown(200, Some(blocks[99])).unwrap().page;
        assert_eq!(a.block(moved).map(|b| b.reserved), Some(200));
        let long = a.allocate_grown(4000, None).unwrap().page;
        assert_eq!(a.block(long).map(|b| b.reserved), Some(4500));
        a.missing(1000);
        let moved = a.allocate_grown(200, None).unwrap().page;
        assert_eq!(a.block(moved).map(|b| b.reserved), Some(400));
        // (Room without memory takes it from nobody.)
        let beyond = a.allocate_grown(2 * SLACK_MAX, None).unwrap().page;
        assert_eq!(a.block(beyond).map(|b| b.reserved as usize), Some(4 * SLACK_MAX));
    }

    #[test]
    fn what_is_kept_apart_serves_blocks_of_its_length_until_it_is_merged_or_nothing_else_is_left() {
        let mut a = arena(4096);
        let blocks: Vec<_> = [16, 16, 8].map(|n| a.allocate(n).unwrap().page).into();
        for (page, pages) in [(0, 16), (16, 16), (32, 8)] {
            assert_eq!(a.end(page), Ok(pages));
            a.keep_apart(page, pages);
        }
        assert_eq!((a.kept_pages(), a.kept_before(usize::MAX, 64)), (40, None));
        let as_it_is = |page| Some(Run { page, gained: 0, fresh: false });
        assert_eq!(a.allocate(8), as_it_is(blocks[2]));
        assert_eq!(a.allocate(16), as_it_is(blocks[1]));
        a.free(blocks[1]).unwrap();
        assert_eq!(a.allocate(20), Some(Run { page: 40, gained: 20, fresh: true }));
        a.merge();
        assert_eq!(a.allocate(20), as_it_is(0), "both are one run then");
        assert_eq!((a.kept_pages(), a.release_last(64)), (12, Some((20, 12))));
        let b = a.end(0).map(|pages| a.keep_apart(0, pages));
        assert_eq!((b, a.allocate(5000), a.free.take_at(0, 20)), (Ok(()), None, true));
    }

    #[test]
    fn a_longer_block_has_the_memory_of_shorter_ones_that_were_freed_beside_each_other() {
        let mut a = arena(4096);
        let blocks: Vec<_> = (0..4).map(|_| a.allocate(64).unwrap().page).collect();
        blocks.iter().for_each(|&page| a.free(page).unwrap());
        assert_eq!(a.allocate(256), Some(Run { page: blocks[0], gained: 0, fresh: false }));
        assert_eq!(a.kept_pages(), 0);
    }

    #[test]
    fn a_block_that_is_moved_gets_the_room_that_such_blocks_needed_and_not_twice_its_length() {
        let mut a = arena(4096);
        collect(&mut a);
        let first = a.allocate(16).unwrap().page;
        let moved = a.allocate_grown(48, Some(first)).unwrap().page;
        assert_eq!(a.block(moved).map(|b| b.reserved), Some(60));
        let unknown = a.allocate_grown(48, None).unwrap().page;
        assert_eq!(a.block(unknown).map(|b| b.reserved), Some(96));
    }

    #[test]
    fn what_a_shrunk_block_needs_no_more_is_kept_for_others() {
        let mut a = arena(1024);
        let grown = a.allocate_grown(100, None).unwrap().page;
        assert_eq!((a.block(grown).map(|b| b.reserved), a.kept_pages()), (Some(200), 0));
        assert_eq!(a.resize(grown, 30), Ok(true));
        assert_eq!((a.block(grown).map(|b| b.reserved), a.kept_pages()), (Some(30), 70));
        assert_eq!((a.slack_pages(), a.slack_touched, a.live_pages()), (0, 0, 30));
        // (Where as many are missing it stays in one piece.)
        let whole = a.allocate(50).unwrap().page;
        a.missing(20);
        assert_eq!((a.stays_whole(whole, 20), a.resize(whole, 30)), (false, Ok(true)));
        assert_eq!((a.block(whole).map(|b| b.reserved), a.slack_touched), (Some(50), 20));
        assert_eq!((a.stays_whole(whole, 29), a.free(whole), a.slack_touched), (false, Ok(()), 0));
        assert_eq!(a.allocate(80), Some(Run { page: grown + 30, gained: 10, fresh: false }));
    }

    #[test]
    fn where_there_is_no_room_to_grow_a_block_gets_what_it_asks_for() {
        let mut a = arena(40);
        assert_eq!(a.allocate_grown(32, None).map(|r| r.page), Some(0));
        let b = a.allocate_grown(8, None).unwrap();
        assert_eq!((b.page, a.block(b.page).map(|b| b.reserved)), (32, Some(8)));
        assert_eq!(a.allocate(1), None);
    }

    #[test]
    fn a_closed_arena_hands_out_only_what_was_used_before() {
        let mut a = arena(1024);
        let b = a.allocate(16).unwrap();
        a.close();
        assert_eq!(a.allocate(1), None);
        assert_eq!(a.resize(b.page, 17), Ok(false));
        a.free(b.page).unwrap();
        let again = a.allocate_grown(4, None);
        assert_eq!(again, Some(Run { page: b.page, gained: 0, fresh: false }));
    }

    #[test]
    fn a_closed_arena_gives_all_its_free_pages_away_and_what_blocks_had_beyond_their_promise() {
        let mut a = arena(1024);
        let grown = a.allocate_grown(16, None).unwrap().page;
        let (kept, last) = (a.allocate(9).unwrap().page, a.allocate(5).unwrap().page);
        a.free(kept).unwrap();
        let fresh = a.allocate(64).unwrap().page;
        a.free(fresh).unwrap();
        let (page, pages) = a.release_last(usize::MAX).unwrap();
        a.purged(page, pages);
        a.close();
        assert_eq!((a.slack_pages(), a.live_pages()), (0, 16 + 5));
        let mut given = 0;
        while let Some((page, pages)) = a.take_free() {
            given += pages;
            assert!(![grown, last].iter().any(|b| (page..page + pages).contains(b)));
        }
        assert_eq!(given + a.live_pages(), a.frontier());
        assert_eq!((a.allocate(1), a.resize(grown, 17)), (None, Ok(false)));
        assert_eq!(a.end(grown), Ok(16));
    }

    #[test]
    fn what_is_free_is_known() {
        let mut a = arena(200);
        let blocks: Vec<_> = (0..4).map(|_| a.allocate(10).unwrap().page).collect();
        assert_eq!(a.free_in(Span::new(0, 100)), [Span::new(40, 100)]);
        a.free(blocks[1]).unwrap();
        a.free(blocks[3]).unwrap();
        assert_eq!(a.free_in(Span::new(5, 35)), [Span::new(10, 20), Span::new(30, 35)]);
        let (page, pages) = a.release_last(usize::MAX).unwrap();
        a.purged(page, pages);
        assert_eq!(a.free_in(Span::new(0, 1000)), [Span::new(10, 20), Span::new(30, 200)]);
        assert_eq!(a.free_in(Span::new(0, 10)), []);
    }

    #[test]
    fn pages_of_an_ended_block_are_nobodys_until_they_are_given() {
        let mut a = arena(40);
        let b = a.allocate(40).unwrap();
        assert_eq!((a.end(b.page), a.end(b.page)), (Ok(40), Err(NoBlock)));
        assert_eq!(a.allocate(1), None);
        a.purged(b.page, 40);
        assert_eq!(a.allocate(40), Some(Run { page: 0, gained: 40, fresh: true }));
    }

    #[test]
    fn pages_have_memory_from_their_promise_on_until_they_are_purged() {
        let mut a = arena(1024);
        let grown = a.allocate_grown(16, None).unwrap().page;
        assert_eq!((a.touched_pages(), a.promised_pages()), (16, 16), "room costs nothing");
        assert_eq!(a.resize(grown, 30), Ok(true));
        assert_eq!(a.resize(grown, 20), Ok(true));
        assert_eq!((a.touched_pages(), a.promised_pages()), (30, 20));
        a.free(grown).unwrap();
        assert_eq!((a.touched_pages(), a.promised_pages()), (30, 0));
        let again = a.allocate(32).unwrap();
        assert!(!again.fresh);
        assert_eq!(a.touched_pages(), 32);
        a.free(again.page).unwrap();
        let (page, pages) = a.release_last(usize::MAX).unwrap();
        a.purged(page, pages);
        assert_eq!(a.touched_pages(), 0);
    }

    #[test]
    fn the_last_free_pages_with_memory_are_released_in_parts() {
        let mut a = arena(4096);
        let blocks: Vec<_> = [40, 9, 20, 9, 64].map(|n| a.allocate(n).unwrap().page).into();
        [0, 2, 4].iter().for_each(|&i| a.free(blocks[i]).unwrap());
        assert_eq!(a.kept_pages(), 124);
        let end = a.frontier();
        assert_eq!(a.kept_before(usize::MAX, 10), Some((end - 10, 10)));
        assert_eq!(a.kept_before(end - 60, 10), Some((end - 64, 4)));
        assert_eq!(a.kept_before(blocks[4], 30), Some((blocks[2], 20)));
        assert!(a.release(end - 10, 10) && !a.release(end - 11, 10) && !a.release(39, 2));
        assert_eq!((a.kept_pages(), a.touched_pages()), (114, 142));
        a.purged(end - 10, 10);
        assert_eq!((a.kept_pages(), a.touched_pages()), (114, 132));
        let mut parts = Vec::new();
        while let Some((page, pages)) = a.release_last(30) {
            a.purged(page, pages);
            parts.push(pages);
        }
        assert_eq!(parts, [30, 24, 20, 30, 10]);
        assert_eq!((a.kept_pages(), a.touched_pages(), a.kept_before(end, 1)), (0, 18, None));
    }

    #[test]
    fn a_second_free_is_refused() {
        let mut a = arena(64);
        let b = a.allocate(8).unwrap();
        assert_eq!(a.free(b.page), Ok(()));
        assert_eq!(a.free(b.page), Err(NoBlock));
        assert_eq!(a.free(63), Err(NoBlock));
        assert_eq!(a.free(64), Err(NoBlock));
    }

    #[test]
    fn what_lies_idle_is_given_back_and_reads_as_zeros() {
        let mut a = arena(4 * KEEP_MIN);
        let all: Vec<_> = (0..KEEP_MIN / 16).map(|_| a.allocate(32).unwrap().page).collect();
        all.iter().for_each(|&p| a.free(p).unwrap());
        let mut given = 0;
        while let Some((page, pages)) = a.surplus() {
            a.purged(page, pages);
            given += pages;
        }
        assert!((KEEP_MIN..KEEP_MIN + AT_ONCE).contains(&given));
        assert_eq!(a.kept_pages(), 2 * KEEP_MIN - given);
        assert_eq!(a.idle_pages(10, usize::MAX), 0);
        assert_eq!(a.idle_pages(20, usize::MAX), a.kept_pages() / 2);
    }

    #[test]
    fn what_was_purged_and_needed_again_is_kept_in_the_next_waves() {
        const BLOCKS: usize = 2 * KEEP_MIN / 16;
        let mut a = arena(4 * KEEP_MIN);
        // Blocks come and go; returns how many of them had to be cleared by the kernel.
        let wave = |a: &mut Arena| {
            let all: Vec<_> = (0..BLOCKS).map(|_| a.allocate(16).unwrap()).collect();
            all.iter().for_each(|run| a.free(run.page).unwrap());
            while let Some((page, pages)) = a.surplus() {
                a.purged(page, pages);
            }
            all.iter().filter(|run| run.fresh).count()
        };
        assert_eq!(wave(&mut a), BLOCKS);
        assert_eq!(wave(&mut a), BLOCKS / 2);
        assert_eq!((wave(&mut a), wave(&mut a)), (0, 0));
        // (Only while that goes on.)
        for look in 1..=20 {
            a.idle_pages(10 * look, usize::MAX);
        }
        wave(&mut a);
        assert!(a.kept_pages() <= KEEP_MIN);
    }

    #[test]
    fn what_was_mapped_anew_with_its_block_is_not_taken_for_purged_too_early() {
        let mut a = arena(4 * KEEP_MIN);
        // (A program that advises or protects each of its blocks: their pages come back as new
        // ones.)
        for _ in 0..KEEP_MIN {
            let run = a.allocate(16).unwrap();
            let pages = a.end(run.page).unwrap();
            a.purged(run.page, pages);
        }
        // It frees a lot, once.
        let all: Vec<_> = (0..2 * KEEP_MIN / 16).map(|_| a.allocate(16).unwrap().page).collect();
        all.iter().for_each(|&page| a.free(page).unwrap());
        while let Some((page, pages)) = a.surplus() {
            a.purged(page, pages);
        }
        assert!(a.kept_pages() <= KEEP_MIN, "{} pages", a.kept_pages());
    }

    /// Pages that are missing elsewhere, now and then.
    const MISSING: usize = 100;

    /// The state of the pages of an arena, without its book.
    struct Model {
        /// The block that a page is in; 0: it is free.
        owner: Vec<u32>,
        memory: Vec<bool>,
        /// The most that was promised.
        high: usize,
    }

    impl Model {
        fn handed_out(&mut self, a: &Arena, run: Run, id: u32, apart: bool) {
            let block = a.block(run.page).unwrap();
            let (reserved, used) = (block.reserved as usize, block.used as usize);
            let pages = run.page..run.page + reserved;
            assert!(self.owner[pages.clone()].iter().all(|o| *o == 0), "a page is in two blocks");
            let promised = run.page..run.page + used;
            let gained = self.memory[promised.clone()].iter().filter(|m| !**m).count();
            assert_eq!((run.gained, run.fresh), (gained, gained == used));
            let free = |page: usize| self.owner.get(page).is_some_and(|o| *o == 0);
            let exact = !free(run.page.wrapping_sub(1)) && !free(run.page + reserved);
            let mut lower = self.owner[..run.page].windows(reserved);
            let lowest = exact || !lower.any(|w| w.iter().all(|o| *o == 0));
            assert!(lowest || apart, "a lower one would do");
            self.owner[pages].fill(id);
            self.memory[promised].fill(true);
        }

        fn ended(&mut self, id: u32) {
            self.owner.iter_mut().filter(|o| **o == id).for_each(|o| *o = 0);
        }

        fn resized(&mut self, a: &Arena, page: usize, id: u32) {
            let block = a.block(page).unwrap();
            self.ended(id);
            let pages = page..page + block.reserved as usize;
            assert!(self.owner[pages.clone()].iter().all(|o| *o == 0), "a page is in two blocks");
            self.owner[pages].fill(id);
            self.memory[page..page + block.used as usize].fill(true);
        }

        fn purged(&mut self, page: usize, pages: usize) {
            assert!(self.owner[page..page + pages].iter().all(|o| *o == 0));
            self.memory[page..page + pages].fill(false);
        }

        fn agrees(&mut self, a: &Arena, live: &[(usize, u32)]) {
            let taken = self.owner.iter().filter(|o| **o != 0).count();
            assert_eq!(taken, a.live_pages());
            assert_eq!(taken + a.free.pages() + a.apart.pages(), a.blocks.len());
            let memory = self.memory.iter().filter(|m| **m).count();
            assert_eq!(memory, a.touched_pages());
            let kept = self.owner.iter().zip(&self.memory).filter(|(o, m)| **o == 0 && **m).count();
            assert_eq!(kept, a.kept_pages());
            let blocks = live.iter().map(|(page, _)| a.block(*page).unwrap());
            let slack: usize = blocks.map(|b| (b.reserved - b.used) as usize).sum();
            assert_eq!(slack, a.slack_pages());
            assert_eq!(memory, a.promised_pages() + kept + a.slack_touched);
            let beyond = self.owner[a.frontier()..].iter().zip(&self.memory[a.frontier()..]);
            assert!(beyond.into_iter().all(|(o, m)| *o == 0 && !*m), "beyond the frontier");
            self.high = self.high.max(a.promised_pages());
            let most = SLACK_TOUCHED_MAX + MISSING + self.high / ROOM_SHARE;
            assert!(a.slack_touched <= most);
        }
    }

    #[test]
    fn random_blocks_never_overlap_nothing_is_lost_and_what_is_too_much_can_be_given_back() {
        const PAGES: usize = 8 << 10;
        const BEYOND: usize = 256;
        let seed = 0x5eed_u64;
        let mut state = seed;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        println!("seed {seed:#x}");
        let mut a = arena(PAGES);
        let mut model = Model { owner: vec![0; PAGES], memory: vec![false; PAGES], high: 0 };
        let mut live: Vec<(usize, u32)> = Vec::new();
        for step in 1..5_000u32 {
            a.missing(if step / 200 % 2 == 0 { 0 } else { MISSING });
            let few = live.len() < 20 + 80 * (step as usize / 1000 % 2);
            match random(4) {
                0 | 1 if few => {
                    let most = if random(50) == 0 { 2000 } else { 40 };
                    let n = 1 + random(most);
                    let grown = live.get(random(live.len() + 1)).map(|(page, _)| *page);
                    let apart = a.apart.pages() > 0;
                    let run =
                        if random(2) == 0 { a.allocate(n) } else { a.allocate_grown(n, grown) };
                    if let Some(run) = run {
                        model.handed_out(&a, run, step, apart);
                        live.push((run.page, step));
                    }
                }
                0..=2 if !live.is_empty() => {
                    let (page, id) = live.swap_remove(random(live.len()));
                    let pages = a.end(page).unwrap();
                    if step / 500 % 2 == 0 {
                        a.keep(page, pages)
                    } else {
                        a.keep_apart(page, pages)
                    };
                    model.ended(id);
                }
                3 if !live.is_empty() => {
                    let (page, id) = live[random(live.len())];
                    let n = 1 + random(60);
                    if a.resize(page, n).unwrap() {
                        assert_eq!(a.block(page).map(|b| b.used as usize), Some(n));
                        model.resized(&a, page, id);
                    }
                }
                _ => {}
            }
            model.agrees(&a, &live);
            // Pages held beyond the most that was promised are given back, as far as they are free.
            let most = model.high + BEYOND;
            let over = |a: &Arena| a.touched_pages().saturating_sub(most);
            while let pages @ 1.. = over(&a)
                && let Some((page, pages)) = a.release_last(pages)
            {
                let beyond = page + pages..;
                let behind = model.memory[beyond.clone()].iter().zip(&model.owner[beyond]);
                let last = !behind.into_iter().any(|(m, o)| *m && *o == 0);
                assert!(last || a.apart.pages() > 0, "the last is given back first");
                model.purged(page, pages);
                a.purged(page, pages);
            }
            assert!(over(&a) == 0 || a.kept_pages() == 0);
        }
        assert!(model.high > 2 * BEYOND);
    }

    /// The part that a block of an upload plays, in [`UPLOAD`].
    #[derive(Clone, Copy)]
    enum Is {
        /// The block that is received into next; it goes where the kernel has nothing yet.
        Next,
        /// Parts as they came, and two of them joined.
        First,
        Second,
        Third,
        Fourth,
        Joined,
        /// The block that collects the parts, and the whole.
        Buffer,
        Body,
    }

    enum Call {
        Allocate(Is, usize),
        Grow(Is, usize),
        Free(Is),
    }

    /// An upload of 1 MB to aiohttp in what it asks the allocator for, in pages, one line for each
    /// turn of the event loop: as recorded.
    const UPLOAD: [&[Call]; 10] = {
        use Call::{Allocate, Free, Grow};
        use Is::{Body, Buffer, First, Fourth, Joined, Next, Second, Third};
        [
            &[Allocate(Next, 65), Allocate(First, 64), Free(Next)],
            &[Allocate(Next, 65), Allocate(Second, 65), Free(Next)],
            &[Allocate(Joined, 128), Free(Second), Free(First), Allocate(Buffer, 128)],
            &[Allocate(Next, 65), Allocate(Third, 65), Free(Next)],
            &[Free(Joined), Grow(Buffer, 192)],
            &[Allocate(Next, 65), Allocate(Fourth, 65), Free(Next)],
            &[Free(Third), Grow(Buffer, 256)],
            &[Allocate(Next, 65), Free(Next)],
            &[Free(Fourth), Grow(Buffer, 289), Allocate(Body, 257), Free(Buffer)],
            &[Free(Body)],
        ]
    };

    /// Makes these calls for a connection, whose blocks are at `blocks`. Returns how many pages
    /// were faulted in.
    fn turn(a: &mut Arena, calls: &[Call], blocks: &mut [usize; 8]) -> usize {
        let before = a.touched_pages();
        for call in calls {
            match *call {
                Call::Allocate(is, pages) => blocks[is as usize] = a.allocate(pages).unwrap().page,
                Call::Free(is) => a.free(blocks[is as usize]).unwrap(),
                Call::Grow(is, pages) => {
                    let page = blocks[is as usize];
                    if !a.resize(page, pages).unwrap() {
                        blocks[is as usize] = a.allocate_grown(pages, Some(page)).unwrap().page;
                        a.free(page).unwrap();
                    }
                }
            }
        }
        a.touched_pages() - before
    }

    #[test]
    fn connections_that_collect_messages_together_fault_few_pages_in_anew() {
        const CONNECTIONS: usize = 64;
        const TURNS: usize = 400;
        // (12 MB: what may be held beyond what was promised at most.)
        const BEYOND: usize = 3 << 10;
        // Pages for an upload. (314 with runs that are remembered by length, rooms without a bound,
        // and the longest run given back.)
        const FAULTS: usize = 8;
        let mut a = arena(1 << 17);
        let mut blocks = [[0; 8]; CONNECTIONS];
        let (mut high, mut faults, mut most) = (0, 0, 0);
        for i in 0..TURNS {
            // (The second half counts.)
            if i == TURNS / 2 {
                faults = 0;
            }
            for blocks in &mut blocks {
                faults += turn(&mut a, UPLOAD[i % UPLOAD.len()], blocks);
                high = high.max(a.promised_pages());
                most = most.max(a.touched_pages());
                while let over @ 1.. = a.touched_pages().saturating_sub(high + BEYOND)
                    && let Some((page, pages)) = a.release_last(over.max(AT_ONCE))
                {
                    a.purged(page, pages);
                }
            }
        }
        let uploads = CONNECTIONS * TURNS / 2 / UPLOAD.len();
        println!("{} pages an upload; {high} promised, {most} touched", faults / uploads);
        assert!(faults / uploads <= FAULTS, "{} pages an upload", faults / uploads);
        assert!(most <= high + BEYOND + 600, "{most} pages, {high} promised");
    }
}
