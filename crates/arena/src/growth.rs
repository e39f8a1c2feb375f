//! How far blocks grow, learned from earlier ones of the same first length.
//!
//! A buffer that collects a message (Python's `bytearray`) is allocated for its first part and
//! grown by `realloc`, part by part. Where there is no room behind it, it is copied: half of each
//! message. Address space costs nothing, so blocks of a length that grew before get it at once.

/// Of blocks of one first length.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    /// How far they grew, in pages.
    pages: u32,
    /// How far they have grown since one grew as far as that.
    lately: u32,
    /// So many have grown since then.
    smaller: u8,
    /// Rises where one grows, falls where one does not.
    score: u8,
}

/// One block that grows is worth the room of so many that do not.
const GROWN: u8 = 8;
const SCORE_MAX: u8 = 8 * GROWN;
/// After so many that grew less far, the room is what they needed.
const SMALLER_MAX: u8 = 32;

/// Lengths of one power of two that are told apart.
const STEPS: usize = 8;
const CLASSES: usize = STEPS * (u32::BITS as usize);

/// The growth that was learned of all lengths.
#[derive(Debug)]
pub struct Growth {
    classes: Box<[Class]>,
}

impl Default for Growth {
    fn default() -> Self {
        Self { classes: vec![Class::default(); CLASSES].into_boxed_slice() }
    }
}

/// `pages`, or up to an eighth more: lengths that are not told apart.
fn of_few_lengths(pages: usize) -> usize {
    pages.next_multiple_of(1 << pages.max(8).ilog2().saturating_sub(3))
}

/// The class of blocks that began with so many pages.
fn class(first: usize) -> usize {
    let pages = of_few_lengths(first.max(1));
    let power = pages.ilog2() as usize;
    let step = (pages << 3 >> power) % STEPS;
    (power * STEPS + step).min(CLASSES - 1)
}

impl Growth {
    /// How many pages a block that begins with `first` will need.
    pub fn expected(&self, first: usize) -> usize {
        let c = self.classes[class(first)];
        if c.score < GROWN { first } else { first.max(c.pages as usize) }
    }

    /// A block that began with `first` pages ended with `last`.
    pub fn ended(&mut self, first: usize, last: usize) {
        let c = &mut self.classes[class(first)];
        if last <= of_few_lengths(first) {
            c.score = c.score.saturating_sub(1);
            return;
        }
        c.score = (c.score + GROWN).min(SCORE_MAX);
        let last = u32::try_from(last).unwrap_or(u32::MAX);
        c.lately = c.lately.max(last);
        c.smaller += 1;
        if last >= c.pages || c.smaller >= SMALLER_MAX {
            (c.pages, c.lately, c.smaller) = (c.lately, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_length_that_grew_get_the_room_for_it() {
        let mut g = Growth::default();
        assert_eq!(g.expected(65), 65);
        g.ended(65, 256);
        assert_eq!(g.expected(65), 256);
        assert_eq!((g.expected(16), g.expected(128), g.expected(300)), (16, 128, 300));
    }

    #[test]
    fn where_few_of_a_length_grow_none_gets_more_than_it_asks_for() {
        let mut g = Growth::default();
        for _ in 0..100 {
            g.ended(65, 256);
            (0..2 * GROWN).for_each(|_| g.ended(65, 65));
        }
        assert_eq!(g.expected(65), 65);
        // (One in eight is enough.)
        for _ in 0..100 {
            g.ended(65, 256);
            (1..GROWN).for_each(|_| g.ended(65, 65));
        }
        assert_eq!(g.expected(65), 256);
    }

    #[test]
    fn one_that_grew_further_than_all_others_is_forgotten() {
        let mut g = Growth::default();
        g.ended(65, 100_000);
        (0..2 * SMALLER_MAX).for_each(|_| g.ended(65, 256));
        assert_eq!(g.expected(65), 256);
    }

    #[test]
    fn what_is_not_told_apart_is_no_growth() {
        let mut g = Growth::default();
        g.ended(65, of_few_lengths(65));
        assert_eq!(g.expected(65), 65);
    }

    #[test]
    fn every_length_has_a_class() {
        let lengths: Vec<usize> =
            (0..32).flat_map(|p| [1usize << p, (1 << p) + (1 << p) / 3]).collect();
        let classes: Vec<usize> = lengths.iter().map(|&l| class(l)).collect();
        assert!(classes.is_sorted() && *classes.last().unwrap() < CLASSES);
        assert_eq!(class(usize::from(u16::MAX)), class(usize::from(u16::MAX) + 1));
    }
}
