//! Two hosts and a wire between them, in virtual time. The wire loses, reorders, duplicates,
//! delays, corrupts and marks, by a seed.
#![allow(dead_code)] // each test uses its part

pub mod wire;

use std::collections::VecDeque;
use uncopy_tcp_proto::Segment;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::Flags;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_proto::wire::{Checksums, Link, MAX_HEADERS, Packet, emit, parse, seal};
use uncopy_tcp_proto::{
    Actions, Config, Connect, Endpoint, Event, FlowId, FlowOptions, Listen, ListenerId, Outgoing,
    ResetReason, Time,
};
use wire::{Faults, Wire};

/// Random numbers that a seed determines.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn range(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    pub fn chance(&mut self, share: f64) -> bool {
        (self.next() >> 11) as f64 / ((1u64 << 53) as f64) < share
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The byte at `at` of the stream `name`.
pub fn byte(name: u64, at: u64) -> u8 {
    (((at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ name.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        >> (8 * (at & 7))) as u8
}

impl Socket {
    /// The bytes that arrived and were not taken.
    pub fn rest(&self) -> Vec<u8> {
        (self.taken..self.arrived).map(|at| self.rx[at as usize & (self.rx.len() - 1)]).collect()
    }
}

/// An application's side of a connection: two ring buffers and counts.
pub struct Socket {
    pub id: FlowId,
    pub tx: Vec<u8>,
    pub rx: Vec<u8>,
    pub written: u64,
    pub acked: u64,
    pub arrived: u64,
    pub taken: u64,
    pub eof: bool,
    pub shut: bool,
    pub connected: bool,
    /// How much this side writes, of which stream; and which stream it expects.
    pub total: u64,
    pub writes: u64,
    pub expects: u64,
}

impl Socket {
    fn new(id: FlowId, options: &FlowOptions) -> Socket {
        Socket {
            id,
            tx: vec![0; 1 << options.snd_bits],
            rx: vec![0; 1 << options.rcv_bits],
            written: 0,
            acked: 0,
            arrived: 0,
            taken: 0,
            eof: false,
            shut: false,
            connected: false,
            total: 0,
            writes: 0,
            expects: 0,
        }
    }
}

/// A host: its endpoint, its applications' sockets, and what it wants to send.
pub struct Host {
    pub endpoint: Endpoint,
    pub sockets: Vec<Option<Socket>>,
    pub frames: VecDeque<Vec<u8>>,
    pub sent: Vec<Outgoing>,
    /// Keep what is sent in `sent`, for tests that look at segments.
    pub keep: bool,
    pub events: Vec<(FlowId, Event)>,
    pub listen: FlowOptions,
    pub poll_at: Option<Time>,
    pub segments: u64,
    pub active: VecDeque<u32>,
    /// Now and then it takes a part of a payload only, or nothing of it, or throws away what came
    /// before its turn.
    pub refuses: Option<Random>,
    /// Sockets of connections that ended in good order: what arrived and was not taken can still be
    /// read.
    pub finished: Vec<Socket>,
}

struct Out<'a> {
    sockets: &'a mut Vec<Option<Socket>>,
    frames: &'a mut VecDeque<Vec<u8>>,
    sent: &'a mut Vec<Outgoing>,
    keep: bool,
    events: &'a mut Vec<(FlowId, Event)>,
    listen: &'a FlowOptions,
    payload: &'a [u8],
    active: &'a mut VecDeque<u32>,
    refuses: Option<&'a mut Random>,
    finished: &'a mut Vec<Socket>,
}

impl Actions for Out<'_> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        if self.keep {
            self.sent.push(*segment);
        }
        // The wire's treatment of a payload of more than one segment.
        let mut done = 0;
        loop {
            let len = segment.payload.len - done;
            let cut = len.min(u32::from(segment.mss).max(1));
            let last = cut == len;
            let mut part = *segment;
            part.seq = segment.seq + done;
            part.payload.len = cut;
            if !last {
                part.flags = part.flags.without(Flags::FIN.with(Flags::PSH));
            }
            let mut frame = vec![0; MAX_HEADERS + cut as usize];
            let mut at = emit(&part, &Link { local: [2; 6], peer: [4; 6] }, &mut frame);
            if cut > 0 {
                let slot = flow.expect("payload belongs to a flow").slot as usize;
                let tx = &self.sockets[slot].as_ref().expect("a flow with payload has buffers").tx;
                let start = (segment.payload.start as usize + done as usize) & (tx.len() - 1);
                for piece in (RingRange { start: start as u32, len: cut }).pieces(tx.len()) {
                    frame[at..at + piece.len()].copy_from_slice(&tx[piece.clone()]);
                    at += piece.len();
                }
            }
            frame.truncate(at);
            seal(&mut frame);
            self.frames.push_back(frame);
            done += cut;
            if last {
                break;
            }
        }
    }

    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        let socket = &mut self.sockets[flow.slot as usize];
        let socket = socket.as_mut().expect("a flow with data has buffers");
        let mut to = place.to;
        if let Some(random) = &mut self.refuses
            && random.chance(0.1)
        {
            to.len = random.below(u64::from(to.len) + 1) as u32;
        }
        // (By its own count: what is in order lies behind what has arrived.)
        let next = (socket.arrived + u64::from(place.ahead)) as usize;
        assert_eq!(place.to.start as usize, next & (socket.rx.len() - 1));
        let mut at = place.skip as usize;
        for piece in to.pieces(socket.rx.len()) {
            let len = piece.len();
            socket.rx[piece].copy_from_slice(&self.payload[at..at + len]);
            at += len;
        }
        to.len
    }

    fn event(&mut self, flow: FlowId, event: Event) {
        let slot = &mut self.sockets[flow.slot as usize];
        match event {
            Event::Incoming { .. } => {
                let mut socket = Socket::new(flow, self.listen);
                socket.connected = true;
                *slot = Some(socket);
            }
            Event::Closed => self.finished.extend(slot.take()),
            Event::Reset(_) => *slot = None,
            event => {
                let socket = slot.as_mut().expect("an event belongs to a socket");
                assert_eq!(socket.id, flow);
                match event {
                    Event::Connected => socket.connected = true,
                    Event::Readable(n) => socket.arrived += u64::from(n),
                    Event::Acked(n) => socket.acked += u64::from(n),
                    Event::PeerClosed => socket.eof = true,
                    _ => {}
                }
            }
        }
        if !matches!(event, Event::Readable(_) | Event::Acked(_)) {
            self.events.push((flow, event));
        }
        self.active.push_back(flow.slot);
    }
}

