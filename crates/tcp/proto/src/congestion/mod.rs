//! Congestion control, out of the fast path's way: every two round trips the slow path gathers what
//! the fast path counted, and sets a rate or a window (TAS, 3.2.2).
//!
//! | algorithm | limit | feedback |
//! | --- | --- | --- |
//! | `dctcp` | rate | the share of bytes that were marked |
//! | `timely` | rate | how the round trip changes |
//! | `reno` | window | losses |
//! | `cubic` | window | losses, and the time since the last one |
//! | `bbr` | rate | what went through, and the shortest round trip |
//!
//! A caller may control congestion itself ([`Algorithm::Caller`]), on each acknowledgement if it
//! likes: the simulator's vanilla DCTCP does.

mod bbr;
mod cubic;
mod dctcp;
mod reno;
mod timely;

use crate::time::{Nanos, SECOND, Time};

/// Segments that may go out before anything is known (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;

/// The growth of a rate in each control interval without congestion, in bytes a second: 10 Mbit/s
/// (TAS, 3.2.2), and not more than a segment in a round trip. That is how a window grows: the
/// longer the queue, the slower. With 10 Mbit/s alone a hundred flows on 200 Mbit/s grow by five
/// times the link in each interval, however often they are marked.
const RATE_STEP: f64 = 10e6 / 8.0;

/// Round trips without queues whose worth may be on the way: one fills the way, the other lets a
/// queue build up that is marked, or every flow would keep the share that it has (BBR's
/// `cwnd_gain`). Measured by `uncopy-tcp-sim` (one link, eight flows): without a bound the queue
/// goes to 450 packets at times, with it to 370; one flow then has 0.90 of the link instead of
/// 0.83.
const ROUND_TRIPS: f64 = 2.0;

/// And segments besides, whatever the rate: of so many the loss of one shows by three duplicates;
/// of fewer only by a timeout. Not the ten of the initial window: so many of a hundred flows are
/// more than a switch's queue holds.
const LEAST_SEGMENTS: u32 = 4;

/// How far above what went through a rate may stay that held data back. Not 1.2, as otherwise: with
/// losses, acknowledgements stop for a while again and again, and each stop would take a part of
/// the rate for good. But a rate that is far too high has to come down at once.
const LIMITED_ROOM: f64 = 2.0;

/// Which algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// For networks whose switches mark (RFC 8257), by rate.
    Dctcp,
    /// By delay, for networks whose switches do not.
    Timely,
    /// RFC 5681.
    Reno,
    /// RFC 9438: what Linux does.
    #[default]
    Cubic,
    /// By what goes through, whatever is lost: for ways that lose without being full. No marks are
    /// agreed on.
    Bbr,
    /// The caller's own, by window: [`Endpoint::set_window`](crate::Endpoint::set_window). Marks
    /// are echoed exactly, as for DCTCP.
    Caller,
}

/// The fast path's counts since the last interval.
#[derive(Clone, Copy, Debug)]
pub struct Feedback {
    /// Now.
    pub time: Time,
    /// How long the interval was.
    pub interval: Nanos,
    /// Bytes acknowledged.
    pub acked: u32,
    /// Bytes that the peer has got, also those behind a gap.
    pub delivered: u32,
    /// Bytes on the way now.
    pub in_flight: u32,
    /// Those of them whose acknowledgement echoed congestion.
    pub marked: u32,
    /// Losses that duplicates showed.
    pub retransmits: u8,
    /// A timeout.
    pub timeout: bool,
    /// The round trip in microseconds.
    pub rtt: u32,
    /// The segment size.
    pub mss: u32,
    /// The window held data back (with rates: the rate did).
    pub limited: bool,
}

/// The limit that the fast path has to keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Bytes a second; and bytes on the way, so that where a queue builds up, it is not filled at
    /// this rate until the next interval.
    Rate(u64, u32),
    /// Bytes on the way.
    Window(u32),
}

/// The state of one connection's congestion control.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Dctcp(dctcp::Dctcp),
    Timely(timely::Timely),
    Reno(reno::Reno),
    Cubic(cubic::Cubic),
    Bbr(bbr::Bbr),
    /// The window that the caller set.
    Caller(u32),
}

