//! Free runs of pool pages: best fit by length, merged with their neighbours.

use arrayvec::ArrayVec;
use std::collections::{BTreeMap, BTreeSet};

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
const LENGTHS: usize = 8;
/// Runs of one length that are remembered.
const OF_A_LENGTH: usize = 32;

/// Runs given back last, by length, last in first out: a server's messages have few lengths, and
/// what was just given back is still in the cache. Not merged with neighbours.
#[derive(Debug, Default)]
pub struct RecentRuns {
    lengths: [(usize, ArrayVec<usize, OF_A_LENGTH>); LENGTHS],
    next: usize,
    pages: usize,
}

impl RecentRuns {
    /// Pages in all.
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// A run of exactly `len` pages, if one was given back lately.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let start = self.lengths.iter_mut().find(|l| l.0 == len)?.1.pop()?;
        self.pages -= len;
        Some(start)
    }

    /// Any run: its first page and length.
    pub fn take_any(&mut self) -> Option<(usize, usize)> {
        let (len, runs) = self.lengths.iter_mut().find(|l| !l.1.is_empty())?;
        self.pages -= *len;
        runs.pop().map(|start| (start, *len))
    }

    /// Remembers a run, or returns one that must go elsewhere.
    #[inline]
    pub fn give(&mut self, start: usize, len: usize) -> Option<(usize, usize)> {
        if len == 0 {
            return None;
        }
        let known = self.lengths.iter_mut().position(|l| l.0 == len);
        let at = known.unwrap_or_else(|| {
            self.next = (self.next + 1) % LENGTHS;
            self.next
        });
        let (length, runs) = &mut self.lengths[at];
        if *length != len {
            // Another length takes the place once its own runs are used up.
            if !runs.is_empty() {
                return Some((start, len));
            }
            *length = len;
        }
        if runs.is_full() {
            return Some((start, len));
        }
        runs.push(start);
        self.pages += len;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_given_back_last_is_taken_first() {
        let mut r = RecentRuns::default();
        assert_eq!((r.give(10, 3), r.give(20, 3), r.give(30, 1)), (None, None, None));
        assert_eq!((r.take(3), r.pages()), (Some(20), 4));
        assert_eq!((r.take(2), r.take(1), r.take(3), r.take(3)), (None, Some(30), Some(10), None));
        for start in 0..OF_A_LENGTH {
            assert_eq!(r.give(start * 9, 9), None);
        }
        assert_eq!(r.give(7000, 9), Some((7000, 9)));
        assert_eq!((r.take_any(), r.pages()), (Some((31 * 9, 9)), 31 * 9));
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
