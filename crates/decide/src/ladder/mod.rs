//! A controller of two rules, to take the place of the accounts once it wins everywhere (`uncopy replay`).
//!
//! - The *ladder* decides from which size on copies are elided: one experiment at a time, for the whole process, between the size that is held
//!   and its neighbour ([`rungs`]). What eliding changes where no event shows it is in there.
//! - The *brake* keeps one call site from wasting what it is not yet known to waste: it is charged with faults and page-table calls, and with
//!   nothing else ([`brake`]).
//!
//! What a site that does not elide has unmapped is given back: buying where renting would go on.

mod brake;
mod rungs;

use self::brake::Brake;
use self::rungs::{Progress, RUNGS, Rungs};
use crate::controller::Controller;
use crate::costs::Costs;
use crate::event::{Act, Event};
use crate::pauses::Pauses;
use crate::site::{SiteId, class, hash, key, slot};
use crate::trial::Outcome;
use crate::window::Times;
use core::sync::atomic::Ordering::Relaxed;

/// Call sites that are told apart; others share a place by hash.
const SITES: usize = 2048;
/// So many copies a "no" holds for, which are looked at without the lock.
const NO_HOLDS: u32 = 256;
/// The time is asked for once in so many charges: the brake must not see too old a one.
const ASKS: u32 = 64;
/// So many inputs that fill nothing of what waits for them have it untracked; a long one undoes four.
const SHORT_MAX: u8 = 64;

/// See the module.
#[derive(Debug)]
pub struct Ladder {
    rungs: Rungs,
    brakes: Box<[Brake]>,
    pauses: &'static Pauses,
    costs: Costs,
    threshold: usize,
    near: bool,
    now: Times,
    /// What the program had copied when that was said last.
    copied: Option<u64>,
    charges: u32,
}

impl Ladder {
    /// From copies of `threshold` bytes on.
    pub fn new(threshold: usize, costs: Costs, pauses: &'static Pauses) -> Self {
        Self {
            rungs: Rungs::default(),
            brakes: vec![Brake::default(); SITES].into_boxed_slice(),
            pauses,
            costs,
            threshold,
            near: false,
            now: Times::default(),
            copied: None,
            charges: 0,
        }
    }

    /// Whether the rung that is in force includes the copies of `site`.
    fn includes(&self, site: SiteId) -> bool {
        let size = 1 << class(self.brakes[site as usize].key);
        size >= self.threshold && size >= RUNGS[self.rungs.active()]
    }

    fn wants(&mut self, site: SiteId) -> bool {
        self.includes(site) && self.brakes[site as usize].is_off(self.now.cpu)
    }

    /// As [`Ladder::wants`] for a copy of `len` bytes; a "no" is published.
    fn elides(&mut self, site: SiteId, len: usize) -> bool {
        let yes = self.wants(site);
        self.rungs.asked(len, if yes { 1 } else { u64::from(NO_HOLDS) });
        if !yes {
            self.pauses.left[slot(self.brakes[site as usize].key)].store(NO_HOLDS, Relaxed);
        }
        yes
    }

    /// What page-table calls and faults take; 0: nothing of that.
    fn cost(&self, what: Event) -> i64 {
        let c = &self.costs;
        let pages = |pages: usize, each: i64| pages as i64 * each;
        let fault = if self.near { c.fault_near } else { c.fault };
        match what {
            Event::Fault { pages: n } => fault + pages(n, c.fill),
            Event::Reused => fault,
            Event::Registered => c.register,
            Event::Refused => c.refused,
            Event::Moved { calls, pages: n } => c.move_pages * calls as i64 + pages(n, c.move_page),
            Event::Untracked { pages: n } => c.register + pages(n, c.fresh),
            Event::Materialized { pages: n } => c.move_pages + pages(n, c.fill),
            Event::Populated { pages: n } => c.move_pages + pages(n, c.fresh) * 2 / 5,
            _ => 0,
        }
    }
}

impl Controller for Ladder {
    fn site(&mut self, caller: usize, len: usize) -> SiteId {
        let key = key(caller, len);
        let site = 1 + hash(key) % (SITES - 1);
        self.brakes[site].key = key;
        site as SiteId
    }

    fn act(&mut self, site: SiteId, what: Act) -> bool {
        match what {
            Act::Elide(len) => len >= self.threshold && self.elides(site, len),
            Act::ElideAgain(len) => len >= self.threshold && self.wants(site),
            Act::Trust => self.wants(site) && self.brakes[site as usize].is_full(),
            Act::ByReference { bytes } => bytes >= self.costs.lend_from(),
            Act::Lend(len) => {
                len >= self.threshold && self.brakes[site as usize].is_off(self.now.cpu)
            }
            Act::GiveBack | Act::GiveBackSent => !self.wants(site),
            // (An experiment is over soon.)
            Act::GiveBackAll => !self.wants(site) && !self.rungs.tries(),
            Act::GiveBackRoom => self.brakes[site as usize].came_short(SHORT_MAX),
        }
    }

    fn event(&mut self, site: SiteId, what: Event) -> bool {
        match what {
            Event::ElidedAgain { bytes } | Event::Elided { bytes } => {
                self.brakes[site as usize].elided(bytes);
                return false;
            }
            Event::FilledExtent => self.brakes[site as usize].came_long(),
            Event::AnswersNear(near) => self.near = near,
            Event::Copied { total } => {
                self.copied = Some(total);
                return true;
            }
            _ => {}
        }
        let cost = self.cost(what);
        if cost == 0 || site == 0 {
            return false;
        }
        self.charges = self.charges.wrapping_add(1);
        let pulled = self.brakes[site as usize].charge(cost, self.now.cpu);
        pulled || self.charges.is_multiple_of(ASKS)
    }

    fn time(&mut self, now: Option<Times>) -> Option<Outcome> {
        let copied = self.copied.take();
        // (Without a clock nothing is tried, and a brake that was pulled stays so.)
        self.now = now?;
        let Times { cpu, wall } = self.now;
        copied.and_then(|copied| self.rungs.look(Progress { cpu, wall, copied }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder() -> Ladder {
        Ladder::new(16 << 10, Costs::REFERENCE, Box::leak(Box::default()))
    }

    #[test]
    fn it_begins_with_large_copies_and_says_no_to_others_for_a_while_without_the_lock() {
        let mut l = ladder();
        for (len, elides) in [(64 << 10, false), (256 << 10, true), (4 << 20, true)] {
            let site = l.site(0x1234, len);
            assert_eq!(l.act(site, Act::Elide(len)), elides);
            assert_eq!(l.pauses.left(0x1234, len), if elides { 0 } else { NO_HOLDS });
        }
    }

    #[test]
    fn a_site_whose_data_is_touched_stops_and_what_it_unmapped_is_given_back() {
        let mut l = ladder();
        let (bad, good) = (l.site(1, 1 << 20), l.site(2, 1 << 20));
        let faults = (1..).find(|_| {
            l.event(bad, Event::Fault { pages: 1 });
            !l.act(bad, Act::Elide(1 << 20))
        });
        assert!((100..1000).contains(&faults.unwrap()));
        assert!(l.act(bad, Act::GiveBack) && l.act(good, Act::Elide(1 << 20)));
        // With time it tries again.
        l.time(Some(Times { cpu: 2_000_000_000, wall: 2_000_000_000 }));
        assert!(l.act(bad, Act::Elide(1 << 20)));
    }
}
