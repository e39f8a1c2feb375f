//! Extents: immutable, reference-counted runs of bytes in the pool, or in a region of somebody
//! else's.

use crate::regions::RegionId;
use uncopy_ranges::span::{PAGE, Span};

/// Names an extent. [`ExtentId::NONE`] stands for bytes that nobody is owed (freed memory, or
/// memory dropped with `madvise`): they read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u32);

impl ExtentId {
    /// No extent: zeros.
    pub const NONE: Self = Self(0);
}

/// One extent.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Address of its first byte. In the pool it begins a page.
    pub at: usize,
    /// Pages of ours that it has; none, where it lies in a region of somebody else's.
    pub pages: usize,
    /// The region that it lies in.
    pub region: RegionId,
    /// Bytes `..filled` are final; only what lies behind may still be written, by one filler.
    pub filled: u32,
    /// Views and pins.
    pub refs: u32,
    /// Somebody is filling the tail.
    pub filling: bool,
    /// Copies that resting call sites made of it.
    pub rested: u8,
    /// When it was last viewed anew, in tracker operations.
    pub used: u64,
    /// When it was last filled or sent, in bytes received and sent before.
    pub warm: u64,
    /// Bytes of it were handed to the kernel by reference: its pages are never recycled.
    pub lent: bool,
    /// It was made of memory that was sent again and again, not of a copy's source.
    pub adopted: bool,
    /// The call site that lent or adopted it; it pays for the pages.
    pub lender: u16,
    /// How often it was sent from its beginning again, as far as is counted.
    pub passes: u8,
    /// Where the last send of it ended: an offset in bytes.
    pub mark: u32,
}

impl Extent {
    /// Bytes of ours that it has room for.
    pub fn capacity(&self) -> usize {
        self.pages * PAGE
    }

    /// Whether it lies in a region of somebody else's.
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.region != RegionId::POOL
    }

    /// Where its final bytes lie.
    pub fn span(&self) -> Span {
        Span::sized(self.at, self.filled as usize)
    }
}

/// All extents.
#[derive(Debug, Default)]
pub struct Extents {
    slots: Vec<Extent>,
    vacant: Vec<u32>,
    bytes: usize,
}

impl Extents {
    /// None.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), bytes: 0 }
    }

    /// Extents alive.
    pub fn count(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Bytes of whole pages of ours that they hold.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether another extent can be made, and its pages be recycled, without an allocation that
    /// might fail.
    pub fn reserve(&mut self) -> bool {
        let new = self.vacant.is_empty();
        let room = !new || self.slots.len() < u32::MAX as usize - 1;
        room && self.slots.try_reserve(usize::from(new)).is_ok()
            && self.vacant.try_reserve(self.slots.capacity() - self.vacant.len()).is_ok()
    }

    /// Makes an extent of `pages` pages of the pool from the address `at` on, with one reference.
    pub fn create(&mut self, at: usize, pages: usize, filled: u32, used: u64) -> ExtentId {
        self.bytes += pages * PAGE;
        self.insert(RegionId::POOL, at, pages, filled, used)
    }

    /// Makes an extent of the bytes in `span`, in a region of somebody else's, with one reference.
    /// (At most 4 GB.)
    pub fn create_foreign(&mut self, region: RegionId, span: Span, used: u64) -> ExtentId {
        self.insert(region, span.start, 0, span.len() as u32, used)
    }

    fn insert(
        &mut self,
        region: RegionId,
        at: usize,
        pages: usize,
        filled: u32,
        used: u64,
    ) -> ExtentId {
        let e = Extent {
            at,
            pages,
            region,
            filled,
            refs: 1,
            filling: false,
            rested: 0,
            used,
            warm: 0,
            lent: false,
            adopted: false,
            lender: 0,
            passes: 0,
            mark: 0,
        };
        match self.vacant.pop() {
            Some(i) => {
                self.slots[i as usize] = e;
                ExtentId(i + 1)
            }
            None => {
                self.slots.push(e);
                ExtentId(u32::try_from(self.slots.len()).expect("fewer than 2^32 extents"))
            }
        }
    }

    /// The extent `id`.
    pub fn get(&self, id: ExtentId) -> &Extent {
        &self.slots[id.0 as usize - 1]
    }

    /// The extent `id`, to be changed.
    pub fn get_mut(&mut self, id: ExtentId) -> &mut Extent {
        &mut self.slots[id.0 as usize - 1]
    }

    /// One more reference. [`ExtentId::NONE`] needs none.
    pub fn hold(&mut self, id: ExtentId) {
        if id != ExtentId::NONE {
            self.get_mut(id).refs += 1;
        }
    }

    /// One reference less; returns the extent if that was the last: what it lies in is free.
    #[must_use]
    pub fn drop_ref(&mut self, id: ExtentId) -> Option<Extent> {
        if id == ExtentId::NONE {
            return None;
        }
        let e = self.get_mut(id);
        debug_assert!(e.refs > 0, "extent released twice");
        e.refs -= 1;
        if e.refs > 0 {
            return None;
        }
        let e = *e;
        self.bytes -= e.pages * PAGE;
        self.vacant.push(id.0 - 1);
        Some(e)
    }

    /// Cuts `id` down to its filled pages; returns the address of the first page given up and their
    /// number.
    pub fn trim(&mut self, id: ExtentId) -> (usize, usize) {
        let e = self.get_mut(id);
        let keep = (e.filled as usize).div_ceil(PAGE);
        let given = (e.at + keep * PAGE, e.pages - keep);
        e.pages = keep;
        self.bytes -= given.1 * PAGE;
        given
    }

    /// `id` keeps only its first `pages` pages: the others' content has gone elsewhere.
    pub fn cut(&mut self, id: ExtentId, pages: usize) {
        let e = self.get_mut(id);
        let gone = e.pages - pages;
        e.pages = pages;
        e.filled = e.filled.min((pages * PAGE) as u32);
        self.bytes -= gone * PAGE;
    }

    /// Whether `id` is alive.
    pub fn alive(&self, id: ExtentId) -> bool {
        id != ExtentId::NONE && self.slots.get(id.0 as usize - 1).is_some_and(|e| e.refs > 0)
    }

    /// Every live extent.
    pub fn iter(&self) -> impl Iterator<Item = (ExtentId, &Extent)> {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, e)| e.refs > 0)
            .map(|(i, e)| (ExtentId(i as u32 + 1), e))
    }
}
