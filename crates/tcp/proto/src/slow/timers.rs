//! The work when nothing happens: retransmission, closed windows, silent peers; and congestion
//! control, every two round trips.

use crate::actions::{Actions, Event, ResetReason};
use crate::congestion::{Feedback, Limit};
use crate::conn::{State, TIMERS, Timer, backed_off};
use crate::endpoint::Endpoint;
use crate::flow::flag;
use crate::flows::Flows;
use crate::time::{MICROSECOND, MILLISECOND, Nanos, Now, SECOND, Time, elapsed};

/// Looks without progress that are a timeout (TAS, 3.2.2).
const STALLED_INTERVALS: u8 = 2;

/// Timeouts in a row after which the way is taken to swallow full segments without a word (RFC
/// 4821; Linux's `tcp_mtu_probing`), and the segment size that passes everywhere (Linux's
/// `tcp_base_mss`).
const BLACKHOLE_TIMEOUTS: u8 = 3;
const BLACKHOLE_MSS: u16 = 1024;

/// The clock of round trips: a variation below it is not believed (RFC 6298, 2.3).
const GRANULARITY: Nanos = 100 * MICROSECOND;

impl<F: Flows> Endpoint<F> {
    /// Everything of a connection that is due.
    pub(crate) fn timer(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        let generation = self.lane.flows.at(slot).generation;
        self.conns[slot as usize].armed = Time::NEVER;
        for timer in TIMERS {
            let conn = &mut self.conns[slot as usize];
            if self.lane.flows.at(slot).generation != generation || conn.state == State::Closed {
                return;
            }
            if conn.due(timer) > now.time {
                continue;
            }
            conn.set_due(timer, Time::NEVER);
            match timer {
                Timer::Control => self.control(now, slot, out),
                Timer::Handshake => self.handshake_timer(now, slot, out),
                Timer::Persist => self.persist_timer(now, slot, out),
                Timer::KeepAlive => self.keep_alive_timer(now, slot, out),
                Timer::End => self.end_timer(slot, out),
            }
        }
        let conn = &self.conns[slot as usize];
        if self.lane.flows.at(slot).generation == generation && conn.state != State::Closed {
            self.rearm(slot);
        }
    }

    /// The retransmission timeout, not backed off (RFC 6298).
    fn timeout(&mut self, slot: u32) -> Nanos {
        let flow = self.lane.flows.at(slot);
        if flow.rtt == 0 {
            return SECOND;
        }
        let varies = (u64::from(flow.rtt_var) * 4 * MICROSECOND).max(GRANULARITY);
        (u64::from(flow.rtt) * MICROSECOND + varies).max(self.config.rto_min)
    }

