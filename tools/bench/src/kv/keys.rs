//! Keys and values, and which key is asked for next.

use fastrand::Rng;

use super::plan::Load;

/// The skew of the dissertation's load: the key of rank r is asked for in proportion to r^-0.9.
const SKEW: f64 = 0.9;
/// So many are drawn before the load, for drawing one takes longer than some of what is measured.
const DRAWN: usize = 1 << 20;

/// Mixes the bits of a number (splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The name of key `i`.
pub fn name(load: Load, i: usize) -> Vec<u8> {
    let (length, _) = load.sizes();
    let text = format!("{:016x}{:016x}", mix(i as u64), i);
    text.as_bytes()[text.len() - length..].to_vec()
}

/// The value that set number `set` gives key `i`: no two are alike, and whose it is can be read
/// from it.
pub fn value(load: Load, i: usize, set: u32, into: &mut Vec<u8>) {
    let (_, length) = load.sizes();
    into.clear();
    into.extend_from_slice(&set.to_le_bytes());
    let mut word = mix(u64::from(set) << 32 ^ i as u64);
    while into.len() < length {
        into.extend_from_slice(&word.to_le_bytes());
        word = mix(word);
    }
    into.truncate(length);
}

/// The set that gave this value, as it says.
pub fn set_of(value: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(value.first_chunk().copied()?))
}

/// Keys as they are asked for.
pub struct Order {
    drawn: Vec<u32>,
    next: usize,
}

impl Order {
    /// An order of so many keys.
    pub fn new(keys: usize, seed: u64) -> Self {
        let mut total = 0.0;
        let sums: Vec<f64> = (0..keys)
            .map(|rank| {
                total += (rank as f64 + 1.0).powf(-SKEW);
                total
            })
            .collect();
        let mut random = Rng::with_seed(seed);
        let draw = |_| {
            let at = random.f64() * total;
            sums.partition_point(|sum| *sum <= at).min(keys - 1) as u32
        };
        Self { drawn: (0..DRAWN).map(draw).collect(), next: 0 }
    }

    /// The next one.
    pub fn key(&mut self) -> usize {
        let key = self.drawn[self.next % DRAWN];
        self.next += 1;
        key as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_asked_for_by_zipfs_law() {
        let mut order = Order::new(100_000, 1);
        let mut counts = vec![0u32; 100_000];
        (0..DRAWN).for_each(|_| counts[order.key()] += 1);
        let sum: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-SKEW)).sum();
        for rank in [1u32, 2, 10, 100] {
            let expected = f64::from(rank).powf(-SKEW) / sum * DRAWN as f64;
            let got = f64::from(counts[rank as usize - 1]);
            assert!((got - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {got}, {expected}");
        }
    }

    #[test]
    fn names_are_unique_and_values_tell_whose_they_are() {
        let mut names: Vec<_> = (0..100_000).map(|i| name(Load::Zipf, i)).collect();
        assert!(names.iter().all(|name| name.len() == 32));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 100_000);
        let (mut one, mut other) = (vec![], vec![]);
        value(Load::Zipf, 7, 9, &mut one);
        value(Load::Zipf, 8, 9, &mut other);
        assert_eq!((one.len(), set_of(&one), one == other), (64, Some(9), false));
        value(Load::Hot, 0, 77, &mut one);
        assert_eq!((one.len(), set_of(&one), name(Load::Hot, 0).len()), (4, Some(77), 4));
    }
}
