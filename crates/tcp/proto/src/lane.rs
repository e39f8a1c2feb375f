//! A core's part of the fast path (TAS, 3.2.1): it finds the flow of a segment, handles what is
//! common, and drains the flows that have something to send. It hands on what is left, and the slow
//! path attends to it ([`Endpoint::attend`](crate::Endpoint::attend)).
//!
//! An [`Endpoint`](crate::Endpoint) has one lane of its own. Beside it there may be more, each on a
//! thread of its own, over the same [`Flows`]. A flow belongs to no lane: whichever gets a segment
//! of it handles it, and sends what may be sent then (TAS, 3.2.4: this makes it unnecessary to
//! drain queues when cores come and go). It is in the ready list of one lane at a time.

use crate::actions::{Actions, Event, FlowId, Refusal};
use crate::config::Config;
use crate::flow::{Exception, PACING_TICK, Received, Transmit, flag};
use crate::flows::Flows;
use crate::segment::{Segment, Tuple};
use crate::time::{Nanos, Now, Time};
use crate::wheel::Wheel;
use std::collections::VecDeque;

/// Ticks of the wheels for what waits some milliseconds: 1 ms.
const WAITING_TICK: u32 = 20;

/// The work that the fast path leaves to the slow path, of one flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Left(u8);

impl Left {
    /// Nothing.
    pub const NOTHING: Left = Left(0);
    /// Something is on the way, and nobody looks yet whether it is acknowledged.
    pub const WATCH: Left = Left(1);
    /// The peer's window is closed, and nothing is on the way that would open it.
    pub const CLOSED: Left = Left(2);
    /// A FIN was reached, or acknowledged.
    pub const FINS: Left = Left(4);
    /// An old segment that is worth an answer, but not each time.
    pub const LATE: Left = Left(8);
    /// It may have something to send, but is not the fast path's (any more).
    pub const SEND: Left = Left(16);

    /// Has one of `other`'s.
    #[inline]
    pub const fn any(self, other: Left) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    #[inline]
    pub const fn with(self, other: Left) -> Left {
        Left(self.0 | other.0)
    }

    /// As a number, in which several may be put together.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// That of such a number.
    #[inline]
    pub const fn of(bits: u8) -> Left {
        Left(bits)
    }
}

/// See the [module's documentation](self).
pub struct Lane<F> {
    pub(crate) flows: F,
    /// Flows that may have something to send.
    pub(crate) ready: VecDeque<u32>,
    /// Flows that wait for their rate.
    pub(crate) pacing: Wheel,
    /// Flows whose acknowledgement waits.
    waiting: Wheel,
    ack_wait: Nanos,
    /// Flows that have something on the way which nobody looks at yet.
    unwatched: Wheel,
    watch_after: Nanos,
    stamp_offset: u32,
    most: u32,
    turn: usize,
}

impl<F: Flows> Lane<F> {
    /// For an endpoint of this `config`, over its `flows`.
    pub fn new(config: &Config, flows: F) -> Lane<F> {
        let capacity = flows.count();
        Lane {
            flows,
            ready: VecDeque::with_capacity(capacity),
            pacing: Wheel::new(capacity, PACING_TICK),
            waiting: Wheel::new(if config.ack_wait > 0 { capacity } else { 0 }, WAITING_TICK),
            ack_wait: config.ack_wait,
            unwatched: Wheel::new(if config.watch_after > 0 { capacity } else { 0 }, WAITING_TICK),
            watch_after: config.watch_after,
            stamp_offset: config.stamp_offset,
            most: config.most,
            turn: config.turn as usize,
        }
    }

    #[inline]
    pub(crate) fn now(&self, time: Time) -> Now {
        Now::new(time, self.stamp_offset)
    }

    /// The flows, as this lane sees them.
    pub fn flows(&mut self) -> &mut F {
        &mut self.flows
    }

    #[inline]
    pub(crate) fn id(&mut self, slot: u32) -> FlowId {
        FlowId { slot, generation: self.flows.at(slot).generation }
    }

