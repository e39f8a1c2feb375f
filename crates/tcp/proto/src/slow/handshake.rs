//! How connections begin: both ways, at the same time from both ends, and under a flood of SYNs.

use crate::actions::{Actions, Event, FlowId, ListenerId, Refusal, ResetReason};
use crate::config::{Connect, FlowOptions};
use crate::congestion::{Algorithm, Control};
use crate::conn::{Conn, NONE, State, Timer, backed_off};
use crate::cookie::{self, Offer};
use crate::endpoint::Endpoint;
use crate::flow::{Flow, Terms, flag};
use crate::flows::Flows;
use crate::segment::{Blocks, Flags, Outgoing, RingRange, Segment, SynOptions, Tuple};
use crate::seq::Seq;
use crate::time::{Now, SECOND, Time};
use crate::wire;

/// The first SYN's timeout (RFC 6298, 2.1).
const FIRST_TIMEOUT: u64 = SECOND;

/// The segment size of a peer that does not say (RFC 9293, 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// The larger the buffer, the coarser its window: what fits must be said in 16 bits.
fn shift_of(bits: u8) -> u8 {
    bits.saturating_sub(15).min(14)
}

impl<F: Flows> Endpoint<F> {
    /// RFC 6528: nobody outside can guess it, and it goes up for each pair of ends.
    fn initial_number(&self, now: Now, tuple: &Tuple) -> Seq {
        Seq((crate::table::hash(&self.key, tuple) >> 16) as u32) + (now.time.0 >> 6) as u32
    }

    /// The options of our SYN, of what was not refused by the peer's.
    fn offer(&self, terms: &Terms) -> SynOptions {
        SynOptions {
            mss: Some(wire::mss_of(self.config.mtu)),
            shift: (terms.rcv_shift != NO_SHIFT).then_some(terms.rcv_shift),
            sack: terms.flags & flag::SACK != 0,
        }
    }

    fn terms(&self, now: Now, tuple: Tuple, route: u16, app: u16, options: &FlowOptions) -> Terms {
        let mut flags = 0;
        let wish = [
            (self.config.stamps, flag::STAMPS),
            (self.config.sack, flag::SACK),
            (self.config.ecn && options.algorithm != Algorithm::Bbr, flag::ECN),
            (matches!(options.algorithm, Algorithm::Dctcp | Algorithm::Caller), flag::ECN_EXACT),
            (options.nagle, flag::NAGLE),
        ];
        for (wanted, flag) in wish {
            flags |= if wanted { flag } else { 0 };
        }
        Terms {
            tuple,
            route,
            app,
            generation: 0,
            opaque: options.opaque,
            context: options.context,
            iss: self.initial_number(now, &tuple),
            irs: Seq(0),
            rcv_bits: options.rcv_bits,
            snd_bits: options.snd_bits,
            rcv_shift: shift_of(options.rcv_most.unwrap_or(0).max(options.rcv_bits)),
            snd_shift: 0,
            mss: wire::mss_of(self.config.mtu),
            flags,
            ts_recent: 0,
            window: 0,
        }
    }

    /// A free slot for `terms`; the oldest in TIME_WAIT goes for it. Where the peer has answered,
    /// or is ours to ask (`comes_back`), so does one that is half open and whose peer has not
    /// answered in time.
    fn take_slot(
        &mut self,
        terms: &Terms,
        options: &FlowOptions,
        comes_back: bool,
    ) -> Result<u32, Refusal> {
        let buffers = options.buffers();
        self.apps.take(terms.app, buffers)?;
        if self.free.is_empty() && self.time_wait.0 != NONE {
            self.release(self.time_wait.0);
        }
        if self.free.is_empty() && comes_back && self.half_open > 0 {
            let silent =
                |conn: &Conn| conn.state == State::SynReceived && conn.half_open && conn.tries > 0;
            if let Some(slot) = self.conns.iter().position(silent) {
                self.release(slot as u32);
            }
        }
        let Some(slot) = self.free.pop() else {
            self.apps.give(terms.app, buffers);
            return Err(Refusal::Full);
        };
        self.conns[slot as usize] = Conn { options: *options, ..Conn::empty(*terms) };
        let flow = self.lane.flows.at(slot);
        // It may still stand in the list of those that have something to send.
        let keep = flow.flags & flag::READY;
        *flow = Flow::new(&Terms { generation: flow.generation, ..*terms });
        flow.set(keep);
        self.lane.flows.begin(&terms.tuple, slot);
        Ok(slot)
    }

