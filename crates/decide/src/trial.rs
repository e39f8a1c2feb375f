//! Whether a program needs less time if *all* its call sites elide, or *none* does, whatever their accounts say: tried out.
//!
//! Accounts are kept for each call site, but sites depend on each other. Where a site rests, what the sites before it elided has to
//! be copied out for it, and memory that it left unmapped has to be made ordinary: each pays for the others' rest, falls into debt, and
//! tries again when they do not. Python servers that copy a body of 1 MB four times gain a seventh by eliding all of it and
//! next to nothing by each site's own account; others lose half. And elision changes what no account sees: Redis' GET of 64 KB saves
//! 2.6 us by its one site's account, and takes 5 longer. No price tells one from the other, so the program itself is
//! measured: stretches of one regime and of another take turns, and what counts
//! is the processor time that the program takes for the bytes it copies, which are the same either way.

use crate::regime::{REGIMES, Regime};
use crate::window::Times;

/// Time in ns that buffers get to be unmapped before all eliding is measured, where those of some sites are,
const SETTLE_ALL: u64 = 25_000_000;
/// and to be made ordinary again, which is done little by little, before any other regime is.
const SETTLE: u64 = 75_000_000;
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
/// or after all of them, on the average. It has to have taken less in each of them: one slow stretch, which is part of two, is not
/// to decide.
const NOT_BETTER: u64 = 985;
/// Time until the first trial.
const FIRST_WAIT: u64 = 250_000_000;
/// Time until a regime that has lost is tried again; each time so many times longer, after a clear loss or another one.
const LOST_WAIT: u64 = 2_000_000_000;
const GROWS_CLEAR: u64 = 4;
const GROWS: u64 = 2;
const LONGEST_WAIT: u64 = 600_000_000_000;
/// The same for the accounts, while all sites elide or none does: they would have seen a change, and are not heard meanwhile.
const CHECK_WAIT: u64 = 4_000_000_000;
const LONGEST_CHECK: u64 = 16_000_000_000;
/// A trial begins only where the copies that it is about (those that are not elided, or those that are) could take one part
/// in so many of the processor time.
const LEAST_SHARE: u64 = 16;
/// That none elides is not tried where that has saved more than one part in so many, by the accounts: they are not so far off.
const SURE_SHARE: u64 = 2;
/// What faults may take, in ns, before copies that are not made have made up for them.
pub const LOSS_MAX: i64 = 40_000_000;

/// What has happened so far, all counted from some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Processor time of the process, and time that has passed, in ns.
    pub times: Times,
    /// Bytes that large copies were to move, elided or not.
    pub copied: u64,
    /// Bytes that were elided: of these, and of what else is moved (`realloc`).
    pub elided: u64,
    /// What that has saved by the sites' accounts, in ns, while they decided.
    pub saved: i64,
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
            saved: self.saved.saturating_sub(earlier.saved),
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

/// Whether `regime` could save, or spare the program, a part of the processor time that is worth a trial.
fn is_worth_trying(regime: Regime, did: Progress, copy_mb: u64) -> bool {
    let about = match regime {
        Regime::Accounts => return true,
        Regime::All => did.copied.saturating_sub(did.elided),
        Regime::None if did.saved.max(0) as u64 > did.times.cpu / SURE_SHARE => return false,
        Regime::None => did.elided,
    };
    (about >> 10).saturating_mul(copy_mb) >> 10 >= did.times.cpu / LEAST_SHARE
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Nothing is tried for so long.
    Waiting(u64),
    /// The stretch of this number; even ones are the incumbent's, odd ones this challenger's.
    Trying(Regime, usize),
}

/// What a trial came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it was.
    Lost,
    /// What was tried is done from now on.
    Won,
}

/// How long a regime that is not in force is not tried.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// Time that is left, in ns, when the present wait begins.
    left: u64,
    /// How long the next rest will be.
    next: u64,
}

/// The trials of one program.
#[derive(Debug)]
pub struct Trial {
    /// What is in force but for trials.
    incumbent: Regime,
    phase: Phase,
    /// When that began; of a stretch that is settled, when its measuring did.
    since: Progress,
    /// Whether what was done before is undone.
    settled: bool,
    /// What 1 MB took in each stretch.
    prices: [u64; STRETCHES],
    /// Of each regime.
    rests: [Rest; REGIMES.len()],
}

