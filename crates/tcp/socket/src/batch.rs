//! Which stores a batch is written by, and what that has cost both ends. See
//! `uncopy_tcp_shared::stores`.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use uncopy_tcp_shared::layout::Direction;
use uncopy_tcp_shared::ring::Consumed;
use uncopy_tcp_shared::stores::{BATCH, Batch, LEAST, Prices, Stores, Timed};

/// The batch that a direction's bytes belong to.
#[derive(Debug, Default)]
pub struct Writing {
    /// None: it begins with the next large copy.
    how: Option<Batch>,
    /// Bytes of it.
    bytes: u64,
    /// The large copies of it that were timed here,
    written: Timed,
    /// and what the reader had timed before it.
    read: Timed,
    /// Bytes that were streamed, of all batches.
    pub streamed: u64,
}

/// A copy that is about to be made.
pub(crate) struct Copy {
    /// How it should be.
    pub stores: Stores,
    began: Option<Instant>,
}

impl Writing {
    /// The copy is made, of so many bytes, by these stores. (One that was not made as it should
    /// have been is no price.)
    #[inline]
    pub(crate) fn wrote(&mut self, copy: &Copy, bytes: usize, by: Stores) {
        self.bytes += bytes as u64;
        if by == Stores::Streaming {
            self.streamed += bytes as u64;
        }
        if let Some(began) = copy.began
            && by == copy.stores
        {
            self.written.bytes += bytes as u64;
            self.written.ns += began.elapsed().as_nanos() as u64;
        }
    }

    /// Before a copy of so many bytes, to this direction.
    #[inline]
    pub(crate) fn copy(&mut self, prices: &Prices, out: &Direction, bytes: usize) -> Copy {
        if bytes < LEAST {
            return Copy { stores: Stores::Ordinary, began: None };
        }
        let how = match self.how {
            Some(how) if self.bytes < BATCH => how,
            _ => self.next(prices, out),
        };
        Copy { stores: how.stores, began: how.timed.then(Instant::now) }
    }

    #[cold]
    fn next(&mut self, prices: &Prices, out: &Direction) -> Batch {
        self.end(prices, out);
        let how = prices.next();
        self.how = Some(how);
        self.read = if how.timed { timed_by_reader(&out.consumed) } else { Timed::default() };
        out.produced.timed.store(how.timed.into(), Relaxed);
        how
    }

    /// The batch is over, and what it has cost is known.
    pub(crate) fn end(&mut self, prices: &Prices, out: &Direction) {
        let Self { how, bytes, written, read, streamed } = std::mem::take(self);
        self.streamed = streamed;
        prices.wrote(bytes);
        if let Some(Batch { stores, timed: true }) = how {
            prices.learn(stores, written, timed_by_reader(&out.consumed).since(read));
        }
    }
}

fn timed_by_reader(consumed: &Consumed) -> Timed {
    let [bytes, ns] = consumed.timed.each_ref().map(|count| count.load(Relaxed));
    Timed { bytes, ns }
}

/// Begins to time the reader's copy of so many bytes, where the writer wants that.
#[inline]
pub(crate) fn timing(inward: &Direction, bytes: u32) -> Option<Instant> {
    let wanted = bytes as usize >= LEAST && inward.produced.timed.load(Relaxed) != 0;
    wanted.then(Instant::now)
}

/// That copy is made.
#[inline]
pub(crate) fn timed(inward: &Direction, bytes: u32, began: Option<Instant>) {
    if let Some(began) = began {
        let [all, ns] = &inward.consumed.timed;
        ns.store(ns.load(Relaxed).wrapping_add(began.elapsed().as_nanos() as u64), Relaxed);
        all.store(all.load(Relaxed).wrapping_add(bytes.into()), Relaxed);
    }
}
