//! Events in each state, one example each. The names say state and event.

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use support::wire::Faults;
use support::{A, B, PORT, Pair, config};
use uncopy_tcp_proto::apps::Rates;
use uncopy_tcp_proto::flow::{Flow, Place};
use uncopy_tcp_proto::flows::{Flows, Own};
use uncopy_tcp_proto::segment::{Blocks, Flags, SynOptions, Tuple};
use uncopy_tcp_proto::table::Table;
use uncopy_tcp_proto::{
    Actions, Algorithm, Config, Connect, Endpoint, Event, FlowId, FlowOptions, KeepAlive, Limits,
    Listen, Outgoing, Refusal, ResetReason, Segment, Seq, State, Time,
};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// A segment of host 0's connection `id` to host 1, just as the latter expects it.
fn forged(pair: &mut Pair, b: FlowId) -> Segment {
    let endpoint = &mut pair.hosts[1].endpoint;
    let (seq, ack, stamp) = endpoint.expected(b).expect("the connection is there");
    Segment {
        tuple: endpoint.info(b).expect("the connection is there").tuple,
        seq,
        ack,
        window: 1000,
        flags: Flags::ACK,
        marked: false,
        payload: 0,
        stamp: Some((stamp, 0)),
        sack: Blocks::default(),
        syn: SynOptions::default(),
    }
}

fn states(pair: &mut Pair, a: FlowId, b: FlowId) -> (State, State) {
    (pair.hosts[0].endpoint.state(a), pair.hosts[1].endpoint.state(b))
}

/// The answers of host 1 to `segment`.
fn answers(pair: &mut Pair, segment: &Segment) -> Vec<uncopy_tcp_proto::Outgoing> {
    pair.hosts[1].keep = true;
    pair.hosts[1].sent.clear();
    let payload = vec![7; segment.payload as usize];
    let now = pair.now;
    pair.hosts[1].raw(now, segment, &payload);
    pair.hosts[1].poll(now);
    std::mem::take(&mut pair.hosts[1].sent)
}

#[test]
fn listening_a_syn_makes_a_connection_with_all_that_both_can() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    assert_eq!(states(&mut pair, a, b), (State::Established, State::Established));
    for (host, id) in [(0, a), (1, b)] {
        let info = pair.hosts[host].endpoint.info(id).unwrap();
        assert_eq!(info.agreed, (true, true, true));
        assert_eq!(info.mss, 1448);
        assert!((100..200).contains(&info.rtt.0), "{:?}", info.rtt);
    }
}

#[test]
fn established_data_goes_both_ways_and_frees_the_buffer_when_acknowledged() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let now = pair.now;
    assert_eq!(pair.hosts[0].write(now, a, b"ping"), 4);
    pair.run(MILLISECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[1].read(now, b, 100), b"ping");
    pair.hosts[1].write(now, b, b"pong");
    pair.run(MILLISECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[0].read(now, a, 100), b"pong");
    assert_eq!(pair.hosts[0].socket(a).acked, 4);
    assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().in_flight, 0);
}

#[test]
fn both_syns_cross_and_one_connection_comes_of_it() {
    let mut pair = Pair::plain();
    let connect = |local: [u8; 4], local_port, peer: [u8; 4], peer_port| Connect {
        app: 0,
        local_ip: local.into(),
        local_port: Some(local_port),
        peer_ip: peer.into(),
        peer_port,
        route: 0,
        flow: FlowOptions::default(),
    };
    let now = pair.now;
    let a = pair.hosts[0].connect(now, &connect(A, 1111, B, 2222));
    let b = pair.hosts[1].connect(now, &connect(B, 2222, A, 1111));
    pair.run(10 * MILLISECOND);
    assert_eq!(states(&mut pair, a, b), (State::Established, State::Established));
    let now = pair.now;
    pair.hosts[0].write(now, a, b"x");
    pair.hosts[1].write(now, b, b"y");
    pair.run(10 * MILLISECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[0].read(now, a, 9), b"y");
    assert_eq!(pair.hosts[1].read(now, b, 9), b"x");
}

#[test]
fn syn_sent_a_port_without_listener_refuses() {
    let mut pair = Pair::plain();
    let a = pair.connect_with(FlowOptions::default());
    pair.run(MILLISECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::Refused));
    assert_eq!(pair.hosts[0].endpoint.used(), 0);
}

#[test]
fn syn_sent_without_an_answer_it_tries_seven_times_and_gives_up() {
    let mut pair = Pair::new(1, [config(1), config(2)], Faults { drop: 1.0, ..Faults::none() });
    let a = pair.connect_with(FlowOptions::default());
    pair.run(120 * SECOND);
    assert_eq!(pair.hosts[0].endpoint.state(a), State::SynSent);
    assert_eq!(pair.wires[0].dropped, 7);
    pair.run(5 * SECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::TimedOut));
}

#[test]
fn syn_received_is_forgotten_when_the_peer_says_nothing_more() {
    let mut pair = Pair::plain();
    pair.listen_with(4, FlowOptions::default());
    pair.connect_with(FlowOptions::default());
    pair.wires[1].faults.drop = 1.0;
    pair.wires[0].faults.drop = 0.0;
    pair.run(MILLISECOND);
    assert_eq!(pair.hosts[1].endpoint.used(), 1);
    pair.wires[0].faults.drop = 1.0;
    pair.run(200 * SECOND);
    assert_eq!(pair.hosts[1].endpoint.used(), 0);
    assert_eq!(pair.hosts[1].endpoint.usage(0), (0, 0));
    assert!(pair.hosts[1].events.is_empty());
}

#[test]
fn one_side_closes_and_the_other_goes_on_sending() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    pair.hosts[0].endpoint.shutdown(a).unwrap();
    pair.hosts[0].poll_at = Some(pair.now);
    pair.run(MILLISECOND);
    assert_eq!(states(&mut pair, a, b), (State::FinWait2, State::CloseWait));
    assert!(pair.hosts[1].socket(b).eof);
    assert_eq!(pair.hosts[0].endpoint.write(a, 1), Err(Refusal::WrongState));
    let now = pair.now;
    pair.hosts[1].write(now, b, b"still here");
    pair.run(MILLISECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[0].read(now, a, 99), b"still here");
    pair.hosts[1].endpoint.shutdown(b).unwrap();
    pair.hosts[1].poll_at = Some(pair.now);
    pair.run(MILLISECOND);
    assert_eq!(pair.hosts[0].end(a), Some(Event::Closed));
    assert_eq!(pair.hosts[1].end(b), Some(Event::Closed));
    assert_eq!(states(&mut pair, a, b), (State::TimeWait, State::Closed));
    pair.run(61 * SECOND);
    assert_eq!(pair.hosts[0].endpoint.used(), 0);
}

