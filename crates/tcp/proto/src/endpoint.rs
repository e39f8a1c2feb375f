//! The whole: a [`Lane`] of the fast path and the slow path over the same flows. Alone it is all
//! there is; beside lanes on other threads it is the slow path.
//!
//! Segments go in one by one ([`Endpoint::segment`]); what they cause goes out at once where each
//! answer counts, and else in [`Endpoint::poll`], which a caller calls after each batch, and
//! whenever the moment has come that it named.

use crate::actions::{Actions, FlowId, Refusal};
use crate::apps::Apps;
use crate::config::{Config, Limits};
use crate::congestion::Algorithm;
use crate::conn::{Conn, NONE, State, Timer, Totals};
use crate::flow::{Exception, Flow, Received, Terms, flag};
use crate::flows::{Flows, Own};
use crate::lane::{Lane, Left};
use crate::listeners::Listeners;
use crate::segment::{Segment, Tuple};
use crate::seq::Seq;
use crate::time::{Nanos, Now, Time};
use crate::wheel::Wheel;
use siphasher::sip::SipHasher13;

/// Ticks of the slow path's wheel: 65 us. Control intervals are 100 us at the least.
const CONTROL_TICK: u32 = 16;
/// Where the interval is chosen, it is kept to an eighth.
const CONTROL_PART: u32 = 3;

/// The state of a connection, for those who look at it from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its ends.
    pub tuple: Tuple,
    /// Its state.
    pub state: State,
    /// How it slows down.
    pub algorithm: Algorithm,
    /// The round trip and its variation in microseconds.
    pub rtt: (u32, u32),
    /// The payload of a full segment.
    pub mss: u16,
    /// Bytes that may be on the way.
    pub window: u32,
    /// Bytes a second, where there is a rate.
    pub rate: Option<u64>,
    /// Bytes on the way.
    pub in_flight: u32,
    /// The peer's window.
    pub peer_window: u32,
    /// Bytes not read, and not acknowledged.
    pub unread: u32,
    /// See [`unread`](Self::unread).
    pub unacked: u32,
    /// Agreed on: timestamps, SACK, ECN.
    pub agreed: (bool, bool, bool),
    /// Counts since the beginning.
    pub totals: Totals,
}

/// Counts of segments that belong to no connection, and of refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SYNs answered by a cookie.
    pub cookies_sent: u64,
    /// Cookies that came back.
    pub cookies_accepted: u64,
    /// SYNs dropped because too many wait to be accepted or no slot was left, or refused because
    /// the application has as many connections as it may.
    pub refused: u64,
    /// Segments for nobody.
    pub strangers: u64,
    /// Answers to something out of place.
    pub challenges: u64,
}

fn control_tick(config: &Config) -> u32 {
    config.control.map_or(CONTROL_TICK, |interval| {
        interval.max(1).ilog2().saturating_sub(CONTROL_PART).min(CONTROL_TICK)
    })
}

/// See the [module's documentation](self).
pub struct Endpoint<F = Own> {
    pub(crate) config: Config,
    pub(crate) key: SipHasher13,
    pub(crate) lane: Lane<F>,
    pub(crate) conns: Box<[Conn]>,
    pub(crate) free: Vec<u32>,
    pub(crate) timers: Wheel,
    pub(crate) listeners: Listeners,
    pub(crate) apps: Apps,
    pub(crate) counters: Counters,
    /// Connections that are half open, of all listeners.
    pub(crate) half_open: usize,
    /// Until then a SYN cookie may come back. [`Time::NEVER`]: none is out.
    pub(crate) cookies_until: Time,
    /// The oldest and the newest in TIME_WAIT.
    pub(crate) time_wait: (u32, u32),
    pub(crate) next_port: u32,
}

impl Endpoint {
    /// With all the memory that it will ever use, but for listeners.
    pub fn new(config: Config) -> Endpoint {
        let flows = Own::new(&config);
        Endpoint::over(config, flows)
    }

    /// The flow itself: for the fast path's functions, and for a look.
    pub fn flow(&mut self, flow: FlowId) -> Result<&mut Flow, Refusal> {
        let slot = self.slot(flow)?;
        Ok(self.lane.flows.at(slot as u32))
    }
}

