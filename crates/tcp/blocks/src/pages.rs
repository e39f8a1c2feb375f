//! Which pages of an arena are free.

/// Pages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The first page.
    pub page: u32,
    /// How many there are.
    pub pages: u32,
}

const BITS: usize = u64::BITS as usize;

/// The pages of an arena: a bit for each that is taken.
#[derive(Debug)]
pub struct Pages {
    taken: Box<[u64]>,
    pages: usize,
    free: usize,
    /// No page below it is free.
    lowest: usize,
    /// None from here on was ever taken: these have no memory.
    touched: usize,
}

impl Pages {
    /// So many, all free.
    pub fn new(pages: u32) -> Self {
        let pages = pages as usize;
        let taken = vec![0; pages.div_ceil(BITS)].into_boxed_slice();
        Self { taken, pages, free: pages, lowest: 0, touched: 0 }
    }

    /// How many are free.
    pub fn free(&self) -> usize {
        self.free
    }

    /// None is taken.
    pub fn is_unused(&self) -> bool {
        self.free == self.pages
    }

    /// Takes so many pages in a row, the lowest that there are. `None`: nowhere are so many; or
    /// some of them were never taken, and `may_touch` does not allow that as many pages have memory
    /// as had then.
    pub fn take(&mut self, pages: u32, may_touch: impl FnOnce(usize) -> bool) -> Option<Block> {
        let wanted = pages as usize;
        if wanted == 0 || wanted > self.free {
            return None;
        }
        let mut at = self.next(self.lowest, false);
        self.lowest = at;
        while at + wanted <= self.pages {
            let end = self.next(at, true);
            if end - at >= wanted {
                if at + wanted > self.touched {
                    if !may_touch(at + wanted) {
                        return None;
                    }
                    self.touched = at + wanted;
                }
                self.mark(at, wanted, true);
                if at == self.lowest {
                    self.lowest = at + wanted;
                }
                return Some(Block { page: at as u32, pages });
            }
            at = self.next(end, false);
        }
        None
    }

    /// A block that was taken is free.
    ///
    /// # Panics
    /// Where it was not taken whole: the books are wrong.
    pub fn give_back(&mut self, block: Block) {
        let (at, pages) = (block.page as usize, block.pages as usize);
        assert!(at + pages <= self.pages && self.next(at, false) >= at + pages, "a free page");
        self.mark(at, pages, false);
        self.lowest = self.lowest.min(at);
    }

    /// The first page from `at` on that is `taken`, or free; the end, if there is none.
    fn next(&self, at: usize, taken: bool) -> usize {
        let (mut i, mut skip) = (at / BITS, at % BITS);
        while i * BITS < self.pages {
            let word = if taken { self.taken[i] } else { !self.taken[i] };
            let found = word >> skip << skip;
            if found != 0 {
                return (i * BITS + found.trailing_zeros() as usize).min(self.pages);
            }
            (i, skip) = (i + 1, 0);
        }
        self.pages
    }

    fn mark(&mut self, at: usize, pages: usize, taken: bool) {
        let (mut page, end) = (at, at + pages);
        while page < end {
            let (i, skip) = (page / BITS, page % BITS);
            let count = (BITS - skip).min(end - page);
            let bits = (u64::MAX >> (BITS - count)) << skip;
            if taken {
                self.taken[i] |= bits;
            } else {
                self.taken[i] &= !bits;
            }
            page += count;
        }
        if taken {
            self.free -= pages;
        } else {
            self.free += pages;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(_: usize) -> bool {
        true
    }

    #[test]
    fn the_lowest_pages_that_fit_are_taken_and_come_round() {
        let mut pages = Pages::new(200);
        let a = pages.take(60, any).unwrap();
        let b = pages.take(10, any).unwrap();
        let c = pages.take(100, any).unwrap();
        assert_eq!((a.page, b.page, c.page), (0, 60, 70));
        assert_eq!(pages.take(31, any), None, "no more than 30 are left");
        pages.give_back(b);
        assert_eq!(pages.take(11, any).unwrap().page, 170);
        assert_eq!(pages.take(10, any), Some(b));
        pages.give_back(a);
        pages.give_back(c);
        assert_eq!(pages.take(61, any).unwrap().page, 70, "it fits there first");
    }

    #[test]
    fn all_pages_can_be_taken_and_none_is_found_beyond_them() {
        for count in [1, 63, 64, 65, 127, 128, 200] {
            let mut pages = Pages::new(count);
            assert_eq!(pages.take(count + 1, any), None);
            let all = pages.take(count, any).unwrap();
            assert_eq!((pages.free(), pages.take(1, any)), (0, None));
            pages.give_back(all);
            assert!(pages.is_unused());
            assert_eq!((0..count).filter_map(|_| pages.take(1, any)).count(), count as usize);
            assert_eq!(pages.take(1, any), None);
        }
    }

    #[test]
    fn random_blocks_never_overlap_and_nothing_is_lost() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        const PAGES: u32 = 500;
        let mut pages = Pages::new(PAGES);
        let (mut right, mut out) = (vec![false; PAGES as usize], vec![]);
        for _ in 0..50_000 {
            if rng.bool() || out.is_empty() {
                let wanted = rng.u32(1..70);
                match pages.take(wanted, any) {
                    Some(block) => {
                        let all = block.page as usize..(block.page + block.pages) as usize;
                        assert_eq!(block.pages, wanted);
                        assert!(right[all.clone()].iter().all(|taken| !taken), "{block:?}");
                        right[all].fill(true);
                        out.push(block);
                    }
                    None => {
                        let runs = right.split(|taken| *taken).map(<[bool]>::len).max();
                        assert!(runs.unwrap_or(0) < wanted as usize, "{wanted} would fit");
                    }
                }
            } else {
                let block: Block = out.swap_remove(rng.usize(..out.len()));
                right[block.page as usize..(block.page + block.pages) as usize].fill(false);
                pages.give_back(block);
            }
            assert_eq!(pages.free(), right.iter().filter(|taken| !**taken).count());
        }
    }

    #[test]
    fn pages_that_had_none_get_memory_only_where_that_may_be() {
        let mut pages = Pages::new(100);
        let a = pages.take(30, |touched| touched <= 50).unwrap();
        assert_eq!(pages.take(21, |touched| touched <= 50), None);
        let b = pages.take(20, |touched| touched <= 50).unwrap();
        pages.give_back(a);
        pages.give_back(b);
        assert_eq!(pages.take(50, |_| panic!("they have some")).unwrap().page, 0);
    }

    #[test]
    #[should_panic(expected = "a free page")]
    fn free_pages_are_not_given_back() {
        let mut pages = Pages::new(10);
        let block = pages.take(4, any).unwrap();
        pages.give_back(block);
        pages.give_back(block);
    }
}
