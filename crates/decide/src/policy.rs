//! The controller: an account for each call site, and one experiment for all of them.
//!
//! An account is of a call site and size class, in nanoseconds: elided bytes earn what copying them
//! would have cost; keeping the books, page-table calls, faults, and the detours of input and
//! output through extents are charged. A site whose credit is used up is left alone, for longer
//! each time ([`Backoff`]). Prices are [`Costs`]: what they do not tell, an experiment finds out
//! ([`crate::experiment`]).
//!
//! Detours ([`Event::is_detour`]) are caused by all sites that hand the same bytes on, but only the
//! last of them would be charged for them, and rest while the others go on. So once an experiment
//! has shown a gain, which they are a part of, those of a site that goes on eliding are not
//! charged; and what a MB has saved beyond its price, which depends on where its bytes lie, is
//! credited.

use crate::backoff::Backoff;
use crate::controller::Controller;
use crate::costs::{Costs, each};
use crate::event::{Act, Event};
use crate::experiment::{Experiment, Outcome, Progress};
use crate::pauses::Pauses;
use crate::records::{RECORDS, Record, Records, UNTRIED, bump};
use crate::site::{SiteId, class, hash, key, slot};
use crate::times::Times;
use core::sync::atomic::Ordering::Relaxed;
use uncopy_ranges::span::PAGE;

/// The credit that a site begins with, in ns: it may be invested in registering and moving its
/// buffers before they come round again.
pub const CREDIT: i64 = 4_000_000;
/// Most credit that it can hold, in ns: what it has earned it may invest in more buffers (those of
/// some hundred connections more), or waste after its program has turned bad.
pub const CREDIT_MAX: i64 = 64_000_000;
/// Copies that a first rest is long, and detours after which a site that elides no more is charged
/// for them. After a rest a site has what so many of its copies cost, and a quarter of [`CREDIT`]
/// at most: it has not earned its way out.
const REST: u64 = 256;
/// Faults weigh more than they cost: they are a sign of what is to come, not an investment.
const FAULT_WEIGHT: i64 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Site {
    key: usize,
    credit: i64,
    backoff: Backoff,
    record: u16,
    /// Detours since its last elided copy.
    detours: u16,
    /// It sends by reference, or its copies are not made by the processor: experiments are not its
    /// concern.
    untried: bool,
}

const SITES: usize = 2048;

/// See the module.
#[derive(Debug)]
pub struct Policy {
    sites: Box<[Site]>,
    pauses: &'static Pauses,
    records: &'static Records,
    recorded: u16,
    /// `None`: nothing can be compared, so accounts decide.
    experiment: Option<Experiment>,
    /// How far the program has come, but for the time.
    done: Progress,
    /// Faults are answered on the core that took them.
    near: bool,
    /// The prices that are charged.
    costs: Costs,
    /// The saving of an elided MB beyond that, in ns, as the last experiment has shown; nothing
    /// unless eliding has gained.
    unseen_mb: i64,
    /// Whether sites are ever left alone.
    backoff: bool,
}

impl Policy {
    /// With `backoff` no copy is elided until an experiment has shown a gain, and sites in debt are
    /// left alone.
    pub fn new(backoff: bool, costs: Costs, pauses: &'static Pauses) -> Self {
        static NOBODYS: Records = Records::new();
        pauses.none_elides.store(u32::from(backoff), Relaxed);
        Self {
            sites: vec![Site::default(); SITES].into_boxed_slice(),
            pauses,
            records: &NOBODYS,
            recorded: 0,
            experiment: backoff.then(Experiment::default),
            done: Progress::default(),
            near: false,
            costs,
            unseen_mb: 0,
            backoff,
        }
    }

    /// Accounts decide, from the beginning on.
    #[must_use]
    pub fn without_experiments(mut self) -> Self {
        self.end_experiments();
        self
    }

    /// Accounts decide from now on.
    fn end_experiments(&mut self) {
        (self.experiment, self.unseen_mb) = (None, 0);
        self.pauses.none_elides.store(0, Relaxed);
    }

    /// Writes down in `records` what is done for each call site.
    #[must_use]
    pub fn recording(mut self, records: &'static Records) -> Self {
        self.records = records;
        self
    }

    /// The place of `site` in [`Pauses`].
    #[inline]
    fn slot(&self, site: SiteId) -> usize {
        slot(self.sites[site as usize].key)
    }

