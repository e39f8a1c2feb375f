//! DCTCP (RFC 8257) on rates instead of windows (TAS, 3.2.2): slowed down by the share of bytes that were marked.

use super::{Feedback, RATE_STEP, Rate};

/// How much the newest interval counts in the estimate (RFC 8257, 4.2).
const GAIN: f64 = 1.0 / 16.0;

/// So many intervals may lie between two acknowledgements of a flow that sends a segment in five of them; more is a stall, and says nothing
/// good about the network.
const SILENT: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Dctcp {
    pub(super) rate: Rate,
    /// The estimate of the share of bytes that meet congestion.
    alpha: f64,
    /// Intervals without an acknowledgement.
    silent: u32,
}

impl Dctcp {
    pub fn new(mss: u32, rtt: u32) -> Dctcp {
        Dctcp { rate: Rate::new(mss, rtt), alpha: 1.0, silent: 0 }
    }

    pub fn interval(&mut self, feedback: &Feedback) {
        self.rate.validate(feedback);
        if feedback.acked > 0 {
            let share = f64::from(feedback.marked) / f64::from(feedback.acked);
            self.alpha += GAIN * (share.min(1.0) - self.alpha);
        }
        if feedback.timeout || feedback.retransmits > 0 {
            // A loss is as for every TCP (RFC 8257, 3.5).
            self.rate.slow_start = false;
            self.rate.now /= 2.0;
        } else if feedback.marked > 0 {
            // It grows all the same, as DCTCP's window does: otherwise a few marks in each interval would end in standstill.
            self.rate.slow_start = false;
            self.rate.now = self.rate.now * (1.0 - self.alpha / 2.0) + RATE_STEP;
        } else if feedback.acked > 0 {
            if self.rate.slow_start {
                self.rate.now *= 2.0;
            } else {
                // For the intervals too that were too short for an acknowledgement: a slow flow would stay slow.
                self.rate.now += RATE_STEP * f64::from(1 + self.silent.min(SILENT));
            }
        }
        self.silent = if feedback.acked > 0 { 0 } else { self.silent + 1 };
        self.rate.clamp(feedback);
    }
}
