//! Free runs of pool pages: best fit by length, merged with their neighbours.

use crate::span::Span;
use arrayvec::ArrayVec;
use std::collections::{BTreeMap, BTreeSet};

/// `pages`, or up to an eighth more: runs of nearly the same length can take each other's places.
pub fn of_few_lengths(pages: usize) -> usize {
    pages.next_multiple_of(1 << pages.max(8).ilog2().saturating_sub(3))
}

/// A set of free page runs, by page number.
#[derive(Debug, Default)]
pub struct FreeRuns {
    by_start: BTreeMap<usize, usize>,
    by_len: BTreeSet<(usize, usize)>,
    pages: usize,
}

impl FreeRuns {
    /// No free run.
    pub const fn new() -> Self {
        Self { by_start: BTreeMap::new(), by_len: BTreeSet::new(), pages: 0 }
    }

    /// Free pages in all.
    pub const fn pages(&self) -> usize {
        self.pages
    }

    fn add(&mut self, start: usize, len: usize) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
        self.pages += len;
    }

    fn drop_run(&mut self, start: usize, len: usize) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
        self.pages -= len;
    }

    /// Takes `len` consecutive pages from the smallest run that has them; returns the first.
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let &(have, start) = self.by_len.range((len, 0)..).next()?;
        self.drop_run(start, have);
        if have > len {
            self.add(start + len, have - len);
        }
        Some(start)
    }

    /// Takes the `len` pages from `start`, if all of them are free.
    pub fn take_at(&mut self, start: usize, len: usize) -> bool {
        let Some((&s, &have)) = self.by_start.range(..=start).next_back() else { return false };
        if s + have < start + len {
            return false;
        }
        self.drop_run(s, have);
        if s < start {
            self.add(s, start - s);
        }
        if start + len < s + have {
            self.add(start + len, s + have - (start + len));
        }
        true
    }

    /// Takes the longest run; returns its first page and length.
    pub fn take_longest(&mut self) -> Option<(usize, usize)> {
        let &(len, start) = self.by_len.last()?;
        self.drop_run(start, len);
        Some((start, len))
    }

    /// Takes the longest run of which `suits` says yes, told its first page and length.
    pub fn take_longest_suiting(
        &mut self,
        mut suits: impl FnMut(usize, usize) -> bool,
    ) -> Option<(usize, usize)> {
        let found = self.by_len.iter().rev().find(|&&(len, start)| suits(start, len));
        let &(len, start) = found?;
        self.drop_run(start, len);
        Some((start, len))
    }

    /// The runs that `pages` overlaps: first pages and lengths.
    pub fn iter_in(&self, pages: Span) -> impl Iterator<Item = (usize, usize)> + '_ {
        let before = self.by_start.range(..pages.start).next_back();
        let inside = self.by_start.range(pages.start..pages.end);
        before.into_iter().chain(inside).map(|(&start, &len)| (start, len))
    }

    /// Gives `len` pages from `start` back.
    pub fn give(&mut self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        let (mut start, mut len) = (start, len);
        if let Some((&s, &l)) = self.by_start.range(..start).next_back() {
            debug_assert!(s + l <= start, "page run given twice");
            if s + l == start {
                self.drop_run(s, l);
                start = s;
                len += l;
            }
        }
        if let Some((&s, &l)) = self.by_start.range(start + len..).next()
            && s == start + len
        {
            self.drop_run(s, l);
            len += l;
        }
        self.add(start, len);
    }
}

/// Lengths that are remembered at once.
const LENGTHS: usize = 16;
/// Runs of one length that are remembered.
const OF_A_LENGTH: usize = 32;

/// Runs freed last, by length, last in first out: a server's messages have few lengths, and
/// what was just freed is still in the cache. Not merged with neighbours.
#[derive(Debug, Default)]
pub struct RecentRuns {
    lengths: [usize; LENGTHS],
    /// When a run of that length was asked for or freed last.
    used: [u64; LENGTHS],
    runs: [ArrayVec<usize, OF_A_LENGTH>; LENGTHS],
    clock: u64,
    pages: usize,
}

impl RecentRuns {
    /// Pages in all.
    pub const fn pages(&self) -> usize {
        self.pages
    }

    #[inline]
    fn place(&mut self, len: usize) -> Option<usize> {
        let place = self.lengths.iter().position(|l| *l == len)?;
        self.clock += 1;
        self.used[place] = self.clock;
        Some(place)
    }

    fn pop(&mut self, place: usize) -> Option<usize> {
        let start = self.runs[place].pop()?;
        self.pages -= self.lengths[place];
        Some(start)
    }

