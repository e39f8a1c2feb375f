//! Which program bytes are which extent bytes.
//!
//! Views exist only on pages that are unmapped, and they tile such pages without gaps. So "the
//! page at `a` is unmapped and ours" and "some view covers `a`" are the same statement.

use crate::extents::{Extent, ExtentId, Extents};
use crate::span::Span;
use std::collections::BTreeMap;

/// The bytes from its key up to `end` are `extent`'s bytes from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// One past the last program address.
    pub end: usize,
    /// The extent, or [`ExtentId::NONE`] for zeros.
    pub extent: ExtentId,
    /// Offset of the first byte in the extent, in bytes.
    pub offset: u32,
    /// The call site whose decision made these pages unmapped.
    pub site: u16,
}

/// A part of a range: a stretch of one view, or a stretch without views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The program bytes.
    pub span: Span,
    /// The view, cut to the span; `None`: resident (or unknown) memory.
    pub view: Option<View>,
}

/// All views, in address order.
#[derive(Debug, Default)]
pub struct Views {
    map: BTreeMap<usize, View>,
}

/// Receives extents whose last reference went away.
pub trait Reclaim {
    /// The extent `e` is gone; its pages are free.
    fn reclaim(&mut self, e: Extent);
}

impl Views {
    /// None.
    pub const fn new() -> Self {
        Self { map: BTreeMap::new() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// The view over `addr` and its first address.
    pub fn at(&self, addr: usize) -> Option<(usize, View)> {
        let (&start, &v) = self.map.range(..=addr).next_back()?;
        (v.end > addr).then_some((start, v))
    }

    /// The view that ends exactly at `addr`, and its first address.
    pub fn ending_at(&self, addr: usize) -> Option<(usize, View)> {
        let (&start, &v) = self.map.range(..addr).next_back()?;
        (v.end == addr).then_some((start, v))
    }

    /// Whether any byte of `span` is a view.
    pub fn touches(&self, span: Span) -> bool {
        self.map.range(..span.end).next_back().is_some_and(|(_, v)| v.end > span.start)
    }

    /// The segment that begins at `from`, cut off at `until`.
    pub fn segment(&self, from: usize, until: usize) -> Segment {
        match self.map.range(..=from).next_back() {
            Some((&start, v)) if v.end > from => {
                let end = v.end.min(until);
                let offset = v.offset.wrapping_add((from - start) as u32);
                Segment { span: Span::new(from, end), view: Some(View { end, offset, ..*v }) }
            }
            _ => {
                let end = self.map.range(from..until).next().map_or(until, |(&s, _)| s);
                Segment { span: Span::new(from, end), view: None }
            }
        }
    }

    /// The segments of `span`, in order.
    pub fn segments(&self, span: Span) -> impl Iterator<Item = Segment> + '_ {
        let mut at = span.start;
        std::iter::from_fn(move || {
            if at >= span.end {
                return None;
            }
            let s = self.segment(at, span.end);
            at = s.span.end;
            Some(s)
        })
    }

    /// The stretch of views (`true`) or of none (`false`) that begins at `from`.
    pub fn covered_run(&self, from: usize, until: usize) -> (Span, bool) {
        let first = self.segment(from, until);
        let covered = first.view.is_some();
        let mut end = first.span.end;
        while covered && end < until {
            let next = self.segment(end, until);
            if next.view.is_none() {
                break;
            }
            end = next.span.end;
        }
        (Span::new(from, end), covered)
    }

    /// Every view with its first address, in order, from `start` on.
    pub fn iter_from(&self, start: usize) -> impl Iterator<Item = (usize, &View)> {
        self.map.range(start..).map(|(&s, v)| (s, v))
    }

    fn cut(&mut self, at: usize, extents: &mut Extents) {
        if let Some((&start, v)) = self.map.range_mut(..at).next_back()
            && v.end > at
        {
            let right = View { offset: v.offset.wrapping_add((at - start) as u32), ..*v };
            v.end = at;
            extents.hold(right.extent);
            self.map.insert(at, right);
        }
    }

    /// Ends all views of the bytes in `span` (which then have none).
    pub fn remove(&mut self, span: Span, extents: &mut Extents, pool: &mut impl Reclaim) {
        if span.is_empty() || !self.touches(span) {
            return;
        }
        self.cut(span.start, extents);
        self.cut(span.end, extents);
        while let Some((&start, &v)) = self.map.range(span.start..span.end).next() {
            self.map.remove(&start);
            if let Some(e) = extents.drop_ref(v.extent) {
                pool.reclaim(e);
            }
        }
    }

    /// Makes the bytes of `span` the extent's bytes from `offset` on, in place of what they were.
    /// Takes its own reference.
    pub fn assign(
        &mut self,
        span: Span,
        extent: ExtentId,
        offset: u32,
        site: u16,
        extents: &mut Extents,
        pool: &mut impl Reclaim,
    ) {
        if span.is_empty() {
            return;
        }
        extents.hold(extent);
        let new = View { end: span.end, extent, offset, site };
        // The steady state: the same buffer becomes a view of the next extent.
        if let Some(old) = self.map.get_mut(&span.start)
            && old.end == span.end
        {
            let gone = std::mem::replace(old, new).extent;
            if let Some(e) = extents.drop_ref(gone) {
                pool.reclaim(e);
            }
            return;
        }
        self.remove(span, extents, pool);
        // A continuation of its left neighbour (the next part of a message) joins it.
        if let Some((&start, left)) = self.map.range_mut(..span.start).next_back()
            && left.end == span.start
            && left.extent == extent
            && (extent == ExtentId::NONE
                || left.offset.wrapping_add((span.start - start) as u32) == offset)
        {
            left.end = span.end;
            if let Some(e) = extents.drop_ref(extent) {
                pool.reclaim(e);
            }
            return;
        }
        self.map.insert(span.start, new);
    }

    /// Moves the views of `from` (and only them) by `distance` bytes; what was there is gone.
    pub fn shift(&mut self, from: Span, distance: isize, extents: &mut Extents) {
        self.cut(from.start, extents);
        self.cut(from.end, extents);
        let moved: Vec<_> = self.map.range(from.start..from.end).map(|(&s, &v)| (s, v)).collect();
        for (s, _) in &moved {
            self.map.remove(s);
        }
        for (s, v) in moved {
            let end = v.end.wrapping_add_signed(distance);
            self.map.insert(s.wrapping_add_signed(distance), View { end, ..v });
        }
    }
}
