//! Receiving without a copy: what lies in blocks is handed over, and comes back when nobody views
//! it any more; it may be sent on without one. See `blocks`.

use crate::attached::Attached;
use crate::blocks::{Blocks, Keeps, NUMBER, Peer, Whose};
use crate::ends::{Locked, Receiving};
use crate::flow::Flow;
use crate::mapped::Registered;
use crate::wait::For;
use arrayvec::ArrayVec;
use libc::{MSG_DONTWAIT, iovec};
use rustix::io::Errno;
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use uncopy_counters::add;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::{ARENAS, READS_ARENAS, TAKES_BLOCKS};
use uncopy_tcp_shared::runs::{Piece, Run};

/// Fewer bytes than these are copied, where they might be given on.
pub const GIVEN_ON: usize = 16 << 10;
/// Ranges that one call takes.
const RANGES: usize = 8;
/// After so many that were not taken one after the other they come by the ring, for so many
/// messages;
const REFUSED: u32 = 8;
/// twice as many each time, up to so many.
const MOST_RESTS: u32 = 1024;

/// Bytes that were received and lie in blocks.
#[derive(Debug, Default)]
pub struct Taken {
    ranges: ArrayVec<(usize, usize), RANGES>,
    peers: ArrayVec<Arc<Peer>, RANGES>,
    more: bool,
}

impl Taken {
    /// Address and length of each range, in their order.
    pub fn ranges(&self) -> &[(usize, usize)] {
        &self.ranges
    }

    /// The peers in whose arenas they lie.
    pub fn peers(&self) -> &[Arc<Peer>] {
        &self.peers
    }

    /// More lies behind them, in the ring or in blocks.
    pub fn is_followed(&self) -> bool {
        self.more
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.ranges().iter().map(|range| range.1).sum()
    }
}

/// Bytes of a call that sends, as far as they lie in blocks already.
#[derive(Debug)]
pub struct Forward {
    /// Those of each of the call's buffers.
    pub(crate) parts: Vec<Option<There>>,
    given: Cell<usize>,
}

/// A buffer that lies in an arena.
#[derive(Debug)]
pub(crate) struct There {
    pub whose: Whose,
    /// The owner that is dropped once receivers are done with it.
    pub keeps: Keeps,
}

impl Forward {
    /// So many bytes were given on.
    pub fn given(&self) -> usize {
        self.given.get()
    }

    pub(crate) fn gives(&self, bytes: usize) {
        self.given.set(self.given.get() + bytes);
    }
}

impl Flow {
    /// Bytes that the other side sends may lie in an arena that is mapped here.
    pub fn has_arenas(&self) -> bool {
        self.attached().is_some_and(|attached| attached.mapped.exchange.has_arenas())
    }

    /// The receiver may be given what of so many bytes lies in blocks already.
    pub fn gives_on(&self, bytes: usize) -> bool {
        self.attached().is_some_and(|attached| {
            bytes >= attached.mapped.blocks.from
                && (self.context.has_arenas() || self.context.has_settled())
                && attached.mapped.process == self.context.process()
                && Self::is_read_in_arenas(attached)
        })
    }

    /// The parts of these buffers that may be given on: those with an owner in `kept` stay as they
    /// are until it is dropped. `None`: nothing. Owners of other parts are left there.
    pub fn forward<K>(&self, parts: &[iovec], kept: &mut [Option<K>]) -> Option<Forward>
    where
        K: Any + Send + Sync,
    {
        let there = |(part, kept): (&iovec, &mut Option<K>)| {
            let large = part.iov_len >= GIVEN_ON && kept.is_some();
            let at = part.iov_base as usize;
            let whose = large.then(|| self.context.arena_with(at, part.iov_len)).flatten()?;
            Some(There { whose, keeps: Arc::new(kept.take()?) })
        };
        let parts: Vec<Option<There>> = parts.iter().zip(kept).map(there).collect();
        let some = parts.iter().any(Option::is_some);
        some.then(|| Forward { parts, given: Cell::new(0) })
    }

