//! Which bytes of memory are which bytes of which input.

use super::layout::Step;
use std::collections::BTreeMap;
use uncopy_ranges::span::Span;

/// The tag of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Number of the input (of [`super::inputs::Inputs`]).
    pub input: u32,
    /// Where in the input the run begins, in bytes.
    pub offset: usize,
    /// The sequence of copies that it came by.
    pub node: u32,
    /// When it got here, in ms.
    pub time: u32,
}

impl Tag {
    fn later(self, by: usize) -> Self {
        Self { offset: self.offset + by, ..self }
    }
}

/// A run of bytes in memory with its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub span: Span,
    /// The tag.
    pub tag: Tag,
}

impl Piece {
    /// The part of it that lies in `span`.
    pub fn within(self, span: Span) -> Self {
        let start = self.span.start.max(span.start);
        let cut = Span::new(start, self.span.end.min(span.end));
        Self { span: cut, tag: self.tag.later(start - self.span.start) }
    }
}

/// All runs, by address; they do not overlap.
#[derive(Debug, Default)]
pub struct Tags(BTreeMap<usize, (usize, Tag)>);

impl Tags {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs that reach into `span`, whole.
    fn touching(&self, span: Span) -> impl Iterator<Item = Piece> + '_ {
        let before =
            self.0.range(..span.start).next_back().filter(|(_, (end, _))| *end > span.start);
        before
            .into_iter()
            .chain(self.0.range(span.start..span.end.max(span.start)))
            .map(|(start, (end, tag))| Piece { span: Span::new(*start, *end), tag: *tag })
    }

    /// The known pieces of `span`, in order.
    pub fn within(&self, span: Span) -> impl Iterator<Item = Piece> + '_ {
        self.touching(span).map(move |p| p.within(span))
    }

    /// Takes what is known of `span` away, and hands it over.
    pub fn take(&mut self, span: Span) -> Vec<Piece> {
        if span.is_empty() {
            return Vec::new();
        }
        let whole: Vec<Piece> = self.touching(span).collect();
        for p in &whole {
            self.0.remove(&p.span.start);
            if p.span.start < span.start {
                self.0.insert(p.span.start, (span.start, p.tag));
            }
            if p.span.end > span.end {
                let rest = p.tag.later(span.end - p.span.start);
                self.0.insert(span.end, (p.span.end, rest));
            }
        }
        whole.into_iter().map(|p| p.within(span)).collect()
    }

    /// Adds a run where nothing is known; it joins the one before where it continues that.
    pub fn put(&mut self, piece: Piece) {
        if piece.span.is_empty() {
            return;
        }
        debug_assert!(self.within(piece.span).next().is_none());
        if let Some((start, (end, tag))) = self.0.range_mut(..piece.span.start).next_back()
            && *end == piece.span.start
            && tag.later(*end - *start) == piece.tag
        {
            *end = piece.span.end;
            return;
        }
        self.0.insert(piece.span.start, (piece.span.end, piece.tag));
    }

    /// Keeps only the runs of inputs that `keep`.
    pub fn retain(&mut self, mut keep: impl FnMut(Piece) -> bool) {
        self.0.retain(|start, (end, tag)| keep(Piece { span: Span::new(*start, *end), tag: *tag }));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Piece> + '_ {
        self.0.iter().map(|(s, (e, tag))| Piece { span: Span::new(*s, *e), tag: *tag })
    }
}

/// A set of byte offsets, as runs.
#[derive(Debug, Default)]
pub struct Offsets(BTreeMap<usize, usize>);

impl Offsets {
    /// Adds `start..end`; returns how many bytes of it are new.
    pub fn add(&mut self, mut start: usize, mut end: usize) -> usize {
        if start >= end {
            return 0;
        }
        let new = end - start - self.count(start, end);
        let before = self.0.range(..start).next_back().filter(|(_, e)| **e >= start);
        let joined: Vec<usize> =
            before.into_iter().chain(self.0.range(start..=end)).map(|(s, _)| *s).collect();
        for s in joined {
            if let Some(e) = self.0.remove(&s) {
                start = start.min(s);
                end = end.max(e);
            }
        }
        self.0.insert(start, end);
        new
    }

    /// Takes `start..end` out.
    pub fn remove(&mut self, start: usize, end: usize) {
        let before = self.0.range(..start).next_back().filter(|(_, e)| **e > start);
        let hit: Vec<(usize, usize)> = before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .map(|(s, e)| (*s, *e))
            .collect();
        for (s, e) in hit {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start);
            }
            if e > end {
                self.0.insert(end, e);
            }
        }
    }

    /// Takes what of `start..end` is not in `other` out.
    pub fn remove_but(&mut self, start: usize, end: usize, other: &Self) {
        let before = other.0.range(..start).next_back().filter(|(_, e)| **e > start);
        let kept = before.into_iter().chain(other.0.range(start..end.max(start)));
        let mut from = start;
        for (s, e) in kept {
            self.remove(from, (*s).max(from));
            from = (*e).min(end);
        }
        self.remove(from, end);
    }

    /// How many bytes of `start..end` are in the set.
    pub fn count(&self, start: usize, end: usize) -> usize {
        let before = self.0.range(..start).next_back().filter(|(_, e)| **e > start);
        before
            .into_iter()
            .chain(self.0.range(start..end.max(start)))
            .map(|(s, e)| (*e).min(end) - (*s).max(start))
            .sum()
    }

    /// How many bytes are in the set.
    pub fn total(&self) -> usize {
        self.0.iter().map(|(s, e)| e - s).sum()
    }
}

/// A place in the tree of sequences: what leads from one node to the next.
pub type Edge = (u32, u32, Step);

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(input: u32, offset: usize) -> Tag {
        Tag { input, offset, node: 1, time: 0 }
    }

    #[test]
    fn taking_the_middle_leaves_both_ends_with_their_offsets() {
        let mut tags = Tags::default();
        tags.put(Piece { span: Span::new(100, 200), tag: tag(1, 1000) });
        let taken = tags.take(Span::new(120, 150));
        assert_eq!(taken, [Piece { span: Span::new(120, 150), tag: tag(1, 1020) }]);
        let left: Vec<Piece> = tags.iter().collect();
        assert_eq!(left[0], Piece { span: Span::new(100, 120), tag: tag(1, 1000) });
        assert_eq!(left[1], Piece { span: Span::new(150, 200), tag: tag(1, 1050) });
    }

    #[test]
    fn tags_that_continue_are_joined() {
        let mut tags = Tags::default();
        tags.put(Piece { span: Span::new(0, 10), tag: tag(1, 0) });
        tags.put(Piece { span: Span::new(10, 20), tag: tag(1, 10) });
        tags.put(Piece { span: Span::new(20, 30), tag: tag(1, 0) });
        assert_eq!(tags.len(), 2);
    }

    #[test]
    fn offsets_count_each_byte_once() {
        let mut set = Offsets::default();
        assert_eq!((set.add(10, 20), set.add(15, 30), set.add(40, 50)), (10, 10, 10));
        assert_eq!((set.add(0, 100), set.total()), (70, 100));
        set.remove(10, 20);
        assert_eq!((set.total(), set.count(5, 25)), (90, 10));
        let mut other = Offsets::default();
        other.add(0, 5);
        other.add(90, 200);
        set.remove_but(2, 95, &other);
        assert_eq!((set.total(), set.count(0, 5), set.count(90, 100)), (15, 5, 10));
    }
}
