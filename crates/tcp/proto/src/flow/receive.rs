//! A segment arrives (TAS, figure 3.1): its acknowledgement frees what was sent, its payload gets
//! its place in the receive buffer.

use super::{DUPLICATES, Flow, RUNS, flag};
use crate::segment::{Blocks, Flags, RingRange, Segment};
use crate::time::{Now, elapsed};

/// Round trips that stamps can tell, which are milliseconds: a shorter one is wrong by half or
/// more, a longer one is no answer to what we sent.
const STAMPED: core::ops::Range<u32> = 2..60_000;

/// The segments that the fast path does not handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exception {
    /// The connection is being set up or was given up.
    NotEstablished,
    /// SYN, FIN, RST, URG, or no ACK.
    Flags,
    /// A timestamp from the past: an old duplicate, or a peer that was silent for weeks.
    OldStamp,
    /// Numbers outside of the window.
    OutsideWindow,
    /// It acknowledges what was never sent, or what was acknowledged long ago.
    BadAck,
}

/// Where a payload goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// The range in the receive buffer.
    pub to: RingRange,
    /// How many bytes of the payload to leave out at its front: they were there already.
    pub skip: u32,
    /// How many bytes are missing before the first one: 0, and it is the next in order.
    pub ahead: u32,
}

/// The effects of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// The payload is to be copied here, before anybody hears of the rest.
    pub place: Option<Place>,
    /// So many more bytes can be read.
    pub readable: u32,
    /// So many more bytes of the send buffer are free.
    pub acked: u32,
    /// Something may be sent now that could not before.
    pub sendable: bool,
    /// An acknowledgement has to go out at once: the peer counts each of them. Otherwise one may
    /// stand for a batch.
    pub ack_now: bool,
    /// The acknowledgement may wait a while for data to go along with.
    pub waits: bool,
    /// An old segment without payload: worth an answer, but not each time.
    pub late: bool,
}

impl Flow {
    /// Handles `segment`, or says why not, with nothing changed.
    #[inline]
    pub fn receive(&mut self, now: Now, segment: &Segment) -> Result<Received, Exception> {
        const ALL: u8 = Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0 | Flags::URG.0 | Flags::ACK.0;
        if segment.flags.0 & ALL != Flags::ACK.0 {
            return Err(Exception::Flags);
        }
        if !self.has(flag::FAST) {
            return Err(Exception::NotEstablished);
        }
        self.data(now, segment)
    }

    /// The same whatever the flags say: acknowledgement and payload.
    #[inline]
    pub(crate) fn data(&mut self, now: Now, segment: &Segment) -> Result<Received, Exception> {
        self.check(segment)?;
        if let Some((value, _)) = segment.stamp
            && self.has(flag::STAMPS)
            && !segment.seq.after(self.rcv_nxt)
        {
            self.ts_recent = value;
        }
        self.heard = now.stamp;
        let mut received = Received::default();
        self.acked(now, segment, &mut received);
        if segment.payload > 0 {
            self.payload(segment, &mut received);
        } else if segment.seq.before(self.rcv_nxt) {
            // A probe: keep-alive, or of a window that was zero. One that lies further back is
            // either late, or of a peer that missed our last acknowledgements.
            received.ack_now = segment.seq == self.rcv_nxt - 1;
            received.late = !received.ack_now;
        }
        Ok(received)
    }

