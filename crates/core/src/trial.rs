//! Whether a program needs less time if *all* its call sites elide, whatever their accounts say: tried out.
//!
//! Accounts are kept for each call site, but sites depend on each other. Where a site rests, what the sites before it elided has to
//! be copied out for it, and memory that it left unmapped has to be made ordinary: each pays for the others' rest, falls into debt, and
//! tries again when they do not. Python servers that copy a body of 1 MB four times gain a seventh by eliding all of it and
//! next to nothing by each site's own account; others lose half. No price tells one from the other, so the program itself is
//! measured: stretches in which each site is judged for itself and stretches in which all elide take turns, and what counts
//! is the processor time that the program takes for the bytes it copies, which are the same either way.

/// Processor time in ns that a change gets before it is measured: buffers are unmapped, or made ordinary again.
const SETTLE: u64 = 25_000_000;
/// Processor time that is measured then.
const MEASURE: u64 = 40_000_000;
/// From so much on what is clearly worse ends.
const GLANCE: u64 = 8_000_000;
/// Stretches of the challenger, each between two of the other.
const PAIRS: usize = 4;
/// A challenger that takes so many percent of the other's time has lost: in the midst of a stretch,
const HOPELESS: u64 = 125;
/// after any pair,
const WORSE: u64 = 104;
/// or after all of them together.
const NOT_BETTER: u64 = 98;
/// Processor time until the first trial, and after one that was lost (each time that much longer).
const FIRST_WAIT: u64 = 250_000_000;
const LOST_WAIT: u64 = 2_000_000_000;
const LOST_GROWS: u64 = 4;
const LONGEST_WAIT: u64 = 600_000_000_000;
/// The same while all sites elide: accounts that would have seen a change for the worse are not heard meanwhile.
const CHECK_WAIT: u64 = 4_000_000_000;
const LONGEST_CHECK: u64 = 16_000_000_000;
/// A trial begins only where copies that are not elided could take one part in so many of the processor time.
const LEAST_SHARE: u64 = 16;

/// What has happened so far, all counted from some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Processor time of the process, in ns.
    pub cpu: u64,
    /// Bytes that large copies were to move, elided or not.
    pub copied: u64,
    /// Bytes of these that were elided.
    pub elided: u64,
}

impl Progress {
    fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu - earlier.cpu,
            copied: self.copied.saturating_sub(earlier.copied),
            elided: self.elided.saturating_sub(earlier.elided),
        }
    }

    /// Processor time in ns for 1 MB copied or elided; `None`: nothing was.
    fn price(self) -> Option<u64> {
        self.cpu.saturating_mul(1 << 20).checked_div(self.copied)
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing is tried until so much processor time was used.
    Waiting { since: Progress, until: u64 },
    /// The stretch number `stretch` began so; even ones are the incumbent's.
    Trying { stretch: usize, settled: bool, since: Progress },
}

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it was.
    Lost,
    /// What was tried is done from now on.
    Won,
}

/// The trials of one program.
#[derive(Debug)]
pub struct Trial {
    /// Whether all sites elide but for trials.
    together: bool,
    phase: Phase,
    /// What 1 MB took in each stretch.
    prices: [u64; 2 * PAIRS + 1],
    wait: u64,
    lost: u64,
}

impl Default for Trial {
    fn default() -> Self {
        let phase = Phase::Waiting { since: Progress::default(), until: FIRST_WAIT };
        Self {
            together: false,
            phase,
            prices: [0; 2 * PAIRS + 1],
            wait: CHECK_WAIT,
            lost: LOST_WAIT,
        }
    }
}

impl Trial {
    /// Whether all sites are to elide just now.
    pub fn all_elide(&self) -> bool {
        match self.phase {
            Phase::Trying { stretch, .. } if stretch % 2 == 1 => !self.together,
            _ => self.together,
        }
    }

