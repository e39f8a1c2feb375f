//! Memory of our own that is unmapped from the beginning: what is received into it goes straight
//! into extents.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use uncopy_ranges::span::Span;

impl<M: Memory> Tracker<M> {
    /// Makes `pages`, fresh private memory that nobody has touched, views of nothing. Returns false
    /// where it may not be registered: then it is ordinary memory.
    #[must_use]
    pub fn take_over(&mut self, pages: Span) -> bool {
        if !self.books_have_room() || !self.register(pages, 0) {
            return false;
        }
        self.views.assign(pages, ExtentId::NONE, 0, 0, &mut self.extents, &mut self.backing);
        self.gauges();
        true
    }
}
