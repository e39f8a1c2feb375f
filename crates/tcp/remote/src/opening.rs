//! Connections that programs open, on the slow path.

use crate::active_opens::{ActiveOpens, Opening};
use crate::bridge::Connection;
use crate::connection_table::{ConnectionTable, lock};
use crate::stand_in;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use uncopy_tcp_events::line::Line;
use uncopy_tcp_fast::View;
use uncopy_tcp_fast::applications::SlowOut;
use uncopy_tcp_proto::{Connect, Endpoint, FlowId, FlowOptions, Refusal, ResetReason, Seq, Time};

impl ConnectionTable {
    /// A program's SYN has come: ours goes to the peer.
    pub(crate) fn open(
        &self,
        time: Time,
        active_opens: &ActiveOpens,
        opening: Opening,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        if !ActiveOpens::is_current(&opening) {
            // It has failed meanwhile.
            return active_opens.gives_up(&opening);
        }
        let (local, peer) = (opening.local, opening.asked.to);
        // (Another address of this host's would be answered by another device.)
        let route = self.routes.number(*peer.ip());
        let ours = self.routes.addresses().contains(local.ip());
        let part = self.parts.connection(opening.asked.owner);
        let (Some(route), Some(part)) = (route.filter(|_| ours), part) else {
            return active_opens.by_linux(&opening);
        };
        let app = lock(&self.programs).of(opening.asked.program, endpoint);
        let connect = Connect {
            app,
            local_ip: *local.ip(),
            local_port: Some(local.port()),
            peer_ip: *peer.ip(),
            peer_port: peer.port(),
            route,
            // Linux' own: so what a router says of our SYN it believes to be of the program's, and
            // tells the program.
            flow: FlowOptions {
                first: Some(Seq(opening.number)),
                ..self.flow_options(opening.asked.congestion)
            },
        };
        let opened = endpoint.connect(time, &connect, out);
        endpoint.leave();
        match opened {
            Ok(flow) => {
                self.insert(flow).is_part_of(part);
                active_opens.opens(flow, opening);
            }
            // One between the same ends that Linux knows nothing of is not over yet.
            Err(Refusal::InUse) => active_opens.later(opening),
            Err(_) => active_opens.by_linux(&opening),
        }
    }

    /// The peers of some have answered, or will not.
    pub(crate) fn decided(
        &self,
        time: Time,
        active_opens: &ActiveOpens,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool {
        let decided = active_opens.take_decided();
        let some = !decided.is_empty();
        for (flow, opening, why_not) in decided {
            match why_not {
                // The socket belongs to another connection by now.
                _ if !ActiveOpens::is_current(&opening) => {
                    let _ = endpoint.abort(time, flow, out);
                    endpoint.leave();
                    self.forget(flow);
                    active_opens.gives_up(&opening);
                }
                Some(ResetReason::Refused | ResetReason::ByPeer) => active_opens.refused(&opening),
                // (Linux has its own timeout, which the program may have set.)
                Some(_) => active_opens.by_linux(&opening),
                None => {
                    let connects = || stand_in::connected(opening.asked.to, opening.local);
                    let connection = self.at(flow);
                    let met = connection
                        .map(|connection| (active_opens.meets(&opening, connects), connection));
                    if let Some((Ok((socket, connected)), connection)) = met {
                        self.stands_in(&connection, socket, connected);
                        continue;
                    }
                    // (No descriptor, or an older stand-in has that name: that is not the peer's
                    // doing.)
                    let _ = endpoint.abort(time, flow, out);
                    endpoint.leave();
                    self.forget(flow);
                    active_opens.by_linux(&opening);
                }
            }
        }
        some
    }

    /// Nobody waits for these any more.
    pub(crate) fn take_back(
        &self,
        time: Time,
        flows: Vec<FlowId>,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        for flow in flows {
            let _ = endpoint.abort(time, flow, out);
            endpoint.leave();
            self.forget(flow);
        }
    }

    /// A stand-in was made for a connection.
    pub(crate) fn stands_in(&self, connection: &Arc<Connection>, socket: OwnedFd, connected: bool) {
        let state = self.lane_of(connection);
        let line = Line::new(socket, Some(&state.context));
        let mut bridge = connection.lock();
        bridge.stands_in(line, connected, self.fin_timeout);
        lock(&state.bridges).insert(bridge.key, connection.clone());
        drop(bridge);
        self.to_lane(connection.clone(), None);
    }
}
