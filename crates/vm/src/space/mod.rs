//! The one tracker of this process, and its life: idle until the first copy worth eliding, running with a monitor thread,
//! frozen during fork, off.
//!
//! | module | one idea |
//! | --- | --- |
//! | `life` | made, started, stood down |
//! | `hold` | its lock, and who may pass |
//! | `dump` | everything in place before a core is dumped |
//! | `events` | what the program does to its memory, and what is carried out for it |
//! | `excluded` | what has to stay resident
//! | `fork` | frozen meanwhile, made anew in the child |
//! | `descriptors` | our descriptors, which are not the program's |
//! | `alive` | whether this is a child that was made behind our back |
//! | `ground` | the stack under the lock is there |
//! | `regions` | memory of others that extents lie in |
//! | `rights` | our threads have no more rights than the program's |
//! | `reach` | the program's memory, reached through the kernel |
//!
//! unsafe: the tracker lives in a static, which only the holder of our own lock reaches.

mod alive;
mod descriptors;
mod dump;
mod events;
mod excluded;
mod fork;
mod ground;
mod hold;
mod life;
mod reach;
mod regions;
mod rights;

pub use alive::alive;
pub(crate) use alive::heed_unknown_fork;
pub use descriptors::{descriptors, lift, make_way};
pub(crate) use descriptors::{in_own_process, program_descriptors};
pub use dump::before_core_dump;
pub(crate) use events::renewed;
pub use events::{
    after_unmapping, before_lock_all, detach, emptied, evict_if_wanted, execute, freed,
    keep_resident, limiting, make_room_for_mappings, materialize, materialize_all, ours_in,
    put_in_place, release, relinquish, resident_views, settle, tracks,
};
pub(crate) use excluded::publish as publish_exclusions;
pub use excluded::{
    dropping, exclude, exclusions, mapped_anew, perhaps_excluded, put_exclusions, unmapping,
};
pub use fork::{
    after_bare_fork_child, after_fork_child, after_fork_parent, before_fork, freeze_books,
    freeze_with_everything_in_place, thaw,
};
pub use hold::{charging, note, with, with_after_fork};
pub(crate) use hold::{for_monitor, with_fds};
pub use life::{init, may_have_split_mappings, stand_down, stand_down_if_alone, start};
pub use reach::copy_within;
pub use regions::{begin_region, end_region, recall};
pub use rights::{ids_changed, rights_changed, rights_lessened, without_our_threads};

use crate::gate::{Gate, INHERITED, OFF, SERVING};
use crate::pages::{CopyBytes, Fds, Pages};
use crate::uffd::Maker;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU8, Ordering};
use uncopy_core::excluded::Excluded;
use uncopy_core::tracker::Tracker;
use uncopy_decide::Costs;
use uncopy_ranges::filter::Filter;
use uncopy_ranges::repeats::Repeats;

/// What this process's tracker is.
pub type Books = Tracker<Pages>;

/// The lock-free test; see [`Filter`].
pub static FILTER: Filter = Filter::new();
/// What is sent again and again; see [`Repeats`].
pub static REPEATS: Repeats = Repeats::new();
pub use crate::stats::{COPY_PRICES, COUNTERS, PAUSES};

static GATE: Gate = Gate::new();

struct Global(UnsafeCell<Option<Space>>);
// SAFETY: reached only with the gate's lock held, or before any second thread can (init, which runs before every other constructor; forked child).
unsafe impl Sync for Global {}
static GLOBAL: Global = Global(UnsafeCell::new(None));

struct Space {
    settings: Settings,
    maker: Maker,
    fds: Option<Fds>,
    books: Option<Books>,
    /// For the books to come: see [`exclude`].
    excluded: Excluded,
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
    /// Called in a child that was made behind our back: our locks that [`crate`] does not know are nobody's there.
    pub forget_locks: fn(),
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
    GATE.state() >= INHERITED
}

/// Whether anything may be tracked still, though nothing more may be.
#[inline]
pub fn serving() -> bool {
    GATE.state() >= SERVING
}
