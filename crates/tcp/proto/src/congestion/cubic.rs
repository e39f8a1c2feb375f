//! CUBIC by window (RFC 9438), a control interval at a time.

use super::reno::LARGEST;
use super::{Feedback, INITIAL_SEGMENTS};
use crate::time::{SECOND, Time};

/// RFC 9438, 4.1 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    /// The window in bytes.
    window: f64,
    threshold: f64,
    /// The window before the last reduction, in segments.
    w_max: f64,
    /// Since when it grows again; NEVER before the first loss.
    epoch: Time,
    /// The window that Reno would have, in bytes (4.3).
    w_est: f64,
}

impl Cubic {
    pub fn new(mss: u32) -> Cubic {
        let window = f64::from(INITIAL_SEGMENTS * mss);
        Cubic { window, threshold: f64::INFINITY, w_max: 0.0, epoch: Time::NEVER, w_est: window }
    }

    pub fn window(&self) -> u32 {
        self.window as u32
    }

    pub fn interval(&mut self, feedback: &Feedback) {
        let mss = f64::from(feedback.mss);
        if feedback.timeout || feedback.retransmits > 0 || feedback.marked > 0 {
            let segments = self.window / mss;
            // A flow that was reduced below the last maximum leaves room for others (4.7).
            self.w_max =
                if segments < self.w_max { segments * (1.0 + BETA) / 2.0 } else { segments };
            self.threshold = (self.window * BETA).max(2.0 * mss);
            self.window = if feedback.timeout { mss } else { self.threshold };
            self.w_est = self.window;
            self.epoch = feedback.time;
            return;
        }
        if !feedback.limited {
            // Time in which the window was not used does not count (4.2): the curve is shifted.
            if self.epoch != Time::NEVER {
                self.epoch = self.epoch + feedback.interval;
            }
            return;
        }
        if self.window < self.threshold {
            self.window =
                (self.window + f64::from(feedback.acked)).min(self.threshold.max(self.window));
            self.window = self.window.min(f64::from(LARGEST));
            self.w_est = self.window;
            if self.epoch != Time::NEVER {
                self.epoch = feedback.time;
            }
            return;
        }
        let rtt = f64::from(feedback.rtt) / 1e6;
        let t = feedback.time.since(self.epoch) as f64 / SECOND as f64 + rtt;
        let k = ((self.w_max - self.threshold / mss).max(0.0) / C).cbrt();
        let target = (C * (t - k).powi(3) + self.w_max) * mss;
        // Not more than half again in a round trip (4.4); and not less than Reno.
        let target = target.clamp(self.window, 1.5 * self.window);
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.w_est += alpha * f64::from(feedback.acked) * mss / self.window;
        let share = (f64::from(feedback.acked) / self.window).min(1.0);
        self.window =
            (self.window + (target - self.window) * share).max(self.w_est).min(f64::from(LARGEST));
    }
}
