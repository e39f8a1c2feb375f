//! Which pages may have memory behind them: those that the program was promised, until they are
//! purged.

/// Pages that one word tells of.
const WORD: usize = u64::BITS as usize;

/// One bit for each page of a reservation.
pub struct Touched {
    words: &'static mut [u64],
    count: usize,
}

impl Touched {
    /// None of the pages that `words`, all zero, tells of.
    pub fn new(words: &'static mut [u64]) -> Self {
        Self { words, count: 0 }
    }

    /// How many words it takes for `pages` pages.
    pub const fn words(pages: usize) -> usize {
        pages.div_ceil(WORD)
    }

    /// How many pages.
    pub fn count(&self) -> usize {
        self.count
    }

    /// These may have memory from now on.
    pub fn mark(&mut self, page: usize, pages: usize) {
        let mut more = 0;
        self.change(page, pages, |word, bits| {
            more += (bits & !*word).count_ones() as usize;
            // (What is as it was stays in the cache as it is.)
            if *word & bits != bits {
                *word |= bits;
            }
        });
        self.count += more;
    }

    /// These have none.
    pub fn clear(&mut self, page: usize, pages: usize) {
        let mut fewer = 0;
        self.change(page, pages, |word, bits| {
            fewer += (bits & *word).count_ones() as usize;
            if *word & bits != 0 {
                *word &= !bits;
            }
        });
        self.count -= fewer;
    }

    /// Whether any of these may have.
    pub fn any(&self, page: usize, pages: usize) -> bool {
        bits(page, pages).any(|(at, bits)| self.words[at] & bits != 0)
    }

    fn change(&mut self, page: usize, pages: usize, mut each: impl FnMut(&mut u64, u64)) {
        for (at, bits) in bits(page, pages) {
            each(&mut self.words[at], bits);
        }
    }
}

/// The words that tell of these pages, and which of their bits do.
fn bits(page: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = page + pages;
    (page / WORD..end.div_ceil(WORD)).filter(move |_| pages > 0).map(move |at| {
        let (from, to) = (page.max(at * WORD) % WORD, end.min((at + 1) * WORD) - at * WORD);
        (at, u64::MAX << from & u64::MAX >> (WORD - to))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_list_of_pages() {
        const PAGES: usize = 300;
        let words = Touched::words(PAGES);
        let mut touched = Touched::new(Box::leak(vec![0; words].into_boxed_slice()));
        let mut list = [false; PAGES];
        let mut state = 0x5eed_u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for _ in 0..10_000 {
            let page = random(PAGES);
            let pages = random(PAGES - page + 1);
            let any = list[page..page + pages].iter().any(|t| *t);
            assert_eq!(touched.any(page, pages), any);
            let mark = random(2) == 0;
            if mark {
                touched.mark(page, pages);
            } else {
                touched.clear(page, pages);
            }
            list[page..page + pages].fill(mark);
            assert_eq!(touched.count(), list.iter().filter(|t| **t).count());
        }
    }
}
