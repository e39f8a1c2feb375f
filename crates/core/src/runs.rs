//! Free runs of pool pages: best fit by length, merged with their neighbours.

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

#[cfg(test)]
mod tests {
    use super::*;

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
