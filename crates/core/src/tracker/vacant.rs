//! Memory of our own that is unmapped from the beginning: what is received into it goes straight
//! into extents.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use uncopy_decide::Reason;
use uncopy_ranges::span::Span;

impl<M: Memory> Tracker<M> {
    /// Makes `pages`, fresh private memory that nobody has touched, views of nothing.
    ///
    /// # Errors
    /// Why it may not be registered: it is ordinary memory.
    pub fn take_over(&mut self, pages: Span) -> Result<(), Reason> {
        self.books_have_room()?;
        self.register(pages, 0)?;
        self.views.assign(pages, ExtentId::NONE, 0, 0, &mut self.extents, &mut self.backing);
        self.gauges();
        Ok(())
    }
}