    /// May this segment be looked at?
    #[inline]
    fn check(&self, segment: &Segment) -> Result<(), Exception> {
        if let Some((value, _)) = segment.stamp
            && self.has(flag::STAMPS)
            && (value.wrapping_sub(self.ts_recent) as i32) < 0
        {
            return Err(Exception::OldStamp);
        }
        // Behind the buffer's end nothing is taken. Before it, numbers of the last window are old
        // duplicates that ask for an acknowledgement; a segment without payload may also stand
        // right at the end. Where the buffer was larger, the peer may have sent up to an end that
        // it was told of before (RFC 7323, 2.4): what such segments acknowledge counts.
        let ahead = segment.seq.since(self.rcv_nxt);
        let room = self.rcv_size().saturating_sub(self.rcv_nxt.distance(self.rcv_read));
        let room = room.max(self.larger_window());
        let outside = if ahead < 0 {
            // The probe of a peer lies one before; data of the peer's not more than what it could
            // have had under way.
            self.rcv_nxt.distance(segment.seq)
                > self.reach().saturating_add(segment.payload).max(1 << 16)
        } else if segment.payload > 0 {
            ahead as u32 >= room
        } else {
            ahead as u32 > room
        };
        if outside {
            return Err(Exception::OutsideWindow);
        }
        // RFC 5961, 5.2.
        if segment.ack.after(self.snd_max)
            || segment.ack.before(self.snd_una - self.snd_wnd.max(self.snd_size()).min(1 << 30))
        {
            return Err(Exception::BadAck);
        }
        Ok(())
    }

    #[inline]
    fn acked(&mut self, now: Now, segment: &Segment, received: &mut Received) {
        if segment.flags.any(Flags::ECE) && self.has(flag::ECN) && !self.has(flag::ECN_EXACT) {
            self.set(flag::REDUCED);
        }
        let window = self.scaled(segment);
        let ack = segment.ack;
        if ack.after(self.snd_una) {
            // A FIN takes a number but no byte of the buffer.
            let bytes = ack.min(self.snd_end).since(self.snd_una).max(0) as u32;
            self.snd_una = ack;
            self.snd_wnd = window;
            self.dup_acks = 0;
            if segment.flags.any(Flags::ECE) && self.has(flag::ECN) {
                self.cnt_marked = self.cnt_marked.saturating_add(bytes);
            }
            if self.rtt_sent != 0 && !self.rtt_seq.after(ack) {
                self.measured(elapsed(now.time.micros(), self.rtt_sent));
                self.rtt_sent = 0;
            } else if self.has(flag::RECOVERING) {
                self.measured_by_stamp(now, segment);
            }
            if self.snd_nxt.before(ack) {
                self.snd_nxt = ack;
            }
            received.acked = bytes;
            received.sendable = true;
            if !self.recovery.sacked.is_empty() {
                self.recovery.sacked.trim(ack);
            }
            if self.has(flag::RECOVERING) {
                self.progress(now, segment);
            } else if !segment.sack.as_slice().is_empty() {
                self.sacked(segment);
            }
        } else if ack == self.snd_una {
            let duplicate = segment.payload == 0
                && window == self.snd_wnd
                && self.snd_max.after(ack)
                && !segment.seq.before(self.rcv_nxt);
            // Segments that overtook each other must not take a window back; one that is the newest
            // may.
            if window > self.snd_wnd || segment.seq == self.rcv_nxt {
                received.sendable |= window > self.snd_wnd;
                self.snd_wnd = window;
            }
            if duplicate || !segment.sack.as_slice().is_empty() {
                received.sendable |= self.duplicate(now, segment, duplicate);
            }
        }
    }

    /// A segment that was sent again measures nothing (Karn), unless the peer says which of both it
    /// answers (RFC 7323, 4.1). Where losses go on and on, nothing else measures: the round trip
    /// would stay what it was before the queue was there, and the floor of rates and the timeouts
    /// with it.
    fn measured_by_stamp(&mut self, now: Now, segment: &Segment) {
        if let Some((_, echo)) = segment.stamp
            && self.has(flag::STAMPS)
        {
            let took = elapsed(now.stamp, echo);
            if STAMPED.contains(&took) {
                self.measured(took * 1000);
            }
        }
    }

    /// An acknowledgement moved forward after a loss.
    fn progress(&mut self, now: Now, segment: &Segment) {
        self.sacked(segment);
        if !self.snd_una.before(self.recovery.until) {
            self.unset(flag::RECOVERING | flag::RESENDING);
            self.recovery.since = now.time.micros();
            // Bytes that are known to be missing behind it are a new loss.
            self.look_for_loss(now);
        }
    }

