//! BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", 2016; version 1 of
//! draft-cardwell-iccrg-bbr-congestion-control-00, as Linux has it), a control interval at a time.
//! The rate is what the way was seen to carry, and what is on the way is bounded by what it holds
//! without a queue. A loss alone slows nothing down: CUBIC's share of a way that loses one segment
//! in 500 is 2 MB/s at 20 ms, whatever the way could carry (RFC 9438, 4.3).
//!
//! The differences: a sample is of a whole interval, two round trips, so a cycle takes twice as
//! long. Half of what is on the way stays while the round trip is looked for, as in version 2: the
//! round trip that is known here is a mean, and four segments would bring too few samples. Policers
//! are not looked for. ECN is not agreed on, because marks would not be answered.

use super::{Feedback, LEAST_SEGMENTS, Rate};
use crate::time::{MICROSECOND, MILLISECOND, Nanos, SECOND, Time};

/// 2 / ln 2: the least gain with which what goes through can double in a round trip (4.3.2.1).
const STARTUP: f64 = 2.885;
/// Intervals in which it did not grow by a quarter, after which the way is full (4.3.2.2).
const FULL_AFTER: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// Intervals for what is too much on the way to leave it. Afterwards the round trip is not what it
/// was, and a low rate would only be taken for the way's.
const DRAIN: u32 = 5;
/// The cycle: more for an interval, as much less for the next, and six at what was seen (4.3.4).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Samples of which the largest counts: more than a cycle has, so that one at 1.25 is among them.
const SAMPLES: usize = 10;
/// Round trips' worth that may be on the way: acknowledgements come late, and in jumps (4.2.3.2).
const WINDOW: f64 = 2.0;
/// A round trip is believed for so long (4.3.5).
const BELIEVED: Nanos = 10 * SECOND;
/// It is looked for for so long, and two intervals at least.
const LOOKED_FOR: Nanos = 200 * MILLISECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The rate doubles.
    Startup,
    /// The surplus leaves the way, for so many intervals yet.
    Drain(u32),
    /// The place in the cycle.
    Cycle(u8),
    /// Little is sent until then, and for so many intervals yet, so that the round trip shows.
    RoundTrip(Time, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mode: Mode,
    /// The throughput of the last intervals that count, in bytes a second; 0: none yet.
    samples: [f64; SAMPLES],
    /// Which of them is the oldest.
    oldest: u8,
    /// The throughput when it last grew by a quarter.
    full: f64,
    /// Intervals since then.
    flat: u32,
    /// The shortest round trip, in microseconds, and when it was seen.
    least_rtt: u32,
    least_seen: Time,
    mss: u32,
    /// Before there is a sample: the initial window in a round trip.
    initial: f64,
    /// Everything on the way is taken for lost, and nothing was heard since.
    timed_out: bool,
}

/// A place in the cycle, not the same for all flows: else all would ask for more at once.
fn somewhere(time: Time) -> Mode {
    Mode::Cycle(2 + (time.0 / MICROSECOND % 6) as u8)
}

impl Bbr {
    pub fn new(mss: u32, rtt: u32) -> Bbr {
        Bbr {
            mode: Mode::Startup,
            samples: [0.0; SAMPLES],
            oldest: 0,
            full: 0.0,
            flat: 0,
            least_rtt: rtt.max(1),
            least_seen: Time::NEVER,
            mss,
            initial: Rate::initial(mss, rtt),
            timed_out: false,
        }
    }

    pub fn interval(&mut self, feedback: &Feedback) {
        self.mss = feedback.mss;
        if feedback.timeout {
            self.timed_out = true;
            return;
        }
        if feedback.delivered == 0 {
            return;
        }
        self.timed_out = false;
        self.sample(feedback);
        let is_late = self.round_trip(feedback);
        self.mode = match self.mode {
            Mode::Startup if self.flat >= FULL_AFTER => Mode::Drain(DRAIN),
            Mode::Drain(0) => somewhere(feedback.time),
            Mode::Drain(_) if f64::from(feedback.in_flight) <= self.holds() => {
                somewhere(feedback.time)
            }
            Mode::Drain(left) => Mode::Drain(left - 1),
            Mode::Cycle(at) => Mode::Cycle((at + 1) % CYCLE.len() as u8),
            Mode::RoundTrip(until, 0) if feedback.time >= until => {
                // A round trip that is seen now counts, though it be longer than the one
                // before. Where it is, what was on the way was bounded by too little, and what went
                // through says little.
                if feedback.rtt / 2 > self.least_rtt {
                    (self.full, self.flat) = (0.0, 0);
                }
                (self.least_rtt, self.least_seen) = (feedback.rtt.max(1), feedback.time);
                if self.flat >= FULL_AFTER { somewhere(feedback.time) } else { Mode::Startup }
            }
            Mode::RoundTrip(until, left) => Mode::RoundTrip(until, left.saturating_sub(1)),
            Mode::Startup => Mode::Startup,
        };
        if is_late && !matches!(self.mode, Mode::RoundTrip(..)) {
            self.mode = Mode::RoundTrip(feedback.time + LOOKED_FOR, 2);
        }
    }

