//! Bounds of the memory that has to stay resident, for readers without the lock, and for a time
//! when the books must not change.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use uncopy_core::excluded::{Excluded, Why};
use uncopy_ranges::span::Span;

/// From the first excluded page to the last: a look may find more, but not less than what was
/// excluded before it.
#[derive(Debug)]
pub(crate) struct BoundingSpan([AtomicUsize; 2]);

impl BoundingSpan {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; 2])
    }

    /// Exclusions have changed; with the lock held.
    pub(crate) fn publish(&self, excluded: &Excluded) {
        let bounds = excluded.bounds();
        self.0[0].store(bounds.start, Relaxed);
        self.0[1].store(bounds.end, Relaxed);
    }

    /// Takes `span` in; with the lock held.
    pub(crate) fn grow(&self, span: Span) {
        let empty = self.0[1].load(Relaxed) == 0;
        let start = if empty { span.start } else { self.0[0].load(Relaxed).min(span.start) };
        self.0[0].store(start, Relaxed);
        self.0[1].fetch_max(span.end, Relaxed);
    }

    /// Whether any of `span` may be excluded.
    #[inline]
    pub(crate) fn meets(&self, span: Span) -> bool {
        // (Not between the two words, but each of them at its time, held what was excluded.)
        span.start < self.0[1].load(Relaxed) && self.0[0].load(Relaxed) < span.end
    }
}

/// So many fit into the list; then the last one grows, over what lies between.
const LINES: usize = 64;

/// Memory that was excluded since a fork began. Written with the lock held; a child may get less of
/// it than its parent has, as it may have been made before.
#[derive(Debug)]
pub(crate) struct ForkLog {
    lines: [(AtomicUsize, AtomicUsize, AtomicU8); LINES],
    count: AtomicUsize,
}

const GIVEN: u8 = 1;
const WHILE_MAPPED: u8 = 2;

impl ForkLog {
    pub(crate) const fn new() -> Self {
        Self {
            lines: [const { (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU8::new(0)) }; LINES],
            count: AtomicUsize::new(0),
        }
    }

    pub(crate) fn push(&self, span: Span, why: Why) {
        let kind = if why == Why::Given { GIVEN } else { WHILE_MAPPED };
        let count = self.count.load(Relaxed);
        let (start, end, kinds) = &self.lines[count.min(LINES - 1)];
        if count < LINES {
            start.store(span.start, Relaxed);
            end.store(span.end, Relaxed);
            kinds.store(kind, Relaxed);
            self.count.store(count + 1, Relaxed);
        } else {
            start.fetch_min(span.start, Relaxed);
            end.fetch_max(span.end, Relaxed);
            kinds.fetch_or(kind, Relaxed);
        }
    }

    /// Hands each of them to `each`, and begins anew.
    pub(crate) fn take(&self, mut each: impl FnMut(Span, Why)) {
        let count = self.count.swap(0, Relaxed);
        for (start, end, kinds) in &self.lines[..count] {
            let span = Span::new(start.load(Relaxed), end.load(Relaxed));
            for (kind, why) in [(GIVEN, Why::Given), (WHILE_MAPPED, Why::WhileMapped)] {
                if kinds.load(Relaxed) & kind != 0 {
                    each(span, why);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(n: usize) -> Span {
        Span::sized(n << 12, 1 << 12)
    }

    #[test]
    fn a_hull_grows_over_what_lies_between() {
        let bounds = BoundingSpan::new();
        assert!(!bounds.meets(page(5)));
        bounds.grow(page(9));
        assert!(bounds.meets(page(9)) && !bounds.meets(page(5)));
        bounds.grow(page(3));
        assert!(bounds.meets(page(5)) && !bounds.meets(page(10)) && !bounds.meets(page(2)));
    }

    #[test]
    fn what_was_excluded_meanwhile_comes_out_once() {
        let list = ForkLog::new();
        list.push(page(1), Why::Given);
        list.push(page(2), Why::WhileMapped);
        let mut found = Vec::new();
        list.take(|span, why| found.push((span, why)));
        assert_eq!(found, [(page(1), Why::Given), (page(2), Why::WhileMapped)]);
        list.take(|_, _| panic!("nothing is left"));
    }

    #[test]
    fn a_full_list_excludes_more_but_never_less() {
        let list = ForkLog::new();
        for n in 0..LINES + 10 {
            list.push(page(2 * n), if n == LINES + 5 { Why::WhileMapped } else { Why::Given });
        }
        let mut found = Vec::new();
        list.take(|span, why| found.push((span, why)));
        for n in 0..LINES + 10 {
            let why = if n == LINES + 5 { Why::WhileMapped } else { Why::Given };
            let kept = |(s, w): &(Span, Why)| s.contains(page(2 * n).start) && *w == why;
            assert!(found.iter().any(kept), "page {n}");
        }
    }
}