#[test]
fn both_close_at_once_and_both_wait() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    for (host, id) in [(0, a), (1, b)] {
        pair.hosts[host].endpoint.shutdown(id).unwrap();
        pair.hosts[host].poll_at = Some(pair.now);
    }
    pair.run(MILLISECOND);
    assert_eq!(states(&mut pair, a, b), (State::TimeWait, State::TimeWait));
}

#[test]
fn time_wait_answers_a_fin_that_comes_again() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let fin = Segment { flags: Flags::ACK.with(Flags::FIN), ..forged(&mut pair, b) };
    for (host, id) in [(1, b), (0, a)] {
        pair.hosts[host].endpoint.shutdown(id).unwrap();
        pair.hosts[host].poll_at = Some(pair.now);
        pair.run(MILLISECOND);
    }
    assert_eq!(pair.hosts[1].endpoint.state(b), State::TimeWait);
    let answer = answers(&mut pair, &fin);
    assert_eq!(answer.len(), 1);
    assert_eq!(answer[0].ack, fin.seq + 1);
    // A reset does not end it.
    answers(&mut pair, &Segment { flags: Flags::RST, seq: fin.seq + 1, ..fin });
    assert_eq!(pair.hosts[1].endpoint.state(b), State::TimeWait);
    // A newer SYN does, and begins anew.
    let stamp = fin.stamp.map(|(value, _)| (value + 5000, 0));
    answers(&mut pair, &Segment { flags: Flags::SYN, seq: fin.seq + 70_000, stamp, ..fin });
    assert_eq!(pair.hosts[1].endpoint.state(b), State::Closed);
    assert_eq!(pair.hosts[1].endpoint.state_of(&fin.tuple), State::SynReceived);
}

#[test]
fn time_wait_beside_a_kernel_ends_when_an_answer_to_the_kernel_comes() {
    for (beside, state) in [(true, State::Closed), (false, State::TimeWait)] {
        let configs = [1, 2].map(|seed| Config { reset_strangers: !beside, ..config(seed) });
        let mut pair = Pair::new(1, configs, Faults::none());
        let (a, b) = pair.established(FlowOptions::default());
        let next = forged(&mut pair, b);
        for (host, id) in [(1, b), (0, a)] {
            pair.hosts[host].endpoint.shutdown(id).unwrap();
            pair.hosts[host].poll_at = Some(pair.now);
            pair.run(MILLISECOND);
        }
        let answer = Segment { flags: Flags::SYN.with(Flags::ACK), ..next };
        // An old duplicate does not end it.
        answers(&mut pair, &Segment { seq: next.seq - 1000, stamp: next.stamp, ..answer });
        assert_eq!(pair.hosts[1].endpoint.state(b), State::TimeWait);
        let stamp = next.stamp.map(|(value, _)| (value + 5000, 0));
        answers(&mut pair, &Segment { seq: next.seq + 70_000, stamp, ..answer });
        assert_eq!(pair.hosts[1].endpoint.state(b), state);
    }
}

#[test]
fn time_wait_gives_its_slot_to_a_new_connection_when_none_is_left() {
    let few = |seed| Config { flows: 2, ..config(seed) };
    let mut pair = Pair::new(1, [few(1), few(2)], Faults::none());
    pair.listen_with(4, FlowOptions::default());
    for _ in 0..5 {
        let a = pair.connect_with(FlowOptions::default());
        pair.run(MILLISECOND);
        let b = pair.hosts[1].incoming().unwrap();
        pair.hosts[1].endpoint.accept(b, 0, 0).unwrap();
        for (host, id) in [(0, a), (1, b)] {
            let now = pair.now;
            pair.hosts[host]
                .command(now, |endpoint, mut out| endpoint.close(now, id, &mut out))
                .unwrap();
            pair.run(MILLISECOND);
        }
        assert_eq!(pair.hosts[0].end(a), Some(Event::Closed));
    }
    assert!(pair.hosts[0].endpoint.used() <= 2);
}

#[test]
fn established_a_reset_is_believed_only_with_the_very_next_number() {
    let mut pair = Pair::plain();
    let (_, b) = pair.established(FlowOptions::default());
    let next = forged(&mut pair, b);
    let reset = |seq| Segment { flags: Flags::RST, seq, ..next };
    // In the window but not next: a question back (RFC 5961). The second within half a second gets
    // none.
    let answer = answers(&mut pair, &reset(next.seq + 100));
    assert_eq!(answer.len(), 1);
    assert_eq!(answer[0].flags, Flags::ACK);
    assert!(answers(&mut pair, &reset(next.seq + 100)).is_empty());
    // Outside: nothing.
    pair.run(SECOND);
    assert!(answers(&mut pair, &reset(next.seq - 5)).is_empty());
    assert_eq!(pair.hosts[1].endpoint.state(b), State::Established);
    answers(&mut pair, &reset(next.seq));
    assert_eq!(pair.hosts[1].was_reset(b), Some(ResetReason::ByPeer));
}

#[test]
fn established_a_syn_is_questioned_and_changes_nothing() {
    let mut pair = Pair::plain();
    let (_, b) = pair.established(FlowOptions::default());
    let next = forged(&mut pair, b);
    let answer = answers(&mut pair, &Segment { flags: Flags::SYN, ..next });
    assert_eq!((answer.len(), answer[0].flags, answer[0].ack), (1, Flags::ACK, next.seq));
    assert_eq!(pair.hosts[1].endpoint.state(b), State::Established);
}

#[test]
fn established_what_acknowledges_the_future_is_questioned() {
    let mut pair = Pair::plain();
    let (_, b) = pair.established(FlowOptions::default());
    let next = forged(&mut pair, b);
    let answer = answers(&mut pair, &Segment { ack: next.ack + 1, payload: 3, ..next });
    assert_eq!((answer.len(), answer[0].ack), (1, next.seq));
    assert_eq!(pair.hosts[1].socket(b).arrived, 0);
}

