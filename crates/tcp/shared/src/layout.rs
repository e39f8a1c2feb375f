//! The layout of a region, as both programs and the service agree.
//!
//! ```text
//! region   | notices, one page | returns 0 | returns 1 | slot 0 | slot 1 | ...
//! slot     | ring 0 ................... | header | ring 1 ................... | runs |
//!                              ^ home 0 |        |^ home 1
//!                              |<---- one page -->|
//! ```
//!
//! An empty ring goes on at its *home*, which lies in the header's page. So a connection that only
//! exchanges small messages uses one page of memory, and always the same cache lines.

use crate::closed::Closed;
use crate::notice::{Notice, SLOTS};
use crate::phase::Phase;
use crate::ring::{Consumed, Produced, RING};
use crate::runs::Queue;
use crate::sync::atomic::AtomicU32;
use crate::wanted::ASK;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a slot's header.
pub const HEADER: usize = core::mem::size_of::<Header>();
/// Bytes of each ring that lie in the header's page.
pub const NEAR: u32 = ((PAGE - 512) / 2) as u32;
/// Bytes of a slot.
pub const SLOT: usize = 2 * RING as usize + 2 * PAGE;
/// Bytes of a region.
pub const REGION: usize = SLOTS_AT + SLOTS * SLOT;
/// Where its slots begin.
const SLOTS_AT: usize = 3 * PAGE;

/// Where the words lie by which blocks of this side come back, a page each.
pub const fn returns_at(side: usize) -> usize {
    PAGE + side * PAGE
}

/// Where the slot begins, in bytes from the region's beginning.
pub const fn slot_at(slot: usize) -> usize {
    SLOTS_AT + slot * SLOT
}

/// Where ring `ring` of a slot begins, in bytes from the slot's beginning. Ring 0 is written by
/// side 0.
pub const fn ring_at(ring: usize) -> usize {
    if ring == 0 { NEAR as usize } else { header_at() + 512 }
}

/// Where the runs of a slot begin, in bytes from the slot's beginning: a page that only a sender of
/// blocks uses.
pub const fn runs_at() -> usize {
    2 * RING as usize + PAGE
}

/// Where the header of a slot begins, in bytes from the slot's beginning.
pub const fn header_at() -> usize {
    RING as usize + NEAR as usize
}

/// Where in ring `ring` its home is.
pub const fn home(ring: usize) -> u32 {
    if ring == 0 { RING - NEAR } else { 0 }
}

/// The first page: for each side and door, which of its connections have news; at [`ASK`], which
/// the other side asks to give up the ring.
#[repr(C)]
#[derive(Debug)]
pub struct Notices(pub [[Notice; ASK + 1]; 2]);

/// The last page of a slot: which bytes of direction `i` lie in blocks.
#[repr(C)]
#[derive(Debug)]
pub struct Runs(pub [Queue; 2]);

/// The words that both write, but rarely.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Switch {
    /// Where this direction's bytes are.
    pub phase: Phase,
    /// The sides that have closed it, of those that give blocks back.
    pub closed: Closed,
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

/// The words of one side about its end.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct End {
    /// The slot's generation (the service gives it), once this side knows that its socket is the
    /// other's peer.
    pub attached: AtomicU32,
    /// The slot's generation, once this side will not look at the slot again.
    pub closed: AtomicU32,
    /// The slot's generation, once this side has the other side's own door for it, and knocks
    /// there.
    pub knocks: AtomicU32,
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::returns::Returns;
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
        assert_eq!(offset_of!(Produced, bytes), 16);
        assert_eq!(offset_of!(Produced, writes), 24);
        assert_eq!(offset_of!(Produced, timed), 32);
        assert_eq!(offset_of!(Produced, runs), 36);
        assert_eq!(offset_of!(Produced, told), 40);
        assert_eq!(offset_of!(Produced, by_linux), 48);
        assert_eq!(offset_of!(Consumed, head), 0);
        assert_eq!(offset_of!(Consumed, flags), 4);
        assert_eq!(offset_of!(Consumed, data), 8);
        assert_eq!(offset_of!(Consumed, timed), 16);
        assert_eq!(offset_of!(Consumed, arenas), 32);
        assert_eq!(offset_of!(End, attached), 0);
        assert_eq!(offset_of!(End, closed), 4);
        assert_eq!(offset_of!(End, knocks), 8);
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
        assert!(ring_at(1) + RING as usize <= runs_at());
        assert!(runs_at().is_multiple_of(PAGE) && runs_at() + PAGE == SLOT);
        assert!(slot_at(0).is_multiple_of(PAGE) && SLOT.is_multiple_of(PAGE));
        assert_eq!(slot_at(SLOTS), REGION);
    }

    #[test]
    fn runs_and_returns_have_pages_of_their_own() {
        assert!(size_of::<Runs>() <= PAGE && size_of::<Returns>() <= PAGE);
        assert_eq!(returns_at(1) + PAGE, slot_at(0));
    }

    #[test]
    fn notices_fit_into_the_first_page_a_line_each() {
        assert_eq!((size_of::<Notice>(), align_of::<Notice>()), (64, 64));
        assert!(size_of::<Notices>() <= PAGE);
    }
}
