//! Memory that has to stay resident, where it is: what is written there must be seen by whoever
//! refers to its pages, or its mapping is one that forked children do not have, or have empty.

use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::span::Span;

/// Ranges of each kind; from there on the nearest ones become one. (Memory that is excluded for
/// nothing is copied.)
const RANGES_MAX: usize = 1024;

/// Why memory is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The kernel holds its pages by reference beyond a call (`vmsplice`, `MSG_ZEROCOPY`): as long
    /// as these are its pages.
    Given,
    /// Children get it empty, or not at all (`MADV_WIPEONFORK`, `MADV_DONTFORK`), or the kernel
    /// writes to it without waiting for a fault (a signal's frame, a dying thread's locks): as long
    /// as it is mapped.
    WhileMapped,
}

/// The excluded memory: whole pages.
#[derive(Debug, Default)]
pub struct Excluded {
    given: Ranges,
    while_mapped: Ranges,
}

/// Exclusions that were taken out, to be put there again or elsewhere.
#[derive(Debug, Default)]
pub struct Parts {
    given: Vec<Span>,
    while_mapped: Vec<Span>,
}

fn insert(ranges: &mut Ranges, span: Span) {
    let mut span = span;
    if ranges.count() >= RANGES_MAX && !ranges.touches(span) {
        let before = ranges.before(span.start);
        let behind = ranges.next_in(span.end, usize::MAX);
        let gap = |r: &Span| span.start.saturating_sub(r.end).max(r.start.saturating_sub(span.end));
        if let Some(nearest) = before.into_iter().chain(behind).min_by_key(gap) {
            span = Span::new(span.start.min(nearest.start), span.end.max(nearest.end));
        }
    }
    ranges.insert(span);
}

impl Excluded {
    /// Nothing.
    pub const fn new() -> Self {
        Self { given: Ranges::new(), while_mapped: Ranges::new() }
    }

    fn of(&mut self, why: Why) -> &mut Ranges {
        match why {
            Why::Given => &mut self.given,
            Why::WhileMapped => &mut self.while_mapped,
        }
    }

    /// The pages of `span` have to stay resident.
    pub fn insert(&mut self, span: Span, why: Why) {
        insert(self.of(why), span.covering_pages());
    }

    /// Whether any of `span` is excluded.
    pub fn touches(&self, span: Span) -> bool {
        self.given.touches(span) || self.while_mapped.touches(span)
    }

    /// From the first page that is excluded to the last; empty if none is.
    pub fn bounds(&self) -> Span {
        let both = || [&self.given, &self.while_mapped].into_iter();
        let start = both().filter_map(|r| r.next_in(0, usize::MAX)).map(|r| r.start).min();
        let end = both().filter_map(|r| r.before(usize::MAX)).map(|r| r.end).max();
        Span::new(start.unwrap_or(0), end.unwrap_or(0))
    }

    /// Nothing of `span` is mapped any more, or all of it is mapped anew.
    pub fn munmapped(&mut self, span: Span) {
        self.given.remove(span);
        self.while_mapped.remove(span);
    }

    /// The pages of `span` were dropped: what is there from now on are others.
    pub fn dropped(&mut self, span: Span) {
        self.given.remove(span);
    }

    /// The excluded parts of `span`.
    pub fn parts(&self, span: Span) -> Parts {
        let parts = |r: &Ranges| {
            let (mut all, mut at) = (Vec::new(), span.start);
            while let Some(part) = r.next_in(at, span.end) {
                all.push(part);
                at = part.end;
            }
            all
        };
        Parts { given: parts(&self.given), while_mapped: parts(&self.while_mapped) }
    }

    /// Excludes `parts` (again).
    pub fn put(&mut self, parts: &Parts) {
        for (span, why) in parts.iter() {
            self.insert(span, why);
        }
    }

    /// The pages and the mapping of `from` have become those of `to`.
    pub fn moved(&mut self, from: Span, to: Span) {
        let parts = self.parts(from).moved(from, to);
        self.munmapped(from);
        self.munmapped(to);
        self.put(&parts);
    }
}