#[test]
fn established_an_old_timestamp_is_no_data() {
    let mut pair = Pair::plain();
    let (_, b) = pair.established(FlowOptions::default());
    let next = forged(&mut pair, b);
    let old = next.stamp.map(|(value, _)| (value.wrapping_sub(1), 0));
    answers(&mut pair, &Segment { stamp: old, payload: 3, ..next });
    assert_eq!(pair.hosts[1].socket(b).arrived, 0);
    answers(&mut pair, &Segment { payload: 3, ..next });
    assert_eq!(pair.hosts[1].socket(b).arrived, 3);
}

#[test]
fn established_out_of_order_data_is_kept_reported_and_joined() {
    let mut pair = Pair::plain();
    let (_, b) = pair.established(FlowOptions::default());
    let next = forged(&mut pair, b);
    let answer = answers(&mut pair, &Segment { seq: next.seq + 10, payload: 5, ..next });
    assert_eq!(answer[0].sack.as_slice(), [(next.seq + 10, next.seq + 15)]);
    let answer = answers(&mut pair, &Segment { seq: next.seq + 20, payload: 5, ..next });
    // The newest first.
    assert_eq!(
        answer[0].sack.as_slice(),
        [(next.seq + 20, next.seq + 25), (next.seq + 10, next.seq + 15)]
    );
    let answer = answers(&mut pair, &Segment { payload: 10, ..next });
    assert_eq!(pair.hosts[1].socket(b).arrived, 15);
    assert_eq!(answer[0].ack, next.seq + 15);
    assert_eq!(answer[0].sack.as_slice(), [(next.seq + 20, next.seq + 25)]);
}

#[test]
fn without_sack_one_interval_is_kept_and_others_are_dropped() {
    let without = |seed| Config { sack: false, ..config(seed) };
    let mut pair = Pair::new(1, [without(1), without(2)], Faults::none());
    let (_, b) = pair.established(FlowOptions::default());
    let next = forged(&mut pair, b);
    answers(&mut pair, &Segment { seq: next.seq + 10, payload: 5, ..next });
    answers(&mut pair, &Segment { seq: next.seq + 20, payload: 5, ..next });
    answers(&mut pair, &Segment { seq: next.seq + 15, payload: 2, ..next });
    answers(&mut pair, &Segment { payload: 10, ..next });
    assert_eq!(pair.hosts[1].socket(b).arrived, 17);
}

#[test]
fn three_duplicates_send_what_is_missing_again_before_any_timeout() {
    for sack in [true, false] {
        let with = |seed| Config { sack, rto_min: SECOND, ..config(seed) };
        let mut pair = Pair::new(1, [with(1), with(2)], Faults::none());
        let (a, b) = pair.established(FlowOptions::default());
        let now = pair.now;
        let data: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
        pair.hosts[0].write(now, a, &data);
        pair.hosts[0].poll(now);
        pair.hosts[0].frames.remove(1).expect("several segments");
        pair.run(10 * MILLISECOND);
        let now = pair.now;
        assert_eq!(pair.hosts[1].read(now, b, 20_000), data, "SACK {sack}");
        pair.run(SECOND);
        let totals = pair.hosts[0].endpoint.info(a).unwrap().totals;
        assert_eq!((totals.fast_retransmits, totals.timeouts), (1, 0), "SACK {sack}");
    }
}

#[test]
fn sack_sends_only_what_is_missing_again() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let now = pair.now;
    pair.hosts[0].write(now, a, &[1; 14_480]);
    pair.hosts[0].poll(now);
    pair.hosts[0].frames.remove(4).expect("ten segments");
    pair.hosts[0].frames.remove(1).expect("ten segments");
    pair.hosts[0].keep = true;
    pair.run(20 * MILLISECOND);
    let again: Vec<u32> =
        pair.hosts[0].sent.iter().filter(|s| s.payload.len > 0).map(|s| s.payload.len).collect();
    assert_eq!(again, [1448, 1448]);
    assert_eq!(pair.hosts[1].socket(b).arrived, 14_480);
}

#[test]
fn a_lost_tail_is_sent_again_after_the_timeout_and_the_timeout_doubles() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    pair.wires[0].faults.drop = 1.0;
    let now = pair.now;
    pair.hosts[0].write(now, a, b"tail");
    // 50, 100, 200 and 400 ms.
    pair.run(800 * MILLISECOND);
    assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().totals.timeouts, 4);
    pair.wires[0].faults.drop = 0.0;
    pair.run(2 * SECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[1].read(now, b, 9), b"tail");
}

#[test]
fn a_peer_that_is_gone_is_given_up() {
    let mut pair = Pair::plain();
    let flow = FlowOptions { user_timeout: Some(5 * SECOND), ..FlowOptions::default() };
    let (a, _) = pair.established(flow);
    pair.wires[0].faults.drop = 1.0;
    let now = pair.now;
    pair.hosts[0].write(now, a, b"anybody?");
    pair.run(4 * SECOND);
    assert_eq!(pair.hosts[0].endpoint.state(a), State::Established);
    pair.run(5 * SECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::TimedOut));
}

#[test]
fn a_closed_window_is_asked_until_it_opens_however_long() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions { rcv_bits: 12, ..FlowOptions::default() });
    let now = pair.now;
    pair.hosts[0].write(now, a, &[3; 10_000]);
    pair.run(3600 * SECOND);
    assert_eq!(pair.hosts[1].socket(b).arrived, 4096);
    let probes = pair.hosts[0].endpoint.info(a).unwrap().totals.probes;
    assert!((60..100).contains(&probes), "{probes}");
    // The news of the open window is lost; the next question finds out.
    pair.wires[1].faults.drop = 1.0;
    let now = pair.now;
    pair.hosts[1].read(now, b, 4096);
    pair.run(MILLISECOND);
    pair.wires[1].faults.drop = 0.0;
    pair.run(61 * SECOND);
    assert_eq!(pair.hosts[1].socket(b).arrived, 8192);
}

#[test]
fn a_closed_window_is_asked_as_long_where_the_first_questions_come_soon() {
    // Sixteen questions within a minute, each of which is answered.
    let soon = Config { rto_min: 0, ..config(1) };
    let mut pair = Pair::new(1, [soon, config(2)], Faults::none());
    let (a, b) = pair.established(FlowOptions { rcv_bits: 12, ..FlowOptions::default() });
    let now = pair.now;
    pair.hosts[0].write(now, a, &[3; 10_000]);
    pair.run(3600 * SECOND);
    assert_eq!(pair.hosts[0].was_reset(a), None);
    let now = pair.now;
    pair.hosts[1].read(now, b, 4096);
    pair.run(SECOND);
    assert_eq!(pair.hosts[1].socket(b).arrived, 8192);
    // One that answers no more is given up.
    pair.wires[1].faults.drop = 1.0;
    pair.run(3600 * SECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::TimedOut));
}

