//! Memory of somebody else's, and what he knows of it: which ranges he has handed over. He uses
//! again what comes back at once, so that a range that is released while anybody still reads it
//! gives wrong bytes.

use super::Random;
use std::cell::RefCell;
use uncopy_core::regions::{Owner, Region, RegionId};
use uncopy_ranges::span::{PAGE, Span};

thread_local! {
    /// Spans that came back, and to whom: in this test an owner is known by where his memory
    /// begins.
    static RELEASED: RefCell<Vec<(usize, Span)>> = const { RefCell::new(Vec::new()) };
}

fn released(owner: usize, span: Span) {
    RELEASED.with_borrow_mut(|r| r.push((owner, span)));
}

/// Takes what came back so far.
pub fn take_released() -> Vec<(usize, Span)> {
    RELEASED.take()
}

/// A region, and its owner's books.
pub struct Foreign {
    base: usize,
    pages: Vec<Option<Box<[u8; PAGE]>>>,
    movable: bool,
    /// The tracker's number for it.
    pub id: Option<RegionId>,
    out: Vec<Span>,
    /// Ranges that came back.
    pub came_back: u64,
    /// Pages that were moved away.
    pub moved: u64,
}

impl Foreign {
    pub fn new(base: usize, pages: usize, movable: bool) -> Self {
        let pages = (0..pages).map(|_| None).collect();
        Self { base, pages, movable, id: None, out: Vec::new(), came_back: 0, moved: 0 }
    }

    pub fn span(&self) -> Span {
        Span::sized(self.base, self.pages.len() * PAGE)
    }

    /// As the tracker is told of it.
    pub fn region(&self) -> Region {
        let owner = Owner { release: released, token: self.base };
        Region { span: self.span(), movable: self.movable, owner }
    }

    fn page(&mut self, addr: usize) -> &mut [u8; PAGE] {
        self.pages[(addr - self.base) / PAGE].get_or_insert_with(|| Box::new([0; PAGE]))
    }

    fn write(&mut self, span: Span, random: &mut Random) {
        for addr in span.start..span.end {
            self.page(addr)[addr % PAGE] = random.next() as u8;
        }
    }

    /// Writes bytes that depend on where in `span` they are.
    pub fn fill(&mut self, span: Span, byte: impl Fn(usize) -> u8) {
        for (i, addr) in (span.start..span.end).enumerate() {
            self.page(addr)[addr % PAGE] = byte(i);
        }
    }

    fn taken(&self, span: Span) -> bool {
        self.out.iter().any(|o| o.overlaps(span))
    }

    /// Up to `most` bytes of fresh data, in one range or more, wherever there is room; nothing, if
    /// there is none.
    pub fn receive(&mut self, most: usize, random: &mut Random) -> Vec<Span> {
        let mut left = most;
        let mut ranges: Vec<Span> = Vec::new();
        for _ in 0..8 {
            let len = if random.one_in(2) { left } else { 1 + random.below(left) };
            // (As a buffer that begins a page, or not.)
            let whole = random.one_in(2);
            let unit = if whole { PAGE } else { 1 };
            let at = random.below(self.pages.len() * PAGE / unit) * unit;
            let range = Span::sized(self.base + at, len).intersect(self.span());
            if self.taken(range) || ranges.iter().any(|r| r.overlaps(range)) {
                continue;
            }
            self.write(range, random);
            ranges.push(range);
            left -= range.len();
            if left == 0 {
                break;
            }
        }
        ranges
    }

    /// The ranges are handed over.
    pub fn hand_over(&mut self, ranges: &[Span]) {
        self.out.extend(ranges);
    }

    /// `span` came back; other bytes are received there at once.
    pub fn reattach_leaving(&mut self, span: Span, random: &mut Random) {
        let i = self.out.iter().position(|o| *o == span);
        self.out
            .swap_remove(i.expect("what was not handed over, or came back before, is released"));
        self.came_back += 1;
        self.write(span, random);
    }

    /// Whether all of it came back.
    pub fn is_whole(&self) -> bool {
        self.out.is_empty()
    }

    /// The owner is another process: whatever it does with its memory, nobody here knows of any of
    /// it.
    pub fn is_left_behind(&mut self, random: &mut Random) {
        self.out.clear();
        self.id = None;
        self.write(self.span(), random);
    }

    /// A byte that is read through an extent. A page that was moved away reads as zeros: a recall
    /// copies the whole of an extent, also where only a part of its pages could be moved (seed 346
    /// of refusals). A page that is viewed still has other bytes, and is found by these.
    pub fn byte_in_use(&mut self, addr: usize) -> u8 {
        let page = self.pages[(addr - self.base) / PAGE].as_ref();
        page.map_or(0, |page| page[addr % PAGE])
    }

    /// A page goes to the program.
    pub fn move_page(&mut self, addr: usize) -> Option<Box<[u8; PAGE]>> {
        assert!(self.movable, "a page was moved that has to stay");
        let page = Span::sized(addr, PAGE);
        assert!(
            self.out.iter().any(|o| o.intersect(page) == page),
            "others' bytes were moved along"
        );
        self.moved += 1;
        self.pages[(addr - self.base) / PAGE].take()
    }
}
