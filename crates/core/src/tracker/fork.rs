//! A forked child takes the books over, or writes every view out.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::Copy;
use uncopy_decide::Refusal;
use uncopy_ranges::span::{Span, page_down};

impl<M: Memory> Tracker<M> {
    /// In a forked child: registers every range anew with the child's own userfaultfd (already
    /// in `memory`).
    ///
    /// # Errors
    /// One is refused: the child must write every view out.
    pub fn register_all_again(&mut self) -> Result<(), Refusal> {
        self.registered.iter().try_for_each(|r| self.memory.register(r))?;
        // (Memory of it that was unmapped before fork came by is refused.)
        self.reattach_all(M::register);
        Ok(())
    }

    /// In a forked child where nobody can answer faults (its userfaultfds, if it had any, are
    /// closed): hands every view to `write_out`, after which nothing is tracked.
    pub fn write_all_out(&mut self, mut write_out: impl FnMut(Copy)) {
        self.reattach_all(|_, _| Ok(()));
        let all = Span::new(0, page_down(usize::MAX));
        self.write_out(all, &mut write_out);
        self.views.remove(all, &mut self.extents, &mut self.backing);
        self.registered.clear();
        self.filter.track_only(core::iter::empty());
        self.gauges();
    }

    fn write_out(&self, span: Span, write_out: &mut impl FnMut(Copy)) {
        for (to, v) in self.views.iter_from(span.start).take_while(|(s, _)| *s < span.end) {
            if v.extent != ExtentId::NONE {
                write_out(Copy { to, from: self.address(v.extent, v.offset), len: v.end - to });
            }
        }
    }

    /// Everything that is tracked, from the lowest address to the highest.
    pub fn everything(&self) -> Option<Span> {
        let first = self.registered.iter().next()?.start;
        let last = self.registered.iter().last()?.end;
        Some(Span::new(first, last))
    }
}