    /// A run of exactly `len` pages, if one was freed lately.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let place = self.place(len)?;
        self.pop(place)
    }

    /// The same, or the best fit of `others`. Where neither has one, all runs that are remembered
    /// go to `others`: neighbours merge there, and may be long enough together.
    #[inline]
    pub fn take_or_merged(&mut self, len: usize, others: &mut FreeRuns) -> Option<usize> {
        self.take(len).or_else(|| others.take(len)).or_else(|| {
            while let Some((start, len)) = self.take_any() {
                others.give(start, len);
            }
            others.take(len)
        })
    }

    /// Any run: its first page and length.
    pub fn take_any(&mut self) -> Option<(usize, usize)> {
        let place = self.runs.iter().position(|r| !r.is_empty())?;
        self.pop(place).map(|start| (start, self.lengths[place]))
    }

    /// A run of the greatest length of which `suits` says yes, told its first page and length; of
    /// these the one freed first.
    pub fn take_suiting(
        &mut self,
        mut suits: impl FnMut(usize, usize) -> bool,
    ) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        for (place, &len) in self.lengths.iter().enumerate() {
            if found.is_none_or(|(best, _)| len > self.lengths[best])
                && let Some(at) = self.runs[place].iter().position(|&start| suits(start, len))
            {
                found = Some((place, at));
            }
        }
        let (place, at) = found?;
        let start = self.runs[place].remove(at);
        self.pages -= self.lengths[place];
        Some((start, self.lengths[place]))
    }

    /// All runs: first pages and lengths.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let places = self.runs.iter().zip(self.lengths);
        places.flat_map(|(starts, len)| starts.iter().map(move |&start| (start, len)))
    }

    /// Remembers a run. `elsewhere` is told (first page and length) of those that are not
    /// remembered any more, or not at all.
    #[inline]
    pub fn give(&mut self, start: usize, len: usize, mut elsewhere: impl FnMut(usize, usize)) {
        if len == 0 {
            return;
        }
        let place = self.place(len).unwrap_or_else(|| self.forget_oldest(len, &mut elsewhere));
        if self.runs[place].is_full() {
            elsewhere(start, len);
        } else {
            self.runs[place].push(start);
            self.pages += len;
        }
    }

    /// The place of the length that was of no use for longest becomes that of `len`.
    #[cold]
    fn forget_oldest(&mut self, len: usize, elsewhere: &mut impl FnMut(usize, usize)) -> usize {
        let place = (0..LENGTHS).min_by_key(|&i| self.used[i]).unwrap_or(0);
        while let Some(start) = self.pop(place) {
            elsewhere(start, self.lengths[place]);
        }
        self.lengths[place] = len;
        self.clock += 1;
        self.used[place] = self.clock;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(start: usize, len: usize) {
        panic!("the run of {len} pages at {start} was not remembered");
    }

    #[test]
    fn the_run_given_back_last_is_taken_first() {
        let mut r = RecentRuns::default();
        for (start, len) in [(10, 3), (20, 3), (30, 1)] {
            r.give(start, len, none);
        }
        assert_eq!((r.take(3), r.pages()), (Some(20), 4));
        assert_eq!((r.take(2), r.take(1), r.take(3), r.take(3)), (None, Some(30), Some(10), None));
        for i in 0..OF_A_LENGTH {
            r.give(i * 9, 9, none);
        }
        let mut others = Vec::new();
        r.give(7000, 9, |start, len| others.push((start, len)));
        assert_eq!(others, [(7000, 9)]);
        assert_eq!((r.take_any(), r.pages()), (Some((31 * 9, 9)), 31 * 9));
    }

    #[test]
    fn runs_that_are_remembered_one_by_one_are_taken_together_where_no_other_is_long_enough() {
        let (mut r, mut others) = (RecentRuns::default(), FreeRuns::new());
        others.give(500, 4);
        for (start, len) in [(100, 10), (110, 10), (120, 20)] {
            r.give(start, len, none);
        }
        assert_eq!((r.take_or_merged(4, &mut others), r.pages()), (Some(500), 40));
        assert_eq!(r.take_or_merged(41, &mut others), None);
        assert_eq!((r.pages(), others.take(40)), (0, Some(100)));
    }

    #[test]
    fn a_new_length_takes_the_place_of_the_one_that_nobody_has_asked_for_longest() {
        let mut r = RecentRuns::default();
        for len in 1..=LENGTHS {
            r.give(100 * len, len, none);
            r.give(100 * len + 50, len, none);
        }
        assert_eq!(r.take(1), Some(150));
        let mut others = Vec::new();
        r.give(5000, 77, |start, len| others.push((start, len)));
        assert_eq!(others, [(250, 2), (200, 2)]);
        assert_eq!((r.take(77), r.take(2), r.take(1)), (Some(5000), None, Some(100)));
    }

    #[test]
    fn the_longest_run_that_suits_is_taken() {
        let mut r = RecentRuns::default();
        for (start, len) in [(10, 3), (20, 3), (30, 5), (40, 1)] {
            r.give(start, len, none);
        }
        assert_eq!(r.take_suiting(|start, _| start != 30), Some((10, 3)));
        assert_eq!(r.take_suiting(|_, _| true), Some((30, 5)));
        assert_eq!((r.take_suiting(|_, len| len > 3), r.pages()), (None, 4));
        let mut r = FreeRuns::new();
        for (start, len) in [(0, 3), (10, 9), (30, 5)] {
            r.give(start, len);
        }
        assert_eq!(r.take_longest_suiting(|_, len| len < 9), Some((30, 5)));
        assert_eq!((r.take_longest_suiting(|start, _| start > 10), r.pages()), (None, 12));
    }

    #[test]
    fn the_smallest_sufficient_run_is_taken_and_runs_merge_again() {
        let mut r = FreeRuns::new();
        r.give(0, 100);
        r.give(200, 10);
        assert_eq!(r.take(8), Some(200));
        assert_eq!(r.take(8), Some(0));
        assert_eq!(r.take(100), None);
        r.give(0, 8);
        r.give(200, 8);
        assert_eq!((r.pages(), r.take(100)), (110, Some(0)));
        assert_eq!(r.take_longest(), Some((200, 10)));
        assert_eq!(r.take_longest(), None);
    }
}
