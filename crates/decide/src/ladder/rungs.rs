//! From which size on copies are elided: found out by trying, one rung at a time.
//!
//! What decides is the processor time that the program takes for the bytes that it copies, which are the same either way. Stretches of the
//! rung that is held and of a neighbour take turns; the neighbour has won where it took less in each of its stretches than those before
//! and after it, by some share on the average, and has lost as soon as it takes clearly more.

use crate::trial::Outcome;

/// Copies of so many bytes and more are elided.
pub(super) const RUNGS: [usize; 5] = [usize::MAX, 1 << 20, 256 << 10, 64 << 10, 16 << 10];
/// A program begins with copies that a fault or two cannot spoil.
const FIRST: usize = 2;

/// Stretches of the neighbour, each between two of the rung that is held.
const PAIRS: usize = 4;
const STRETCHES: usize = 2 * PAIRS + 1;
/// Time in ns that buffers get to be unmapped, or made ordinary again, before a stretch is measured,
const SETTLE: u64 = 25_000_000;
/// for so long.
const MEASURE: u64 = 50_000_000;
/// From so much on what is clearly worse ends.
const GLANCE: u64 = 5_000_000;
/// In thousandths of what the other takes: lost in the midst of a stretch,
const HOPELESS: u64 = 1300;
/// lost after any pair,
const WORSE: u64 = 1080;
/// won after all of them.
const BETTER: u64 = 985;
/// Time until the first experiment, and the least between two.
const WAIT: u64 = 250_000_000;
/// Time until a rung that has lost is tried again; each time four times as long.
const LOST: u64 = 2_000_000_000;
const GROWS: u64 = 4;
const LONGEST: u64 = 600_000_000_000;

/// How far the program has come, counted from some beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Processor time of the process, and time, in ns.
    pub(super) cpu: u64,
    pub(super) wall: u64,
    /// Bytes that its large copies were to move.
    pub(super) copied: u64,
}