    /// The slot of the connection between these ends. It is held.
    #[inline]
    pub(crate) fn find(&mut self, tuple: &Tuple) -> Option<u32> {
        let mut search = self.flows.table().search(tuple);
        while let Some(slot) = self.flows.table().next(&mut search) {
            if self.flows.at(slot).tuple() == *tuple {
                return Some(slot);
            }
        }
        None
    }

    /// A segment arrived. Says what of it is left; None if all of it is: the slow path's
    /// [`segment`](crate::Endpoint::segment) takes it.
    #[inline]
    pub fn segment(
        &mut self,
        time: Time,
        segment: &Segment,
        out: &mut impl Actions,
    ) -> Option<(u32, Left)> {
        let now = self.now(time);
        let slot = self.find(&segment.tuple);
        let left = slot.and_then(|slot| {
            if !self.flows.at(slot).has(flag::FAST) {
                return None;
            }
            let mut received = self.receive(now, slot, segment, out).ok()?;
            self.tell(slot, &mut received, out);
            let flow = self.flows.at(slot);
            let fins = flow.has(flag::FIN_SEEN | flag::FIN_QUEUED);
            let left = self.answer(now, slot, &received, out);
            Some((slot, if fins { left.with(Left::FINS) } else { left }))
        });
        self.flows.leave();
        left
    }