impl Control {
    /// At the start, with what the handshake measured (microseconds).
    pub fn new(algorithm: Algorithm, mss: u32, rtt: u32) -> Control {
        match algorithm {
            Algorithm::Dctcp => Control::Dctcp(dctcp::Dctcp::new(mss, rtt)),
            Algorithm::Timely => Control::Timely(timely::Timely::new(mss, rtt)),
            Algorithm::Reno => Control::Reno(reno::Reno::new(mss)),
            Algorithm::Cubic => Control::Cubic(cubic::Cubic::new(mss)),
            Algorithm::Bbr => Control::Bbr(bbr::Bbr::new(mss, rtt)),
            Algorithm::Caller => Control::Caller(INITIAL_SEGMENTS * mss),
        }
    }

    /// One interval went by.
    pub fn interval(&mut self, feedback: &Feedback) {
        match self {
            Control::Dctcp(dctcp) => dctcp.interval(feedback),
            Control::Timely(timely) => timely.interval(feedback),
            Control::Reno(reno) => reno.interval(feedback),
            Control::Cubic(cubic) => cubic.interval(feedback),
            Control::Bbr(bbr) => bbr.interval(feedback),
            // The caller hears of a timeout later than everything is sent again.
            Control::Caller(window) if feedback.timeout => *window = feedback.mss,
            Control::Caller(_) => {}
        }
    }

    /// The limit that holds now.
    pub fn limit(&self) -> Limit {
        match self {
            Control::Dctcp(dctcp) => Limit::Rate(dctcp.rate.get(), dctcp.rate.window()),
            Control::Timely(timely) => Limit::Rate(timely.rate.get(), timely.rate.window()),
            Control::Reno(reno) => Limit::Window(reno.window),
            Control::Cubic(cubic) => Limit::Window(cubic.window()),
            Control::Bbr(bbr) => Limit::Rate(bbr.rate(), bbr.window()),
            Control::Caller(window) => Limit::Window(*window),
        }
    }
}

/// A rate with the bounds that DCTCP and TIMELY need.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Bytes a second.
    now: f64,
    slow_start: bool,
    /// The rate that went through lately, in bytes a second.
    sent: f64,
    /// The smallest round trip seen, in microseconds.
    least_rtt: u32,
    /// Intervals since the last one with an acknowledgement.
    silent: u32,
    /// The segment size.
    mss: u32,
}

impl Rate {
    fn new(mss: u32, rtt: u32) -> Rate {
        let now = Rate::initial(mss, rtt);
        Rate { now, slow_start: true, sent: now, least_rtt: rtt.max(1), silent: 0, mss }
    }

    /// The initial window in a round trip.
    fn initial(mss: u32, rtt: u32) -> f64 {
        f64::from(INITIAL_SEGMENTS * mss) * 1e6 / f64::from(rtt.max(1))
    }

    /// A segment in ten round trips: what even the most congested flow keeps, so that it learns of
    /// better times.
    fn least(mss: u32, rtt: u32) -> f64 {
        f64::from(mss) * 1e5 / f64::from(rtt.max(1))
    }

    /// A rate that the flow did not use it does not keep: at most a fifth more than it sent (TAS,
    /// 3.2.2). The initial rate is left to flows that met no congestion, or a flow of small
    /// requests could never send a large answer.
    fn validate(&mut self, feedback: &Feedback) {
        self.least_rtt = self.least_rtt.min(feedback.rtt.max(1));
        self.mss = feedback.mss;
        // An interval holds few segments, and after a loss acknowledgements come in jumps: one
        // alone says little.
        let sent = f64::from(feedback.acked) * SECOND as f64 / feedback.interval.max(1) as f64;
        self.sent += (sent - self.sent) / 8.0;
        let floor = if self.slow_start { Rate::initial(feedback.mss, feedback.rtt) } else { 0.0 };
        let room = if feedback.limited && !self.slow_start { LIMITED_ROOM } else { 1.2 };
        self.now = self.now.min((room * self.sent.max(sent)).max(floor));
    }

    /// How many intervals the acknowledgements of this one stand for; none if there were none: then
    /// nothing is known that was not before. Of those without, as many count as lie between two
    /// segments at this rate: else who is slow would stay slow. More are a stall, and say nothing
    /// good about the network.
    fn intervals(&mut self, feedback: &Feedback) -> u32 {
        if feedback.acked == 0 {
            self.silent = self.silent.saturating_add(1);
            return 0;
        }
        let between = f64::from(feedback.mss) * SECOND as f64 / self.now / feedback.interval as f64;
        1 + core::mem::take(&mut self.silent).min(between as u32)
    }

    /// The growth in an interval.
    fn step(feedback: &Feedback) -> f64 {
        let segment = f64::from(feedback.mss) * 1e6 / f64::from(feedback.rtt.max(1));
        RATE_STEP.min(segment)
    }

