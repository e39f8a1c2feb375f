//! What lies where in a region, as both programs and the service agree.
//!
//! ```text
//! region   | notices, one page | slot 0 | slot 1 | ...
//! slot     | ring 0 ................... | header | ring 1 ................... |
//!                              ^ home 0 |        |^ home 1
//!                              |<---- one page -->|
//! ```
//!
//! An empty ring goes on at its *home*, which lies in the header's page. So a connection that only exchanges small messages
//! uses one page of memory, and always the same cache lines.

use crate::notice::Notice;
use crate::phase::Phase;
use crate::sync::atomic::AtomicU32;
use crate::wanted::Wanted;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of one ring. Half of it is what a sleeping sender is woken for, so a wake-up (about 5 us, both sides) is paid once
/// for 128 KB (about as long to copy out); both rings fit into a core's second-level cache of 1 MB and more.
pub const RING: u32 = 256 << 10;
/// Slots of a region: the bits of a notice are one cache line's.
pub const SLOTS: usize = 256;
/// Doors of each side: the eventfds by which its sleepers are woken. More than the cores of small machines have little use:
/// sleepers that share one are woken in vain now and then.
pub const DOORS: usize = 4;
/// Bytes of a slot's header.
pub const HEADER: usize = core::mem::size_of::<Header>();
/// Bytes of each ring that lie in the header's page.
pub const NEAR: u32 = ((PAGE - 512) / 2) as u32;
/// Bytes of a slot.
pub const SLOT: usize = 2 * RING as usize + PAGE;
/// Bytes of a region.
pub const REGION: usize = PAGE + SLOTS * SLOT;

/// Where the slot begins, in bytes from the region's beginning.
pub const fn slot_at(slot: usize) -> usize {
    PAGE + slot * SLOT
}

/// Where ring `ring` of a slot begins, in bytes from the slot's beginning. Ring 0 is written by side 0.
pub const fn ring_at(ring: usize) -> usize {
    if ring == 0 { NEAR as usize } else { header_at() + 512 }
}

/// Where the header of a slot begins, in bytes from the slot's beginning.
pub const fn header_at() -> usize {
    RING as usize + NEAR as usize
}

/// Where in ring `ring` its home is.
pub const fn home(ring: usize) -> u32 {
    if ring == 0 { RING - NEAR } else { 0 }
}

/// The first page: for each side and door, which of its connections have news.
#[repr(C)]
#[derive(Debug)]
pub struct Notices(pub [[Notice; DOORS]; 2]);

/// What the producer of a direction writes. One cache line: the consumer of a message fetches it once.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Produced {
    /// Bytes ever written.
    pub tail: AtomicU32,
    /// Position + base = place in the ring. Changes only while the ring is empty.
    pub base: AtomicU32,
    /// [`FINISHED`].
    pub flags: AtomicU32,
    /// The producer waits for room.
    pub room: Wanted,
}

/// What the consumer of a direction writes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Consumed {
    /// Bytes ever read.
    pub head: AtomicU32,
    /// [`GONE`], [`BY_LINUX`].
    pub flags: AtomicU32,
    /// The consumer waits for bytes.
    pub data: Wanted,
}

/// What both write, but rarely.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Switch {
    /// Where this direction's bytes are.
    pub phase: Phase,
}

/// One direction of a connection.
#[repr(C)]
#[derive(Debug)]
pub struct Direction {
    /// Its producer's.
    pub produced: Produced,
    /// Its consumer's.
    pub consumed: Consumed,
    /// Both's.
    pub switch: Switch,
}

/// What one side says of its end.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct End {
    /// The slot's generation (the service gives it), once this side knows that its socket is the other's peer.
    pub attached: AtomicU32,
    /// The slot's generation, once this side will not look at the slot again.
    pub closed: AtomicU32,
}

/// The header of a slot.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// Direction `i` is written by side `i`.
    pub directions: [Direction; 2],
    /// End `i` is side `i`'s.
    pub ends: [End; 2],
}

/// The producer finished this direction (FIN or reset): the kernel's connection says how. A hint, set before the kernel is told.
pub const FINISHED: u32 = 1;
/// The consumer has closed its end. A hint, as above.
pub const GONE: u32 = 1;
/// The consumer asks for this direction to go through Linux.
pub const BY_LINUX: u32 = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::mem::{align_of, offset_of, size_of};

    #[test]
    fn each_side_writes_to_cache_lines_of_its_own() {
        assert_eq!((size_of::<Produced>(), align_of::<Produced>()), (64, 64));
        assert_eq!((size_of::<Consumed>(), size_of::<Switch>(), size_of::<End>()), (64, 64, 64));
        assert_eq!(offset_of!(Direction, consumed), 64);
        assert_eq!(offset_of!(Direction, switch), 128);
        assert_eq!(size_of::<Direction>(), 192);
        assert_eq!(offset_of!(Header, ends), 384);
        assert_eq!(size_of::<Header>(), 512);
    }

    #[test]
    fn words_are_where_the_service_looks_for_them() {
        assert_eq!(offset_of!(Produced, tail), 0);
        assert_eq!(offset_of!(Produced, base), 4);
        assert_eq!(offset_of!(Produced, flags), 8);
        assert_eq!(offset_of!(Produced, room), 12);
        assert_eq!(offset_of!(Consumed, head), 0);
        assert_eq!(offset_of!(Consumed, flags), 4);
        assert_eq!(offset_of!(Consumed, data), 8);
        assert_eq!(offset_of!(End, attached), 0);
        assert_eq!(offset_of!(End, closed), 4);
    }

    #[test]
    fn header_and_homes_share_one_page_and_nothing_overlaps() {
        assert_eq!(HEADER, 512);
        assert!(header_at().is_multiple_of(64));
        let page = header_at() / PAGE * PAGE;
        assert_eq!(ring_at(0) + home(0) as usize, page);
        assert_eq!(ring_at(0) + RING as usize, header_at());
        assert_eq!(header_at() + HEADER, ring_at(1));
        assert_eq!(ring_at(1) + home(1) as usize + NEAR as usize, page + PAGE);
        assert!(ring_at(1) + RING as usize <= SLOT);
        assert!(slot_at(0).is_multiple_of(PAGE) && SLOT.is_multiple_of(PAGE));
        assert_eq!(slot_at(SLOTS), REGION);
    }

    #[test]
    fn notices_fit_into_the_first_page_a_line_each() {
        assert_eq!((size_of::<Notice>(), align_of::<Notice>()), (64, 64));
        assert!(size_of::<Notices>() <= PAGE);
    }
}

/// A direction for loom's tests: its atomics are made at run time.
#[cfg(all(test, loom))]
pub mod tests_support {
    use super::*;

    /// Never used.
    pub fn direction() -> Direction {
        let word = || AtomicU32::new(0);
        Direction {
            produced: Produced { tail: word(), base: word(), flags: word(), room: Wanted::new() },
            consumed: Consumed { head: word(), flags: word(), data: Wanted::new() },
            switch: Switch { phase: Phase::new() },
        }
    }
}
