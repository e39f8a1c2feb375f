//! What each event earns or costs the call site that it is due to.

use super::{FINDING_OUT, Policy};
use crate::costs::{COLD_OUTPUT, COLD_OUTPUT_8THS, WARM_8THS, share_of_mb};
use crate::records::bump;
use crate::scale::Bookkeeping;
use crate::site::SiteId;

/// Faults weigh more than they cost: they are mis-speculation, not investment.
const FAULT_WEIGHT: i64 = 4;
/// So many inputs that fill none of their extents have the freed pages of the last one's buffer untracked;
const SHORT_MAX: u8 = 64;
/// one that fills an extent undoes so many.
const LONG_UNDOES: u8 = 4;

impl Policy {
    /// `bytes` were elided for `site`, by a copy that does what the last one did.
    #[inline]
    pub fn elided_again(&mut self, site: SiteId, bytes: usize) {
        self.earn(site, bytes, self.costs.again);
    }

    /// `bytes` were elided for `site`, by any other copy.
    pub fn elided(&mut self, site: SiteId, bytes: usize) {
        self.earn(site, bytes, self.costs.elide);
    }

    /// `bytes` were elided for `site`; the books of it took `cost` ns.
    #[inline]
    pub(super) fn earn(&mut self, site: SiteId, bytes: usize, cost: i64) {
        let cost = self.scale.books(Bookkeeping::Copies, cost);
        let gain = share_of_mb(bytes, self.copy_mb(site));
        let r = self.record(site);
        bump(&r.elided, 1);
        bump(&r.elided_bytes, bytes as u64);
        if !self.sites[site as usize].untried {
            self.elided += bytes as u64;
        }
        if self.is_frozen(site) {
            self.lose(-gain);
            return;
        }
        self.gain(site, gain);
        if site == 0 || !self.backoff {
            return;
        }
        self.charge_steady(site, cost);
        // (Small views that stay while it rests go on being copied as such.)
        if self.paused(site) {
            return;
        }
        self.weigh(site);
    }

    /// From now on faults are answered on the core that took them, or not.
    pub fn answers_near(&mut self, near: bool) {
        self.near = near;
    }

    fn price_of_fault(&self) -> i64 {
        if self.near { self.costs.fault_near } else { self.costs.fault }
    }

    /// The program touched what `site` had left unmapped: one fault, which filled `pages`.
    pub fn fault(&mut self, site: SiteId, pages: usize) {
        let cost = self.price_of_fault() + pages as i64 * self.costs.fill;
        let r = self.record(site);
        bump(&r.faults, 1);
        bump(&r.touched_pages, pages as u64);
        if self.is_frozen(site) {
            self.lose(cost);
            return;
        }
        let s = &self.sites[site as usize];
        let cost = match (s.finding_out > 0, s.pause_shift) {
            // (Where waking a thread is slow, so many faults would take more than a site begins with.)
            (true, 0) => cost.min(self.first_credit(s.key) / (2 * i64::from(FINDING_OUT))),
            (true, _) => cost,
            (false, _) => FAULT_WEIGHT * cost,
        };
        let s = &mut self.sites[site as usize];
        s.finding_out = s.finding_out.saturating_sub(1);
        self.charge(site, cost);
    }

    /// An input call received into an extent for `site`.
    pub fn received(&mut self, site: SiteId) {
        self.charge_books(site, Bookkeeping::Inputs, self.costs.input);
    }

    /// `bytes` that were received into an extent for `site` were freed, and had neither been copied nor sent.
    pub fn wasted(&mut self, site: SiteId, bytes: usize) {
        self.charge(site, self.costs.wasted_input + share_of_mb(bytes, self.costs.copy_mb));
    }

    /// Memory was freed in which `site` had left views: as much to look up and to change as a copy that does what the last
    /// one did.
    pub fn freed(&mut self, site: SiteId) {
        self.charge_books(site, Bookkeeping::Frees, self.costs.again);
    }

    /// An output of `bytes` was gathered from what `site` elided, `cold_bytes` of it from memory that is hardly in the
    /// cache any more: the copy would have brought them there, now the kernel reads them cold.
    pub fn gathered(&mut self, site: SiteId, bytes: usize, cold_bytes: usize) {
        let warm_bytes = bytes.saturating_sub(cold_bytes);
        let mb = self.copy_mb(site);
        let warm = share_of_mb(warm_bytes, mb) * WARM_8THS;
        let reading = (warm + share_of_mb(cold_bytes, mb) * COLD_OUTPUT_8THS) / 8;
        let start = if cold_bytes > 0 { COLD_OUTPUT } else { 0 };
        let books = self.scale.books(Bookkeeping::Outputs, self.costs.output);
        self.charge_steady(site, books + start + reading);
    }

