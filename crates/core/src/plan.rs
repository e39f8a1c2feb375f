//! The work that a call has to do once the tracker's lock is dropped.

use crate::extents::ExtentId;
use crate::regions::RegionId;
use arrayvec::ArrayVec;
use uncopy_decide::Reason;
use uncopy_ranges::span::Span;

/// Most pieces that one call is planned with; a call that would need more is executed plainly
/// (what an output then touches is filled first, what others touch is resolved by faults).
pub const MAX_PIECES: usize = 48;

/// Copy `len` bytes: to be executed without the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Address to copy to.
    pub to: usize,
    /// Address to copy from.
    pub from: usize,
    /// Length in bytes.
    pub len: usize,
}

/// A list of copies: short ones without an allocation.
#[derive(Debug, Default)]
pub struct Copies {
    few: ArrayVec<Copy, 8>,
    more: Vec<Copy>,
}

impl Copies {
    /// Adds one.
    pub fn push(&mut self, copy: Copy) {
        if let Err(e) = self.few.try_push(copy) {
            self.more.push(e.element());
        }
    }

    /// The copies, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Copy> {
        self.few.iter().chain(&self.more)
    }

    /// In order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Copy> {
        self.few.iter_mut().chain(&mut self.more)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.few.is_empty()
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.few.clear();
        self.more.clear();
    }
}

/// References that keep extents alive while a call uses them without the lock.
pub type Pins = ArrayVec<ExtentId, MAX_PIECES>;

/// Program bytes that become a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assign {
    /// First program address.
    pub addr: usize,
    /// Length in bytes.
    pub len: usize,
    /// The extent.
    pub extent: ExtentId,
    /// Offset in the extent, in bytes.
    pub offset: u32,
}

/// How a copy is carried out. Order: `staged`, then commit, then `copies`, then release.
#[derive(Debug, Default)]
pub struct CopyPlan {
    /// Nothing is tracked here (or it is too fragmented): execute the copy as it is.
    pub bypass: bool,
    /// It is too fragmented for one plan: halves of it may not be.
    pub fragmented: bool,
    /// Resident source bytes to be put into extents before the commit.
    pub staged: Copies,
    /// Views to be made by the commit.
    pub assigns: ArrayVec<Assign, MAX_PIECES>,
    /// Copies to resident destination bytes.
    pub copies: Copies,
    /// Some of them read extents.
    pub reads_extents: bool,
    /// Extents held until release.
    pub pins: Pins,
    /// The call site.
    pub site: u16,
    /// Bytes of `copies` that other copies had elided, and the call site of the first such.
    pub read_out: (u16, usize),
    /// Why nothing of it is elided, if nothing is.
    pub obstacle: Option<Reason>,
}

/// Where an input call should put its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The program's address.
    pub addr: usize,
    /// Length in bytes.
    pub len: usize,
    /// Where to receive instead: extent and offset. `None`: at the program's address.
    pub extent: Option<(ExtentId, u32)>,
    /// The address to hand to the kernel.
    pub at: usize,
}

/// How an input call is carried out.
#[derive(Debug, Default)]
pub struct InputPlan {
    /// Nothing of it is a view: make the call as it is.
    pub bypass: bool,
    /// The pieces, in order.
    pub targets: ArrayVec<Target, MAX_PIECES>,
    /// After the commit: bytes whose page was touched meanwhile.
    pub copies: Copies,
    /// Extents held until release.
    pub pins: Pins,
    /// Which call it is, for a recorder of what happens; 0: nobody does.
    pub call: u32,
}

/// How an output call is carried out.
#[derive(Debug, Default)]
pub struct OutputPlan {
    /// Nothing of it is a view: make the call as it is.
    pub bypass: bool,
    /// Address and length of each piece, in order.
    pub pieces: ArrayVec<(usize, usize), MAX_PIECES>,
    /// For each buffer of the call, how many of the pieces are its.
    pub per_buffer: ArrayVec<usize, MAX_PIECES>,
    /// The extent that each piece is of; none: program memory.
    pub extents: ArrayVec<ExtentId, MAX_PIECES>,
    /// Bytes of these extents were sent before.
    pub again: bool,
    /// Some of them are better made ordinary.
    pub worn: bool,
    /// A bit for each piece that goes by reference; 0: nothing does.
    pub lent: u64,
    /// Bytes that go by reference.
    pub lent_bytes: usize,
    /// The call site that lends, or has adopted.
    pub lender: u16,
    /// Bytes that come from extents.
    pub gathered: usize,
    /// Those of them that have hardly stayed in the cache.
    pub cold: usize,
    /// The call site whose elided copy makes the kernel read them cold; 0: nobody's.
    pub payer: u16,
    /// Which call it is, for a recorder of what happens; 0: nobody does.
    pub call: u32,
    /// Extents held until release.
    pub pins: Pins,
}

/// Adds to a list of a plan, or of what leads to one.
///
/// # Errors
/// It is full.
#[inline]
pub(crate) fn add_to<T, const N: usize>(list: &mut ArrayVec<T, N>, item: T) -> Result<(), Reason> {
    list.try_push(item).map_err(|_| Reason::Fragmented)
}

impl OutputPlan {
    /// Whether it has no room for another piece.
    pub(crate) fn is_full(&self) -> bool {
        self.pieces.is_full() || self.pins.is_full()
    }
}

/// The way that the extents' bytes of an output went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// They were copied.
    Copied,
    /// Those that were planned so went by reference.
    Lent,
    /// So many of them stay where they are until the receiver is done with them.
    Kept(usize),
}

/// How extents are brought home from regions of others: first `copies`, without the lock, then the
/// commit.
#[derive(Debug, Default)]
pub struct RecallPlan {
    /// Each extent that is in a region, and its copy in the pool.
    pub moves: ArrayVec<(ExtentId, ExtentId), MAX_PIECES>,
    /// The bytes of each.
    pub copies: ArrayVec<Copy, MAX_PIECES>,
}

/// An extent that moves, and where its bytes have been copied to.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// The extent.
    pub id: ExtentId,
    /// The region of the copy.
    pub region: RegionId,
    /// The copy: as many bytes as the extent has.
    pub to: Span,
}
