//! TIMELY (Mittal et al., SIGCOMM 2015): the rate follows the gradient of the round trip, and its
//! length. With slow start, for TCP (TAS, 3.2.2).

use super::{Feedback, Rate};

/// The paper's parameters (4.4): below 50 us no queue is worth slowing down for, above 500 us the
/// gradient does not matter any more.
const LOW: f64 = 50.0;
const HIGH: f64 = 500.0;
const DECREASE: f64 = 0.8;
/// How much the newest difference counts.
const GAIN: f64 = 0.875;
/// Intervals without congestion after which the rate grows by five steps.
const HURRY: u32 = 5;

#[derive(Clone, Debug)]
pub(crate) struct Timely {
    pub(super) rate: Rate,
    last: f64,
    difference: f64,
    /// The smallest round trip seen: differences are measured by it.
    least: f64,
    good: u32,
}

impl Timely {
    pub fn new(mss: u32, rtt: u32) -> Timely {
        let rtt_us = f64::from(rtt.max(1));
        Timely { rate: Rate::new(mss, rtt), last: rtt_us, difference: 0.0, least: rtt_us, good: 0 }
    }

    pub fn interval(&mut self, feedback: &Feedback) {
        self.rate.validate(feedback);
        let intervals = self.rate.intervals(feedback);
        if feedback.timeout || feedback.retransmits > 0 {
            self.slow_down(0.5);
        } else if intervals > 0 {
            self.measured(feedback, intervals);
        }
        self.rate.clamp(feedback);
    }

    /// A round trip that was measured in the last so many intervals.
    fn measured(&mut self, feedback: &Feedback, intervals: u32) {
        // A receiver may wait for a second segment before it acknowledges one: that long is no
        // queue. And so the fewer segments a flow has in a round trip, the longer a queue it bears:
        // else many flows, whose segments alone are a queue, would slow down for ever (Swift,
        // SIGCOMM 2020, 3.5, scales its target for that).
        let rtt = f64::from(feedback.rtt.max(1));
        self.least = self.least.min(rtt);
        let rtt = (rtt - f64::from(feedback.mss) * 1e6 / self.rate.now).max(self.least);
        self.difference += GAIN * ((rtt - self.last) - self.difference);
        self.last = rtt;
        let gradient = self.difference / self.least;
        // On long ways the bounds lie above what is there without any queue.
        let (low, high) = (LOW.max(1.25 * self.least), HIGH.max(2.0 * self.least));
        let step = Rate::step(feedback) * f64::from(intervals);
        if rtt > high {
            self.slow_down(DECREASE * (1.0 - high / rtt));
        } else if rtt < low {
            self.good = self.good.saturating_add(intervals);
            if self.rate.slow_start {
                self.rate.now *= 2.0;
            } else {
                self.rate.now += step * if self.good >= HURRY { 5.0 } else { 1.0 };
            }
        } else {
            // By the gradient alone every division of the link is an equilibrium (Zhu et al., ECN
            // or Delay, CoNEXT 2016): so the queue itself counts too, the more, the more surely it
            // grows.
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let middle = f64::midpoint(low, high);
            self.slow_down(DECREASE * weight * (rtt - middle) / middle);
            self.rate.now += step * (1.0 - weight);
        }
    }

    fn slow_down(&mut self, by: f64) {
        if by <= 0.0 {
            return;
        }
        self.good = 0;
        self.rate.slow_start = false;
        self.rate.now *= 1.0 - by.clamp(0.0, 0.5);
    }
}