    /// A copy of `bytes` that `site` had elided was executed: it has to find them, and reads what the copy that was elided would
    /// have brought nearer.
    pub fn copied_out(&mut self, site: SiteId, bytes: usize) {
        let reading = share_of_mb(bytes, self.copy_mb(site)) * WARM_8THS / 8;
        let books = self.scale.books(Bookkeeping::Copies, self.costs.elide);
        self.charge_steady(site, books + reading);
    }

    /// `bytes` in `pages` pages were sent by reference for `site`.
    pub fn lent(&mut self, site: SiteId, bytes: usize, pages: usize) {
        let c = self.costs;
        let saved = share_of_mb(bytes, c.send_mb);
        let r = self.record(site);
        bump(&r.elided, 1);
        bump(&r.elided_bytes, bytes as u64);
        self.gain(site, saved);
        self.charge_steady(site, c.lend + c.lend_page * pages as i64);
    }

    /// `pages` that `site` had lent were dropped.
    pub fn dropped(&mut self, site: SiteId, pages: usize) {
        let ns = self.scale.pages(self.costs.drop_page * pages as i64);
        self.charge_steady(site, ns);
    }

    /// A copy of `site` was looked at in vain.
    pub fn looked(&mut self, site: SiteId) {
        self.charge_books(site, Bookkeeping::Copies, self.costs.look);
    }

    /// The kernel refused to move pages, or to register them, for `site`.
    pub fn refused(&mut self, site: SiteId) {
        let ns = self.scale.pages(self.costs.refused);
        self.charge(site, ns);
    }

    /// Pages are materialized or dropped at nobody's cost: what that takes is not for keeping books.
    pub fn page_work(&mut self) {
        self.scale.pages(1);
    }

    /// An input for `site` filled none of the extents that were made ready for it. Returns whether that was so often.
    pub fn came_short(&mut self, site: SiteId) -> bool {
        let s = &mut self.sites[site as usize];
        s.short += 1;
        let often = s.short >= SHORT_MAX;
        if often {
            s.short = 0;
        }
        often
    }

    /// An input for `site` filled an extent.
    pub fn came_long(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        s.short = s.short.saturating_sub(LONG_UNDOES);
    }

    /// A range was registered for `site`.
    pub fn registered(&mut self, site: SiteId) {
        let ns = self.scale.pages(self.costs.register);
        self.charge(site, ns);
    }

    /// `pages` were moved for `site` in `calls` system calls.
    pub fn moved(&mut self, site: SiteId, calls: u64, pages: usize) {
        let moves = self.price_of_moves(calls, pages);
        let ns = self.scale.pages(moves);
        self.charge(site, ns);
    }

    fn price_of_moves(&self, calls: u64, pages: usize) -> i64 {
        self.costs.move_pages * calls as i64 + self.costs.move_page * pages as i64
    }

    /// The program uses memory again that was freed while unmapped because of `site`: one fault.
    pub fn reused(&mut self, site: SiteId) {
        bump(&self.record(site).faults, 1);
        if self.is_frozen(site) {
            self.lose(self.price_of_fault());
        }
        self.charge(site, FAULT_WEIGHT * self.price_of_fault());
    }

    /// What was unmapped because of `site` is not tracked any more: a page-table call, and `pages` that the
    /// kernel clears as they are touched.
    pub fn untracked(&mut self, site: SiteId, pages: usize) {
        let pages = pages as i64 * self.costs.fresh;
        let call = self.scale.pages(self.costs.register);
        self.charge(site, call + pages);
    }

    /// `pages` that `site` had unmapped were materialized before anybody touched them: one call.
    pub fn materialized(&mut self, site: SiteId, pages: usize) {
        let ns = self.scale.pages(self.costs.move_pages + self.costs.fill * pages as i64);
        self.charge(site, ns);
    }

    /// `pages` were populated by one call, before they are touched, where `site` had unmapped others: less than half of what their
    /// faults cost (0.25 us each instead of 0.64).
    pub fn populated(&mut self, site: SiteId, pages: usize) {
        let ns = self.scale.pages(self.costs.move_pages + self.costs.fresh * pages as i64 * 2 / 5);
        self.charge(site, ns);
    }

    /// Keeping the books for `site` is modelled to cost `ns`.
    fn charge_books(&mut self, site: SiteId, kind: Bookkeeping, ns: i64) {
        let ns = self.scale.books(kind, ns);
        self.charge_steady(site, ns);
    }

    /// `site` costs `ns`, and will go on to do so.
    #[inline]
    fn charge_steady(&mut self, site: SiteId, ns: i64) {
        if self.is_frozen(site) {
            return;
        }
        self.saved -= ns;
        self.sites[site as usize].window.saved -= ns;
        self.debit(site, ns);
    }

    /// `site`'s decision cost `ns`: once, or wasted.
    #[inline]
    pub fn charge(&mut self, site: SiteId, ns: i64) {
        if self.is_frozen(site) {
            return;
        }
        self.spent += ns;
        self.sites[site as usize].window.spent += ns;
        self.debit(site, ns);
    }
}
