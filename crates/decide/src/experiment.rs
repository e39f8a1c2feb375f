//! Whether a program needs less time if its call sites elide as their accounts say, or if *none*
//! does: tried out. None elides until that has shown a gain.
//!
//! Prices are of a loop, and elision changes what no event shows: what lies in the caches, when a
//! peer is woken, how long our own code takes where it is not in the cache. So the program itself
//! is measured. Stretches in which accounts decide and stretches in which no copy is elided take
//! turns, and what counts is the processor time for the bytes that its large copies were to move,
//! which are the same either way.

use crate::backoff::Backoff;
use crate::costs::MAX;
use crate::times::Times;

/// Least time in ns that buffers get, before a stretch is measured, to be unmapped or made ordinary
/// again,
const SETTLE: u64 = 25_000_000;
/// and most. It goes on for as long as many of them still come round for the first time: of 64
/// connections with messages of 512 KB they do for 30 to 60 ms.
const SETTLE_MAX: u64 = 100_000_000;
/// That is looked at in parts of so many ns.
const PART: u64 = 8_000_000;
/// Buffers come round for the first time where more pages are moved than are copied while sites
/// elide (received into, and copied to), or more are made ordinary than one in so many of those
/// that are copied while none does. (Redis moves .3 to 1.3 for each, for ever.)
const UNDONE: u64 = 8;
/// and time that is measured then. (Processor time; of many threads one processor's at most.) So
/// long at least is also waited before each experiment: what is seen meanwhile says whether there
/// is anything to find out.
const MEASURE: u64 = 30_000_000;
/// A stretch of what is tried ends after one [`PART`] of it if it clearly takes so many times as
/// long as the one before it: where eliding is tried, or copying is.
const HOPELESS: [f64; 2] = [1.1, 1.3];
/// It is clear where the difference is so many times as large as chance makes it, by how much the
/// prices differ within both stretches. (Redis writes its file once in 3 to 16 MB that it copies:
/// there neighbouring prices differ fourfold.)
const CLEARLY: f64 = 3.0;
/// Stretches of what is tried, each between two of what is in force: each such pair is a vote.
const PAIRS: usize = 12;
const STRETCHES: usize = 2 * PAIRS + 1;
/// It ends when eliding is so many votes ahead or behind. (Votes, not sums: on a shared machine one
/// pair in ten is off by half, and outweighs all others.)
const AHEAD: i32 = 3;
/// A vote is eliding's where it takes at most so many thousandths of the time. Without more votes
/// than the other it ends: it has to prove itself. Where it is tried, and takes more than one of
/// its neighbours and less than the other, and these differ by a tenth, there is no vote: the
/// program or the machine changes.
const BETTER: u64 = 985;
/// That none elides is not tried where that has saved more than one part in so many of the
/// processor time, by the accounts: they are not so far off, and each try has all buffers made
/// ordinary and unmapped again (an echo server of 12 copies: 14 page-table calls for 100 messages).
const SURE_SHARE: u64 = 2;
/// The first rest after an experiment is so many stretches, settling included, and later ones grow
/// ([`Backoff`]); but none is shorter than so many times as long as the experiment took: half of
/// one is what turns out to be the worse way, and ways that differ by less than the noise are tried
/// for long (`docs/decisions/knock-outs.md`).
const RESTS: u64 = 20;

/// The work so far, all counted from some beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Processor time of the process, and time that has passed.
    pub times: Times,
    /// Bytes that large copies were to move, elided or not.
    pub copied: u64,
    /// Bytes that were elided for sites that are tried.
    pub elided: u64,
    /// The savings by prices, in ns, all detours paid;
    pub saved: i64,
    /// and what these cost.
    pub detours: i64,
    /// Bytes of pages that were made ready for eliding, or ordinary again.
    pub prepared: u64,
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
            detours: self.detours.saturating_sub(earlier.detours),
            prepared: self.prepared.saturating_sub(earlier.prepared),
        }
    }

    /// Time in ns that buffers have had to come round in.
    fn time(self) -> u64 {
        self.times.cpu.min(self.times.wall)
    }

    /// Processor time in ns for 1 MB; `None`: nothing was copied.
    fn price(self) -> Option<u64> {
        self.times.cpu.saturating_mul(1 << 20).checked_div(self.copied)
    }
}

