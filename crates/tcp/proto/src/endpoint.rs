//! The whole: it owns the flows, finds the one a segment is for, lets the fast path handle it, and hands the rest to the slow path.
//!
//! Segments go in one by one ([`Endpoint::segment`]); what they cause goes out at once where each answer counts, and else in
//! [`Endpoint::poll`], which a caller calls after each batch, and whenever the moment has come that it named.

use crate::actions::{Actions, Event, FlowId, Refusal};
use crate::apps::Apps;
use crate::config::{Config, Limits};
use crate::conn::{Conn, NONE, State, Timer, Totals};
use crate::flow::{Exception, Flow, PACING_TICK, Received, Terms, Transmit, flag};
use crate::listeners::Listeners;
use crate::segment::{Segment, Tuple};
use crate::seq::Seq;
use crate::table::Table;
use crate::time::{Nanos, Now, Time};
use crate::wheel::Wheel;
use core::net::Ipv4Addr;
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;

/// Ticks of the slow path's wheel: 65 us. Control intervals are 100 us at the least.
const CONTROL_TICK: u32 = 16;
/// Where the interval is chosen, it is kept to an eighth.
const CONTROL_PART: u32 = 3;

/// What a connection is like, for those who look at it from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its ends.
    pub tuple: Tuple,
    /// Its state.
    pub state: State,
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

/// What happened to segments that belong to no connection, and what was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// SYNs answered by a cookie.
    pub cookies_sent: u64,
    /// Cookies that came back.
    pub cookies_accepted: u64,
    /// SYNs dropped because too many wait to be accepted, or no slot or allowance was left.
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
pub struct Endpoint {
    pub(crate) config: Config,
    pub(crate) key: SipHasher13,
    pub(crate) flows: Box<[Flow]>,
    pub(crate) conns: Box<[Conn]>,
    pub(crate) free: Vec<u32>,
    pub(crate) table: Table,
    pub(crate) timers: Wheel,
    pub(crate) pacing: Wheel,
    /// Flows that may have something to send; each at most once.
    ready: VecDeque<u32>,
    pub(crate) listeners: Listeners,
    pub(crate) apps: Apps,
    pub(crate) counters: Counters,
    /// The oldest and the newest in TIME_WAIT.
    pub(crate) time_wait: (u32, u32),
    pub(crate) next_port: u32,
}

impl Endpoint {
    /// With all the memory that it will ever use, but for listeners.
    pub fn new(config: Config) -> Endpoint {
        let nobody = Terms {
            tuple: Tuple {
                local_ip: Ipv4Addr::UNSPECIFIED,
                local_port: 0,
                peer_ip: Ipv4Addr::UNSPECIFIED,
                peer_port: 0,
            },
            route: 0,
            app: 0,
            generation: 0,
            opaque: 0,
            context: 0,
            iss: Seq(0),
            irs: Seq(0),
            rcv_bits: 6,
            snd_bits: 6,
            rcv_shift: 0,
            snd_shift: 0,
            mss: 0,
            flags: 0,
            ts_recent: 0,
            window: 0,
        };
        let capacity = config.flows;
        // Each use of the secret has a key of its own.
        let master = SipHasher13::new_with_key(&config.secret);
        let derive = |what: &[u8]| {
            SipHasher13::new_with_keys(master.hash(what), master.hash(&[what, b"2"].concat()))
        };
        Endpoint {
            key: derive(b"numbers"),
            flows: (0..capacity).map(|_| Flow::new(&nobody)).collect(),
            conns: (0..capacity).map(|_| Conn::empty(nobody)).collect(),
            free: (0..capacity as u32).rev().collect(),
            table: Table::new(capacity, derive(b"table")),
            timers: Wheel::new(capacity, control_tick(&config)),
            pacing: Wheel::new(capacity, PACING_TICK),
            ready: VecDeque::with_capacity(capacity),
            listeners: Listeners::new(),
            apps: Apps::new(config.apps),
            counters: Counters::default(),
            time_wait: (NONE, NONE),
            next_port: 0,
            config,
        }
    }

    pub(crate) fn now(&self, time: Time) -> Now {
        Now::new(time, self.config.stamp_offset)
    }

