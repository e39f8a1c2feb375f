//! The accounts as a [`Controller`]: each event is what it earns or costs its site, each question a look at the site's account.

use super::Policy;
use crate::controller::Controller;
use crate::event::{Act, Event};
use crate::scale::Charged;
use crate::site::SiteId;
use crate::trial::Outcome;
use crate::window::Times;

/// What the time is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The window of this site ends.
    Window(SiteId),
    /// The program's large copies have come to so many bytes.
    Trial(u64),
}

impl Controller for Policy {
    #[inline]
    fn site(&mut self, caller: usize, len: usize) -> SiteId {
        Self::site(self, caller, len)
    }

    #[inline]
    fn act(&mut self, site: SiteId, what: Act) -> bool {
        match what {
            Act::Elide(len) => self.allows(site, len),
            Act::ElideAgain(len) => len >= self.threshold() && !self.paused(site),
            Act::Trust => self.trusts(site),
            Act::ByReference { bytes } => bytes >= self.lend_from(),
            Act::Lend(len) => self.allows_lending(site, len),
            Act::GiveBack => self.backs_off(site),
            Act::GiveBackAll => self.rests_long(site),
            Act::GiveBackSent => self.paused(site),
            Act::GiveBackRoom => self.came_short(site),
        }
    }

    #[inline]
    fn event(&mut self, site: SiteId, what: Event) -> bool {
        match what {
            Event::ElidedAgain { bytes } => self.elided_again(site, bytes),
            Event::Elided { bytes } => self.elided(site, bytes),
            Event::Missed(why) => self.missed(site, why),
            Event::Looked => self.looked(site),
            Event::CopiedOut { bytes } => self.copied_out(site, bytes),
            Event::NeverTimed => self.never_audit(site),
            Event::Received => self.received(site),
            Event::FilledExtent => self.came_long(site),
            Event::Wasted { bytes } => self.wasted(site, bytes),
            Event::Freed => self.freed(site),
            Event::Gathered { bytes, cold } => self.gathered(site, bytes, cold),
            Event::Lent { bytes, pages } => self.lent(site, bytes, pages),
            Event::Dropped { pages } => self.dropped(site, pages),
            Event::Registered => self.registered(site),
            Event::Moved { calls, pages } => self.moved(site, calls, pages),
            Event::Refused => self.refused(site),
            Event::Untracked { pages } => self.untracked(site, pages),
            Event::Materialized { pages } => self.materialized(site, pages),
            Event::Populated { pages } => self.populated(site, pages),
            Event::Fault { pages } => self.fault(site, pages),
            Event::Reused => self.reused(site),
            Event::PageWork => self.page_work(),
            Event::AnswersNear(near) => self.answers_near(near),
            // (Where no site is ever left alone there is nothing to try.)
            Event::Copied { total } if !self.backoff => drop(self.try_regimes(total, None)),
            Event::Copied { total } => self.due = Some(Due::Trial(total)),
        }
        self.due.is_some()
    }

    #[cold]
    fn time(&mut self, now: Option<Times>) -> Option<Outcome> {
        match self.due.take()? {
            Due::Window(site) => {
                self.window_ends(site, now);
                None
            }
            Due::Trial(copied) => self.try_regimes(copied, now),
        }
    }

    #[inline]
    fn charged(&mut self) -> Charged {
        Self::charged(self)
    }

    fn took(&mut self, site: SiteId, charged: Charged, ns: u64, copied: usize) -> u64 {
        Self::took(self, site, charged, ns, copied)
    }
}