/// The prices of a MB from look to look in a stretch, but of those in which buffers came round for
/// the first time.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Looks {
    fn add(&mut self, price: u64) {
        let price = price as f64;
        self.count += 1.0;
        self.sum += price;
        self.squares += price * price;
    }

    fn mean(self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// The sum of the squared differences from the mean.
    fn spread(self) -> f64 {
        (self.squares - self.sum * self.mean()).max(0.0)
    }

    /// Whether these clearly take more than so many `times` as long as `others`.
    fn clearly_exceed(self, others: Self, times: f64) -> bool {
        let (n, m) = (self.count, others.count);
        if n < 1.0 || m < 1.0 || n + m < 3.0 {
            return false;
        }
        let more = self.mean() - times * others.mean();
        let variance = (self.spread() + others.spread()) / (n + m - 2.0) * (1.0 / n + 1.0 / m);
        more > 0.0 && more * more > CLEARLY * CLEARLY * variance
    }
}

/// The result of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether what was tried is done from now on.
    pub won: bool,
    /// Processor time for a copied MB where sites elided, as their accounts said, in ns (the median
    /// of its stretches);
    pub eliding: u64,
    /// where none did.
    pub copying: u64,
    /// The saving for each copied MB where sites elided, beyond what prices say without detours, in
    /// ns (less than nothing: less than they say). `None`: it was broken off.
    pub unseen_mb: Option<i64>,
}

/// The experiments of one program.
#[derive(Debug, Default)]
pub struct Experiment {
    /// Whether accounts decide, but while the other way is tried; else none elides.
    accounts: bool,
    /// The stretch that is under way: even ones are as it was before, odd ones are what is tried.
    /// `None`: nothing is tried.
    stretch: Option<usize>,
    /// For how many ns nothing is tried, [`MEASURE`] at least.
    rest: u64,
    /// When the stretch or the rest began; once it is settled, when its measuring did.
    since: Progress,
    /// When the experiment that is under way began.
    began: Progress,
    /// Whether what was done before is still to be undone.
    settles: bool,
    /// The last look.
    last: Progress,
    /// When the part of settling that is under way began.
    part: Progress,
    /// The prices of the stretch that is under way, and those of the one before.
    looks: [Looks; 2],
    /// The price of 1 MB in each stretch.
    prices: [u64; STRETCHES],
    /// The progress in those in which sites elided: time, bytes copied, saved, and detours.
    eliding: Progress,
    backoff: Backoff,
}

impl Experiment {
    /// Whether accounts decide just now; else no site elides.
    pub fn elides(&self) -> bool {
        self.accounts == self.stretch.is_none_or(|stretch| stretch.is_multiple_of(2))
    }

    /// Whether eliding has shown a gain.
    pub fn has_gained(&self) -> bool {
        self.accounts
    }

    /// Whether what happens just now is an account's own doing. (Where eliding is what is tried, it
    /// must be worth its beginning too.)
    pub fn counts(&self) -> bool {
        self.elides() && !(self.accounts && self.settles)
    }

    /// Looks at how far the program has come. Returns what an experiment came to that ends with
    /// this.
    pub fn look(&mut self, now: Progress) -> Option<Outcome> {
        if now.times.cpu < self.since.times.cpu {
            // (A forked child's processor time begins anew.)
            self.rest = 0;
            self.enter(None, now);
            return None;
        }
        let did = now.since(self.since);
        let step = now.since(self.last);
        if let Some(price) = step.price().filter(|_| !self.prepares(step)) {
            self.looks[0].add(price);
        }
        self.last = now;
        if let Some(stretch) = self.stretch
            && self.is_hopeless(stretch, did)
        {
            self.prices[stretch] = self.looks[0].mean() as u64;
            self.adds(did);
            self.enter(Some(stretch + 1), now);
            return None;
        }
        if self.settles {
            self.settle(did, now);
            return None;
        }
        if let Some(stretch) = self.stretch {
            return self.measure(stretch, did, now);
        }
        if did.time() >= self.rest.max(MEASURE) {
            // (Bytes that nobody has elided make no difference.)
            let sure = did.saved.max(0).cast_unsigned() > did.times.cpu / SURE_SHARE;
            let tells = if self.accounts { did.elided > 0 && !sure } else { did.copied > 0 };
            (self.stretch, self.rest) = (tells.then_some(0), 0);
            (self.since, self.began) = (now, now);
            self.begin_looks(now);
            self.eliding = Progress::default();
        }
        None
    }