    pub(crate) fn id(&self, slot: u32) -> FlowId {
        FlowId { slot, generation: self.flows[slot as usize].generation }
    }

    /// The slot of `flow`, if the application may still name it.
    pub(crate) fn slot(&self, flow: FlowId) -> Result<usize, Refusal> {
        let slot = flow.slot as usize;
        let state = self.flows.get(slot).ok_or(Refusal::NoSuchFlow)?;
        let over = || matches!(self.conns[slot].state, State::Closed | State::TimeWait);
        if state.generation != flow.generation || (!state.has(flag::FAST) && over()) {
            return Err(Refusal::NoSuchFlow);
        }
        Ok(slot)
    }

    /// The slot of the connection between these ends.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<u32> {
        self.table.find(tuple, |slot| self.flows[slot as usize].tuple() == *tuple)
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
        let flow = &mut self.flows[slot as usize];
        if flow.must_acknowledge_before(segment) {
            let answer = flow.acknowledge(now);
            out.send(Some(self.id(slot)), &answer);
        }
        match self.flows[slot as usize].receive(now, segment) {
            Ok(received) => self.received(now, slot, &received, out),
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
        received: &Received,
        out: &mut impl Actions,
    ) {
        let id = self.id(slot);
        if received.readable > 0
            && !self.flows[slot as usize].has(flag::FAST)
            && self.conns[slot as usize].app_closed
        {
            // Nobody will read it: the peer has to know (RFC 1122, 4.2.2.13).
            return self.reset(now, slot, Some(crate::actions::Reason::Unread), true, out);
        }
        if let Some(place) = received.place {
            out.place(id, place);
        }
        if received.readable > 0 {
            out.event(id, Event::Readable(received.readable));
        }
        if received.acked > 0 {
            out.event(id, Event::Acked(received.acked));
        }
        let flow = &mut self.flows[slot as usize];
        if flow.has(flag::FIN_SEEN | flag::FIN_QUEUED) && self.fins(now, slot, out) {
            return;
        }
        let flow = &mut self.flows[slot as usize];
        if received.ack_now {
            let answer = flow.acknowledge(now);
            out.send(Some(id), &answer);
        } else if received.late {
            self.challenge(now, slot, false, out);
        }
        let flow = &mut self.flows[slot as usize];
        if received.sendable || flow.has(flag::ACK_DUE) {
            self.ready(slot);
        }
    }

    /// It may have something to send.
    #[inline]
    pub(crate) fn ready(&mut self, slot: u32) {
        let flow = &mut self.flows[slot as usize];
        if !flow.has(flag::READY) {
            flow.set(flag::READY);
            self.ready.push_back(slot);
        }
    }

    /// Does what is due: timers, and up to `budget` segments of flows that have something to send. Says when to call again: at once
    /// (`time`) if the budget was used up, and not before something happens if there is nothing to wait for.
    pub fn poll(&mut self, time: Time, budget: usize, out: &mut impl Actions) -> Option<Time> {
        let now = self.now(time);
        while let Some(slot) = self.timers.pop(time.0) {
            self.timer(now, slot, out);
        }
        while let Some(slot) = self.pacing.pop(time.0) {
            self.ready(slot);
        }
        let mut left = budget;
        while left > 0
            && let Some(slot) = self.ready.pop_front()
        {
            self.flows[slot as usize].unset(flag::READY);
            left -= self.drain(now, slot, left, out).min(left);
        }
        if !self.ready.is_empty() {
            return Some(time);
        }
        [self.timers.next_due(), self.pacing.next_due()]
            .into_iter()
            .flatten()
            .min()
            .map(|due| Time(due).max(time))
    }