#[test]
fn a_closed_window_is_not_asked_for_ever_where_both_have_closed() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions { rcv_bits: 12, ..FlowOptions::default() });
    let now = pair.now;
    pair.hosts[1].write(now, b, &[3; 10_000]);
    pair.hosts[0].command(now, |endpoint, _| endpoint.shutdown(a)).unwrap();
    pair.run(SECOND);
    let now = pair.now;
    pair.hosts[1].command(now, |endpoint, mut out| endpoint.close(now, b, &mut out)).unwrap();
    // Its peer answers each question, and has no room.
    pair.run(300 * SECOND);
    assert_eq!(states(&mut pair, a, b), (State::FinWait2, State::LastAck));
    pair.run(300 * SECOND);
    assert_eq!(pair.hosts[1].was_reset(b), Some(ResetReason::TimedOut));
    assert_eq!(pair.hosts[1].endpoint.used(), 0);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::ByPeer));
}

#[test]
fn a_receive_buffer_that_grows_and_shrinks_lets_its_peer_send_as_much() {
    let mut pair = Pair::plain();
    let small = FlowOptions { rcv_bits: 12, rcv_most: Some(20), ..FlowOptions::default() };
    let (a, b) = pair.established(small);
    // (Nothing has come: its place is what the size makes it.)
    let resize = |pair: &mut Pair, bits: u8| {
        let host = &mut pair.hosts[1];
        host.endpoint.resize(b, bits).unwrap();
        host.poll_at = Some(pair.now);
        let socket = host.socket(b);
        assert_eq!(socket.arrived, socket.taken);
        socket.rx = vec![0; 1 << bits];
        pair.run(SECOND);
    };
    let write = |pair: &mut Pair, bytes: usize| {
        let now = pair.now;
        assert_eq!(pair.hosts[0].write(now, a, &vec![7; bytes]), bytes);
        pair.run(70 * SECOND);
        pair.hosts[1].socket(b).arrived
    };
    let read = |pair: &mut Pair, bytes: usize| {
        let now = pair.now;
        assert_eq!(pair.hosts[1].read(now, b, usize::MAX).len(), bytes);
        // (Segments that were lost while the window closed are sent again when their time has
        // come.)
        pair.run(70 * SECOND);
    };
    resize(&mut pair, 20);
    assert_eq!(write(&mut pair, 100_000), 100_000);
    assert_eq!(pair.hosts[1].endpoint.info(b).unwrap().unread, 100_000);
    // Bytes that are there stay, and nothing comes until there is less of them than room.
    pair.hosts[1].endpoint.resize(b, 12).unwrap();
    assert_eq!(pair.hosts[1].endpoint.info(b).unwrap().unread, 100_000);
    assert_eq!(write(&mut pair, 10_000), 100_000);
    let socket = pair.hosts[1].socket(b);
    assert!(socket.rest().iter().all(|&byte| byte == 7));
    socket.taken = 100_000;
    socket.rx = vec![0; 1 << 12];
    let now = pair.now;
    pair.hosts[1].endpoint.read(b, 100_000).unwrap();
    pair.hosts[1].poll_at = Some(now);
    pair.run(70 * SECOND);
    assert_eq!(pair.hosts[1].socket(b).arrived, 104_096);
    read(&mut pair, 4096);
    read(&mut pair, 4096);
    read(&mut pair, 10_000 - 2 * 4096);
    // It is said to a peer that waits.
    assert_eq!(write(&mut pair, 50_000), 114_096);
    read(&mut pair, 4096);
    let before = pair.hosts[1].socket(b).arrived;
    assert_eq!(before, 118_192);
    pair.hosts[1].read(pair.now, b, usize::MAX);
    resize(&mut pair, 20);
    assert_eq!(pair.hosts[1].socket(b).arrived, 160_000);
}

/// A window of 1 MB that the peer of the second host knows; what has come is read.
fn with_a_large_window() -> (Pair, FlowId, FlowId) {
    let mut pair = Pair::plain();
    let large =
        FlowOptions { rcv_bits: 20, rcv_most: Some(20), snd_bits: 20, ..FlowOptions::default() };
    let (a, b) = pair.established(large);
    let now = pair.now;
    assert_eq!(pair.hosts[0].write(now, a, &vec![7; 300_000]), 300_000);
    pair.run(5 * SECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[1].read(now, b, usize::MAX).len(), 300_000);
    pair.run(5 * SECOND);
    (pair, a, b)
}

/// The second host's receive buffer, of which all is read, has 64 KB from now on.
fn shrinks(pair: &mut Pair, b: FlowId) {
    pair.hosts[1].endpoint.resize(b, 16).unwrap();
    pair.hosts[1].socket(b).rx = vec![0; 1 << 16];
}

#[test]
fn a_peer_that_sent_for_a_larger_buffer_is_heard_after_it_has_shrunk() {
    let (mut pair, a, b) = with_a_large_window();
    shrinks(&mut pair, b);
    let now = pair.now;
    assert_eq!(pair.hosts[0].write(now, a, &vec![8; 600_000]), 600_000);
    pair.run(SECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[1].write(now, b, &[9; 10_000]), 10_000);
    pair.run(SECOND);
    // Nobody reads: what was sent is acknowledged all the same, and the connection lives.
    assert_eq!(pair.hosts[1].socket(b).acked, 10_000);
    assert_eq!(pair.hosts[1].socket(b).arrived, 300_000 + (1 << 16));
    let mut left = 600_000;
    for _ in 0..200 {
        let now = pair.now;
        let data = pair.hosts[1].read(now, b, usize::MAX);
        assert!(data.iter().all(|&byte| byte == 8));
        left -= data.len();
        pair.run(SECOND);
    }
    assert_eq!((left, pair.hosts[1].end(b), pair.hosts[0].end(a)), (0, None, None));
}

