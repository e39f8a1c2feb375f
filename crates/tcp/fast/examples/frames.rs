//! The cost of a frame to a lane, in nanoseconds: its headers are parsed, 64 bytes summed, its flow
//! found, locked and changed. For some numbers of flows, of which each frame is for another one,
//! and some lengths of batches. (The application's work on it is not in it.)
//!
//! `cargo run --release -p uncopy-tcp-fast --example frames`

use std::time::Instant;
use uncopy_tcp_fast::SharedFlows;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::{Blocks, Flags, RingRange, SynOptions, Tuple};
use uncopy_tcp_proto::wire::{Checksums, Link, Packet, emit, parse, seal};
use uncopy_tcp_proto::{
    Actions, Config, Event, FlowId, FlowOptions, Listen, Outgoing, Segment, Seq, Time,
};

const SIZE: u32 = 64;
const ROUNDS: usize = 60;

#[derive(Default)]
struct Out {
    sent: Vec<Outgoing>,
    readable: Vec<(FlowId, u32)>,
    incoming: Vec<FlowId>,
}

impl Actions for Out {
    fn send(&mut self, _: Option<FlowId>, segment: &Outgoing) {
        self.sent.push(*segment);
    }
    fn place(&mut self, _: FlowId, place: Place) -> u32 {
        place.to.len
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        match event {
            Event::Readable(n) => self.readable.push((flow, n)),
            Event::Incoming { .. } => self.incoming.push(flow),
            _ => {}
        }
    }
}

fn frame(segment: &Outgoing, to: &mut [u8; 256]) -> usize {
    let n = emit(segment, &Link::default(), to);
    to[n..n + segment.payload.len as usize].fill(7);
    let all = n + segment.payload.len as usize;
    seal(&mut to[..all]);
    all
}

fn parsed(frame: &[u8]) -> Segment {
    match parse(frame, Checksums::Software) {
        Ok(Packet::Tcp(segment, _)) => segment,
        _ => panic!("parsed"),
    }
}

fn main() {
    println!("ns a frame: median of {ROUNDS} rounds (a tenth below, a quarter above)");
    for flows in [1, 1000, 16_000, 64_000] {
        for batch in [1, 8] {
            let mut rounds = run(flows, batch);
            rounds.sort_by(f64::total_cmp);
            let at = |share: f64| rounds[(ROUNDS as f64 * share) as usize];
            let (low, middle, high) = (at(0.1), at(0.5), at(0.75));
            println!("{flows:6} flows, {batch} at once: {middle:6.1} ({low:.1} to {high:.1})");
        }
    }
}

/// The times of each round.
fn run(flows: usize, batch: usize) -> Vec<f64> {
    let config = Config { flows: flows + 1, secret: [3; 16], ecn: false, ..Config::default() };
    let shared = SharedFlows::new(&config, 1);
    let mut slow = shared.slow_path();
    let mut lane = shared.lane(0);
    let mut out = Out::default();
    let time = Time(1_000_000_000);
    let flow = FlowOptions { rcv_bits: 14, snd_bits: 10, ..FlowOptions::default() };
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    for port in 0..flows.div_ceil(20_000) as u16 {
        slow.listen(Listen { app: 0, ip: b, port: 80 + port, backlog: 100_000, flow })
            .expect("listen");
    }
    slow.leave();
    let mut bytes = [0; 256];
    let mut peers: Vec<Outgoing> = (0..flows)
        .map(|n| {
            let tuple = Tuple {
                local_ip: a,
                local_port: 1000 + (n % 20_000) as u16,
                peer_ip: b,
                peer_port: 80 + (n / 20_000) as u16,
            };
            let mut next = Outgoing {
                tuple,
                route: 0,
                seq: Seq(n as u32 * 977),
                ack: Seq(0),
                window: 60_000,
                flags: Flags::SYN,
                markable: false,
                stamp: Some((5, 0)),
                sack: Blocks::default(),
                syn: Some(SynOptions { mss: Some(1460), shift: Some(7), sack: true }),
                payload: RingRange::default(),
                mss: 1460,
            };
            let len = frame(&next, &mut bytes);
            slow.segment(time, 0, &parsed(&bytes[..len]), &mut out);
            slow.leave();
            let answer = out.sent.pop().expect("a SYN-ACK");
            next.syn = None;
            next.seq += 1;
            next.ack = answer.seq + 1;
            next.stamp = Some((5, answer.stamp.expect("agreed").0));
            next.flags = Flags::ACK;
            let len = frame(&next, &mut bytes);
            slow.segment(time, 0, &parsed(&bytes[..len]), &mut out);
            slow.leave();
            let id = out.incoming.pop().expect("it came in");
            slow.accept(id, 0, 0).expect("accepted");
            slow.leave();
            next.payload.len = SIZE;
            out.sent.clear();
            next
        })
        .collect();
    let mut frames = vec![([0; 256], 0); batch];
    let mut at = 0;
    let turns = 8192 / batch;
    let mut round = || {
        let mut taken = 0;
        for _ in 0..turns {
            for (bytes, length) in &mut frames {
                // A stride that no prefetcher follows.
                at = (at + 7919) % flows;
                *length = frame(&peers[at], bytes);
                peers[at].seq += SIZE;
            }
            let start = Instant::now();
            for (bytes, length) in &frames {
                let _ = lane.segment(time, &parsed(&bytes[..*length]), &mut out);
            }
            taken += start.elapsed().as_nanos();
            let came: u32 = out.readable.iter().map(|(_, n)| n).sum();
            assert_eq!(came as usize, batch * SIZE as usize, "every byte came");
            for (id, n) in out.readable.drain(..) {
                lane.read(id, n).expect("it is there");
            }
            lane.poll(time, 1000, &mut out, |_, _| {});
            out.sent.clear();
        }
        taken as f64 / (turns * batch) as f64
    };
    (0..ROUNDS).map(|_| round()).collect()
}
