//! Work that is put off where it may be had for nothing: acknowledgements that go along with an
//! answer, and looks at flows that are acknowledged anyway.

mod support;

use support::Pair;
use support::config;
use support::wire::Faults;
use uncopy_tcp_proto::segment::Flags;
use uncopy_tcp_proto::{Config, FlowId, FlowOptions, Outgoing};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
/// So long acknowledgements wait here.
const WAIT: u64 = 40 * MILLISECOND;
/// So often an application has to have answered.
const ENOUGH: usize = 16;

/// Host 1 puts off what it may. `nagle`: host 0 sends nothing small while something is on the way.
fn connected(nagle: bool) -> (Pair, FlowId, FlowId) {
    let patient = Config { ack_wait: WAIT, watch_after: 10 * MILLISECOND, ..config(2) };
    let mut pair = Pair::new(1, [config(1), patient], Faults::none());
    let (a, b) = pair.established(FlowOptions { nagle, ..FlowOptions::default() });
    pair.hosts[1].keep = true;
    (pair, a, b)
}

/// Host 0 sends, and what host 1 has sent a millisecond later.
fn asks(pair: &mut Pair, a: FlowId) -> Vec<Outgoing> {
    pair.hosts[1].sent.clear();
    let now = pair.now;
    assert_eq!(pair.hosts[0].write(now, a, b"ping"), 4);
    pair.run(MILLISECOND);
    std::mem::take(&mut pair.hosts[1].sent)
}

/// Host 1 takes what is there and answers; what it has sent a millisecond later.
fn answers(pair: &mut Pair, a: FlowId, b: FlowId) -> Vec<Outgoing> {
    pair.hosts[1].sent.clear();
    let now = pair.now;
    pair.hosts[1].read(now, b, 100);
    assert_eq!(pair.hosts[1].write(now, b, b"pong"), 4);
    pair.run(MILLISECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[0].read(now, a, 100), b"pong");
    std::mem::take(&mut pair.hosts[1].sent)
}

/// Acknowledgements and nothing else.
fn bare(sent: &[Outgoing]) -> usize {
    sent.iter().filter(|segment| segment.payload.len == 0 && segment.flags == Flags::ACK).count()
}

fn answers_often(pair: &mut Pair, a: FlowId, b: FlowId) {
    for round in 0..ENOUGH {
        assert_eq!(bare(&asks(pair, a)), 1, "round {round}: nobody knows yet that it answers");
        answers(pair, a, b);
    }
}

#[test]
fn where_data_was_answered_the_acknowledgement_goes_along() {
    let (mut pair, a, b) = connected(false);
    answers_often(&mut pair, a, b);
    for _ in 0..100 {
        assert!(asks(&mut pair, a).is_empty());
        let sent = answers(&mut pair, a, b);
        assert_eq!((sent.len(), bare(&sent)), (1, 0));
        assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().in_flight, 0);
    }
    // Nothing of it is left to wait for.
    pair.hosts[1].sent.clear();
    pair.run(10 * WAIT);
    assert!(pair.hosts[1].sent.is_empty());
}

#[test]
fn an_acknowledgement_that_waits_in_vain_goes_out_and_the_next_do_not_wait() {
    let (mut pair, a, b) = connected(false);
    answers_often(&mut pair, a, b);
    assert!(asks(&mut pair, a).is_empty());
    pair.run(WAIT - 2 * MILLISECOND);
    assert!(pair.hosts[1].sent.is_empty());
    pair.run(3 * MILLISECOND);
    assert_eq!(bare(&pair.hosts[1].sent), 1);
    assert_eq!(pair.hosts[0].endpoint.info(a).unwrap().in_flight, 0);
    answers(&mut pair, a, b);
    answers_often(&mut pair, a, b);
    assert!(asks(&mut pair, a).is_empty());
}

#[test]
fn an_answer_that_came_too_late_makes_none_wait() {
    let (mut pair, a, b) = connected(false);
    for _ in 0..2 * ENOUGH {
        assert_eq!(bare(&asks(&mut pair, a)), 1);
        pair.run(WAIT);
        answers(&mut pair, a, b);
    }
}

#[test]
fn of_two_segments_the_second_is_acknowledged_at_once() {
    let (mut pair, a, b) = connected(false);
    answers_often(&mut pair, a, b);
    assert!(asks(&mut pair, a).is_empty());
    assert_eq!(bare(&asks(&mut pair, a)), 1);
    assert!(asks(&mut pair, a).is_empty());
    assert_eq!(bare(&asks(&mut pair, a)), 1);
}

