//! The tracker: what input, copy, output, touch and free do to views and extents.
//!
//! Two invariants carry everything:
//!
//! 1. A program page that has views is registered, missing, and tiled by views. A page without
//!    views is none of our business.
//! 2. Bytes `..filled` of an extent never change while it has references, whose memory it may be.
//!
//! Every change from "resident" to "unmapped" and back is made here, under the tracker's lock,
//! together with the kernel call that does it. Copies of bytes are handed to the caller.
//!
//! | file | one idea |
//! | --- | --- |
//! | `copy` | which destination bytes become views, which are staged, which are copied |
//! | `moving` | from resident to unmapped, and to ordinary memory again |
//! | `input`, `output` | what is unmapped is received into, and sent from, extents |
//! | `lend` | what of an output goes by reference; ranges sent repeatedly become views |
//! | `touch` | pages are composed from their views |
//! | `back` | pages of a last view are moved in as they are |
//! | `vacant` | memory of our own that is empty from the beginning |
//! | `mapping` | the memory map changes: freed, unmapped, dropped, moved |
//! | `fork` | a forked child takes the books over, or writes every view out |
//! | `holding`, `pages` | extents are made, pinned, unpinned; pages for them |
//! | `backing`, `pool` | what extents lie in: free pages, and regions of others |
//! | `regions` | memory of others that extents lie in; it is released, or called back |
//! | `leaving` | tracking that was taken out while a mapping changes |
//! | `reference` | received bytes that lie in such a region already |
//! | `limits` | least-recently-used views give way |
//! | `check` | the invariants, for tests |

mod back;
mod backing;
mod check;
mod copy;
mod fork;
mod holding;
mod input;
mod leaving;
mod lend;
mod limits;
mod mapping;
mod moving;
mod output;
mod pages;
mod pool;
mod reference;
mod regions;
mod touch;
mod vacant;

pub use self::leaving::Detached;
pub use self::pool::PoolShape;

use self::backing::Backing;
use self::leaving::Leaving;
use crate::excluded::Excluded;
use crate::extents::{ExtentId, Extents};
use crate::memory::{Memory, Piece};
use crate::views::Views;
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::VecDeque;
use uncopy_counters::Counters;
use uncopy_decide::{Control, Observer, Operation, SiteId};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::ranges::Ranges;
use uncopy_ranges::span::{PAGE, Span};

/// A resident island shorter than this many pages, in a copy's source or destination, is copied
/// rather than moved: it is where the program keeps touching (headers, trailers).
const ISLAND_PAGES: usize = 4;
/// Largest extent, in pages: offsets are 32 bits wide.
const EXTENT_MAX_PAGES: usize = (1 << 30) / PAGE;
/// The account for what is no call site's doing.
const NOBODY: SiteId = 0;
/// Unfilled tails of extents that wait for the next part of a message.
const OPEN_TAILS: usize = 64;
/// Pieces that one call to [`Memory::fill`] describes at most.
const PIECES: usize = 2 * PAGE;
/// Shortest range that is adopted, in bytes.
pub const ADOPT_MIN: usize = 48 << 10;
/// Adopted when it is sent for the third time.
pub const ADOPT_AFTER: usize = 2;
/// Drops that are told apart.
const DROPPING: usize = 16;

/// The limits of what may be used up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes in live extents.
    pub extent_bytes: usize,
    /// Registered address ranges.
    pub ranges: usize,
    /// Views.
    pub views: usize,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The page (and perhaps pages around it) was filled.
    Resolved,
    /// Nothing of ours: the caller provides a zero page.
    Unknown,
    /// The memory map is changing: read events, then ask again.
    Again,
}

/// All state of one process.
pub struct Tracker<M> {
    /// The machine.
    pub memory: M,
    views: Views,
    extents: Extents,
    backing: Backing,
    registered: Ranges,
    /// Never to be moved.
    excluded: Excluded,
    /// Views of what is about to be unmapped, by the number of the call; see [`Tracker::detach`].
    leaving: Vec<Leaving>,
    /// Spans that the kernel has said it is about to drop; see [`Tracker::removed`].
    dropping: ArrayVec<Span, DROPPING>,
    control: Control,
    limits: Limits,
    filter: &'static Filter,
    counters: &'static Counters,
    open: VecDeque<(ExtentId, usize)>,
    open_pages: usize,
    clock: u64,
    /// Bytes received into and sent from extents.
    traffic: u64,
    last_fault_end: usize,
    fault_around: usize,
    /// `clock` when one page of freed memory was filled alone, and which.
    lone_touch: (u64, usize),
    wants_eviction: bool,
    detached: u64,
    unregistered: usize,
    /// Pages of the program's that were moved out, less those that freed memory got for them.
    displaced: usize,
    false_positives: usize,
    /// Such copies of resting sites, since idle memory beside one ended to be registered.
    came_beside: usize,
    useless_calls: usize,
    pieces: Vec<Piece>,
}

impl<M: Memory> Tracker<M> {
    /// A tracker with nothing tracked.
    pub fn new(
        memory: M,
        shape: PoolShape,
        limits: Limits,
        control: Control,
        filter: &'static Filter,
        counters: &'static Counters,
    ) -> Self {
        let backing = Backing::new(shape, memory.pool_span().start);
        Self {
            memory,
            views: Views::new(),
            extents: Extents::new(),
            backing,
            registered: Ranges::new(),
            excluded: Excluded::new(),
            leaving: Vec::new(),
            dropping: ArrayVec::new(),
            control,
            limits,
            filter,
            counters,
            open: VecDeque::with_capacity(OPEN_TAILS + 1),
            open_pages: 0,
            clock: 0,
            traffic: 0,
            last_fault_end: 0,
            fault_around: 1,
            lone_touch: (u64::MAX, 0),
            wants_eviction: false,
            detached: 0,
            unregistered: 0,
            displaced: 0,
            false_positives: 0,
            came_beside: 0,
            useless_calls: 0,
            pieces: Vec::with_capacity(PIECES),
        }
    }

    /// From now on `observer` sees what the program does and what the controller is told; `None`:
    /// nobody does.
    pub fn observed_by(&mut self, observer: Option<Box<dyn Observer>>) {
        self.control.observed_by(observer);
    }

    /// The program did something that is noted where it comes from, because the tracker does the
    /// same for reasons of its own.
    pub fn did(&mut self, operation: Operation) {
        self.control.did(|| operation);
    }

    fn gauges(&self) {
        let c = self.counters;
        c.extents.store(self.extents.count() as u64, Relaxed);
        c.extent_bytes.store(self.extents.bytes() as u64, Relaxed);
        c.views.store(self.views.count() as u64, Relaxed);
        c.missing_bytes.store(self.views.bytes() as u64, Relaxed);
        c.pool_free_bytes.store((self.backing.pool.ready_pages() * PAGE) as u64, Relaxed);
        c.pool_held_bytes.store((self.backing.pool.held_pages * PAGE) as u64, Relaxed);
        c.registered_ranges.store(self.registered.count() as u64, Relaxed);
    }
}
