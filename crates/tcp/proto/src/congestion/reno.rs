//! Reno by window (RFC 5681), a control interval at a time.

use super::{Feedback, INITIAL_SEGMENTS};

/// No window is larger than what TCP can say.
pub(super) const LARGEST: u32 = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) struct Reno {
    pub window: u32,
    threshold: u32,
}

impl Reno {
    pub fn new(mss: u32) -> Reno {
        Reno { window: INITIAL_SEGMENTS * mss, threshold: u32::MAX }
    }

    pub fn interval(&mut self, feedback: &Feedback) {
        let least = 2 * feedback.mss;
        if feedback.timeout {
            self.threshold = (self.window / 2).max(least);
            self.window = feedback.mss;
        } else if feedback.retransmits > 0 || feedback.marked > 0 {
            self.threshold = (self.window / 2).max(least);
            self.window = self.threshold;
        } else if feedback.limited {
            self.window = grow(self.window, self.threshold, feedback);
        }
    }
}

/// By what was acknowledged below the threshold, by a segment for each window's worth above it.
fn grow(window: u32, threshold: u32, feedback: &Feedback) -> u32 {
    let below = feedback.acked.min(threshold.saturating_sub(window));
    let above =
        u64::from(feedback.acked - below) * u64::from(feedback.mss) / u64::from(window.max(1));
    window.saturating_add(below).saturating_add(above as u32).min(LARGEST)
}
