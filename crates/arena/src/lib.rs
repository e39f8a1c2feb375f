//! The twin allocator's book: which pages of one large reservation are whose (ZCopy 3.2.1).
//!
//! Large blocks live apart from the program's other memory: each begins on a page and shares none,
//! so that all of it can be a view; what is freed is kept as it is, resident or unmapped, and
//! handed out again, so that no page is faulted in anew. Blocks that grow get address space in
//! advance, which costs no memory.
//!
//! Three kinds of free pages: *used* ones (with memory behind them, or unmapped by the tracker),
//! *fresh* ones (zeros, no memory), and beyond the *frontier* what was never handed out.
#![forbid(unsafe_code)]

mod growth;
mod touched;

use self::growth::Growth;
pub use self::touched::Touched;
use arrayvec::ArrayVec;
use uncopy_ranges::keeping::Keeping;
use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::runs::{FreeRuns, RecentRuns, of_few_lengths};
use uncopy_ranges::span::Span;

/// What is known of the block that begins at a page.
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
    /// Whether all of it reads as zeros.
    pub fresh: bool,
}

/// Free pages kept with their memory, at least, in pages.
const KEEP_MIN: usize = 16 << 10;
/// Beyond that, one page for so many that are in use, and as many as were purged too early
/// ([`Keeping`]).
const KEEP_SHARE: usize = 4;
/// Pages that shrunk blocks, and those that are expected to grow, may hold beyond what was
/// promised, all together: so many,
const SLACK_MAX: usize = 8 << 10;
/// and one for so many that are in use.
const SLACK_SHARE: usize = 8;
/// A block that has grown gets address space for so many times its size.
const ROOM: usize = 2;
/// Runs that [`Arena::kept_with_memory`] tells of.
const LISTED: usize = 32;

/// The book of one reservation. Pages are numbered from its start.
pub struct Arena {
    blocks: &'static mut [Block],
    recent: RecentRuns,
    used: FreeRuns,
    fresh: FreeRuns,
    frontier: usize,
    live: usize,
    slack: usize,
    touched: Touched,
    keeping: Keeping,
    growth: Growth,
}