    pub(super) fn open(
        &mut self,
        now: Now,
        connect: &Connect,
        tuple: Tuple,
        out: &mut impl Actions,
    ) -> Result<FlowId, Refusal> {
        if let Some(old) = self.find(&tuple) {
            self.release(old);
        }
        let mut terms = self.terms(now, tuple, connect.route, connect.app, &connect.flow);
        terms.iss = connect.flow.first.unwrap_or(terms.iss);
        let slot = self.take_slot(&terms, &connect.flow, true)?;
        self.conns[slot as usize].state = State::SynSent;
        self.conns[slot as usize].syn_sent = now.time;
        self.send_syn(now, slot, out);
        self.arm(slot, Timer::Handshake, now.time + FIRST_TIMEOUT);
        Ok(self.id(slot))
    }

    /// Our SYN, or SYN-ACK.
    fn send_syn(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        let conn = &self.conns[slot as usize];
        let ack = conn.state == State::SynReceived;
        let ecn = match conn.terms.flags & flag::ECN != 0 {
            false => Flags::default(),
            true if ack => Flags::ECE,
            true => Flags::ECE.with(Flags::CWR),
        };
        let offer = self.offer(&conn.terms);
        let segment = self.lane.flows.at(slot).syn(now, ack, offer, ecn);
        out.send(Some(self.id(slot)), &segment);
    }

    /// No answer to our SYN or SYN-ACK.
    pub(super) fn handshake_timer(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        let conn = &mut self.conns[slot as usize];
        conn.tries += 1;
        conn.syn_sent = Time::NEVER;
        let incoming = conn.half_open;
        let most = if incoming { self.config.synack_retries } else { self.config.syn_retries };
        if conn.tries > most {
            return self.reset(now, slot, Some(ResetReason::TimedOut), false, out);
        }
        // A middlebox may have swallowed it because of ECN (RFC 3168, 6.1.1.1).
        if conn.state == State::SynSent && conn.tries == 2 {
            conn.terms.flags &= !flag::ECN;
        }
        let due = now.time + backed_off(FIRST_TIMEOUT, conn.tries, self.config.rto_max);
        self.send_syn(now, slot, out);
        self.arm(slot, Timer::Handshake, due);
    }

    /// Keeps the options that both want.
    fn agree(terms: &mut Terms, segment: &Segment) {
        terms.irs = segment.seq;
        terms.window = u32::from(segment.window);
        terms.mss = terms.mss.min(segment.syn.mss.unwrap_or(DEFAULT_MSS));
        match segment.stamp {
            Some((value, _)) if terms.flags & flag::STAMPS != 0 => terms.ts_recent = value,
            _ => terms.flags &= !flag::STAMPS,
        }
        if !segment.syn.sack {
            terms.flags &= !flag::SACK;
        }
        match segment.syn.shift {
            // Larger ones count as 14 (RFC 7323, 2.3).
            Some(shift) if terms.rcv_shift != NO_SHIFT => terms.snd_shift = shift.min(14),
            _ => (terms.rcv_shift, terms.snd_shift) = (NO_SHIFT, 0),
        }
        let wanted = if segment.flags.any(Flags::ACK) {
            segment.flags.any(Flags::ECE) && !segment.flags.any(Flags::CWR)
        } else {
            segment.flags.any(Flags::ECE) && segment.flags.any(Flags::CWR)
        };
        if !wanted {
            terms.flags &= !flag::ECN;
        }
    }

