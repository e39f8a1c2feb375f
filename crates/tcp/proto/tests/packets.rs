//! Any bytes as packets for an endpoint, between time that goes by and what applications ask: no
//! panic, no more slots and timers than there are, what it sends is TCP, and in the end nothing is
//! left.
//!
//! `cargo test` tries some thousand random inputs; what fails is made smaller, and printed with the
//! seed. With a nightly compiler and cargo-bolero the same test is led by what the code does:
//! `cargo +nightly bolero test -p uncopy-tcp-proto --test packets any_packets`.

mod support;

use bolero::{TypeGenerator, check};
use support::{A, B, Host, PORT, config};
use uncopy_tcp_proto::segment::{Blocks, Flags, RingRange, SynOptions, Tuple};
use uncopy_tcp_proto::wire::{Checksums, Link, MAX_HEADERS, Packet, emit, parse};
use uncopy_tcp_proto::{
    Config, Connect, Endpoint, FlowId, FlowOptions, KeepAlive, Listen, Outgoing, Seq, State, Time,
};

const FLOWS: usize = 8;
/// An hour: longer than anything waits for here.
const LONG: u64 = 3_600_000_000_000;

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    /// A segment that may be of a connection that is there, then damaged.
    Segment(SegmentPlan, Vec<(u8, u8)>),
    /// These bytes behind an IPv4 header: of TCP, of ICMP's "too big" around TCP, or of any
    /// protocol.
    Packet(u8, Vec<u8>),
    /// No more than these bytes.
    Frame(Vec<u8>),
    /// So many nanoseconds, as a power of two.
    Wait(u8),
    Connect(u8),
    /// Something is asked of the connection of this slot, of a generation near its.
    Ask(u8, u8, u32),
}

#[derive(Clone, Debug, TypeGenerator)]
struct SegmentPlan {
    /// Of the connection of this slot; of none that is there, from this port to the listener.
    slot: u8,
    port: u8,
    /// How far away from the number that is expected: see [`near`].
    seq: (u8, i32),
    ack: (u8, i32),
    window: u16,
    /// Which flags it has: see [`flags`].
    kind: u8,
    flags: u8,
    stamp: Option<(i8, u32)>,
    sack: Vec<(i16, u16)>,
    syn: Option<(Option<u16>, Option<u8>, bool)>,
    payload: Vec<u8>,
}

/// Mostly `base`, sometimes near it, sometimes anywhere.
fn near(base: Seq, (how, by): (u8, i32)) -> Seq {
    match how {
        0..200 => base,
        200..230 => base + i32::from(by as i8) as u32,
        _ => base + by as u32,
    }
}

/// Mostly those of the segment that is expected in this state, sometimes others.
fn flags(state: State, kind: u8, any: u8) -> Flags {
    match (kind, state) {
        (0..190, State::Closed) => Flags::SYN,
        (0..190, State::SynSent) => Flags::SYN.with(Flags::ACK),
        (0..190, _) => Flags::ACK,
        (190..210, _) => Flags::ACK.with(Flags::FIN),
        (210..220, _) => Flags::SYN,
        _ => Flags(any),
    }
}

