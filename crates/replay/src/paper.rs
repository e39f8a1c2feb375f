//! Memory on paper: it knows which of the program's pages are missing, and nothing else.

use std::collections::{HashMap, VecDeque};
use uncopy_core::memory::{FillError, Memory, Piece, Stop, Taken};
use uncopy_decide::Refusal;
use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::span::{PAGE, Span, page_down};

/// Where the pool is; no program has memory there.
const POOL: Span = Span::sized(1 << 60, 1 << 36);

/// See the module.
#[derive(Debug, Default)]
pub struct Paper {
    missing: Ranges,
    /// As what a page will still be refused, each time.
    refused: HashMap<usize, VecDeque<Refusal>>,
}

impl Paper {
    /// How many pages the pool has.
    pub const POOL_PAGES: usize = POOL.pages();

    /// These will be refused, each as often as it is named, and nothing else.
    pub fn refuse_only(&mut self, refusals: impl Iterator<Item = (Span, Refusal)>) {
        self.refused.clear();
        for (span, why) in refusals {
            self.refused.entry(page_down(span.start)).or_default().push_back(why);
        }
    }

    /// Whether a touch at `addr` faults.
    pub fn is_missing(&self, addr: usize) -> bool {
        self.missing.touches(Span::sized(page_down(addr), PAGE))
    }

    /// The mapping of `span` is gone.
    pub fn unmapped(&mut self, span: Span) {
        self.missing.remove(span);
    }

    /// It moved.
    pub fn moved(&mut self, from: usize, to: usize, len: usize) {
        let (old, new) = (Span::sized(from, len), Span::sized(to, len));
        self.missing.remove(new);
        while let Some(there) = self.missing.next_in(old.start, old.end) {
            self.missing.remove(there);
            self.missing.insert(Span::sized(there.start - from + to, there.len()));
        }
    }

    /// The first page of `span` that is refused now, if any is, and as what.
    fn refuses(&mut self, span: Span) -> Option<(usize, Refusal)> {
        if self.refused.is_empty() {
            return None;
        }
        let page =
            (span.start..span.end).step_by(PAGE).find(|page| self.refused.contains_key(page))?;
        let left = self.refused.get_mut(&page)?;
        let why = left.pop_front()?;
        if left.is_empty() {
            self.refused.remove(&page);
        }
        Some((page, why))
    }
}

impl Memory for Paper {
    fn pool_span(&self) -> Span {
        POOL
    }

    fn register(&mut self, _: Span) -> Result<(), Refusal> {
        Ok(())
    }

    fn unregister(&mut self, span: Span) {
        self.missing.remove(span);
    }

    fn map_changing(&mut self) -> Option<bool> {
        Some(false)
    }

    fn move_out(&mut self, from: Span, _: usize, _: bool) -> Taken {
        let refused = self.refuses(from);
        let (end, stop) = match refused {
            Some((page, why)) => (page, Stop::Refused(why)),
            None => (from.end, Stop::Done),
        };
        let gone = Span::new(from.start, end);
        self.missing.insert(gone);
        Taken { pages: gone.pages(), stop }
    }

    fn move_in(&mut self, to: Span, _: usize) -> usize {
        self.missing.remove(to);
        to.pages()
    }

    fn discard(&mut self, _: usize, _: usize) -> bool {
        true
    }

    fn fill(&mut self, span: Span, _: &[Piece]) -> (usize, Result<(), FillError>) {
        self.missing.remove(span);
        (span.pages(), Ok(()))
    }
}