    /// An acknowledgement said nothing new but that something came out of order. Says whether
    /// something is to be sent.
    fn duplicate(&mut self, now: Now, segment: &Segment, counts: bool) -> bool {
        let news = self.sacked(segment);
        // With SACK, what says nothing new is the answer to something that was sent twice. Without
        // it, duplicates may be that for a round trip after going back (RFC 6582, 3.2): one
        // go-back-N must not cause the next.
        let again = self.has(flag::RECOVERING) || self.snd_una == self.recovery.until;
        if counts
            && if self.has(flag::SACK) {
                news
            } else {
                !again
                    || elapsed(now.time.micros(), self.recovery.since) > self.rtt + 2 * self.rtt_var
            }
        {
            self.dup_acks = self.dup_acks.saturating_add(1);
        }
        if self.has(flag::RECOVERING) {
            if !self.has(flag::SACK) && self.dup_acks >= DUPLICATES {
                // The bytes that were sent again are lost as well. The flow was slowed down for
                // this loss already.
                let until = self.recovery.until;
                self.go_back(now, true);
                self.recovery.until = until.max(self.snd_una);
                return true;
            }
            return news;
        }
        news | self.look_for_loss(now)
    }

    /// Is something lost? Three duplicates, or as much known to have come behind a gap, say so.
    fn look_for_loss(&mut self, now: Now) -> bool {
        let sacked =
            self.recovery.sacked.end().map_or(0, |end| end.since(self.snd_una).max(0) as u32);
        let lost = self.dup_acks >= DUPLICATES
            || (!self.recovery.sacked.is_empty()
                && sacked > u32::from(DUPLICATES) * u32::from(self.mss));
        if lost {
            self.cnt_retransmits = self.cnt_retransmits.saturating_add(1);
            self.go_back(now, !self.has(flag::SACK) || self.recovery.sacked.is_empty());
        }
        lost
    }

    /// Resets the sender as if what is not acknowledged had not been sent: `all` of it, or what
    /// lies in the gaps.
    pub(crate) fn go_back(&mut self, now: Now, all: bool) {
        self.recovery.since = now.time.micros();
        self.rtt_sent = 0;
        self.set(flag::RECOVERING);
        self.dup_acks = 0;
        self.recovery.until = self.snd_max;
        self.recovery.resent = self.snd_una;
        self.recovery.round = self.snd_max;
        if all {
            self.set(flag::RESENDING);
            self.snd_nxt = self.snd_una;
        }
    }

    /// Notes what the peer has out of order. Says whether that was news.
    fn sacked(&mut self, segment: &Segment) -> bool {
        if !self.has(flag::SACK) {
            return false;
        }
        let mut news = false;
        for &(start, end) in segment.sack.as_slice() {
            // Blocks below the acknowledgement report duplicates (RFC 2883); blocks outside of what
            // was sent are lies.
            if start.after(self.snd_una) && end.after(start) && !end.after(self.snd_max) {
                let known = self
                    .recovery
                    .sacked
                    .runs()
                    .iter()
                    .any(|run| !run.0.after(start) && !run.1.before(end));
                news |= !known && self.recovery.sacked.insert(start, end, RUNS);
            }
        }
        // A segment that was sent for the first time after this round began has come; so what was
        // sent again before it would have, too.
        if self.has(flag::RECOVERING)
            && !self.has(flag::RESENDING)
            && let Some(end) = self.recovery.sacked.end()
            && end.since(self.recovery.round) > i32::from(DUPLICATES) * i32::from(self.mss)
        {
            self.recovery.resent = self.snd_una;
            self.recovery.round = self.snd_max;
        }
        news
    }