    /// Looks at how far the program has come, and at `copy_mb`, what copying 1 MB costs in ns. Returns what a trial came to that
    /// ends with this.
    pub fn look(&mut self, now: Progress, copy_mb: u64) -> Option<Outcome> {
        match self.phase {
            Phase::Waiting { since, until } => {
                if now.cpu < since.cpu {
                    // (A forked child's processor time begins anew.)
                    self.wait_from(now, FIRST_WAIT);
                } else if now.cpu >= until {
                    if self.together || worth_trying(now.since(since), copy_mb) {
                        self.begin(0, now);
                    } else {
                        self.wait_from(now, FIRST_WAIT);
                    }
                }
                None
            }
            Phase::Trying { since, .. } if now.cpu < since.cpu => {
                self.wait_from(now, FIRST_WAIT);
                Some(Outcome::Lost)
            }
            Phase::Trying { stretch, settled: false, since } => {
                if now.cpu - since.cpu >= SETTLE {
                    self.phase = Phase::Trying { stretch, settled: true, since: now };
                }
                None
            }
            Phase::Trying { stretch, settled: true, since } => self.measure(stretch, since, now),
        }
    }

    fn measure(&mut self, stretch: usize, since: Progress, now: Progress) -> Option<Outcome> {
        let did = now.since(since);
        let challenger = stretch % 2 == 1;
        let price = did.price();
        if challenger && did.cpu >= GLANCE {
            let hopeless = self.prices[stretch - 1].saturating_mul(HOPELESS) / 100;
            if price.is_none_or(|p| p > hopeless) {
                return Some(self.end(Outcome::Lost, now));
            }
        }
        if did.cpu < MEASURE {
            return None;
        }
        let Some(price) = price else { return Some(self.end(Outcome::Lost, now)) };
        self.prices[stretch] = price;
        if !challenger && stretch > 0 {
            let pairs = stretch / 2;
            let ratio = self.ratio(pairs - 1);
            if ratio > WORSE {
                return Some(self.end(Outcome::Lost, now));
            }
            if pairs == PAIRS {
                let mean = (0..PAIRS).map(|pair| self.ratio(pair)).sum::<u64>() / PAIRS as u64;
                let outcome = if mean < NOT_BETTER { Outcome::Won } else { Outcome::Lost };
                return Some(self.end(outcome, now));
            }
        }
        self.begin(stretch + 1, now);
        None
    }

    /// What the challenger took in one pair, in percent of the stretches before and after it.
    fn ratio(&self, pair: usize) -> u64 {
        let p = &self.prices[2 * pair..];
        (p[1] * 200).checked_div(p[0] + p[2]).unwrap_or(u64::MAX)
    }

    fn begin(&mut self, stretch: usize, now: Progress) {
        self.phase = Phase::Trying { stretch, settled: false, since: now };
    }

    fn wait_from(&mut self, now: Progress, wait: u64) {
        self.phase = Phase::Waiting { since: now, until: now.cpu + wait };
    }

    fn end(&mut self, outcome: Outcome, now: Progress) -> Outcome {
        let changes = outcome == Outcome::Won;
        self.together ^= changes;
        let wait = match (self.together, changes) {
            (true, true) => {
                (self.wait, self.lost) = (CHECK_WAIT, LOST_WAIT);
                self.wait
            }
            (true, false) => {
                self.wait = (self.wait * 2).min(LONGEST_CHECK);
                self.wait
            }
            (false, _) => {
                let wait = self.lost;
                self.lost = (self.lost * LOST_GROWS).min(LONGEST_WAIT);
                wait
            }
        };
        self.wait_from(now, wait);
        outcome
    }
}