impl<F: Flows> Endpoint<F> {
    /// Over `flows` that others may use too: then it is the slow path, and what it does with a flow
    /// is done under that flow's lock until [`leave`](Self::leave).
    pub fn over(config: Config, flows: F) -> Endpoint<F> {
        let capacity = config.flows;
        Endpoint {
            key: config.key(b"numbers"),
            lane: Lane::new(&config, flows),
            conns: (0..capacity).map(|_| Conn::empty(Terms::NOBODY)).collect(),
            free: (0..capacity as u32).rev().collect(),
            timers: Wheel::new(capacity, control_tick(&config)),
            listeners: Listeners::new(),
            apps: Apps::new(config.apps),
            counters: Counters::default(),
            half_open: 0,
            cookies_until: Time::NEVER,
            time_wait: (NONE, NONE),
            next_port: 0,
            config,
        }
    }

    pub(crate) fn now(&self, time: Time) -> Now {
        self.lane.now(time)
    }

    pub(crate) fn id(&mut self, slot: u32) -> FlowId {
        self.lane.id(slot)
    }

    /// The slot of `flow`, if the application may still name it.
    pub(crate) fn slot(&mut self, flow: FlowId) -> Result<usize, Refusal> {
        let slot = flow.slot as usize;
        if slot >= self.conns.len() {
            return Err(Refusal::NoSuchFlow);
        }
        let state = self.lane.flows.at(flow.slot);
        let over = || matches!(self.conns[slot].state, State::Closed | State::TimeWait);
        if state.generation != flow.generation || (!state.has(flag::FAST) && over()) {
            return Err(Refusal::NoSuchFlow);
        }
        Ok(slot)
    }

    /// The slot of the connection between these ends.
    pub(crate) fn find(&mut self, tuple: &Tuple) -> Option<u32> {
        self.lane.find(tuple)
    }

    /// Lets go of the flow that is held. To be called after each use where others use the flows
    /// too.
    pub fn leave(&mut self) {
        self.lane.flows.leave();
    }

    /// A segment arrived by `route`. False if it is for nobody here (it may be the kernel's).
    #[inline]
    pub fn segment(
        &mut self,
        time: Time,
        route: u16,
        segment: &Segment,
        out: &mut impl Actions,
    ) -> bool {
        let now = self.now(time);
        let Some(slot) = self.find(&segment.tuple) else {
            return self.stranger(now, route, segment, out);
        };
        match self.lane.receive(now, slot, segment, out) {
            Ok(received) => self.received(now, slot, received, out),
            Err(exception) => self.exception(now, slot, route, segment, exception, out),
        }
        true
    }

    /// Tells what a segment did.
    #[inline]
    pub(crate) fn received(
        &mut self,
        now: Now,
        slot: u32,
        mut received: Received,
        out: &mut impl Actions,
    ) {
        if received.readable > 0
            && !self.lane.flows.at(slot).has(flag::FAST)
            && self.conns[slot as usize].app_closed
        {
            // Nobody will read it: the peer has to know (RFC 1122, 4.2.2.13).
            return self.reset(now, slot, Some(crate::actions::ResetReason::Unread), true, out);
        }
        self.lane.tell(slot, &mut received, out);
        if self.lane.flows.at(slot).has(flag::FIN_SEEN | flag::FIN_QUEUED)
            && self.fins(now, slot, out)
        {
            return;
        }
        let left = self.lane.answer(now, slot, &received, out);
        self.left(now, slot, left, out);
    }

    /// It may have something to send.
    #[inline]
    pub(crate) fn ready(&mut self, slot: u32) {
        let flow = self.lane.flows.at(slot);
        if flow.has(flag::READY) {
            return;
        }
        flow.set(flag::READY);
        // A segment that is not the fast path's no other lane would send.
        if !(flow.has(flag::FAST) && self.lane.flows.wake(slot)) {
            self.lane.ready.push_back(slot);
        }
    }