/// The frame of `made`, for a connection of `endpoint`.
fn frame(endpoint: &mut Endpoint, made: &SegmentPlan, generations: &[u32; FLOWS]) -> Vec<u8> {
    let slot = usize::from(made.slot) % (FLOWS + 2);
    let id = (slot < FLOWS).then(|| FlowId { slot: slot as u32, generation: generations[slot] });
    let state = id.map_or(State::Closed, |id| endpoint.state(id));
    let there = id.and_then(|id| Some((endpoint.info(id).ok()?.tuple, endpoint.expected(id)?)));
    let stranger = Tuple {
        local_ip: B.into(),
        local_port: PORT,
        peer_ip: A.into(),
        peer_port: 1 + u16::from(made.port % 4),
    };
    let (ends, (seq, ack, stamp)) = there.unwrap_or((stranger, (Seq(0), Seq(0), 0)));
    let mut sack = Blocks::default();
    // (As many as there is room for.)
    for &(start, length) in made.sack.iter().take(if made.syn.is_none() { 3 } else { 0 }) {
        let start = ack + i32::from(start) as u32;
        sack.push(start, start + u32::from(length));
    }
    let segment = Outgoing {
        // The segment as its peer sends it.
        tuple: Tuple {
            local_ip: ends.peer_ip,
            local_port: ends.peer_port,
            peer_ip: ends.local_ip,
            peer_port: ends.local_port,
        },
        route: 0,
        seq: near(seq, made.seq),
        ack: near(ack, made.ack),
        window: made.window,
        flags: flags(state, made.kind, made.flags),
        markable: made.flags & 1 != 0,
        stamp: made.stamp.map(|(by, echo)| (stamp.wrapping_add(i32::from(by) as u32), echo)),
        sack,
        syn: made.syn.map(|(mss, shift, sack)| SynOptions { mss, shift, sack }),
        payload: RingRange { start: 0, len: made.payload.len() as u32 },
        mss: 1460,
    };
    let mut bytes = vec![0; MAX_HEADERS + made.payload.len()];
    let headers = emit(&segment, &Link { local: [4; 6], peer: [2; 6] }, &mut bytes);
    bytes.truncate(headers + made.payload.len());
    bytes[headers..].copy_from_slice(&made.payload);
    bytes
}

/// Behind headers of Ethernet and IPv4 that are right, and from the peer.
fn packet(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let ports = [0, 1 + kind % 4, 0, PORT as u8];
    let (protocol, bytes) = match kind % 3 {
        0 => (6, [&ports, bytes].concat()),
        1 => {
            // Around what it says that we have sent: the ports are ours and the peer's.
            let inner = [&[0x45, 0, 0, 60, 0, 0, 0, 0, 64, 6, 0, 0], &B[..], &A[..]].concat();
            let mtu = [3, 4, 0, 0, 0, 0, kind, kind];
            (1, [&mtu, &inner[..], &[0, PORT as u8, 0, 1 + kind % 4], bytes].concat())
        }
        _ => (kind, bytes.to_vec()),
    };
    let total = (20 + bytes.len() as u16).to_be_bytes();
    let mut header = [&[0x45, 0], &total[..], &[0, 0, 0, 0, 64, protocol, 0, 0], &A, &B].concat();
    let sum: u32 =
        header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[2; 6], &[4; 6], &[8, 0][..], &header, &bytes].concat()
}

struct Test {
    now: Time,
    host: Host,
    /// Of the connection that each slot has, or had last.
    generations: [u32; FLOWS],
}

impl Test {
    fn arrives(&mut self, frame: &[u8]) {
        // (Checksums would keep nearly all of it from what is behind them.)
        match parse(frame, Checksums::Nobody) {
            Ok(Packet::Tcp(segment, at)) => {
                let payload = &frame[at..at + segment.payload as usize];
                self.host.raw(self.now, &segment, payload);
            }
            Ok(Packet::TooBig { tuple, seq, mtu }) => {
                self.host.endpoint.too_big(self.now, &tuple, seq, mtu);
            }
            Err(_) => {}
        }
    }

    fn connect(&mut self, port: u8) {
        // (Else hardly any slot is left to who comes in.)
        if self.host.endpoint.used() >= FLOWS / 4 {
            return;
        }
        let connect = Connect {
            app: 0,
            local_ip: B.into(),
            local_port: None,
            peer_ip: A.into(),
            peer_port: 1 + u16::from(port % 4),
            route: 0,
            flow: self.host.listen,
        };
        self.host.connect(self.now, &connect);
    }

    fn ask(&mut self, slot: u8, what: u8, n: u32) {
        let slot = usize::from(slot) % FLOWS;
        let generation = self.generations[slot].wrapping_sub(u32::from(what >> 7));
        let id = FlowId { slot: slot as u32, generation };
        let now = self.now;
        // (Small numbers are more often possible.)
        let n = if n & 1 == 0 { n >> 1 } else { n & 0xffff };
        self.host.command(now, |endpoint, mut out| match what % 8 {
            0 => endpoint.close(now, id, &mut out).is_ok(),
            1 => endpoint.abort(now, id, &mut out).is_ok(),
            2 => endpoint.shutdown(id).is_ok(),
            3 | 4 => endpoint.write(id, n).is_ok(),
            5 => endpoint.read(id, n).is_ok(),
            6 => endpoint.set_nagle(id, n & 2 == 0).is_ok(),
            _ => endpoint.accept(id, 1, 1).is_ok(),
        });
    }

