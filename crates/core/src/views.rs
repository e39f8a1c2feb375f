//! Which program bytes are which extent bytes.
//!
//! Views exist only on pages that are unmapped, and they tile such pages without gaps. So "the
//! page at `a` is unmapped and ours" and "some view covers `a`" are the same statement.

use crate::extents::{Extent, ExtentId, Extents};
use crate::plan::MAX_PIECES;
use crate::sorted::{Cursor, Sorted};
use crate::view::{Segment, View};
use uncopy_ranges::span::Span;

/// All views, in address order.
#[derive(Debug, Default)]
pub struct Views {
    map: Sorted,
    bytes: usize,
}

/// Receives extents whose last reference went away.
pub trait Reclaim {
    /// The extent `e` is gone; what it lies in is free.
    fn reclaim(&mut self, e: Extent);
}

/// Walks along the views of a range, segment by segment.
#[derive(Debug)]
pub struct Walk<'a> {
    map: &'a Sorted,
    /// The view over `at`, or the first one behind it.
    next: Option<Cursor>,
    at: usize,
    until: usize,
}

impl Iterator for Walk<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        let (from, until) = (self.at, self.until);
        if from >= until {
            return None;
        }
        let Some(p) = self.next else {
            self.at = until;
            return Some(Segment { span: Span::new(from, until), view: None });
        };
        let start = self.map.key(p);
        if start > from {
            self.at = start.min(until);
            return Some(Segment { span: Span::new(from, self.at), view: None });
        }
        let v = *self.map.view(p);
        let end = v.end.min(until);
        self.at = end;
        self.next = self.map.next(p);
        let offset = v.offset.wrapping_add((from - start) as u32);
        Some(Segment { span: Span::new(from, end), view: Some(View { end, offset, ..v }) })
    }
}

impl Views {
    /// None.
    pub const fn new() -> Self {
        Self { map: Sorted::new(), bytes: 0 }
    }

    /// Whether the views that one call makes can be added without a large allocation that might
    /// fail.
    pub fn reserve(&mut self) -> bool {
        self.map.reserve(2 * MAX_PIECES)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.map.count()
    }

    /// How many bytes are views.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The view over `addr` and its first address.
    pub fn at(&self, addr: usize) -> Option<(usize, View)> {
        let p = self.map.floor(addr)?;
        let v = *self.map.view(p);
        (v.end > addr).then(|| (self.map.key(p), v))
    }

    /// The view that ends exactly at `addr`, and its first address.
    pub fn ending_at(&self, addr: usize) -> Option<(usize, View)> {
        let p = self.map.floor(addr.checked_sub(1)?)?;
        let v = *self.map.view(p);
        (v.end == addr).then(|| (self.map.key(p), v))
    }

    /// Whether any byte of `span` is a view.
    #[inline]
    pub fn touches(&self, span: Span) -> bool {
        !span.is_empty()
            && self.map.floor(span.end - 1).is_some_and(|p| self.map.view(p).end > span.start)
    }

