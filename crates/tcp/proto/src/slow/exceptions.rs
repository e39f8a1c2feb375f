//! Segments that an established connection does not expect; and resets, ours and theirs (RFC 5961).

use crate::actions::{Actions, Event, ResetReason};
use crate::conn::State;
use crate::endpoint::Endpoint;
use crate::flow::{Exception, flag};
use crate::flows::Flows;
use crate::segment::{Blocks, Flags, Outgoing, RingRange, Segment};
use crate::seq::Seq;
use crate::time::{MILLISECOND, Nanos, Now, elapsed};

/// Answers to segments without payload that are out of place have this distance, or two peers that
/// disagree would answer each other for ever. Linux's `tcp_invalid_ratelimit`.
const CHALLENGE_INTERVAL: Nanos = 500 * MILLISECOND;

/// A peer that was silent for so long (24 days, in milliseconds) may have a clock that went half
/// around (RFC 7323, 5.5).
const STAMP_LIFE: u32 = 24 * 24 * 3600 * 1000;

impl<F: Flows> Endpoint<F> {
    /// Handles a segment of an established (or half-closed) connection that the fast path did not
    /// want.
    pub(crate) fn synchronized(
        &mut self,
        now: Now,
        slot: u32,
        segment: &Segment,
        exception: Exception,
        out: &mut impl Actions,
    ) {
        let flags = segment.flags;
        if flags.any(Flags::RST) {
            return self.reset_came(now, slot, segment, out);
        }
        if flags.any(Flags::SYN) {
            // Either an old duplicate or a peer that has restarted: then it will reset what our
            // answer is about.
            return self.challenge(now, slot, false, out);
        }
        if !flags.any(Flags::ACK) {
            return;
        }
        let flow = self.lane.flows.at(slot);
        let result = match exception {
            Exception::Flags | Exception::NotEstablished => flow.data(now, segment),
            other => Err(other),
        };
        let mut received = match result {
            Ok(received) => received,
            Err(Exception::OldStamp) if elapsed(now.stamp, flow.heard) > STAMP_LIFE => {
                flow.ts_recent = segment.stamp.map_or(0, |(value, _)| value);
                match flow.data(now, segment) {
                    Ok(received) => received,
                    Err(_) => return self.challenge(now, slot, segment.payload > 0, out),
                }
            }
            Err(_) => return self.challenge(now, slot, segment.payload > 0, out),
        };
        if flags.any(Flags::FIN) {
            let flow = self.lane.flows.at(slot);
            let fin = segment.seq + segment.payload;
            // One that lies before what came, or behind what there is room for, is none (yet).
            let edge = flow.rcv_read + flow.rcv_size();
            let beyond = flow.recovery.came.end().is_some_and(|end| end.after(fin));
            if !flow.has(flag::FIN_SEEN) && !fin.before(flow.rcv_nxt) && !fin.after(edge) && !beyond
            {
                flow.set(flag::FIN_SEEN);
                flow.recovery.fin = fin;
            }
            received.ack_now = true;
        }
        self.received(now, slot, received, out);
    }

    /// Says where we are, to a peer that seems not to know it.
    pub(crate) fn challenge(&mut self, now: Now, slot: u32, payload: bool, out: &mut impl Actions) {
        let conn = &mut self.conns[slot as usize];
        if !payload {
            if conn.challenged.0 != 0 && now.time.since(conn.challenged) < CHALLENGE_INTERVAL {
                return;
            }
            conn.challenged = now.time;
        }
        self.counters.challenges += 1;
        let answer = self.lane.flows.at(slot).acknowledge(now);
        out.send(Some(self.id(slot)), &answer);
    }

    /// The peer ends the connection, if it is the peer: only the very next number is believed (RFC
    /// 5961, 3.2).
    fn reset_came(&mut self, now: Now, slot: u32, segment: &Segment, out: &mut impl Actions) {
        let flow = self.lane.flows.at(slot);
        let ahead = segment.seq.since(flow.rcv_nxt);
        // After our FIN and the peer's: its RST may have the number before or behind it.
        let closing = flow.has(flag::FIN_SEEN) && ahead == -1;
        if (ahead == 0 || closing)
            && flow.has(flag::FIN_SEEN)
            && flow.has(flag::FIN_QUEUED)
            && flow.unacked() == 0
        {
            // Everything arrived on both sides; only our FIN's acknowledgement was lost, and the
            // peer has forgotten the rest.
            let id = self.id(slot);
            self.release(slot);
            out.event(id, Event::Closed);
        } else if ahead == 0 || closing {
            self.reset(now, slot, Some(ResetReason::ByPeer), false, out);
        } else if ahead > 0 && (ahead as u32) < flow.reach() {
            self.challenge(now, slot, false, out);
        }
    }

    /// Ends a connection at once: with an event if there is a reason, with RST to the peer if
    /// `tell`.
    pub(crate) fn reset(
        &mut self,
        now: Now,
        slot: u32,
        reason: Option<ResetReason>,
        tell: bool,
        out: &mut impl Actions,
    ) {
        let id = self.id(slot);
        let conn = &self.conns[slot as usize];
        // Of a half-open connection no application knows.
        let known = !conn.half_open;
        if tell && !matches!(conn.state, State::SynSent | State::Closed | State::TimeWait) {
            let segment = self.lane.flows.at(slot).reset(now);
            out.send(Some(id), &segment);
        }
        self.release(slot);
        if let (Some(reason), true) = (reason, known) {
            out.event(id, Event::Reset(reason));
        }
    }

    /// RST for a segment that belongs to no connection (RFC 9293, 3.10.7.1).
    pub(crate) fn answer_reset(&mut self, route: u16, segment: &Segment, out: &mut impl Actions) {
        if segment.flags.any(Flags::RST) {
            return;
        }
        let (seq, ack, flags) = if segment.flags.any(Flags::ACK) {
            (segment.ack, Seq(0), Flags::RST)
        } else {
            (Seq(0), segment.seq + segment.length(), Flags::RST.with(Flags::ACK))
        };
        let answer = Outgoing {
            tuple: segment.tuple,
            route,
            seq,
            ack,
            window: 0,
            flags,
            markable: false,
            stamp: None,
            sack: Blocks::default(),
            syn: None,
            payload: RingRange::default(),
            mss: 0,
        };
        out.send(None, &answer);
    }
}
