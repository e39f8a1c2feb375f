//! Tracking that was taken out of the books, until the program's mapping has changed.

use crate::views::Views;
use uncopy_ranges::span::Span;

/// A ticket for detached memory, by which it is reattached or forgotten.
#[derive(Debug)]
#[must_use]
pub struct Detached(pub(super) u64);

/// Tracking that was taken out of the books; see `Tracker::detach`.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) number: u64,
    pub(super) views: Views,
    pub(super) registered: Vec<Span>,
}

impl Leaving {
    /// Whether any page of `span` was unmapped by us or registered.
    pub(super) fn tracked(&self, span: Span) -> bool {
        self.views.touches(span) || self.registered.iter().any(|r| r.overlaps(span))
    }
}
