//! Whether a program needs less time if *all* its call sites elide, whatever their accounts say: tried out.
//!
//! Accounts are kept for each call site, but sites depend on each other. Where a site rests, what the sites before it elided has to
//! be copied out for it, and memory that it left unmapped has to be made ordinary: each pays for the others' rest, falls into debt, and
//! tries again when they do not. Python servers that copy a body of 1 MB four times gain a seventh by eliding all of it and
//! next to nothing by each site's own account; others lose half. No price tells one from the other, so the program itself is
//! measured: stretches in which each site is judged for itself and stretches in which all elide take turns, and what counts
//! is the processor time that the program takes for the bytes it copies, which are the same either way.

use crate::window::Times;

/// Time in ns that buffers get to be unmapped before all eliding is measured,
const SETTLE_TOGETHER: u64 = 25_000_000;
/// and to be made ordinary again, which is done little by little, before each for itself is.
const SETTLE_APART: u64 = 75_000_000;
/// Time that is measured then. (Processor time; of many threads one processor's at most.)
const MEASURE: u64 = 60_000_000;
/// From so much on what is clearly worse ends.
const GLANCE: u64 = 12_000_000;
/// Stretches of the challenger, each between two of the other.
const PAIRS: usize = 4;
const STRETCHES: usize = 2 * PAIRS + 1;
/// A challenger that takes so many thousandths of the other's time has lost: in the midst of a stretch,
const HOPELESS: u64 = 1300;
/// after any pair,
const WORSE: u64 = 1100;
/// or after all of them together.
const NOT_BETTER: u64 = 985;
/// Of all pairs of one stretch of either, so many at least must be the challenger's: one slow stretch is not to decide.
const BETTER_PAIRS: usize = PAIRS * (PAIRS + 1) * 3 / 4;
/// Time until the first trial.
const FIRST_WAIT: u64 = 250_000_000;
/// Time after one that was lost; each time so many times longer, after a clear loss or another one.
const LOST_WAIT: u64 = 2_000_000_000;
const GROWS_CLEAR: u64 = 4;
const GROWS: u64 = 2;
const LONGEST_WAIT: u64 = 600_000_000_000;
/// The same while all sites elide: accounts that would have seen a change for the worse are not heard meanwhile.
const CHECK_WAIT: u64 = 4_000_000_000;
const LONGEST_CHECK: u64 = 16_000_000_000;
/// A trial begins only where copies that are not elided could take one part in so many of the processor time.
const LEAST_SHARE: u64 = 16;
/// What faults may take, in ns, before copies that are not made have made up for them.
pub const LOSS_MAX: i64 = 40_000_000;

/// What has happened so far, all counted from some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Processor time of the process, and time that has passed, in ns.
    pub times: Times,
    /// Bytes that large copies were to move, elided or not.
    pub copied: u64,
    /// Bytes of these that were elided.
    pub elided: u64,
}

impl Progress {
    fn since(self, earlier: Self) -> Self {
        Self {
            times: Times {
                cpu: self.times.cpu.saturating_sub(earlier.times.cpu),
                wall: self.times.wall.saturating_sub(earlier.times.wall),
            },
            copied: self.copied.saturating_sub(earlier.copied),
            elided: self.elided.saturating_sub(earlier.elided),
        }
    }

    /// Time in ns that buffers have had to come round in.
    fn time(self) -> u64 {
        self.times.cpu.min(self.times.wall)
    }

    /// Processor time in ns for 1 MB copied or elided; `None`: nothing was.
    fn price(self) -> Option<u64> {
        self.times.cpu.saturating_mul(1 << 20).checked_div(self.copied)
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing is tried for so long.
    Waiting(u64),
    /// The stretch of this number; even ones are the incumbent's.
    Trying(usize),
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
    /// When that began; of a stretch that is settled, when its measuring did.
    since: Progress,
    /// Whether what was tried before is undone.
    settled: bool,
    /// What 1 MB took in each stretch.
    prices: [u64; STRETCHES],
    /// How long the next wait will be, where all elide and where not.
    check: u64,
    lost: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            together: false,
            phase: Phase::Waiting(FIRST_WAIT),
            since: Progress::default(),
            settled: true,
            prices: [0; STRETCHES],
            check: CHECK_WAIT,
            lost: LOST_WAIT,
        }
    }
}

impl Trial {
    /// Whether all sites are to elide just now.
    pub fn all_elide(&self) -> bool {
        match self.phase {
            Phase::Trying(stretch) if stretch % 2 == 1 => !self.together,
            _ => self.together,
        }
    }