    /// Waits until buffers have come round.
    fn settle(&mut self, did: Progress, now: Progress) {
        let part = now.since(self.part);
        if part.time() < PART {
            return;
        }
        self.part = now;
        let waits = self.prepares(part) && did.time() < SETTLE_MAX;
        if did.time() >= SETTLE && !waits {
            (self.settles, self.since) = (false, now);
            self.looks[0] = Looks::default();
        }
    }

    /// Whether buffers come round for the first time.
    fn prepares(&self, did: Progress) -> bool {
        did.prepared > did.copied / if self.elides() { 1 } else { UNDONE }
    }

    /// Whether the stretch, which is one of what is tried, need not be measured to its end.
    fn is_hopeless(&self, stretch: usize, did: Progress) -> bool {
        let its_own = !stretch.is_multiple_of(2);
        let times = HOPELESS[usize::from(self.accounts)];
        its_own && did.time() >= PART && self.looks[0].clearly_exceed(self.looks[1], times)
    }

    /// Counts what sites have done where they elided.
    fn adds(&mut self, did: Progress) {
        if self.elides() {
            self.eliding.times.cpu += did.times.cpu;
            self.eliding.copied += did.copied;
            self.eliding.saved += did.saved;
            self.eliding.detours += did.detours;
        }
    }

    fn measure(&mut self, stretch: usize, did: Progress, now: Progress) -> Option<Outcome> {
        let its_own = !stretch.is_multiple_of(2);
        if did.time() < MEASURE {
            return None;
        }
        let Some(price) = did.price() else { return Some(self.end(0, now)) };
        self.prices[stretch] = price;
        self.adds(did);
        let decided = self.ahead(stretch / 2).abs() >= AHEAD;
        if !its_own && (decided || stretch + 1 == STRETCHES) {
            return Some(self.end(stretch, now));
        }
        self.enter(Some(stretch + 1), now);
        None
    }

    /// A pair's vote, for eliding or against it: what was tried is compared with the stretches
    /// before and after it.
    fn vote(&self, pair: usize) -> i32 {
        let p = &self.prices[2 * pair..];
        let [tried, around] = [p[1].saturating_mul(2), p[0].saturating_add(p[2])];
        let [eliding, copying] = if self.accounts { [around, tried] } else { [tried, around] };
        let [low, high] = [p[0].min(p[2]), p[0].max(p[2])];
        let changes = high as f64 > HOPELESS[0] * low as f64;
        if !self.accounts && changes && (low..high).contains(&p[1]) {
            return 0;
        }
        let clear = eliding as f64 > HOPELESS[0] * copying as f64;
        if eliding <= (copying / 1000).saturating_mul(BETTER) {
            1
        } else if clear && !self.accounts && !self.is_promising() {
            -AHEAD
        } else {
            -1
        }
    }

    /// Whether eliding would prove itself if prices told everything: if not, a clear loss is no
    /// surprise, and the first one decides.
    fn is_promising(&self) -> bool {
        let saved = self.eliding.saved.max(0).cast_unsigned();
        saved.saturating_mul(1000) > self.eliding.times.cpu.saturating_mul(1000 - BETTER)
    }

    /// By how many votes eliding is ahead after so many pairs.
    fn ahead(&self, pairs: usize) -> i32 {
        (0..pairs).map(|pair| self.vote(pair)).sum()
    }