impl Parts {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.while_mapped.is_empty()
    }

    /// Each, and why.
    pub fn iter(&self) -> impl Iterator<Item = (Span, Why)> + '_ {
        let given = self.given.iter().map(|s| (*s, Why::Given));
        given.chain(self.while_mapped.iter().map(|s| (*s, Why::WhileMapped)))
    }

    /// Those that are of the mapping, not of its pages.
    pub fn of_mapping(&self) -> Self {
        Self { given: Vec::new(), while_mapped: self.while_mapped.clone() }
    }

    /// Where they are once what was `from` is `to`, which may be shorter, or longer: then what the
    /// mapping's end is, is that of what was added.
    pub fn moved(&self, from: Span, to: Span) -> Self {
        let there = |s: &Span| {
            let (start, end) = (s.start - from.start, s.end - from.start);
            Span::new((to.start + start).min(to.end), (to.start + end).min(to.end))
        };
        let given = self.given.iter().map(there).filter(|s| !s.is_empty()).collect();
        let grown = |s: &Span| {
            let moved = there(s);
            if s.end == from.end { Span::new(moved.start, to.end) } else { moved }
        };
        let while_mapped = self.while_mapped.iter().map(grown).filter(|s| !s.is_empty()).collect();
        Self { given, while_mapped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uncopy_ranges::span::PAGE;

    fn pages(first: usize, last: usize) -> Span {
        Span::new(first * PAGE, last * PAGE)
    }

    fn all(e: &Excluded) -> Vec<(Span, Why)> {
        e.parts(Span::new(0, usize::MAX)).iter().collect()
    }

    #[test]
    fn what_is_excluded_are_whole_pages_and_neighbours_are_one() {
        let mut e = Excluded::new();
        e.insert(Span::sized(5 * PAGE + 17, 1), Why::Given);
        e.insert(Span::sized(6 * PAGE + 17, PAGE), Why::Given);
        assert_eq!(all(&e), [(pages(5, 8), Why::Given)]);
        assert!(e.touches(Span::sized(7 * PAGE + 99, 1)) && !e.touches(pages(8, 9)));
        assert_eq!((e.bounds(), Excluded::new().bounds()), (pages(5, 8), Span::new(0, 0)));
    }

    #[test]
    fn what_was_given_ends_with_its_pages_what_is_while_mapped_with_its_mapping() {
        let mut e = Excluded::new();
        e.insert(pages(0, 4), Why::Given);
        e.insert(pages(2, 6), Why::WhileMapped);
        e.dropped(pages(1, 9));
        assert_eq!(all(&e), [(pages(0, 1), Why::Given), (pages(2, 6), Why::WhileMapped)]);
        e.munmapped(pages(3, 9));
        assert_eq!(all(&e), [(pages(0, 1), Why::Given), (pages(2, 3), Why::WhileMapped)]);
        e.munmapped(pages(0, 9));
        assert_eq!(all(&e), []);
    }

    #[test]
    fn exclusions_move_with_their_memory() {
        let mut e = Excluded::new();
        e.insert(pages(1, 2), Why::Given);
        e.insert(pages(3, 4), Why::WhileMapped);
        e.insert(pages(101, 103), Why::Given); // mapped over
        e.moved(pages(1, 4), pages(100, 103));
        assert_eq!(all(&e), [(pages(100, 101), Why::Given), (pages(102, 103), Why::WhileMapped)]);
        // Grown, and shrunk.
        let parts = e.parts(pages(100, 103));
        let moved = |to| parts.moved(pages(100, 103), to).iter().collect::<Vec<_>>();
        let grown = [(pages(10, 11), Why::Given), (pages(12, 19), Why::WhileMapped)];
        assert_eq!(moved(pages(10, 19)), grown);
        assert_eq!(moved(pages(10, 11)), [(pages(10, 11), Why::Given)]);
    }

    #[test]
    fn there_are_never_more_than_so_many_and_none_is_lost() {
        let mut e = Excluded::new();
        for i in 0..3 * RANGES_MAX {
            e.insert(
                pages(i * 7 % (2 * RANGES_MAX) * 10, i * 7 % (2 * RANGES_MAX) * 10 + 1),
                Why::Given,
            );
        }
        assert!(all(&e).len() <= RANGES_MAX);
        assert!((0..2 * RANGES_MAX).all(|i| e.touches(pages(i * 10, i * 10 + 1))));
    }
}
