//! Maps by a descriptor, or by the program's data for one, which is a number of its own or an
//! address. A program that attacked itself by these would gain nothing: so they are spread by one
//! multiplication, and not by a keyed hash, which was a tenth of what a short connection cost here.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// See the module.
pub(super) type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Both halves of a product with an odd constant: neither end of it is that of the number alone.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_i32(&mut self, number: i32) {
        self.write_u64(u64::from(number.cast_unsigned()));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    /// The bits that a map sees of so many numbers: seven at the top, and the place in a table of
    /// this size at the bottom.
    fn spread<K: Hash>(numbers: impl Iterator<Item = K>) -> (usize, usize) {
        let build = BuildHasherDefault::<Spread>::default();
        let hashes: Vec<u64> = numbers.map(|number| build.hash_one(number)).collect();
        let distinct = |of: &dyn Fn(u64) -> u64| {
            hashes.iter().map(|hash| of(*hash)).collect::<HashSet<_>>().len()
        };
        (distinct(&|hash| hash >> 57), distinct(&|hash| hash % 4096))
    }

    #[test]
    fn descriptors_addresses_and_names_with_high_bits_are_spread_over_a_map() {
        for (top, place) in [
            spread(0..4096i32),
            spread((0..4096u64).map(|i| 0x7f12_3456_0000 + i * 64)),
            spread((0..4096u64).map(|i| i << 32 | 7)),
            spread((0..4096u64).map(|i| i << 48)),
        ] {
            // (Of random numbers 0.63 of all places are taken.)
            assert!(top > 100 && place > 2000, "{top} {place}");
        }
    }
}
