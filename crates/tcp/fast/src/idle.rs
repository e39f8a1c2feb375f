//! The policy of a lane while there is nothing to do: it looks again, gives the processor away, or
//! sleeps. To sleep and be woken costs the lane and its waker some microseconds; to look costs as
//! long as it is looked. So a lane that looks no longer than a sleep costs wastes at most as much
//! again; and where it was in vain the last few times, it is not even tried.

use core::time::Duration;

/// How a lane waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It looks for so long, whatever comes of it: not at all, or for ever.
    For(Duration),
    /// It looks as long as a sleep costs, where that has paid lately.
    Adaptive,
}

/// The price of a sleep: falling asleep and waking up in the lane, and the call that wakes it.
const SLEEP: Duration = Duration::from_micros(20);
/// A program that has waited for this processor answers within that. Where it takes longer,
/// somebody else has had the processor: a lane that gives it away is not woken for a frame that
/// arrives, as one is that sleeps, but waits for its turn behind all others.
const ANSWER: Duration = Duration::from_micros(200);
/// Of a lane that looks for long: after so many looks, some microseconds, the processor is offered
/// to others at each: there may be fewer cores than threads.
const LOOKS: u32 = 100;
/// After so many times in vain it is left,
const FAILURES: u32 = 4;
/// and tried once in so many; in vain again, once in twice as many,
const AGAIN: u32 = 64;
/// and so on up to that.
const SELDOM: u32 = 1 << 14;

/// Something that may pay.
#[derive(Debug, Default)]
struct Trial {
    /// One after another.
    failures: u32,
    /// So often it is left from now on.
    left: u32,
}

impl Trial {
    /// It is to be tried now.
    fn is_due(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    fn ended(&mut self, paid: bool) {
        self.failures = if paid { 0 } else { self.failures + 1 };
        if let Some(more) = self.failures.checked_sub(FAILURES) {
            self.left = (AGAIN << more.min(16)).min(SELDOM);
            self.failures = self.failures.min(FAILURES + 16);
        }
    }
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Now {
    /// Look again.
    Look,
    /// Give the processor away, and look again.
    Yield,
    /// Sleep.
    Sleep,
}

/// The lane's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Looks,
    /// Since it had been idle for so long.
    Yields(Duration),
    Sleeps,
}

/// Decides what a lane does while it has nothing to do.
#[derive(Debug)]
pub struct IdlePolicy {
    wait: Wait,
    /// Waiting for the wire, and waiting for a program, which has been given something: answers
    /// come differently soon.
    looks: [Trial; 2],
    /// A program that was given something may wait for this very processor. Then it goes on now,
    /// and its answer is here before the lane sleeps; else that would have to wake the lane.
    yields: Trial,
    for_program: bool,
    doing: Option<Doing>,
    looked: u32,
}

impl IdlePolicy {
    /// The policy of a lane that waits so.
    pub fn new(wait: Wait) -> Self {
        Self {
            wait,
            looks: <[Trial; 2]>::default(),
            yields: Trial::default(),
            for_program: false,
            doing: None,
            looked: 0,
        }
    }

    /// There was work, after so long. `gave`: a program was given something.
    pub fn worked(&mut self, idle: Duration, gave: bool) {
        match self.doing.take() {
            Some(Doing::Looks) => self.looks().ended(true),
            Some(Doing::Yields(since)) => {
                self.yields.ended(idle.saturating_sub(since) <= ANSWER);
            }
            Some(Doing::Sleeps) | None => {}
        }
        self.looked = 0;
        self.for_program = gave;
    }

    /// There was none, for so long.
    pub fn next(&mut self, idle: Duration) -> Now {
        let doing = match self.doing {
            Some(Doing::Looks) if idle < self.limit() => Doing::Looks,
            Some(Doing::Looks) => {
                self.looks().ended(false);
                self.no_look(idle)
            }
            Some(Doing::Yields(_)) => {
                self.yields.ended(false);
                Doing::Sleeps
            }
            // (It was woken for nothing.)
            Some(Doing::Sleeps) => Doing::Sleeps,
            None => {
                if self.begins_to_look() {
                    Doing::Looks
                } else {
                    self.no_look(idle)
                }
            }
        };
        self.doing = Some(doing);
        match doing {
            Doing::Looks if self.wait != Wait::Adaptive && self.looked == LOOKS => Now::Yield,
            Doing::Looks => {
                self.looked += 1;
                Now::Look
            }
            Doing::Yields(_) => Now::Yield,
            Doing::Sleeps => Now::Sleep,
        }
    }