    /// Walks along `span`.
    #[inline]
    pub fn segments(&self, span: Span) -> Walk<'_> {
        let next = match self.map.floor(span.start) {
            Some(p) if self.map.view(p).end > span.start => Some(p),
            Some(p) => self.map.next(p),
            None => self.map.first(),
        };
        Walk { map: &self.map, next, at: span.start, until: span.end }
    }

    /// The stretch of views (`true`) or of none (`false`) that begins at `from`.
    #[inline]
    pub fn covered_run(&self, from: usize, until: usize) -> (Span, bool) {
        let mut walk = self.segments(Span::new(from, until));
        let Some(first) = walk.next() else { return (Span::new(from, from), false) };
        let covered = first.view.is_some();
        let mut end = first.span.end;
        if covered {
            for s in walk.take_while(|s| s.view.is_some()) {
                end = s.span.end;
            }
        }
        (Span::new(from, end), covered)
    }

    /// Every view with its first address, in order, from the first that begins at `start` on.
    pub fn iter_from(&self, start: usize) -> impl Iterator<Item = (usize, &View)> {
        let mut at = self.map.ceiling(start);
        std::iter::from_fn(move || {
            let p = at?;
            at = self.map.next(p);
            Some((self.map.key(p), self.map.view(p)))
        })
    }

    fn cut(&mut self, at: usize, extents: &mut Extents) {
        if let Some(p) = at.checked_sub(1).and_then(|a| self.map.floor(a)) {
            let start = self.map.key(p);
            let v = self.map.view_mut(p);
            if v.end > at {
                let right = View { offset: v.offset.wrapping_add((at - start) as u32), ..*v };
                v.end = at;
                extents.hold(right.extent);
                self.map.insert(at, right);
            }
        }
    }

    /// Ends all views of the bytes in `span` (which then have none).
    pub fn remove(&mut self, span: Span, extents: &mut Extents, backing: &mut impl Reclaim) {
        if !self.touches(span) {
            return;
        }
        self.cut(span.start, extents);
        self.cut(span.end, extents);
        let bytes = &mut self.bytes;
        self.map.remove(span.start, span.end, |start, v| {
            *bytes -= v.end - start;
            if let Some(e) = extents.drop_ref(v.extent) {
                backing.reclaim(e);
            }
        });
    }

    /// Takes the views of `span` out, with their references, to be kept aside.
    pub fn split_off(&mut self, span: Span, extents: &mut Extents) -> Self {
        let mut out = Vec::new();
        self.detach(span, extents, &mut out);
        let mut aside = Self::new();
        out.into_iter().for_each(|(start, v)| aside.insert(start, v));
        aside
    }

    /// Takes the views of `span` out, with their references.
    fn detach(&mut self, span: Span, extents: &mut Extents, out: &mut Vec<(usize, View)>) {
        self.cut(span.start, extents);
        self.cut(span.end, extents);
        let bytes = &mut self.bytes;
        self.map.remove(span.start, span.end, |start, v| {
            *bytes -= v.end - start;
            out.push((start, v));
        });
    }

    /// Where there is none.
    fn insert(&mut self, start: usize, view: View) {
        self.bytes += view.end - start;
        self.map.insert(start, view);
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
        backing: &mut impl Reclaim,
    ) {
        if span.is_empty() {
            return;
        }
        extents.hold(extent);
        let new = View { end: span.end, extent, offset, site };
        // The steady state: the same buffer becomes a view of the next extent.
        if let Some(p) = self.map.floor(span.start)
            && self.map.key(p) == span.start
            && self.map.view(p).end == span.end
        {
            let gone = std::mem::replace(self.map.view_mut(p), new).extent;
            if let Some(e) = extents.drop_ref(gone) {
                backing.reclaim(e);
            }
            return;
        }
        self.remove(span, extents, backing);
        // A continuation of its left neighbour (the next part of a message) joins it.
        if let Some(p) = self.map.floor(span.start) {
            let start = self.map.key(p);
            let left = self.map.view_mut(p);
            if left.end == span.start
                && left.extent == extent
                && (extent == ExtentId::NONE
                    || left.offset.wrapping_add((span.start - start) as u32) == offset)
            {
                left.end = span.end;
                self.bytes += span.len();
                if let Some(e) = extents.drop_ref(extent) {
                    backing.reclaim(e);
                }
                return;
            }
        }
        self.insert(span.start, new);
    }

    /// Makes the view that is just `to` a view of the bytes at `src`, if one view covers them all:
    /// what a copy in the steady state comes to. Returns the extent, which `to` now refers to.
    #[inline]
    pub fn follow(
        &mut self,
        to: Span,
        src: usize,
        site: u16,
        extents: &mut Extents,
        backing: &mut impl Reclaim,
    ) -> Option<ExtentId> {
        let from = self.map.floor(src)?;
        let source = *self.map.view(from);
        if source.end < src + to.len() || source.extent == ExtentId::NONE {
            return None;
        }
        let offset = source.offset.wrapping_add((src - self.map.key(from)) as u32);
        let p = self.map.floor(to.start)?;
        if self.map.key(p) != to.start || self.map.view(p).end != to.end {
            return None;
        }
        extents.hold(source.extent);
        let new = View { end: to.end, extent: source.extent, offset, site };
        let gone = std::mem::replace(self.map.view_mut(p), new).extent;
        if let Some(e) = extents.drop_ref(gone) {
            backing.reclaim(e);
        }
        Some(source.extent)
    }

    /// Every view of an extent of which `copy` names a copy becomes a view of that.
    pub fn follow_copies(
        &mut self,
        copy: impl Fn(ExtentId, &Extent) -> Option<ExtentId>,
        extents: &mut Extents,
        backing: &mut impl Reclaim,
    ) {
        let mut at = self.map.first();
        while let Some(p) = at {
            at = self.map.next(p);
            let v = self.map.view_mut(p);
            if v.extent == ExtentId::NONE {
                continue;
            }
            let Some(new) = copy(v.extent, extents.get(v.extent)) else { continue };
            extents.hold(new);
            let gone = std::mem::replace(&mut v.extent, new);
            if let Some(e) = extents.drop_ref(gone) {
                backing.reclaim(e);
            }
        }
    }

    /// Moves the views of `from` (and only them) by `distance` bytes; nothing is there.
    pub fn shift(&mut self, from: Span, distance: isize, extents: &mut Extents) {
        let mut moved = Vec::new();
        self.detach(from, extents, &mut moved);
        for (s, v) in moved {
            let end = v.end.wrapping_add_signed(distance);
            self.insert(s.wrapping_add_signed(distance), View { end, ..v });
        }
    }
}