    /// The flow from now on, with what was agreed.
    fn settle(&mut self, slot: u32, terms: Terms) {
        let flow = self.lane.flows.at(slot);
        let keep = flow.flags & flag::READY;
        let shift = if terms.rcv_shift == NO_SHIFT { 0 } else { terms.rcv_shift };
        *flow = Flow::new(&Terms { rcv_shift: shift, generation: flow.generation, ..terms });
        flow.set(keep);
        self.conns[slot as usize].terms = terms;
    }

    /// A segment for a connection whose SYN is on the way (RFC 9293, 3.10.7.3).
    pub(crate) fn syn_sent(
        &mut self,
        now: Now,
        slot: u32,
        segment: &Segment,
        out: &mut impl Actions,
    ) {
        let flags = segment.flags;
        let mut terms = self.conns[slot as usize].terms;
        let ack = flags.any(Flags::ACK);
        if ack && segment.ack != terms.iss + 1 {
            if !flags.any(Flags::RST) {
                self.answer_reset(terms.route, segment, out);
            }
            return;
        }
        if flags.any(Flags::RST) {
            if ack {
                self.reset(now, slot, Some(ResetReason::Refused), false, out);
            }
            return;
        }
        if !flags.any(Flags::SYN) {
            return;
        }
        Self::agree(&mut terms, segment);
        self.settle(slot, terms);
        if ack {
            self.establish(now, slot, out);
            // The answer goes out at once; data goes with it if it is there by then.
            self.lane.flows.at(slot).set(flag::ACK_DUE);
            self.ready(slot);
        } else {
            // Both have called each other.
            self.conns[slot as usize].state = State::SynReceived;
            self.send_syn(now, slot, out);
        }
    }

    /// A segment for a half-open connection (RFC 9293, 3.10.7.4).
    pub(crate) fn syn_received(
        &mut self,
        now: Now,
        slot: u32,
        segment: &Segment,
        out: &mut impl Actions,
    ) {
        let flags = segment.flags;
        let (terms, half_open, owner) = {
            let conn = &self.conns[slot as usize];
            (conn.terms, conn.half_open, conn.listener)
        };
        if flags.any(Flags::RST) {
            if segment.seq == terms.irs + 1 {
                self.reset(now, slot, Some(ResetReason::Refused), false, out);
            }
            return;
        }
        if flags.any(Flags::SYN) && segment.seq != terms.irs {
            return self.challenge(now, slot, false, out);
        }
        if flags.any(Flags::SYN) && (half_open || !flags.any(Flags::ACK)) {
            // Ours was lost, or is late.
            return self.send_syn(now, slot, out);
        }
        if !flags.any(Flags::ACK) {
            return;
        }
        if segment.ack != terms.iss + 1 {
            return self.answer_reset(terms.route, segment, out);
        }
        if half_open {
            let Some(listener) = self.listeners.get(owner) else { return };
            if listener.waiting > listener.listen.backlog {
                // Nobody accepts. The peer's data brings the acknowledgement again, and our SYN-ACK
                // goes out again.
                return;
            }
            listener.waiting += 1;
            listener.half_open -= 1;
        }
        self.establish(now, slot, out);
        let flow = self.lane.flows.at(slot);
        if flags.any(Flags::SYN) {
            flow.set(flag::ACK_DUE);
            return self.ready(slot);
        }
        flow.snd_wnd = flow.scaled(segment);
        match self.lane.flows.at(slot).receive(now, segment) {
            Ok(received) => self.received(now, slot, received, out),
            Err(exception) => self.synchronized(now, slot, segment, exception, out),
        }
    }

