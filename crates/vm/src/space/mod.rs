//! The one tracker of this process, and its life: idle until the first copy worth eliding, running with a monitor thread,
//! frozen during fork, off.
//!
//! | module | one idea |
//! | --- | --- |
//! | `life` | made, started, stood down |
//! | `hold` | its lock, and who may pass |
//! | `dump` | everything in place before a core is dumped |
//! | `events` | what the program does to its memory, and what is carried out for it |
//! | `fork` | frozen meanwhile, made anew in the child |
//! | `descriptors` | our descriptors, which are not the program's |
//! | `alive` | whether this is a child that was made behind our back |
//! | `ground` | the stack under the lock is there |
//! | `reach` | the program's memory, reached through the kernel |
//!
//! unsafe: the tracker lives in a static, which only the holder of our own lock reaches.

mod alive;
mod descriptors;
mod dump;
mod events;
mod fork;
mod ground;
mod hold;
mod life;
mod reach;

pub use alive::alive;
pub(crate) use alive::heed_unknown_fork;
pub(crate) use descriptors::in_own_process;
pub use descriptors::{descriptors, lift, make_way};
pub use dump::before_core_dump;
pub use events::{
    after_unmapping, before_lock_all, detach, emptied, evict_if_wanted, exclude, execute, freed,
    keep_resident, materialize, materialize_all, no_longer_kept, release, relinquish, settle,
    tracks,
};
pub use fork::{
    after_bare_fork_child, after_fork_child, after_fork_parent, before_fork, freeze_books,
    freeze_with_everything_in_place, thaw,
};
pub use hold::{charging, note, with, with_after_fork};
pub(crate) use hold::{for_monitor, with_fds, with_lock};
pub(crate) use life::page_to_wake_by;
pub use life::{init, may_have_split_mappings, stand_down, stand_down_if_alone, start};
pub use reach::copy_within;

use crate::gate::{Gate, OFF, RUNNING, SERVING};
use crate::pages::{CopyBytes, Fds, Pages};
use crate::uffd::Maker;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};
use uncopy_core::filter::Filter;
use uncopy_core::policy::Costs;
use uncopy_core::repeats::Repeats;
use uncopy_core::span::Span;
use uncopy_core::tracker::Tracker;

/// What this process's tracker is.
pub type Books = Tracker<Pages>;

/// The lock-free test; see [`Filter`].
pub static FILTER: Filter = Filter::new();
/// What is sent again and again; see [`Repeats`].
pub static REPEATS: Repeats = Repeats::new();
pub use crate::stats::{COPY_PRICES, COUNTERS, PAUSES};

static GATE: Gate = Gate::new();

struct Global(UnsafeCell<Option<Space>>);
// SAFETY: reached only with the gate's lock held, or before any second thread can (init, forked child).
unsafe impl Sync for Global {}
static GLOBAL: Global = Global(UnsafeCell::new(None));

struct Space {
    settings: Settings,
    maker: Maker,
    fds: Option<Fds>,
    books: Option<Books>,
    /// For the books to come: see [`exclude`].
    excluded: Vec<Span>,
}

/// How the space is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Smallest copy that is elided, in bytes.
    pub threshold: usize,
    /// Whether call sites whose data gets touched are left alone.
    pub backoff: bool,
    /// Cap on extents, in bytes; 0 for an eighth of the machine's memory.
    pub extent_bytes: usize,
    /// Cap on registered ranges; 0 for a quarter of `vm.max_map_count`.
    pub ranges: usize,
    /// What things cost on this machine.
    pub costs: Costs,
    /// Copies bytes without being intercepted.
    pub copy_bytes: CopyBytes,
    /// Called when the space has started: from now on pages may be unmapped.
    pub started: fn(),
}

/// Whether large input should be remembered, so that the first copy of it starts the space.
#[inline]
pub fn wanted() -> bool {
    GATE.state() != OFF
}

/// Not 0 once input that may be worth moving has arrived.
pub static INPUT_SEEN: AtomicU8 = AtomicU8::new(0);

/// Input that may be worth moving has arrived: from now on large copies are looked at.
#[inline]
pub fn input_seen() {
    INPUT_SEEN.store(1, Ordering::Relaxed);
}

/// Whether anything can be tracked.
#[inline]
pub fn running() -> bool {
    GATE.state() == RUNNING
}

/// Whether anything may be tracked still, though nothing more may be.
#[inline]
pub fn serving() -> bool {
    matches!(GATE.state(), RUNNING | SERVING)
}
