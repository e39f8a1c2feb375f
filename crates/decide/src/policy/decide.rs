//! Whether a copy is to be elided: by its site's own account, or because all sites elide, or none does.

use super::{FINDING_OUT, Policy, Site};
use crate::records::UNTRIED;
use crate::regime::Regime;
use crate::site::SiteId;
use crate::trial::{LOSS_MAX, Outcome, Progress};
use crate::window::{Times, Window};
use core::sync::atomic::Ordering::Relaxed;

/// A rest of so many copies is long enough for registering the site's buffers once more after it.
const LONG_REST: u32 = 512;

impl Policy {
    /// Whether this copy of `len` bytes should be elided; counts down a pause.
    pub fn allows(&mut self, site: SiteId, len: usize) -> bool {
        len >= self.threshold && self.count_down(site) == 0
    }

    /// Whether `len` bytes should be sent by reference for `site`; counts down a pause.
    pub fn allows_lending(&mut self, site: SiteId, len: usize) -> bool {
        self.never_try(site);
        len >= self.threshold && self.count_down(site) == 0
    }

    pub(super) fn never_try(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        if !s.untried && s.record > 0 {
            self.records.0[s.record as usize].pause.fetch_or(UNTRIED, Relaxed);
        }
        s.untried = true;
    }

    /// Who decides about `site`: about nobody's, which is that of kept files too, always its account.
    #[inline]
    fn regime(&self, site: SiteId) -> Regime {
        let tried = site > 0 && !self.sites[site as usize].untried;
        if tried { self.pauses.regime() } else { Regime::Accounts }
    }

    #[inline]
    fn count_down(&self, site: SiteId) -> u32 {
        self.pauses.count_down(self.regime(site), self.slot(site))
    }

    #[inline]
    fn left(&self, site: SiteId) -> u32 {
        self.pauses.peek(self.regime(site), self.slot(site))
    }

    /// Whether the account of `site` is not kept at present.
    #[inline]
    pub(super) fn is_frozen(&self, site: SiteId) -> bool {
        self.frozen && !self.sites[site as usize].untried
    }

    /// Whether `site` is left alone at present.
    pub fn paused(&self, site: SiteId) -> bool {
        self.left(site) > 0
    }

    /// Whether `site` is left alone at present, if sites ever are.
    pub fn backs_off(&self, site: SiteId) -> bool {
        self.backoff && self.paused(site)
    }

    /// Whether `site` is left alone for long: what it has registered is better untracked.
    pub fn rests_long(&self, site: SiteId) -> bool {
        self.left(site) >= LONG_REST
    }

    /// Whether what `site` copies has been going on untouched.
    pub fn trusts(&self, site: SiteId) -> bool {
        let Site { key, credit, .. } = self.sites[site as usize];
        match self.regime(site) {
            Regime::Accounts => !self.paused(site) && credit > self.full_credit(key) / 2,
            regime => regime == Regime::All,
        }
    }

    /// The program's large copies have come to `copied` bytes by now. Returns what a trial has come to that ended with that.
    pub(super) fn try_regimes(&mut self, copied: u64, times: Option<Times>) -> Option<Outcome> {
        let (elided, saved) = (self.elided, self.saved - self.spent);
        let now = times.map(|times| Progress { times, copied, elided, saved });
        let mut outcome = None;
        match now {
            Some(now) if self.lost < LOSS_MAX => {
                outcome = self.trial.look(now, self.costs.copy_mb.unsigned_abs());
            }
            _ if self.frozen => {
                self.trial.give_up(now);
                (outcome, self.lost) = (Some(Outcome::Lost), 0);
            }
            _ => {}
        }
        let regime = self.trial.regime();
        let frozen = regime != Regime::Accounts || self.trial.settles();
        if frozen != self.frozen {
            self.frozen = frozen;
            // (What passed meanwhile is no site's own; and what pages are touched each time has to be found out again where none
            // was unmapped for a while.)
            for s in self.sites.iter_mut().filter(|s| !s.untried) {
                (s.window, s.finding_out) = (Window::default(), FINDING_OUT);
            }
        }
        if regime != self.pauses.regime() {
            self.pauses.regime.store(regime as u32, Relaxed);
            self.lost = 0;
        }
        outcome
    }

    /// While all sites elide: a fault took `ns`, or a copy that was not made saved them. Faults that go on and on are what a
    /// trial must not wait for the end of a stretch for.
    pub(super) fn lose(&mut self, ns: i64) {
        if self.pauses.regime() != Regime::All {
            return;
        }
        self.lost = (self.lost + ns).max(0);
        if self.lost >= LOSS_MAX {
            // (What is next to be looked at ends it for good.)
            self.pauses.regime.store(Regime::Accounts as u32, Relaxed);
        }
    }
}
