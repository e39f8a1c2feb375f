//! Content out of a key, and digests of content.

/// splitmix64's last step: a well-mixed word out of a number.
pub fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Writes bytes `at..` of the endless content that `key` names. No two places of it are alike, so
/// that a byte which is misplaced by any distance shows.
pub fn fill(key: u64, at: usize, to: &mut [u8]) {
    let base = mix(key);
    let mut at = at;
    let mut rest = to;
    while !rest.is_empty() {
        let word = mix(base ^ (at / 8) as u64).to_le_bytes();
        let n = (8 - at % 8).min(rest.len());
        let (head, tail) = rest.split_at_mut(n);
        head.copy_from_slice(&word[at % 8..at % 8 + n]);
        rest = tail;
        at += n;
    }
}

/// A digest of bytes that come in parts; how they are cut does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    state: u64,
    word: u64,
    bytes: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self { state: 0xcbf2_9ce4_8422_2325, word: 0, bytes: 0 }
    }
}

impl Digest {
    fn step(&mut self, word: u64) {
        self.state = (self.state.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !self.bytes.is_multiple_of(8) && !rest.is_empty() {
            self.byte(rest[0]);
            rest = &rest[1..];
        }
        let mut words = rest.chunks_exact(8);
        for w in &mut words {
            self.step(u64::from_le_bytes(w.try_into().unwrap_or_default()));
            self.bytes += 8;
        }
        for &b in words.remainder() {
            self.byte(b);
        }
    }

    fn byte(&mut self, b: u8) {
        self.word = self.word >> 8 | u64::from(b) << 56;
        self.bytes += 1;
        if self.bytes.is_multiple_of(8) {
            self.step(self.word);
        }
    }

    /// The digest of what was added so far.
    pub fn value(mut self) -> u64 {
        self.step(self.bytes);
        if !self.bytes.is_multiple_of(8) {
            self.step(self.word >> (64 - 8 * (self.bytes % 8)));
        }
        mix(self.state)
    }
}

/// The digest of `bytes`.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut d = Digest::default();
    d.add(bytes);
    d.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_however_it_is_cut() {
        let mut whole = [0; 100];
        fill(42, 3, &mut whole);
        for cut in 0..100 {
            let mut parts = [0; 100];
            let (a, b) = parts.split_at_mut(cut);
            fill(42, 3, a);
            fill(42, 3 + cut, b);
            assert_eq!(whole, parts);
            let mut d = Digest::default();
            d.add(&whole[..cut]);
            d.add(&whole[cut..]);
            assert_eq!(d.value(), digest(&whole));
        }
    }

    #[test]
    fn one_changed_or_missing_byte_changes_the_digest() {
        let mut bytes = [0; 75];
        fill(1, 0, &mut bytes);
        let right = digest(&bytes);
        for i in 0..75 {
            bytes[i] ^= 1;
            assert_ne!(digest(&bytes), right);
            bytes[i] ^= 1;
        }
        assert_ne!(digest(&bytes[..74]), right);
    }
}