    /// Whether what happens just now follows from what was tried before.
    pub fn settles(&self) -> bool {
        !self.settled
    }

    /// Each site is judged for itself from now on, whatever was found out: the time is not known any more, or too much was
    /// lost.
    pub fn give_up(&mut self, now: Option<Progress>) {
        (self.together, self.check) = (false, CHECK_WAIT);
        self.enter(Phase::Waiting(self.lost), now.is_none(), now.unwrap_or_default());
        self.lost = (self.lost * GROWS_CLEAR).min(LONGEST_WAIT);
    }

    /// Looks at how far the program has come, and at `copy_mb`, what copying 1 MB costs in ns. Returns what a trial came to that
    /// ends with this.
    pub fn look(&mut self, now: Progress, copy_mb: u64) -> Option<Outcome> {
        if now.times.cpu < self.since.times.cpu {
            // (A forked child's processor time begins anew.)
            self.wait_from(now, FIRST_WAIT);
            return None;
        }
        let did = now.since(self.since);
        match self.phase {
            Phase::Waiting(_) if !self.settled && did.time() >= SETTLE_APART => self.settled = true,
            Phase::Waiting(time) if did.time() >= time => {
                if self.together || worth_trying(did, copy_mb) {
                    self.begin(0, now);
                } else {
                    self.enter(Phase::Waiting(FIRST_WAIT), true, now);
                }
            }
            Phase::Waiting(_) => {}
            Phase::Trying(_) if !self.settled => {
                let settle = if self.all_elide() { SETTLE_TOGETHER } else { SETTLE_APART };
                if did.time() >= settle {
                    self.enter(self.phase, true, now);
                }
            }
            Phase::Trying(stretch) => return self.measure(stretch, did, now),
        }
        None
    }

    fn measure(&mut self, stretch: usize, did: Progress, now: Progress) -> Option<Outcome> {
        let challenger = stretch % 2 == 1;
        let price = did.price();
        if challenger && did.time() >= GLANCE {
            let hopeless = self.prices[stretch - 1].saturating_mul(HOPELESS) / 1000;
            if price.is_none_or(|p| p > hopeless) {
                return Some(self.lose(GROWS_CLEAR, now));
            }
        }
        if did.time() < MEASURE {
            return None;
        }
        let Some(price) = price else { return Some(self.lose(GROWS, now)) };
        self.prices[stretch] = price;
        if !challenger && stretch > 0 {
            let pairs = stretch / 2;
            if self.ratio(pairs - 1) > WORSE {
                return Some(self.lose(GROWS_CLEAR, now));
            }
            if pairs == PAIRS {
                return Some(if self.is_better() { self.win(now) } else { self.lose(GROWS, now) });
            }
        }
        self.begin(stretch + 1, now);
        None
    }

    /// What the challenger took in one pair, in thousandths of the stretches before and after it.
    fn ratio(&self, pair: usize) -> u64 {
        let p = &self.prices[2 * pair..];
        p[1].saturating_mul(2000).checked_div(p[0] + p[2]).unwrap_or(u64::MAX)
    }

    fn is_better(&self) -> bool {
        let sum: u64 = (0..PAIRS).map(|pair| self.ratio(pair)).sum();
        let of = |first: usize| self.prices.iter().skip(first).step_by(2);
        let won = of(1).map(|c| of(0).filter(|i| c < i).count()).sum::<usize>();
        sum < NOT_BETTER * PAIRS as u64 && won >= BETTER_PAIRS
    }

    fn begin(&mut self, stretch: usize, now: Progress) {
        self.enter(Phase::Trying(stretch), false, now);
    }

    fn wait_from(&mut self, now: Progress, time: u64) {
        self.enter(Phase::Waiting(time), false, now);
    }

    fn enter(&mut self, phase: Phase, settled: bool, now: Progress) {
        (self.phase, self.settled, self.since) = (phase, settled, now);
    }

    fn win(&mut self, now: Progress) -> Outcome {
        self.together = !self.together;
        if self.together {
            (self.check, self.lost) = (CHECK_WAIT, LOST_WAIT);
        }
        self.wait_from(now, if self.together { self.check } else { self.lost });
        Outcome::Won
    }

    fn lose(&mut self, grows: u64, now: Progress) -> Outcome {
        if self.together {
            self.check = (self.check * 2).min(LONGEST_CHECK);
            self.wait_from(now, self.check);
        } else {
            self.wait_from(now, self.lost);
            self.lost = (self.lost * grows).min(LONGEST_WAIT);
        }
        Outcome::Lost
    }
}