/// Whether what was copied could take a part of the processor time that is worth a trial.
fn worth_trying(did: Progress, copy_mb: u64) -> bool {
    let copied = did.copied.saturating_sub(did.elided);
    let could_save = (copied >> 10).saturating_mul(copy_mb) >> 10;
    could_save >= did.cpu / LEAST_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY_MB: u64 = 36_000;
    const MB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// A program that takes so much processor time for 1 MB.
    struct Program {
        trial: Trial,
        at: Progress,
        outcomes: Vec<Outcome>,
        /// Processor time in which all sites elided.
        together: u64,
    }

    fn program() -> Program {
        let at = Progress::default();
        Program { trial: Trial::default(), at, outcomes: Vec::new(), together: 0 }
    }

    impl Program {
        /// Runs for `cpu` ns; each MB takes what `price` says of whether all sites elide.
        fn run(&mut self, cpu: u64, price: impl Fn(bool) -> u64) -> &mut Self {
            let end = self.at.cpu + cpu;
            while self.at.cpu < end {
                let all = self.trial.all_elide();
                let took = price(all) / 2;
                self.at.cpu += took;
                self.at.copied += MB / 2;
                self.together += if all { took } else { 0 };
                let outcome = self.trial.look(self.at, COPY_MB);
                self.outcomes.extend(outcome);
            }
            self
        }
    }

    fn either(apart: u64, together: u64) -> impl Fn(bool) -> u64 {
        move |all| if all { together } else { apart }
    }

    #[test]
    fn all_sites_elide_where_that_takes_less_time() {
        let mut p = program();
        p.run(10 * SECOND, either(140_000, 120_000));
        assert_eq!(p.outcomes[0], Outcome::Won);
        assert!(p.trial.together && p.together > 8 * SECOND, "{}", p.together);
        assert!(p.outcomes[1..].iter().all(|o| *o == Outcome::Lost), "{:?}", p.outcomes);
    }

    #[test]
    fn where_it_takes_more_time_it_is_tried_shortly_and_ever_more_rarely() {
        let mut p = program();
        p.run(60 * SECOND, either(140_000, 250_000));
        assert!(p.outcomes.iter().all(|o| *o == Outcome::Lost));
        assert!((3..=5).contains(&p.outcomes.len()), "{:?}", p.outcomes);
        assert!(p.together < SECOND / 4, "{}", p.together);
    }

    #[test]
    fn where_nothing_changes_all_is_left_as_it_is() {
        let mut p = program();
        p.run(60 * SECOND, either(140_000, 139_000));
        assert!(!p.trial.together);
    }

    #[test]
    fn a_gain_that_has_turned_into_a_loss_ends() {
        let mut p = program();
        p.run(10 * SECOND, either(140_000, 120_000));
        assert!(p.trial.together);
        p.run(20 * SECOND, either(140_000, 160_000));
        assert!(!p.trial.together);
    }

    #[test]
    fn nothing_is_tried_where_copies_take_next_to_nothing_of_the_time() {
        let mut p = program();
        p.run(10 * SECOND, either(1_000_000, 900_000));
        assert_eq!((p.outcomes.len(), p.together), (0, 0));
    }

    #[test]
    fn nothing_is_tried_where_nearly_all_is_elided_already() {
        let mut t = Trial::default();
        let mut at = Progress::default();
        for _ in 0..100_000 {
            at.cpu += 100_000;
            at.copied += MB;
            at.elided += MB * 9 / 10;
            t.look(at, COPY_MB);
            assert!(!t.all_elide());
        }
    }

    #[test]
    fn a_program_that_gets_slower_and_slower_is_compared_with_its_neighbours_in_time() {
        // (Each stretch takes more than the one before, whoever has it.)
        let mut p = program();
        let drift = std::cell::Cell::new(100_000_u64);
        p.run(SECOND, |all| {
            drift.set(drift.get() + 4);
            drift.get() * if all { 85 } else { 100 } / 100
        });
        assert!(p.trial.together, "{:?}", p.outcomes);
    }

    #[test]
    fn a_child_whose_time_begins_anew_goes_on_as_its_parent_did_between_trials() {
        let mut p = program();
        while !p.trial.all_elide() {
            p.run(1_000_000, either(140_000, 120_000));
        }
        p.at.cpu = 5;
        p.run(1_000_000, either(140_000, 120_000));
        assert!(!p.trial.all_elide());
        p.run(SECOND, either(140_000, 120_000));
        assert!(p.trial.together);
    }
}
