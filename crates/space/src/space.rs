//! All that a process has of tracking, in one value: the one tracker, the gate around it, and what
//! is looked at without the lock.
//!
//! It lives as long as its process, and so do references to it. Fields that are not zeros at first
//! would make all of it a part of the library's file.
//!
//! unsafe: the tracker lies in a cell, which only the holder of our own lock reaches.

use crate::bounds::{BoundingSpan, ForkLog};
use crate::freeze::List;
use crate::gate::{Gate, INHERITED, OFF, SERVING};
use crate::held::Known;
use crate::own_fds::OwnFds;
use crate::pages::{CopyBytes, Pages, PoolAddresses};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use uncopy_core::excluded::Excluded;
use uncopy_core::tracker::Tracker;
use uncopy_counters::Counters;
use uncopy_decide::{Choice, Costs, Pauses, Times};
use uncopy_kernel::clock;
use uncopy_kernel::ids::Ids;
use uncopy_kernel::once::OnceInit;
use uncopy_kernel::own_process::OwnProcess;
use uncopy_kernel::survey::Survey;
use uncopy_kernel::uffd::{Fds, Maker};
use uncopy_monitor::Monitor;
use uncopy_ranges::allowance::Allowance;
use uncopy_ranges::filter::Filter;
use uncopy_ranges::repeats::Repeats;
use uncopy_stats::statistics::Statistics;

/// The tracker of a process.
pub type Books = Tracker<Pages>;

/// Smaller inputs are not remembered as origins, in bytes: what is copied of them is small.
pub const ORIGIN_MIN: usize = 1024;

/// See the module. The statistics come first, so that a look at the process from outside finds them
/// at its address; what most calls look at lies together; what is large comes last.
#[repr(C)]
#[derive(Debug)]
pub struct Space {
    /// The work that was done, and its cost.
    pub statistics: Statistics,
    /// The length that [`Space::tracks_input`] compares with, all bits the other way round, so that
    /// nothing stands in the library's file.
    input: AtomicUsize,
    /// Smallest copy that is elided, in bytes, all bits the other way round: none is at first.
    pub(crate) threshold: AtomicUsize,
    pub(crate) gate: Gate,
    /// Whether this is the process that all of it is of.
    pub own: OwnProcess,
    pub(crate) inner: OnceInit<Inner>,
    /// Bytes that the program has copied.
    pub(crate) copied: AtomicU64,
    /// Whether somebody records what happens.
    pub(crate) recording: AtomicBool,
    /// The bounds of what is excluded from tracking, for readers without the lock.
    pub(crate) excluded_bounds: BoundingSpan,
    pub(crate) monitor: Monitor,
    pub(crate) pool: PoolAddresses,
    pub(crate) ours: OwnFds,
    /// With whose rights our threads were made.
    pub(crate) ids: Ids,
    /// Threads that are in [`Space::start`].
    pub(crate) starts: AtomicU32,
    /// Set for good, children included, once anything may have been registered.
    pub(crate) has_run: AtomicBool,
    pub(crate) fork_log: ForkLog,
    /// Set for good once the program has freed pages that the kernel takes later (`MADV_FREE`).
    pub(crate) lazily_freed: AtomicBool,
    /// Set for good once there was any region of others.
    pub(crate) regions_begun: AtomicBool,
    /// The lock-free test; see [`Filter`].
    pub filter: Filter,
    /// How much may be held.
    pub(crate) allowance: Allowance,
    /// The lowest limit of memory that is known, in bytes, all bits the other way round: none is at
    /// first.
    pub(crate) limit: AtomicU64,
    /// Whether that was looked up.
    pub(crate) limit_known: AtomicBool,
    /// Where the process's group was found.
    pub(crate) place: AtomicPtr<Known>,
    /// Whether the monitor goes to the twin allocator's book.
    pub(crate) visited: AtomicBool,
    /// When it is worth looking again whether there is room to start, in ms.
    pub(crate) room_again: AtomicU64,
    /// See [`Space::tended_by`].
    pub(crate) tend_blocks: AtomicPtr<()>,
    /// Bytes that are sent again and again; see [`Repeats`].
    pub repeats: Repeats,
    pub(crate) list: List,
}

/// The state that the gate's lock guards. It is made before the program has threads.
pub struct Inner {
    pub(crate) settings: Settings,
    pub(crate) maker: Maker,
    /// Until there are books.
    pub(crate) fds: Option<Fds>,
    pub(crate) books: Option<Books>,
    /// For the books to come: see [`Space::exclude`].
    pub(crate) excluded: Excluded,
}

/// Where a process is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The file; where there is one already, its name and this process's number.
    pub file: &'static CStr,
    /// Size of the file at most, in bytes.
    pub bytes: usize,
}

/// How the space is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether call sites whose data gets touched are left alone.
    pub backoff: bool,
    /// Cap on extents, in bytes; 0 for an eighth of the machine's memory, or of the limit that
    /// applies.
    pub extent_bytes: usize,
    /// Cap on registered ranges; 0 for a quarter of `vm.max_map_count`.
    pub ranges: usize,
    /// The costs on this machine.
    pub costs: Costs,
    /// The controller that decides.
    pub controller: Choice,
    /// Where to record what happens; `None`: nowhere.
    pub record: Option<Record>,
    /// Copies bytes without being intercepted.
    pub copy_bytes: CopyBytes,
    /// Called in a child that was made behind our back: it puts all locks of ours right, and goes
    /// on without us
    /// ([`Space::after_bare_fork_child`]).
    pub alone: fn(),
    /// Whether there is no memory left for the books.
    pub books_short: fn() -> bool,
    /// The time, where it may be asked for ([`Space::times`]).
    pub times: fn() -> Option<Times>,
    /// Called when the space has started: from now on pages may be unmapped.
    pub started: fn(),
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

