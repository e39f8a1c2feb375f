//! The rest of a link's rate when it loses frames: 100 flows over one link, as in the paper's
//! figure 3.7, in virtual time.
//!
//! `cargo run --release -p uncopy-tcp-proto --example goodput [PERCENT]`

#[path = "../tests/support/mod.rs"]
mod support;

use support::wire::Faults;
use support::{Pair, config};
use uncopy_tcp_proto::{Algorithm, Config, Event, FlowOptions};

/// 10 Gbit/s, 100 us round trip, a switch with 1 MB.
const RATE: u64 = 1_250_000_000;
const FLOWS: usize = 100;
const MILLISECONDS: u64 = 100;

fn goodput(loss: f64, sack: bool, algorithm: Algorithm, rto_min: u64) -> (f64, u32, u32) {
    let faults = Faults {
        drop: loss,
        latency: 50_000,
        rate: RATE,
        queue: 1_000_000,
        mark_at: 65 * 1500,
        ..Faults::none()
    };
    let with = |seed| Config { flows: FLOWS * 2, sack, rto_min, ..config(seed) };
    let mut pair = Pair::new(1, [with(1), with(2)], faults);
    let flow = FlowOptions { rcv_bits: 18, snd_bits: 18, algorithm, ..FlowOptions::default() };
    pair.listen_with(1000, flow);
    let names: Vec<_> = (0..FLOWS).map(|_| pair.connect_with(flow)).collect();
    let zeros = vec![0; 1 << 18];
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
            assert!(
                !pair
                    .hosts
                    .iter()
                    .any(|host| host.events.iter().any(|event| matches!(event.1, Event::Reset(_))))
            );
        }
        taken
    };
    // All handshakes are through, and what was sent at first has been forgotten.
    run(&mut pair, if loss > 0.0 { 1_200_000_000 } else { 300_000_000 });
    let taken = run(&mut pair, MILLISECONDS * 1_000_000);
    let totals =
        names.iter().filter_map(|&id| pair.hosts[0].endpoint.info(id).ok()).map(|info| info.totals);
    let (fast, timeouts) = totals
        .fold((0, 0), |sum, totals| (sum.0 + totals.fast_retransmits, sum.1 + totals.timeouts));
    (taken as f64 * 1000.0 / MILLISECONDS as f64 / RATE as f64, fast, timeouts)
}

fn main() {
    let only = std::env::args().nth(1);
    println!("share of the link's rate; fast retransmits and timeouts since the beginning");
    for (algorithm, rto_min) in [(Algorithm::Dctcp, 50_000_000), (Algorithm::Cubic, 50_000_000)] {
        for sack in [false, true] {
            for loss in [0.0, 0.001, 0.01, 0.05] {
                if only
                    .as_ref()
                    .is_some_and(|only| loss * 100.0 != only.parse::<f64>().unwrap_or(0.0))
                {
                    continue;
                }
                let (share, fast, timeouts) = goodput(loss, sack, algorithm, rto_min);
                println!(
                    "{algorithm:?} rto_min {} ms, {}: loss {:4.1}%  goodput {share:.3}  fast \
                     {fast} timeouts {timeouts}",
                    rto_min / 1_000_000,
                    if sack { "SACK, 14 runs" } else { "one interval " },
                    loss * 100.0
                );
            }
        }
    }
}
