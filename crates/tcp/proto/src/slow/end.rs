//! How connections end: FINs of both sides, TIME_WAIT, and the slot's return.

use crate::actions::{Actions, Event};
use crate::conn::{NONE, State, Timer};
use crate::endpoint::Endpoint;
use crate::flow::flag;
use crate::flows::Flows;
use crate::segment::{Flags, Segment};
use crate::time::{Now, Time};

impl<F: Flows> Endpoint<F> {
    /// Looks whether the peer's FIN has been reached, and whether ours was acknowledged. True if
    /// the connection is over.
    pub(crate) fn fins(&mut self, now: Now, slot: u32, out: &mut impl Actions) -> bool {
        let id = self.id(slot);
        let flow = self.lane.flows.at(slot);
        let conn = &mut self.conns[slot as usize];
        let ours = flow.has(flag::FIN_QUEUED) && flow.snd_una == flow.snd_end + 1;
        if flow.has(flag::FIN_SEEN) && flow.rcv_nxt == flow.recovery.fin {
            flow.rcv_nxt += 1;
            conn.state = match conn.state {
                State::Established => State::CloseWait,
                State::FinWait1 => State::Closing,
                State::FinWait2 => State::TimeWait,
                state => state,
            };
            flow.set(flag::ACK_DUE);
            out.event(id, Event::PeerClosed);
            self.ready(slot);
        }
        let conn = &mut self.conns[slot as usize];
        if ours {
            conn.state = match conn.state {
                State::FinWait1 => {
                    if conn.app_closed {
                        conn.set_due(Timer::End, now.time + self.config.time_wait);
                    }
                    State::FinWait2
                }
                State::Closing => State::TimeWait,
                State::LastAck => State::Closed,
                state => state,
            };
        }
        match conn.state {
            State::TimeWait => {
                let answer = self.lane.flows.at(slot).acknowledge(now);
                out.send(Some(id), &answer);
                self.enter_time_wait(now, slot);
                out.event(id, Event::Closed);
                true
            }
            State::Closed => {
                self.release(slot);
                out.event(id, Event::Closed);
                true
            }
            _ => {
                self.rearm(slot);
                false
            }
        }
    }

    /// The connection is over for its application; the slot keeps its numbers.
    fn enter_time_wait(&mut self, now: Now, slot: u32) {
        self.leave_owner(slot);
        let flow = self.lane.flows.at(slot);
        flow.unset(flag::FAST);
        self.lane.pacing.clear(slot);
        let conn = &mut self.conns[slot as usize];
        for timer in [Timer::Control, Timer::Persist, Timer::KeepAlive] {
            conn.set_due(timer, Time::NEVER);
        }
        conn.older = self.time_wait.1;
        conn.newer = NONE;
        match self.time_wait.1 {
            NONE => self.time_wait.0 = slot,
            newest => self.conns[newest as usize].newer = slot,
        }
        self.time_wait.1 = slot;
        self.arm(slot, Timer::End, now.time + self.config.time_wait);
    }

    /// A segment for a connection that is over.
    pub(crate) fn in_time_wait(
        &mut self,
        now: Now,
        slot: u32,
        route: u16,
        segment: &Segment,
        out: &mut impl Actions,
    ) {
        let flow = self.lane.flows.at(slot);
        let flags = segment.flags;
        // RST is not believed: a peer that sends it would let old duplicates into the next
        // connection (RFC 1337).
        if flags.any(Flags::RST) {
            return;
        }
        let newer = match segment.stamp {
            Some((value, _)) if flow.has(flag::STAMPS) => {
                (value.wrapping_sub(flow.ts_recent) as i32) > 0
            }
            _ => segment.seq.after(flow.rcv_nxt),
        };
        if flags.any(Flags::SYN) && !flags.any(Flags::ACK) && newer {
            // A new connection between the same ends (RFC 6191).
            self.release(slot);
            self.stranger(now, route, segment, out);
            return;
        }
        if flags.any(Flags::SYN) && flags.any(Flags::ACK) && newer && !self.config.reset_strangers {
            // Nobody here has asked for that: it is the kernel's, which uses the port again. It
            // gets the one that is sent again.
            return self.release(slot);
        }
        if flags.any(Flags::FIN) {
            // Our last acknowledgement was lost.
            self.arm(slot, Timer::End, now.time + self.config.time_wait);
        }
        if segment.length() > 0 {
            self.challenge(now, slot, flags.any(Flags::FIN), out);
        }
    }

    /// Takes the connection off its application's account and its listener's queue.
    fn leave_owner(&mut self, slot: u32) {
        let conn = &mut self.conns[slot as usize];
        let (app, buffers) = (conn.terms.app, conn.buffers());
        self.half_open -= usize::from(conn.half_open);
        if conn.listener != NONE {
            if let Some(listener) = self.listeners.get(conn.listener) {
                if conn.half_open {
                    listener.half_open -= 1;
                } else {
                    listener.waiting -= 1;
                }
            }
            conn.listener = NONE;
        }
        self.apps.give(app, buffers);
    }

    /// The slot is free.
    pub(crate) fn release(&mut self, slot: u32) {
        let index = slot as usize;
        if self.conns[index].state == State::TimeWait && self.in_list(slot) {
            let (older, newer) = (self.conns[index].older, self.conns[index].newer);
            match older {
                NONE => self.time_wait.0 = newer,
                older => self.conns[older as usize].newer = newer,
            }
            match newer {
                NONE => self.time_wait.1 = older,
                newer => self.conns[newer as usize].older = older,
            }
        } else {
            self.leave_owner(slot);
        }
        let tuple = self.lane.flows.at(slot).tuple();
        self.lane.flows.end(&tuple, slot);
        self.timers.clear(slot);
        self.lane.pacing.clear(slot);
        let conn = &mut self.conns[index];
        conn.state = State::Closed;
        conn.armed = Time::NEVER;
        let flow = self.lane.flows.at(slot);
        flow.generation = flow.generation.wrapping_add(1);
        flow.unset(flag::FAST | flag::ACK_DUE);
        flow.acknowledges_nothing();
        self.free.push(slot);
    }

    fn in_list(&self, slot: u32) -> bool {
        let conn = &self.conns[slot as usize];
        conn.older != NONE || conn.newer != NONE || self.time_wait.0 == slot
    }
}