    /// Handles a segment of the flow.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        now: Now,
        slot: u32,
        segment: &Segment,
        out: &mut impl Actions,
    ) -> Result<Received, Exception> {
        let flow = self.flows.at(slot);
        if flow.must_acknowledge_before(segment) {
            let id = FlowId { slot, generation: flow.generation };
            let answer = flow.acknowledge(now);
            out.send(Some(id), &answer);
        }
        flow.receive(now, segment)
    }

    /// Tells the application what a segment did.
    #[inline]
    pub(crate) fn tell(&mut self, slot: u32, received: &mut Received, out: &mut impl Actions) {
        let id = self.id(slot);
        if let Some(place) = received.place {
            let taken = out.place(id, place);
            if taken < place.to.len {
                self.flows.at(slot).takes_less(received, place, taken);
            }
        }
        if received.readable > 0 {
            out.event(id, Event::Readable(received.readable));
        }
        if received.acked > 0 {
            out.event(id, Event::Acked(received.acked));
        }
    }

    /// Answers a segment, now or at the end of the batch.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        now: Now,
        slot: u32,
        received: &Received,
        out: &mut impl Actions,
    ) -> Left {
        let flow = self.flows.at(slot);
        let mut left = Left::NOTHING;
        if received.ack_now {
            let id = FlowId { slot, generation: flow.generation };
            let answer = flow.acknowledge(now);
            out.send(Some(id), &answer);
        } else if received.late {
            left = Left::LATE;
        }
        let ready = received.sendable || flow.has(flag::ACK_DUE);
        if received.waits && flow.is_waiting() {
            self.waiting.set(slot, (now.time + self.ack_wait).0);
        }
        if ready {
            self.ready(slot);
        }
        left
    }

    /// It may have something to send: this lane's turn, if it is in no list yet.
    #[inline]
    pub(crate) fn ready(&mut self, slot: u32) {
        let flow = self.flows.at(slot);
        if !flow.has(flag::READY) {
            flow.set(flag::READY);
            self.ready.push_back(slot);
        }
    }

    /// Somebody's [`Flows::wake`] named `slot`: it is in this lane's list from now on.
    pub fn woken(&mut self, slot: u32) {
        self.ready.push_back(slot);
    }

    /// Takes the flows whose rate allows something again into the list, and those whose
    /// acknowledgement has waited for long enough.
    #[inline]
    pub(crate) fn come_due(&mut self, time: Time) {
        while let Some(slot) = self.pacing.pop(time.0) {
            self.ready(slot);
        }
        while let Some(slot) = self.waiting.pop(time.0) {
            if self.flows.at(slot).waits_in_vain() {
                self.ready(slot);
            }
        }
    }

    /// The next flow that has had something on the way for so long that the slow path has to look.
    /// A flow whose bytes were acknowledged meanwhile, and met nothing, is passed over.
    #[inline]
    pub(crate) fn next_unwatched(&mut self, time: Time) -> Option<u32> {
        while let Some(slot) = self.unwatched.pop(time.0) {
            let flow = self.flows.at(slot);
            if flow.is_at_rest() {
                flow.unset(flag::WATCHED);
            } else {
                return Some(slot);
            }
        }
        None
    }

    /// When [`come_due`](Self::come_due) or [`next_unwatched`](Self::next_unwatched) have something
    /// next.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Time> {
        let wheels = [&self.pacing, &self.waiting, &self.unwatched];
        wheels.into_iter().filter_map(Wheel::next_due).min().map(Time)
    }

    /// Sends what is due, at most about `budget` segments; hands to `left` what remains of each
    /// flow. Says when to call again: at once
    /// (`time`) if the budget was used up, and not before something happens if there is nothing to
    /// wait for.
    pub fn poll(
        &mut self,
        time: Time,
        budget: usize,
        out: &mut impl Actions,
        mut left: impl FnMut(u32, Left),
    ) -> Option<Time> {
        let now = self.now(time);
        self.come_due(time);
        while let Some(slot) = self.next_unwatched(time) {
            self.flows.leave();
            left(slot, Left::WATCH);
        }
        let mut room = budget;
        while room > 0
            && let Some(slot) = self.ready.pop_front()
        {
            let flow = self.flows.at(slot);
            flow.unset(flag::READY);
            let rest = if flow.has(flag::FAST) {
                let (sent, rest) = self.drain(now, slot, room, true, out);
                room -= sent.min(room);
                rest
            } else {
                Left::SEND
            };
            if rest != Left::NOTHING {
                self.flows.leave();
                left(slot, rest);
            }
        }
        self.flows.leave();
        if !self.ready.is_empty() {
            return Some(time);
        }
        self.next_due().map(|due| due.max(time))
    }

    /// Sends what this flow may send, at most its turn (only an acknowledgement that is due, if it
    /// has no `data`). Says how many segments that were.
    #[inline]
    pub(crate) fn drain(
        &mut self,
        now: Now,
        slot: u32,
        room: usize,
        data: bool,
        out: &mut impl Actions,
    ) -> (usize, Left) {
        let (mut sent, mut left) =
            if data { self.stream(now, slot, room, out) } else { (0, Left::NOTHING) };
        let id = self.id(slot);
        let flow = self.flows.at(slot);
        if sent > 0 && !flow.has(flag::WATCHED) {
            flow.set(flag::WATCHED);
            if self.watch_after == 0 || flow.has(flag::LIMITED) {
                left = left.with(Left::WATCH);
            } else {
                self.unwatched.set(slot, (now.time + self.watch_after).0);
            }
        } else if self.watch_after > 0 && flow.has(flag::LIMITED) && self.unwatched.has(slot) {
            // The limit that holds it back is the slow path's to set.
            self.unwatched.clear(slot);
            left = left.with(Left::WATCH);
        }
        if flow.has(flag::ACK_DUE) {
            let answer = flow.acknowledge(now);
            out.send(Some(id), &answer);
            sent += 1;
        }
        (sent, left)
    }

    /// Data, as long as the application, its peer and congestion allow.
    #[inline]
    fn stream(
        &mut self,
        now: Now,
        slot: u32,
        room: usize,
        out: &mut impl Actions,
    ) -> (usize, Left) {
        let id = self.id(slot);
        for sent in 0..room.min(self.turn) {
            let app = self.flows.at(slot).app;
            if let Some(wait) = self.flows.rates().wait(app, now.time) {
                self.pacing.set(slot, wait.0);
                return (sent, Left::NOTHING);
            }
            let flow = self.flows.at(slot);
            let waited = flow.is_waiting();
            match flow.transmit(now, self.most) {
                Transmit::Segment(segment) => {
                    if self.ack_wait > 0 {
                        flow.answered(now, self.ack_wait);
                        if waited && self.waiting.has(slot) {
                            self.waiting.clear(slot);
                        }
                    }
                    self.flows.rates().sent(app, now.time, segment.payload.len);
                    out.send(Some(id), &segment);
                }
                Transmit::Wait(until) => {
                    self.pacing.set(slot, until.0);
                    return (sent, Left::NOTHING);
                }
                Transmit::Nothing => return (sent, Left::NOTHING),
                Transmit::Closed => return (sent, Left::CLOSED),
            }
        }
        // Another flow's turn.
        self.ready(slot);
        (room.min(self.turn), Left::NOTHING)
    }

    /// The application wrote `n` more bytes into the send buffer. [`Refusal::WrongState`]: the slow
    /// path's [`write`](crate::Endpoint::write) knows.
    #[inline]
    pub fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        let result = self.fast(flow).and_then(|()| {
            let state = self.flows.at(flow.slot);
            if state.has(flag::FIN_QUEUED) {
                return Err(Refusal::WrongState);
            }
            if !state.write(n) {
                return Err(Refusal::TooMany);
            }
            self.ready(flow.slot);
            Ok(())
        });
        self.flows.leave();
        result
    }

    /// The application took `n` bytes out of the receive buffer. As [`write`](Self::write).
    #[inline]
    pub fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        let result = self.fast(flow).and_then(|()| {
            let state = self.flows.at(flow.slot);
            if state.read(n).ok_or(Refusal::TooMany)? {
                state.set(flag::ACK_DUE);
                self.ready(flow.slot);
            }
            Ok(())
        });
        self.flows.leave();
        result
    }

    /// The application has room for so many bytes that are not read, as a power of two, from now on
    /// ([`Flow::resize`](crate::flow::Flow::resize)). Not more than
    /// [`FlowOptions::rcv_most`](crate::FlowOptions::rcv_most): windows may not be able to say it.
    #[inline]
    pub fn resize(&mut self, flow: FlowId, bits: u8) -> Result<(), Refusal> {
        let result = self.fast(flow).map(|()| {
            let state = self.flows.at(flow.slot);
            if state.resize(bits) {
                state.set(flag::ACK_DUE);
                self.ready(flow.slot);
            }
        });
        self.flows.leave();
        result
    }

    /// Bytes of `flow` that came before their turn have not come from now on: `gone` throws them
    /// away before more can come. (Nothing of it was acknowledged. Bytes that were only named as
    /// received may be given up: RFC 2018, 8.)
    pub fn forget_early(&mut self, flow: FlowId, gone: impl FnOnce()) {
        if (flow.slot as usize) < self.flows.count() {
            let state = self.flows.at(flow.slot);
            if state.generation == flow.generation {
                state.recovery.came.clear();
                gone();
            }
        }
        self.flows.leave();
    }

    /// The time that a round trip takes at least, most of the time, in microseconds: what it takes,
    /// less what that varies by. 0: it is not known.
    #[inline]
    pub fn round_trip(&mut self, flow: FlowId) -> u32 {
        let mut round_trip = 0;
        if self.fast(flow).is_ok() {
            let state = self.flows.at(flow.slot);
            round_trip = state.rtt.saturating_sub(state.rtt_var);
        }
        self.flows.leave();
        round_trip
    }

    /// Is it the fast path's?
    #[inline]
    fn fast(&mut self, flow: FlowId) -> Result<(), Refusal> {
        if flow.slot as usize >= self.flows.count() {
            return Err(Refusal::NoSuchFlow);
        }
        let state = self.flows.at(flow.slot);
        if state.generation != flow.generation {
            return Err(Refusal::NoSuchFlow);
        }
        if state.has(flag::FAST) { Ok(()) } else { Err(Refusal::WrongState) }
    }
}