/// What sites invest at first says nothing about what they will save: that none elides is tried later.
fn first_rest(regime: Regime) -> u64 {
    if regime == Regime::None { 2 * FIRST_WAIT } else { FIRST_WAIT }
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            incumbent: Regime::Accounts,
            phase: Phase::Waiting(FIRST_WAIT),
            since: Progress::default(),
            settled: true,
            prices: [0; STRETCHES],
            rests: REGIMES.map(|regime| Rest { left: first_rest(regime), next: LOST_WAIT }),
        }
    }
}

impl Trial {
    /// Who is to decide just now.
    pub fn regime(&self) -> Regime {
        match self.phase {
            Phase::Trying(challenger, stretch) if stretch % 2 == 1 => challenger,
            _ => self.incumbent,
        }
    }

    /// Whether what happens just now follows from what was done before.
    pub fn settles(&self) -> bool {
        !self.settled
    }

    /// What is in force just now is so no longer, whatever was found out: the time is not known any more, or too much was lost.
    pub fn give_up(&mut self, now: Option<Progress>) {
        let given_up = self.regime();
        if now.is_none() || given_up == self.incumbent {
            self.incumbent = Regime::Accounts;
        }
        if given_up != Regime::Accounts {
            self.rest(given_up, GROWS_CLEAR);
        }
        self.wait(now.is_none(), now.unwrap_or_default());
    }

    /// Looks at how far the program has come, and at `copy_mb`, what copying 1 MB costs in ns. Returns what a trial came to that
    /// ends with this.
    pub fn look(&mut self, now: Progress, copy_mb: u64) -> Option<Outcome> {
        if now.times.cpu < self.since.times.cpu {
            // (A forked child's processor time begins anew.)
            REGIMES.iter().zip(&mut self.rests).for_each(|(w, r)| r.left = first_rest(*w));
            self.wait(false, now);
            return None;
        }
        let did = now.since(self.since);
        match self.phase {
            // (A wait begins when accounts are kept again, too: what it shows is judged by them.)
            _ if !self.settled => {
                if did.time() >= self.settle() {
                    self.enter(self.phase, true, now);
                }
            }
            Phase::Waiting(time) if did.time() >= time => self.end_of_wait(did, now, copy_mb),
            Phase::Waiting(_) => {}
            Phase::Trying(challenger, stretch) => {
                return self.measure(challenger, stretch, did, now);
            }
        }
        None
    }

    /// Time in ns until what was done before is undone.
    fn settle(&self) -> u64 {
        let from_accounts = self.incumbent == Regime::Accounts;
        if self.regime() == Regime::All && from_accounts { SETTLE_ALL } else { SETTLE }
    }

    /// The first challenger whose rest is over is tried, if that is worth it.
    fn end_of_wait(&mut self, did: Progress, now: Progress, copy_mb: u64) {
        let mut challenger = None;
        for regime in REGIMES {
            let left = &mut self.rests[regime as usize].left;
            *left = left.saturating_sub(did.time());
            if regime == self.incumbent || *left > 0 || challenger.is_some() {
                continue;
            }
            if is_worth_trying(regime, did, copy_mb) {
                challenger = Some(regime);
            } else {
                *left = FIRST_WAIT;
            }
        }
        match challenger {
            Some(regime) => self.begin(regime, 0, now),
            None => self.wait(true, now),
        }
    }

    fn measure(
        &mut self,
        challenger: Regime,
        stretch: usize,
        did: Progress,
        now: Progress,
    ) -> Option<Outcome> {
        let its_own = stretch % 2 == 1;
        let price = did.price();
        if its_own && did.time() >= GLANCE {
            let hopeless = self.prices[stretch - 1].saturating_mul(HOPELESS) / 1000;
            if price.is_none_or(|p| p > hopeless) {
                return Some(self.lose(challenger, GROWS_CLEAR, now));
            }
        }
        if did.time() < MEASURE {
            return None;
        }
        let Some(price) = price else { return Some(self.lose(challenger, GROWS, now)) };
        self.prices[stretch] = price;
        if !its_own && stretch > 0 {
            let pairs = stretch / 2;
            if self.ratio(pairs - 1) > WORSE {
                return Some(self.lose(challenger, GROWS_CLEAR, now));
            }
            if pairs == PAIRS {
                let won = self.is_better();
                return Some(if won {
                    self.win(challenger, now)
                } else {
                    self.lose(challenger, GROWS, now)
                });
            }
        }
        self.begin(challenger, stretch + 1, now);
        None
    }

    /// What the challenger took in one pair, in thousandths of the stretches before and after it.
    fn ratio(&self, pair: usize) -> u64 {
        let p = &self.prices[2 * pair..];
        p[1].saturating_mul(2000).checked_div(p[0] + p[2]).unwrap_or(u64::MAX)
    }

