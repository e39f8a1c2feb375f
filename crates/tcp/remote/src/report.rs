//! Reports of connections, for readers outside.

use crate::bridge::{Connection, Wants};
use crate::connection_table::ConnectionTable;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use uncopy_tcp_fast::View;
use uncopy_tcp_proto::segment::Tuple;
use uncopy_tcp_proto::{Algorithm, Endpoint, Info, State};
use uncopy_tcp_service::Wired;

fn report(of: &Info, lane: usize) -> Wired {
    let end = |ip, port| SocketAddr::V4(SocketAddrV4::new(ip, port));
    let ends = &of.tuple;
    // (In the order of the names that the service has for them.)
    let state = match of.state {
        State::Closed => 0,
        State::SynSent => 1,
        State::SynReceived => 2,
        State::Established => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::CloseWait => 6,
        State::Closing => 7,
        State::LastAck => 8,
        State::TimeWait => 9,
    };
    let control = match of.algorithm {
        Algorithm::Dctcp => 0,
        Algorithm::Timely => 1,
        Algorithm::Reno => 2,
        Algorithm::Cubic => 3,
        Algorithm::Caller => 4,
        Algorithm::Bbr => 5,
    };
    let (stamps, sack, ecn) = of.agreed;
    Wired {
        addresses: [end(ends.local_ip, ends.local_port), end(ends.peer_ip, ends.peer_port)],
        state,
        control,
        lane: u16::try_from(lane).unwrap_or(u16::MAX),
        rtt: of.rtt,
        mss: of.mss,
        window: of.window,
        rate: of.rate.unwrap_or(0),
        in_flight: of.in_flight,
        peer_window: of.peer_window,
        unread: of.unread,
        unacked: of.unacked,
        delivered: of.totals.acked,
        marked: of.totals.marked,
        again: [of.totals.fast_retransmits, of.totals.timeouts, of.totals.probes],
        agreed: [stamps, sack, ecn],
    }
}

impl ConnectionTable {
    fn wired_as(
        &self,
        connection: &Arc<Connection>,
        endpoint: &mut Endpoint<View<'_>>,
    ) -> Option<Wired> {
        let info = endpoint.info(connection.id).ok();
        endpoint.leave();
        let mut info = info?;
        let mut bridge = connection.lock();
        // (The program has received it: the protocol hears of that where it matters.)
        info.unread = info.unread.saturating_sub(bridge.unreported_read());
        // (Where the program has written nonsense, its connection has failed now.)
        let wants = bridge.wants();
        drop(bridge);
        if wants != Wants::Nothing {
            self.to_lane(connection.clone(), None);
        }
        Some(report(&info, connection.lane))
    }

    /// One, between these ends, as the slow path knows it.
    pub(crate) fn wired_one(
        &self,
        [local, peer]: [SocketAddrV4; 2],
        endpoint: &mut Endpoint<View<'_>>,
    ) -> Option<Wired> {
        let tuple = Tuple {
            local_ip: *local.ip(),
            local_port: local.port(),
            peer_ip: *peer.ip(),
            peer_port: peer.port(),
        };
        let flow = endpoint.flow_of(&tuple);
        endpoint.leave();
        self.wired_as(&self.at(flow?)?, endpoint)
    }

    /// All connections, as the slow path knows them.
    pub(crate) fn wired(&self, endpoint: &mut Endpoint<View<'_>>) -> Vec<Wired> {
        let all = self.all().into_iter();
        all.filter_map(|connection| self.wired_as(&connection, endpoint)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uncopy_tcp_proto::conn::Totals;

    #[test]
    fn states_and_controls_have_the_services_names() {
        let tuple = Tuple {
            local_ip: [10, 0, 0, 1].into(),
            local_port: 80,
            peer_ip: [10, 0, 0, 2].into(),
            peer_port: 4000,
        };
        let info = |state, algorithm| Info {
            tuple,
            state,
            algorithm,
            rtt: (1, 2),
            mss: 1448,
            window: 3,
            rate: None,
            in_flight: 4,
            peer_window: 5,
            unread: 6,
            unacked: 7,
            agreed: (true, false, true),
            totals: Totals { acked: 8, ..Totals::default() },
        };
        let one = report(&info(State::LastAck, Algorithm::Timely), 2);
        assert_eq!((one.state(), one.control(), one.lane), ("LAST-ACK", "timely", 2));
        assert_eq!(one.addresses.map(|end| end.to_string()), ["10.0.0.1:80", "10.0.0.2:4000"]);
        assert_eq!((one.delivered, one.rate, one.agreed), (8, 0, [true, false, true]));
        let two = report(&info(State::Established, Algorithm::Cubic), 0);
        assert_eq!((two.state(), two.control()), ("ESTAB", "cubic"));
    }
}