    /// It ends with the stretch of this number.
    fn end(&mut self, last: usize, now: Progress) -> Outcome {
        let median = |first: usize| {
            let mut of = [0; PAIRS + 1];
            let found = self.prices[..=last].iter().skip(first).step_by(2);
            let count = of.iter_mut().zip(found).map(|(to, from)| *to = *from).count();
            of[..count].sort_unstable();
            of[count / 2]
        };
        let (before, tried) = (median(0), median(1));
        let [eliding, copying] = if self.accounts { [before, tried] } else { [tried, before] };
        let ahead = self.ahead(last / 2);
        let won = last > 0 && if self.accounts { ahead <= 0 } else { ahead >= AHEAD };
        if won {
            self.accounts = !self.accounts;
            self.backoff.forgive();
        }
        let took = now.since(self.began).time();
        self.rest = self.backoff.rest(RESTS * (SETTLE + MEASURE)).max(took.saturating_mul(RESTS));
        self.enter(None, now);
        let unseen_mb = if last > 0 { self.unseen_mb(eliding, copying) } else { None };
        Outcome { won, eliding, copying, unseen_mb }
    }

    /// See [`Outcome::unseen_mb`]. (For each copied MB, not each elided one: sites that rested
    /// meanwhile may elide from now on, and gain nothing.)
    fn unseen_mb(&self, eliding: u64, copying: u64) -> Option<i64> {
        let did = self.eliding;
        let saved = i128::from(did.saved) + i128::from(did.detours);
        let known = (saved << 20).checked_div(did.copied.into())?;
        let ns = i128::from(copying) - i128::from(eliding) - known;
        Some(ns.clamp(-i128::from(MAX), MAX.into()) as i64)
    }

    fn begin_looks(&mut self, now: Progress) {
        (self.last, self.part) = (now, now);
        self.looks = [Looks::default(), self.looks[0]];
    }

    fn enter(&mut self, stretch: Option<usize>, now: Progress) {
        (self.stretch, self.settles, self.since) = (stretch, true, now);
        self.begin_looks(now);
    }
}