impl Host {
    pub fn new(config: Config) -> Host {
        let flows = config.flows;
        Host {
            endpoint: Endpoint::new(config),
            sockets: (0..flows).map(|_| None).collect(),
            frames: VecDeque::new(),
            sent: Vec::new(),
            keep: false,
            events: Vec::new(),
            listen: FlowOptions::default(),
            poll_at: None,
            segments: 0,
            active: VecDeque::new(),
            refuses: None,
            finished: Vec::new(),
        }
    }

    /// The endpoint, and what it acts on: `payload` is that of the segment it is about to see.
    fn parts<'a>(&'a mut self, payload: &'a [u8]) -> (&'a mut Endpoint, Out<'a>) {
        let out = Out {
            sockets: &mut self.sockets,
            frames: &mut self.frames,
            sent: &mut self.sent,
            keep: self.keep,
            events: &mut self.events,
            listen: &self.listen,
            payload,
            active: &mut self.active,
            refuses: self.refuses.as_mut(),
            finished: &mut self.finished,
        };
        (&mut self.endpoint, out)
    }

    pub fn frame(&mut self, now: Time, frame: &[u8]) {
        match parse(frame, Checksums::Software) {
            Ok(Packet::Tcp(segment, at)) => {
                self.segments += 1;
                self.raw(now, &segment, &frame[at..]);
            }
            Ok(Packet::TooBig { tuple, seq, mtu }) => self.endpoint.too_big(now, &tuple, seq, mtu),
            Err(_) => {}
        }
        self.poll_at = Some(now);
    }

    /// A segment that never was a frame.
    pub fn raw(&mut self, now: Time, segment: &Segment, payload: &[u8]) {
        let (endpoint, mut out) = self.parts(payload);
        endpoint.segment(now, 0, segment, &mut out);
        self.poll_at = Some(now);
    }

    pub fn poll(&mut self, now: Time) {
        self.throws_away();
        let (endpoint, mut out) = self.parts(&[]);
        self.poll_at = endpoint.poll(now, 64, &mut out);
    }

    fn throws_away(&mut self) {
        let Some(random) = &mut self.refuses else { return };
        for socket in self.sockets.iter_mut().flatten() {
            if !random.chance(0.0002) {
                continue;
            }
            let (from, to) = (socket.arrived, socket.taken + socket.rx.len() as u64);
            let mask = socket.rx.len() - 1;
            let rx = &mut socket.rx;
            self.endpoint.forget_early(socket.id, || {
                (from..to).for_each(|at| rx[at as usize & mask] ^= 0xFF);
            });
        }
    }

    pub fn command<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Endpoint, &mut dyn ActionsObject) -> R,
    ) -> R {
        let (endpoint, mut out) = self.parts(&[]);
        let result = act(endpoint, &mut out);
        self.poll_at = Some(now);
        result
    }

    pub fn connect(&mut self, now: Time, connect: &Connect) -> FlowId {
        let id = self
            .command(now, |endpoint, out| endpoint.connect(now, connect, &mut &mut *out))
            .expect("connect");
        self.sockets[id.slot as usize] = Some(Socket::new(id, &connect.flow));
        id
    }

    pub fn socket(&mut self, id: FlowId) -> &mut Socket {
        self.sockets[id.slot as usize]
            .as_mut()
            .filter(|socket| socket.id == id)
            .expect("the socket is there")
    }

    /// Writes as much of `data` as there is room for.
    pub fn write(&mut self, now: Time, id: FlowId, data: &[u8]) -> usize {
        let socket = self.sockets[id.slot as usize].as_mut().expect("the socket is there");
        let size = socket.tx.len();
        let room = size - (socket.written - socket.acked) as usize;
        let n = data.len().min(room);
        for (at, byte) in data[..n].iter().enumerate() {
            socket.tx[(socket.written as usize + at) & (size - 1)] = *byte;
        }
        socket.written += n as u64;
        self.endpoint.write(id, n as u32).expect("there is room");
        self.poll_at = Some(now);
        n
    }

    /// Takes up to `most` bytes.
    pub fn read(&mut self, now: Time, id: FlowId, most: usize) -> Vec<u8> {
        let socket = self.sockets[id.slot as usize].as_mut().expect("the socket is there");
        let n = most.min((socket.arrived - socket.taken) as usize);
        let mask = socket.rx.len() - 1;
        let data = (0..n).map(|at| socket.rx[(socket.taken as usize + at) & mask]).collect();
        socket.taken += n as u64;
        self.endpoint.read(id, n as u32).expect("it has arrived");
        self.poll_at = Some(now);
        data
    }

    /// The event that `id` ended with.
    pub fn end(&self, id: FlowId) -> Option<Event> {
        self.events
            .iter()
            .find(|(of, event)| *of == id && matches!(event, Event::Closed | Event::Reset(_)))
            .map(|e| e.1)
    }

    pub fn was_reset(&self, id: FlowId) -> Option<ResetReason> {
        match self.end(id) {
            Some(Event::Reset(reason)) => Some(reason),
            _ => None,
        }
    }

    /// The connection that came in last.
    pub fn incoming(&self) -> Option<FlowId> {
        self.events
            .iter()
            .rev()
            .find(|(_, event)| matches!(event, Event::Incoming { .. }))
            .map(|event| event.0)
    }
}

