//! Where large reservations of ours lie: far from what the program maps.
//!
//! Left to itself the kernel puts each mapping below the one before it. What a program maps after a reservation of 96 GB (memory, libraries that
//! it loads, stacks) then lies 96 GB away from what it has mapped before, and the processor needs more entries of the upper levels of the
//! page table, of which it keeps few: each miss of the TLB takes longer (`bench/experiments/regions.c`).

use uncopy_ranges::span::PAGE;

/// What one entry of the page table's third level covers.
const REGION: usize = 1 << 30;
/// Where the first place begins, at least and at most: above where programs and their heaps lie, below what the kernel hands out, also where it
/// chooses among the most addresses that x86-64 has (`vm.mmap_rnd_bits=32`).
const FIRST: usize = 0x6600_0000_0000;
const LAST: usize = 0x6e00_0000_0000;
/// It begins so many bytes into a region at most.
const INTO: usize = REGION / 4;

/// Who has a place of his own: so many regions behind the first.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The twin allocator's book, and behind it its blocks.
    Blocks = 0,
    /// The pool of extents.
    Pool = 512,
    /// Kept files.
    Files = 1024,
}

/// The address to ask for, as a hint: where that is not free the kernel takes another one.
///
/// It follows from where the kernel has put this library. So it is as hard to foretell as that; and where the program is to lie at the same
/// addresses in each run (`setarch -R`, debuggers), so do we.
pub fn hint(place: Place) -> usize {
    static OURS: u8 = 0;
    first(&raw const OURS as usize) + place as usize * REGION
}

/// The first place of a process in which something of ours lies at `ours`.
fn first(ours: usize) -> usize {
    // (Multiplied by 2^64 over the golden ratio, which spreads what differs over all bits above.)
    let random = (ours / PAGE).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    let region = random % ((LAST - FIRST) / REGION);
    FIRST + region * REGION + (random >> 20) % (INTO / PAGE) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_begin_on_pages_in_the_first_quarter_of_a_region() {
        for ours in (0x7000_0000_0000..0x7fff_0000_0000).step_by(0x1_2345_6000) {
            let at = first(ours);
            assert!((FIRST..LAST).contains(&at), "{at:#x}");
            assert!(at.is_multiple_of(PAGE) && at % REGION < INTO, "{at:#x}");
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
        assert_eq!(hint(Place::Pool) - hint(Place::Blocks), 512 * REGION);
    }
}
