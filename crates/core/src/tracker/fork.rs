//! A forked child takes the books over, or gives them up.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::plan::Copy;
use crate::span::{PAGE, Span, page_down};

impl<M: Memory> Tracker<M> {
    /// In a forked child: registers every range anew with the child's own userfaultfd (already
    /// in `memory`). Where that is refused, the views are handed to `write_out`: their pages are
    /// ordinary missing ones in the child, if they are mapped at all.
    pub fn register_all_again(&mut self, mut write_out: impl FnMut(Copy)) {
        let ranges: Vec<Span> = self.registered.iter().collect();
        for r in ranges {
            if self.memory.register(r).is_err() {
                self.write_out(r, &mut write_out);
                self.unmapped(r);
            }
        }
    }

    /// In a forked child where nobody can answer faults: hands every view to `write_out`, after
    /// which nothing is tracked. `unregister`: the child has a userfaultfd of its own (else
    /// `memory` has its parent's, which must not be used).
    pub fn give_up(&mut self, unregister: bool, mut write_out: impl FnMut(Copy)) {
        let all = Span::new(0, page_down(usize::MAX));
        if unregister {
            self.registered.iter().for_each(|r| self.memory.unregister(r));
        }
        self.write_out(all, &mut write_out);
        self.views.remove(all, &mut self.extents, &mut self.pool);
        self.registered.clear();
        self.filter.clear_tracked();
        self.gauges();
    }

    fn write_out(&self, span: Span, write_out: &mut impl FnMut(Copy)) {
        for (to, v) in self.views.iter_from(span.start).take_while(|(s, _)| *s < span.end) {
            if v.extent != ExtentId::NONE {
                write_out(Copy { to, from: self.address(v.extent, v.offset), len: v.end - to });
            }
        }
    }

    /// A vacant pool page, taken for good: its first touch wakes the monitor.
    pub fn spare_pool_page(&mut self) -> Option<usize> {
        self.pool.vacant.take(1).map(|page| self.memory.pool_span().start + page * PAGE)
    }

    /// Everything that is tracked, from the lowest address to the highest.
    pub fn everything(&self) -> Option<Span> {
        let first = self.registered.iter().next()?.start;
        let last = self.registered.iter().last()?.end;
        Some(Span::new(first, last))
    }
}