    fn is_better(&self) -> bool {
        let ratios: [u64; PAIRS] = core::array::from_fn(|pair| self.ratio(pair));
        ratios.iter().all(|r| *r < 1000) && ratios.iter().sum::<u64>() < NOT_BETTER * PAIRS as u64
    }

    fn begin(&mut self, challenger: Regime, stretch: usize, now: Progress) {
        self.enter(Phase::Trying(challenger, stretch), false, now);
    }

    /// Waits until the first challenger has rested, and at least until it can be said which are worth trying.
    fn wait(&mut self, settled: bool, now: Progress) {
        let others = REGIMES.iter().filter(|w| **w != self.incumbent);
        let time = others.map(|w| self.rests[*w as usize].left).min().unwrap_or(0);
        self.enter(Phase::Waiting(time.max(FIRST_WAIT)), settled, now);
    }

    fn enter(&mut self, phase: Phase, settled: bool, now: Progress) {
        (self.phase, self.settled, self.since) = (phase, settled, now);
    }

    /// `regime` is not tried for a time that is so many times longer after this one.
    fn rest(&mut self, regime: Regime, grows: u64) {
        let longest = if regime == Regime::Accounts { LONGEST_CHECK } else { LONGEST_WAIT };
        let Rest { left, next } = &mut self.rests[regime as usize];
        *left = *next;
        *next = (*next * grows).min(longest);
    }

    fn win(&mut self, challenger: Regime, now: Progress) -> Outcome {
        let beaten = core::mem::replace(&mut self.incumbent, challenger);
        for regime in REGIMES {
            // (Who lost to another incumbent need not lose to this one.)
            let first = if regime == Regime::Accounts { CHECK_WAIT } else { LOST_WAIT };
            let Rest { left, next } = &mut self.rests[regime as usize];
            (*left, *next) = ((*left).min(first), first);
        }
        self.rest(beaten, GROWS);
        self.wait(false, now);
        Outcome::Won
    }