/// Actions behind a reference, so that commands can be closures.
pub trait ActionsObject {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing);
    fn place(&mut self, flow: FlowId, place: Place) -> u32;
    fn event(&mut self, flow: FlowId, event: Event);
}

impl<A: Actions> ActionsObject for A {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        Actions::send(self, flow, segment);
    }
    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        Actions::place(self, flow, place)
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        Actions::event(self, flow, event);
    }
}

impl Actions for &mut dyn ActionsObject {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        (**self).send(flow, segment);
    }
    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        (**self).place(flow, place)
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        (**self).event(flow, event);
    }
}

pub const A: [u8; 4] = [10, 0, 0, 1];
pub const B: [u8; 4] = [10, 0, 0, 2];
pub const PORT: u16 = 80;

/// Two hosts and a wire.
pub struct Pair {
    pub now: Time,
    pub hosts: [Host; 2],
    pub wires: [Wire; 2],
}

impl Pair {
    pub fn new(seed: u64, configs: [Config; 2], faults: Faults) -> Pair {
        let [a, b] = configs;
        Pair {
            now: Time(1_000_000_000),
            hosts: [Host::new(a), Host::new(b)],
            wires: [Wire::new(seed, faults), Wire::new(seed + 1, faults)],
        }
    }

    /// Two hosts that differ from the default in nothing, and a wire that does nothing but take 50
    /// us.
    pub fn plain() -> Pair {
        Pair::new(1, [config(1), config(2)], Faults::none())
    }

