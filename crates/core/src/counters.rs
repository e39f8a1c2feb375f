//! What uncopy did, as counters that any thread may add to and any reader may look at.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($( $(#[$doc:meta])* $name:ident, )*) => {
        /// Counters since the process began (or since its fork). Laid out as plain 64-bit words,
        /// in this order, so that a reader in C or in another process can use it.
        #[repr(C)]
        #[derive(Debug, Default)]
        pub struct Counters { $( $(#[$doc])* pub $name: AtomicU64, )* }

        /// A copy of [`Counters`] at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot { $( $(#[$doc])* pub $name: u64, )* }

        impl Counters {
            /// All at zero.
            pub const fn new() -> Self { Self { $( $name: AtomicU64::new(0), )* } }

            /// Reads every counter; each one is exact, together they are only nearly of one moment.
            pub fn snapshot(&self) -> Snapshot { Snapshot { $( $name: self.$name.load(Relaxed), )* } }

            /// Sets every counter to zero (a forked child starts anew).
            pub fn reset(&self) { $( self.$name.store(0, Relaxed); )* }
        }

        impl Snapshot {
            /// Names and values in the order of the layout.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [ $( (stringify!($name), self.$name), )* ].into_iter()
            }

            /// What was added since `earlier` (gauges included: they may wrap below zero).
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $( $name: self.$name.wrapping_sub(earlier.$name), )* }
            }
        }
    };
}

counters! {
    /// Copies that were elided, wholly or in part.
    elided_copies,
    /// Bytes that those copies did not move, fringes not counted.
    elided_bytes,
    /// Bytes that large copies of tracked data moved all the same: fringes, resident islands.
    copied_bytes,
    /// Large copies of tracked data that were executed because of the policy's back-off.
    backoff_copies,
    /// Bytes that input calls put straight into extents.
    input_bytes,
    /// Bytes that output calls gathered from extents.
    output_bytes,
    /// Page faults on pages of views that were resolved.
    faults,
    /// Page faults on registered pages that held nothing (freed memory).
    empty_faults,
    /// Pages that were materialized, by faults or otherwise.
    materialized_pages,
    /// Pages moved out of the program's buffers (`UFFDIO_MOVE`).
    moved_pages,
    /// `UFFDIO_MOVE` calls.
    moves,
    /// `UFFDIO_REGISTER` and `UFFDIO_UNREGISTER` calls.
    registrations,
    /// Refusals by the kernel (EBUSY, EINVAL, ...) that were answered by copying.
    refusals,
    /// Copies that were executed because the extent memory or the mappings were used up.
    exhausted,
    /// Views materialized because they were the least recently used ones at a cap.
    evicted_views,
    /// Memory-map events (unmap, remove, remap) that the kernel reported.
    events,
    /// Extents alive now.
    extents,
    /// Bytes of extents alive now, whole pages.
    extent_bytes,
    /// Views alive now.
    views,
    /// Bytes of free pages that the pool keeps for reuse now.
    pool_free_bytes,
    /// Address ranges registered now.
    registered_ranges,
    /// Blocks that the twin allocator handed out.
    twin_blocks,
    /// Bytes in live blocks of the twin allocator now.
    twin_live_bytes,
    /// Bytes that it keeps for the next blocks now, resident or unmapped.
    twin_kept_bytes,
    /// Address space in bytes that its live blocks have beyond what the program was promised; it
    /// costs memory only as far as a block was larger before.
    twin_slack_bytes,
}

/// Adds to a counter.
#[inline]
pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
