//! An IO stack, as we see it: a producer and a consumer of extents, whatever is below it.
//!
//! A stack describes each call that the program makes on it by a value of its own, which implements
//! one half of the trait: [`Input`] for what brings bytes, [`Output`] for what takes them. Which of
//! the methods are called, and what becomes a view, is decided by [`input`](crate::input::input)
//! and [`output`](crate::output::output); what a call means (flags, addresses, errors, the
//! connection below) is the stack's. Nothing here is dispatched at run time.

use crate::buffers::Pieces;
use arrayvec::ArrayVec;
use libc::iovec;
use uncopy_core::extents::ExtentId;
use uncopy_core::plan::{MAX_PIECES, OutputPlan, Pins};
use uncopy_core::regions::RegionId;
use uncopy_core::tracker::ADOPT_MIN;
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;
use uncopy_space::pages::CopyBytes;

pub use uncopy_lend::send::Lent;

/// The functions that stacks need of the process that they run in.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its state.
    pub process: &'static Process,
    /// Copies bytes without being intercepted.
    pub copy_bytes: CopyBytes,
    /// Whether an address is on the running thread's stack, which is never unmapped.
    pub on_own_stack: fn(usize) -> bool,
}

/// A call that brings bytes.
///
/// Calls that return a number of bytes return what the libc function does: -1 with errno set where
/// it fails.
pub trait Input {
    /// Makes the program's own call.
    fn as_it_is(&mut self) -> isize;

    /// Whether `pieces` pieces may stand for the program's `buffers` buffers. (It is asked before
    /// the call is made so.)
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        let _ = (pieces, buffers);
        true
    }

    /// Makes the call with `pieces` in place of the program's buffers, which are as long together.
    /// `None`: it cannot be made so, and nothing has happened; it is made as it is.
    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize>;

    /// Answers the call without receiving: what it would bring lies in memory already. `room` is
    /// how many bytes the buffers hold.
    ///
    /// A stack whose bytes lie in regions of its own hands them over: `hand_over` takes the ranges
    /// in their order (no more than `room` bytes), each with its region, and where the program's
    /// call returns to. If it returns true the buffers hold the bytes, each of the ranges comes
    /// back once by [`Owner::release`](uncopy_core::regions::Owner), and the stack counts them as
    /// received. If not, nothing has happened.
    ///
    /// `can_be_written` says whether the first so many bytes of the buffers are memory. (Nothing
    /// else has asked that yet.)
    ///
    /// `None`: the call is to be made.
    fn by_reference(
        &mut self,
        room: usize,
        can_be_written: impl FnMut(usize) -> bool,
        hand_over: impl FnMut(&[(RegionId, Span)], usize) -> bool,
    ) -> Option<isize> {
        let _ = (room, can_be_written, hand_over);
        None
    }

    /// Whether what the call tells beside its bytes (an address, flags) could be written to the
    /// program's memory, after it was made. If not, the program's call fails with EFAULT.
    fn is_told(&self) -> bool {
        true
    }
}

/// The extent of a piece that an output keeps. It counts against the limits of extents, and no
/// eviction frees it: a stack that keeps many bounds how many. In a forked child, what is kept of
/// the pool stays; what is kept of a foreign region is not the child's, as the region is not.
#[derive(Debug)]
pub struct Kept {
    process: &'static Process,
    extent: ExtentId,
}

impl Kept {
    /// Of an extent that was pinned for it. `None`: a piece of program memory.
    pub(crate) fn new(process: &'static Process, extent: ExtentId) -> Option<Self> {
        (extent != ExtentId::NONE).then_some(Self { process, extent })
    }
}

impl Drop for Kept {
    /// (Takes the lock of the books: not to be dropped where that is held.)
    fn drop(&mut self) {
        self.process.space.unpin(&mut Pins::from_iter([self.extent]));
    }
}

/// For each piece of an output, what keeps its extent.
pub type KeptPieces = ArrayVec<Option<Kept>, MAX_PIECES>;

/// How an output call may go by reference.
#[derive(Clone, Copy, Debug)]
pub struct Lending {
    /// The bytes from which on it lends.
    pub from: usize,
    /// It asks for nothing that a call by reference could not do.
    pub plain: bool,
    /// Where the program's call returns to: who lends.
    pub caller: usize,
    /// Pages are lent to the kernel. Else the stack [keeps](Output::keep) extents.
    pub to_kernel: bool,
}

/// A call that takes bytes.
pub trait Output {
    /// Makes the program's own call.
    fn as_it_is(&mut self) -> isize;

    /// Whether `pieces` pieces may stand for the program's `buffers` buffers.
    fn takes(&self, pieces: usize, buffers: usize) -> bool {
        let _ = (pieces, buffers);
        true
    }

    /// Makes the call with `pieces` in place of the program's buffers: the same bytes, which are
    /// gathered from where they are. `None`: it cannot be made so, and nothing has happened.
    fn gather(&mut self, pieces: &Pieces) -> Option<isize>;

    /// Moves extents of `plan` that the program sends again to memory of this process' own that the
    /// receiver reads, where the stack has some. True: the plan is to be made anew.
    fn settles(&mut self, plan: &OutputPlan, process: &'static Process) -> bool {
        let _ = (plan, process);
        false
    }

    /// Whether the stack may keep extents of so many bytes after the call: then
    /// [`keep`](Self::keep) is called in place of [`gather`](Self::gather).
    fn keeps(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    /// As [`gather`](Self::gather), which also says how many bytes the stack keeps. Pieces with an
    /// owner in `kept` lie in extents: their bytes stay where they are, as they are, until it is
    /// dropped. The other pieces are the program's memory, which changes when the call returns.
    fn keep(&mut self, pieces: &Pieces, kept: KeptPieces) -> Option<(isize, usize)> {
        drop(kept);
        Some((self.gather(pieces)?, 0))
    }

    /// Whether, and how, some of it may go by reference: without a copy, from memory that stays as
    /// it is.
    fn lending(&self) -> Option<Lending> {
        None
    }

    /// From how many bytes on memory that is sent again and again becomes an extent, so that it can
    /// go so. (`usize::MAX`: none does now.)
    fn adopts_from(&self) -> usize {
        ADOPT_MIN
    }

    /// Whether such `pieces` can go so to where this call goes.
    fn can_lend(&mut self, pieces: &[iovec]) -> bool {
        let _ = pieces;
        false
    }

    /// Makes the call, of which the pieces with a bit in `lent` go by reference.
    fn lend(&mut self, pieces: &Pieces, lent: u64) -> Lent {
        let _ = (pieces, lent);
        Lent::No
    }
}