#[test]
fn a_side_that_only_receives_acknowledges_at_once() {
    let (mut pair, a, b) = connected(false);
    for _ in 0..100 {
        assert_eq!(bare(&asks(&mut pair, a)), 1);
        let now = pair.now;
        pair.hosts[1].read(now, b, 100);
    }
}

#[test]
fn a_gap_is_reported_at_once() {
    let (mut pair, a, b) = connected(false);
    answers_often(&mut pair, a, b);
    pair.wires[0].faults.drop = 1.0;
    assert!(asks(&mut pair, a).is_empty());
    pair.wires[0].faults.drop = 0.0;
    let sent = asks(&mut pair, a);
    assert_eq!(bare(&sent), 1);
    assert_eq!(sent[0].sack.as_slice().len(), 1);
}

#[test]
fn a_fin_behind_data_is_acknowledged_at_once() {
    let (mut pair, a, b) = connected(false);
    answers_often(&mut pair, a, b);
    pair.hosts[1].sent.clear();
    let now = pair.now;
    assert_eq!(pair.hosts[0].write(now, a, b"ping"), 4);
    pair.hosts[0].endpoint.shutdown(a).unwrap();
    pair.run(MILLISECOND);
    assert_eq!(bare(&pair.hosts[1].sent), 1);
    assert!(pair.hosts[1].socket(b).eof);
    assert_eq!(answers(&mut pair, a, b).len(), 1);
}

#[test]
fn aborted_while_its_acknowledgement_waits_it_sends_nothing_but_the_reset() {
    let (mut pair, a, b) = connected(false);
    answers_often(&mut pair, a, b);
    assert!(asks(&mut pair, a).is_empty());
    let now = pair.now;
    pair.hosts[1].command(now, |endpoint, mut out| endpoint.abort(now, b, &mut out)).unwrap();
    pair.run(2 * WAIT);
    let sent = &pair.hosts[1].sent;
    assert_eq!((sent.len(), bare(sent)), (1, 0));
    assert!(sent[0].flags.any(Flags::RST));
}

#[test]
fn a_peer_that_waits_for_its_acknowledgement_with_the_rest_waits_once_in_a_while() {
    let (mut pair, a, b) = connected(true);
    let mut waited = 0;
    for _ in 0..5 * (ENOUGH + 1) {
        // Two parts, the second of which host 0 keeps back until the first is acknowledged.
        let now = pair.now;
        assert_eq!(pair.hosts[0].write(now, a, b"pi"), 2);
        pair.run(10_000);
        let now = pair.now;
        assert_eq!(pair.hosts[0].write(now, a, b"ng"), 2);
        let begun = pair.now;
        let there = |pair: &mut Pair| {
            let socket = pair.hosts[1].socket(b);
            socket.arrived - socket.taken
        };
        while there(&mut pair) < 4 {
            pair.run(100_000);
        }
        let took = pair.now.since(begun);
        waited += usize::from(took > 2 * MILLISECOND);
        assert!(took < WAIT + 2 * MILLISECOND, "{took}");
        answers(&mut pair, a, b);
    }
    assert!((1..=5).contains(&waited), "{waited}");
}

#[test]
fn the_slow_path_does_not_look_at_what_is_acknowledged_soon() {
    let (mut pair, a, b) = connected(false);
    for round in 0..10 {
        asks(&mut pair, a);
        let now = pair.now;
        pair.hosts[1].read(now, b, 100);
        // (It is counted all the same.)
        assert_eq!(pair.hosts[1].endpoint.info(b).unwrap().totals.acked, 4 * round);
        pair.hosts[1].write(now, b, b"pong");
        pair.hosts[1].poll(now);
        assert_eq!(pair.hosts[1].endpoint.info(b).unwrap().in_flight, 4);
        assert_eq!(pair.hosts[1].endpoint.deadlines().0, 0);
        pair.run(20 * MILLISECOND);
        assert_eq!(pair.hosts[1].endpoint.deadlines().0, 0);
        let now = pair.now;
        pair.hosts[0].read(now, a, 100);
    }
}

#[test]
fn a_lost_segment_is_sent_again_although_nobody_looked_at_first() {
    let (mut pair, a, b) = connected(false);
    asks(&mut pair, a);
    pair.wires[1].faults.drop = 1.0;
    let now = pair.now;
    pair.hosts[1].write(now, b, b"pong");
    pair.run(MILLISECOND);
    pair.wires[1].faults.drop = 0.0;
    // The least timeout, and as long as nobody looks.
    pair.run(65 * MILLISECOND);
    let now = pair.now;
    assert_eq!(pair.hosts[0].read(now, a, 100), b"pong");
}