impl Space {
    /// Where in a space its state lies: a byte that is 0 where nothing is wanted, for the entry
    /// points of copies.
    pub const STATE: usize = core::mem::offset_of!(Self, gate) + Gate::STATE;

    /// Where in a space the word lies that [`Space::tracks_input`] compares with, all its bits the
    /// other way round, for the entry points of input calls.
    pub const INPUT: usize = core::mem::offset_of!(Self, input);

    /// Off.
    pub const fn new() -> Self {
        Self {
            statistics: Statistics::new(),
            input: AtomicUsize::new(0),
            threshold: AtomicUsize::new(0),
            gate: Gate::new(),
            own: OwnProcess::new(),
            inner: OnceInit::new(),
            copied: AtomicU64::new(0),
            recording: AtomicBool::new(false),
            excluded_bounds: BoundingSpan::new(),
            monitor: Monitor::new(),
            pool: PoolAddresses::new(),
            ours: OwnFds::new(),
            ids: Ids::new(),
            starts: AtomicU32::new(0),
            has_run: AtomicBool::new(false),
            fork_log: ForkLog::new(),
            lazily_freed: AtomicBool::new(false),
            regions_begun: AtomicBool::new(false),
            filter: Filter::new(),
            allowance: Allowance::new(),
            limit: AtomicU64::new(0),
            limit_known: AtomicBool::new(false),
            place: AtomicPtr::new(core::ptr::null_mut()),
            visited: AtomicBool::new(false),
            room_again: AtomicU64::new(0),
            tend_blocks: AtomicPtr::new(core::ptr::null_mut()),
            repeats: Repeats::new(),
            list: List::new(),
        }
    }

    /// What filters of system calls let through that were there before the program.
    pub fn survey(&self) -> &Survey {
        &self.monitor.whereabouts.survey
    }

    /// The counters of the work that was done.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.statistics.shared.counters
    }

    /// Call sites that are left alone; see [`Pauses`].
    #[inline]
    pub fn pauses(&self) -> &Pauses {
        &self.statistics.shared.pauses
    }

    /// Smallest copy that is elided, in bytes. Before [`Space::init`] none is.
    #[inline]
    pub fn threshold(&self) -> usize {
        !self.threshold.load(Ordering::Relaxed)
    }

    /// Whether anything is, or will be, tracked: input is remembered, and copies are looked at, the
    /// first of which starts the space.
    #[inline]
    pub fn wanted(&self) -> bool {
        self.gate.state() != OFF
    }

    /// Whether it matters what comes of an input call with room for `room` bytes: at first where
    /// that is more than the smallest copy that is elided. Small pieces of input matter once the
    /// program makes a copy as large as that, or an output that may go by reference. Most servers
    /// with small answers never do.
    #[inline]
    pub fn tracks_input(&self, room: usize) -> bool {
        room > !self.input.load(Ordering::Relaxed) && self.wanted()
    }

    pub(crate) fn track_input_above(&self, room: usize) {
        self.input.store(!room, Ordering::Relaxed);
    }

    /// A copy or an output is being made that is large enough to be done otherwise.
    #[inline]
    pub fn large_seen(&self) {
        const LIMIT: usize = ORIGIN_MIN - 1;
        if self.input.load(Ordering::Relaxed) != !LIMIT {
            self.track_input_above(LIMIT);
        }
    }

    /// Whether anything can be tracked.
    #[inline]
    pub fn running(&self) -> bool {
        self.gate.state() >= INHERITED
    }

    /// Whether anything may be tracked still, though nothing more may be.
    #[inline]
    pub fn serving(&self) -> bool {
        self.gate.state() >= SERVING
    }

    /// Processor time of this process, and time; `None`: nothing is timed here, or not any more.
    pub fn times(&'static self) -> Option<Times> {
        let (cpu, wall) = self.running().then(clock::times)??;
        Some(Times { cpu, wall })
    }

    /// Whether mappings of the program may be in more parts than it knows of: they stay so in a
    /// child that goes on without us, and after the end of all tracking.
    pub fn may_have_split_mappings(&self) -> bool {
        self.has_run.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::gate::{IDLE, OFF};

    #[test]
    fn small_input_matters_once_a_large_copy_has_been_made() {
        static SPACE: Space = Space::new();
        assert!(!SPACE.tracks_input(usize::MAX), "before it is wanted");
        SPACE.track_input_above(16 << 10);
        SPACE.gate.set_state(IDLE);
        assert!(!SPACE.tracks_input(16 << 10));
        assert!(SPACE.tracks_input((16 << 10) + 1));
        for _ in 0..2 {
            SPACE.large_seen();
            assert!(!SPACE.tracks_input(ORIGIN_MIN - 1));
            assert!(SPACE.tracks_input(ORIGIN_MIN));
        }
        SPACE.gate.set_state(OFF);
        assert!(!SPACE.tracks_input(usize::MAX), "after it has ended");
    }
}