    #[inline]
    fn payload(&mut self, segment: &Segment, received: &mut Received) {
        self.echo(segment);
        let end = segment.seq + segment.payload;
        // Payload behind the buffer's end is cut off, what came before is skipped.
        let mut edge = self.rcv_read + self.rcv_size();
        if self.has(flag::FIN_SEEN) {
            edge = edge.min(self.recovery.fin);
        }
        let start = segment.seq.max(self.rcv_nxt);
        let end = end.min(edge);
        if !end.after(start) {
            received.ack_now = true;
            return;
        }
        let place = Place {
            to: RingRange { start: self.rcv_at(start), len: end.distance(start) },
            skip: start.distance(segment.seq),
            ahead: start.distance(self.rcv_nxt),
        };
        if start == self.rcv_nxt {
            self.rcv_nxt = end;
            if !self.recovery.came.is_empty() {
                while let Some(end) = self.recovery.came.take_through(self.rcv_nxt) {
                    self.rcv_nxt = self.rcv_nxt.max(end);
                }
                // The peer is repairing something and wants to know at once.
                received.ack_now = true;
            }
            received.readable = self.rcv_nxt.distance(start);
            received.place = Some(place);
            // (The second at the latest is acknowledged at once, also where the wire has joined the
            // two.)
            let single = segment.payload <= u32::from(self.mss);
            received.waits = self.may_wait() && !received.ack_now && single;
            if !received.waits {
                self.set(flag::ACK_DUE);
            }
        } else {
            received.ack_now = true;
            let limit = if self.has(flag::SACK) { RUNS } else { 1 };
            if self.recovery.came.insert(start, end, limit) {
                self.recovery.newest = start;
                received.place = Some(place);
            }
        }
    }

    /// Of what [`receive`](Self::receive) has given `place` only the first `taken` bytes were
    /// taken: the others have not come, and `received` says so from now on. Bytes that had come
    /// early behind them, and would be in order with them, have not come either. (Nothing of it was
    /// acknowledged. Bytes that were only named as received may be given up: RFC 2018, 8.)
    #[cold]
    pub(crate) fn takes_less(&mut self, received: &mut Received, place: Place, taken: u32) {
        received.ack_now = true;
        received.waits = false;
        if received.readable > 0 {
            self.rcv_nxt = self.rcv_nxt - received.readable + taken;
            received.readable = taken;
        } else {
            let start = self.rcv_nxt + place.ahead;
            self.recovery.came.remove(start + taken, start + place.to.len);
        }
    }

    /// With exact echoes, the acknowledgement that is due has to go out before `segment` is
    /// handled: it stands for segments that were all marked, or all not (RFC 8257, 3.2).
    #[inline]
    pub fn must_acknowledge_before(&self, segment: &Segment) -> bool {
        self.has(flag::ECN_EXACT)
            && (self.has(flag::ACK_DUE) || self.is_waiting())
            && segment.payload > 0
            && segment.marked != self.has(flag::ECHO)
    }

    /// Congestion experienced: to be told to the peer.
    #[inline]
    fn echo(&mut self, segment: &Segment) {
        if !self.has(flag::ECN) {
            return;
        }
        if segment.marked {
            self.set(flag::ECHO);
        } else if self.has(flag::ECN_EXACT) || segment.flags.any(Flags::CWR) {
            self.unset(flag::ECHO);
        }
    }

    /// The runs that came out of order, the newest first (RFC 2018, 4).
    pub(super) fn report(&self, blocks: &mut Blocks) {
        let newest = self.recovery.newest;
        let runs = self.recovery.came.runs();
        // With timestamps there is room for three.
        let room = if self.has(flag::STAMPS) { 3 } else { 4 };
        let first =
            runs.iter().position(|run| !newest.before(run.0) && newest.before(run.1)).unwrap_or(0);
        for at in (0..runs.len().min(room)).map(|n| (first + n) % runs.len()) {
            blocks.push(runs[at].0, runs[at].1);
        }
    }
}
