//! Which stores a batch is written by, and what that has cost both ends. See
//! `uncopy_tcp_shared::stores`.

use crate::attached::Attached;
use crate::ends::{Held, Sending};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use uncopy_tcp_shared::layout::Direction;
use uncopy_tcp_shared::ring::Consumed;
use uncopy_tcp_shared::stores::{BATCH, Batch, LEAST, Stores, Timed};

/// The batch that a direction's bytes belong to.
#[derive(Debug, Default)]
pub struct Writing {
    /// None: it begins with the next large copy.
    how: Option<Batch>,
    /// Bytes of it.
    bytes: u64,
    /// What was timed of that here,
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
}

/// Before a copy of so many bytes.
#[inline]
pub(crate) fn copy(attached: &Attached, own: &mut Held<Sending>, bytes: usize) -> Copy {
    if bytes < LEAST {
        return Copy { stores: Stores::Ordinary, began: None };
    }
    let how = match own.batch.how {
        Some(how) if own.batch.bytes < BATCH => how,
        _ => next(attached, own),
    };
    Copy { stores: how.stores, began: how.timed.then(Instant::now) }
}

#[cold]
fn next(attached: &Attached, own: &mut Held<Sending>) -> Batch {
    end(attached, own);
    let (how, out) = (attached.mapped.prices.next(), attached.out());
    own.batch.how = Some(how);
    own.batch.read = if how.timed { timed_by_reader(&out.consumed) } else { Timed::default() };
    out.produced.timed.store(how.timed.into(), Relaxed);
    how
}

/// The batch is over, and what it has cost is known.
pub(crate) fn end(attached: &Attached, own: &mut Held<Sending>) {
    let prices = &attached.mapped.prices;
    let Writing { how, bytes, written, read, streamed } = std::mem::take(&mut own.batch);
    own.batch.streamed = streamed;
    prices.wrote(bytes);
    if let Some(Batch { stores, timed: true }) = how {
        prices.learn(stores, written, timed_by_reader(&attached.out().consumed).since(read));
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