impl Arena {
    /// All pages beyond the frontier. `blocks` has an entry for each page, all zero, and so has
    /// `touched`.
    pub fn new(blocks: &'static mut [Block], touched: Touched) -> Self {
        Self {
            blocks,
            recent: RecentRuns::default(),
            used: FreeRuns::new(),
            fresh: FreeRuns::new(),
            frontier: 0,
            live: 0,
            slack: 0,
            touched,
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

    /// Pages kept for the next blocks with what is behind them.
    pub fn kept_pages(&self) -> usize {
        self.recent.pages() + self.used.pages()
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
        self.blocks = &mut blocks[..self.frontier];
        let mut page = 0;
        while page < self.frontier {
            let Block { reserved, used, .. } = self.blocks[page];
            let (reserved, used) = (reserved as usize, used as usize);
            self.blocks[page].reserved = used as u32;
            self.used.give(page + used, reserved - used);
            self.live -= reserved - used;
            self.slack -= reserved - used;
            page += reserved.max(1);
        }
    }

    /// Any free run; its pages are nobody's from then on.
    pub fn take_free(&mut self) -> Option<(usize, usize)> {
        let (page, pages) = self.release_one().or_else(|| self.fresh.take_longest())?;
        self.touched.clear(page, pages);
        Some((page, pages))
    }

    /// The free ones of `pages`, in order.
    pub fn free_in(&self, pages: Span) -> Vec<Span> {
        let mut free = Ranges::new();
        let runs =
            self.recent.iter().chain(self.used.iter_in(pages)).chain(self.fresh.iter_in(pages));
        let beyond = (self.frontier, self.blocks.len() - self.frontier);
        for (page, n) in runs.chain([beyond]) {
            free.insert(Span::sized(page, n).intersect(pages));
        }
        free.iter().collect()
    }

    /// The block that begins at `page`; `None` where none does.
    pub fn block(&self, page: usize) -> Option<Block> {
        self.blocks.get(page).copied().filter(|b| b.reserved > 0)
    }

    /// Makes a block of `pages` pages, with room to grow if blocks that begin so do. `None`: the
    /// reservation is used up.
    pub fn allocate(&mut self, pages: usize) -> Option<Run> {
        let room = self.expected(pages, pages);
        self.hand_out(pages, room, pages)
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
        let run = self.hand_out(pages, room, first)?;
        if let Some(from) = from.filter(|_| before.is_some()) {
            self.blocks[from].first = 0;
        }
        Some(run)
    }

    /// What a block of `pages` pages will need that began with `first`, as far as that does not
    /// reserve too much in all.
    fn expected(&self, first: usize, pages: usize) -> usize {
        let room = self.growth.expected(first).max(pages);
        // (Half of the bound is left to blocks that shrink.)
        if self.slack + (room - pages) <= self.slack_max() / 2 { room } else { pages }
    }

    fn slack_max(&self) -> usize {
        SLACK_MAX + self.live / SLACK_SHARE
    }

    fn hand_out(&mut self, pages: usize, room: usize, first: usize) -> Option<Run> {
        if pages == 0 || u32::try_from(room.max(pages)).is_err() {
            return None;
        }
        let room = of_few_lengths(room.max(pages));
        // Memory that was used before costs no faults, wherever it is.
        let (page, reserved, fresh) = match self.take_used(room) {
            Some(page) => (page, room, false),
            None => match self.fresh.take(room) {
                Some(page) => {
                    self.keeping.regrets(room);
                    (page, room, true)
                }
                None if room <= self.blocks.len() - self.frontier => {
                    let page = self.frontier;
                    self.frontier += room;
                    (page, room, true)
                }
                None if of_few_lengths(pages) < room => return self.hand_out(pages, pages, first),
                // Address space is short.
                None => (self.used.take(pages)?, pages, false),
            },
        };
        let (used, first) = (pages as u32, first as u32);
        self.blocks[page] = Block { reserved: reserved as u32, used, first, most: used };
        self.live += reserved;
        self.slack += reserved - pages;
        self.touched.mark(page, pages);
        self.keeping.leaves(self.kept_pages());
        Some(Run { page, fresh })
    }

    fn take_used(&mut self, pages: usize) -> Option<usize> {
        self.recent.take_or_merged(pages, &mut self.used)
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
        let used = &mut self.used;
        self.recent.give(page, pages, |page, pages| used.give(page, pages));
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
        Ok(reserved)
    }

    /// Makes the block at `page` `pages` long where it lies. Returns false if it cannot grow there.
    ///
    /// # Errors
    /// Where no block begins.
    pub fn resize(&mut self, page: usize, pages: usize) -> Result<bool, NoBlock> {
        let Block { reserved, used, first, most } = self.block(page).ok_or(NoBlock)?;
        let (mut reserved, used) = (reserved as usize, used as usize);
        if pages == 0 || u32::try_from(pages).is_err() {
            return Ok(false);
        }
        if pages > reserved {
            let (end, more) = (page + reserved, pages - reserved);
            if end == self.frontier && more <= self.blocks.len() - end {
                self.frontier += more;
            } else if self.fresh.take_at(end, more) {
                self.keeping.regrets(more);
            } else if !self.used.take_at(end, more) {
                return Ok(false);
            }
            reserved += more;
            self.live += more;
            self.slack += more;
        }
        self.slack = self.slack + used - pages;
        // Shrunk blocks keep their pages, so that the next block of the first size finds them in
        // one piece, as long as not too much lies idle like that.
        // (What blocks were rounded up by is not that.)
        let kept = of_few_lengths(pages);
        if self.slack > self.slack_max() && kept < reserved && pages < used {
            let rest = reserved - kept;
            self.used.give(page + kept, rest);
            self.slack -= rest;
            self.live -= rest;
            reserved = kept;
        }
        self.touched.mark(page, pages);
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
        if self.has_surplus() { self.release_one() } else { None }
    }

    /// Whether [`Arena::surplus`] has something to say.
    pub fn has_surplus(&self) -> bool {
        self.kept_pages() > KEEP_MIN + self.live / KEEP_SHARE + self.keeping.regretted()
    }

    /// How many pages have lain idle, so that they are surplus, at most `most`; it is `now`, in
    /// seconds ([`Keeping::look`]).
    pub fn idle_pages(&mut self, now: i64, most: usize) -> usize {
        self.keeping.look(now, self.kept_pages());
        self.keeping.surplus(most)
    }

    /// The longest run of used pages; nobody's until [`Arena::purged`].
    pub fn release_one(&mut self) -> Option<(usize, usize)> {
        let run = self.used.take_longest().or_else(|| self.recent.take_any());
        self.keeping.leaves(self.kept_pages());
        self.keeping.gives_back(run.map_or(0, |(_, pages)| pages));
        run
    }

    /// The longest run of used pages that `suits` says yes to, by first page and number, and that
    /// has memory behind it; nobody's until [`Arena::purged`] or [`Arena::keep`].
    pub fn release_suiting(
        &mut self,
        mut suits: impl FnMut(usize, usize) -> bool,
    ) -> Option<(usize, usize)> {
        let touched = &self.touched;
        let mut suits = |page, pages| touched.any(page, pages) && suits(page, pages);
        let run = self
            .used
            .take_longest_suiting(&mut suits)
            .or_else(|| self.recent.take_suiting(&mut suits));
        self.keeping.leaves(self.kept_pages());
        self.keeping.gives_back(run.map_or(0, |(_, pages)| pages));
        run
    }

    /// The first `dropped` pages of a run that [`Arena::kept_with_memory`] told of read as zeros
    /// and hold no memory any more.
    pub fn dropped(&mut self, (page, pages): (usize, usize), dropped: usize) {
        let is_it = |p, n| (p, n) == (page, pages);
        let _ = self.used.take_longest_suiting(is_it).or_else(|| self.recent.take_suiting(is_it));
        self.used.give(page + dropped, pages - dropped);
        self.purged(page, dropped);
        self.keeping.leaves(self.kept_pages());
        self.keeping.gives_back(dropped);
    }

    /// The longest runs that [`Arena::release_suiting`] may find, the longest first.
    pub fn kept_with_memory(&self) -> ArrayVec<(usize, usize), LISTED> {
        let mut all = ArrayVec::<_, LISTED>::new();
        for (page, pages) in self.used.iter_in(Span::new(0, usize::MAX)).chain(self.recent.iter()) {
            let at = all.partition_point(|&(_, longer)| longer >= pages);
            if at < LISTED && self.touched.any(page, pages) {
                if all.is_full() {
                    all.pop();
                }
                all.insert(at, (page, pages));
            }
        }
        all
    }

    /// These pages read as zeros and hold no memory again.
    pub fn purged(&mut self, page: usize, pages: usize) {
        self.touched.clear(page, pages);
        self.fresh.give(page, pages);
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
        assert_eq!(a.allocate(16), Some(Run { page: first.page, fresh: false }));
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
    fn blocks_that_are_expected_to_grow_do_not_reserve_more_than_shrunk_ones_may() {
        let mut a = arena(64 * SLACK_MAX);
        collect(&mut a);
        for _ in 0..SLACK_MAX {
            a.allocate(16).unwrap();
            assert!(a.slack_pages() <= a.slack_max() / 2);
        }
        assert!(a.slack_pages() > SLACK_MAX / 2 - 64);
    }

    #[test]
    fn blocks_of_nearly_the_same_size_have_each_others_memory() {
        let mut a = arena(4096);
        let b = a.allocate(257).unwrap();
        a.free(b.page).unwrap();
        let same = Some(Run { page: b.page, fresh: false });
        for pages in [288, 280] {
            assert_eq!(a.allocate(pages), same);
            a.free(b.page).unwrap();
        }
        assert_eq!(a.allocate(289).map(|r| r.fresh), Some(true));
    }

    #[test]
    fn a_longer_block_has_the_memory_of_shorter_ones_that_were_freed_beside_each_other() {
        let mut a = arena(4096);
        let blocks: Vec<_> = (0..4).map(|_| a.allocate(64).unwrap().page).collect();
        blocks.iter().for_each(|&page| a.free(page).unwrap());
        assert_eq!(a.allocate(256), Some(Run { page: blocks[0], fresh: false }));
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
    fn shrunk_blocks_keep_their_pages_until_too_much_lies_idle_like_that() {
        let mut a = arena(8 * SLACK_MAX);
        let blocks: Vec<_> = (0..3).map(|_| a.allocate(SLACK_MAX).unwrap().page).collect();
        let before = a.slack_pages();
        assert_eq!(a.resize(blocks[0], 16), Ok(true));
        assert_eq!((a.slack_pages() - before, a.kept_pages()), (SLACK_MAX - 16, 0));
        assert_eq!(a.resize(blocks[1], SLACK_MAX / 2 + 1), Ok(true));
        let kept = of_few_lengths(SLACK_MAX / 2 + 1);
        assert_eq!(a.kept_pages(), SLACK_MAX - kept);
        assert_eq!(a.block(blocks[1]).map(|b| b.reserved as usize), Some(kept));
    }

    #[test]
    fn where_there_is_no_room_to_grow_a_block_gets_what_it_asks_for() {
        let mut a = arena(40);
        assert_eq!(a.allocate_grown(32, None).map(|r| r.page), Some(0));
        let b = a.allocate_grown(8, None).unwrap();
        assert_eq!((b.page, a.block(b.page).map(|b| b.reserved)), (32, Some(8)));
    }

    #[test]
    fn a_closed_arena_hands_out_only_what_was_used_before() {
        let mut a = arena(1024);
        let b = a.allocate(16).unwrap();
        a.close();
        assert_eq!(a.allocate(1), None);
        assert_eq!(a.resize(b.page, 17), Ok(false));
        a.free(b.page).unwrap();
        assert_eq!(a.allocate_grown(4, None), Some(Run { page: b.page, fresh: false }));
    }

    #[test]
    fn a_closed_arena_gives_all_its_free_pages_away_and_what_blocks_had_beyond_their_promise() {
        let mut a = arena(1024);
        let grown = a.allocate_grown(16, None).unwrap().page;
        let (kept, last) = (a.allocate(9).unwrap().page, a.allocate(5).unwrap().page);
        a.free(kept).unwrap();
        let fresh = a.allocate(64).unwrap().page;
        a.free(fresh).unwrap();
        let (page, pages) = a.release_one().unwrap();
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
        let (page, pages) = a.release_one().unwrap();
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
        assert_eq!(a.allocate(40), Some(Run { page: 0, fresh: true }));
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
        let (page, pages) = a.release_one().unwrap();
        a.purged(page, pages);
        assert_eq!(a.touched_pages(), 0);
    }

    #[test]
    fn the_longest_run_with_memory_that_suits_is_released() {
        let mut a = arena(4096);
        let blocks: Vec<_> = [40, 20, 64].map(|n| a.allocate(n).unwrap().page).into();
        let all: Vec<_> = (0..100).map(|_| a.allocate(9).unwrap().page).collect();
        blocks.iter().for_each(|&b| a.free(b).unwrap());
        assert_eq!(a.release_suiting(|_, _| false), None);
        let run = a.release_suiting(|page, _| page != blocks[2]);
        assert_eq!(run, Some((blocks[0], 40)));
        a.purged(blocks[0], 40);
        assert_eq!(a.release_suiting(|_, _| true), Some((blocks[2], 64)));
        a.keep(blocks[2], 64);
        let listed: Vec<_> = a.kept_with_memory().into_iter().collect();
        assert_eq!(listed, [(blocks[2], 64), (blocks[1], 20)], "what was purged has none");
        a.dropped(listed[0], 14);
        assert_eq!((a.kept_pages(), a.touched_pages()), (50 + 20, 50 + 20 + 900));
        assert_eq!(a.kept_with_memory()[0], (blocks[2] + 14, 50), "the rest stays");
        // (More of one length than are remembered one by one.)
        all.iter().for_each(|&page| a.free(page).unwrap());
        let mut pages = 0;
        while let Some((page, n)) = a.release_suiting(|_, _| true) {
            a.purged(page, n);
            pages += n;
        }
        assert_eq!((pages, a.kept_pages(), a.touched_pages()), (20 + 50 + 900, 0, 0));
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
        assert!(given >= KEEP_MIN && a.kept_pages() <= KEEP_MIN);
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
        assert!(wave(&mut a) > BLOCKS / 2);
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

    #[test]
    fn random_blocks_never_overlap_and_nothing_is_lost() {
        let seed = 0x5eed_u64;
        let mut state = seed;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        let pages = 4096;
        let mut a = arena(pages);
        let mut owner = vec![0u32; pages];
        let mut live: Vec<(usize, u32)> = Vec::new();
        for step in 1..40_000u32 {
            match random(4) {
                0 | 1 => {
                    let n = 1 + random(40);
                    let grown = live.get(random(live.len() + 1)).map(|(page, _)| *page);
                    let run =
                        if random(2) == 0 { a.allocate(n) } else { a.allocate_grown(n, grown) };
                    let Some(run) = run else { continue };
                    let reserved = a.block(run.page).unwrap().reserved as usize;
                    for o in &mut owner[run.page..run.page + reserved] {
                        assert_eq!(*o, 0, "seed {seed:#x} step {step}");
                        *o = step;
                    }
                    live.push((run.page, step));
                }
                2 if !live.is_empty() => {
                    let (page, id) = live.swap_remove(random(live.len()));
                    a.free(page).unwrap();
                    owner.iter_mut().filter(|o| **o == id).for_each(|o| *o = 0);
                }
                3 if !live.is_empty() => {
                    let (page, id) = live[random(live.len())];
                    let n = 1 + random(60);
                    if a.resize(page, n).unwrap() {
                        let b = a.block(page).unwrap();
                        assert_eq!(b.used as usize, n);
                        owner.iter_mut().filter(|o| **o == id).for_each(|o| *o = 0);
                        for o in &mut owner[page..page + b.reserved as usize] {
                            assert_eq!(*o, 0, "seed {seed:#x} step {step}");
                            *o = id;
                        }
                    }
                }
                _ => {
                    if let Some((page, n)) = a.release_one() {
                        assert!(owner[page..page + n].iter().all(|o| *o == 0));
                        a.purged(page, n);
                    }
                }
            }
            let taken = owner.iter().filter(|o| **o != 0).count();
            assert_eq!(taken, a.live_pages(), "seed {seed:#x} step {step}");
            let free = a.kept_pages() + a.fresh.pages();
            assert_eq!(taken + free, a.frontier(), "seed {seed:#x} step {step}");
            let most = a.live_pages() + a.kept_pages();
            let touched = a.touched_pages();
            assert!((a.promised_pages()..=most).contains(&touched), "seed {seed:#x} step {step}");
            let slack: usize = live
                .iter()
                .map(|(p, _)| a.block(*p).unwrap())
                .map(|b| (b.reserved - b.used) as usize)
                .sum();
            assert_eq!(slack, a.slack_pages(), "seed {seed:#x} step {step}");
        }
    }
}