    /// The handshake is done.
    fn establish(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        let id = self.id(slot);
        let conn = &mut self.conns[slot as usize];
        let flow = self.lane.flows.at(slot);
        flow.set(flag::FAST);
        flow.heard = now.stamp;
        if conn.syn_sent != Time::NEVER {
            flow.measured((now.time.since(conn.syn_sent) / 1000).min(u64::from(u32::MAX)) as u32);
        }
        conn.state = State::Established;
        conn.tries = 0;
        conn.set_due(Timer::Handshake, Time::NEVER);
        conn.control = Some(Control::new(conn.options.algorithm, u32::from(flow.mss), flow.rtt));
        let event = if core::mem::take(&mut conn.half_open) {
            self.half_open -= 1;
            Event::Incoming { listener: ListenerId(conn.listener) }
        } else {
            Event::Connected
        };
        if let Some(keep_alive) = conn.options.keep_alive {
            conn.set_due(Timer::KeepAlive, now.time + keep_alive.idle);
        }
        self.apply_limit(slot);
        self.rearm(slot);
        out.event(id, event);
    }

    /// A segment that belongs to no connection. False if it belongs to nobody.
    pub(crate) fn stranger(
        &mut self,
        now: Now,
        route: u16,
        segment: &Segment,
        out: &mut impl Actions,
    ) -> bool {
        let flags = segment.flags;
        let listener = self.listeners.find(segment.tuple.local_ip, segment.tuple.local_port);
        if flags.any(Flags::RST) {
            return listener.is_some();
        }
        let asks = flags.any(Flags::SYN) && !flags.any(Flags::ACK.with(Flags::FIN));
        match listener {
            Some(listener) if asks => self.asked(now, route, listener, segment, out),
            Some(listener)
                if flags.any(Flags::ACK)
                    && !flags.any(Flags::SYN)
                    && self.cookie_back(now, route, listener, segment, out) => {}
            _ => {
                self.counters.strangers += 1;
                // The first segment after a cookie may have been lost, and this be one of the next:
                // only the first one tells that it is ours, and comes again. (A stranger indeed is
                // told so when no cookie is out any more.)
                let may_be_ours = listener.is_some()
                    && !flags.any(Flags::SYN)
                    && self.cookies_until != Time::NEVER;
                if self.config.reset_strangers && !may_be_ours {
                    self.answer_reset(route, segment, out);
                }
                return listener.is_some() || self.config.reset_strangers;
            }
        }
        true
    }

    /// A SYN for a listener.
    fn asked(
        &mut self,
        now: Now,
        route: u16,
        owner: u32,
        segment: &Segment,
        out: &mut impl Actions,
    ) {
        let Some(listener) = self.listeners.get(owner) else { return };
        let listen = listener.listen;
        if listener.waiting > listen.backlog {
            self.counters.refused += 1;
            return;
        }
        // Half of the slots are left to those who come back.
        let crowded =
            listener.half_open > listen.backlog || self.half_open >= self.config.flows.div_ceil(2);
        let mut terms = self.terms(now, segment.tuple, route, listen.app, &listen.flow);
        Self::agree(&mut terms, segment);
        let slot =
            if crowded { Err(Refusal::Full) } else { self.take_slot(&terms, &listen.flow, false) };
        match slot {
            Ok(slot) => {
                if let Some(listener) = self.listeners.get(owner) {
                    listener.half_open += 1;
                }
                self.settle(slot, terms);
                let conn = &mut self.conns[slot as usize];
                conn.state = State::SynReceived;
                conn.listener = owner;
                conn.half_open = true;
                self.half_open += 1;
                conn.syn_sent = now.time;
                self.send_syn(now, slot, out);
                self.arm(slot, Timer::Handshake, now.time + FIRST_TIMEOUT);
            }
            Err(Refusal::Full) => self.send_cookie(now, &terms, segment, out),
            Err(why) => self.refused(route, why, segment, out),
        }
    }