    fn clamp(&mut self, feedback: &Feedback) {
        // Nothing is faster than 400 Gbit/s.
        self.now = self.now.max(Rate::least(feedback.mss, feedback.rtt)).min(50e9);
    }

    /// The bytes that may be on the way at this rate: so much as two round trips without queues
    /// send, and a few segments.
    fn window(&self) -> u32 {
        let bytes = ROUND_TRIPS * self.now * f64::from(self.least_rtt) / 1e6;
        (bytes as u32).saturating_add(LEAST_SEGMENTS * self.mss)
    }

    fn get(&self) -> u64 {
        self.now as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MILLISECOND;

    fn quiet(acked: u32, at: u64) -> Feedback {
        Feedback {
            time: Time(at * MILLISECOND),
            interval: 2 * MILLISECOND,
            acked,
            delivered: acked,
            in_flight: acked / 2,
            marked: 0,
            retransmits: 0,
            timeout: false,
            rtt: 1000,
            mss: 1000,
            limited: true,
        }
    }

    /// The bytes that go through in an interval of two round trips at the present limit.
    fn through(control: &Control) -> u32 {
        match control.limit() {
            Limit::Rate(rate, _) => (rate / 500) as u32,
            Limit::Window(window) => 2 * window,
        }
    }

    /// Those that a loss slows down.
    fn by_losses() -> [Algorithm; 4] {
        [Algorithm::Dctcp, Algorithm::Timely, Algorithm::Reno, Algorithm::Cubic]
    }

    fn all() -> [Algorithm; 5] {
        let [a, b, c, d] = by_losses();
        [a, b, c, d, Algorithm::Bbr]
    }

    #[test]
    fn without_congestion_every_algorithm_grows() {
        for algorithm in all() {
            let mut control = Control::new(algorithm, 1000, 1000);
            let before = through(&control);
            for at in 1..8 {
                control.interval(&Feedback { rtt: 40, ..quiet(through(&control), at) });
            }
            assert!(
                through(&control) > 4 * before,
                "{algorithm:?}: {before} {}",
                through(&control)
            );
        }
    }

    #[test]
    fn at_a_loss_every_algorithm_but_bbr_slows_down_and_then_grows_again() {
        for algorithm in by_losses() {
            let mut control = Control::new(algorithm, 1000, 1000);
            for at in 1..6 {
                control.interval(&Feedback { rtt: 40, ..quiet(through(&control), at) });
            }
            let before = through(&control);
            control.interval(&Feedback { retransmits: 1, rtt: 40, ..quiet(before, 6) });
            let cut = through(&control);
            assert!(cut < before * 9 / 10 && cut > before / 4, "{algorithm:?}: {before} {cut}");
            for at in 7..60 {
                control.interval(&Feedback { rtt: 40, ..quiet(through(&control), at) });
            }
            assert!(through(&control) > cut, "{algorithm:?}");
        }
    }

    #[test]
    fn timeouts_one_after_another_never_stop_a_flow() {
        for algorithm in all() {
            let mut control = Control::new(algorithm, 1000, 1000);
            for at in 1..40 {
                control.interval(&Feedback { timeout: true, acked: 0, ..quiet(0, at) });
            }
            match control.limit() {
                // (Its window is all that it sends for each of its questions.)
                Limit::Rate(_, window) if algorithm == Algorithm::Bbr => assert_eq!(window, 1000),
                Limit::Rate(rate, _) => assert!((1..200_000).contains(&rate), "{rate}"),
                Limit::Window(window) => assert!((1000..=2000).contains(&window), "{window}"),
            }
        }
    }

    #[test]
    fn a_flow_that_sends_little_does_not_grow() {
        for algorithm in all() {
            let mut control = Control::new(algorithm, 1000, 1000);
            let before = through(&control);
            for at in 1..50 {
                control.interval(&Feedback { limited: false, rtt: 1000, ..quiet(100, at) });
            }
            assert!(
                through(&control) <= 3 * before,
                "{algorithm:?}: {before} {}",
                through(&control)
            );
        }
    }

    #[test]
    fn dctcp_slows_down_in_proportion_to_the_marks() {
        let after = |share: u32| {
            let mut control = Control::new(Algorithm::Dctcp, 1000, 1000);
            for at in 1..6 {
                control.interval(&quiet(through(&control), at));
            }
            for at in 6..120 {
                let acked = through(&control);
                control.interval(&Feedback { marked: acked / 100 * share, ..quiet(acked, at) });
            }
            through(&control)
        };
        assert!(after(5) > 2 * after(50), "{} {}", after(5), after(50));
    }
}
