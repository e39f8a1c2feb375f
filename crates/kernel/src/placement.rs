//! Where our mappings lie: far from what the program maps.
//!
//! Left to itself the kernel puts each mapping below the one before it, or into a gap that is large
//! enough.
//!
//! - Mappings that a program makes after a reservation of 96 GB (memory, libraries that it loads,
//!   stacks) then lie 96 GB away from those that it has made before, and the processor needs more
//!   entries of the upper levels of the page table, of which it keeps few: each miss of the TLB
//!   takes longer (`bench/experiments/regions.c`).
//! - A gap may be one that the program made, and will map over: a program that knows all that maps
//!   in it may unmap memory and take the same addresses again later
//!   (`tests/races/moved_mapping_while_forking.c`: our heap lay there, and was gone).

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use uncopy_ranges::span::{PAGE, page_up};

/// The bytes that one entry of the page table's third level (PUD) covers.
const PUD_SIZE: usize = 1 << 30;
/// Where the first place begins, at least and at most: above where programs and their heaps lie,
/// below what the kernel hands out, also where it chooses among the most addresses that x86-64 has
/// (`vm.mmap_rnd_bits=32`). The places take 2 TB more.
const FIRST: usize = 0x6600_0000_0000;
const LAST: usize = 0x6d00_0000_0000;
/// The first place begins between one and two times this far behind the beginning of such an entry:
/// what lies below it is covered by the same entry at first.
const INTO: usize = PUD_SIZE / 4;
/// Entries that a place takes.
const PUDS: usize = 512;

/// One large mapping has a place of its own. The value says how many entries it lies behind the
/// first place.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The twin allocator's book, and behind it its blocks.
    Blocks = 0,
    /// The pool of extents.
    Pool = PUDS as isize,
    /// Kept files.
    Files = 2 * PUDS as isize,
}

/// A place for many mappings, which come and go.
#[derive(Debug)]
pub struct Row {
    place: usize,
    taken: AtomicUsize,
}

/// Small mappings: memory of the libraries' own allocator, stacks, single pages. Each lies below
/// the one before it, below the book of blocks.
pub static SMALL: Row = Row { place: 0, taken: AtomicUsize::new(0) };
/// Memory shared with other programs that use the same TCP service, hundreds of MB each.
pub static SHARED: Row = Row { place: 4 * PUDS, taken: AtomicUsize::new(0) };

impl Row {
    /// The address to ask for, as a hint, for one more mapping of `bytes`. It is below the one
    /// before; after many, above all of them again.
    pub fn next(&self, bytes: usize) -> usize {
        first(ours()) + self.place * PUD_SIZE - self.below(bytes)
    }

    /// Bytes between the mapping's beginning and the place's.
    fn below(&self, bytes: usize) -> usize {
        let bytes = page_up(bytes);
        self.taken.fetch_add(bytes, Relaxed) % (PUDS / 2 * PUD_SIZE) + bytes
    }
}

/// The address to ask for, as a hint: where that is not free the kernel takes another one.
///
/// It follows from where the kernel has put this library. So it is as hard to foretell as that; and
/// where the program is to lie at the same addresses in each run (`setarch -R`, debuggers), so do
/// we.
pub fn hint(place: Place) -> usize {
    first(ours()) + place as usize * PUD_SIZE
}

/// An address in this library.
fn ours() -> usize {
    static OURS: u8 = 0;
    &raw const OURS as usize
}

/// The first place of a process in which something of ours lies at `ours`.
fn first(ours: usize) -> usize {
    // (Multiplied by 2^64 over the golden ratio, which spreads what differs over all bits above.)
    let random = (ours / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    let entry = random % ((LAST - FIRST) / PUD_SIZE);
    FIRST + entry * PUD_SIZE + INTO + (random >> 20) % (INTO / PAGE) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_begin_on_pages_in_the_second_quarter_of_an_entry() {
        for ours in (0x7000_0000_0000..0x7fff_0000_0000).step_by(0x1_2345_6000) {
            let at = first(ours);
            assert!((FIRST..LAST).contains(&at), "{at:#x}");
            assert!(at.is_multiple_of(PAGE), "{at:#x}");
            assert!((INTO..2 * INTO).contains(&(at % PUD_SIZE)), "{at:#x}");
        }
    }

    #[test]
    fn libraries_at_different_pages_have_different_places() {
        for stride in [PAGE, 1 << 21, 1 << 28] {
            let mut all: Vec<usize> =
                (0..10_000).map(|i| first(0x7f00_0000_0000 + i * stride)).collect();
            all.sort_unstable();
            all.dedup();
            assert!(all.len() > 9_990, "only {} of 10,000, {stride} bytes apart", all.len());
        }
    }

    #[test]
    fn a_place_stays_where_it_is() {
        assert_eq!(hint(Place::Blocks), hint(Place::Blocks));
        assert_eq!(hint(Place::Pool) - hint(Place::Blocks), 512 * PUD_SIZE);
    }

    #[test]
    fn mappings_of_a_row_lie_one_below_the_other() {
        let row = Row { place: 4, taken: AtomicUsize::new(0) };
        let place = first(ours()) + 4 * PUD_SIZE;
        assert_eq!(row.next(PAGE), place - PAGE);
        assert_eq!(row.next(5000), place - 3 * PAGE);
        assert_eq!(row.next(PAGE), place - 4 * PAGE);
    }

    #[test]
    fn a_row_begins_anew_before_it_comes_to_another_place() {
        let row = Row { place: 4, taken: AtomicUsize::new(0) };
        let below: Vec<usize> = (0..2_000).map(|_| row.below(PUD_SIZE)).collect();
        assert!(below.iter().all(|&below| (PUD_SIZE..=256 * PUD_SIZE).contains(&below)));
        assert_eq!(below[256], below[0]);
    }
}
