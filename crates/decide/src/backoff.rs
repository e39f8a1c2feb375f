//! How long what did not pay is left alone: the one kind of back-off.

/// Each rest is so many powers of two longer than the one before, so what finding out costs becomes
/// an ever smaller part of all,
const GROWS: u8 = 2;
/// until it is so many longer than the first: a program may change.
const MOST: u8 = 8;

/// See the module. The unit that is counted (copies, nanoseconds) is its owner's business.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff(u8);

impl Backoff {
    /// Nothing failed yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// It failed again. Returns how long it is left alone, where the first rest is `first`.
    pub fn rest(&mut self, first: u64) -> u64 {
        let now = first << self.0;
        self.0 = (self.0 + GROWS).min(MOST);
        now
    }

    /// It has paid: the next rest is a first one.
    pub fn forgive(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rest_is_four_times_the_one_before_up_to_256_times_the_first_until_it_pays() {
        let mut b = Backoff::new();
        let rests: Vec<u64> = (0..6).map(|_| b.rest(10)).collect();
        assert_eq!(rests, [10, 40, 160, 640, 2560, 2560]);
        b.forgive();
        assert_eq!(b.rest(10), 10);
    }
}
