//! Next hops by number. A sender has the number of a connection's next hop, and reads where it is
//! without a lock; the thread that hears Linux writes.

use crate::table::{Hardware, NextHop};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Numbers have 16 bits. 0 is nobody's.
const NUMBERS: usize = 1 << 16;

/// Of a word: the hardware address, whether it is known, whether something was sent there since it
/// was last looked, whether it ever was known.
const KNOWN: u64 = 1 << 48;
const USED: u64 = 1 << 49;
const EVER: u64 = 1 << 50;

/// See the module.
pub struct Hops {
    words: Box<[AtomicU64]>,
    numbers: Mutex<HopNumbers>,
}

#[derive(Debug, Default)]
struct HopNumbers {
    of: HashMap<NextHop, u16>,
    /// Numbers up to this one were given.
    last: u16,
    /// Of these, those that are nobody's any more.
    free: Vec<u16>,
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
    at.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) | KNOWN | EVER
}

impl Hops {
    /// None yet.
    pub fn new() -> Self {
        Self { words: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(), numbers: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HopNumbers> {
        self.numbers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The number of a next hop, and whether it is a new one. None: all numbers are taken. (Where
    /// they are, those go that were never found, and to which nothing was sent since
    /// [`used`](Self::used) was asked last: a host that makes up addresses leaves many, and no
    /// connection has one of them.)
    pub fn number(&self, hop: NextHop) -> Option<(u16, bool)> {
        let mut numbers = self.lock();
        if let Some(number) = numbers.of.get(&hop) {
            return Some((*number, false));
        }
        if numbers.free.is_empty() && numbers.last == u16::MAX {
            let HopNumbers { of, free, .. } = &mut *numbers;
            of.retain(|_, number| {
                let keeps = self.words[usize::from(*number)].load(Relaxed) & (EVER | USED) != 0;
                if !keeps {
                    free.push(*number);
                }
                keeps
            });
        }
        let number = match numbers.free.pop() {
            Some(number) => number,
            None => {
                numbers.last = numbers.last.checked_add(1)?;
                numbers.last
            }
        };
        numbers.of.insert(hop, number);
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
        if let Some(number) = self.lock().of.get(&hop) {
            let own = &self.words[usize::from(*number)];
            let kept = own.load(Relaxed) & (USED | EVER);
            own.store(at.map_or(0, word) | kept, Release);
        }
    }

    /// All that have numbers, and their hardware addresses as `at` says.
    pub fn refresh(&self, at: impl Fn(NextHop) -> Option<Hardware>) {
        let all: Vec<NextHop> = self.lock().of.keys().copied().collect();
        all.into_iter().for_each(|hop| self.set(hop, at(hop)));
    }

    /// Those that were used since this was called last.
    pub fn used(&self) -> Vec<NextHop> {
        self.used_of(|_| true)
    }

    /// Likewise those among them of which it is not known where they are, but was.
    pub fn missed(&self) -> Vec<NextHop> {
        self.used_of(|word| word & (KNOWN | EVER) == EVER)
    }

    fn used_of(&self, these: impl Fn(u64) -> bool) -> Vec<NextHop> {
        let numbers = self.lock();
        let used = |number: &u16| {
            let word = &self.words[usize::from(*number)];
            these(word.load(Relaxed)) && word.fetch_and(!USED, Relaxed) & USED != 0
        };
        numbers.of.iter().filter(|(_, number)| used(number)).map(|(hop, _)| *hop).collect()
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
    fn a_hop_that_was_known_and_is_used_is_missed_until_it_was_asked_for() {
        let hops = Hops::new();
        let numbers = [1, 2, 3].map(|last| hops.number(hop(last)).unwrap().0);
        hops.set(hop(1), Some([9; 6]));
        hops.set(hop(2), Some([9; 6]));
        hops.set(hop(1), None);
        assert_eq!(hops.missed(), []);
        for number in numbers {
            hops.find(number);
        }
        assert_eq!(hops.missed(), [hop(1)]);
        assert_eq!(hops.missed(), []);
    }

    #[test]
    fn when_all_numbers_are_taken_those_go_that_were_never_found_and_are_not_used() {
        let hops = Hops::new();
        let all = |i: u32| NextHop { device: 1, neighbour: i.into() };
        let numbers: Vec<u16> = (0..70_000)
            .filter_map(|i| Some(hops.number(all(i))?.0).inspect(|n| _ = hops.find(*n)))
            .collect();
        assert_eq!(numbers.len(), NUMBERS - 1, "all are used");
        hops.set(all(7), Some([7; 6]));
        hops.used();
        hops.find(numbers[9]);
        let (new, is_new) = hops.number(all(80_000)).unwrap();
        assert!(is_new && new != numbers[7] && new != numbers[9]);
        assert_eq!(hops.find(new), None);
        assert_eq!(hops.number(all(7)), Some((numbers[7], false)));
        assert_eq!(hops.find(numbers[7]), Some([7; 6]));
        assert_eq!(hops.number(all(9)), Some((numbers[9], false)));
        assert!((81_000..140_000).all(|i| hops.number(all(i)).is_some()));
    }
}
