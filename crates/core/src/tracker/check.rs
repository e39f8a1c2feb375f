//! The invariants, checked by tests.

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::view::View;
use uncopy_ranges::span::{PAGE, Span};

impl<M: Memory> Tracker<M> {
    /// Checks the invariants that the books alone can show (for tests).
    pub fn check(&self) -> Result<(), String> {
        let mut refs = std::collections::HashMap::new();
        let mut last = Span::new(0, 0);
        let mut bytes = 0;
        let mut previous: Option<(usize, View)> = None;
        for (start, v) in self.views.iter_from(0) {
            let adjacent = previous.is_some_and(|(_, p)| p.end == start);
            if start < last.end || v.end <= start {
                return Err(format!("views overlap or are empty at {start:#x}"));
            }
            let aligned = start.is_multiple_of(PAGE) && last.end.is_multiple_of(PAGE);
            if !adjacent && !aligned {
                return Err(format!("views do not tile pages before {start:#x}"));
            }
            if self.registered.next_gap(start, v.end).is_some() {
                return Err(format!("view at {start:#x} is not registered"));
            }
            if v.extent != ExtentId::NONE {
                *refs.entry(v.extent).or_insert(0u32) += 1;
                let e = self.extents.get(v.extent);
                if v.offset as usize + (v.end - start) > e.filled as usize {
                    return Err(format!("view at {start:#x} reaches behind what is filled"));
                }
            }
            last = Span::new(start, v.end);
            bytes += last.len();
            previous = Some((start, *v));
        }
        if !last.end.is_multiple_of(PAGE) {
            return Err("the last views do not tile their page".into());
        }
        if self.views.bytes() != bytes {
            return Err(format!("{bytes} bytes are views, {} are counted", self.views.bytes()));
        }
        for (id, e) in self.extents.iter() {
            if e.is_foreign() && !self.backing.regions.holds(e.region, e.span()) {
                return Err(format!("{id:?} lies outside of its region"));
            }
            let counted = refs.get(&id).copied().unwrap_or(0);
            if e.refs != counted {
                return Err(format!("{id:?} has {} references, {counted} views", e.refs));
            }
        }
        Ok(())
    }
}
