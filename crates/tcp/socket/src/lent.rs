//! The inward ring's first bytes, used where they lie, and received later: a sender of them by a
//! wire needs them until they have arrived there.
//!
//! Lent bytes are received by nobody else, and are the ring's first bytes. Behind them only the
//! ring is looked at: bytes that come by Linux, or in a block, wait until nothing is lent.
//!
//! unsafe: a copy into the caller's buffer.

use crate::flow::Flow;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_tcp_shared::arena;
use uncopy_tcp_shared::phase::At;

/// An answer of [`Flow::lend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// So many bytes more are lent.
    More(u32),
    /// The ring has no more bytes now. [`Flow::receive`] says whether the stream goes on.
    Nothing,
    /// The next bytes are not the ring's: [`Flow::receive`] brings them, once nothing is lent.
    Elsewhere,
}

/// [`Flow::receive`]'s answer for bytes that wait until nothing is lent. (No other answer of its is
/// this one.)
pub const HELD: Errno = Errno::BUSY;

impl Flow {
    /// Up to so many further bytes of the ring are lent.
    pub fn lend(&self, most: u32) -> Lent {
        let Some(attached) = self.attached() else { return Lent::Elsewhere };
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let inward = attached.inward();
        let is_rings =
            matches!(inward.switch.phase.at(), Ok(At::Ring | At::Leaving)) && own.before_ring == 0;
        if own.poisoned || self.is_closed() || !is_rings || own.look(&inward.produced).is_err() {
            return Lent::Elsewhere;
        }
        let lent = self.lent.load(Relaxed);
        match own.reader.filled().saturating_sub(lent).min(most) {
            0 => Lent::Nothing,
            _ if !own.runs.is_empty() => Lent::Elsewhere,
            more => {
                self.lent.store(lent + more, Relaxed);
                Lent::More(more)
            }
        }
    }

    /// Where the bytes of what is lent are, `skip` of them left out: for a reader of them as memory
    /// that changes at any time. `None`: there are not so many.
    pub fn lent(&self, skip: u32, bytes: u32) -> Option<[(*const u8, usize); 2]> {
        let attached = self.attached()?;
        let own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let end = skip.checked_add(bytes)?;
        if self.is_closed() || end > self.lent.load(Relaxed) {
            return None;
        }
        let spans = own.reader.peek(skip, bytes as usize);
        let all = spans.bytes() == bytes;
        all.then(|| attached.slot().addresses(1 - attached.mapped.side, spans))
    }

    /// Copies bytes of what is lent, `skip` of them left out. False: there are not so many.
    pub fn copy_lent(&self, skip: u32, to: &mut [u8]) -> bool {
        let Some(pieces) = self.lent(skip, to.len() as u32) else { return false };
        let mut to = to;
        for (at, bytes) in pieces {
            let (part, rest) = to.split_at_mut(bytes);
            // SAFETY: `part` is the caller's, and as long.
            if unsafe { arena::get(at, part.as_mut_ptr(), bytes as u32) }.is_err() {
                return false;
            }
            to = rest;
        }
        true
    }

    /// The first so many bytes of what is lent are received.
    pub fn receives_lent(&self, bytes: u32) {
        let Some(attached) = self.attached() else { return };
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let lent = self.lent.load(Relaxed);
        let bytes = bytes.min(lent).min(own.reader.filled());
        if bytes == 0 || self.is_closed() {
            return;
        }
        self.lent.store(lent - bytes, Relaxed);
        let returns = attached.mapped.region.returns(1 - attached.mapped.side);
        self.takes(attached, &mut own, bytes, |run| returns.done(run.handle, run.bytes));
    }
}
