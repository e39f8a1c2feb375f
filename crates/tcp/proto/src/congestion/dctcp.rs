//! DCTCP (RFC 8257) on rates instead of windows (TAS, 3.2.2): slowed down by the share of bytes
//! that were marked.

use super::{Feedback, Rate};

/// How much the newest interval counts in the estimate (RFC 8257, 4.2).
const GAIN: f64 = 1.0 / 16.0;

#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    pub(super) rate: Rate,
    /// The estimate of the share of bytes that meet congestion.
    alpha: f64,
    /// Intervals without congestion since the last one with.
    quiet: u32,
    /// The last interval reduced the rate for its marks.
    reduced: bool,
}

impl Dctcp {
    pub fn new(mss: u32, rtt: u32) -> Dctcp {
        let rate = Rate::new(mss, rtt);
        Dctcp { rate, alpha: 1.0, quiet: 0, reduced: false }
    }

    pub fn interval(&mut self, feedback: &Feedback) {
        self.rate.validate(feedback);
        let intervals = self.rate.intervals(feedback);
        if feedback.acked > 0 {
            let share = f64::from(feedback.marked) / f64::from(feedback.acked);
            self.alpha += GAIN * (share.min(1.0) - self.alpha);
        }
        // Much of what is acknowledged in the interval behind a reduction was sent before it: its
        // marks are answered already. A window is reduced once in a round trip for the same reason
        // (RFC 8257, 3.3).
        let reduced = core::mem::take(&mut self.reduced);
        if feedback.timeout || feedback.retransmits > 0 {
            // A loss is as for every TCP (RFC 8257, 3.5).
            self.rate.slow_start = false;
            self.rate.now /= 2.0;
            self.quiet = 0;
        } else if feedback.marked > 0 {
            self.quiet = 0;
            if !reduced {
                // It grows all the same, as DCTCP's window does: otherwise a few marks in each
                // interval would end in standstill.
                self.rate.slow_start = false;
                self.rate.now = self.rate.now * (1.0 - self.alpha / 2.0) + Rate::step(feedback);
                self.reduced = true;
            }
        } else if intervals > 0 {
            self.quiet = self.quiet.saturating_add(intervals);
            if self.rate.slow_start {
                self.rate.now *= 2.0;
            } else {
                // The longer nothing was marked, the larger the step, as QCN has it (802.1Qau,
                // hyper-active increase): with steps of 10 Mbit/s alone, a flow that was halved at
                // 10 Gbit/s would need 500 intervals.
                let steps = self.quiet.saturating_mul(intervals);
                self.rate.now += Rate::step(feedback) * f64::from(steps);
            }
        }
        self.rate.clamp(feedback);
    }
}