    /// Gathers what the fast path counted, sets its limit, and looks whether what is on the way
    /// still moves.
    fn control(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        let index = slot as usize;
        let interval = self.interval(slot);
        let timeout = self.timeout(slot);
        let flow = self.lane.flows.at(slot);
        let conn = &mut self.conns[index];
        let acked = flow.snd_una.min(flow.snd_end);
        let behind_gaps: u32 =
            flow.recovery.sacked.runs().iter().map(|(from, to)| to.distance(*from)).sum();
        let newly_acked = acked.distance(conn.counted);
        let before = core::mem::replace(&mut conn.behind_gaps, behind_gaps);
        let feedback = Feedback {
            time: now.time,
            interval: now.time.since(conn.last_control).max(1),
            acked: newly_acked,
            delivered: (newly_acked + behind_gaps).saturating_sub(before),
            in_flight: flow.on_way(),
            marked: core::mem::take(&mut flow.cnt_marked),
            retransmits: core::mem::take(&mut flow.cnt_retransmits),
            timeout: false,
            rtt: flow.rtt,
            mss: u32::from(flow.mss),
            limited: flow.has(flag::LIMITED),
        };
        flow.unset(flag::LIMITED);
        conn.last_control = now.time;
        conn.counted = acked;
        conn.totals.acked += u64::from(feedback.acked);
        conn.totals.marked += u64::from(feedback.marked);
        conn.totals.fast_retransmits += u32::from(feedback.retransmits);
        let mut changed = false;
        if let Some(control) = &mut conn.control
            && flow.rtt != 0
        {
            control.interval(&feedback);
            changed = true;
        }
        let (una, since, looks) = conn.stalled;
        let in_flight = flow.in_flight();
        if in_flight == 0 || una != flow.snd_una {
            conn.stalled = (flow.snd_una, now.time, 0);
            conn.backoff = 0;
        } else {
            conn.stalled.2 = looks.saturating_add(1);
        }
        let (_, since, looks) = if in_flight == 0 { (una, since, 0) } else { conn.stalled };
        let until_resent = backed_off(timeout, conn.backoff, self.config.rto_max);
        if in_flight == 0 {
            // Idle, or waiting for its rate or window: what is sent next starts the looks again.
            flow.unset(flag::WATCHED);
        } else if looks >= STALLED_INTERVALS && now.time.since(since) >= until_resent {
            return self.timed_out(now, slot, feedback, out);
        } else {
            let next = now.time + interval;
            let next =
                if looks >= STALLED_INTERVALS { next.max(since + until_resent) } else { next };
            let next = self.together(next, interval);
            self.conns[index].set_due(Timer::Control, next);
        }
        if changed {
            self.apply_limit(slot);
        }
        // A flow that was held back may go on now. (Where nothing is, the lane is not to be woken
        // for it.)
        if changed && self.lane.flows.at(slot).has_more() {
            self.ready(slot);
        }
    }

    /// The bytes on the way have not moved for too long.
    fn timed_out(&mut self, now: Now, slot: u32, feedback: Feedback, out: &mut impl Actions) {
        let index = slot as usize;
        let timeout = self.timeout(slot);
        let flow = self.lane.flows.at(slot);
        let conn = &mut self.conns[index];
        // Behind a closed window nothing is lost; the peer says so by answering.
        let heard = u64::from(elapsed(now.stamp, flow.heard)) * MILLISECOND;
        let closed = flow.snd_wnd == 0 && heard <= now.time.since(conn.stalled.1) + MILLISECOND;
        let late = match conn.options.user_timeout {
            Some(limit) => timeout.saturating_mul((2 << conn.backoff.min(40)) - 1) > limit,
            None => conn.backoff >= self.config.retries,
        };
        if late && (!closed || conn.is_left()) {
            return self.reset(now, slot, Some(ResetReason::TimedOut), true, out);
        }
        conn.backoff = conn.backoff.saturating_add(1);
        conn.totals.timeouts += 1;
        if let Some(control) = &mut conn.control
            && !closed
        {
            control.interval(&Feedback {
                timeout: true,
                acked: 0,
                delivered: 0,
                marked: 0,
                retransmits: 0,
                ..feedback
            });
        }
        if conn.backoff == BLACKHOLE_TIMEOUTS && flow.mss > BLACKHOLE_MSS {
            flow.shrink(BLACKHOLE_MSS);
        }
        flow.time_out(now, conn.backoff > 1);
        flow.next_send = now.time;
        conn.stalled = (flow.snd_una, now.time, 0);
        let interval = self.interval(slot);
        let due = self.together(now.time + interval, interval);
        self.conns[index].set_due(Timer::Control, due);
        self.apply_limit(slot);
        self.ready(slot);
    }

    /// Hands what congestion control wants to the fast path.
    pub(crate) fn apply_limit(&mut self, slot: u32) {
        let flow = self.lane.flows.at(slot);
        match self.conns[slot as usize].control.as_ref().map(crate::congestion::Control::limit) {
            Some(Limit::Rate(rate, window)) => {
                flow.cwnd = window;
                flow.set_rate(rate);
            }
            Some(Limit::Window(window)) => {
                flow.cwnd = window;
                flow.pace = 0;
            }
            None => {}
        }
    }