#[cfg(test)]
mod learning;
#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    /// A program that makes copies of 1 MB.
    #[derive(Default)]
    struct Program {
        experiment: Experiment,
        at: Progress,
        outcomes: Vec<Outcome>,
        /// Processor time in which none elided, and accounts decided.
        spent: [u64; 2],
        /// Whether accounts elide nothing.
        rests: bool,
    }

    impl Program {
        /// One in which accounts decide already.
        fn eliding() -> Self {
            let experiment = Experiment { accounts: true, ..Experiment::default() };
            Self { experiment, ..Self::default() }
        }

        /// Runs for `time` ns; each MB takes what `price` says where sites elide, or none does.
        fn run(&mut self, time: u64, mut price: impl FnMut(bool) -> u64) -> &mut Self {
            let end = self.at.times.wall + time;
            while self.at.times.wall < end {
                let elides = self.experiment.elides();
                let took = price(elides);
                self.at.times.cpu += took;
                self.at.times.wall += took;
                self.at.copied += MB;
                self.at.elided += if elides && !self.rests { MB } else { 0 };
                self.spent[usize::from(elides)] += took;
                self.outcomes.extend(self.experiment.look(self.at));
            }
            self
        }

        fn until_first_outcome(mut self, mut price: impl FnMut(bool) -> u64) -> Outcome {
            while self.outcomes.is_empty() {
                self.run(SECOND / 10, &mut price);
            }
            self.outcomes[0]
        }
    }

    /// The time that 1 MB takes where sites elide, and where none does.
    fn takes(eliding: u64, copying: u64) -> impl Fn(bool) -> u64 {
        move |elides| if elides { eliding } else { copying }
    }

    /// The same on a machine where each 10 ms take up to a fifth more or less.
    fn noisy(seed: u64, price: impl Fn(bool) -> u64) -> impl FnMut(bool) -> u64 {
        let (mut state, mut left, mut percent) = (seed * 2 + 1, 0, 100);
        move |elides| {
            let price = price(elides);
            if left == 0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (left, percent) = (10_000_000 / price, 80 + (state >> 33) % 41);
            }
            left -= 1;
            price * percent / 100
        }
    }

    /// The same on a machine where one stretch in ten or so is three times slower.
    fn interrupted(seed: u64, price: impl Fn(bool) -> u64) -> impl FnMut(bool) -> u64 {
        // (The first wait is as long as what is measured of a stretch.)
        let (mut state, mut left, mut slow) = (seed * 2 + 1, MEASURE / price(true), 1);
        move |elides| {
            if left == 0 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                slow = if (state >> 33) % 10 == 0 { 3 } else { 1 };
                left = (SETTLE + MEASURE) / price(elides);
            }
            left -= 1;
            price(elides) * slow
        }
    }

    #[test]
    fn none_elides_until_that_has_shown_a_gain() {
        let mut p = Program::default();
        p.run(MEASURE, takes(50_000, 100_000));
        assert_eq!(p.spent[1], 0);
        p.run(SECOND, takes(50_000, 100_000));
        assert!(p.experiment.accounts && p.outcomes[0].won);
        assert!(p.spent[0] < SECOND / 3, "{:?}", p.spent);
    }

    #[test]
    fn eliding_that_loses_is_tried_for_a_part_of_the_first_second() {
        // (1.8 times the time is hopeless; 1.2 is not.)
        for (eliding, most) in [(180_000, SECOND / 10), (120_000, SECOND / 6)] {
            let mut p = Program::default();
            p.run(SECOND, takes(eliding, 100_000));
            assert!(!p.experiment.accounts && p.spent[1] < most, "{:?}", p.spent);
        }
    }

    #[test]
    fn a_clear_loss_ends_each_trial_before_it_is_measured_and_decides_where_prices_expect_it() {
        // (Three votes where prices expect a gain, and one where they do not.)
        let (expected, surprising) = (loses_by_half(1_000), loses_by_half(10_000));
        assert!((PART..2 * PART).contains(&expected), "{expected}");
        assert!((3 * PART..4 * PART).contains(&surprising), "{surprising}");
    }

    /// The time in which sites elided, and saved so much of each MB by prices, until a program had
    /// decided that takes half as long again by it.
    fn loses_by_half(saved: i64) -> u64 {
        let mut p = Program::default();
        while p.outcomes.is_empty() {
            p.at.saved += if p.experiment.elides() { saved } else { 0 };
            p.run(1, takes(150_000, 100_000));
        }
        assert!(!p.outcomes[0].won);
        p.spent[1]
    }

    #[test]
    fn settling_goes_on_while_buffers_come_round_for_the_first_time() {
        // (So many MB, and each costs three times as much the first time.)
        let settled = |buffers: u64| {
            let mut p = Program::default();
            let mut left = [buffers, 0];
            while p.outcomes.is_empty() {
                let elides = usize::from(p.experiment.elides());
                let first = left[1 - elides] > 0;
                if first {
                    left[1 - elides] -= 1;
                    left[elides] += 1;
                    p.at.prepared += 2 * MB;
                }
                let price = move |elides| if elides { 80_000 } else { 100_000 };
                p.run(1, move |elides| price(elides) * if first { 3 } else { 1 });
            }
            p.outcomes[0]
        };
        for buffers in [50, 200] {
            let outcome = settled(buffers);
            assert!(outcome.won, "{outcome:?}");
            assert!(outcome.eliding < 84_000 && outcome.copying < 105_000, "{outcome:?}");
        }
    }

    #[test]
    fn what_is_prepared_for_ever_is_waited_for_only_so_long() {
        let mut p = Program::default();
        while p.experiment.stretch != Some(2) {
            p.at.prepared += 2 * MB;
            p.run(1, takes(80_000, 100_000));
        }
        let most = SETTLE_MAX + PART + MEASURE;
        assert!((SETTLE_MAX..most).contains(&p.spent[1]), "{:?}", p.spent);
    }

    #[test]
    fn a_program_that_becomes_twice_as_fast_in_a_trial_gives_that_pair_no_vote() {
        let mut p = Program::default();
        let mut price = 100_000;
        while p.experiment.stretch != Some(4) {
            if p.experiment.stretch == Some(1) {
                price = 50_000;
            }
            // (Its own price lies between those around it: half of them, and a fifth more.)
            p.run(1, takes(price * 12 / 10, price));
        }
        assert_eq!(p.experiment.vote(0), 0);
        assert_ne!(p.experiment.vote(1), 0);
    }

    #[test]
    fn a_trial_is_not_cut_short_where_the_prices_of_neighbouring_looks_differ_fourfold() {
        let mut p = Program::default();
        let mut looks = 0;
        while p.experiment.stretch != Some(2) {
            looks += 1;
            let beat = if looks % 5 < 2 { 4 } else { 1 };
            p.run(1, move |elides| if elides { 2_500_000 * beat } else { 2_000_000 * beat });
        }
        assert!(p.spent[1] >= SETTLE + MEASURE, "{:?}", p.spent);
    }

    #[test]
    fn none_elides_where_that_takes_less_time_until_the_accounts_do_again() {
        let mut p = Program::eliding();
        p.run(10 * SECOND, takes(140_000, 120_000));
        assert!(p.outcomes[0].won);
        assert_eq!((p.outcomes[0].eliding, p.outcomes[0].copying), (140_000, 120_000));
        assert!(!p.experiment.accounts && p.spent[0] > 8 * SECOND, "{:?}", p.spent);
        p.run(60 * SECOND, takes(100_000, 120_000));
        assert!(p.experiment.accounts);
    }

    #[test]
    fn where_it_takes_more_time_it_is_tried_shortly_and_ever_more_rarely() {
        for (copying, most) in [(103_000, SECOND), (200_000, SECOND / 2)] {
            let mut p = Program::eliding();
            p.run(60 * SECOND, takes(100_000, copying));
            assert!(p.outcomes.iter().all(|o| !o.won));
            assert!((3..=5).contains(&p.outcomes.len()), "{:?}", p.outcomes);
            assert!(p.spent[0] < most, "{:?}", p.spent);
        }
    }

    #[test]
    fn eliding_that_gains_nothing_ends_also_on_a_noisy_machine_and_what_gains_much_hardly_ever_does()
     {
        let ended = |copying: u64| {
            let first =
                |seed| Program::eliding().until_first_outcome(noisy(seed, takes(140_000, copying)));
            (0..200).filter(|seed| first(*seed).won).count()
        };
        let (loses, nothing, gains) = (ended(125_000), ended(140_000), ended(160_000));
        assert!(loses > 190 && nothing > 110 && gains < 5, "{loses}, {nothing}, {gains} of 200");
    }

    #[test]
    fn eliding_begins_on_a_noisy_machine_where_it_gains_and_hardly_ever_where_it_loses() {
        let begun = |eliding: u64| {
            let begins = |seed| {
                let price = noisy(seed, takes(eliding, 140_000));
                Program::default().until_first_outcome(price).won
            };
            (0..200).filter(|seed| begins(*seed)).count()
        };
        let (gains, loses) = (begun(115_000), begun(150_000));
        assert!(gains > 190 && loses < 10, "{gains}, {loses} of 200");
    }

    #[test]
    fn single_slow_stretches_decide_nothing() {
        let ended = |copying: u64| {
            let first = |seed| {
                Program::eliding().until_first_outcome(interrupted(seed, takes(140_000, copying)))
            };
            (0..200).filter(|seed| first(*seed).won).count()
        };
        let (loses, gains) = (ended(120_000), ended(160_000));
        assert!(loses > 180 && gains < 20, "{loses}, {gains} of 200");
    }

    #[test]
    fn after_an_experiment_of_any_length_at_least_20_times_that_passes_without_one() {
        for seed in 0..20 {
            let mut p = Program::eliding();
            let mut price = noisy(seed, takes(130_000, 130_000));
            let mut outcomes = [0; 2];
            for found in &mut outcomes {
                let before = p.outcomes.len();
                while p.outcomes.len() == before {
                    p.run(1_000_000, &mut price);
                }
                *found = p.at.times.wall;
            }
            let took = outcomes[0] - MEASURE;
            assert!(outcomes[1] - outcomes[0] > RESTS * took, "{outcomes:?} with seed {seed}");
        }
    }

    #[test]
    fn a_trial_is_undone_before_the_next_wait_begins() {
        let mut p = Program::eliding();
        while p.outcomes.is_empty() {
            p.run(1_000_000, takes(140_000, 250_000));
        }
        assert!(p.experiment.elides() && !p.experiment.counts());
        p.run(SETTLE + PART, takes(140_000, 250_000));
        assert!(p.experiment.counts());
    }

    #[test]
    fn nothing_is_tried_where_nothing_is_elided() {
        let mut p = Program { rests: true, ..Program::eliding() };
        p.run(10 * SECOND, takes(1_000_000, 900_000));
        assert_eq!((p.outcomes.len(), p.spent[0]), (0, 0));
    }

    #[test]
    fn savings_beyond_prices_are_found_whoever_is_in_force() {
        for began in [Program::default, Program::eliding] {
            for (saved, unseen) in [(0, 40_000), (30_000, 10_000), (50_000, -10_000)] {
                let mut p = began();
                while p.outcomes.is_empty() {
                    // (Half of it is spent on detours.)
                    p.at.saved += if p.experiment.elides() { saved / 2 } else { 0 };
                    p.at.detours += if p.experiment.elides() { saved / 2 } else { 0 };
                    p.run(1, takes(100_000, 140_000));
                }
                assert_eq!(p.outcomes[0].unseen_mb, Some(unseen));
            }
        }
    }

    #[test]
    fn an_experiment_that_ends_because_nothing_is_copied_any_more_finds_nothing() {
        let mut p = Program::eliding();
        while p.experiment.stretch.is_none() {
            p.run(1, takes(100_000, 140_000));
        }
        let outcome = (0..1_000).find_map(|_| {
            p.at.times.cpu += 1_000_000;
            p.at.times.wall += 1_000_000;
            p.experiment.look(p.at)
        });
        assert!(outcome.is_some_and(|o| !o.won && o.unseen_mb.is_none()));
    }

    #[test]
    fn a_program_that_gets_slower_and_slower_is_compared_with_its_neighbours_in_time() {
        // (Each stretch takes more than the one before, whoever has it.)
        let mut drift = 100_000;
        let outcome = Program::eliding().until_first_outcome(|elides| {
            drift += 2;
            drift * if elides { 100 } else { 85 } / 100
        });
        assert!(outcome.won);
    }

    #[test]
    fn of_many_threads_each_stretch_is_as_long_as_for_one() {
        let mut p = Program::eliding();
        // (Two others compute.)
        let step = |p: &mut Program| {
            p.run(1_000_000, takes(140_000, 120_000));
            p.at.times.cpu += 2_000_000;
        };
        while p.experiment.elides() {
            step(&mut p);
        }
        let began = p.at.times.wall;
        while !p.experiment.elides() {
            step(&mut p);
        }
        assert!(p.at.times.wall - began >= SETTLE + PART);
    }

    #[test]
    fn a_child_whose_time_begins_anew_goes_on_as_its_parent_did_between_experiments() {
        // (One is forked in an experiment, the other one in the rest after it.)
        for (age, outcomes) in [(2 * (SETTLE + MEASURE), 0), (SECOND, 1)] {
            let mut p = Program::eliding();
            p.run(age, takes(100_000, 120_000));
            assert_eq!((p.outcomes.len(), p.experiment.elides()), (outcomes, outcomes > 0));
            p.at.times.cpu = 5;
            p.run(1_000_000, takes(140_000, 120_000));
            assert!(p.experiment.elides());
            p.run(SECOND, takes(140_000, 120_000));
            assert!(!p.experiment.accounts);
        }
    }
}
