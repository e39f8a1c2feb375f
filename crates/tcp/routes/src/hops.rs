//! Next hops by number. Whoever sends has the number of a connection's next hop, and reads where it is without a lock; the thread that hears Linux writes.

use crate::table::{Hardware, NextHop};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Numbers have 16 bits. 0 is nobody's.
const NUMBERS: usize = 1 << 16;

/// Of a word: the hardware address, whether it is known, whether something was sent there since it was last looked.
const KNOWN: u64 = 1 << 48;
const USED: u64 = 1 << 49;

/// See the module.
pub struct Hops {
    words: Box<[AtomicU64]>,
    numbers: Mutex<HashMap<NextHop, u16>>,
}

impl Default for Hops {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Hops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hops({:?})", self.lock())
    }
}

fn word(at: Hardware) -> u64 {
    at.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) | KNOWN
}

impl Hops {
    /// None yet.
    pub fn new() -> Self {
        Self { words: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(), numbers: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<NextHop, u16>> {
        self.numbers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The number of a next hop, and whether it is a new one. None: all numbers are taken.
    pub fn number(&self, hop: NextHop) -> Option<(u16, bool)> {
        let mut numbers = self.lock();
        if let Some(number) = numbers.get(&hop) {
            return Some((*number, false));
        }
        let number = u16::try_from(numbers.len() + 1).ok()?;
        numbers.insert(hop, number);
        Some((number, true))
    }

    /// Where a next hop is, if that is known. It is used from now on.
    #[inline]
    pub fn find(&self, number: u16) -> Option<Hardware> {
        let own = &self.words[usize::from(number)];
        let word = own.load(Acquire);
        if word & USED == 0 {
            own.fetch_or(USED, Relaxed);
        }
        let [_, _, at @ ..] = word.to_be_bytes();
        (word & KNOWN != 0).then_some(at)
    }

    /// A next hop is there, or nobody knows where.
    pub fn set(&self, hop: NextHop, at: Option<Hardware>) {
        if let Some(number) = self.lock().get(&hop) {
            let own = &self.words[usize::from(*number)];
            let used = own.load(Relaxed) & USED;
            own.store(at.map_or(0, word) | used, Release);
        }
    }

    /// All that have numbers, and their hardware addresses as `at` says.
    pub fn refresh(&self, at: impl Fn(NextHop) -> Option<Hardware>) {
        let all: Vec<NextHop> = self.lock().keys().copied().collect();
        all.into_iter().for_each(|hop| self.set(hop, at(hop)));
    }

    /// Those that were used since this was called last.
    pub fn used(&self) -> Vec<NextHop> {
        let numbers = self.lock();
        let used =
            |number: &u16| self.words[usize::from(*number)].fetch_and(!USED, Relaxed) & USED != 0;
        numbers.iter().filter(|(_, number)| used(number)).map(|(hop, _)| *hop).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(last: u8) -> NextHop {
        NextHop { device: 1, neighbour: [10, 0, 0, last].into() }
    }

    #[test]
    fn a_number_stays_a_hops_and_finds_where_it_is_now() {
        let hops = Hops::new();
        let (one, new) = hops.number(hop(1)).unwrap();
        assert!(new && one != 0);
        let (two, _) = hops.number(hop(2)).unwrap();
        assert_eq!(hops.number(hop(1)), Some((one, false)));
        assert_ne!(one, two);
        assert_eq!(hops.find(one), None);
        hops.set(hop(1), Some([1, 2, 3, 4, 5, 6]));
        assert_eq!((hops.find(one), hops.find(two)), (Some([1, 2, 3, 4, 5, 6]), None));
        hops.set(hop(1), None);
        assert_eq!(hops.find(one), None);
        assert_eq!(hops.find(0), None);
    }

    #[test]
    fn only_what_was_used_since_is_told() {
        let hops = Hops::new();
        let (one, _) = hops.number(hop(1)).unwrap();
        hops.number(hop(2)).unwrap();
        assert_eq!(hops.used(), []);
        hops.find(one);
        hops.set(hop(1), Some([9; 6]));
        assert_eq!(hops.used(), [hop(1)]);
        assert_eq!(hops.used(), []);
        assert_eq!(hops.find(one), Some([9; 6]));
    }

    #[test]
    fn when_all_numbers_are_taken_there_is_none() {
        let hops = Hops::new();
        let all = |i: u32| NextHop { device: 1, neighbour: i.into() };
        let given = (0..70_000).filter(|i| hops.number(all(*i)).is_some()).count();
        assert_eq!(given, NUMBERS - 1);
    }
}
