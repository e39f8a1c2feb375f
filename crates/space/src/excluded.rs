//! Memory that has to stay resident: told by the program's calls, at any time. Before anything is
//! tracked it is kept here for the books to come, and while a fork is under way, when the books
//! must not change, in a list that is taken over afterwards. Nobody waits for a fork here: a thread
//! that gives pages to the kernel may hold a lock that another library's fork handler wants.

use crate::space::{Inner, Space};
use uncopy_core::excluded::{Excluded, Parts, Why};
use uncopy_ranges::span::Span;

impl Inner {
    fn exclusions(&mut self) -> &mut Excluded {
        match &mut self.books {
            Some(books) => books.excluded(),
            None => &mut self.excluded,
        }
    }
}

impl Space {
    /// Changes exclusions, or looks at them if a fork is under way: `f` is told whether it may.
    fn with_excluded<R>(&'static self, f: impl FnOnce(&mut Excluded, bool) -> R) -> Option<R> {
        let mut hold = self.hold();
        let may = !self.gate.frozen();
        let excluded = hold.inner()?.exclusions();
        let result = f(excluded, may);
        if may {
            self.excluded_bounds.publish(excluded);
        }
        Some(result)
    }

    fn insert(&self, excluded: &mut Excluded, may: bool, span: Span, why: Why) {
        if may {
            return excluded.insert(span, why);
        }
        self.fork_log.push(span.covering_pages(), why);
        self.excluded_bounds.grow(span.covering_pages());
    }

    /// Takes over what was excluded while a fork was under way; with the lock held, and the fork
    /// done.
    pub(crate) fn take_over_exclusions(&self, inner: &mut Inner) {
        let excluded = inner.exclusions();
        self.fork_log.take(|span, why| excluded.insert(span, why));
        self.excluded_bounds.publish(excluded);
    }

    /// Whether any of `span` may be excluded.
    #[inline]
    pub fn perhaps_excluded(&self, span: Span) -> bool {
        self.excluded_bounds.meets(span)
    }

    /// The pages of `span` stay resident from now on; also if nothing is tracked yet.
    pub fn exclude(&'static self, span: Span, why: Why) {
        self.with_excluded(|e, may| self.insert(e, may, span, why));
    }

    /// `span` is about to be unmapped: it may be somebody else's before the call returns. Returns
    /// what [`Space::put_exclusions`] needs if the call fails.
    pub fn unmapping(&'static self, span: Span) -> Option<Parts> {
        self.take_out(span, Excluded::munmapped)
    }

    /// The pages of `span` are about to be dropped: the same.
    pub fn dropping(&'static self, span: Span) -> Option<Parts> {
        self.take_out(span.core(), Excluded::dropped)
    }

    fn take_out(&'static self, span: Span, end: impl FnOnce(&mut Excluded, Span)) -> Option<Parts> {
        if !self.perhaps_excluded(span) {
            return None;
        }
        // (While a fork is under way they stay, for nothing: what is there later is copied.)
        self.with_excluded(|e, may| {
            let parts = e.parts(span);
            if may {
                end(e, span);
            }
            parts
        })
        .filter(|parts| !parts.is_empty())
    }

    /// The excluded parts of `span`, of which pages, or the mapping, are about to be moved.
    pub fn exclusions(&'static self, span: Span) -> Option<Parts> {
        self.take_out(span, |_, _| {})
    }

    /// Excludes `parts` (again).
    pub fn put_exclusions(&'static self, parts: &Parts) {
        self.with_excluded(|e, may| {
            parts.iter().for_each(|(span, why)| self.insert(e, may, span, why))
        });
    }

    /// `span` was mapped anew.
    pub fn mapped_anew(&'static self, span: Span) {
        let _ = self.unmapping(span.covering_pages());
    }
}