    /// The peer's window is closed, and nothing on the way will open it.
    pub(crate) fn persist(&mut self, now: Now, slot: u32) {
        // The next thing that is sent stops the questions.
        self.lane.flows.at(slot).unset(flag::WATCHED);
        if self.conns[slot as usize].due(Timer::Persist) == Time::NEVER || self.moved(now, slot) {
            let due = now.time + self.timeout(slot);
            self.arm(slot, Timer::Persist, due);
        }
    }

    /// Whether the peer has taken something since that was asked last: its window was open in
    /// between, and nobody looked
    /// ([`Config::watch_after`](crate::Config::watch_after)). Then its questions count from the
    /// beginning.
    fn moved(&mut self, now: Now, slot: u32) -> bool {
        let una = self.lane.flows.at(slot).snd_una;
        let conn = &mut self.conns[slot as usize];
        if conn.stalled.0 == una {
            return false;
        }
        conn.stalled = (una, now.time, 0);
        (conn.tries, conn.backoff) = (0, 0);
        true
    }

    fn persist_timer(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        self.moved(now, slot);
        let timeout = self.timeout(slot);
        let flow = self.lane.flows.at(slot);
        if flow.snd_wnd > 0 && flow.in_flight() == 0 {
            self.conns[slot as usize].tries = 0;
            return self.ready(slot);
        }
        let conn = &mut self.conns[slot as usize];
        // As long as it answers, it may keep its window closed (RFC 1122, 4.2.2.17): but not a flow
        // of which nobody is left that could give up on it.
        let silent = u64::from(elapsed(now.stamp, flow.heard)) * MILLISECOND;
        let last = backed_off(timeout, conn.tries, self.config.rto_max);
        let answered = conn.tries == 0 || silent <= last + MILLISECOND;
        conn.backoff = if answered { 0 } else { conn.backoff.saturating_add(1) };
        if conn.backoff > self.config.retries || conn.is_left() && conn.tries > self.config.retries
        {
            return self.reset(now, slot, Some(ResetReason::TimedOut), true, out);
        }
        conn.tries = conn.tries.saturating_add(1).min(30);
        conn.totals.probes += 1;
        let due = now.time + backed_off(timeout, conn.tries, self.config.rto_max);
        conn.set_due(Timer::Persist, due);
        let probe = flow.probe(now);
        out.send(Some(self.id(slot)), &probe);
    }

    fn keep_alive_timer(&mut self, now: Now, slot: u32, out: &mut impl Actions) {
        let flow = self.lane.flows.at(slot);
        let conn = &mut self.conns[slot as usize];
        let Some(keep_alive) = conn.options.keep_alive else { return };
        let silent = u64::from(elapsed(now.stamp, flow.heard)) * MILLISECOND;
        if silent + MILLISECOND < keep_alive.idle {
            conn.set_due(Timer::KeepAlive, now.time + (keep_alive.idle - silent));
            return;
        }
        if flow.in_flight() > 0 || flow.unsent() {
            // Retransmission and probes find out.
            conn.set_due(Timer::KeepAlive, now.time + keep_alive.idle);
            return;
        }
        // How many questions fit into the time since it was silent for too long: those were asked.
        let asked = (silent + MILLISECOND - keep_alive.idle) / keep_alive.interval.max(MILLISECOND);
        if asked >= u64::from(keep_alive.count) {
            return self.reset(now, slot, Some(ResetReason::TimedOut), true, out);
        }
        conn.totals.probes += 1;
        conn.set_due(Timer::KeepAlive, now.time + keep_alive.interval.max(MILLISECOND));
        let probe = flow.probe(now);
        out.send(Some(self.id(slot)), &probe);
    }

    /// The end of TIME_WAIT; or the peer never closed, and nobody waits for it.
    fn end_timer(&mut self, slot: u32, out: &mut impl Actions) {
        let state = self.conns[slot as usize].state;
        let id = self.id(slot);
        self.release(slot);
        if state != State::TimeWait {
            out.event(id, Event::Closed);
        }
    }
}
