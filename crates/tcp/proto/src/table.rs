//! From the four numbers of a connection to its slot: open addressing, sized when it is made, with a keyed hash so that nobody outside can
//! choose connections that collide.

use crate::segment::Tuple;
use siphasher::sip::SipHasher13;

/// The hash of `tuple` under `key`.
#[inline]
pub fn hash(key: &SipHasher13, tuple: &Tuple) -> u64 {
    let mut bytes = [0; 12];
    bytes[0..4].copy_from_slice(&tuple.peer_ip.octets());
    bytes[4..8].copy_from_slice(&tuple.local_ip.octets());
    bytes[8..10].copy_from_slice(&tuple.peer_port.to_ne_bytes());
    bytes[10..12].copy_from_slice(&tuple.local_port.to_ne_bytes());
    key.hash(&bytes)
}

#[derive(Clone, Copy)]
struct Bucket {
    /// A part of the hash: a slot's own memory is touched only where it agrees.
    tag: u32,
    /// The slot and one; 0 is an empty bucket.
    slot: u32,
}

/// The table. It has at least twice as many buckets as connections, so that searches end.
pub struct Table {
    key: SipHasher13,
    buckets: Box<[Bucket]>,
}

impl Table {
    /// For `capacity` connections.
    pub fn new(capacity: usize, key: SipHasher13) -> Table {
        let buckets = (capacity.max(8) * 2).next_power_of_two();
        Table { key, buckets: vec![Bucket { tag: 0, slot: 0 }; buckets].into() }
    }

    /// Where a search for `tuple` begins, and its tag. One can ask for it early, and fetch the bucket.
    #[inline]
    fn home(&self, tuple: &Tuple) -> (usize, u32) {
        let hash = hash(&self.key, tuple);
        (hash as usize & (self.buckets.len() - 1), (hash >> 32) as u32)
    }

    /// The slot of `tuple`: the one with its tag of which `is` says that it is it.
    #[inline]
    pub fn find(&self, tuple: &Tuple, is: impl Fn(u32) -> bool) -> Option<u32> {
        let (mut at, tag) = self.home(tuple);
        loop {
            let bucket = self.buckets[at];
            if bucket.slot == 0 {
                return None;
            }
            if bucket.tag == tag && is(bucket.slot - 1) {
                return Some(bucket.slot - 1);
            }
            at = (at + 1) & (self.buckets.len() - 1);
        }
    }

    /// Adds `tuple`, which is not there.
    pub fn insert(&mut self, tuple: &Tuple, slot: u32) {
        let (mut at, tag) = self.home(tuple);
        while self.buckets[at].slot != 0 {
            at = (at + 1) & (self.buckets.len() - 1);
        }
        self.buckets[at] = Bucket { tag, slot: slot + 1 };
    }

    /// Takes `tuple` out. `tuple_of` says the tuple of a slot.
    pub fn remove(&mut self, tuple: &Tuple, slot: u32, tuple_of: impl Fn(u32) -> Tuple) {
        let mask = self.buckets.len() - 1;
        let (mut at, _) = self.home(tuple);
        while self.buckets[at].slot != slot + 1 {
            if self.buckets[at].slot == 0 {
                return;
            }
            at = (at + 1) & mask;
        }
        // What follows moves up, so that no search meets a hole before it meets what it seeks.
        let mut hole = at;
        loop {
            at = (at + 1) & mask;
            let bucket = self.buckets[at];
            if bucket.slot == 0 {
                break;
            }
            let (home, _) = self.home(&tuple_of(bucket.slot - 1));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.buckets[hole] = bucket;
                hole = at;
            }
        }
        self.buckets[hole].slot = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::collections::HashMap;

    #[test]
    fn random_insertions_and_removals_agree_with_a_map() {
        let mut table = Table::new(64, SipHasher13::new_with_keys(1, 2));
        let tuple = |slot: u32| Tuple {
            local_ip: Ipv4Addr::new(10, 0, 0, 1),
            local_port: 80,
            peer_ip: Ipv4Addr::new(10, 0, 0, 2),
            peer_port: slot as u16,
        };
        let mut map = HashMap::new();
        let mut state = 3u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let slot = (state >> 8) % 64;
            if map.remove(&slot).is_some() {
                table.remove(&tuple(slot), slot, tuple);
            } else {
                map.insert(slot, ());
                table.insert(&tuple(slot), slot);
            }
            for slot in 0..64 {
                assert_eq!(
                    table.find(&tuple(slot), |s| s == slot).is_some(),
                    map.contains_key(&slot)
                );
            }
        }
    }
}
