//! Looks at a service that show something of everything, for the tests of what people see.

use std::time::{Duration, SystemTime};

use uncopy_tcp_service::Wired;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_service::state::{DirectionReport, FlowReport, Program, State, Stayed, Waits};
use uncopy_tcp_shared::phase::At;

use super::look::Look;
use super::{json, prometheus, rates, text};

fn wired(port: u16, delivered: u64, again: [u32; 3]) -> Wired {
    Wired {
        addresses: [([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 6379).into()],
        state: 3,
        control: 3,
        lane: 0,
        rtt: (184, 20),
        mss: 1448,
        window: 14_480,
        rate: 0,
        in_flight: 1448,
        peer_window: 65_536,
        unread: 0,
        unacked: 2896,
        delivered,
        marked: 0,
        again,
        agreed: [true, true, false],
    }
}

fn state(looked: u64) -> State {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    let way = |at, reason, n: u64| DirectionReport {
        at,
        reason,
        bytes: n * 6400,
        writes: n * 100,
        unread: 0,
        data: Waits::default(),
        room: Waits::default(),
    };
    let program = |id: u64| Program {
        id,
        pid: 4000 + id as u32,
        uid: 999 + id as u32,
        since: at(id),
        waiting: id - 1,
        bytes: id * 12_288,
        stayed: std::array::from_fn(|i| match i {
            0 => id * 3,
            _ if i == StayReason::OtherUser as usize - 1 => id - 1,
            _ => 0,
        }),
    };
    let address = |port: u16| (std::net::Ipv4Addr::LOCALHOST, port).into();
    let flow = |slot: u64, since: u64, ways| FlowReport {
        programs: [1, 2],
        addresses: [address(50_000 + slot as u16), address(6379)],
        place: (1, slot),
        since: at(since),
        attached: [true, slot != 2],
        ways,
    };
    let sleeps = Waits { asleep: true, set: false };
    let set = Waits { asleep: false, set: true };
    let busy = [
        DirectionReport { data: set, ..way(Some(At::Ring), None, 1000 * looked) },
        DirectionReport { unread: 77, room: sleeps, ..way(Some(At::Offered), None, 900 * looked) },
    ];
    let quiet = [
        DirectionReport { data: sleeps, ..way(Some(At::Ring), None, 5) },
        way(Some(At::Linux), Some(StayReason::NotOffered), 0),
    ];
    let odd =
        [way(Some(At::Leaving), Some(StayReason::Left), 3), way(None, Some(StayReason::Ended), 0)];
    State {
        pid: 3999,
        since: at(0),
        programs: vec![program(1), program(2)],
        flows: vec![flow(0, 100, quiet), flow(1, 200, busy), flow(2, 300, odd)],
        stayed: vec![
            Stayed {
                program: 2,
                addresses: [address(6379), address(50_009)],
                since: at(400),
                reason: StayReason::PeerNotHere,
            },
            Stayed {
                program: 2,
                addresses: [address(6379), address(50_011)],
                since: at(900),
                reason: StayReason::OtherUser,
            },
            Stayed {
                program: 1,
                addresses: [address(50_010), address(80)],
                since: at(990),
                reason: StayReason::Waiting,
            },
        ],
        wired: vec![
            wired(40_000, looked * 1_000_000, [0; 3]),
            Wired { rate: 1_250_000, control: 0, ..wired(40_001, looked * 3_000_000, [2, 1, 0]) },
        ],
    }
}

/// Two of them, a second apart.
pub fn looks() -> (Look, Look) {
    let look = |looked: u64| {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_001_000 + looked);
        Look::of(state(looked), now, &[(4001, "client"), (4002, "server\u{1b}")])
    };
    (look(1), look(2))
}

/// The screens of them.
pub fn texts(before: &Look, now: &Look) -> Vec<(&'static str, String)> {
    let rates = rates::between(before, now, 1.0);
    vec![
        ("tcp-flows.txt", text::flows(now)),
        ("tcp-top.txt", text::top(now, &rates, &rates::over_wire(before, now, 1.0), 17)),
        ("tcp-flows.json", json::text(now, &super::programs::Programs::default())),
        ("tcp-flows.prometheus", prometheus::text(now)),
    ]
}
