//! A set of addresses, kept as disjoint ranges that never touch one another.

use crate::span::Span;
use std::collections::BTreeMap;

/// Disjoint, merged ranges in order.
#[derive(Debug, Default)]
pub struct Ranges {
    by_start: BTreeMap<usize, usize>,
}

impl Ranges {
    /// The empty set.
    pub const fn new() -> Self {
        Self { by_start: BTreeMap::new() }
    }

    /// Number of ranges.
    pub fn count(&self) -> usize {
        self.by_start.len()
    }

    /// Adds `span`.
    pub fn insert(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        let (mut start, mut end) = (span.start, span.end);
        if let Some((&s, &e)) = self.by_start.range(..=start).next_back()
            && e >= start
        {
            start = s;
            end = end.max(e);
        }
        while let Some((&s, &e)) = self.by_start.range(start..=end).next() {
            end = end.max(e);
            self.by_start.remove(&s);
        }
        self.by_start.insert(start, end);
    }

    /// Takes `span` away.
    pub fn remove(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        if let Some((&s, &e)) = self.by_start.range(..span.start).next_back()
            && e > span.start
        {
            self.by_start.insert(s, span.start);
            if e > span.end {
                self.by_start.insert(span.end, e);
                return;
            }
        }
        while let Some((&s, &e)) = self.by_start.range(span.start..span.end).next() {
            self.by_start.remove(&s);
            if e > span.end {
                self.by_start.insert(span.end, e);
            }
        }
    }

    /// The range that holds `addr`, whole.
    pub fn around(&self, addr: usize) -> Option<Span> {
        let (&s, &e) = self.by_start.range(..=addr).next_back()?;
        (e > addr).then(|| Span::new(s, e))
    }

    /// The last range that begins before `addr`.
    pub fn before(&self, addr: usize) -> Option<Span> {
        self.by_start.range(..addr).next_back().map(|(&s, &e)| Span::new(s, e))
    }

    /// The first range at or after `from` that overlaps `from..until`, cut to it.
    pub fn next_in(&self, from: usize, until: usize) -> Option<Span> {
        let window = Span::new(from, until);
        if window.is_empty() {
            return None;
        }
        if let Some((&s, &e)) = self.by_start.range(..=from).next_back()
            && e > from
        {
            return Some(Span::new(s, e).intersect(window));
        }
        let (&s, &e) = self.by_start.range(from..until).next()?;
        Some(Span::new(s, e).intersect(window))
    }

    /// The first part of `from..until` that is not in the set.
    pub fn next_gap(&self, from: usize, until: usize) -> Option<Span> {
        let mut at = from;
        if let Some(covered) = self.next_in(at, until)
            && covered.start == at
        {
            at = covered.end;
        }
        if at >= until {
            return None;
        }
        let end = self.next_in(at, until).map_or(until, |r| r.start);
        Some(Span::new(at, end))
    }

    /// Whether any byte of `span` is in the set.
    pub fn touches(&self, span: Span) -> bool {
        self.next_in(span.start, span.end).is_some()
    }

    /// All ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.by_start.iter().map(|(&s, &e)| Span::new(s, e))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.by_start.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spans: &[(usize, usize)]) -> Ranges {
        let mut r = Ranges::new();
        for &(s, e) in spans {
            r.insert(Span::new(s, e));
        }
        r
    }

    #[test]
    fn neighbours_and_overlaps_merge() {
        assert_eq!(
            set(&[(0, 4), (4, 8), (6, 10), (20, 30)]).iter().collect::<Vec<_>>(),
            [Span::new(0, 10), Span::new(20, 30)]
        );
        assert_eq!(set(&[(0, 4), (8, 10), (2, 9)]).count(), 1);
    }

    #[test]
    fn removal_splits() {
        let mut r = set(&[(0, 100)]);
        r.remove(Span::new(20, 30));
        r.remove(Span::new(90, 200));
        assert_eq!(r.iter().collect::<Vec<_>>(), [Span::new(0, 20), Span::new(30, 90)]);
        r.remove(Span::new(0, 200));
        assert_eq!(r.count(), 0);
    }

    #[test]
    fn gaps_are_what_is_missing() {
        let r = set(&[(10, 20), (30, 40)]);
        assert_eq!(r.next_gap(0, 50), Some(Span::new(0, 10)));
        assert_eq!(r.next_gap(10, 50), Some(Span::new(20, 30)));
        assert_eq!(r.next_gap(15, 18), None);
        assert_eq!(r.next_gap(35, 50), Some(Span::new(40, 50)));
        assert!(r.touches(Span::new(39, 41)) && !r.touches(Span::new(40, 50)));
    }
}