#[test]
fn a_reset_within_the_window_of_a_buffer_that_has_shrunk_is_challenged() {
    let (mut pair, _, b) = with_a_large_window();
    let mut segment = forged(&mut pair, b);
    segment.flags = Flags::RST.with(Flags::ACK);
    pair.hosts[1].keep = true;
    shrinks(&mut pair, b);
    for (ahead, challenged) in [(500_000u32, true), (3_000_000, false)] {
        pair.run(SECOND);
        pair.hosts[1].sent.clear();
        let reset = Segment { seq: segment.seq + ahead, ..segment };
        let now = pair.now;
        pair.hosts[1].raw(now, &reset, &[]);
        assert_eq!(pair.hosts[1].sent.len(), usize::from(challenged), "{ahead}");
        assert_eq!(pair.hosts[1].end(b), None);
    }
}

#[test]
fn a_peer_whose_fin_came_before_its_turn_hears_of_room_after_the_buffer_has_shrunk() {
    let (mut pair, _, b) = with_a_large_window();
    let mut segment = forged(&mut pair, b);
    let now = pair.now;
    let flags = Flags::ACK.with(Flags::FIN);
    let fin = Segment { seq: segment.seq + 500_000u32, flags, ..segment };
    pair.hosts[1].raw(now, &fin, &[]);
    pair.hosts[1].poll(now);
    shrinks(&mut pair, b);
    segment.payload = 1024;
    for _ in 0..64 {
        pair.hosts[1].raw(now, &segment, &[7; 1024]);
        segment.seq += 1024u32;
    }
    pair.hosts[1].poll(now);
    pair.hosts[1].keep = true;
    pair.hosts[1].sent.clear();
    assert_eq!(pair.hosts[1].read(now, b, usize::MAX).len(), 1 << 16);
    pair.hosts[1].poll(now);
    assert!(pair.hosts[1].sent.iter().any(|sent| sent.window > 0));
}

#[test]
fn a_connection_that_is_opened_has_the_number_that_was_given() {
    let mut pair = Pair::plain();
    pair.hosts[0].keep = true;
    let first = Seq(u32::MAX);
    pair.established(FlowOptions { first: Some(first), ..FlowOptions::default() });
    let syn = pair.hosts[0].sent[0];
    assert!(syn.flags.any(Flags::SYN) && syn.seq == first, "{syn:?}");
}

#[test]
fn a_connection_goes_the_other_way_from_the_next_segment_on() {
    let mut pair = Pair::plain();
    let (a, _) = pair.established(FlowOptions::default());
    pair.hosts[0].keep = true;
    pair.hosts[0].endpoint.reroute(a, 7).unwrap();
    let now = pair.now;
    pair.hosts[0].write(now, a, &[1; 5000]);
    pair.run(SECOND);
    assert!(pair.hosts[0].sent.len() >= 4);
    assert!(pair.hosts[0].sent.iter().all(|segment| segment.route == 7));
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    let keep_alive = Some(KeepAlive { idle: 10 * SECOND, interval: SECOND, count: 3 });
    let mut pair = Pair::plain();
    let (a, _) = pair.established(FlowOptions { keep_alive, ..FlowOptions::default() });
    pair.run(100 * SECOND);
    assert_eq!(pair.hosts[0].endpoint.state(a), State::Established);
    pair.wires[0].faults.drop = 1.0;
    pair.wires[1].faults.drop = 1.0;
    pair.run(9 * SECOND);
    assert_eq!(pair.hosts[0].endpoint.state(a), State::Established);
    pair.run(10 * SECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::TimedOut));
}

#[test]
fn close_with_unread_data_resets_the_peer() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let now = pair.now;
    pair.hosts[0].write(now, a, b"unread");
    pair.run(MILLISECOND);
    let now = pair.now;
    pair.hosts[1].command(now, |endpoint, mut out| endpoint.close(now, b, &mut out)).unwrap();
    pair.run(MILLISECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::ByPeer));
    assert_eq!(pair.hosts[1].was_reset(b), Some(ResetReason::Unread));
}

#[test]
fn data_for_an_application_that_has_closed_resets_the_peer() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let now = pair.now;
    pair.hosts[1].command(now, |endpoint, mut out| endpoint.close(now, b, &mut out)).unwrap();
    pair.run(MILLISECOND);
    assert_eq!(states(&mut pair, a, b), (State::CloseWait, State::FinWait2));
    let now = pair.now;
    pair.hosts[0].write(now, a, b"too late");
    pair.run(MILLISECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::ByPeer));
}

/// A SYN from a host that is not there.
fn syn(port: u16) -> Segment {
    Segment {
        tuple: Tuple {
            local_ip: B.into(),
            local_port: PORT,
            peer_ip: [10, 9, 9, 9].into(),
            peer_port: port,
        },
        seq: Seq(u32::from(port) * 7919),
        ack: Seq(0),
        window: 1000,
        flags: Flags::SYN,
        marked: false,
        payload: 0,
        stamp: Some((1, 0)),
        sack: Blocks::default(),
        syn: SynOptions { mss: Some(1460), shift: Some(7), sack: true },
    }
}

#[test]
fn under_a_flood_of_syns_cookies_let_real_clients_in() {
    let mut pair = Pair::plain();
    pair.listen_with(8, FlowOptions { rcv_bits: 20, ..FlowOptions::default() });
    for port in 1..10_000 {
        answers(&mut pair, &syn(port));
    }
    pair.hosts[1].frames.clear();
    assert_eq!(pair.hosts[1].endpoint.used(), 9);
    let a = pair.connect_with(FlowOptions { rcv_bits: 20, ..FlowOptions::default() });
    pair.run(10 * MILLISECOND);
    assert_eq!(pair.hosts[1].endpoint.counters().cookies_accepted, 1);
    let b = pair.hosts[1].incoming().unwrap();
    let (at_a, at_b) =
        (pair.hosts[0].endpoint.info(a).unwrap(), pair.hosts[1].endpoint.info(b).unwrap());
    assert_eq!((at_a.agreed, at_b.agreed), ((true, true, true), (true, true, true)));
    // Windows are scaled the same way on both sides.
    let now = pair.now;
    pair.hosts[0].write(now, a, &[9; 100_000]);
    pair.run(100 * MILLISECOND);
    assert_eq!(pair.hosts[1].socket(b).arrived, 100_000);
}

