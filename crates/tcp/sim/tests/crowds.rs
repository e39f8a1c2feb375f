//! More flows than a slow link has room for segments: what `uncopy-bench incast` and `loss` do over
//! a link in real time.

use uncopy_tcp_proto::Algorithm;
use uncopy_tcp_sim::port::Link;
use uncopy_tcp_sim::results::{PACKET, Spread};
use uncopy_tcp_sim::topology::{One, Topology};
use uncopy_tcp_sim::traffic::Plan;
use uncopy_tcp_sim::{Sender, Series, Setup, run};

const MBIT: u64 = 1_000_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
/// The link.
const RATE: u64 = 200 * MBIT;

/// Four hosts to others over 200 Mbit/s, a round trip of 100 us, 1 MB before the link, marks from
/// 65 packets on.
fn crowd(algorithm: Algorithm, flows: u32) -> Series {
    let host = Link { rate: 10_000 * MBIT, delay: 10_000, mark: u64::MAX, room: u64::MAX };
    let middle = Link { rate: RATE, delay: 30_000, mark: 65 * PACKET, room: 1_000_000 };
    let plans = (0..flows).map(|n| Plan { start: 0, from: n % 4, to: 4 + n % 4, size: 1 << 40 });
    let setup = Setup {
        topology: Topology::One(One { each: 4, host, middle }),
        sender: Sender::Core { algorithm, interval: None },
        flows: plans.map(|plan| vec![plan]).collect(),
        in_turn: false,
        measured: SECOND..3 * SECOND,
        end: 3 * SECOND,
        connections: 4096,
        sample: MILLISECOND,
        shares: Some(100 * MILLISECOND),
        seed: 1,
    };
    run("crowd", &setup).expect("there is room")
}

/// The share of the link that is payload, and the bytes that flows got in 100 ms.
fn seen(series: &Series) -> (f64, Spread) {
    assert_eq!(series.got.len(), 20, "intervals of the two seconds");
    let all = || series.got.iter().flatten().copied();
    let goodput = all().sum::<u64>() as f64 * 8.0 / 2.0 / RATE as f64;
    (goodput, Spread::of(all().map(|bytes| bytes as f64).collect()))
}

#[test]
fn a_crowd_that_is_marked_shares_a_slow_link_and_nothing_is_lost() {
    for flows in [1, 4, 16, 64, 100, 128] {
        let series = crowd(Algorithm::Dctcp, flows);
        let (goodput, got) = seen(&series);
        let (lost, queue) = (series.layers[0].lost, &series.queue_packets);
        println!("{flows} flows: {goodput:.3} of the link, {got:?}, queue {queue:?}, {lost} lost");
        // (1,448 of 1,538 bytes are payload: 0.941.)
        assert!(goodput > 0.93, "{flows} flows: {goodput} of the link");
        assert_eq!(lost, 0, "{flows} flows");
        // The dissertation's bar for incast.
        assert!(got.p99 < 2.8 * got.p50, "{flows} flows: {got:?}");
        assert!(got.p50 > 0.8 * got.mean, "{flows} flows: {got:?}");
        // Four segments of each flow, or what may wait unmarked.
        let most = f64::from(4 * flows).max(80.0) + 5.0;
        assert!(queue.p99 < most, "{flows} flows: {queue:?}");
    }
}

#[test]
fn a_crowd_of_which_segments_have_to_be_lost_keeps_the_link_busy_with_what_is_new() {
    // A segment of each is nearly what the queue holds. Without round trips that are measured while
    // losses go on, most of what the link carries was there before.
    for algorithm in [Algorithm::Dctcp, Algorithm::Cubic, Algorithm::Reno] {
        let series = crowd(algorithm, 512);
        let (goodput, got) = seen(&series);
        let lost = series.layers[0].lost;
        println!("{algorithm:?}: {goodput:.3} of the link, {got:?}, {lost} lost");
        assert!(goodput > 0.9, "{algorithm:?}: {goodput} of the link");
        assert!(lost > 0, "{algorithm:?}: this is no such crowd");
    }
}

#[test]
fn a_crowd_that_goes_by_delay_shares_a_slow_link_and_nothing_is_lost() {
    for flows in [1, 4, 16, 64, 128] {
        let series = crowd(Algorithm::Timely, flows);
        let (goodput, got) = seen(&series);
        let lost = series.layers[0].lost;
        println!("{flows} flows: {goodput:.3} of the link, {got:?}, {lost} lost");
        assert!(goodput > 0.89, "{flows} flows: {goodput} of the link");
        assert_eq!(lost, 0, "{flows} flows");
        assert!(got.p99 < 2.0 * got.p50, "{flows} flows: {got:?}");
        assert!(got.p50 > 0.8 * got.mean, "{flows} flows: {got:?}");
    }
}
