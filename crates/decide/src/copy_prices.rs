//! What copies cost *in this program*, measured while it runs.
//!
//! `uncopy doctor` measures in a loop; the copy that is saved in a program may be of data in the second-level cache: half the
//! price. So copies of resting sites are timed now and then, and the price of a copied MB in [`Costs`](crate::costs::Costs) is
//! corrected by what is found.

use crate::estimate::nearer;
use crate::site::{CLASSES, PAUSES, class, key, slot};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What no estimate goes beyond, in ns for 1 MB.
const COPY_MB: core::ops::RangeInclusive<u64> = 5_000..=150_000;

/// What copies cost that were made while their call sites rested, in ns for 1 MB; 0: not known. Written without a lock.
#[repr(C)]
#[derive(Debug)]
pub struct CopyPrices {
    sites: [AtomicU32; PAUSES],
    classes: [AtomicU32; CLASSES],
}

impl Default for CopyPrices {
    fn default() -> Self {
        Self::new()
    }
}

impl CopyPrices {
    /// Nothing known.
    pub const fn new() -> Self {
        Self {
            sites: [const { AtomicU32::new(0) }; PAUSES],
            classes: [const { AtomicU32::new(0) }; CLASSES],
        }
    }

    /// Nothing is known any more.
    pub fn clear(&self) {
        self.sites.iter().chain(&self.classes).for_each(|price| price.store(0, Relaxed));
    }

    /// A copy of `len` bytes for the call site that returns to `caller` took `ns`.
    pub fn took(&self, caller: usize, len: usize, ns: u64) {
        let key = key(caller, len);
        let sample = (ns << 20) / len.max(1) as u64;
        let sample = sample.clamp(*COPY_MB.start(), *COPY_MB.end()) as u32;
        // (A site's first sample is no better than what its class is known to cost.)
        let of_class = &self.classes[class(key)];
        let of_site = &self.sites[slot(key)];
        follow(of_class, sample, sample);
        follow(of_site, sample, of_class.load(Relaxed));
    }

    /// Whether copies of the account `key` were timed.
    #[inline]
    pub(crate) fn timed(&self, key: usize) -> bool {
        self.sites[slot(key)].load(Relaxed) > 0
    }

    /// What a copy of the account `key` costs, in ns for 1 MB. Where its own copies were not timed yet, and others of its
    /// size cost less than `modelled`, what these do: a price that is too high would never be found out, because sites
    /// are timed while they rest.
    #[inline]
    pub(crate) fn of(&self, key: usize, modelled: i64) -> i64 {
        let of_class = || match self.classes[class(key)].load(Relaxed) {
            0 => modelled,
            ns => modelled.min(i64::from(ns)),
        };
        match self.sites[slot(key)].load(Relaxed) {
            0 => of_class(),
            ns => i64::from(ns),
        }
    }
}

/// (Two threads may lose a sample: no harm.)
fn follow(cell: &AtomicU32, sample: u32, first: u32) {
    let old = cell.load(Relaxed);
    cell.store(if old == 0 { first } else { nearer(old, sample) }, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: usize = 0x1234;

    #[test]
    fn a_sites_price_follows_its_own_copies_and_a_site_not_yet_timed_has_that_of_its_class() {
        let prices = Box::new(CopyPrices::new());
        assert_eq!(prices.of(key(CALLER, 64 << 10), 40_000), 40_000);
        for _ in 0..100 {
            prices.took(CALLER, 64 << 10, 1_250); // 20 us for 1 MB
        }
        for site in [CALLER, 0x5678] {
            let price = prices.of(key(site, 64 << 10), 40_000);
            assert!((18_000..22_000).contains(&price), "{price}");
        }
        assert_eq!(prices.of(key(CALLER, 1 << 20), 40_000), 40_000);
        assert_eq!(
            prices.of(key(0x5678, 64 << 10), 10_000),
            10_000,
            "no site earns what only others measured"
        );
    }

    #[test]
    fn a_copy_that_was_interrupted_counts_as_one_sample_among_others() {
        let prices = Box::new(CopyPrices::new());
        for i in 0..1_000 {
            prices.took(CALLER, 64 << 10, if i % 10 == 0 { 10_000_000 } else { 1_250 });
        }
        let price = prices.of(key(CALLER, 64 << 10), 40_000);
        assert!((17_000..25_000).contains(&price), "{price}");
    }
}