    /// There is no room for a connection. A peer whose application may have no more is told so: to
    /// try again would not help it.
    fn refused(&mut self, route: u16, why: Refusal, segment: &Segment, out: &mut impl Actions) {
        self.counters.refused += 1;
        if why == Refusal::Limit {
            self.answer_reset(route, segment, out);
        }
    }

    /// Answers without remembering anything.
    fn send_cookie(&mut self, now: Now, terms: &Terms, segment: &Segment, out: &mut impl Actions) {
        self.counters.cookies_sent += 1;
        if self.cookies_until == Time::NEVER {
            // Before it can come back.
            self.lane.flows.cookies(true);
        }
        self.cookies_until = now.time + cookie::LIFETIME;
        let stamps = terms.flags & flag::STAMPS != 0;
        let offer = Offer {
            mss: segment.syn.mss.unwrap_or(DEFAULT_MSS),
            shift: segment.syn.shift.filter(|_| stamps),
            sack: stamps && terms.flags & flag::SACK != 0,
            ecn: stamps && terms.flags & flag::ECN != 0,
        };
        let (iss, stamp) =
            cookie::make(&self.key, now.time, now.stamp, &terms.tuple, segment.seq, &offer);
        let flags = Flags::SYN.with(Flags::ACK);
        let answer = Outgoing {
            tuple: terms.tuple,
            route: terms.route,
            seq: iss,
            ack: segment.seq + 1,
            window: (1u32 << terms.rcv_bits).min(u32::from(u16::MAX)) as u16,
            flags: if offer.ecn { flags.with(Flags::ECE) } else { flags },
            markable: false,
            stamp: stamps.then_some((stamp, terms.ts_recent)),
            sack: Blocks::default(),
            syn: Some(SynOptions {
                mss: Some(wire::mss_of(self.config.mtu)),
                // (The scale of both is agreed on by now.)
                shift: offer.shift.map(|_| terms.rcv_shift),
                sack: offer.sack,
            }),
            payload: RingRange::default(),
            mss: terms.mss,
        };
        out.send(None, &answer);
    }

    /// An acknowledgement for a listener: perhaps a cookie of ours.
    fn cookie_back(
        &mut self,
        now: Now,
        route: u16,
        owner: u32,
        segment: &Segment,
        out: &mut impl Actions,
    ) -> bool {
        // A listener that was never crowded gave none.
        if self.counters.cookies_sent == 0 {
            return false;
        }
        let Some(offer) = cookie::check(&self.key, now.time, segment) else { return false };
        let Some(listener) = self.listeners.get(owner) else { return false };
        let listen = listener.listen;
        if listener.waiting > listen.backlog {
            // Dropped: the peer's data comes again.
            self.counters.refused += 1;
            return true;
        }
        let mut terms = self.terms(now, segment.tuple, route, listen.app, &listen.flow);
        // The options are agreed on as if the peer's SYN had just come.
        let mut flags = Flags::SYN;
        if offer.ecn {
            flags = flags.with(Flags::ECE).with(Flags::CWR);
        }
        let syn = SynOptions { mss: Some(offer.mss), shift: offer.shift, sack: offer.sack };
        Self::agree(&mut terms, &Segment { flags, syn, seq: segment.seq - 1, ..*segment });
        terms.iss = segment.ack - 1;
        let slot = match self.take_slot(&terms, &listen.flow, true) {
            Ok(slot) => slot,
            Err(why) => {
                self.refused(route, why, segment, out);
                return true;
            }
        };
        self.counters.cookies_accepted += 1;
        if let Some(listener) = self.listeners.get(owner) {
            listener.half_open += 1;
        }
        self.settle(slot, terms);
        let conn = &mut self.conns[slot as usize];
        conn.state = State::SynReceived;
        conn.listener = owner;
        conn.half_open = true;
        self.half_open += 1;
        self.syn_received(now, slot, segment, out);
        true
    }
}

/// Neither side scales its windows.
const NO_SHIFT: u8 = u8::MAX;