#[test]
fn the_first_segment_after_a_cookie_may_be_lost() {
    let mut pair = Pair::plain();
    pair.listen_with(8, FlowOptions::default());
    for port in 1..100 {
        answers(&mut pair, &syn(port));
    }
    let asks = syn(100);
    let cookie = answers(&mut pair, &asks)[0];
    let sends = |skip: u32, payload: u32| Segment {
        flags: Flags::ACK,
        seq: asks.seq + 1 + skip,
        ack: cookie.seq + 1,
        payload,
        stamp: Some((2, cookie.stamp.unwrap().0)),
        ..asks
    };
    // The next one, and one that is nobody's.
    assert_eq!(answers(&mut pair, &sends(1000, 1000)), []);
    assert_eq!(answers(&mut pair, &Segment { ack: Seq(7), ..sends(0, 1000) }), []);
    assert_eq!(pair.hosts[1].endpoint.counters().cookies_accepted, 0);
    answers(&mut pair, &sends(0, 1000));
    let b = pair.hosts[1].incoming().unwrap();
    assert_eq!(pair.hosts[1].socket(b).arrived, 1000);
    // Two minutes after the last cookie strangers are told.
    pair.run(121 * SECOND);
    let stranger = Segment { tuple: syn(101).tuple, ack: Seq(7), ..sends(0, 1000) };
    let told = answers(&mut pair, &stranger);
    assert!(told[0].flags.any(Flags::RST));
}

#[test]
fn of_all_slots_half_are_left_to_who_comes_back_by_a_cookie() {
    let small = Config { flows: 8, ..config(2) };
    let mut pair = Pair::new(1, [config(1), small], Faults::none());
    pair.listen_with(1000, FlowOptions::default());
    for port in 1..1000 {
        answers(&mut pair, &syn(port));
    }
    pair.hosts[1].frames.clear();
    assert_eq!(pair.hosts[1].endpoint.used(), 4);
    let clients: Vec<_> = (0..4).map(|_| pair.connect_with(FlowOptions::default())).collect();
    pair.run(10 * MILLISECOND);
    assert_eq!(pair.hosts[1].endpoint.counters().cookies_accepted, 4);
    assert!(clients.iter().all(|&a| pair.hosts[0].socket(a).connected));
    // A client that was not there has been given up after a while: then SYNs have slots again.
    pair.run(100 * SECOND);
    assert_eq!(pair.hosts[1].endpoint.used(), 4);
    let cookies = pair.hosts[1].endpoint.counters().cookies_sent;
    pair.connect_with(FlowOptions::default());
    pair.run(10 * MILLISECOND);
    assert_eq!(pair.hosts[1].endpoint.counters().cookies_sent, cookies);
}

#[test]
fn a_client_that_comes_back_gets_the_slot_of_one_that_does_not_answer() {
    let small = Config { flows: 8, ..config(2) };
    let mut pair = Pair::new(1, [config(1), small], Faults::none());
    pair.listen_with(1000, FlowOptions::default());
    (1..100).for_each(|port| drop(answers(&mut pair, &syn(port))));
    pair.hosts[1].frames.clear();
    (0..4).for_each(|_| _ = pair.connect_with(FlowOptions::default()));
    pair.run(10 * MILLISECOND);
    let of = |pair: &Pair| {
        let endpoint = &pair.hosts[1].endpoint;
        (endpoint.used(), endpoint.counters().cookies_accepted)
    };
    assert_eq!(of(&pair), (8, 4));
    // Those that are half open may still answer.
    pair.connect_with(FlowOptions::default());
    pair.run(10 * MILLISECOND);
    assert_eq!(of(&pair), (8, 4));
    // (Nobody says of them that they are not there.)
    pair.wires[1].faults.drop = 1.0;
    pair.run(1500 * MILLISECOND);
    pair.wires[1].faults.drop = 0.0;
    let a = pair.connect_with(FlowOptions::default());
    pair.run(10 * MILLISECOND);
    assert_eq!(of(&pair), (8, 5));
    let now = pair.now;
    pair.hosts[0].write(now, a, b"hello");
    pair.run(10 * MILLISECOND);
    let b = pair.hosts[1].incoming().unwrap();
    assert_eq!(pair.hosts[1].socket(b).arrived, 5);
}

/// Flows that write down whether cookies are said to be out.
struct RecordingFlows {
    own: Own,
    cookies: Rc<RefCell<Vec<bool>>>,
}

impl Flows for RecordingFlows {
    fn count(&self) -> usize {
        self.own.count()
    }
    fn at(&mut self, slot: u32) -> &mut Flow {
        self.own.at(slot)
    }
    fn leave(&mut self) {}
    fn table(&self) -> &Table {
        self.own.table()
    }
    fn cookies(&mut self, are_out: bool) {
        self.cookies.borrow_mut().push(are_out);
    }
    fn rates(&self) -> &Rates {
        self.own.rates()
    }
    fn wake(&mut self, slot: u32) -> bool {
        self.own.wake(slot)
    }
}

struct Nobody;

impl Actions for Nobody {
    fn send(&mut self, _: Option<FlowId>, _: &Outgoing) {}
    fn place(&mut self, _: FlowId, place: Place) -> u32 {
        place.to.len
    }
    fn event(&mut self, _: FlowId, _: Event) {}
}

#[test]
fn it_is_said_when_cookies_are_out_and_that_they_are_no_more_two_minutes_after_the_last() {
    let cookies = Rc::new(RefCell::new(Vec::new()));
    let config = Config { flows: 8, ..config(2) };
    let flows = RecordingFlows { own: Own::new(&config), cookies: cookies.clone() };
    let mut endpoint = Endpoint::over(config, flows);
    let flow = FlowOptions::default();
    endpoint.listen(Listen { app: 0, ip: B.into(), port: PORT, backlog: 1000, flow }).unwrap();
    let start = Time(SECOND);
    let flood = |endpoint: &mut Endpoint<RecordingFlows>, time, ports: std::ops::Range<u16>| {
        ports.for_each(|port| assert!(endpoint.segment(time, 0, &syn(port), &mut Nobody)));
    };
    flood(&mut endpoint, start, 1..5);
    assert_eq!(*cookies.borrow(), []);
    flood(&mut endpoint, start, 5..20);
    flood(&mut endpoint, start + 60 * SECOND, 20..30);
    assert_eq!(*cookies.borrow(), [true]);
    let mut time = start + 179 * SECOND;
    let next = endpoint.poll(time, 64, &mut Nobody);
    assert!(next.is_some_and(|next| next <= start + 180 * SECOND), "{next:?}");
    assert_eq!(*cookies.borrow(), [true]);
    time = start + 180 * SECOND;
    endpoint.poll(time, 64, &mut Nobody);
    assert_eq!(*cookies.borrow(), [true, false]);
    // And anew.
    flood(&mut endpoint, time, 30..40);
    assert_eq!(*cookies.borrow(), [true, false, true]);
}

