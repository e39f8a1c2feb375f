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

    /// These may have memory from now on. Returns how many had none.
    pub fn mark(&mut self, page: usize, pages: usize) -> usize {
        let mut more = 0;
        self.change(page, pages, |word, bits| {
            let new = bits & !*word;
            // (A word that is as it was stays in the cache as it is.)
            if new != 0 {
                more += new.count_ones() as usize;
                *word |= new;
            }
        });
        self.count += more;
        more
    }

    /// These have none.
    pub fn clear(&mut self, page: usize, pages: usize) {
        let mut fewer = 0;
        self.change(page, pages, |word, bits| {
            let old = bits & *word;
            if old != 0 {
                fewer += old.count_ones() as usize;
                *word &= !old;
            }
        });
        self.count -= fewer;
    }

    /// How many of these may have memory.
    #[inline]
    pub fn count_in(&self, page: usize, pages: usize) -> usize {
        ends(page, pages).map_or(0, |(first, last)| self.count_between(first, last))
    }

    fn count_between(&self, first: (usize, u64), last: (usize, u64)) -> usize {
        match &self.words[first.0..=last.0] {
            [one, between @ .., other] => {
                let between: usize = between.iter().map(|&word| ones(word)).sum();
                ones(one & first.1) + between + ones(other & last.1)
            }
            one => ones(one[0] & first.1 & last.1),
        }
    }

    /// The last of these that may have memory, at most `most` that do: their first page and how
    /// many pages they span. A word's pages without memory end it; fewer may lie in between.
    pub fn last_in(&self, page: usize, pages: usize, most: usize) -> Option<(usize, usize)> {
        let (mut left, mut found) = (most, None);
        let pages = self.until_last(page, pages)?;
        for (at, bits) in bits(page, pages).rev() {
            let mut word = self.words[at] & bits;
            if word == 0 && found.is_none() {
                continue;
            }
            while word.count_ones() as usize > left {
                // (Without its lowest bit.)
                word &= word - 1;
            }
            if word == 0 {
                break;
            }
            left -= word.count_ones() as usize;
            let first = at * WORD + word.trailing_zeros() as usize;
            let end = found.map_or((at + 1) * WORD - word.leading_zeros() as usize, |(_, end)| end);
            found = Some((first, end));
        }
        found.map(|(first, end)| (first, end - first))
    }

    /// How many of these there are up to the last word where any may have memory. `None` (mostly)
    /// where there is none: runs that were given back are many.
    #[inline]
    fn until_last(&self, page: usize, pages: usize) -> Option<usize> {
        let (first, last) = ends(page, pages)?;
        if self.words[last.0] & last.1 != 0 {
            return Some(pages);
        }
        let before = &self.words[first.0..last.0];
        let at = first.0 + before.iter().rposition(|word| *word != 0)?;
        Some((at + 1) * WORD - page)
    }

    #[inline]
    fn change(&mut self, page: usize, pages: usize, mut each: impl FnMut(&mut u64, u64)) {
        let Some((first, last)) = ends(page, pages) else { return };
        match &mut self.words[first.0..=last.0] {
            [one, between @ .., other] => {
                each(one, first.1);
                between.iter_mut().for_each(|word| each(word, u64::MAX));
                each(other, last.1);
            }
            one => each(&mut one[0], first.1 & last.1),
        }
    }
}

/// How many bits are set: of most words all are, or none.
#[inline]
fn ones(word: u64) -> usize {
    match word {
        0 => 0,
        u64::MAX => WORD,
        _ => word.count_ones() as usize,
    }
}

/// The first and the last word that tell of these pages, and which of their bits do (of one word
/// those that both say). `None`: there is no page.
#[inline]
fn ends(page: usize, pages: usize) -> Option<((usize, u64), (usize, u64))> {
    let last = (page + pages).checked_sub(1).filter(|_| pages > 0)?;
    let from = (page / WORD, u64::MAX << (page % WORD));
    Some((from, (last / WORD, u64::MAX >> (WORD - 1 - last % WORD))))
}

/// The words that tell of these pages, and which of their bits do.
fn bits(page: usize, pages: usize) -> impl DoubleEndedIterator<Item = (usize, u64)> {
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
            let before = list[page..page + pages].iter().filter(|t| **t).count();
            assert_eq!(touched.count_in(page, pages), before);
            let mark = random(2) == 0;
            if mark {
                assert_eq!(touched.mark(page, pages), pages - before);
            } else {
                touched.clear(page, pages);
            }
            list[page..page + pages].fill(mark);
            assert_eq!(touched.count(), list.iter().filter(|t| **t).count());
        }
    }

    #[test]
    fn the_last_pages_that_have_memory_are_found_up_to_where_many_have_none() {
        let mut touched = Touched::new(Box::leak(vec![0; 5].into_boxed_slice()));
        assert_eq!(touched.last_in(0, 320, 10), None);
        touched.mark(3, 2);
        touched.mark(60, 8);
        touched.mark(250, 10);
        touched.mark(262, 2);
        // (A few without memory in between are of no harm.)
        assert_eq!(touched.last_in(0, 320, 100), Some((250, 14)));
        assert_eq!(touched.last_in(0, 320, 4), Some((258, 6)));
        assert_eq!(touched.last_in(0, 261, 4), Some((256, 4)));
        assert_eq!(
            (touched.last_in(0, 250, 5), touched.last_in(0, 66, 5)),
            (Some((63, 5)), Some((61, 5)))
        );
        assert_eq!(touched.last_in(0, 250, 100), Some((3, 65)));
        assert_eq!((touched.last_in(61, 3, 9), touched.last_in(68, 182, 9)), (Some((61, 3)), None));
        assert_eq!(touched.last_in(0, 320, 0), None);
    }
}
