//! A disk with a volatile cache: what was written is durable after a flush. At a power loss each
//! sector of what was not flushed is there or not, in any combination.

use std::collections::BTreeMap;
use uncopy_log_record::{BLOCK, SECTOR};

/// The blocks that lie on the disk apart from others: the log's, or one file's.
pub type Area = usize;

/// The area of the log.
pub const LOG: Area = 0;

#[derive(Clone, Debug)]
struct Write {
    area: Area,
    at: usize,
    bytes: Vec<u8>,
}

/// The fate of unflushed sectors when power goes.
#[derive(Clone, Debug)]
pub enum Fate {
    /// None is there.
    None,
    /// All are there.
    All,
    /// Only those of this write, counted from the oldest.
    Only(usize),
    /// All but those of this one.
    Without(usize),
    /// Every second sector, from this one on.
    Alternate(usize),
    /// None, and blocks of the log that were under way are garbage: a disk with physical blocks of
    /// 4 KB that was interrupted over them.
    Garbage,
    /// Each sector by a coin.
    Coins(u64),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Platter {
    durable: BTreeMap<Area, Vec<u8>>,
    cache: Vec<Write>,
    /// Writes that were ever made; the number of the first in the cache is this less their count.
    written: usize,
}

impl Platter {
    /// Writes; not yet durable.
    pub fn write(&mut self, area: Area, at: usize, bytes: &[u8]) {
        self.cache.push(Write { area, at, bytes: bytes.to_vec() });
        self.written += 1;
    }

    /// All that was written is durable.
    pub fn flush(&mut self) {
        for write in std::mem::take(&mut self.cache) {
            self.put(write.area, write.at, &write.bytes);
        }
    }

    /// Writes that are not durable yet.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// How many writes were ever made.
    pub fn written(&self) -> usize {
        self.written
    }

    /// The durable bytes of an area; behind its end are zeros.
    pub fn durable(&self, area: Area) -> &[u8] {
        self.durable.get(&area).map_or(&[], |bytes| bytes)
    }

    /// The bytes of an area behind `length` are gone.
    pub fn cut(&mut self, area: Area, length: usize) {
        self.durable.entry(area).or_default().truncate(length);
    }

    /// Another area with the first `length` bytes of this one.
    pub fn fork(&mut self, from: Area, to: Area, length: usize) {
        let mut bytes = self.durable(from).to_vec();
        bytes.truncate(length);
        self.durable.insert(to, bytes);
        let copies = self.cache.iter().filter(|write| write.area == from && write.at < length);
        let copies: Vec<_> = copies
            .map(|write| {
                let end = write.bytes.len().min(length - write.at);
                Write { area: to, at: write.at, bytes: write.bytes[..end].to_vec() }
            })
            .collect();
        self.written += copies.len();
        self.cache.extend(copies);
    }

    /// Power is lost. `needed` says of a place in an area, and the number of a write, whether it
    /// must be there, because something that is durable came after it.
    pub fn lose_power(&mut self, fate: &Fate, needed: impl Fn(Area, usize, usize) -> bool) {
        let mut coins = match fate {
            Fate::Coins(seed) => fastrand::Rng::with_seed(*seed),
            _ => fastrand::Rng::with_seed(0),
        };
        let first = self.written - self.cache.len();
        for (i, write) in std::mem::take(&mut self.cache).into_iter().enumerate() {
            for (at, sector) in sectors(write.at, &write.bytes) {
                let n = at / SECTOR;
                let there = match fate {
                    Fate::None | Fate::Garbage => false,
                    Fate::All => true,
                    Fate::Only(only) => i == *only,
                    Fate::Without(without) => i != *without,
                    Fate::Alternate(from) => (n + from).is_multiple_of(2),
                    Fate::Coins(_) => coins.bool(),
                };
                if there || needed(write.area, at, first + i) {
                    self.put(write.area, at, sector);
                } else if matches!(fate, Fate::Garbage) && write.area == LOG {
                    let block = at / BLOCK * BLOCK;
                    self.put(LOG, block, &[0xdb; BLOCK]);
                }
            }
        }
    }

    fn put(&mut self, area: Area, at: usize, bytes: &[u8]) {
        let place = self.durable.entry(area).or_default();
        if place.len() < at + bytes.len() {
            place.resize(at + bytes.len(), 0);
        }
        place[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// The sectors of a write, with their places.
fn sectors(at: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (mut at, mut rest) = (at, bytes);
    std::iter::from_fn(move || {
        let (sector, behind) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
        let place = at;
        (at, rest) = (at + sector.len(), behind);
        (!sector.is_empty()).then_some((place, sector))
    })
}