    fn lose(&mut self, challenger: Regime, grows: u64, now: Progress) -> Outcome {
        self.rest(challenger, if challenger == Regime::Accounts { GROWS } else { grows });
        self.wait(false, now);
        Outcome::Lost
    }
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
        /// Processor time in which accounts decided, all sites elided, none did.
        spent: [u64; REGIMES.len()],
        /// Part of what is copied that accounts elide, in percent,
        elided: u64,
        /// and what they believe that to save, in ns for 1 MB.
        saves: i64,
    }

    fn program() -> Program {
        let (trial, at) = (Trial::default(), Progress::default());
        Program { trial, at, outcomes: Vec::new(), spent: [0; REGIMES.len()], elided: 0, saves: 0 }
    }

    impl Program {
        /// The same of a program of which accounts elide so many percent.
        fn eliding(self, percent: u64) -> Self {
            Self { elided: percent, ..self }
        }

        /// Runs for `time` ns; each MB takes what `price` says of who decides.
        fn run(&mut self, time: u64, mut price: impl FnMut(Regime) -> u64) -> &mut Self {
            let end = self.at.times.wall + time;
            while self.at.times.wall < end {
                let regime = self.trial.regime();
                let took = price(regime);
                self.at.times.cpu += took;
                self.at.times.wall += took;
                self.at.copied += MB;
                self.at.elided += match regime {
                    Regime::Accounts => MB * self.elided / 100,
                    Regime::All => MB,
                    Regime::None => 0,
                };
                let kept = regime == Regime::Accounts && !self.trial.settles();
                self.at.saved += if kept { self.saves } else { 0 };
                self.spent[regime as usize] += took;
                let outcome = self.trial.look(self.at, COPY_MB);
                self.outcomes.extend(outcome);
            }
            self
        }
    }

    /// What 1 MB takes where accounts decide, where all sites elide, and where none does.
    fn takes(accounts: u64, all: u64, none: u64) -> impl Fn(Regime) -> u64 {
        move |regime| [accounts, all, none][regime as usize]
    }

    /// The same of a program whose sites all rest: so none eliding changes nothing.
    fn either(apart: u64, together: u64) -> impl Fn(Regime) -> u64 {
        takes(apart, together, apart)
    }

    /// The same on a machine where each 10 ms take up to a fifth more or less.
    fn noisy(seed: u64, price: impl Fn(Regime) -> u64) -> impl FnMut(Regime) -> u64 {
        let (mut state, mut left, mut percent) = (seed * 2 + 1, 0, 100);
        move |regime| {
            let price = price(regime);
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
        assert_eq!(p.trial.incumbent, Regime::All);
        assert!(p.spent[Regime::All as usize] > 7 * SECOND, "{:?}", p.spent);
        assert!(p.outcomes[1..].iter().all(|o| *o == Outcome::Lost), "{:?}", p.outcomes);
    }

    #[test]
    fn where_it_takes_more_time_it_is_tried_shortly_and_ever_more_rarely() {
        let mut p = program();
        p.run(60 * SECOND, either(140_000, 250_000));
        assert!(p.outcomes.iter().all(|o| *o == Outcome::Lost));
        assert!((3..=5).contains(&p.outcomes.len()), "{:?}", p.outcomes);
        assert!(p.spent[Regime::All as usize] < SECOND / 4, "{:?}", p.spent);
    }

    #[test]
    fn on_a_noisy_machine_a_gain_is_found_and_a_loss_or_nothing_hardly_ever_taken_for_one() {
        for challenger in [Regime::All, Regime::None] {
            let found = |its: u64| {
                let first = |seed| {
                    let mut p = program().eliding(if challenger == Regime::None { 100 } else { 0 });
                    let of = |regime| if regime == challenger { its } else { 140_000 };
                    let mut price = noisy(seed, of);
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
    }

    /// The same on a machine where one stretch in ten or so is three times slower.
    fn interrupted(seed: u64, price: impl Fn(Regime) -> u64) -> impl FnMut(Regime) -> u64 {
        let (mut state, mut left, mut slow) = (seed * 2 + 1, 0, 1);
        move |regime| {
            if left == 0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                slow = if (state >> 33) % 10 == 0 { 3 } else { 1 };
                left = 100_000_000 / price(regime);
            }
            left -= 1;
            price(regime) * slow
        }
    }

    #[test]
    fn a_loss_is_hardly_ever_taken_for_a_gain_where_single_stretches_are_slow() {
        let won = (0..200).filter(|seed| {
            let mut p = program().eliding(100);
            let mut price = interrupted(*seed, takes(140_000, 140_000, 147_000));
            while p.outcomes.is_empty() {
                p.run(SECOND / 10, &mut price);
            }
            p.outcomes[0] == Outcome::Won
        });
        let won = won.count();
        assert!(won < 8, "{won} of 200");
    }

    #[test]
    fn a_gain_that_has_turned_into_a_loss_ends() {
        let mut p = program();
        p.run(10 * SECOND, either(140_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::All);
        p.run(20 * SECOND, either(140_000, 160_000));
        assert_ne!(p.trial.incumbent, Regime::All);
    }

    #[test]
    fn no_site_elides_where_that_takes_less_time_until_the_accounts_do_again() {
        let mut p = program().eliding(70);
        p.run(10 * SECOND, takes(140_000, 150_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::None);
        assert!(p.spent[Regime::None as usize] > 6 * SECOND, "{:?}", p.spent);
        p.run(20 * SECOND, takes(100_000, 150_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::Accounts);
    }

    #[test]
    fn where_eliding_gains_much_that_none_does_is_tried_shortly_and_ever_more_rarely() {
        let mut p = program().eliding(100);
        p.run(60 * SECOND, takes(100_000, 100_000, 400_000));
        assert!(p.outcomes.iter().all(|o| *o == Outcome::Lost));
        assert!((3..=5).contains(&p.outcomes.len()), "{:?}", p.outcomes);
        assert!(p.spent[Regime::None as usize] < SECOND / 2, "{:?}", p.spent);
    }

    #[test]
    fn what_a_lost_trial_did_is_undone_before_the_next_begins() {
        // (Of a program that elides nothing, the second challenger is not worth trying.)
        for elided in [0, 50] {
            let mut p = program().eliding(elided);
            while p.outcomes.is_empty() {
                p.run(1_000_000, takes(140_000, 250_000, 250_000));
            }
            let lost = p.at.times.wall;
            while p.trial.settles() {
                p.run(1_000_000, takes(140_000, 250_000, 250_000));
            }
            assert!(p.at.times.wall - lost >= SETTLE, "{}", p.at.times.wall - lost);
            p.run(FIRST_WAIT / 2, takes(140_000, 250_000, 250_000));
            assert!(matches!(p.trial.phase, Phase::Waiting(_)));
        }
    }

    #[test]
    fn a_way_that_another_one_has_beaten_rests_whoever_that_is() {
        let mut p = program().eliding(50);
        p.run(10 * SECOND, takes(140_000, 130_000, 110_000));
        assert_eq!(p.trial.incumbent, Regime::None);
        let wins = p.outcomes.iter().filter(|o| **o == Outcome::Won).count();
        assert!(wins <= 2, "{:?}", p.outcomes);
        assert!(p.spent[Regime::All as usize] < 2 * SECOND, "{:?}", p.spent);
    }

    #[test]
    fn of_a_challenger_that_lost_too_much_the_incumbent_hears_nothing() {
        let mut p = program().eliding(50);
        p.run(3 * SECOND, takes(140_000, 140_000, 110_000));
        assert_eq!(p.trial.incumbent, Regime::None);
        while p.trial.regime() != Regime::All {
            p.run(1_000_000, takes(140_000, 120_000, 110_000));
        }
        p.trial.give_up(Some(p.at));
        assert_eq!((p.trial.regime(), p.trial.incumbent), (Regime::None, Regime::None));
        p.run(SECOND, takes(140_000, 120_000, 110_000));
        assert_ne!(p.trial.regime(), Regime::All);
    }

    #[test]
    fn of_three_ways_the_best_is_found_whichever_it_is() {
        for best in REGIMES {
            let mut p = program().eliding(50);
            p.run(20 * SECOND, |regime| if regime == best { 120_000 } else { 140_000 });
            assert_eq!(p.trial.incumbent, best);
            assert!(p.spent[best as usize] > 12 * SECOND, "{best:?}: {:?}", p.spent);
        }
    }

    #[test]
    fn nothing_is_tried_where_copies_take_next_to_nothing_of_the_time() {
        for elided in [0, 50, 100] {
            let mut p = program().eliding(elided);
            p.run(10 * SECOND, takes(1_000_000, 900_000, 900_000));
            assert_eq!((p.outcomes.len(), p.trial.incumbent), (0, Regime::Accounts));
        }
    }

    #[test]
    fn that_none_elides_is_not_tried_where_eliding_surely_gains() {
        // (With 80% elided, that all elide is tried before, and no accounts are kept meanwhile.)
        for elided in [80, 100] {
            for (saves, tried) in [(40_000, true), (60_000, false)] {
                let mut p = program().eliding(elided);
                p.saves = saves;
                p.run(10 * SECOND, takes(100_000, 105_000, 150_000));
                assert_eq!(p.spent[Regime::None as usize] > 0, tried, "{elided}%, {saves}");
            }
        }
    }

    #[test]
    fn what_changes_nothing_is_not_tried() {
        // (Nine tenths are elided already, or none.)
        for (elided, futile) in [(90, Regime::All), (0, Regime::None)] {
            let mut p = program().eliding(elided);
            p.run(10 * SECOND, |_| 100_000);
            assert_eq!(p.spent[futile as usize], 0);
        }
    }

    #[test]
    fn a_program_that_gets_slower_and_slower_is_compared_with_its_neighbours_in_time() {
        // (Each stretch takes more than the one before, whoever has it.)
        let mut p = program();
        let mut drift = 100_000;
        p.run(SECOND * 3 / 2, |regime| {
            drift += 2;
            drift * if regime == Regime::All { 85 } else { 100 } / 100
        });
        assert_eq!(p.trial.incumbent, Regime::All, "{:?}", p.outcomes);
    }

    #[test]
    fn of_many_threads_each_stretch_is_as_long_as_for_one() {
        let mut p = program();
        while p.trial.regime() != Regime::All {
            p.run(1_000_000, either(140_000, 120_000));
            // (Two others compute.)
            p.at.times.cpu += 2_000_000;
        }
        let began = p.at.times.wall;
        while p.trial.regime() == Regime::All {
            p.run(1_000_000, either(140_000, 120_000));
            p.at.times.cpu += 2_000_000;
        }
        assert!(p.at.times.wall - began >= SETTLE_ALL + GLANCE);
    }

    #[test]
    fn a_child_whose_time_begins_anew_goes_on_as_its_parent_did_between_trials() {
        let mut p = program();
        while p.trial.regime() != Regime::All {
            p.run(1_000_000, either(140_000, 120_000));
        }
        p.at.times.cpu = 5;
        p.run(1_000_000, either(140_000, 120_000));
        assert_eq!(p.trial.regime(), Regime::Accounts);
        p.run(2 * SECOND, either(140_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::All);
    }

    #[test]
    fn what_was_given_up_is_tried_again_later() {
        let mut p = program();
        p.run(10 * SECOND, either(140_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::All);
        p.trial.give_up(Some(p.at));
        assert_eq!(p.trial.regime(), Regime::Accounts);
        p.run(SECOND, either(140_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::Accounts);
        p.run(4 * SECOND, either(140_000, 120_000));
        assert_eq!(p.trial.incumbent, Regime::All);
    }
}
