//! Where large reservations of ours lie: far from what the program maps, and all together.
//!
//! Left to itself the kernel puts each mapping below the one before it. What a program maps after a reservation of 96 GB (memory, libraries that
//! it loads, stacks) then lies 96 GB away from what it has mapped before, and the processor needs more entries of the upper levels of the
//! page table, of which it keeps few: each miss of the TLB takes longer (`bench/experiments/regions.c`).
//!
//! unsafe: asks for the process's personality.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use rustix::rand::{GetRandomFlags, getrandom};
use uncopy_ranges::span::PAGE;

/// What one entry of the page table's third level covers.
const REGION: usize = 1 << 30;
/// Where the places begin, at least and at most: below what the kernel hands out (as distributions set it up: `vm.mmap_rnd_bits`), above where
/// programs and their heaps lie, and nothing that sanitizers keep for themselves.
const FIRST: usize = 0x7000_0000_0000;
const LAST: usize = 0x7d00_0000_0000;
/// Places begin so many bytes into a region at most.
const INTO: usize = REGION / 4;

/// Who has a place of his own: so many regions behind the first.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The twin allocator's book, and behind it its blocks.
    Blocks = 0,
    /// The pool of extents.
    Pool = 512,
}

/// Where the first place begins; 0: not chosen yet. (Several threads may choose: the first one's choice holds.)
static BEGIN: AtomicUsize = AtomicUsize::new(0);

/// The address to ask for, as a hint: where that is not free the kernel takes another one.
pub fn hint(place: Place) -> usize {
    let chosen = match BEGIN.load(Relaxed) {
        0 => match BEGIN.compare_exchange(0, choose(), Relaxed, Relaxed) {
            Ok(_) => BEGIN.load(Relaxed),
            Err(others) => others,
        },
        chosen => chosen,
    };
    chosen + place as usize * REGION
}

/// One of 2^29 addresses; always the same one where the program is not to lie anywhere else in each run (`setarch -R`, debuggers).
fn choose() -> usize {
    let mut bytes = [0; 8];
    // SAFETY: asks only.
    let fixed = unsafe { libc::personality(0xffff_ffff) } & libc::ADDR_NO_RANDOMIZE != 0;
    if !fixed {
        // (It fills 8 bytes whole or, before there is any randomness, none.)
        let _ = getrandom(&mut bytes, GetRandomFlags::INSECURE);
    }
    let random = usize::from_ne_bytes(bytes);
    let region = (random >> 32) % ((LAST - FIRST) / REGION);
    FIRST + region * REGION + random % (INTO / PAGE) * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_begin_on_pages_in_the_first_quarter_of_a_region_and_differ_each_time() {
        let chosen: Vec<usize> = (0..1000).map(|_| choose()).collect();
        for at in &chosen {
            assert!((FIRST..LAST).contains(at), "{at:#x}");
            assert!(at.is_multiple_of(PAGE) && at % REGION < INTO, "{at:#x}");
        }
        let mut different = chosen.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 990, "only {} of 1000 differ", different.len());
    }

    #[test]
    fn the_place_once_chosen_stays() {
        assert_eq!(hint(Place::Blocks), hint(Place::Blocks));
        assert_eq!(hint(Place::Pool) - hint(Place::Blocks), 512 * REGION);
    }
}