    /// Takes a sample of the throughput. One that the program, or its peer's window, held back says
    /// only that it is not less.
    fn sample(&mut self, feedback: &Feedback) {
        let through =
            f64::from(feedback.delivered) * SECOND as f64 / feedback.interval.max(1) as f64;
        if !feedback.limited && through <= self.bandwidth() {
            return;
        }
        self.samples[usize::from(self.oldest)] = through;
        self.oldest = (self.oldest + 1) % SAMPLES as u8;
        if self.mode != Mode::Startup {
            return;
        }
        if self.bandwidth() >= FULL_GROWTH * self.full {
            (self.full, self.flat) = (self.bandwidth(), 0);
        } else if feedback.limited {
            self.flat += 1;
        }
    }

    /// Whether the round trip has to be looked for.
    fn round_trip(&mut self, feedback: &Feedback) -> bool {
        if feedback.rtt <= self.least_rtt || self.least_seen == Time::NEVER {
            self.least_rtt = self.least_rtt.min(feedback.rtt.max(1));
            self.least_seen = feedback.time;
        }
        feedback.time.since(self.least_seen) > BELIEVED
    }

    /// The rate that the way carries, in bytes a second; 0: not known.
    fn bandwidth(&self) -> f64 {
        self.samples.iter().fold(0.0, |most, sample| most.max(*sample))
    }

    /// The bytes that the way holds without a queue.
    fn holds(&self) -> f64 {
        self.bandwidth().max(self.initial_unless_known()) * f64::from(self.least_rtt) / 1e6
    }

    fn initial_unless_known(&self) -> f64 {
        if self.bandwidth() == 0.0 { self.initial } else { 0.0 }
    }

    /// Bytes a second.
    pub fn rate(&self) -> u64 {
        let gain = match self.mode {
            Mode::Startup => STARTUP,
            Mode::Drain(_) => 1.0 / STARTUP,
            Mode::Cycle(at) => CYCLE[usize::from(at)],
            Mode::RoundTrip(..) => 1.0,
        };
        let rate = gain * self.bandwidth().max(self.initial_unless_known());
        rate.max(Rate::least(self.mss, self.least_rtt)).min(50e9) as u64
    }

