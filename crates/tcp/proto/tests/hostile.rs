//! Arbitrary and mutated segments into connections of any state: no panic, no slot, timer or
//! allowance lost, and memory stays bounded because none is allocated.
//!
//! `UNCOPY_TCP_SEED=n` runs one seed, `UNCOPY_TCP_SEEDS=n` so many.

mod support;

use support::{A, B, Host, PORT, Pair, Random, config};
use uncopy_tcp_proto::segment::{Blocks, Flags, SynOptions, Tuple};
use uncopy_tcp_proto::{Algorithm, Config, FlowId, FlowOptions, KeepAlive, Segment, Seq, Time};

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn no_segment_and_no_command_breaks_any_state() {
    let seeds = match variable("UNCOPY_TCP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("UNCOPY_TCP_SEEDS").unwrap_or(150),
    };
    for seed in seeds {
        println!("UNCOPY_TCP_SEED={seed}");
        attack(seed);
    }
}

fn attack(seed: u64) {
    let mut random = Random::new(seed);
    let small =
        |seed| Config { flows: 8, sack: seed % 3 != 0, stamps: seed % 5 != 0, ..config(seed) };
    let mut pair = Pair::new(seed, [small(seed), small(seed + 7)], support::wire::Faults::none());
    let flow = FlowOptions {
        rcv_bits: random.pick(&[6, 10, 16]),
        snd_bits: random.pick(&[6, 10, 16]),
        algorithm: random.pick(&[
            Algorithm::Dctcp,
            Algorithm::Timely,
            Algorithm::Reno,
            Algorithm::Cubic,
        ]),
        keep_alive: random.chance(0.3).then_some(KeepAlive {
            idle: 1_000_000_000,
            interval: 1_000_000_000,
            count: 3,
        }),
        ..FlowOptions::default()
    };
    pair.listen_with(random.below(4) as u32, flow);
    let mut names: Vec<FlowId> = Vec::new();
    for _ in 0..1500 {
        let now = pair.now;
        match random.below(12) {
            0 => {
                let connect = uncopy_tcp_proto::Connect {
                    app: random.below(2) as u16,
                    local_ip: A.into(),
                    local_port: random.chance(0.5).then(|| 4000 + random.below(4) as u16),
                    peer_ip: B.into(),
                    peer_port: if random.chance(0.8) { PORT } else { 81 },
                    route: 0,
                    flow,
                };
                let free = pair.hosts[0].endpoint.used() < 8;
                if free && connect.local_port.is_none() {
                    names.push(pair.hosts[0].connect(now, &connect));
                }
            }
            1..=7 => {
                let side = random.below(2) as usize;
                let segment = segment(&mut random, &mut pair, side);
                let mut frame_payload = vec![0x5a; segment.payload as usize];
                random
                    .next()
                    .to_ne_bytes()
                    .iter()
                    .zip(&mut frame_payload)
                    .for_each(|(from, to)| *to = *from);
                pair.hosts[side].raw(now, &segment, &frame_payload);
            }
            8 => {
                // A command for a name that may have ended, or never was.
                let side = random.below(2) as usize;
                let live: Vec<FlowId> =
                    pair.hosts[side].sockets.iter().flatten().map(|socket| socket.id).collect();
                let id = match random.below(4) {
                    0 if !names.is_empty() => random.pick(&names),
                    1 => {
                        FlowId { slot: random.below(20) as u32, generation: random.below(3) as u32 }
                    }
                    _ if !live.is_empty() => random.pick(&live),
                    _ => continue,
                };
                let n = random.below(1 << 17) as u32;
                let choice = random.below(8);
                pair.hosts[side].command(now, |endpoint, mut out| match choice {
                    0 => endpoint.close(now, id, &mut out).is_ok(),
                    1 => endpoint.abort(now, id, &mut out).is_ok(),
                    2 => endpoint.shutdown(id).is_ok(),
                    3 => endpoint.write(id, n).is_ok(),
                    4 => endpoint.read(id, n).is_ok(),
                    5 => endpoint.accept(id, 1, 1).is_ok(),
                    6 => endpoint.set_nagle(id, false).is_ok(),
                    _ => endpoint.info(id).is_ok(),
                });
                if choice <= 1 {
                    let gone = pair.hosts[side].endpoint.info(id).is_err();
                    let slot = pair.hosts[side].sockets.get_mut(id.slot as usize);
                    if let Some(slot) = slot
                        && gone
                        && slot.as_ref().is_some_and(|socket| socket.id == id)
                    {
                        *slot = None;
                    }
                }
            }
            9 => {
                let side = random.below(2) as usize;
                let tuple = tuple(&mut random, &mut pair, side);
                let seq = Seq(random.next() as u32);
                pair.hosts[side].endpoint.too_big(now, &tuple, seq, random.next() as u16);
            }
            10 => {
                let until = pair.now + random.below(1 << random.clone().below(36));
                for _ in 0..200 {
                    if !pair.step(until) {
                        break;
                    }
                }
            }
            _ => {
                for _ in 0..8 {
                    let until = pair.now + 10_000_000;
                    pair.step(until);
                }
            }
        }
        for host in &pair.hosts {
            assert!(host.endpoint.used() <= 8);
            let (timers, paced) = host.endpoint.deadlines();
            assert!(timers <= 8 && paced <= 8);
        }
    }
    // A connection that both applications give up is gone in the end.
    for side in 0..2 {
        let live: Vec<FlowId> =
            pair.hosts[side].sockets.iter().flatten().map(|socket| socket.id).collect();
        for id in live {
            let now = pair.now;
            let _ = pair.hosts[side]
                .command(now, |endpoint, mut out| endpoint.abort(now, id, &mut out));
            pair.hosts[side].sockets[id.slot as usize] = None;
        }
    }
    for wire in &mut pair.wires {
        wire.clear();
    }
    for host in &mut pair.hosts {
        host.frames.clear();
    }
    for _ in 0..100_000 {
        let until = Time(pair.now.0 + 400_000_000_000);
        if !pair.step(until) {
            break;
        }
        for wire in &mut pair.wires {
            wire.clear();
        }
        for side in 0..2 {
            let live: Vec<FlowId> =
                pair.hosts[side].sockets.iter().flatten().map(|socket| socket.id).collect();
            for id in live {
                let now = pair.now;
                let _ = pair.hosts[side]
                    .command(now, |endpoint, mut out| endpoint.abort(now, id, &mut out));
                pair.hosts[side].sockets[id.slot as usize] = None;
            }
        }
    }
    for host in &pair.hosts {
        assert_eq!(host.endpoint.used(), 0, "UNCOPY_TCP_SEED={seed}: slots");
        assert_eq!(host.endpoint.deadlines(), (0, 0), "UNCOPY_TCP_SEED={seed}: timers");
        for app in 0..2 {
            assert_eq!(host.endpoint.usage(app), (0, 0), "UNCOPY_TCP_SEED={seed}: accounts");
        }
    }
}

