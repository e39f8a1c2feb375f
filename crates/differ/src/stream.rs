//! The bytes of a connection: byte `at` of direction `key`. So a position says all about a byte.

/// The byte.
#[inline]
pub fn byte(key: u64, at: u64) -> u8 {
    let x = (at >> 3).wrapping_add(key << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> ((at & 7) * 7)) as u8 ^ at as u8
}

/// Bytes from `at` on.
pub fn fill(key: u64, at: u64, to: &mut [u8]) {
    to.iter_mut().zip(at..).for_each(|(b, at)| *b = byte(key, at));
}

/// A digest of bytes in their order, however they are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// One more byte.
    #[inline]
    pub fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }

    /// Its value.
    pub fn value(self) -> u64 {
        self.0
    }

    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::default();
        bytes.iter().for_each(|byte| digest.add(*byte));
        digest.value()
    }

    /// The digest of ranges of a stream.
    pub fn of_stream(key: u64, ranges: &[(u64, u64)]) -> u64 {
        let mut digest = Self::default();
        ranges.iter().flat_map(|&(from, to)| from..to).for_each(|at| digest.add(byte(key, at)));
        digest.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_of_positions_is_that_of_the_bytes_there() {
        let mut bytes = vec![0; 100];
        fill(3, 50, &mut bytes);
        bytes.remove(10);
        assert_eq!(Digest::of(&bytes), Digest::of_stream(3, &[(50, 60), (61, 150)]));
        assert_ne!(Digest::of(&bytes), Digest::of_stream(4, &[(50, 60), (61, 150)]));
    }
}