    /// Bytes on the way.
    pub fn window(&self) -> u32 {
        if self.timed_out {
            return self.mss;
        }
        let round_trips = match self.mode {
            Mode::Startup | Mode::Drain(_) => STARTUP,
            Mode::Cycle(_) => WINDOW,
            Mode::RoundTrip(..) => 0.5,
        };
        ((round_trips * self.holds()) as u32).saturating_add(LEAST_SEGMENTS * self.mss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1448;

    /// A way: what it carries, in bytes a second, its round trip in microseconds, its queue.
    struct Way {
        carries: f64,
        rtt: u32,
        queue: f64,
        now: Time,
        /// Of bytes that are sent, how many are lost in each interval.
        retransmits: u8,
        /// The rate at which the program has bytes to send, at most, in bytes a second.
        wanted: f64,
    }

    impl Way {
        fn new(carries: f64, rtt: u32) -> Way {
            let now = Time(SECOND);
            Way { carries, rtt, queue: 0.0, now, retransmits: 0, wanted: f64::INFINITY }
        }

        fn holds(&self) -> f64 {
            self.carries * f64::from(self.rtt) / 1e6
        }

        /// The round trip with the queue.
        fn seen(&self) -> u32 {
            self.rtt + (self.queue / self.carries * 1e6) as u32
        }

        /// Two round trips.
        fn interval(&mut self, bbr: &mut Bbr) -> f64 {
            let seconds = 2.0 * f64::from(self.seen()) / 1e6;
            let by_window = f64::from(bbr.window()) * 1e6 / f64::from(self.seen());
            let allowed = (bbr.rate() as f64).min(by_window);
            let sent = allowed.min(self.wanted) * seconds;
            let through = (self.queue + sent).min(self.carries * seconds);
            self.queue += sent - through;
            self.now = self.now + (seconds * SECOND as f64) as Nanos;
            bbr.interval(&Feedback {
                time: self.now,
                interval: (seconds * SECOND as f64) as Nanos,
                acked: through as u32,
                delivered: through as u32,
                in_flight: (self.queue + through / 2.0) as u32,
                marked: 0,
                retransmits: self.retransmits,
                timeout: false,
                rtt: self.seen(),
                mss: MSS,
                limited: allowed < self.wanted,
            });
            through / seconds
        }

        fn intervals(&mut self, bbr: &mut Bbr, count: u32) -> f64 {
            (0..count).map(|_| self.interval(bbr)).sum::<f64>() / f64::from(count)
        }
    }

    #[test]
    fn the_rate_of_a_way_is_found_and_kept_without_a_queue() {
        for (carries, rtt) in [(1e9, 100), (30e6, 20_000), (1e6, 200), (2e5, 300_000)] {
            let (mut way, mut bbr) = (Way::new(carries, rtt), Bbr::new(MSS, rtt));
            way.intervals(&mut bbr, 30);
            for _ in 0..40 {
                way.interval(&mut bbr);
                let most = 0.6 * way.holds() + f64::from(LEAST_SEGMENTS * MSS);
                assert!(way.queue < most, "{carries} {rtt}: {} of {}", way.queue, way.holds());
            }
            let through = way.intervals(&mut bbr, 16);
            assert!(through > 0.9 * carries, "{carries} {rtt}: {through}");
        }
    }

    #[test]
    fn losses_alone_slow_nothing_down() {
        let (mut way, mut bbr) = (Way::new(30e6, 20_000), Bbr::new(MSS, 20_000));
        way.retransmits = 3;
        way.intervals(&mut bbr, 30);
        assert!(way.intervals(&mut bbr, 16) > 0.9 * way.carries);
    }

    #[test]
    fn a_way_that_changes_is_followed_both_ways() {
        let (mut way, mut bbr) = (Way::new(10e6, 10_000), Bbr::new(MSS, 10_000));
        way.intervals(&mut bbr, 30);
        way.carries = 2e6;
        way.intervals(&mut bbr, 24);
        assert!((bbr.rate() as f64) < 1.4 * way.carries, "{}", bbr.rate());
        way.intervals(&mut bbr, 16);
        assert!(way.queue < 1.1 * way.holds() + f64::from(LEAST_SEGMENTS * MSS), "{}", way.queue);
        way.carries = 10e6;
        way.intervals(&mut bbr, 100);
        assert!(way.intervals(&mut bbr, 8) > 0.85 * way.carries);
    }

    #[test]
    fn a_program_that_sends_little_for_long_has_the_rate_that_it_had() {
        let (mut way, mut bbr) = (Way::new(10e6, 10_000), Bbr::new(MSS, 10_000));
        way.intervals(&mut bbr, 30);
        way.wanted = 1e5;
        way.intervals(&mut bbr, 200);
        way.wanted = f64::INFINITY;
        assert!(way.intervals(&mut bbr, 8) > 0.7 * way.carries);
    }

    #[test]
    fn a_longer_round_trip_is_believed_when_the_shorter_one_has_not_been_seen_for_ten_seconds() {
        let (mut way, mut bbr) = (Way::new(10e6, 5_000), Bbr::new(MSS, 5_000));
        way.intervals(&mut bbr, 30);
        way.rtt = 40_000;
        while way.now < Time(14 * SECOND) {
            way.interval(&mut bbr);
        }
        assert_eq!(bbr.least_rtt, 40_000);
        way.intervals(&mut bbr, 24);
        assert!(way.intervals(&mut bbr, 8) > 0.85 * way.carries);
    }

    #[test]
    fn after_a_timeout_one_segment_goes_out_until_something_is_heard() {
        let (mut way, mut bbr) = (Way::new(10e6, 10_000), Bbr::new(MSS, 10_000));
        way.intervals(&mut bbr, 30);
        let before = bbr.window();
        let silence = Feedback {
            time: way.now,
            interval: SECOND,
            acked: 0,
            delivered: 0,
            in_flight: 0,
            marked: 0,
            retransmits: 0,
            timeout: true,
            rtt: 10_000,
            mss: MSS,
            limited: false,
        };
        for _ in 0..40 {
            bbr.interval(&silence);
            bbr.interval(&Feedback { timeout: false, ..silence });
            assert_eq!(bbr.window(), MSS);
        }
        way.interval(&mut bbr);
        assert!(bbr.window() >= before / 2, "{} {before}", bbr.window());
    }
}
