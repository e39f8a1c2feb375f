//! Which copies are slow where the processor has that weakness.
#![forbid(unsafe_code)]

use core::ops::RangeInclusive;

/// Distances count within the page: processors compare these address bits of a load with those of
/// stores before it.
const PAGE: usize = 4096;

/// A destination that begins 1 to so many bytes ahead of the source within the page is near. Zen 3,
/// libc over the best distance: 15 to 40 up to 31; 1.0 at 32; 1.4 (16 and 64 KB) to 1.7 (32 KB)
/// from 33 to 63; 1.2 from there to 127. Ours: 1.0 at all of them.
pub const REACH: usize = 63;

/// Sizes that our routine may take over. glibc uses `rep movsb` from 2,112 bytes on at the least,
/// and as a rule up to the size of the second-level cache, which is 1 MB in the largest of these
/// processors. Further on its own loop is ours but for what it leaves out of the caches.
pub const SIZES: RangeInclusive<usize> = LEAST..=MOST;
/// The first of them.
pub const LEAST: usize = 2 << 10;
/// The last of them.
pub const MOST: usize = 1 << 20;

/// How many bytes `to` lies ahead of `from` within the page.
#[inline(always)]
pub const fn distance(to: usize, from: usize) -> usize {
    to.wrapping_sub(from) % PAGE
}

/// Whether `to` lies 1 to `reach` bytes ahead of `from` within the page.
#[inline(always)]
pub const fn is_near(to: usize, from: usize, reach: usize) -> bool {
    // (A distance of 0 becomes the largest.)
    distance(to, from).wrapping_sub(1) < reach
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_a_little_ahead_in_any_page_is_near() {
        for from in [0x20_0000, 0x20_0123, 0x20_0fff, usize::MAX] {
            for page in [0, PAGE, 5 * PAGE, usize::MAX - PAGE + 1] {
                let near =
                    |d: &usize| is_near(from.wrapping_add(page).wrapping_add(*d), from, REACH);
                assert!((0..PAGE).filter(near).eq(1..=REACH), "{from:#x} {page:#x}");
            }
        }
    }

    #[test]
    fn nothing_is_near_where_there_is_no_reach() {
        assert!((0..PAGE).all(|d| !is_near(0x5000 + d, 0x9000, 0)));
    }
}
