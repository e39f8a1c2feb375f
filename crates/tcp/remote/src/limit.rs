//! How many bytes of a program's ring may be on the way to its peer. Bytes that keep a near one
//! busy are soon fetched from caches, and many connections share these. A far one acknowledges what
//! was on the way a round trip later: so it may have more, as long as it takes long.

use std::time::{Duration, Instant};

/// A peer that acknowledges so late all that may be on the way is far away. (The bytes that may be
/// on the way at first, a quarter of a ring, are 25 MB a second then.)
const FAR: Duration = Duration::from_millis(10);

/// How late a peer acknowledges all that may be on the way.
#[derive(Debug, Default)]
pub struct Lateness {
    /// All was on the way up to this position, since then.
    full: Option<(u64, Instant)>,
}

impl Lateness {
    /// No more may follow: all up to this position is on the way.
    pub fn is_full(&mut self, came: u64) {
        self.full.get_or_insert_with(|| (came, Instant::now()));
    }

    /// All before this position was acknowledged. True: with it all that was on the way when no
    /// more could follow, and so long after that.
    pub fn acknowledged(&mut self, went: u64, late: Duration) -> bool {
        self.full.take_if(|(end, _)| went >= *end).is_some_and(|(_, since)| since.elapsed() >= late)
    }

    /// What is timed began then.
    #[cfg(test)]
    pub fn began(&mut self, then: Instant) {
        self.full = self.full.map(|(end, _)| (end, then));
    }
}

/// See the module.
#[derive(Debug)]
pub struct Limit {
    /// As powers of two: so many bytes now, and so many at most.
    now: u8,
    most: u8,
    lateness: Lateness,
}

impl Limit {
    /// So many bytes at first, and at most, as powers of two.
    pub fn new(first: u8, most: u8) -> Self {
        Self { now: first.min(most), most, lateness: Lateness::default() }
    }

    /// So many at most, as a power of two.
    pub fn most(&self) -> u8 {
        self.most
    }

    /// So many may follow where so many are on the way.
    pub fn left(&self, on_the_way: u64) -> u32 {
        (1 << self.now) - on_the_way as u32
    }

    /// The same, for a side that wants to send more, behind this position: where nothing may
    /// follow, how long that takes is timed.
    pub fn left_for_more(&mut self, came: u64, on_the_way: u64) -> u32 {
        let left = self.left(on_the_way);
        if left == 0 {
            self.lateness.is_full(came);
        }
        left
    }

    /// All before this position was acknowledged.
    pub fn acknowledged(&mut self, went: u64) {
        if self.lateness.acknowledged(went, FAR) {
            self.now = (self.now + 1).min(self.most);
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
            assert_eq!(limit.left_for_more(came, came - went), size);
            limit.acknowledged(went);
            came += u64::from(size);
            assert_eq!(limit.left_for_more(came, came - went), 0);
            // (Bytes behind those that were on the way then are not waited for.)
            limit.acknowledged(came - 1);
            assert_eq!(limit.left(1), size - 1);
            assert_eq!(limit.left_for_more(came, came - went), 0);
            // (However long the test itself takes.)
            let now = Instant::now();
            limit.lateness.began(if late { now - FAR } else { now + 1000 * FAR });
            went = came;
            limit.acknowledged(went);
        }
        assert_eq!(limit.left(came - went), 64);
        assert_eq!(Limit::new(9, 4).left(7), 9);
    }
}
