//! The cost of a segment, in nanoseconds: the parts of the fast path one by one, and a whole
//! exchange between two endpoints in one thread.
//!
//! `cargo run --release -p uncopy-tcp-proto --example cost`

use std::hint::black_box;
use std::time::Instant;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::wire::{Checksums, Link, MAX_HEADERS, Packet, emit, parse, seal};
use uncopy_tcp_proto::{
    Actions, Config, Connect, Endpoint, Event, FlowId, FlowOptions, Listen, Outgoing, Time,
};

const ROUNDS: u64 = 400_000;

/// The least of several runs: what the machine does beside is not ours.
fn least(name: &str, mut run: impl FnMut(u64)) {
    let mut best = f64::INFINITY;
    for _ in 0..9 {
        let start = Instant::now();
        run(ROUNDS / 10);
        best = best.min(start.elapsed().as_nanos() as f64 / (ROUNDS / 10) as f64);
    }
    println!("{name:70} {best:7.1} ns");
}

/// Keeps the last segment, and what has happened; copies payload if there are buffers.
#[derive(Default)]
struct Out {
    sent: Vec<Outgoing>,
    incoming: Option<FlowId>,
    readable: u32,
    frame: Vec<u8>,
    ring: Vec<u8>,
}

impl Actions for Out {
    #[inline]
    fn send(&mut self, _: Option<FlowId>, segment: &Outgoing) {
        self.sent.push(*segment);
    }
    #[inline]
    fn place(&mut self, _: FlowId, place: Place) -> u32 {
        if !self.ring.is_empty() {
            let mut at = place.skip as usize;
            for piece in place.to.pieces(self.ring.len()) {
                let len = piece.len();
                self.ring[piece].copy_from_slice(&self.frame[at..at + len]);
                at += len;
            }
        }
        place.to.len
    }
    #[inline]
    fn event(&mut self, flow: FlowId, event: Event) {
        match event {
            Event::Incoming { .. } => self.incoming = Some(flow),
            Event::Readable(n) => self.readable += n,
            _ => {}
        }
    }
}

struct Pair {
    now: Time,
    ends: [Endpoint; 2],
    outs: [Out; 2],
    names: Vec<[FlowId; 2]>,
    frame: Vec<u8>,
}

/// `flows` connections between two endpoints; all segments go through bytes.
fn pair(flows: usize) -> Pair {
    let config = |n| Config { flows: flows + 1, secret: [n; 16], ecn: false, ..Config::default() };
    let mut pair = Pair {
        now: Time(1_000_000_000),
        ends: [Endpoint::new(config(1)), Endpoint::new(config(2))],
        outs: [Out::default(), Out::default()],
        names: Vec::new(),
        frame: vec![0; 70_000],
    };
    let flow = FlowOptions { nagle: false, ..FlowOptions::default() };
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    for port in 0..flows.div_ceil(20_000) as u16 {
        pair.ends[1]
            .listen(Listen { app: 0, ip: b, port: 80 + port, backlog: 1000, flow })
            .expect("listen");
    }
    for n in 0..flows {
        let connect = Connect {
            app: 0,
            local_ip: a,
            local_port: None,
            peer_ip: b,
            peer_port: 80 + (n / 20_000) as u16,
            route: 0,
            flow,
        };
        let id = pair.ends[0].connect(pair.now, &connect, &mut pair.outs[0]).expect("connect");
        pair.exchange();
        let other = pair.outs[1].incoming.take().expect("it came in");
        pair.ends[1].accept(other, 0, 0).expect("accept");
        pair.names.push([id, other]);
    }
    pair
}

impl Pair {
    /// Everything that both want to send arrives.
    #[inline]
    fn exchange(&mut self) {
        loop {
            let mut quiet = true;
            for side in 0..2 {
                self.now.0 += 100;
                self.ends[side].poll(self.now, 64, &mut self.outs[side]);
                let mut sent = std::mem::take(&mut self.outs[side].sent);
                for segment in sent.drain(..) {
                    quiet = false;
                    let headers = emit(&segment, &Link::default(), &mut self.frame);
                    let total = headers + segment.payload.len as usize;
                    let Ok(Packet::Tcp(segment, _)) =
                        parse(&self.frame[..total], Checksums::Nobody)
                    else {
                        panic!("what was emitted can be parsed");
                    };
                    self.ends[1 - side].segment(self.now, 0, &segment, &mut self.outs[1 - side]);
                }
                self.outs[side].sent = sent;
            }
            if quiet {
                return;
            }
        }
    }

    /// A request and its answer, both of `size` bytes.
    #[inline]
    fn rpc(&mut self, n: usize, size: u32) {
        for side in 0..2 {
            self.outs[1 - side].readable = 0;
            self.ends[side].write(self.names[n][side], size).expect("room");
            self.exchange();
            assert_eq!(self.outs[1 - side].readable, size);
            self.ends[1 - side].read(self.names[n][1 - side], size).expect("there");
        }
    }
}