    /// As [`Flow::send`], and gives on what it can of these buffers.
    ///
    /// # Safety
    /// The contract is that of the call above.
    pub unsafe fn send_on(
        &self,
        from: &[iovec],
        flags: i32,
        forward: &Forward,
    ) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { self.send_buffers(from, flags, Some(forward)) }
    }

    /// Some call has received as much at once as may come in a block. (Until then nobody looks for
    /// blocks, however large the buffers of calls are.)
    #[inline]
    pub fn brings_much(&self) -> bool {
        self.much.load(Relaxed)
    }

    /// The other side's arena, of which blocks come here; asked for, if there is none.
    pub fn peer(&self) -> Option<Arc<Peer>> {
        let attached = self.attached()?;
        let mapped = &attached.mapped;
        if mapped.blocks == Blocks::NONE || mapped.process != self.context.process() {
            return None;
        }
        let known = mapped.exchange.peer(NUMBER);
        if known.is_none() && attached.asks_for_blocks() {
            self.context.pump();
            return mapped.exchange.peer(NUMBER);
        }
        known
    }

    /// How many of the next bytes lie in blocks, of `room`; 0 where these are fewer than `least`:
    /// the call is to be made as any other. Waits until there are bytes, as [`Flow::receive`] does.
    pub fn await_blocks(&self, (least, room): (usize, usize), flags: i32) -> Result<usize, Errno> {
        let Some(attached) = self.attached() else { return Ok(0) };
        let mapped = &attached.mapped;
        if mapped.blocks == Blocks::NONE || mapped.process != self.context.process() {
            return Ok(0);
        }
        self.context.collects();
        let mut waited = false;
        loop {
            let mut own = mapped.ends.receiving(attached.slot, self.context.process());
            if self.is_closed() || own.poisoned {
                return Ok(0);
            }
            self.wants_blocks(attached, &mut own);
            let there = self.find_blocks(attached, &mut own, room, |_, _, _| true);
            drop(own);
            match there {
                // (Where the program has set for how long it waits the call itself does.)
                Some(0)
                    if !waited
                        && flags & MSG_DONTWAIT == 0
                        && !self.is_nonblocking()
                        && !self.has_timeout(false) =>
                {
                    self.wait_in_call(For::Data, &mut None)?;
                    waited = true;
                }
                there => return Ok(there.filter(|there| *there >= least).unwrap_or(0)),
            }
        }
    }

    /// Takes the next bytes that lie in blocks, at most `room`: they are received, and lie where
    /// [`Taken`] says until [`Peer::released`] has got each range. `None`: nothing has happened.
    ///
    /// A range that was noted is taken, however short it is: a note cannot be undone, because one
    /// of an equal range may come back meanwhile in its place.
    pub fn take_blocks(&self, room: usize) -> Option<Taken> {
        let attached = self.attached()?;
        let mapped = &attached.mapped;
        let mut own = mapped.ends.receiving(attached.slot, self.context.process());
        if self.is_closed() || own.poisoned {
            return None;
        }
        let mut taken = Taken::default();
        let bytes = self.find_blocks(attached, &mut own, room, |at, run, peer| {
            let takes = !taken.ranges.is_full() && peer.hands_over(run);
            if takes {
                taken.ranges.push((at as usize, run.bytes as usize));
                taken.peers.push(peer);
            }
            takes
        });
        let bytes = bytes.filter(|bytes| *bytes > 0)?;
        self.takes(attached, &mut own, bytes as u32, |_| ());
        let stays = attached.inward().switch.phase.at() == Ok(At::Ring);
        taken.more = own.reader.filled() > 0 && stays;
        let left = taken.more || !stays;
        drop(own);
        // (As if the rest came now: less than was asked for says that this is all.)
        if left {
            self.tell_sets(true);
        }
        if self.nested.load(Relaxed) {
            self.settles();
        }
        Some(taken)
    }

    /// The bytes that were taken are viewed; or they were copied, because they are not to be
    /// viewed.
    pub fn views_blocks(&self, bytes: usize, viewed: bool) {
        let Some(attached) = self.attached() else { return };
        let counters = self.context.settings.counters;
        let mut own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        if viewed {
            own.refused = 0;
            add(&counters.tcp_viewed_bytes, bytes as u64);
            return;
        }
        add(&counters.tcp_views_refused, 1);
        Self::refuses_block(attached, &mut own);
    }

    /// One more was copied, as from the ring.
    pub(crate) fn refuses_block(attached: &Attached, own: &mut Locked<Receiving>) {
        // (It is given what lies there already also while it rests.)
        own.refused = own.refused.wrapping_add(1);
        if own.refused.is_multiple_of(REFUSED) && !attached.mapped.blocks.always {
            own.rests = own.refused.saturating_mul(REFUSED).min(MOST_RESTS);
            attached.inward().consumed.flags.fetch_and(!TAKES_BLOCKS, Release);
        }
    }

    /// The other side hears that blocks are wanted, and which arena can be read by all processes
    /// that hold this end.
    pub(crate) fn wants_blocks(&self, attached: &Attached, own: &mut Locked<Receiving>) {
        if own.rests > 0 {
            return;
        }
        if !attached.asks_for_blocks() {
            attached.inward().consumed.flags.fetch_or(TAKES_BLOCKS, Release);
        }
        Self::says_arenas(attached);
    }

    /// The other side hears that what lies in arenas is read there, and which can be: these.
    pub(crate) fn reads_arenas(attached: &Attached) -> [u32; ARENAS] {
        let flags = &attached.inward().consumed.flags;
        if flags.load(Relaxed) & READS_ARENAS == 0 {
            flags.fetch_or(READS_ARENAS, Release);
        }
        Self::says_arenas(attached)
    }

    fn says_arenas(attached: &Attached) -> [u32; ARENAS] {
        let (mapped, consumed) = (&attached.mapped, &attached.inward().consumed);
        let all = mapped.exchange.there();
        // (A child that was forked before it came does not have it. Later ones do.)
        for (there, said) in all.into_iter().zip(&consumed.arenas) {
            if there != 0 && there != said.load(Relaxed) && attached.is_sole() {
                said.store(there, Release);
            }
        }
        all
    }

    /// How many of the next bytes lie in blocks: at most `room`, and as far as `takes` takes each
    /// part. `None`: the call is to be made as any other.
    fn find_blocks(
        &self,
        attached: &Attached,
        own: &mut Locked<Receiving>,
        room: usize,
        mut takes: impl FnMut(*const u8, Run, Arc<Peer>) -> bool,
    ) -> Option<usize> {
        let (mapped, inward) = (&attached.mapped, attached.inward());
        let at = inward.switch.phase.at().ok()?;
        // (In a ring that is being left what follows is Linux'. An urgent byte may come first.)
        if at != At::Ring || own.before_ring > 0 || own.stands_at_mark {
            return None;
        }
        // (Where it cannot be understood the call that is made in place of this finds the same.)
        if (own.reader.filled() as usize) < room {
            own.look(&inward.produced).ok()?;
        }
        if own.reader.filled() == 0 {
            let may_wait = !own.ended && !attached.error().is_some();
            return may_wait.then_some(0);
        }
        if own.runs.is_empty() {
            return None;
        }
        let queue = attached.slot().queue(1 - mapped.side);
        let most = own.reader.filled().min(room.min(u32::MAX as usize) as u32);
        let mut bytes = 0;
        while bytes < most {
            let next = own.runs.piece(queue, own.reader.head(), bytes, most - bytes);
            let Ok(Piece::Block(run)) = next else { break };
            let Some(peer) = mapped.exchange.peer(run.arena) else { break };
            let Some(at) = peer.address(run) else { break };
            if !takes(at, run, peer) {
                break;
            }
            bytes += run.bytes;
        }
        (bytes > 0).then_some(bytes as usize)
    }
}
