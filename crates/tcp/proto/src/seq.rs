//! Sequence numbers: 32 bits that wrap, compared by their distance.

use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// How far this lies behind `other`; negative where it lies before it.
    #[inline]
    pub fn since(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The bytes from `other`, which must not lie behind this, to this.
    #[inline]
    pub fn distance(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }

    /// Lies behind `other`.
    #[inline]
    pub fn after(self, other: Seq) -> bool {
        self.since(other) > 0
    }

    /// Lies before `other`.
    #[inline]
    pub fn before(self, other: Seq) -> bool {
        self.since(other) < 0
    }

    /// The later of the two.
    #[inline]
    pub fn max(self, other: Seq) -> Seq {
        if self.after(other) { self } else { other }
    }

    /// The earlier of the two.
    #[inline]
    pub fn min(self, other: Seq) -> Seq {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn sub(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let before = Seq(u32::MAX - 2);
        let behind = before + 5;
        assert_eq!(behind, Seq(2));
        assert!(behind.after(before) && before.before(behind));
        assert_eq!(behind.distance(before), 5);
        assert_eq!(before.since(behind), -5);
        assert_eq!(before.max(behind), behind);
        assert_eq!(before.min(behind), before);
    }
}
