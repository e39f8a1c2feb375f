//! From the four numbers of a connection to its slot: open addressing, sized when it is made, with
//! a keyed hash so that nobody outside can choose connections that collide.

use crate::config::Config;
use crate::segment::Tuple;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
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

/// An entry: in its upper half a part of the hash, from which its place follows too; in its lower
/// half the slot and one. 0: none.
type Entry = u64;

fn tag(entry: Entry) -> u32 {
    (entry >> 32) as u32
}

/// The table. It has at least twice as many places as connections, so that searches end.
///
/// One writes, others may search meanwhile. They may miss an entry that is being moved, or find one
/// that is no more: a hit has to be verified where the connection is, and a miss asked of the
/// writer. Neither happens to the writer itself.
pub struct Table {
    key: SipHasher13,
    entries: Box<[AtomicU64]>,
}

/// A search under way.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    at: usize,
    tag: u32,
    left: usize,
}

impl Table {
    /// For `capacity` connections.
    pub fn new(capacity: usize, key: SipHasher13) -> Table {
        let entries = (capacity.max(8) * 2).next_power_of_two();
        Table { key, entries: (0..entries).map(|_| AtomicU64::new(0)).collect() }
    }

    /// For the connections of an endpoint.
    pub fn for_config(config: &Config) -> Table {
        Table::new(config.flows, config.key(b"table"))
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// Begins to look for `tuple`.
    #[inline]
    pub fn search(&self, tuple: &Tuple) -> Search {
        let tag = (hash(&self.key, tuple) >> 32) as u32;
        Search { at: tag as usize & self.mask(), tag, left: self.entries.len() }
    }

    /// The next slot that `search` may be about.
    #[inline]
    pub fn next(&self, search: &mut Search) -> Option<u32> {
        while search.left > 0 {
            let entry = self.entries[search.at].load(Acquire);
            if entry == 0 {
                return None;
            }
            search.at = (search.at + 1) & self.mask();
            search.left -= 1;
            if tag(entry) == search.tag {
                return Some(entry as u32 - 1);
            }
        }
        None
    }

    /// Adds `tuple`, which is not there.
    pub fn insert(&self, tuple: &Tuple, slot: u32) {
        let Search { mut at, tag, .. } = self.search(tuple);
        while self.entries[at].load(Relaxed) != 0 {
            at = (at + 1) & self.mask();
        }
        self.entries[at].store(u64::from(tag) << 32 | u64::from(slot + 1), Release);
    }

    /// Takes `tuple` out.
    pub fn remove(&self, tuple: &Tuple, slot: u32) {
        let mask = self.mask();
        let Search { mut at, tag: own, .. } = self.search(tuple);
        let sought = u64::from(own) << 32 | u64::from(slot + 1);
        loop {
            match self.entries[at].load(Relaxed) {
                0 => return,
                entry if entry == sought => break,
                _ => at = (at + 1) & mask,
            }
        }
        // The entries behind it move up, so that no search meets a hole before it meets what it
        // seeks.
        let mut hole = at;
        loop {
            at = (at + 1) & mask;
            let entry = self.entries[at].load(Relaxed);
            if entry == 0 {
                break;
            }
            let home = tag(entry) as usize;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.entries[hole].store(entry, Release);
                hole = at;
            }
        }
        self.entries[hole].store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::collections::HashMap;

    #[test]
    fn random_insertions_and_removals_agree_with_a_map() {
        let table = Table::new(64, SipHasher13::new_with_keys(1, 2));
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
                table.remove(&tuple(slot), slot);
            } else {
                map.insert(slot, ());
                table.insert(&tuple(slot), slot);
            }
            for slot in 0..64 {
                let mut search = table.search(&tuple(slot));
                let found = std::iter::from_fn(|| table.next(&mut search)).any(|s| s == slot);
                assert_eq!(found, map.contains_key(&slot));
            }
        }
    }
}