/// Whether what was copied could take a part of the processor time that is worth a trial.
fn worth_trying(did: Progress, copy_mb: u64) -> bool {
    let copied = did.copied.saturating_sub(did.elided);
    let could_save = (copied >> 10).saturating_mul(copy_mb) >> 10;
    could_save >= did.times.cpu / LEAST_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY_MB: u64 = 36_000;
    const MB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// A program that makes copies of 1 MB.
    struct Program {
        trial: Trial,
        at: Progress,
        outcomes: Vec<Outcome>,
        /// Processor time in which all sites elided.
        together: u64,
    }

    fn program() -> Program {
        let (trial, at) = (Trial::default(), Progress::default());
        Program { trial, at, outcomes: Vec::new(), together: 0 }
    }

    impl Program {
        /// Runs for `time` ns; each MB takes what `price` says of whether all sites elide.
        fn run(&mut self, time: u64, mut price: impl FnMut(bool) -> u64) -> &mut Self {
            let end = self.at.times.wall + time;
            while self.at.times.wall < end {
                let all = self.trial.all_elide();
                let took = price(all);
                self.at.times.cpu += took;
                self.at.times.wall += took;
                self.at.copied += MB;
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

    /// The same on a machine where each 10 ms take up to a fifth more or less.
    fn noisy(seed: u64, apart: u64, together: u64) -> impl FnMut(bool) -> u64 {
        let (mut state, mut left, mut percent) = (seed * 2 + 1, 0, 100);
        move |all| {
            let price = if all { together } else { apart };
            if left == 0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (left, percent) = (10_000_000 / price, 80 + (state >> 33) % 41);
            }
            left -= 1;
            price * percent / 100
        }
    }

    #[test]
    fn all_sites_elide_where_that_takes_less_time() {
        let mut p = program();
        p.run(10 * SECOND, either(140_000, 120_000));
        assert_eq!(p.outcomes[0], Outcome::Won);
        assert!(p.trial.together && p.together > 7 * SECOND, "{}", p.together);
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
    fn on_a_noisy_machine_a_gain_is_found_and_a_loss_or_nothing_hardly_ever_taken_for_one() {
        let found = |together: u64| {
            let first = |seed| {
                let mut p = program();
                let mut price = noisy(seed, 140_000, together);
                while p.outcomes.is_empty() {
                    p.run(SECOND / 10, &mut price);
                }
                p.outcomes[0] == Outcome::Won
            };
            (0..200).filter(|seed| first(*seed)).count()
        };
        let (gain, nothing, loss) = (found(115_000), found(140_000), found(150_000));
        assert!(gain > 150 && nothing < 30 && loss < 5, "{gain}, {nothing}, {loss} of 200");
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
            (at.times.cpu, at.times.wall) = (at.times.cpu + 100_000, at.times.wall + 100_000);
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
        let mut drift = 100_000;
        p.run(SECOND * 3 / 2, |all| {
            drift += 2;
            drift * if all { 85 } else { 100 } / 100
        });
        assert!(p.trial.together, "{:?}", p.outcomes);
    }

    #[test]
    fn of_many_threads_each_stretch_is_as_long_as_for_one() {
        let mut p = program();
        while !p.trial.all_elide() {
            p.run(1_000_000, either(140_000, 120_000));
            // (Two others compute.)
            p.at.times.cpu += 2_000_000;
        }
        let began = p.at.times.wall;
        while p.trial.all_elide() {
            p.run(1_000_000, either(140_000, 120_000));
            p.at.times.cpu += 2_000_000;
        }
        assert!(p.at.times.wall - began >= SETTLE_TOGETHER + GLANCE);
    }

    #[test]
    fn a_child_whose_time_begins_anew_goes_on_as_its_parent_did_between_trials() {
        let mut p = program();
        while !p.trial.all_elide() {
            p.run(1_000_000, either(140_000, 120_000));
        }
        p.at.times.cpu = 5;
        p.run(1_000_000, either(140_000, 120_000));
        assert!(!p.trial.all_elide());
        p.run(2 * SECOND, either(140_000, 120_000));
        assert!(p.trial.together);
    }

    #[test]
    fn what_was_given_up_is_tried_again_later() {
        let mut p = program();
        p.run(10 * SECOND, either(140_000, 120_000));
        assert!(p.trial.together);
        p.trial.give_up(Some(p.at));
        assert!(!p.trial.all_elide());
        p.run(SECOND, either(140_000, 120_000));
        assert!(!p.trial.together);
        p.run(4 * SECOND, either(140_000, 120_000));
        assert!(p.trial.together);
    }
}
