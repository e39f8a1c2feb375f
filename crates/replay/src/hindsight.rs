//! The best that could have been done by who knows what follows: for each copy by itself, whether
//! eliding it gains.
//!
//! First all are elided, and each event is put down to the copy that it is due to (each copy is a
//! call site of its own). Then those that lost are not elided any more, which changes what others
//! earn; so again, as long as it helps. It is no proof that nobody can do better: copies depend on
//! each other, and the last few may be better left out together.

use crate::play::{Outcome, Unseen, play};
use crate::stage::Stage;
use crate::tally::Tally;
use std::sync::{Arc, Mutex, PoisonError};
use uncopy_decide::{Act, Control, Controller, Costs, Event, Fixed, SiteId};
use uncopy_trace::Trace;

/// Rounds, of which each leaves out what lost in the one before: few are left to lose after some.
const ROUNDS: usize = 6;
/// Copies beyond so many share a place with others.
const COPIES: usize = 65_535;

/// Facts about the future of each copy.
#[derive(Debug)]
struct Foresight {
    /// Whether it is elided.
    elide: Vec<bool>,
    /// The gain from that, in ns.
    net: Vec<i64>,
}

#[derive(Debug)]
struct Seer {
    known: Arc<Mutex<Foresight>>,
    number: Arc<Mutex<u64>>,
    others: Fixed,
    costs: Costs,
    unseen: Unseen,
    near: bool,
}

impl Controller for Seer {
    fn site(&mut self, _: usize, _: usize) -> SiteId {
        let number = *self.number.lock().unwrap_or_else(PoisonError::into_inner);
        (number % COPIES as u64) as SiteId + 1
    }

    fn act(&mut self, site: SiteId, what: Act) -> bool {
        match what {
            Act::Elide(_) | Act::ElideAgain(_) => {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.elide[site as usize] && self.others.act(site, what)
            }
            other => self.others.act(site, other),
        }
    }

    fn event(&mut self, site: SiteId, what: Event) -> bool {
        if let Event::AnswersNear(near) = what {
            self.near = near;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.net[site as usize] -= self.costs.of(what, self.near) + self.unseen.of(what);
        false
    }
}

/// See the module.
pub fn hindsight(trace: &Trace, stage: &Stage, cpu: u64, unseen: Unseen) -> Outcome {
    let places = COPIES + 1;
    let known = Foresight { elide: vec![true; places], net: vec![0; places] };
    let known = Arc::new(Mutex::new(known));
    let costs = trace.start.costs;
    let mut best: Option<Outcome> = None;
    for _ in 0..ROUNDS {
        let outcome = play(trace, stage, cpu, unseen, |basis, number| {
            let others = Fixed::new(0, costs);
            let seer = Seer { known: known.clone(), number, others, costs, unseen, near: false };
            Control::new(seer, basis.threshold)
        });
        if best.is_none_or(|best| outcome.gained() > best.gained()) {
            best = Some(outcome);
        }
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let Foresight { elide, net } = &mut *known;
        let mut changed = false;
        for (elide, net) in elide.iter_mut().zip(net) {
            changed |= *elide && *net < 0;
            *elide &= *net >= 0;
            *net = 0;
        }
        if !changed {
            break;
        }
    }
    // (A controller that elides nothing loses nothing.)
    let nothing = best.map_or_else(Outcome::default, |best| Outcome {
        tally: Tally::of_plain(best.tally, best.plain_ns),
        ..best
    });
    best.filter(|best| best.gained() > 0).unwrap_or(nothing)
}
