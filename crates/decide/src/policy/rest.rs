//! Accounts: when a site falls into debt, how long it rests, what it goes on with.

use super::answers::Due;
use super::{AUDIT, CREDIT_MAX, FINDING_OUT, Policy};
use crate::records::{RECORDS, bump};
use crate::site::{SiteId, slot};
use crate::window::{Times, Verdict, Window};
use core::sync::atomic::Ordering::Relaxed;

pub(super) const FIRST_PAUSE: u32 = 256;
const LONGEST_PAUSE_SHIFT: u8 = 12;
/// Each pause is so many powers of two longer than the one before: a try costs its credit, whatever comes of it.
const PAUSE_GROWS: u8 = 2;

impl Policy {
    /// `site` has elided one copy more. (Sites that send by reference are not weighed.)
    #[inline]
    pub(super) fn weigh(&mut self, site: SiteId) {
        if self.sites[site as usize].window.elided() {
            self.due = Some(Due::Window(site));
        } else {
            self.weighed(site);
        }
    }

    #[cold]
    pub(super) fn window_ends(&mut self, site: SiteId, now: Option<Times>) {
        let s = &mut self.sites[site as usize];
        match s.window.end(now, self.saved) {
            Verdict::Unknown => {}
            Verdict::Worth => s.light = false,
            Verdict::Light => {
                s.light = true;
                self.rest(site);
            }
        }
        self.weighed(site);
    }

    #[inline]
    fn weighed(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        s.audited = false;
        if s.unaudited > 0 {
            s.unaudited -= 1;
            if s.unaudited == 0 {
                self.audit(site);
            }
        }
    }

    /// The copies of `site` are not made by the processor: nobody times them.
    pub(super) fn never_audit(&mut self, site: SiteId) {
        self.sites[site as usize].unaudited = 0;
        self.never_try(site);
    }

    /// Lets a site rest whose copies were never timed.
    #[cold]
    fn audit(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        if self.copies.timed(s.key) {
            return;
        }
        s.audited = true;
        self.pause(site, AUDIT);
    }

    #[inline]
    pub(super) fn debit(&mut self, site: SiteId, ns: i64) {
        if site == 0 || !self.backoff {
            return;
        }
        if self.paused(site) {
            self.charge_resting(site, ns);
            return;
        }
        let s = &mut self.sites[site as usize];
        s.credit -= ns;
        if s.credit < 0 {
            self.fall_into_debt(site);
        }
        let s = &self.sites[site as usize];
        self.records.0[s.record as usize % RECORDS].credit.store(s.credit, Relaxed);
    }

    /// What a site costs while it rests (undoing what it did; small views that stay) leaves it less for its next try, but
    /// lengthens no pause: it says nothing about how the next try will go.
    fn charge_resting(&mut self, site: SiteId, ns: i64) {
        let least = self.credit_again(self.sites[site as usize].key) / 2;
        let s = &mut self.sites[site as usize];
        if !s.audited {
            s.credit = s.credit.min((s.credit - ns).max(least));
        }
    }

    #[cold]
    fn fall_into_debt(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        self.in_debt += u32::from(!s.in_debt);
        s.in_debt = true;
        self.rest(site);
    }

    /// `site` is left alone, for longer than the last time.
    fn rest(&mut self, site: SiteId) {
        let key = self.sites[site as usize].key;
        let credit = self.credit_again(key);
        let s = &mut self.sites[site as usize];
        (s.credit, s.finding_out, s.audited) = (credit, FINDING_OUT, false);
        let pause = FIRST_PAUSE << s.pause_shift;
        s.pause_shift = (s.pause_shift + PAUSE_GROWS).min(LONGEST_PAUSE_SHIFT);
        self.record(site).credit.store(credit, Relaxed);
        self.pause(site, pause);
    }

    /// Whoever shares `site`'s pause begins a new window after it.
    fn pause(&mut self, site: SiteId, copies: u32) {
        let slot_of_all = self.slot(site);
        self.pauses.left[slot_of_all].store(copies, Relaxed);
        bump(&self.record(site).paused, u64::from(copies));
        for s in self.sites.iter_mut().filter(|s| slot(s.key) == slot_of_all) {
            s.window = Window::default();
        }
    }

    #[inline]
    pub(super) fn gain(&mut self, site: SiteId, ns: i64) {
        self.saved += ns;
        let s = &mut self.sites[site as usize];
        s.window.saved += ns;
        s.credit += ns;
        if s.credit > CREDIT_MAX {
            s.credit = CREDIT_MAX;
            self.in_debt -= u32::from(s.in_debt);
            s.in_debt = false;
            if !s.light {
                s.pause_shift = 0;
            }
        }
    }
}
