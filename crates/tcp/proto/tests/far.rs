//! One flow over a far link that loses frames though it is not full, in virtual time.

mod support;

use support::wire::Faults;
use support::{Pair, config};
use uncopy_tcp_proto::{Algorithm, Config, Event, FlowOptions};

/// 240 Mbit/s, a round trip of 20 ms, a queue of a round trip's worth, one frame of 500 lost.
const RATE: u64 = 30_000_000;
const LATENCY: u64 = 10_000_000;
const LOSS: f64 = 0.002;
const SECOND: u64 = 1_000_000_000;

/// The share of the link that is read at its end from the third second to the sixth, and the
/// timeouts.
fn share(algorithm: Algorithm) -> (f64, u32) {
    let faults =
        Faults { drop: LOSS, latency: LATENCY, rate: RATE, queue: 600_000, ..Faults::none() };
    let mut pair = Pair::new(1, [1, 2].map(|seed| Config { flows: 4, ..config(seed) }), faults);
    let flow = FlowOptions { rcv_bits: 22, snd_bits: 22, algorithm, ..FlowOptions::default() };
    pair.listen_with(1000, flow);
    let sender = pair.connect_with(flow);
    let zeros = vec![0; 1 << 20];
    let run = |pair: &mut Pair, nanos: u64| {
        let until = pair.now + nanos;
        let mut taken = 0;
        while pair.step(until) {
            let now = pair.now;
            for side in 0..2 {
                while let Some(slot) = pair.hosts[side].active.pop_front() {
                    let Some(socket) = &pair.hosts[side].sockets[slot as usize] else { continue };
                    if !socket.connected {
                        continue;
                    }
                    let id = socket.id;
                    let there = (socket.arrived - socket.taken) as usize;
                    if side == 0 {
                        pair.hosts[0].write(now, id, &zeros);
                    } else if there > 0 {
                        taken += pair.hosts[1].read(now, id, there).len() as u64;
                    }
                }
            }
            let resets = pair
                .hosts
                .iter()
                .flat_map(|host| &host.events)
                .filter(|(_, event)| matches!(event, Event::Reset(_)));
            assert_eq!(resets.count(), 0);
        }
        taken
    };
    run(&mut pair, 3 * SECOND);
    let taken = run(&mut pair, 3 * SECOND);
    let timeouts = pair.hosts[0].endpoint.info(sender).unwrap().totals.timeouts;
    (taken as f64 / 3.0 / RATE as f64, timeouts)
}

#[test]
fn bbr_fills_a_far_link_that_loses_and_cubic_takes_the_share_that_its_losses_allow() {
    let (bbr, timeouts) = share(Algorithm::Bbr);
    let (cubic, _) = share(Algorithm::Cubic);
    println!("share of the link: bbr {bbr:.3} ({timeouts} timeouts), cubic {cubic:.3}");
    assert!(bbr > 0.8, "{bbr}");
    assert!(cubic < 0.3, "{cubic}: the link loses nothing");
}