/// The ends of a connection that is there, or of one that could be.
fn tuple(random: &mut Random, pair: &mut Pair, side: usize) -> Tuple {
    let Host { endpoint, sockets, .. } = &mut pair.hosts[side];
    let live: Vec<Tuple> = sockets
        .iter()
        .flatten()
        .filter_map(|socket| endpoint.info(socket.id).ok())
        .map(|info| info.tuple)
        .collect();
    if !live.is_empty() && random.chance(0.9) {
        return random.pick(&live);
    }
    let (local_ip, peer_ip) = if side == 0 { (A, B) } else { (B, A) };
    let port = 4000 + random.below(4) as u16;
    let (local_port, peer_port) = if side == 0 { (port, PORT) } else { (PORT, port) };
    Tuple { local_ip: local_ip.into(), local_port, peer_ip: peer_ip.into(), peer_port }
}

/// A segment with numbers near those that the connection expects, and anything else.
fn segment(random: &mut Random, pair: &mut Pair, side: usize) -> Segment {
    let tuple = tuple(random, pair, side);
    let Host { endpoint, sockets, .. } = &mut pair.hosts[side];
    let live = sockets
        .iter()
        .flatten()
        .find(|socket| endpoint.info(socket.id).is_ok_and(|info| info.tuple == tuple));
    let (seq, ack, stamp) =
        live.and_then(|socket| endpoint.expected(socket.id)).unwrap_or((Seq(0), Seq(0), 0));
    let mut near = |from: Seq| match random.below(8) {
        0 => Seq(random.next() as u32),
        1 => from - random.below(70_000) as u32,
        2 => from + random.below(70_000) as u32,
        3 => from - 1,
        4 => from + 1,
        _ => from,
    };
    let (seq, ack) = (near(seq), near(ack));
    let mut sack = Blocks::default();
    for _ in 0..random.below(4) {
        let start = ack + random.below(3000) as u32;
        sack.push(start, start + random.below(3000) as u32);
    }
    let flags = match random.below(4) {
        0 => Flags(random.next() as u8),
        1 => Flags::ACK.with(random.pick(&[
            Flags::FIN,
            Flags::SYN,
            Flags::RST,
            Flags::URG,
            Flags::PSH,
        ])),
        _ => Flags::ACK,
    };
    Segment {
        tuple,
        seq,
        ack,
        window: random.pick(&[0, 1, 100, 65535]),
        flags,
        marked: random.chance(0.2),
        payload: random.pick(&[0, 0, 1, 10, 1448, 60_000]),
        stamp: random.chance(0.7).then(|| {
            (
                stamp.wrapping_add(random.below(5) as u32).wrapping_sub(random.below(3) as u32),
                random.next() as u32,
            )
        }),
        sack,
        syn: SynOptions {
            mss: random.chance(0.7).then(|| random.pick(&[0, 1, 536, 1460, 65535])),
            shift: random.chance(0.7).then(|| random.pick(&[0, 7, 14, 15, 255])),
            sack: random.chance(0.7),
        },
    }
}