    pub fn connect_with(&mut self, flow: FlowOptions) -> FlowId {
        let connect = Connect {
            app: 0,
            local_ip: A.into(),
            local_port: None,
            peer_ip: B.into(),
            peer_port: PORT,
            route: 0,
            flow,
        };
        let now = self.now;
        self.hosts[0].connect(now, &connect)
    }

    pub fn listen_with(&mut self, backlog: u32, flow: FlowOptions) -> ListenerId {
        self.hosts[1].listen = flow;
        let listen = Listen { app: 0, ip: B.into(), port: PORT, backlog, flow };
        self.hosts[1].endpoint.listen(listen).expect("listen")
    }

    /// An established connection: its names on both hosts.
    pub fn established(&mut self, flow: FlowOptions) -> (FlowId, FlowId) {
        self.listen_with(16, flow);
        let a = self.connect_with(flow);
        self.run(1_000_000_000);
        let b = self.hosts[1].incoming().expect("a connection came in");
        self.hosts[1].endpoint.accept(b, 0, 0).expect("accept");
        assert!(self.hosts[0].socket(a).connected);
        (a, b)
    }

    /// Hands what the hosts want to send to the wires.
    pub fn flush(&mut self) {
        for side in 0..2 {
            while let Some(frame) = self.hosts[side].frames.pop_front() {
                self.wires[side].send(self.now, frame);
            }
        }
    }

    /// The next moment at which something happens.
    pub fn next(&self) -> Option<Time> {
        let polls = self.hosts.iter().filter_map(|host| host.poll_at);
        let wires = self.wires.iter().filter_map(Wire::next);
        polls.chain(wires).min().map(|at| at.max(self.now))
    }

    /// Does what happens at the next moment; false if nothing ever will, or not before `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.flush();
        let Some(next) = self.next().filter(|&next| next <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = next;
        for side in 0..2 {
            // A batch, and then its answers.
            for _ in 0..32 {
                let Some(frame) = self.wires[side].receive(self.now) else { break };
                self.hosts[1 - side].frame(self.now, &frame);
            }
        }
        for host in &mut self.hosts {
            if host.poll_at.is_some_and(|at| at <= self.now) {
                host.poll(self.now);
            }
        }
        self.flush();
        true
    }

    /// Lets `nanos` go by.
    pub fn run(&mut self, nanos: u64) {
        let until = self.now + nanos;
        while self.step(until) {}
    }
}

/// A configuration whose secrets come from `seed`.
pub fn config(seed: u64) -> Config {
    let mut random = Random::new(seed);
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&random.next().to_ne_bytes());
    secret[8..].copy_from_slice(&random.next().to_ne_bytes());
    Config { flows: 64, secret, stamp_offset: random.next() as u32, ..Config::default() }
}