impl Progress {
    fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            wall: self.wall.saturating_sub(earlier.wall),
            copied: self.copied.saturating_sub(earlier.copied),
        }
    }

    /// Time that buffers have had to come round in.
    fn time(self) -> u64 {
        self.cpu.min(self.wall)
    }

    fn price(self) -> Option<u64> {
        self.cpu.saturating_mul(1 << 20).checked_div(self.copied)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    /// This neighbour is tried, and it is the stretch of this number: odd ones are its own.
    Trying(usize, usize),
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    left: u64,
    next: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Rungs {
    held: usize,
    phase: Phase,
    settled: bool,
    since: Progress,
    prices: [u64; STRETCHES],
    rests: [Rest; RUNGS.len()],
    /// Bytes of copies, by the first rung that includes them, since the last experiment: without any a rung changes nothing.
    asked: [u64; RUNGS.len()],
}

impl Default for Rungs {
    fn default() -> Self {
        Self {
            held: FIRST,
            phase: Phase::Waiting,
            settled: true,
            since: Progress::default(),
            prices: [0; STRETCHES],
            rests: [Rest { left: 0, next: LOST }; RUNGS.len()],
            asked: [0; RUNGS.len()],
        }
    }
}

impl Rungs {
    /// The rung that is in force just now.
    pub(super) fn active(&self) -> usize {
        match self.phase {
            Phase::Trying(neighbour, stretch) if stretch % 2 == 1 => neighbour,
            _ => self.held,
        }
    }

    /// Whether an experiment is under way.
    pub(super) fn tries(&self) -> bool {
        self.phase != Phase::Waiting
    }

    /// `times` copies of `len` bytes came up.
    pub(super) fn asked(&mut self, len: usize, times: u64) {
        if let Some(rung) = RUNGS.iter().position(|from| *from <= len) {
            self.asked[rung] = self.asked[rung].saturating_add((len as u64).saturating_mul(times));
        }
    }

    /// Looks at how far the program has come. Returns what an experiment has come to that ends with this.
    pub(super) fn look(&mut self, now: Progress) -> Option<Outcome> {
        if now.cpu < self.since.cpu {
            // (A forked child's processor time begins anew.)
            self.enter(Phase::Waiting, now);
            return None;
        }
        let did = now.since(self.since);
        let Phase::Trying(neighbour, stretch) = self.phase else {
            if did.time() >= WAIT {
                self.end_of_wait(did, now);
            }
            return None;
        };
        if !self.settled {
            if did.time() >= SETTLE {
                (self.settled, self.since) = (true, now);
            }
            return None;
        }
        let its_own = stretch % 2 == 1;
        let price = did.price().unwrap_or(u64::MAX);
        if its_own && did.time() >= GLANCE && price / HOPELESS > self.prices[stretch - 1] / 1000 {
            return Some(self.lose(neighbour, now));
        }
        if did.time() < MEASURE {
            return None;
        }
        self.prices[stretch] = price;
        if !its_own && stretch > 0 {
            let pairs = stretch / 2;
            if self.ratio(pairs - 1) > WORSE {
                return Some(self.lose(neighbour, now));
            }
            if pairs == PAIRS {
                let won = self.is_better();
                return Some(if won {
                    self.win(neighbour, now)
                } else {
                    self.lose(neighbour, now)
                });
            }
        }
        self.enter(Phase::Trying(neighbour, stretch + 1), now);
        None
    }

    fn end_of_wait(&mut self, did: Progress, now: Progress) {
        self.rests.iter_mut().for_each(|rest| rest.left = rest.left.saturating_sub(did.time()));
        let held = self.held;
        // (The nearest one that elides more, or less.)
        let asks = |rungs: core::ops::RangeInclusive<usize>| {
            self.asked[rungs].iter().any(|bytes| *bytes > 0)
        };
        let below = (held + 1..RUNGS.len()).find(|rung| asks(held + 1..=*rung));
        let above = (0..held).rev().find(|rung| asks(rung + 1..=held));
        let rested = |rung: &usize| self.rests[*rung].left == 0;
        let neighbour = [below, above].into_iter().flatten().find(rested);
        self.asked = [0; RUNGS.len()];
        match neighbour {
            Some(rung) => self.enter(Phase::Trying(rung, 0), now),
            None => self.enter(Phase::Waiting, now),
        }
    }

    /// What the neighbour took in one pair, in thousandths of the stretches before and after it.
    fn ratio(&self, pair: usize) -> u64 {
        let p = &self.prices[2 * pair..];
        p[1].saturating_mul(2000).checked_div(p[0].saturating_add(p[2])).unwrap_or(u64::MAX)
    }

    fn is_better(&self) -> bool {
        let ratios: [u64; PAIRS] = core::array::from_fn(|pair| self.ratio(pair));
        ratios.iter().all(|r| *r < 1000) && ratios.iter().sum::<u64>() < BETTER * PAIRS as u64
    }

    fn enter(&mut self, phase: Phase, now: Progress) {
        (self.phase, self.settled, self.since) = (phase, false, now);
    }

    fn rest(&mut self, rung: usize) {
        let Rest { left, next } = &mut self.rests[rung];
        (*left, *next) = (*next, (*next * GROWS).min(LONGEST));
    }

    fn win(&mut self, neighbour: usize, now: Progress) -> Outcome {
        let beaten = core::mem::replace(&mut self.held, neighbour);
        // (Who lost to another rung need not lose to this one.)
        self.rests.fill(Rest { left: 0, next: LOST });
        self.rest(beaten);
        self.enter(Phase::Waiting, now);
        Outcome::Won
    }

    fn lose(&mut self, neighbour: usize, now: Progress) -> Outcome {
        self.rest(neighbour);
        self.enter(Phase::Waiting, now);
        Outcome::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that copies 8 MB at a time, of 64 KB each, and takes `price` us for it with each rung.
    fn run(
        rungs: &mut Rungs,
        at: &mut Progress,
        seconds: u64,
        price: impl Fn(usize) -> u64,
    ) -> [u64; 5] {
        let (mut spent, end) = ([0; 5], at.cpu + seconds * 1_000_000_000);
        while at.cpu < end {
            let ns = price(rungs.active()) * 1000;
            spent[rungs.active()] += ns;
            (at.cpu, at.wall, at.copied) = (at.cpu + ns, at.wall + ns, at.copied + (8 << 20));
            [16 << 10, 64 << 10, 256 << 10, 1 << 20]
                .into_iter()
                .for_each(|len| rungs.asked(len, 32));
            rungs.look(*at);
        }
        spent
    }

    #[test]
    fn the_best_rung_is_found_wherever_it_is() {
        for best in 0..RUNGS.len() {
            let (mut rungs, mut at) = (Rungs::default(), Progress::default());
            run(&mut rungs, &mut at, 20, |rung| 1000 + 40 * rung.abs_diff(best) as u64);
            assert_eq!(rungs.held, best);
        }
    }

    #[test]
    fn where_all_are_alike_it_stays_where_it_is() {
        let (mut rungs, mut at) = (Rungs::default(), Progress::default());
        run(&mut rungs, &mut at, 60, |_| 1000);
        assert_eq!(rungs.held, FIRST);
    }

    #[test]
    fn what_loses_clearly_is_left_within_some_milliseconds() {
        let (mut rungs, mut at) = (Rungs::default(), Progress::default());
        let spent = run(&mut rungs, &mut at, 60, |rung| if rung == FIRST { 1000 } else { 2000 });
        let tried: u64 = spent.iter().sum::<u64>() - spent[FIRST];
        assert!(tried < 400_000_000, "{spent:?}");
    }

    #[test]
    fn a_rung_that_would_change_nothing_is_not_tried() {
        let (mut rungs, mut at) = (Rungs::default(), Progress::default());
        for _ in 0..10_000 {
            (at.cpu, at.wall, at.copied) =
                (at.cpu + 1_000_000, at.wall + 1_000_000, at.copied + (8 << 20));
            rungs.asked(2 << 20, 4);
            rungs.look(at);
            assert!(matches!(rungs.phase, Phase::Waiting | Phase::Trying(0, _)), "{rungs:?}");
        }
    }
}