fn main() {
    println!("least of nine runs of {} each; one thread", ROUNDS / 10);
    let mut pair = pair(1);
    pair.rpc(0, 64);
    let [a, b] = pair.names[0];
    // A segment of 64 bytes from a, and the acknowledgement for it.
    pair.ends[0].write(a, 64).expect("room");
    pair.ends[0].poll(pair.now, 1, &mut pair.outs[0]);
    let data = pair.outs[0].sent.pop().expect("a segment");
    let mut frame = vec![0; MAX_HEADERS + 1448];
    least("emit headers of a data segment", |n| {
        for _ in 0..n {
            black_box(emit(black_box(&data), &Link::default(), &mut frame));
        }
    });
    let headers = emit(&data, &Link::default(), &mut frame);
    seal(&mut frame[..headers + 64]);
    least("parse headers, checksums by the device", |n| {
        for _ in 0..n {
            let _ = black_box(parse(black_box(&frame[..headers + 64]), Checksums::Nobody));
        }
    });
    least("parse headers, 64 bytes summed in software", |n| {
        for _ in 0..n {
            let _ = black_box(parse(black_box(&frame[..headers + 64]), Checksums::Software));
        }
    });
    let mut long = frame[..headers].to_vec();
    long.resize(headers + 1448, 7);
    let total = (headers + 1448 - 14) as u16;
    long[16..18].copy_from_slice(&total.to_be_bytes());
    least("checksum of 1448 bytes (seal)", |n| {
        for _ in 0..n {
            seal(black_box(&mut long));
        }
    });
    let Ok(Packet::Tcp(segment, _)) = parse(&frame[..headers + 64], Checksums::Nobody) else {
        panic!("parsed")
    };
    let at_b = pair.ends[1].flow(b).expect("there").clone();
    let now = uncopy_tcp_proto::time::Now::new(pair.now, 0);
    // Each time the next segment of a stream, read at once; the wrap of the buffer is part of it.
    let receive = |name: &str, copy: Option<(u32, usize)>| {
        let size = copy.map_or(64, |copy| copy.0);
        let mut flow = at_b.clone();
        let mut ring = vec![0u8; flow.rcv_size() as usize];
        let payload = vec![5u8; 2000];
        let mut segment = segment;
        segment.payload = size;
        least(name, |n| {
            for _ in 0..n {
                let received = flow.receive(now, black_box(&segment)).expect("the next segment");
                if let (Some(place), Some(_)) = (received.place, copy) {
                    let mut at = 0;
                    for piece in place.to.pieces(ring.len()) {
                        let len = piece.len();
                        ring[piece].copy_from_slice(&payload[at..at + len]);
                        at += len;
                    }
                }
                black_box(flow.read(received.readable));
                segment.seq += size;
            }
        });
        black_box(ring);
    };
    receive("Flow::receive data + Flow::read, no payload copied", None);
    receive("  the same with 64 bytes copied", Some((64, 0)));
    receive("  the same with 1448 bytes copied", Some((1448, 0)));
    let mut flow = at_b.clone();
    least("Flow::acknowledge", |n| {
        for _ in 0..n {
            black_box(flow.acknowledge(now));
        }
    });
    let at_a = pair.ends[0].flow(a).expect("there").clone();
    let mut flow = at_a;
    // The acknowledgement of everything that is out, then: write, transmit, acknowledged.
    let mut ack = {
        let mut ack = segment;
        std::mem::swap(&mut ack.tuple.local_ip, &mut ack.tuple.peer_ip);
        std::mem::swap(&mut ack.tuple.local_port, &mut ack.tuple.peer_port);
        ack.payload = 0;
        ack.seq = data.ack;
        ack.ack = data.seq + 64;
        ack.stamp = data.stamp.map(|(value, echo)| (echo, value));
        ack.window = u16::MAX;
        ack
    };
    flow.receive(now, &ack).expect("acknowledged");
    least("Flow::write + transmit + receive of its acknowledgement", |n| {
        for _ in 0..n {
            assert!(flow.write(64));
            black_box(flow.transmit(now, 0));
            ack.ack += 64;
            black_box(flow.receive(now, black_box(&ack)).expect("acknowledged"));
        }
    });
    for flows in [1, 1000, 16_000, 64_000] {
        let mut pair = self::pair(flows);
        let mut at = 0;
        let name =
            format!("RPC of 64 bytes, both ends, 3-4 segments, emitted and parsed, {flows} flows");
        least(&name, |n| {
            for _ in 0..n {
                // A stride that no prefetcher follows.
                at = (at + 7919) % flows;
                pair.rpc(at, 64);
            }
        });
    }
}
