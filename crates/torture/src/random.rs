//! Numbers out of a seed. A seed must mean the same script next year: so the generator is one whose
//! output is specified (PCG), and everything made of its output is made here.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// A stream of random numbers.
#[derive(Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        // The state of this generator must be odd and should not be small.
        let state = (u128::from(seed) << 64 | u128::from(seed)) ^ 0xcafe_f00d_d15e_a5e5;
        let mut r = Self(Pcg64Mcg::new(state | 1));
        r.bits();
        r
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of `all`.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// One of `all`, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, all: &[(usize, T)]) -> T {
        let mut at = self.below(all.iter().map(|(w, _)| w).sum());
        for &(weight, what) in all {
            if at < weight {
                return what;
            }
            at -= weight;
        }
        all[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_numbers_it_has_always_given() {
        let mut r = Random::new(1);
        let first: Vec<usize> = (0..6).map(|_| r.below(1000)).collect();
        assert_eq!(first, [625, 769, 119, 84, 81, 933]);
    }

    #[test]
    fn weights_are_kept_and_bounds_too() {
        let mut r = Random::new(7);
        let mut seen = [0; 3];
        for _ in 0..4000 {
            seen[r.weighted(&[(1, 0), (0, 1), (3, 2)])] += 1;
            assert!((3..=5).contains(&r.between(3, 5)));
        }
        assert!(seen[1] == 0 && seen[0] > 800 && seen[2] > 2600, "{seen:?}");
    }
}