    /// Until then; at most so many steps.
    fn run(&mut self, until: Time, most: usize) {
        for _ in 0..most {
            match self.host.poll_at {
                Some(at) if at <= until => {
                    self.now = self.now.max(at);
                    self.host.poll(self.now);
                }
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    /// The invariants after each step.
    fn look(&mut self) {
        for frame in self.host.frames.drain(..) {
            assert!(
                matches!(parse(&frame, Checksums::Software), Ok(Packet::Tcp(..))),
                "it sends {frame:x?}"
            );
        }
        for (flow, _) in self.host.events.drain(..) {
            self.generations[flow.slot as usize] = flow.generation;
        }
        for socket in self.host.sockets.iter().flatten() {
            self.generations[socket.id.slot as usize] = socket.id.generation;
        }
        assert!(self.host.endpoint.used() <= FLOWS);
        let (timers, paced) = self.host.endpoint.deadlines();
        assert!(timers <= FLOWS && paced <= FLOWS);
        for slot in 0..FLOWS {
            let id = FlowId { slot: slot as u32, generation: self.generations[slot] };
            if let Ok(info) = self.host.endpoint.info(id) {
                let flow = self.host.endpoint.flow(id).expect("it is there").clone();
                assert!(info.unread <= flow.rcv_size() && info.unacked <= flow.snd_size());
                assert!(info.in_flight <= info.unacked + 1, "{info:?}");
            }
        }
    }
}

fn play(steps: &[Step], kind: u8) {
    let late = kind & 1 != 0;
    let config = Config {
        flows: FLOWS,
        sack: kind & 2 != 0,
        stamps: kind & 4 != 0,
        ack_wait: if late { 40_000_000 } else { 0 },
        watch_after: if late { 10_000_000 } else { 0 },
        ..config(kind.into())
    };
    let mut test = Test { now: Time(1_000_000_000), host: Host::new(config), generations: [0; 8] };
    let keep_alive =
        KeepAlive { idle: 1_000_000_000, interval: 1_000_000_000, count: 1 + (kind >> 6) };
    test.host.listen = FlowOptions {
        rcv_bits: 6 + (kind & 8),
        snd_bits: 6 + (kind >> 1 & 8),
        keep_alive: (kind & 32 != 0).then_some(keep_alive),
        ..FlowOptions::default()
    };
    let flow = test.host.listen;
    let listen = Listen { app: 0, ip: B.into(), port: PORT, backlog: u32::from(kind) % 5, flow };
    test.host.endpoint.listen(listen).expect("nobody listens yet");
    for step in steps {
        match step {
            Step::Segment(made, damages) => {
                let mut frame = frame(&mut test.host.endpoint, made, &test.generations);
                for &(at, value) in damages.iter().take(usize::from(made.port >> 6)) {
                    let at = usize::from(at) % frame.len();
                    frame[at] = value;
                }
                test.arrives(&frame);
            }
            Step::Packet(kind, bytes) => test.arrives(&packet(*kind, bytes)),
            Step::Frame(bytes) => test.arrives(bytes),
            Step::Wait(bits) => test.run(test.now + (1 << (bits % 40)), 100),
            Step::Connect(port) => test.connect(*port),
            Step::Ask(slot, what, n) => test.ask(*slot, *what, *n),
        }
        test.run(test.now, 10);
        test.look();
    }
    // All is given up, and forgotten after a while.
    for _ in 0..4 {
        (0..FLOWS as u8).for_each(|slot| test.ask(slot, 1, 0));
        test.run(test.now + LONG, 10_000);
        test.look();
    }
    assert_eq!(test.host.endpoint.used(), 0, "slots");
    assert_eq!(test.host.endpoint.deadlines(), (0, 0), "timers");
    assert_eq!(test.host.endpoint.usage(0), (0, 0), "accounts");
}

#[test]
fn any_packets_and_calls_leave_nothing_behind() {
    check!()
        .with_type::<(Vec<Step>, u8)>()
        .with_iterations(20_000)
        .for_each(|(steps, kind)| play(steps, *kind));
}