#[test]
fn a_flow_that_its_window_holds_back_is_looked_at_at_once() {
    let (mut pair, _, b) = connected(false);
    let now = pair.now;
    pair.hosts[1].write(now, b, &[7; 100_000]);
    pair.hosts[1].poll(now);
    assert_eq!(pair.hosts[1].endpoint.deadlines().0, 1);
}

/// Host 1 has sent more than host 0 has room for, which takes nothing for so long.
fn kept_closed(for_long: u64) -> (Pair, FlowId, FlowId) {
    let (mut pair, a, b) = connected(false);
    let now = pair.now;
    let sent = pair.hosts[1].write(now, b, &[7; 1 << 17]);
    assert_eq!(sent, 1 << 17);
    pair.run(MILLISECOND * 100);
    let now = pair.now;
    // (Bytes that it takes are written anew, so that it never has all.)
    pair.hosts[1].write(now, b, &[7; 1 << 17]);
    pair.run(for_long);
    assert!(pair.hosts[1].endpoint.info(b).unwrap().totals.probes > 0);
    (pair, a, b)
}

#[test]
fn a_window_that_was_closed_for_long_and_closes_again_is_asked_about_soon() {
    let (mut pair, a, b) = kept_closed(20_000 * MILLISECOND);
    // It opens, and is full again.
    let now = pair.now;
    assert_eq!(pair.hosts[0].read(now, a, 1 << 16).len(), 1 << 16);
    pair.run(5 * MILLISECOND);
    assert_eq!(pair.hosts[1].endpoint.info(b).unwrap().peer_window, 0);
    // The segment that says that it is open once more is lost.
    pair.wires[0].faults.drop = 1.0;
    let now = pair.now;
    pair.hosts[0].read(now, a, 1 << 17);
    pair.run(MILLISECOND);
    pair.wires[0].faults.drop = 0.0;
    pair.run(200 * MILLISECOND);
    let socket = pair.hosts[0].socket(a);
    assert!(socket.arrived > socket.taken, "it waits");
}

#[test]
fn a_peer_that_was_left_and_is_slow_but_takes_something_gets_all() {
    let (mut pair, a, b) = kept_closed(200 * MILLISECOND);
    pair.hosts[0].endpoint.shutdown(a).unwrap();
    pair.hosts[1].endpoint.shutdown(b).unwrap();
    let mut got = 0;
    for _ in 0..200 {
        // (All of it together takes longer than sixteen questions that get no other answer.)
        pair.run(20_000 * MILLISECOND);
        assert_eq!(pair.hosts[1].was_reset(b), None);
        if pair.hosts[0].end(a).is_some() {
            break;
        }
        let now = pair.now;
        got += pair.hosts[0].read(now, a, 4096).len();
    }
    let rest = pair.hosts[0].finished.iter().map(|socket| socket.rest().len()).sum::<usize>();
    assert_eq!(got + rest, pair.hosts[1].finished[0].written as usize);
}

#[test]
fn a_window_that_opens_and_closes_again_is_asked_as_soon_each_time() {
    let (mut pair, a, b) = connected(false);
    // All that host 0 takes at once is there; host 1 has more for it.
    let now = pair.now;
    let size = pair.hosts[0].socket(a).rx.len();
    let told = vec![7; size];
    pair.hosts[1].write(now, b, &told);
    pair.run(SECOND);
    pair.hosts[1].write(now, b, &told);
    pair.hosts[1].endpoint.shutdown(b).unwrap();
    pair.hosts[0].endpoint.shutdown(a).unwrap();
    pair.run(SECOND);
    // Each time it takes a little, and the news of it is lost.
    for round in 0..40 {
        pair.wires[0].faults.drop = 1.0;
        let (now, before) = (pair.now, pair.hosts[0].socket(a).arrived);
        assert_eq!(pair.hosts[0].read(now, a, 3000).len(), 3000, "round {round}");
        pair.run(MILLISECOND);
        pair.wires[0].faults.drop = 0.0;
        pair.run(SECOND);
        assert_eq!(pair.hosts[0].socket(a).arrived, before + 3000, "round {round}");
    }
    assert_eq!(pair.hosts[1].was_reset(b), None);
}
