//! How bytes are stored into a ring: by ordinary stores, or by streaming ones (non-temporal: past
//! the caches).
//!
//! Bytes that a reader on another core has read stay in that core's caches. A writer that writes
//! there again waits for each line to be taken away from them: on a Zen 4 64 KB take 7 us instead
//! of 1.4, and 30 us where the two cores share no third-level cache. Streaming stores take 2 us;
//! but the reader gets the bytes from memory then, 4 us instead of 1.5. Where both ends run on one
//! core, or more is under way than the reader's caches hold, ordinary stores are the better ones.
//! No table of processors tells which it is, and a virtual machine's cores move. So both are timed,
//! at both ends.
//!
//! A *batch* is some large copies into a ring, one after the other, that are made the same way.
//! Some batches are *timed*: the writer times its copies, and asks the reader to do so too. (The
//! reader's other copies meanwhile count with them, be it of the batch before: the prices are
//! rough. One that reads pieces below [`LEAST`] times nothing, and ordinary stores stay.)

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Least bytes of one copy that streaming stores are thought of for, and that a reader times: it
/// may take a large message piece by piece. Between cores that share no third-level cache 4 KB gain
/// 1.4 to 1.8 times, 2 KB a tenth. (To time a copy takes 50 ns.)
pub const LEAST: usize = 4 << 10;
/// A batch ends with the copy that makes it so large.
pub const BATCH: u64 = 64 << 10;
/// One batch in so many is timed, of those in the second half of a stretch.
const TIMED: u32 = 8;
/// Of so many stretches,
const STRETCHES: u64 = 128;
/// which are so many bytes long (of all connections that share a region), one is a trial of the
/// other way: that may cost eight times as much. It is all connections' because what is right for
/// one depends on what the others leave in the caches.
const STRETCH: u64 = 16 << 20;
/// Streaming has to cost less than so many fifths of what ordinary stores do. For the two programs
/// decide by themselves, and one that stores ordinarily while the other streams finds that dearer
/// than if both did. (16 connections of 64 KB, ns for 1 KB: 44 where both store ordinarily, 98
/// where both stream, 110 for the one that does not.)
const FIFTHS: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stores {
    /// The routine that copies best makes them.
    #[default]
    Ordinary,
    /// Past the caches.
    Streaming,
}

/// How a batch is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which way.
    pub stores: Stores,
    /// Its copies are timed.
    pub timed: bool,
}

/// The costs of both ways to a process that writes into a region's rings. A hint: several threads
/// may write it at the same time.
#[derive(Debug, Default)]
pub struct Prices {
    /// ns of both ends for 1 MB; 0: not known.
    of: [AtomicU32; 2],
    /// Batches that could be timed.
    settled: AtomicU32,
    /// Bytes of all.
    bytes: AtomicU64,
    /// Streaming was better when the last trial began: it is not the first batch of one that
    /// decides.
    streams: AtomicBool,
}

impl Prices {
    /// The next batch of a direction.
    pub fn next(&self) -> Batch {
        let bytes = self.bytes.load(Relaxed);
        // (In the first one of all there are pages that were not there.)
        let other = bytes / STRETCH % STRETCHES == 1;
        // By then everybody's lines are where such stores leave them.
        let settled = bytes % STRETCH >= STRETCH / 2;
        let timed = settled && (other || self.settled.fetch_add(1, Relaxed).is_multiple_of(TIMED));
        let [ordinary, streaming] = self.of.each_ref().map(|price| u64::from(price.load(Relaxed)));
        let streams = match other {
            true => self.streams.load(Relaxed),
            false => streaming != 0 && streaming < ordinary * FIFTHS / 5,
        };
        if !other {
            self.streams.store(streams, Relaxed);
        }
        let stores = if streams != other { Stores::Streaming } else { Stores::Ordinary };
        Batch { stores, timed }
    }

    /// So many bytes of any batch were written.
    pub fn wrote(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// A timed batch has cost the writer so many ns for so many bytes, and the reader likewise.
    ///
    /// A price falls fast and rises slowly: somebody who was put aside in the middle of a copy is
    /// no price, but there is no copy that takes less than it can.
    pub fn learn(&self, stores: Stores, written: Timed, read: Timed) {
        let (Some(written), Some(read)) = (written.price(), read.price()) else { return };
        let new = written.saturating_add(read).clamp(1, u64::from(u32::MAX / 2));
        let price = &self.of[stores as usize];
        let old = u64::from(price.load(Relaxed));
        let now = match old {
            0 => new,
            _ if new < old => u64::midpoint(old, new),
            _ => old + (new.min(2 * old) - old).div_ceil(8),
        };
        price.store(now as u32, Relaxed);
    }
}

/// Copies that were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// The bytes that they moved.
    pub bytes: u64,
    /// The time that it took, in ns.
    pub ns: u64,
}

