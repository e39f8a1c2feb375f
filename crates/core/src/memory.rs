//! The tracker's requests to the machine: the only door from pure logic to pages.

use uncopy_decide::Refusal;
use uncopy_ranges::span::Span;

/// Why moving pages out of the program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It did not: all pages were moved.
    Done,
    /// A page that was never touched, where holes were not allowed.
    Hole,
    /// A page was refused.
    Refused(Refusal),
}

/// The result of [`Memory::move_out`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Pages moved (or, with holes allowed, known to be missing), from the start of the span.
    pub pages: usize,
    /// Why it ended.
    pub stop: Stop,
}

/// A piece of the content of pages to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// `len` bytes from this address (of an extent).
    Bytes {
        /// Address of the first byte.
        from: usize,
        /// Length in bytes.
        len: usize,
    },
    /// `len` zero bytes.
    Zero {
        /// Length in bytes.
        len: usize,
    },
}

/// Why pages could not be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillError {
    /// The memory map is changing under us (EAGAIN), or there is no memory: read the kernel's
    /// events, then try again.
    Again,
    /// The kernel does not take our calls here (our descriptor was closed): the pages can only be
    /// touched, for the monitor to answer.
    Refused,
}

/// Pages of the program and of the pool. Addresses are plain numbers; spans are whole pages.
pub trait Memory {
    /// Where the pool is; its first page is pool page 0.
    fn pool_span(&self) -> Span;

    /// Lets touches of missing pages in `span` be reported to us.
    ///
    /// # Errors
    /// Where the memory is not private and anonymous, is not mapped, or has another owner.
    fn register(&mut self, span: Span) -> Result<(), Refusal>;

    /// Ends that; missing pages of `span` become ordinary fresh memory. Wakes who waits there.
    fn unregister(&mut self, span: Span);

    /// Whether an unmap, remove or remap by some thread is under way and not yet reported. `None`:
    /// that cannot be known (a sandbox forbids the call).
    fn map_changing(&mut self) -> Option<bool>;

    /// Moves the pages of `from` into the vacant pool pages that start at page number `slot`.
    fn move_out(&mut self, from: Span, slot: usize, holes_allowed: bool) -> Taken;

    /// Moves the pages from the address `from` on, of the pool or of a region that allows it, into
    /// the missing pages of `to`, and wakes who waits there. Returns how many pages were moved,
    /// from the start; the others are where they were.
    fn move_in(&mut self, to: Span, from: usize) -> usize;

    /// Makes `pages` pool pages from page number `slot` vacant. Returns false if they may still
    /// have memory behind them.
    #[must_use]
    fn discard(&mut self, slot: usize, pages: usize) -> bool;

    /// Whether an extent may be made now.
    fn room(&mut self) -> bool {
        true
    }

    /// Whether there is memory for keeping the books of anything more.
    fn books_have_room(&mut self) -> bool {
        true
    }

    /// By how many bytes more is held, for the next extents or otherwise, than may be.
    fn over(&mut self) -> usize {
        0
    }

    /// Fills the missing pages of `span` with `pieces`, which tile it, each page in one step as far
    /// as anyone who touches it can see, and wakes who waits there. A page that turns out to be
    /// present, or not mapped any more, is left as it is. Returns how many pages are done, from
    /// the start, and if not all are, why.
    fn fill(&mut self, span: Span, pieces: &[Piece]) -> (usize, Result<(), FillError>);
}
