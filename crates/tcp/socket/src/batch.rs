//! Which stores a batch is written by, and what that has cost both ends. See `uncopy_tcp_shared::stores`.

use crate::attached::Attached;
use crate::ends::{Held, Sending};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use uncopy_tcp_shared::layout::Direction;
use uncopy_tcp_shared::ring::Consumed;
use uncopy_tcp_shared::stores::{Batch, ENOUGH, LEAST, MOST, Stores, Timed};

/// The batch that a direction's bytes belong to.
#[derive(Debug, Default)]
pub struct Writing {
    how: Batch,
    /// The ring has been empty since.
    ended: bool,
    /// Bytes of it.
    bytes: u64,
    /// What was timed of that here,
    written: Timed,
    /// and what the reader had timed before it.
    read: Timed,
    /// Bytes that were streamed, of all batches.
    pub streamed: u64,
}

impl Writing {
    /// So many bytes of it are in the ring; timed from `began` on.
    #[inline]
    pub fn wrote(&mut self, bytes: usize, began: Option<Instant>) {
        self.bytes += bytes as u64;
        if self.how.stores == Stores::Streaming {
            self.streamed += bytes as u64;
        }
        if let Some(began) = began {
            self.written.bytes += bytes as u64;
            self.written.ns += began.elapsed().as_nanos() as u64;
        }
    }
}

/// A call begins to put bytes into the ring, be they few: where that is empty, the next large copy begins a batch. (An answer's head may come by a call
/// of its own, before its body.)
#[inline]
pub(crate) fn begins(own: &mut Held<Sending>) {
    own.batch.ended |= own.writer.used() == 0;
}

/// What a large copy belongs to that comes next.
#[inline]
pub(crate) fn of(attached: &Attached, own: &mut Held<Sending>) -> Batch {
    if own.batch.bytes >= if own.batch.ended { ENOUGH } else { MOST } {
        next(attached, own);
    }
    own.batch.how
}

fn next(attached: &Attached, own: &mut Held<Sending>) {
    let (prices, out) = (&attached.mapped.prices, attached.out());
    let Writing { how, bytes, written, read, streamed, .. } = own.batch;
    prices.wrote(bytes);
    if how.timed {
        prices.learn(how.stores, written, timed_by_reader(&out.consumed).since(read));
    }
    let how = prices.next();
    let read = if how.timed { timed_by_reader(&out.consumed) } else { Timed::default() };
    out.produced.timed.store(how.timed.into(), Relaxed);
    own.batch = Writing { how, read, streamed, ..Writing::default() };
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
        all.store(all.load(Relaxed).wrapping_add(bytes.into()), Relaxed);
        ns.store(ns.load(Relaxed).wrapping_add(began.elapsed().as_nanos() as u64), Relaxed);
    }
}
