//! The invariants, checked by tests.

use core::fmt;

use super::Tracker;
use crate::extents::ExtentId;
use crate::memory::Memory;
use crate::view::View;
use uncopy_ranges::span::{PAGE, Span};

/// An invariant of the books that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A view begins before the last one ends, or is empty.
    Overlap { at: usize },
    /// Views do not tile the pages before this address.
    Hole { at: usize },
    /// A view lies in memory that is not registered.
    Unregistered { at: usize },
    /// A view shows more of its extent than is filled.
    Unfilled { at: usize },
    /// The bytes that are views are not as many as are counted.
    Bytes { views: usize, counted: usize },
    /// An extent lies outside of its region.
    Outside(ExtentId),
    /// An extent's references are not as many as the views of it.
    References { extent: ExtentId, counted: u32, views: u32 },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { at } => write!(f, "views overlap or are empty at {at:#x}"),
            Self::Hole { at } => write!(f, "views do not tile pages before {at:#x}"),
            Self::Unregistered { at } => write!(f, "view at {at:#x} is not registered"),
            Self::Unfilled { at } => write!(f, "view at {at:#x} reaches behind what is filled"),
            Self::Bytes { views, counted } => {
                write!(f, "{views} bytes are views, {counted} are counted")
            }
            Self::Outside(extent) => write!(f, "{extent:?} lies outside of its region"),
            Self::References { extent, counted, views } => {
                write!(f, "{extent:?} has {counted} references, {views} views")
            }
        }
    }
}

impl core::error::Error for Broken {}

impl<M: Memory> Tracker<M> {
    /// Checks the invariants that the books alone can show (for tests).
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let mut refs = std::collections::HashMap::new();
        let mut last = Span::new(0, 0);
        let mut bytes = 0;
        let mut previous: Option<(usize, View)> = None;
        for (start, v) in self.views.iter_from(0) {
            let adjacent = previous.is_some_and(|(_, p)| p.end == start);
            if start < last.end || v.end <= start {
                return Err(Broken::Overlap { at: start });
            }
            let aligned = start.is_multiple_of(PAGE) && last.end.is_multiple_of(PAGE);
            if !adjacent && !aligned {
                return Err(Broken::Hole { at: start });
            }
            if self.registered.next_gap(start, v.end).is_some() {
                return Err(Broken::Unregistered { at: start });
            }
            if v.extent != ExtentId::NONE {
                *refs.entry(v.extent).or_insert(0u32) += 1;
                let e = self.extents.get(v.extent);
                if v.offset as usize + (v.end - start) > e.filled as usize {
                    return Err(Broken::Unfilled { at: start });
                }
            }
            last = Span::new(start, v.end);
            bytes += last.len();
            previous = Some((start, *v));
        }
        if !last.end.is_multiple_of(PAGE) {
            return Err(Broken::Hole { at: last.end });
        }
        if self.views.bytes() != bytes {
            return Err(Broken::Bytes { views: bytes, counted: self.views.bytes() });
        }
        for (id, e) in self.extents.iter() {
            if e.is_foreign() && !self.backing.regions.holds(e.region, e.span()) {
                return Err(Broken::Outside(id));
            }
            let counted = refs.get(&id).copied().unwrap_or(0);
            if e.refs != counted {
                return Err(Broken::References { extent: id, counted: e.refs, views: counted });
            }
        }
        Ok(())
    }
}