    /// Does what is due: timers, and up to `budget` segments of flows that have something to send.
    /// Says when to call again: at once
    /// (`time`) if the budget was used up, and not before something happens if there is nothing to
    /// wait for.
    pub fn poll(&mut self, time: Time, budget: usize, out: &mut impl Actions) -> Option<Time> {
        let now = self.now(time);
        while let Some(slot) = self.timers.pop(time.0) {
            self.timer(now, slot, out);
        }
        if self.cookies_until <= time {
            self.cookies_until = Time::NEVER;
            self.lane.flows.cookies(false);
        }
        self.lane.come_due(time);
        while let Some(slot) = self.lane.next_unwatched(time) {
            self.attend(time, slot, Left::WATCH, out);
        }
        let mut room = budget;
        while room > 0
            && let Some(slot) = self.lane.ready.pop_front()
        {
            use State::{Closed, SynReceived, SynSent, TimeWait};
            let flow = self.lane.flows.at(slot);
            flow.unset(flag::READY);
            let data = flow.has(flag::FAST)
                || !matches!(
                    self.conns[slot as usize].state,
                    Closed | SynSent | SynReceived | TimeWait
                );
            let (sent, left) = self.lane.drain(now, slot, room, data, out);
            room -= sent.min(room);
            self.left(now, slot, left, out);
        }
        if !self.lane.ready.is_empty() {
            return Some(time);
        }
        let cookies = Some(self.cookies_until).filter(|&until| until != Time::NEVER);
        [self.timers.next_due().map(Time), self.lane.next_due(), cookies]
            .into_iter()
            .flatten()
            .min()
            .map(|due| due.max(time))
    }

    /// Does what a [`Lane`] left of a flow. (The cause may be over by now: then nothing happens, or
    /// nothing that matters.)
    pub fn attend(&mut self, time: Time, slot: u32, left: Left, out: &mut impl Actions) {
        if !matches!(self.conns[slot as usize].state, State::Closed | State::TimeWait) {
            let now = self.now(time);
            self.left(now, slot, left, out);
        }
    }

    #[inline]
    fn left(&mut self, now: Now, slot: u32, left: Left, out: &mut impl Actions) {
        if left == Left::NOTHING {
            return;
        }
        if left.any(Left::WATCH) {
            self.watch(now, slot);
        }
        if left.any(Left::CLOSED) {
            self.persist(now, slot);
        }
        if left.any(Left::LATE) {
            self.challenge(now, slot, false, out);
        }
        if left.any(Left::SEND) {
            self.ready(slot);
        }
        if left.any(Left::FINS) {
            self.fins(now, slot, out);
        }
    }

    /// Something is on the way: its acknowledgement is looked for from now on.
    #[inline]
    fn watch(&mut self, now: Now, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        if conn.due(Timer::Persist) != Time::NEVER {
            conn.set_due(Timer::Persist, Time::NEVER);
            conn.tries = 0;
        }
        if conn.due(Timer::Control) == Time::NEVER {
            let flow = self.lane.flows.at(slot);
            conn.stalled = (flow.snd_una, now.time, 0);
            conn.last_control = now.time;
            // Bytes that were acknowledged before nobody looked belong to no interval.
            let acked = flow.snd_una.min(flow.snd_end);
            conn.totals.acked += u64::from(acked.distance(conn.counted));
            conn.counted = acked;
            let interval = self.interval(slot);
            let due = self.together(now.time + interval, interval);
            self.arm(slot, Timer::Control, due);
        }
    }

    /// When a look is due that is to come at `due`, an interval from now: an eighth of that later
    /// at most, so that many flows are looked at together. Else the slow path would wake for each.
    pub(crate) fn together(&self, due: Time, interval: Nanos) -> Time {
        if self.config.control.is_some() {
            return due;
        }
        let step = 1u64 << (interval >> CONTROL_PART).max(1).ilog2();
        Time(due.0.next_multiple_of(step))
    }

    /// Two round trips (TAS, 3.2.2).
    pub(crate) fn interval(&mut self, slot: u32) -> Nanos {
        if let Some(interval) = self.config.control {
            return interval;
        }
        let rtt = u64::from(self.lane.flows.at(slot).rtt) * 1000;
        (2 * rtt).max(self.config.control_min)
    }

    /// Sets one of a connection's timers; [`Time::NEVER`] stops it.
    pub(crate) fn arm(&mut self, slot: u32, timer: Timer, due: Time) {
        self.conns[slot as usize].set_due(timer, due);
        self.rearm(slot);
    }

    /// Puts the earliest of a connection's deadlines into the wheel.
    pub(crate) fn rearm(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        let first = conn.first_due();
        if first == Time::NEVER {
            self.timers.clear(slot);
        } else if first != conn.armed {
            self.timers.set(slot, first.0);
        }
        conn.armed = first;
    }