    /// Sends what this flow may send, at most its turn. Says how many segments that were.
    fn drain(&mut self, now: Now, slot: u32, left: usize, out: &mut impl Actions) -> usize {
        let index = slot as usize;
        let id = self.id(slot);
        let turn = left.min(self.config.turn as usize);
        let most = self.config.most;
        let mut sent = 0;
        let silent = |conn: &Conn| {
            use State::{Closed, SynReceived, SynSent, TimeWait};
            matches!(conn.state, Closed | SynSent | SynReceived | TimeWait)
        };
        if self.flows[index].has(flag::FAST) || !silent(&self.conns[index]) {
            loop {
                if sent == turn {
                    self.ready(slot);
                    break;
                }
                let flow = &mut self.flows[index];
                if let Some(wait) = self.apps.wait(flow.app, now.time) {
                    self.pacing.set(slot, wait.0);
                    break;
                }
                match flow.transmit(now, most) {
                    Transmit::Segment(segment) => {
                        let app = flow.app;
                        self.apps.sent(app, now.time, segment.payload.len);
                        out.send(Some(id), &segment);
                        sent += 1;
                    }
                    Transmit::Wait(until) => {
                        self.pacing.set(slot, until.0);
                        break;
                    }
                    Transmit::Nothing => break,
                    Transmit::Closed => {
                        self.persist(now, slot);
                        break;
                    }
                }
            }
            if sent > 0 {
                self.watch(now, slot);
            }
        }
        let flow = &mut self.flows[index];
        if flow.has(flag::ACK_DUE) {
            let answer = flow.acknowledge(now);
            out.send(Some(id), &answer);
            sent += 1;
        }
        sent
    }

    /// Something is on the way: its acknowledgement is looked for from now on.
    #[inline]
    fn watch(&mut self, now: Now, slot: u32) {
        let flow = &mut self.flows[slot as usize];
        if flow.has(flag::WATCHED) {
            return;
        }
        flow.set(flag::WATCHED);
        let conn = &mut self.conns[slot as usize];
        if conn.due(Timer::Persist) != Time::NEVER {
            conn.set_due(Timer::Persist, Time::NEVER);
            conn.tries = 0;
        }
        if conn.due(Timer::Control) == Time::NEVER {
            let flow = &mut self.flows[slot as usize];
            conn.stalled = (flow.snd_una, now.time, 0);
            conn.last_control = now.time;
            let due = now.time + self.interval(slot);
            self.arm(slot, Timer::Control, due);
        }
    }

    /// Two round trips (TAS, 3.2.2).
    pub(crate) fn interval(&self, slot: u32) -> Nanos {
        if let Some(interval) = self.config.control {
            return interval;
        }
        let rtt = u64::from(self.flows[slot as usize].rtt) * 1000;
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

    /// What the application may use from now on; connections that it has stay.
    pub fn set_limits(&mut self, app: u16, limits: Limits) -> Result<(), Refusal> {
        self.apps.set_limits(app, limits)
    }

    /// The connections of an application and the bytes of their buffers.
    pub fn usage(&self, app: u16) -> (u32, u64) {
        self.apps.usage(app)
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
        (self.timers.len(), self.pacing.len())
    }

    /// The flow itself: for the fast path's functions, and for a look.
    pub fn flow(&mut self, flow: FlowId) -> Result<&mut Flow, Refusal> {
        let slot = self.slot(flow)?;
        Ok(&mut self.flows[slot])
    }

    /// The connection between these ends, whatever its state.
    pub fn state_of(&self, tuple: &Tuple) -> State {
        self.find(tuple).map_or(State::Closed, |slot| self.conns[slot as usize].state)
    }

    /// The connection's state.
    pub fn state(&self, flow: FlowId) -> State {
        match self.flows.get(flow.slot as usize) {
            Some(state) if state.generation == flow.generation => {
                self.conns[flow.slot as usize].state
            }
            _ => State::Closed,
        }
    }

    /// What a segment of the peer's would have: the number that we expect, what it would acknowledge if it had everything, its latest stamp.
    /// For tests that forge such segments.
    pub fn expected(&self, flow: FlowId) -> Option<(Seq, Seq, u32)> {
        let flow = &self.flows[self.slot(flow).ok()?];
        Some((flow.rcv_nxt, flow.snd_max, flow.ts_recent))
    }

    /// What the connection is like.
    pub fn info(&self, flow: FlowId) -> Result<Info, Refusal> {
        let slot = self.slot(flow)?;
        let (flow, conn) = (&self.flows[slot], &self.conns[slot]);
        Ok(Info {
            tuple: flow.tuple(),
            state: conn.state,
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
            totals: Totals {
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
