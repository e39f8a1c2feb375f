//! The commands of applications. An application is not trusted: what cannot be is refused, and
//! changes nothing.

use crate::actions::{Actions, FlowId, ListenerId, Refusal};
use crate::config::{Connect, FlowOptions, Listen};
use crate::congestion::Control;
use crate::conn::State;
use crate::endpoint::Endpoint;
use crate::flow::{BUFFER_BITS, flag};
use crate::flows::Flows;
use crate::segment::Tuple;
use crate::time::Time;

fn valid(options: &FlowOptions) -> Result<(), Refusal> {
    let most = options.rcv_most.unwrap_or(options.rcv_bits);
    let all = [options.rcv_bits, most, options.snd_bits];
    let ok = all.iter().all(|bits| BUFFER_BITS.contains(bits));
    if ok { Ok(()) } else { Err(Refusal::Invalid) }
}

impl<F: Flows> Endpoint<F> {
    /// Accepts connections from now on.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, Refusal> {
        valid(&listen.flow)?;
        if listen.port == 0 || usize::from(listen.app) >= self.config.apps {
            return Err(Refusal::Invalid);
        }
        self.listeners.add(listen)
    }

    /// The connections that come from now on are this application's, and are to be like this.
    pub fn set_listener(
        &mut self,
        listener: ListenerId,
        app: u16,
        flow: FlowOptions,
    ) -> Result<(), Refusal> {
        valid(&flow)?;
        if usize::from(app) >= self.config.apps {
            return Err(Refusal::Invalid);
        }
        let known = self.listeners.get(listener.0).ok_or(Refusal::NoSuchFlow)?;
        (known.listen.app, known.listen.flow) = (app, flow);
        Ok(())
    }

    /// Accepts no more. Connections that were not accepted are reset, as Linux does it.
    pub fn unlisten(
        &mut self,
        time: Time,
        listener: ListenerId,
        out: &mut impl Actions,
    ) -> Result<(), Refusal> {
        let now = self.now(time);
        self.listeners.remove(listener).ok_or(Refusal::NoSuchFlow)?;
        for slot in 0..self.conns.len() as u32 {
            let conn = &mut self.conns[slot as usize];
            if conn.state != State::Closed && conn.listener == listener.0 {
                conn.listener = crate::conn::NONE;
                self.reset(now, slot, None, true, out);
            }
        }
        Ok(())
    }

    /// The application has accepted `flow`: there is room for another one to wait. It gets a name,
    /// and the queue of whoever accepted it.
    pub fn accept(&mut self, flow: FlowId, opaque: u64, context: u16) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let conn = &mut self.conns[slot];
        if conn.half_open || conn.listener == crate::conn::NONE {
            return Err(Refusal::WrongState);
        }
        if let Some(listener) = self.listeners.get(conn.listener) {
            listener.waiting -= 1;
        }
        conn.listener = crate::conn::NONE;
        let flow = self.lane.flows.at(slot as u32);
        (flow.opaque, flow.context) = (opaque, context);
        Ok(())
    }

    /// Opens a connection. [`Connected`](crate::Event::Connected) or [`Reset`](crate::Event::Reset)
    /// follows.
    pub fn connect(
        &mut self,
        time: Time,
        connect: &Connect,
        out: &mut impl Actions,
    ) -> Result<FlowId, Refusal> {
        valid(&connect.flow)?;
        let peer = connect.peer_ip;
        if connect.peer_port == 0
            || peer.is_multicast()
            || peer.is_broadcast()
            || peer.is_unspecified()
        {
            return Err(Refusal::Invalid);
        }
        let now = self.now(time);
        let tuple = self.choose_port(connect)?;
        self.open(now, connect, tuple, out)
    }

    /// RFC 6056, 3.3.3: from a place that depends on both ends, so that nobody outside knows the
    /// next port.
    fn choose_port(&mut self, connect: &Connect) -> Result<Tuple, Refusal> {
        let mut tuple = Tuple {
            local_ip: connect.local_ip,
            local_port: connect.local_port.unwrap_or(0),
            peer_ip: connect.peer_ip,
            peer_port: connect.peer_port,
        };
        if let Some(port) = connect.local_port {
            let free = port != 0 && self.reusable(&tuple);
            return if free {
                Ok(tuple)
            } else {
                Err(if port == 0 { Refusal::Invalid } else { Refusal::InUse })
            };
        }
        let first = u32::from(*self.config.ports.start());
        let count = u32::from(*self.config.ports.end()) + 1 - first;
        let offset = crate::table::hash(&self.key, &tuple) as u32;
        for _ in 0..count {
            tuple.local_port = (first + offset.wrapping_add(self.next_port) % count) as u16;
            self.next_port = self.next_port.wrapping_add(1);
            if self.find(&tuple).is_none() {
                return Ok(tuple);
            }
        }
        Err(Refusal::NoPort)
    }

    /// No connection has these ends, or one that is over.
    fn reusable(&mut self, tuple: &Tuple) -> bool {
        self.find(tuple).is_none_or(|slot| self.conns[slot as usize].state == State::TimeWait)
    }

    /// The application wrote `n` more bytes into the send buffer.
    #[inline]
    pub fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let state = self.conns[slot].state;
        if state.write_closed() || matches!(state, State::SynSent | State::SynReceived) {
            return Err(Refusal::WrongState);
        }
        if !self.lane.flows.at(slot as u32).write(n) {
            return Err(Refusal::TooMany);
        }
        self.ready(flow.slot);
        Ok(())
    }

    /// The application took `n` bytes out of the receive buffer.
    #[inline]
    pub fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let flow_state = self.lane.flows.at(slot as u32);
        if flow_state.read(n).ok_or(Refusal::TooMany)? {
            flow_state.set(flag::ACK_DUE);
            self.ready(flow.slot);
        }
        Ok(())
    }

    /// See [`Lane::resize`](crate::Lane::resize).
    pub fn resize(&mut self, flow: FlowId, bits: u8) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let flow_state = self.lane.flows.at(slot as u32);
        if flow_state.resize(bits) {
            flow_state.set(flag::ACK_DUE);
            self.ready(flow.slot);
        }
        Ok(())
    }

    /// See [`Lane::forget_early`](crate::Lane::forget_early).
    pub fn forget_early(&mut self, flow: FlowId, gone: impl FnOnce()) {
        self.lane.forget_early(flow, gone);
    }

    /// Small segments wait for acknowledgements from now on, or no more (TCP_NODELAY).
    pub fn set_nagle(&mut self, flow: FlowId, nagle: bool) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        if nagle {
            self.lane.flows.at(slot as u32).set(flag::NAGLE);
        } else {
            self.lane.flows.at(slot as u32).unset(flag::NAGLE);
            self.ready(flow.slot);
        }
        Ok(())
    }

    /// So many bytes may be on the way from now on: for a caller that controls congestion itself
    /// ([`Algorithm::Caller`](crate::Algorithm::Caller)).
    pub fn set_window(&mut self, flow: FlowId, window: u32) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let Some(Control::Caller(limit)) = &mut self.conns[slot].control else {
            return Err(Refusal::WrongState);
        };
        *limit = window;
        self.apply_limit(flow.slot);
        self.ready(flow.slot);
        Ok(())
    }

    /// The application writes no more (`shutdown(SHUT_WR)`).
    pub fn shutdown(&mut self, flow: FlowId) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let conn = &mut self.conns[slot];
        conn.state = match conn.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            state if state.write_closed() => return Ok(()),
            _ => return Err(Refusal::WrongState),
        };
        self.lane.flows.at(slot as u32).set(flag::FIN_QUEUED);
        self.ready(flow.slot);
        Ok(())
    }

    /// The application reads and writes no more. Bytes that it did not read make it a reset, as
    /// with Linux. The name is gone when [`Closed`](crate::Event::Closed) or
    /// [`Reset`](crate::Event::Reset) says so; until then the send buffer is in use.
    pub fn close(
        &mut self,
        time: Time,
        flow: FlowId,
        out: &mut impl Actions,
    ) -> Result<(), Refusal> {
        let slot = self.slot(flow)?;
        let now = self.now(time);
        if matches!(self.conns[slot].state, State::SynSent | State::SynReceived)
            || self.lane.flows.at(slot as u32).unread() > 0
        {
            let reason = Some(crate::actions::ResetReason::Unread);
            self.reset(now, flow.slot, reason, true, out);
            return Ok(());
        }
        self.shutdown(flow)?;
        self.conns[slot].app_closed = true;
        // From now on each segment is an exception: data has nobody who reads it.
        self.lane.flows.at(slot as u32).unset(flag::FAST);
        if self.conns[slot].state == State::FinWait2 {
            let end = time + self.config.time_wait;
            self.arm(flow.slot, crate::conn::Timer::End, end);
        }
        Ok(())
    }

    /// Ends the connection at once; the peer gets RST. No event follows.
    pub fn abort(
        &mut self,
        time: Time,
        flow: FlowId,
        out: &mut impl Actions,
    ) -> Result<(), Refusal> {
        self.slot(flow)?;
        let now = self.now(time);
        self.reset(now, flow.slot, None, true, out);
        Ok(())
    }
}
