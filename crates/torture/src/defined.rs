//! Which bytes of a buffer have a content that is the same in every run: what `malloc` returns
//! holds whatever was there before, and only what was written since may be looked at.

use core::ops::Range;

/// A set of bytes of one buffer: sorted ranges that neither touch nor overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defined(Vec<Range<usize>>);

impl Defined {
    /// Bytes `0..len`.
    pub fn all(len: usize) -> Self {
        let mut d = Self::default();
        d.insert(0..len);
        d
    }

    /// Adds a range.
    pub fn insert(&mut self, r: Range<usize>) {
        if r.is_empty() {
            return;
        }
        let first = self.0.partition_point(|x| x.end < r.start);
        let last = self.0.partition_point(|x| x.start <= r.end);
        let joined =
            self.0[first..last].iter().fold(r, |j, x| j.start.min(x.start)..j.end.max(x.end));
        self.0.splice(first..last, [joined]);
    }

    /// Takes a range away.
    pub fn remove(&mut self, r: Range<usize>) {
        if r.is_empty() {
            return;
        }
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for x in self.0.drain(..) {
            let parts = [x.start..x.end.min(r.start), x.start.max(r.end)..x.end];
            left.extend(parts.into_iter().filter(|p| !p.is_empty()));
        }
        self.0 = left;
    }

    /// The parts of `r` that are in the set, in order.
    pub fn within(&self, r: Range<usize>) -> Vec<Range<usize>> {
        let parts = self.0.iter().map(|x| x.start.max(r.start)..x.end.min(r.end));
        parts.filter(|p| !p.is_empty()).collect()
    }

    /// The first part of `r` that is in the set; empty if none is.
    pub fn first_in(&self, r: Range<usize>) -> Range<usize> {
        self.within(r.clone()).into_iter().next().unwrap_or(r.start..r.start)
    }

    /// Bytes `to..` become what bytes `from` of `source` were.
    pub fn copy(&mut self, to: usize, source: &Self, from: Range<usize>) {
        let parts = source.within(from.clone());
        self.remove(to..to + from.len());
        for p in parts {
            self.insert(to + p.start - from.start..to + p.end - from.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_set_agrees_with_an_array_of_flags() {
        let mut r = Random::new(3);
        let (mut set, mut flags) = (Defined::all(20), vec![false; 100]);
        flags[..20].fill(true);
        for _ in 0..2000 {
            let start = r.below(100);
            let range = start..r.between(start, 100);
            match r.below(3) {
                0 => (set.insert(range.clone()), flags[range].fill(true)).0,
                1 => (set.remove(range.clone()), flags[range].fill(false)).0,
                _ => {
                    let to = r.below(100 - range.len() + 1);
                    let source = set.clone();
                    set.copy(to, &source, range.clone());
                    flags.copy_within(range, to);
                }
            }
            let expected: Vec<usize> = (0..100).filter(|i| flags[*i]).collect();
            let have: Vec<usize> = set.within(0..100).into_iter().flatten().collect();
            assert_eq!(have, expected);
            assert!(set.0.windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}