#[test]
fn a_queue_that_nobody_accepts_from_makes_clients_wait() {
    let mut pair = Pair::plain();
    pair.listen_with(1, FlowOptions::default());
    let names: Vec<_> = (0..4).map(|_| pair.connect_with(FlowOptions::default())).collect();
    pair.run(100 * MILLISECOND);
    let incoming: Vec<FlowId> = pair.hosts[1].events.iter().map(|event| event.0).collect();
    assert_eq!(incoming.len(), 2);
    for id in incoming {
        pair.hosts[1].endpoint.accept(id, 5, 6).unwrap();
        assert_eq!(pair.hosts[1].endpoint.flow(id).unwrap().opaque(), 5);
    }
    // Of those that got a cookie we know again when they send something.
    for &id in &names {
        let now = pair.now;
        pair.hosts[0].write(now, id, b"hello");
    }
    pair.run(10 * SECOND);
    assert!(names.iter().all(|&id| pair.hosts[0].endpoint.state(id) == State::Established));
    assert_eq!(pair.hosts[1].events.len(), 4);
}

#[test]
fn unlisten_resets_what_was_not_accepted() {
    let mut pair = Pair::plain();
    pair.listen_with(4, FlowOptions::default());
    let a = pair.connect_with(FlowOptions::default());
    pair.run(MILLISECOND);
    let now = pair.now;
    let listener = uncopy_tcp_proto::ListenerId(0);
    pair.hosts[1]
        .command(now, |endpoint, mut out| endpoint.unlisten(now, listener, &mut out))
        .unwrap();
    pair.run(MILLISECOND);
    assert_eq!(pair.hosts[0].was_reset(a), Some(ResetReason::ByPeer));
    assert_eq!(pair.hosts[1].endpoint.usage(0), (0, 0));
}

#[test]
fn an_application_gets_no_more_than_its_limits() {
    let mut pair = Pair::plain();
    let limits = Limits { connections: 2, buffers: 600_000, rate: None };
    pair.hosts[0].endpoint.set_limits(0, limits).unwrap();
    pair.listen_with(4, FlowOptions::default());
    pair.connect_with(FlowOptions::default());
    pair.connect_with(FlowOptions::default());
    let connect = Connect {
        app: 0,
        local_ip: A.into(),
        local_port: None,
        peer_ip: B.into(),
        peer_port: PORT,
        route: 0,
        flow: FlowOptions::default(),
    };
    let now = pair.now;
    let third =
        pair.hosts[0].command(now, |endpoint, mut out| endpoint.connect(now, &connect, &mut out));
    assert_eq!(third, Err(Refusal::Limit));
    assert_eq!(pair.hosts[0].endpoint.usage(0), (2, 4 << 17));
}

#[test]
fn a_listener_whose_application_has_all_that_it_may_refuses_and_others_do_not() {
    let mut pair = Pair::plain();
    let id = pair.listen_with(4, FlowOptions::default());
    pair.hosts[1].endpoint.set_listener(id, 3, FlowOptions::default()).unwrap();
    let limits = Limits { connections: 1, ..Limits::default() };
    pair.hosts[1].endpoint.set_limits(3, limits).unwrap();
    let all: Vec<FlowId> = (0..3).map(|_| pair.connect_with(FlowOptions::default())).collect();
    pair.run(MILLISECOND);
    let ends = all.iter().map(|id| pair.hosts[0].was_reset(*id));
    assert_eq!(
        ends.collect::<Vec<_>>(),
        [None, Some(ResetReason::Refused), Some(ResetReason::Refused)]
    );
    let endpoint = &mut pair.hosts[1].endpoint;
    assert_eq!([endpoint.take_refused(3), endpoint.take_refused(3)], [2, 0]);
    endpoint.set_listener(id, 4, FlowOptions::default()).unwrap();
    let other = pair.connect_with(FlowOptions::default());
    pair.run(MILLISECOND);
    assert!(pair.hosts[0].socket(other).connected);
}

#[test]
fn a_listener_that_is_changed_changes_what_comes_from_then_on() {
    let mut pair = Pair::plain();
    let id = pair.listen_with(4, FlowOptions::default());
    let a = pair.connect_with(FlowOptions::default());
    pair.run(MILLISECOND);
    let old = pair.hosts[1].incoming().unwrap();
    let flow = FlowOptions { algorithm: Algorithm::Reno, ..FlowOptions::default() };
    pair.hosts[1].endpoint.set_listener(id, 1, flow).unwrap();
    pair.connect_with(FlowOptions::default());
    pair.run(MILLISECOND);
    let new = pair.hosts[1].incoming().unwrap();
    let algorithm = |id| pair.hosts[1].endpoint.info(id).unwrap().algorithm;
    assert_eq!([old, new].map(algorithm), [Algorithm::Cubic, Algorithm::Reno]);
    assert_eq!([0, 1].map(|app| pair.hosts[1].endpoint.usage(app).0), [1, 1]);
    // Each goes back to whom it was taken from.
    let now = pair.now;
    pair.hosts[0].command(now, |endpoint, mut out| endpoint.abort(now, a, &mut out)).unwrap();
    pair.run(MILLISECOND);
    assert_eq!([0, 1].map(|app| pair.hosts[1].endpoint.usage(app).0), [0, 1]);
    let no_app = pair.hosts[1].endpoint.set_listener(id, u16::MAX, flow);
    assert_eq!(no_app, Err(Refusal::Invalid));
}

#[test]
fn an_application_sends_no_faster_than_its_rate() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let limits = Limits { rate: Some(1_000_000), ..Limits::default() };
    pair.hosts[0].endpoint.set_limits(0, limits).unwrap();
    let now = pair.now;
    pair.hosts[0].write(now, a, &[1; 100_000]);
    pair.run(50 * MILLISECOND);
    let arrived = pair.hosts[1].socket(b).arrived;
    assert!((45_000..60_000).contains(&arrived), "{arrived}");
}

