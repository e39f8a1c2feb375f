//! TIMELY (Mittal et al., SIGCOMM 2015): the rate follows the gradient of the round trip. With slow start, for TCP (TAS, 3.2.2).

use super::{Feedback, RATE_STEP, Rate};

/// The paper's parameters (4.4): below 50 us no queue is worth slowing down for, above 500 us the gradient does not matter any more.
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
        let rtt = f64::from(feedback.rtt.max(1));
        self.least = self.least.min(rtt);
        self.difference += GAIN * ((rtt - self.last) - self.difference);
        self.last = rtt;
        let gradient = self.difference / self.least;
        // On long ways the bounds lie above what is there without any queue.
        let (low, high) = (LOW.max(1.25 * self.least), HIGH.max(2.0 * self.least));
        self.rate.validate(feedback);
        let rate = &mut self.rate;
        let mut slow_down = |by: f64| {
            rate.slow_start = false;
            rate.now *= 1.0 - by.clamp(0.0, 0.5);
        };
        let grew = if feedback.timeout || feedback.retransmits > 0 {
            slow_down(0.5);
            false
        } else if rtt > high {
            slow_down(DECREASE * (1.0 - high / rtt));
            false
        } else if rtt < low || gradient <= 0.0 {
            feedback.acked > 0
        } else {
            slow_down(DECREASE * gradient);
            false
        };
        self.good = if grew { self.good + 1 } else { 0 };
        if grew {
            if self.rate.slow_start {
                self.rate.now *= 2.0;
            } else {
                self.rate.now += RATE_STEP * if self.good >= HURRY { 5.0 } else { 1.0 };
            }
        }
        self.rate.clamp(feedback);
    }
}
