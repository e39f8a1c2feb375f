//! Half-open ranges of addresses, and page arithmetic.

/// Size of a base page in bytes (x86-64).
pub const PAGE: usize = 4096;

/// Rounds an address down to its page.
pub const fn page_down(addr: usize) -> usize {
    addr & !(PAGE - 1)
}

/// Rounds an address up to a page; addresses in the last page of the address space stay there.
pub const fn page_up(addr: usize) -> usize {
    addr.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// The bytes `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First address.
    pub start: usize,
    /// One past the last address.
    pub end: usize,
}

impl Span {
    /// `start..end`; an end before the start makes an empty span.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// `len` bytes from `start`, cut off at the end of the address space.
    pub const fn sized(start: usize, len: usize) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    /// Length in bytes.
    pub const fn len(self) -> usize {
        self.end - self.start
    }

    /// Whether it has no bytes.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Length in whole pages, rounded down.
    pub const fn pages(self) -> usize {
        self.len() / PAGE
    }

    /// The whole pages inside (the *core*; what it cuts off are the *fringes*).
    pub const fn core(self) -> Self {
        Self::new(page_up(self.start), page_down(self.end))
    }

    /// The whole pages that contain it.
    pub const fn covering_pages(self) -> Self {
        Self::new(page_down(self.start), page_up(self.end))
    }

    /// The bytes in both.
    pub const fn intersect(self, other: Self) -> Self {
        let start = if self.start > other.start { self.start } else { other.start };
        let end = if self.end < other.end { self.end } else { other.end };
        Self::new(start, end)
    }

    /// From where the first of both begins to where the last ends, with what lies between.
    pub fn joined(self, other: Self) -> Self {
        Self::new(self.start.min(other.start), self.end.max(other.end))
    }

    /// The parts of it that are left without `other`: none, one or two.
    pub fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let before = Self::new(self.start, self.end.min(other.start));
        let behind = Self::new(self.start.max(other.end), self.end);
        let parts = if self.overlaps(other) { [before, behind] } else { [self, Self::new(0, 0)] };
        parts.into_iter().filter(|part| !part.is_empty())
    }

    /// Whether the byte at `addr` is in it.
    pub const fn contains(self, addr: usize) -> bool {
        self.start <= addr && addr < self.end
    }

    /// Whether they share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn without_a_span_its_two_ends_are_left_or_all_or_nothing() {
        let left = |a, b| Span::new(10, 20).without(Span::new(a, b)).collect::<Vec<_>>();
        assert_eq!(left(13, 15), [Span::new(10, 13), Span::new(15, 20)]);
        assert_eq!(left(5, 15), [Span::new(15, 20)]);
        assert_eq!(left(15, 25), [Span::new(10, 15)]);
        assert_eq!(left(0, 30), []);
        assert_eq!(left(20, 30), [Span::new(10, 20)]);
        assert_eq!(left(0, 10), [Span::new(10, 20)]);
    }
}