    fn looks(&mut self) -> &mut Trial {
        &mut self.looks[usize::from(self.for_program)]
    }

    fn no_look(&mut self, idle: Duration) -> Doing {
        let yields = self.for_program && self.yields.is_due();
        if yields { Doing::Yields(idle) } else { Doing::Sleeps }
    }

    fn begins_to_look(&mut self) -> bool {
        match self.wait {
            Wait::For(limit) => !limit.is_zero(),
            Wait::Adaptive => self.looks().is_due(),
        }
    }

    fn limit(&self) -> Duration {
        match self.wait {
            Wait::For(limit) => limit,
            Wait::Adaptive => SLEEP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of a lane, which has given a program something, until there is work; that comes
    /// after so long. A look takes a microsecond, and so does giving the processor away.
    fn until(policy: &mut IdlePolicy, work: Duration) -> Vec<Now> {
        policy.worked(Duration::ZERO, true);
        let mut all = vec![];
        let mut idle = Duration::ZERO;
        loop {
            if idle >= work {
                policy.worked(idle, true);
                return all;
            }
            let now = policy.next(idle);
            if all.last() != Some(&now) {
                all.push(now);
            }
            idle = if now == Now::Sleep { work } else { idle + Duration::from_micros(1) };
        }
    }

    const SOON: Duration = Duration::from_micros(10);
    const LATE: Duration = Duration::from_millis(1);

    #[test]
    fn adaptive_it_looks_while_work_comes_soon_and_sleeps_at_once_when_it_does_not() {
        let mut policy = IdlePolicy::new(Wait::Adaptive);
        for _ in 0..10 {
            assert_eq!(until(&mut policy, SOON), [Now::Look]);
        }
        let late: Vec<_> = (0..200).map(|_| until(&mut policy, LATE)).collect();
        assert_eq!(late[0], [Now::Look, Now::Yield, Now::Sleep]);
        let in_vain = late.iter().filter(|all| all.contains(&Now::Look)).count();
        assert!((FAILURES as usize..10).contains(&in_vain), "{in_vain} of 200");
        assert!(late.iter().filter(|all| **all == [Now::Sleep]).count() > 180);
        // And soon again, after as many more as it was left.
        let soon: Vec<_> = (0..1000).map(|_| until(&mut policy, SOON)).collect();
        assert_eq!(soon.last().unwrap(), &[Now::Look]);
    }

    #[test]
    fn time_that_the_wire_takes_says_nothing_of_programs() {
        let mut policy = IdlePolicy::new(Wait::Adaptive);
        for _ in 0..100 {
            assert_eq!(until(&mut policy, SOON), [Now::Look]);
            policy.worked(LATE, false);
            while policy.next(LATE) != Now::Sleep {}
        }
        policy.worked(LATE, false);
        assert_eq!(policy.next(Duration::ZERO), Now::Sleep);
    }

    #[test]
    fn for_no_time_it_never_looks_and_for_ever_it_never_sleeps() {
        let mut policy = IdlePolicy::new(Wait::For(Duration::ZERO));
        for _ in 0..100 {
            assert!(!until(&mut policy, SOON).contains(&Now::Look));
        }
        let mut policy = IdlePolicy::new(Wait::For(Duration::MAX));
        for _ in 0..100 {
            assert_eq!(until(&mut policy, LATE), [Now::Look, Now::Yield]);
        }
    }

    #[test]
    fn the_processor_is_given_away_before_a_sleep_as_long_as_that_brings_work() {
        let mut policy = IdlePolicy::new(Wait::For(Duration::ZERO));
        for _ in 0..100 {
            policy.worked(SOON, true);
            assert_eq!(policy.next(Duration::ZERO), Now::Yield);
        }
        policy.worked(SOON, false);
        assert_eq!(policy.next(Duration::ZERO), Now::Sleep, "nobody was given anything");
        let yields = (0..200).filter(|_| until(&mut policy, LATE).contains(&Now::Yield)).count();
        assert!((FAILURES as usize..10).contains(&yields), "{yields} of 200");
    }

    /// It was 60 seconds for 2,000 requests, one after another, beside programs that compute.
    #[test]
    fn a_processor_that_comes_back_late_is_not_given_away_any_more_also_where_there_is_work_then() {
        let mut policy = IdlePolicy::new(Wait::For(Duration::ZERO));
        let mut yields = 0;
        for _ in 0..10_000 {
            policy.worked(LATE, true);
            yields += usize::from(policy.next(Duration::ZERO) == Now::Yield);
        }
        assert!((FAILURES as usize..15).contains(&yields), "{yields} of 10,000");
    }
}
