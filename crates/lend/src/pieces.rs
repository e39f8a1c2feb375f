//! The pieces of a call, those that go by reference told from the others.

use libc::iovec;
use uncopy_core::plan::MAX_PIECES;
use uncopy_ranges::span::{PAGE, Span};

/// Pages that the kernel hands from a pipe to a socket at once.
const BATCH: usize = 16;
/// Pieces of a call, or some of them.
pub(crate) struct List {
    pub(crate) pieces: [iovec; MAX_PIECES],
    pub(crate) count: usize,
}

impl List {
    pub(crate) fn get(&self) -> &[iovec] {
        &self.pieces[..self.count]
    }

    pub(crate) fn bytes(&self) -> usize {
        self.get().iter().map(|p| p.iov_len).sum()
    }
}

/// The pieces that are to be sent.
pub(crate) struct Pieces<'a> {
    pub(crate) all: &'a [iovec],
    /// A bit for each that goes by reference.
    pub(crate) lent: u64,
}

impl Pieces<'_> {
    /// From byte `from` on: all that is left, or all of one sort.
    pub(crate) fn collect(&self, from: usize, one_sort: bool) -> (List, bool) {
        let nothing = iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };
        let mut list = List { pieces: [nothing; MAX_PIECES], count: 0 };
        let (mut before, mut first) = (0, None);
        for (i, p) in self.all.iter().enumerate() {
            let skip = from.saturating_sub(before);
            before += p.iov_len;
            if skip >= p.iov_len {
                continue;
            }
            let sort = self.lent >> i & 1 != 0;
            if one_sort && *first.get_or_insert(sort) != sort {
                break;
            }
            let iov_base = p.iov_base.wrapping_byte_add(skip);
            list.pieces[list.count] = iovec { iov_base, iov_len: p.iov_len - skip };
            list.count += 1;
        }
        (list, first == Some(true))
    }

    pub(crate) fn run(&self, from: usize) -> Option<(List, bool)> {
        let (list, lent) = self.collect(from, true);
        (list.count > 0).then_some((list, lent))
    }

    /// If what goes by reference lies together and is one batch, but with the rest would be two:
    /// the bytes before it, and its own.
    pub(crate) fn single_batch(&self) -> Option<(usize, usize)> {
        let first = self.lent.trailing_zeros() as usize;
        let count = self.lent.count_ones() as usize;
        if count == 0 || self.lent >> first != (1 << count) - 1 {
            return None;
        }
        let pages =
            |p: &iovec| Span::sized(p.iov_base as usize, p.iov_len).covering_pages().pages();
        let body = &self.all[first..first + count];
        let body_pages: usize = body.iter().map(pages).sum();
        let bytes = |list: &[iovec]| list.iter().map(|p| p.iov_len).sum::<usize>();
        let (head, tail) = (bytes(&self.all[..first]), bytes(&self.all[first + count..]));
        let all_pages = body_pages + head.div_ceil(PAGE) + tail.div_ceil(PAGE);
        (body_pages <= BATCH && all_pages > BATCH).then(|| (head, bytes(body)))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|p| p.iov_len).sum()
    }
}
