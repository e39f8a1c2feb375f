//! A view: these program bytes are those extent bytes.

use crate::extents::ExtentId;
use uncopy_ranges::span::Span;

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

impl Segment {
    /// Its first `len` bytes, and the rest.
    pub fn split(self, len: usize) -> (Self, Self) {
        let at = self.span.start + len;
        let tail = |v: View| View { offset: v.offset.wrapping_add(len as u32), ..v };
        let head = |v: View| View { end: at, ..v };
        (
            Self { span: Span::new(self.span.start, at), view: self.view.map(head) },
            Self { span: Span::new(at, self.span.end), view: self.view.map(tail) },
        )
    }
}
