//! The core against itself over a hostile wire: every byte arrives in order, once, in both
//! directions, and nothing is left behind.
//!
//! `UNCOPY_TCP_SEED=n` runs one seed; `UNCOPY_TCP_SEEDS=n` so many; `UNCOPY_TCP_SEGMENTS=1000000`
//! until so many segments have arrived in each; `UNCOPY_TCP_CAPTURE=file` writes the wire to a
//! file.

mod support;

use support::wire::{Faults, save};
use support::{Host, Pair, Random, byte, config};
use uncopy_tcp_proto::{Algorithm, Config, Event, FlowOptions, ResetReason, Time};

fn variable(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn every_byte_arrives_in_order_and_once_over_a_hostile_wire() {
    let segments = variable("UNCOPY_TCP_SEGMENTS").unwrap_or(20_000);
    let seeds = match variable("UNCOPY_TCP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + variable("UNCOPY_TCP_SEEDS").unwrap_or(24),
    };
    for seed in seeds {
        exchange(seed, segments);
    }
}

/// A configuration in which the seed chooses everything.
fn choose(random: &mut Random, seed: u64) -> Config {
    let mut config = config(seed);
    config.sack = random.chance(0.7);
    config.stamps = random.chance(0.8);
    config.ecn = random.chance(0.6);
    config.mtu = random.pick(&[576, 1500, 1500, 9000]);
    config.most = random.pick(&[0, 0, 20_000, 60_000]);
    config.rto_min = random.pick(&[0, 1_000_000, 50_000_000]);
    config.ack_wait = random.pick(&[0, 5_000_000, 40_000_000]);
    config.watch_after = random.pick(&[0, 10_000_000]);
    // Enough for all, so that none is forgotten before its time.
    config.flows = 4096;
    // Timestamps wrap within the test.
    config.stamp_offset = u32::MAX - 1000 - random.below(3000) as u32;
    config
}

fn options(random: &mut Random) -> FlowOptions {
    FlowOptions {
        rcv_bits: random.pick(&[6, 8, 12, 16, 20, 24]),
        snd_bits: random.pick(&[6, 10, 14, 18, 22]),
        algorithm: random.pick(&[
            Algorithm::Dctcp,
            Algorithm::Timely,
            Algorithm::Reno,
            Algorithm::Cubic,
            Algorithm::Bbr,
        ]),
        nagle: random.chance(0.5),
        ..FlowOptions::default()
    }
}

fn exchange(seed: u64, segments: u64) {
    let mut random = Random::new(seed);
    let faults = Faults {
        drop: random.pick(&[0.0, 0.001, 0.01, 0.05, 0.1]),
        duplicate: random.pick(&[0.0, 0.01, 0.05]),
        delay: random.pick(&[0.0, 0.01, 0.2]),
        corrupt: random.pick(&[0.0, 0.01]),
        mark: random.pick(&[0.0, 0.05]),
        latency: random.pick(&[1_000, 20_000, 500_000]),
        rate: random.pick(&[0, 12_500_000, 1_250_000_000]),
        queue: 100_000,
        mark_at: 30_000,
    };
    let configs = [choose(&mut random, seed), choose(&mut random, seed + 1000)];
    let mut pair = Pair::new(seed, configs, faults);
    for (host, seed) in pair.hosts.iter_mut().zip(seed..) {
        host.refuses = random.chance(0.3).then(|| Random::new(seed));
    }
    let told = format!("UNCOPY_TCP_SEED={seed} UNCOPY_TCP_SEGMENTS={segments}");
    if std::env::var_os("UNCOPY_TCP_CAPTURE").is_some() {
        pair.wires[0].capture = Some(Vec::new());
    }
    // Small buffers make small segments.
    let (at_a, at_b) = (options(&mut random), options(&mut random));
    pair.listen_with(32, at_b);
    let mut names = 0;
    let mut done = 0;
    let mut steps = 0;
    println!("{told} {faults:?}\n  a: {at_a:?}\n  b: {at_b:?}");
    loop {
        let arrived = pair.hosts[0].segments + pair.hosts[1].segments;
        // Connections come as long as segments are wanted; eight at a time.
        while arrived < segments && names - done < 8 {
            names += 1;
            pair.connect_with(at_a);
        }
        if names == done && arrived >= segments {
            break;
        }
        steps += 1;
        if steps > 200 * segments + 2_000_000 {
            for (side, host) in pair.hosts.iter_mut().enumerate() {
                for socket in host.sockets.iter().flatten() {
                    println!(
                        "  host {side}: {:?} written {} of {}",
                        host.endpoint.info(socket.id),
                        socket.written,
                        socket.total
                    );
                }
            }
            panic!("{told}: no end at {:?}: {done} of {names} done, {arrived} segments", pair.now);
        }
        let until = pair.now + 200_000_000_000;
        assert!(pair.step(until), "{told}: nothing happens any more");
        for side in 0..2 {
            let now = pair.now;
            drive(&mut pair.hosts[side], now, &mut random, side, segments, &told);
        }
        for (side, host) in pair.hosts.iter_mut().enumerate() {
            for socket in host.finished.drain(..) {
                let expected = total(socket.expects, segments);
                assert_eq!(
                    socket.arrived, expected,
                    "{told}: the stream {} ended early at host {side}",
                    socket.expects
                );
                assert_eq!(
                    socket.acked, socket.total,
                    "{told}: the stream {} was not acknowledged",
                    socket.writes
                );
                for (at, got) in (socket.taken..).zip(socket.rest()) {
                    assert_eq!(got, byte(socket.expects, at), "{told}: byte {at} at host {side}");
                }
            }
        }
        for event in pair.hosts[0].events.drain(..) {
            match event.1 {
                Event::Closed => done += 1,
                Event::Reset(reason) => panic!("{told}: {:?} was reset: {reason:?}", event.0),
                _ => {}
            }
        }
        for event in std::mem::take(&mut pair.hosts[1].events) {
            if matches!(event.1, Event::Reset(ResetReason::TimedOut)) {
                for (side, host) in pair.hosts.iter_mut().enumerate() {
                    for socket in host.sockets.iter().flatten() {
                        println!(
                            "  host {side}: {:?} written {} of {}",
                            host.endpoint.info(socket.id),
                            socket.written,
                            socket.total
                        );
                    }
                }
                panic!("{told}: {event:?} at {:?}", pair.now);
            }
        }
        assert!(
            pair.now < Time(100_000_000_000_000),
            "{told}: stuck at {:?}, {done} of {names} done",
            pair.now
        );
    }
    if let (Ok(path), Some(capture)) = (std::env::var("UNCOPY_TCP_CAPTURE"), &pair.wires[0].capture)
    {
        save(&path, capture);
    }
    // Nothing is left: no slot, no timer, no buffer, once what was over is forgotten.
    pair.run(300_000_000_000);
    for (side, host) in pair.hosts.iter_mut().enumerate() {
        assert_eq!(host.endpoint.used(), 0, "{told}: slots of host {side}");
        assert_eq!(host.endpoint.deadlines(), (0, 0), "{told}: timers of host {side}");
        assert_eq!(host.endpoint.usage(0), (0, 0), "{told}: accounts of host {side}");
        assert!(host.sockets.iter().all(Option::is_none), "{told}: sockets of host {side}");
    }
}

/// How long the stream `name` is.
fn total(name: u64, segments: u64) -> u64 {
    let mut random = Random::new(name);
    let most = segments * random.below(12);
    random.below(most.max(1))
}

/// The applications: they write and read pieces of any size, compare what they read, and close when
/// they are done.
fn drive(host: &mut Host, now: Time, random: &mut Random, side: usize, segments: u64, told: &str) {
    for _ in 0..host.active.len() {
        let Some(slot) = host.active.pop_front() else { break };
        let Some(socket) = &host.sockets[slot as usize] else { continue };
        if !socket.connected {
            continue;
        }
        let id = socket.id;
        if host.socket(id).writes == 0 {
            // Both sides know the stream's name: the port of the one that called.
            let tuple = host.endpoint.info(id).expect("connected").tuple;
            let port = if side == 1 { tuple.peer_port } else { tuple.local_port };
            let names = [u64::from(port), u64::from(port) | 1 << 32];
            let socket = host.socket(id);
            (socket.writes, socket.expects) = (names[side], names[1 - side]);
            socket.total = total(socket.writes, segments);
            if side == 1 {
                host.endpoint.accept(id, 0, 0).expect("it waits to be accepted");
            }
        }
        let socket = host.socket(id);
        let (name, at) = (socket.writes, socket.written);
        let room = socket.tx.len() as u64 - (at - socket.acked);
        let want = (socket.total - at).min(room);
        if want > 0 {
            let n = if random.chance(0.5) { want } else { random.range(1..=want) };
            let data: Vec<u8> = (at..at + n).map(|at| byte(name, at)).collect();
            assert_eq!(host.write(now, id, &data), n as usize);
        }
        let socket = host.socket(id);
        let available = socket.arrived - socket.taken;
        if available > 0 {
            let (name, at) = (socket.expects, socket.taken);
            let n = if random.chance(0.5) { available } else { random.range(1..=available) };
            for (offset, got) in host.read(now, id, n as usize).into_iter().enumerate() {
                let at = at + offset as u64;
                assert_eq!(
                    got,
                    byte(name, at),
                    "{told}: byte {at} of stream {name} at host {side}"
                );
            }
        }
        let socket = host.socket(id);
        if socket.eof {
            let expected = total(socket.expects, segments);
            assert_eq!(
                socket.arrived, expected,
                "{told}: the stream {} ends early",
                socket.expects
            );
        }
        let room = socket.tx.len() as u64 > socket.written - socket.acked;
        let more = (socket.written < socket.total && room) || socket.arrived > socket.taken;
        if socket.written == socket.total && !socket.shut {
            socket.shut = true;
            host.endpoint.shutdown(id).expect("may be shut down");
            host.poll_at = Some(now);
        } else if more {
            host.active.push_back(slot);
            host.poll_at = Some(now);
        }
    }
}
