//! How many bytes of a program's ring may be on the way to its peer. Bytes that keep a near one
//! busy are soon fetched from caches, and many connections share these. A far one acknowledges what
//! was on the way a round trip later: so it may have more, as long as it takes long.

use std::time::{Duration, Instant};

/// A peer that acknowledges so late all that may be on the way is far away. (The bytes that may be
/// on the way at first, a quarter of a ring, are 25 MB a second then.)
const FAR: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub struct Limit {
    /// As powers of two: so many bytes now, and so many at most.
    now: u8,
    most: u8,
    /// All was on the way up to this position, since then.
    full: Option<(u64, Instant)>,
}

impl Limit {
    /// So many bytes at first, and at most, as powers of two.
    pub fn new(first: u8, most: u8) -> Self {
        Self { now: first.min(most), most, full: None }
    }

    /// So many at most, as a power of two.
    pub fn most(&self) -> u8 {
        self.most
    }

    /// So many may follow where all from `went` to `came` is on the way.
    pub fn left(&self, came: u64, went: u64) -> u32 {
        (1 << self.now) - (came - went) as u32
    }

    /// The same, for a side that wants to send more: where nothing may follow, how long that takes
    /// is timed.
    pub fn left_for_more(&mut self, came: u64, went: u64) -> u32 {
        let left = self.left(came, went);
        if left == 0 {
            self.full.get_or_insert_with(|| (came, Instant::now()));
        }
        left
    }

    /// All before this position was acknowledged.
    pub fn acknowledged(&mut self, went: u64) {
        if let Some((end, since)) = self.full
            && went >= end
        {
            self.full = None;
            if since.elapsed() >= FAR {
                self.now = (self.now + 1).min(self.most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_acknowledges_late_may_have_more_up_to_the_most() {
        let mut limit = Limit::new(4, 6);
        let (mut came, mut went) = (100, 100);
        for (late, size) in [(false, 16), (true, 16), (false, 32), (true, 32), (true, 64)] {
            assert_eq!(limit.left_for_more(came, went), size);
            limit.acknowledged(went);
            came += u64::from(size);
            assert_eq!(limit.left_for_more(came, went), 0);
            // (Bytes behind those that were on the way then are not waited for.)
            limit.acknowledged(came - 1);
            assert_eq!(limit.left(came, came - 1), size - 1);
            assert_eq!(limit.left_for_more(came, went), 0);
            // (However long the test itself takes.)
            let began = |since| if late { since - FAR } else { since + 1000 * FAR };
            limit.full = limit.full.map(|(end, since)| (end, began(since)));
            went = came;
            limit.acknowledged(went);
        }
        assert_eq!(limit.left(came, went), 64);
        assert_eq!(Limit::new(9, 4).left(7, 0), 9);
    }
}