#[test]
fn nagle_holds_small_segments_back_while_one_is_on_the_way() {
    for (nagle, expected) in [(true, 2), (false, 5)] {
        let mut pair = Pair::plain();
        let (a, _) = pair.established(FlowOptions { nagle, ..FlowOptions::default() });
        pair.hosts[0].keep = true;
        let now = pair.now;
        for _ in 0..5 {
            pair.hosts[0].write(now, a, b"abc");
            pair.hosts[0].poll(now);
        }
        pair.run(MILLISECOND);
        assert_eq!(
            pair.hosts[0].sent.iter().filter(|segment| segment.payload.len > 0).count(),
            expected
        );
    }
}

#[test]
fn a_router_without_room_makes_segments_smaller_and_sends_again() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions { nagle: false, ..FlowOptions::default() });
    let now = pair.now;
    pair.hosts[0].write(now, a, &[1; 5000]);
    pair.hosts[0].poll(now);
    pair.hosts[0].frames.clear();
    let (_, sent, _) = pair.hosts[0].endpoint.expected(a).unwrap();
    let tuple = pair.hosts[0].endpoint.info(a).unwrap().tuple;
    // One about what was never sent is a lie.
    pair.hosts[0].endpoint.too_big(now, &tuple, sent + 1, 600);
    assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().mss, 1448);
    pair.hosts[0].endpoint.too_big(now, &tuple, sent - 5000, 1000);
    assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().mss, 948);
    pair.hosts[0].poll_at = Some(now);
    pair.run(10 * MILLISECOND);
    assert_eq!(pair.hosts[1].socket(b).arrived, 5000);
}

#[test]
fn a_way_that_swallows_full_segments_is_found_by_timeouts() {
    let mut pair = Pair::plain();
    let (a, b) = pair.established(FlowOptions::default());
    let now = pair.now;
    pair.hosts[0].write(now, a, &[1; 5000]);
    for _ in 0..20_000 {
        let until = pair.now + 10 * SECOND;
        for host in &mut pair.hosts {
            host.frames.retain(|frame| frame.len() < 1300);
        }
        pair.now = pair.next().unwrap_or(until).min(until);
        for host in &mut pair.hosts {
            if host.poll_at.is_some_and(|at| at <= pair.now) {
                host.poll(pair.now);
            }
            host.frames.retain(|frame| frame.len() < 1300);
        }
        pair.step(pair.now);
    }
    assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().mss, 1024);
    assert_eq!(pair.hosts[1].socket(b).arrived, 5000);
}

#[test]
fn marks_are_echoed_exactly_for_dctcp_and_until_answered_for_others() {
    for (algorithm, exact) in [(Algorithm::Dctcp, true), (Algorithm::Cubic, false)] {
        let mut pair = Pair::plain();
        let (_, b) = pair.established(FlowOptions { algorithm, ..FlowOptions::default() });
        let mut next = forged(&mut pair, b);
        let mut echoed = |pair: &mut Pair, marked, flags: Flags| {
            let answer = answers(
                pair,
                &Segment { marked, payload: 10, flags: Flags::ACK.with(flags), ..next },
            );
            next.seq += 10;
            answer.last().unwrap().flags.any(Flags::ECE)
        };
        let none = Flags::default();
        assert!(!echoed(&mut pair, false, none));
        assert!(echoed(&mut pair, true, none));
        assert_eq!(echoed(&mut pair, false, none), !exact);
        assert!(!echoed(&mut pair, false, Flags::CWR));
    }
}

#[test]
fn names_of_ended_connections_are_refused() {
    let mut pair = Pair::plain();
    let (a, _) = pair.established(FlowOptions::default());
    let now = pair.now;
    pair.hosts[0].command(now, |endpoint, mut out| endpoint.abort(now, a, &mut out)).unwrap();
    let again = pair.connect_with(FlowOptions::default());
    assert_eq!(again.slot, a.slot);
    let endpoint = &mut pair.hosts[0].endpoint;
    assert_eq!(endpoint.write(a, 1), Err(Refusal::NoSuchFlow));
    assert_eq!(endpoint.read(a, 1), Err(Refusal::NoSuchFlow));
    assert_eq!(endpoint.shutdown(a), Err(Refusal::NoSuchFlow));
    assert!(endpoint.info(a).is_err());
}

#[test]
fn an_application_that_lies_about_its_buffers_is_refused() {
    let mut pair = Pair::plain();
    let (a, _) = pair.established(FlowOptions { snd_bits: 10, ..FlowOptions::default() });
    let endpoint = &mut pair.hosts[0].endpoint;
    assert_eq!(endpoint.write(a, 1025), Err(Refusal::TooMany));
    assert_eq!(endpoint.write(a, u32::MAX), Err(Refusal::TooMany));
    assert_eq!(endpoint.read(a, 1), Err(Refusal::TooMany));
    assert_eq!(endpoint.write(a, 1024), Ok(()));
    assert_eq!(endpoint.write(a, 1), Err(Refusal::TooMany));
}

#[test]
fn sequence_numbers_and_timestamps_wrap_unnoticed() {
    // A first SYN tells the number; then time is chosen so that the next one's lies 50,000 bytes
    // before the wrap.
    let mut pair = Pair::plain();
    let flow = FlowOptions { nagle: false, ..FlowOptions::default() };
    let connect = Connect {
        app: 0,
        local_ip: A.into(),
        local_port: Some(5000),
        peer_ip: B.into(),
        peer_port: PORT,
        route: 0,
        flow,
    };
    pair.hosts[0].keep = true;
    let now = pair.now;
    let id = pair.hosts[0].connect(now, &connect);
    let seq = pair.hosts[0].sent[0].seq;
    pair.hosts[0].command(now, |endpoint, mut out| endpoint.abort(now, id, &mut out)).unwrap();
    pair.hosts[0].frames.clear();
    pair.now = now + u64::from(Seq(0u32.wrapping_sub(50_000)).distance(seq)) * 64;
    pair.listen_with(4, flow);
    let now = pair.now;
    let a = pair.hosts[0].connect(now, &connect);
    pair.run(MILLISECOND);
    let b = pair.hosts[1].incoming().unwrap();
    let data: Vec<u8> = (0..100_000u32).map(|n| (n / 7) as u8).collect();
    let now = pair.now;
    assert_eq!(pair.hosts[0].write(now, a, &data), data.len());
    pair.run(100 * MILLISECOND);
    let (next, ..) = pair.hosts[1].endpoint.expected(b).unwrap();
    assert!(next.0 < 100_000, "{next:?} has wrapped");
    let now = pair.now;
    assert_eq!(pair.hosts[1].read(now, b, 200_000), data);
}
