//! Whether a call site's copies are worth eliding.
//!
//! A simple account per call site, in nanoseconds: elided bytes earn what copying them would
//! have cost, faults and page-table calls pay. A site whose credit is used up is left alone for a
//! number of copies that doubles every time, then tried again. (The calibrated cost model of the
//! design replaces the constants; the shape stays.)

/// Names a call site; 0 is nobody's.
pub type SiteId = u16;

/// What a copied byte costs, in 1/16 ns: a cold copy of 512 KB takes 72 us on the reference
/// machine, one in the cache 10 us; this lies between.
const BYTE_GAIN_16THS: i64 = 1;
/// What keeping the books of one elided copy costs, in ns.
const ELIDE_COST: i64 = 300;
/// One fault handled by the thread on another core, in ns.
const FAULT_COST: i64 = 11_000;
/// Each page that a fault fills, in ns.
const FILL_COST: i64 = 1_000;
/// One `UFFDIO_MOVE` call, in ns; its pages are nearly free.
pub const MOVE_COST: i64 = 2_500;
/// One `UFFDIO_REGISTER` call, in ns.
pub const REGISTER_COST: i64 = 1_500;
/// A refusal by the kernel: the call, and what follows because of it.
pub const REFUSED_COST: i64 = 20_000;

/// Receiving into an extent what is then freed without having been copied or sent: what it cost,
/// in ns, for nothing.
pub const WASTED_INPUT_COST: i64 = 10_000;

/// Credit that a site begins with and can hold, in ns: what it may invest in registering and moving
/// its buffers before they come round again, or waste after its program has turned bad.
const CREDIT_MAX: i64 = 4_000_000;
/// Credit after a pause.
const CREDIT_AGAIN: i64 = 1_000_000;
/// Faults weigh more than they cost: they are mis-speculation, not investment.
const FAULT_WEIGHT: i64 = 4;
const FIRST_PAUSE: u32 = 256;
const LONGEST_PAUSE_SHIFT: u8 = 12;

#[derive(Clone, Copy, Debug, Default)]
struct Site {
    key: usize,
    credit: i64,
    pause: u32,
    pause_shift: u8,
}

const SITES: usize = 1024;

/// The accounts of all call sites.
#[derive(Debug)]
pub struct Policy {
    sites: Box<[Site; SITES]>,
    /// Smallest copy that is elided, in bytes.
    pub threshold: usize,
    /// Whether sites in debt are left alone.
    pub backoff: bool,
}

impl Policy {
    /// Every site free to elide copies of `threshold` bytes and more.
    pub fn new(threshold: usize, backoff: bool) -> Self {
        Self { sites: Box::new([Site::default(); SITES]), threshold, backoff }
    }

    /// The account of the call site that returns to `key`. Sites share an account when the table
    /// is full.
    pub fn site(&mut self, key: usize) -> SiteId {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        for probe in 0..8 {
            let i = (hash + probe) % (SITES - 1) + 1;
            let s = &mut self.sites[i];
            if s.key == 0 {
                *s = Site { key, credit: CREDIT_MAX, ..Site::default() };
            }
            if s.key == key {
                return i as SiteId;
            }
        }
        (hash % (SITES - 1) + 1) as SiteId
    }

    /// Whether this copy of `len` bytes should be elided; counts down a pause.
    pub fn allows(&mut self, site: SiteId, len: usize) -> bool {
        if len < self.threshold {
            return false;
        }
        let s = &mut self.sites[site as usize];
        if s.pause > 0 {
            s.pause -= 1;
            return false;
        }
        true
    }

    /// Whether `site` is left alone at present.
    pub fn paused(&self, site: SiteId) -> bool {
        self.sites[site as usize].pause > 0
    }

    /// Whether what `site` copies has been going on untouched.
    pub fn trusts(&self, site: SiteId) -> bool {
        let s = &self.sites[site as usize];
        s.pause == 0 && s.credit > CREDIT_MAX / 2
    }

    /// `bytes` were elided for `site`.
    pub fn earn(&mut self, site: SiteId, bytes: usize) {
        let s = &mut self.sites[site as usize];
        s.credit += bytes as i64 * BYTE_GAIN_16THS / 16 - ELIDE_COST;
        if s.credit > CREDIT_MAX {
            s.credit = CREDIT_MAX;
            s.pause_shift = 0;
        }
    }

    /// The program touched what `site` had left unmapped: one fault, which filled `pages`.
    pub fn fault(&mut self, site: SiteId, pages: usize) {
        self.charge(site, FAULT_WEIGHT * (FAULT_COST + pages as i64 * FILL_COST));
    }

    /// `site`'s decision cost `ns`.
    pub fn charge(&mut self, site: SiteId, ns: i64) {
        if site == 0 || !self.backoff {
            return;
        }
        let s = &mut self.sites[site as usize];
        s.credit -= ns;
        if s.credit < 0 {
            s.credit = CREDIT_AGAIN;
            s.pause = FIRST_PAUSE << s.pause_shift;
            s.pause_shift = (s.pause_shift + 1).min(LONGEST_PAUSE_SHIFT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_whose_data_is_touched_is_left_alone_for_longer_and_longer() {
        let mut p = Policy::new(32 << 10, true);
        let site = p.site(0x1234);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            while p.allows(site, 1 << 20) {
                p.charge(site, 50 * FAULT_COST);
            }
            let mut pause = 1;
            while !p.allows(site, 1 << 20) {
                pause += 1;
            }
            pauses.push(pause);
        }
        assert!(pauses.windows(2).all(|w| w[1] > w[0] + w[0] / 2), "{pauses:?}");
    }

    #[test]
    fn a_site_that_earns_survives_a_fault_now_and_then() {
        let mut p = Policy::new(32 << 10, true);
        let site = p.site(0x1234);
        for _ in 0..10_000 {
            assert!(p.allows(site, 512 << 10));
            p.earn(site, 512 << 10);
            p.charge(site, FAULT_COST);
        }
    }

    #[test]
    fn sites_have_accounts_of_their_own() {
        let mut p = Policy::new(32 << 10, true);
        let (a, b) = (p.site(0x1234), p.site(0x5678));
        assert_ne!(a, b);
        assert_eq!(p.site(0x1234), a);
        p.charge(a, i64::from(u32::MAX));
        assert!(!p.allows(a, 1 << 20) && p.allows(b, 1 << 20));
    }
}