    #[inline]
    fn record(&self, site: SiteId) -> &'static Record {
        &self.records.0[self.sites[site as usize].record as usize % RECORDS]
    }

    /// A record for the account of `key`, while there are any.
    #[cold]
    fn open_record(&mut self, key: usize) -> u16 {
        if self.recorded as usize + 1 >= RECORDS {
            return 0;
        }
        self.recorded += 1;
        let r = &self.records.0[self.recorded as usize];
        r.key.store(key as u64, Relaxed);
        r.credit.store(CREDIT, Relaxed);
        r.pause.store(slot(key) as u32, Relaxed);
        self.recorded
    }

    /// Whether experiments are about `site`: never about nobody's, which is that of kept files too.
    #[inline]
    fn is_tried(&self, site: SiteId) -> bool {
        site > 0 && !self.sites[site as usize].untried
    }

    fn never_try(&mut self, site: SiteId) {
        let s = &mut self.sites[site as usize];
        if !s.untried && s.record > 0 {
            self.records.0[s.record as usize].pause.fetch_or(UNTRIED, Relaxed);
        }
        s.untried = true;
    }

    #[inline]
    fn none_elides(&self, site: SiteId) -> bool {
        self.pauses.none_elides() && self.is_tried(site)
    }

    /// Whether `site` may do something about a copy or an output; counts down its rest.
    #[inline]
    fn allows(&self, site: SiteId) -> bool {
        !self.none_elides(site) && self.pauses.count_down(self.slot(site)) == 0
    }

    /// Whether `site` is left alone at present.
    #[inline]
    fn rests(&self, site: SiteId) -> bool {
        self.none_elides(site) || self.pauses.peek(self.slot(site)) > 0
    }

    /// `site` has earned so many ns, or lost them. (While it rests that is what it did before; and
    /// what an experiment does is no site's own.)
    #[inline]
    fn book(&mut self, site: SiteId, ns: i64, what: Event) {
        let (tried, detour) = (self.is_tried(site), what.is_detour());
        let experiment = self.experiment.as_ref().filter(|_| tried);
        let counts = experiment.is_none_or(Experiment::counts);
        let shown = detour
            && experiment.is_some_and(Experiment::has_gained)
            && u64::from(self.sites[site as usize].detours) < REST;
        if tried && counts {
            self.done.saved += ns;
            self.done.detours -= if detour { ns } else { 0 };
        }
        if site == 0 || !self.backoff || !counts || shown || self.rests(site) {
            return;
        }
        let unseen = self.unseen(site, what);
        let s = &mut self.sites[site as usize];
        s.credit += ns + unseen;
        if s.credit >= CREDIT {
            s.credit = s.credit.min(CREDIT_MAX);
            s.backoff.forgive();
        }
        if s.credit < 0 {
            self.rest(site);
        }
        let s = &self.sites[site as usize];
        self.records.0[s.record as usize % RECORDS].credit.store(s.credit, Relaxed);
    }

    /// The time that `what` has saved beyond its price, in ns.
    #[inline]
    fn unseen(&self, site: SiteId, what: Event) -> i64 {
        match what {
            Event::ElidedAgain { bytes } | Event::Elided { bytes } if self.is_tried(site) => {
                each(bytes, self.unseen_mb) >> 20
            }
            _ => 0,
        }
    }

    fn write_down(&mut self, site: SiteId, what: Event) {
        let r = self.record(site);
        match what {
            Event::ElidedAgain { bytes } | Event::Elided { bytes } | Event::Lent { bytes, .. } => {
                bump(&r.elided, 1);
                bump(&r.elided_bytes, bytes as u64);
                self.done.elided += if self.is_tried(site) { bytes as u64 } else { 0 };
            }
            Event::Fault { pages } => {
                bump(&r.faults, 1);
                bump(&r.touched_pages, pages as u64);
            }
            Event::Reused => bump(&r.faults, 1),
            _ => {}
        }
    }

    /// `site` is left alone, for longer than the last time.
    #[cold]
    fn rest(&mut self, site: SiteId) {
        let key = self.sites[site as usize].key;
        let again = ((REST as i64) << class(key)).saturating_mul(self.costs.copy_mb) >> 20;
        let s = &mut self.sites[site as usize];
        s.credit = again.min(CREDIT / 4);
        let copies = s.backoff.rest(REST);
        self.pauses.left[slot(key)].store(copies as u32, Relaxed);
        bump(&self.record(site).paused, copies);
    }
}

impl Controller for Policy {
    /// Sites share an account when the table is full.
    #[inline]
    fn site(&mut self, caller: usize, len: usize) -> SiteId {
        let key = key(caller, len);
        let hash = hash(key);
        for probe in 0..8 {
            let i = (hash + probe) % (SITES - 1) + 1;
            if self.sites[i].key == 0 {
                let record = self.open_record(key);
                self.sites[i] = Site { key, credit: CREDIT, record, ..Site::default() };
            }
            if self.sites[i].key == key {
                return i as SiteId;
            }
        }
        (hash % (SITES - 1) + 1) as SiteId
    }

    #[inline]
    fn act(&mut self, site: SiteId, what: Act) -> bool {
        match what {
            Act::Elide(_) => self.allows(site),
            Act::ElideAgain(_) => !self.rests(site),
            Act::ByReference { bytes } => bytes >= self.costs.lend_from(),
            Act::Lend(_) => {
                self.never_try(site);
                self.allows(site)
            }
            Act::GiveBack => self.rests(site),
        }
    }

    #[inline]
    fn event(&mut self, site: SiteId, what: Event) -> bool {
        match what {
            Event::Missed(why) => self.record(site).missed(why),
            Event::NeverTried => self.never_try(site),
            Event::AnswersNear(near) => self.near = near,
            Event::Copied { total } => {
                self.done.copied = total;
                return self.experiment.is_some();
            }
            _ => {
                self.write_down(site, what);
                let cost = self.costs.of(what, self.near);
                self.done.prepared += (what.prepared_pages() * PAGE) as u64;
                let touched = matches!(what, Event::Fault { .. } | Event::Reused);
                let s = &mut self.sites[site as usize];
                match what {
                    Event::ElidedAgain { .. } | Event::Elided { .. } => s.detours = 0,
                    _ => s.detours = s.detours.saturating_add(what.is_detour().into()),
                }
                let ns = if touched { -FAULT_WEIGHT * cost } else { -cost };
                self.book(site, ns, what);
            }
        }
        false
    }

    fn time(&mut self, now: Option<Times>) -> Option<Outcome> {
        let Some(times) = now else {
            self.end_experiments();
            return None;
        };
        let experiment = self.experiment.as_mut()?;
        let outcome = experiment.look(Progress { times, ..self.done });
        self.pauses.none_elides.store(u32::from(!experiment.elides()), Relaxed);
        let gained = experiment.has_gained();
        if let Some((found, unseen)) = outcome.and_then(|found| Some((found, found.unseen_mb?))) {
            // (No MB saves more than all that is done for one.)
            let most = if gained { i64::try_from(found.copying).unwrap_or(i64::MAX) } else { 0 };
            self.unseen_mb = unseen.clamp(0, most);
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