impl Timed {
    /// The counts since `earlier`, of counts that the other side writes.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { bytes: self.bytes.wrapping_sub(earlier.bytes), ns: self.ns.wrapping_sub(earlier.ns) }
    }

    /// ns for 1 MB. `None`: nothing was copied.
    fn price(self) -> Option<u64> {
        self.ns.saturating_mul(1 << 20).checked_div(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RING;

    const KB_64: u64 = 64 << 10;
    /// The number of them in a stretch.
    const EACH: u64 = STRETCH / KB_64;

    /// So many stretches of batches of 64 KB that cost what `price` says, in ns of the writer and
    /// of the reader. Returns in how many stretches' worth of them streaming stores were used.
    fn run(prices: &Prices, stretches: u64, mut price: impl FnMut(Stores) -> (u64, u64)) -> u64 {
        run_of(KB_64, prices, stretches, &mut price)
    }

    /// The same with batches of so many bytes.
    fn run_of(
        each: u64,
        prices: &Prices,
        stretches: u64,
        price: &mut dyn FnMut(Stores) -> (u64, u64),
    ) -> u64 {
        let batches = stretches * STRETCH / each;
        let streamed = (0..batches).filter(|_| {
            let batch = prices.next();
            prices.wrote(each);
            let (written, read) = price(batch.stores);
            if batch.timed {
                let timed = |ns| Timed { bytes: KB_64, ns };
                prices.learn(batch.stores, timed(written), timed(read));
            }
            batch.stores == Stores::Streaming
        });
        (streamed.count() as u64 * each).div_ceil(STRETCH)
    }

    fn far_apart(stores: Stores) -> (u64, u64) {
        if stores == Stores::Streaming { (2000, 4000) } else { (30000, 3000) }
    }

    fn on_one_core(stores: Stores) -> (u64, u64) {
        if stores == Stores::Streaming { (2600, 2500) } else { (1400, 1400) }
    }

    #[test]
    fn stores_that_cost_both_ends_less_are_taken_after_the_first_trial() {
        let prices = Prices::default();
        assert_eq!(run(&prices, 1, far_apart), 0);
        assert_eq!(run(&prices, 50, far_apart), 50);
        let prices = Prices::default();
        assert_eq!(run(&prices, 50, on_one_core), 1);
    }

    #[test]
    fn batches_of_any_size_find_out() {
        for each in [BATCH, 100_000, BATCH + RING as u64] {
            let prices = Prices::default();
            let streamed = run_of(each, &prices, STRETCHES * 2, &mut far_apart);
            assert!(streamed > STRETCHES * 2 - 8, "{each}: {streamed}");
            let prices = Prices::default();
            let streamed = run_of(each, &prices, STRETCHES * 2, &mut on_one_core);
            assert!((1..=4).contains(&streamed), "{each}: {streamed}");
        }
    }

    #[test]
    fn the_other_way_is_tried_now_and_then_and_taken_once_it_is_better() {
        let prices = Prices::default();
        assert_eq!(run(&prices, STRETCHES * 10, on_one_core), 10);
        let moved = run(&prices, STRETCHES * 10, far_apart);
        assert!(moved > STRETCHES * 9, "{moved}");
        let back = run(&prices, STRETCHES * 10, on_one_core);
        assert!(back < STRETCHES * 5, "{back}");
        assert_eq!(run(&prices, STRETCHES * 10, on_one_core), 10);
    }

    #[test]
    fn costs_of_the_first_half_of_a_trial_are_not_its_price() {
        let prices = Prices::default();
        let mut since = 0;
        let (mut last, mut streamed) = (Stores::Ordinary, 0);
        for _ in 0..STRETCHES * 4 {
            streamed += run(&prices, 1, |stores| {
                since = if std::mem::replace(&mut last, stores) == stores { since + 1 } else { 0 };
                let (written, read) = far_apart(stores);
                (written * if since < EACH / 3 { 10 } else { 1 }, read)
            });
        }
        assert!(streamed > STRETCHES * 4 - 10, "{streamed}");
    }

    #[test]
    fn copies_that_were_interrupted_hardly_ever_change_what_is_done() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for (price, expected) in [
            (far_apart as fn(Stores) -> (u64, u64), STRETCHES * 20),
            (on_one_core as fn(Stores) -> (u64, u64), 0),
        ] {
            let prices = Prices::default();
            let streamed = run(&prices, STRETCHES * 20, |stores| {
                let (written, read) = price(stores);
                // (One in 20, by a millisecond.)
                (written + if random.u8(..) < 12 { 1_000_000 } else { 0 }, read)
            });
            assert!(streamed.abs_diff(expected) < STRETCHES, "{streamed}");
        }
    }

    #[test]
    fn nonsense_from_the_other_side_is_a_price_like_any_other() {
        let prices = Prices::default();
        for ns in [0, 1, u64::MAX, u64::MAX - 5] {
            for bytes in [0, 1, u64::MAX] {
                for stores in [Stores::Ordinary, Stores::Streaming] {
                    let came = Timed { bytes, ns };
                    prices.learn(stores, came, came.since(Timed { bytes: 7, ns: 7 }));
                    prices.wrote(bytes);
                    prices.next();
                }
            }
        }
    }
}