    /// Sets what the application may use from now on; connections that it has stay.
    pub fn set_limits(&mut self, app: u16, limits: Limits) -> Result<(), Refusal> {
        self.apps.set_limits(app, limits)?;
        self.lane.flows.rates().set(app, limits.rate);
        Ok(())
    }

    /// The connections of an application and the bytes of their buffers.
    pub fn usage(&self, app: u16) -> (u32, u64) {
        self.apps.usage(app)
    }

    /// Connections that an application did not get, since that was asked last, because it has as
    /// many as it may.
    pub fn take_refused(&mut self, app: u16) -> u64 {
        self.apps.take_refused(app)
    }

    /// Counts of what belongs to no connection.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Slots in use, those in TIME_WAIT among them.
    pub fn used(&self) -> usize {
        self.config.flows - self.free.len()
    }

    /// Deadlines that are set: connections' timers, and flows that wait for their rate.
    pub fn deadlines(&self) -> (usize, usize) {
        (self.timers.len(), self.lane.pacing.len())
    }

    /// The connection between these ends, whatever its state.
    pub fn state_of(&mut self, tuple: &Tuple) -> State {
        self.find(tuple).map_or(State::Closed, |slot| self.conns[slot as usize].state)
    }

    /// The connection between these ends that is established, or was.
    pub fn flow_of(&mut self, tuple: &Tuple) -> Option<FlowId> {
        let slot = self.find(tuple)?;
        Some(FlowId { slot, generation: self.lane.flows.at(slot).generation })
    }

    /// The connection's state.
    pub fn state(&mut self, flow: FlowId) -> State {
        let Some(conn) = self.conns.get(flow.slot as usize) else { return State::Closed };
        let same = self.lane.flows.at(flow.slot).generation == flow.generation;
        if same { conn.state } else { State::Closed }
    }

    /// The numbers that a segment of the peer's would have: the one that we expect, what it would
    /// acknowledge if it had everything, its latest stamp. For tests that forge such segments.
    pub fn expected(&mut self, flow: FlowId) -> Option<(Seq, Seq, u32)> {
        let slot = self.slot(flow).ok()?;
        let flow = self.lane.flows.at(slot as u32);
        Some((flow.rcv_nxt, flow.snd_max, flow.ts_recent))
    }

    /// The connection's segments go this way from now on.
    pub fn reroute(&mut self, flow: FlowId, route: u16) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        self.conns[slot].terms.route = route;
        self.lane.flows.at(slot as u32).route = route;
        Ok(())
    }

    /// The state of the connection.
    pub fn info(&mut self, flow: FlowId) -> Result<Info, Refusal> {
        let slot = self.slot(flow)?;
        let (flow, conn) = (self.lane.flows.at(slot as u32), &self.conns[slot]);
        Ok(Info {
            tuple: flow.tuple(),
            state: conn.state,
            algorithm: conn.options.algorithm,
            rtt: (flow.rtt, flow.rtt_var),
            mss: flow.mss,
            window: flow.cwnd,
            rate: (flow.pace != 0)
                .then(|| ((1u128 << 20) * 1_000_000_000 / u128::from(flow.pace)) as u64),
            in_flight: flow.in_flight(),
            peer_window: flow.snd_wnd,
            unread: flow.unread(),
            unacked: flow.unacked(),
            agreed: (flow.has(flag::STAMPS), flow.has(flag::SACK), flow.has(flag::ECN)),
            // (With what the fast path has counted since the slow path looked.)
            totals: Totals {
                acked: conn.totals.acked
                    + u64::from(flow.snd_una.min(flow.snd_end).distance(conn.counted)),
                marked: conn.totals.marked + u64::from(flow.cnt_marked),
                fast_retransmits: conn.totals.fast_retransmits + u32::from(flow.cnt_retransmits),
                ..conn.totals
            },
        })
    }

    /// See [`crate::slow`].
    fn exception(
        &mut self,
        now: Now,
        slot: u32,
        route: u16,
        segment: &Segment,
        exception: Exception,
        out: &mut impl Actions,
    ) {
        match self.conns[slot as usize].state {
            State::SynSent => self.syn_sent(now, slot, segment, out),
            State::SynReceived => self.syn_received(now, slot, segment, out),
            State::TimeWait | State::Closed => self.in_time_wait(now, slot, route, segment, out),
            _ => self.synchronized(now, slot, segment, exception, out),
        }
    }
}
