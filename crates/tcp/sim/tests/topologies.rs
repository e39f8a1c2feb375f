//! Small networks whose results can be computed by hand; and that a seed determines everything.

use uncopy_tcp_sim::figures::{Extent, Figure};
use uncopy_tcp_sim::port::{Link, on_link};
use uncopy_tcp_sim::results::PACKET;
use uncopy_tcp_sim::topology::{One, Topology};
use uncopy_tcp_sim::traffic::Plan;
use uncopy_tcp_sim::{Impossible, Sender, Series, Setup, run};

const GBIT: u64 = 1_000_000_000;
const MARK: u64 = 65 * PACKET;
/// Ethernet, IPv4 and TCP with timestamps.
const HEADERS: u32 = 14 + 20 + 32;

const SENDERS: [Sender; 2] = [Sender::Vanilla, Sender::CORE];

/// Two hosts or more on each side at 40 Gbit/s, 10 Gbit/s between; 100 us there and back.
fn setup(sender: Sender, each: u32, flows: Vec<Plan>, end: u64) -> Setup {
    let host = Link { rate: 40 * GBIT, delay: 10_000, mark: 4 * MARK, room: 4000 * PACKET };
    let middle = Link { rate: 10 * GBIT, delay: 30_000, mark: MARK, room: 1000 * PACKET };
    Setup {
        topology: Topology::One(One { each, host, middle }),
        sender,
        flows: vec![flows],
        in_turn: false,
        measured: 0..end,
        end,
        connections: 64,
        sample: 10_000,
        shares: None,
        seed: 1,
    }
}

fn plan(from: u32, to: u32, size: u64) -> Plan {
    Plan { start: 0, from, to, size }
}

fn complete(name: &str, setup: &Setup) -> Series {
    let series = run(name, setup).expect("there is room");
    assert_eq!((series.incomplete, series.broken), (0, 0), "{series:?}");
    series
}

/// The time of a packet over the three links, in nanoseconds.
fn one_way(bytes: u32) -> f64 {
    let bits = f64::from(on_link(bytes)) * 8.0;
    50_000.0 + bits / 40.0 + bits / 10.0 + bits / 40.0
}

#[test]
fn a_flow_of_one_segment_takes_the_handshake_and_one_way() {
    // SYN and SYN-ACK have segment size, window scale and SACK besides.
    let syn = HEADERS + 12;
    let want = 2.0 * one_way(syn) + one_way(HEADERS + 1000);
    for sender in SENDERS {
        let series = complete("one", &setup(sender, 2, vec![plan(0, 2, 1000)], 10_000_000));
        let got = series.fct_us.mean * 1e3;
        assert!((got - want).abs() < 10.0, "{sender:?}: {got} ns, by hand {want} ns");
    }
}

#[test]
fn ten_segments_go_out_in_one_round_trip_one_after_another() {
    // Ten segments fit into the first window; the link in the middle sends one after another. By
    // rate they are spread over a round trip: the last one leaves nine tenths of it later.
    let (syn, full) = (HEADERS + 12, HEADERS + 1448);
    let handshake = 2.0 * one_way(syn);
    let by_window = handshake + one_way(full) + 9.0 * f64::from(on_link(full)) * 0.8;
    let plans = || vec![plan(0, 2, 14_480)];
    let series = complete("window", &setup(Sender::Vanilla, 2, plans(), 10_000_000));
    let got = series.fct_us.mean * 1e3;
    assert!((got - by_window).abs() < 20.0, "{got} ns, by hand {by_window} ns");
    // (Its rate counts headers, and doubles once within the round trip: so not to the nanosecond.)
    let by_rate = handshake + one_way(full) + 0.9 * handshake;
    let core = Sender::CORE;
    let series = complete("rate", &setup(core, 2, plans(), 10_000_000));
    let got = series.fct_us.mean * 1e3;
    assert!((0.85..1.1).contains(&(got / by_rate)), "{got} ns, by hand {by_rate} ns");
}

#[test]
fn one_flow_fills_the_link() {
    // 100 MB at 10 Gbit/s, of which 1448 of 1538 bytes are payload.
    let size = 100_000_000;
    let ideal = size as f64 * PACKET as f64 / 1448.0 * 0.8 / 1e3;
    for (sender, share) in SENDERS.into_iter().zip([0.98, 0.88]) {
        let series = complete("one", &setup(sender, 2, vec![plan(0, 2, size)], 1_000_000_000));
        let got = ideal / series.fct_us.mean;
        println!("{sender:?}: {got:.3} of the link, queue {:?}", series.queue_packets);
        assert!(got > share && got < 1.0, "{sender:?}: {got} of the link");
    }
}

