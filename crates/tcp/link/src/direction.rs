//! One direction of a link: frames follow each other at its rate, out of a queue that holds so
//! much, and arrive after a delay.

use crate::frame;
use fastrand::Rng;
use std::collections::VecDeque;

/// The bytes that Ethernet puts around each frame: preamble, checksum, gap.
const AROUND: u64 = 24;

/// How a direction is.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Bytes a second.
    pub rate: u64,
    /// From its end to the other, ns.
    pub delay: u64,
    /// Bytes that the queue holds.
    pub queue: u64,
    /// Frames that can be marked are, where so many bytes wait before them.
    pub mark: u64,
    /// Of frames, what is lost.
    pub loss: f64,
}

/// The fates of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that came.
    pub frames: u64,
    /// Lost.
    pub lost: u64,
    /// Dropped, because the queue was full.
    pub overflowed: u64,
    /// Marked.
    pub marked: u64,
}

/// See above. Times are nanoseconds of any clock.
#[derive(Debug)]
pub struct Direction {
    terms: Terms,
    random: Rng,
    /// The last frame has left then.
    busy: u64,
    on_way: VecDeque<(u64, Vec<u8>)>,
    /// The fates of frames.
    pub counts: Counts,
}

impl Direction {
    /// Without frames. Which ones will be lost, the seed says.
    pub fn new(terms: Terms, seed: u64) -> Self {
        let random = Rng::with_seed(seed);
        Self { terms, random, busy: 0, on_way: VecDeque::new(), counts: Counts::default() }
    }

    /// A host sends a frame.
    pub fn offer(&mut self, now: u64, mut bytes: Vec<u8>) {
        self.counts.frames += 1;
        if self.random.f64() < self.terms.loss {
            self.counts.lost += 1;
            return;
        }
        let waits = self.busy.saturating_sub(now);
        let before = (u128::from(waits) * u128::from(self.terms.rate) / 1_000_000_000) as u64;
        let length = bytes.len() as u64 + AROUND;
        if before + length > self.terms.queue {
            self.counts.overflowed += 1;
            return;
        }
        if before > self.terms.mark && frame::mark(&mut bytes) {
            self.counts.marked += 1;
        }
        self.busy = self.busy.max(now) + length * 1_000_000_000 / self.terms.rate;
        self.on_way.push_back((self.busy + self.terms.delay, bytes));
    }

    /// The next frame that has arrived.
    pub fn arrived(&mut self, now: u64) -> Option<Vec<u8>> {
        self.next().filter(|due| *due <= now)?;
        self.on_way.pop_front().map(|(_, bytes)| bytes)
    }

    /// When the next one arrives.
    pub fn next(&self) -> Option<u64> {
        self.on_way.front().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { rate: 1_000_000, delay: 500, queue: 10_000, mark: 10_000, loss: 0.0 };

    #[test]
    fn frames_follow_each_other_at_the_rate_and_what_finds_no_room_is_dropped() {
        let mut way = Direction::new(TERMS, 1);
        for i in 0..20 {
            way.offer(0, vec![i; 976]);
        }
        // (1,000 bytes with what is around them.)
        assert_eq!(way.counts, Counts { frames: 20, overflowed: 10, ..Counts::default() });
        for i in 1..=10u64 {
            assert_eq!(way.next(), Some(i * 1_000_000 + 500));
            assert_eq!(way.arrived(i * 1_000_000 + 499), None);
            assert_eq!(way.arrived(i * 1_000_000 + 500).unwrap()[0], i as u8 - 1);
        }
    }

    #[test]
    fn the_share_that_is_asked_for_is_lost() {
        let mut way = Direction::new(Terms { loss: 0.05, queue: u64::MAX, ..TERMS }, 7);
        (0..100_000).for_each(|_| way.offer(0, vec![0; 60]));
        assert!((4_700..5_300).contains(&way.counts.lost), "{:?}", way.counts);
    }
}
