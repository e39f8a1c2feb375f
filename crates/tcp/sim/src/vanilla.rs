//! DCTCP as RFC 8257 has it and Linux does it: a window, which every acknowledgement changes. TAS
//! is compared with it.

/// How much the newest window counts in the estimate (RFC 8257, 4.2).
const GAIN: f64 = 1.0 / 16.0;
/// RFC 6928.
const INITIAL_SEGMENTS: f64 = 10.0;
/// Linux's `tcp_dctcp` goes no lower.
const LEAST_SEGMENTS: f64 = 2.0;

/// The sender's side of one connection.
#[derive(Clone, Debug)]
pub struct Vanilla {
    mss: f64,
    window: f64,
    threshold: f64,
    /// The estimate of the share of bytes that meet congestion; at first the worst, as in Linux.
    alpha: f64,
    /// Bytes acknowledged since the beginning.
    acked: u64,
    /// Bytes acknowledged in this window, and those of them that were marked.
    counted: (u64, u64),
    /// The window of observation ends when this many bytes are acknowledged.
    end: u64,
    /// No further reduction before so many bytes are acknowledged.
    reduced: u64,
    losses: u32,
    timeouts: u32,
}

/// The content of an acknowledgement, and what the connection has seen.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// Bytes that it acknowledged.
    pub bytes: u32,
    /// It echoed a mark.
    pub marked: bool,
    /// Bytes that are on the way behind it.
    pub in_flight: u32,
    /// Losses since the beginning.
    pub losses: u32,
    /// Timeouts since the beginning.
    pub timeouts: u32,
}

impl Vanilla {
    /// At the beginning, with segments of `mss` bytes.
    pub fn new(mss: u32) -> Vanilla {
        let mss = f64::from(mss);
        Vanilla {
            mss,
            window: INITIAL_SEGMENTS * mss,
            threshold: f64::INFINITY,
            alpha: 1.0,
            acked: 0,
            counted: (0, 0),
            end: 0,
            reduced: 0,
            losses: 0,
            timeouts: 0,
        }
    }

    /// Bytes that may be on the way.
    pub fn window(&self) -> u32 {
        self.window as u32
    }

    /// The estimate of congestion.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    fn cut(&mut self, to: f64, in_flight: u32) {
        self.threshold = to.max(LEAST_SEGMENTS * self.mss);
        self.window = self.threshold;
        self.reduced = self.acked + u64::from(in_flight);
    }

    /// An acknowledgement came.
    pub fn acknowledged(&mut self, ack: &Acknowledged) {
        let bytes = u64::from(ack.bytes);
        self.acked += bytes;
        self.counted.0 += bytes;
        self.counted.1 += if ack.marked { bytes } else { 0 };
        if self.acked > self.end {
            // A window's worth went by.
            if self.counted.0 > 0 {
                let share = self.counted.1 as f64 / self.counted.0 as f64;
                self.alpha += GAIN * (share - self.alpha);
            }
            self.counted = (0, 0);
            self.end = self.acked + u64::from(ack.in_flight);
        }
        if ack.timeouts != self.timeouts {
            // Once more from one segment (RFC 5681, 3.1); the core has done so.
            (self.timeouts, self.losses) = (ack.timeouts, ack.losses);
            self.cut(self.window / 2.0, ack.in_flight);
            self.window = self.mss;
        } else if ack.losses != self.losses {
            self.losses = ack.losses;
            self.cut(self.window / 2.0, ack.in_flight);
        } else if self.acked > self.reduced {
            if ack.marked {
                self.cut(self.window * (1.0 - self.alpha / 2.0), ack.in_flight);
            } else if self.window < self.threshold {
                self.window += f64::from(ack.bytes);
            } else {
                self.window += self.mss * f64::from(ack.bytes) / self.window;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK: Acknowledged =
        Acknowledged { bytes: 1000, marked: false, in_flight: 9000, losses: 0, timeouts: 0 };

    #[test]
    fn without_marks_the_window_doubles_in_a_round_trip() {
        let mut flow = Vanilla::new(1000);
        (0..10).for_each(|_| flow.acknowledged(&ACK));
        assert_eq!(flow.window(), 20_000);
    }

    #[test]
    fn the_first_mark_halves_it_once_in_a_round_trip_and_growth_is_a_segment_then() {
        let mut flow = Vanilla::new(1000);
        flow.acknowledged(&Acknowledged { marked: true, ..ACK });
        // alpha was 1 and the first window of observation was all marked.
        assert_eq!((flow.window(), flow.alpha()), (5000, 1.0));
        (0..9).for_each(|_| flow.acknowledged(&Acknowledged { marked: true, ..ACK }));
        assert_eq!(flow.window(), 5000);
        (0..5).for_each(|_| flow.acknowledged(&Acknowledged { in_flight: 4000, ..ACK }));
        assert!((5800..=6000).contains(&flow.window()), "{}", flow.window());
    }

    #[test]
    fn few_marks_cost_little() {
        let mut flow = Vanilla::new(1000);
        flow.threshold = 0.0;
        flow.window = 100_000.0;
        // A mark in a hundred: alpha goes to 1%, and a reduction to half of that.
        for n in 0..40_000 {
            let marked = n % 100 == 99;
            flow.acknowledged(&Acknowledged { marked, in_flight: 100_000, ..ACK });
        }
        assert!(flow.alpha() < 0.02, "{}", flow.alpha());
        let before = flow.window();
        while flow.acked <= flow.reduced {
            flow.acknowledged(&Acknowledged { in_flight: 100_000, ..ACK });
        }
        flow.acknowledged(&Acknowledged { marked: true, in_flight: 100_000, ..ACK });
        assert!(f64::from(flow.window()) > f64::from(before) * 0.98, "{before} {}", flow.window());
    }

    #[test]
    fn a_loss_halves_it_and_a_timeout_leaves_a_segment() {
        let mut flow = Vanilla::new(1000);
        flow.acknowledged(&Acknowledged { losses: 1, ..ACK });
        assert_eq!(flow.window(), 5000);
        flow.acknowledged(&Acknowledged { losses: 1, timeouts: 1, ..ACK });
        assert_eq!(flow.window(), 1000);
    }
}