#[test]
fn two_flows_share_the_link() {
    let size = 100_000_000;
    let ideal = 2.0 * size as f64 * PACKET as f64 / 1448.0 * 0.8 / 1e3;
    for (sender, most) in SENDERS.into_iter().zip([1.01, 1.13]) {
        let plans = vec![plan(0, 2, size), plan(1, 3, size)];
        let series = complete("two", &setup(sender, 2, plans, 1_000_000_000));
        // Both end at about the same time, when the link has carried both.
        let (first, last) = (2.0 * series.fct_us.mean - series.fct_us.max, series.fct_us.max);
        println!("{sender:?}: {:.3} and {:.3} of the time of both", first / ideal, last / ideal);
        assert!(
            last / ideal < most,
            "{sender:?}: the last is complete after {last} us, ideal {ideal}"
        );
        assert!(first / last > 0.85, "{sender:?}: {first} and {last} us");
    }
}

#[test]
fn with_marks_the_queue_stays_near_the_threshold_and_nothing_is_lost() {
    // By window the queue stays at the threshold; by rate it swings around it: nothing but the next
    // interval stops it.
    for (sender, median, most, used) in
        [(SENDERS[0], 50.0..80.0, 80.0, 0.99), (SENDERS[1], 0.0..100.0, 220.0, 0.86)]
    {
        let plans = (0..8).map(|n| plan(n, 8 + n, 30_000_000)).collect();
        let series = complete("eight", &setup(sender, 8, plans, 1_000_000_000));
        let (queue, link) = (series.queue_packets, &series.layers[0]);
        println!("{sender:?}: {queue:?} {link:?}");
        assert_eq!(link.lost, 0, "{sender:?}");
        assert!(link.utilization > used, "{sender:?}: {link:?}");
        assert!((30.0..80.0).contains(&queue.mean), "{sender:?}: {queue:?}");
        assert!(median.contains(&queue.p50) && queue.p99 < most, "{sender:?}: {queue:?}");
    }
}

#[test]
fn the_queue_at_regular_times_and_the_waiting_of_packets_say_the_same() {
    let plans = (0..8).map(|n| plan(n, 8 + n, 10_000_000)).collect();
    let mut setup = setup(Sender::Vanilla, 8, plans, 1_000_000_000);
    setup.measured = 0..60_000_000;
    let series = complete("both", &setup);
    // A packet that is being sent counts at regular times, and not while waiting: half a packet.
    let apart = series.queue_packets.mean - series.layers[0].queue_packets;
    assert!((0.2..1.5).contains(&apart), "{series:?}");
}

#[test]
fn a_seed_determines_everything_and_another_one_something_else() {
    let little = Extent { time: 10_000_000, pods: 0 };
    let once = |seed| Figure::SingleLink.run(seed, little, |_| {}).expect("there is room");
    let first = once(7);
    assert_eq!(first, once(7));
    let other = once(8);
    assert!(first.series.iter().zip(&other.series).all(|(a, b)| a.fct_us != b.fct_us));
}

#[test]
fn a_small_fat_tree_carries_the_load_that_was_asked_for() {
    let little = Extent { time: 3_000_000, pods: 2 };
    let results = Figure::Cluster.run(3, little, |_| {}).expect("there is room");
    assert_eq!(results.series.len(), 3);
    for series in &results.series {
        assert_eq!((series.incomplete, series.broken), (0, 0), "{series:?}");
        assert!(series.flows > 1000);
        let core: Vec<_> = series.layers.iter().filter(|l| l.name.contains("core")).collect();
        assert_eq!(core.len(), 2);
        // There are few flows in 3 ms, and few large ones among them.
        assert!(core.iter().all(|l| (0.2..0.4).contains(&l.utilization)), "{core:?}");
    }
}

#[test]
fn a_flow_that_cannot_be_is_refused() {
    let bad = setup(Sender::Vanilla, 2, vec![plan(0, 9, 1)], 1_000_000);
    assert!(matches!(run("bad", &bad), Err(Impossible::Flow(_))), "there is no host 9");
    let plans = (0..70).map(|_| plan(0, 2, 1_000_000)).collect();
    let full = setup(Sender::Vanilla, 2, plans, 100_000_000);
    assert_eq!(run("full", &full).map(drop), Err(Impossible::Connections(full.connections)));
}
