//! A host that is uncopy's TCP, in this process: applications that fill every send buffer, or take
//! and compare what comes.

use crate::facts::{CONGESTION, End, SCHEDULED, SMALL, scheduled, small};
use crate::frame::{PORT, RECEIVER, address, hardware};
use crate::linux::Flows;
use crate::stream::{Received, fill};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::{Outgoing, RingRange};
use uncopy_tcp_proto::wire::{Checksums, Link, MAX_HEADERS, Packet, emit, parse, seal};
use uncopy_tcp_proto::{
    Actions, Algorithm, Config, Connect, Endpoint, Event, FlowId, FlowOptions, Listen, Time,
};

/// Buffers of each flow: what Linux' grow to on such a link, and more.
const BITS: u8 = 19;
/// Segments that are sent before frames are looked for again.
const BUDGET: usize = 64;

struct Socket {
    id: FlowId,
    /// Of a flow that it sends: its name and how much was written and acknowledged.
    name: u64,
    written: u64,
    acked: u64,
    ring: Vec<u8>,
    /// Of one that it receives: how much there is, and what was taken.
    number: usize,
    arrived: u64,
    received: Received,
}

/// The endpoint's surroundings, on which it acts.
struct Outside {
    host: usize,
    sends: bool,
    sockets: Vec<Option<Socket>>,
    frames: VecDeque<Vec<u8>>,
    payload: Vec<u8>,
    /// Flows with something to do.
    active: VecDeque<u32>,
    incoming: Vec<FlowId>,
    resets: u64,
}

/// See above.
pub struct Core {
    endpoint: Endpoint,
    outside: Outside,
    poll_at: Option<Time>,
    flows: Arc<Flows>,
}

impl Actions for Outside {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        let peer = segment.tuple.peer_ip.octets()[3];
        let link = Link { local: hardware(self.host), peer: hardware(usize::from(peer) - 1) };
        let mut frame = vec![0; MAX_HEADERS + segment.payload.len as usize];
        let mut at = emit(segment, &link, &mut frame);
        if segment.payload.len > 0
            && let Some(socket) = flow.and_then(|flow| self.sockets[flow.slot as usize].as_ref())
        {
            for piece in segment.payload.pieces(socket.ring.len()) {
                frame[at..at + piece.len()].copy_from_slice(&socket.ring[piece.clone()]);
                at += piece.len();
            }
        }
        frame.truncate(at);
        seal(&mut frame);
        self.frames.push_back(frame);
    }

    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        let all = place.to.len;
        let Some(socket) = &mut self.sockets[flow.slot as usize] else { return all };
        let mut at = place.skip as usize;
        for piece in place.to.pieces(socket.ring.len()) {
            let length = piece.len();
            socket.ring[piece].copy_from_slice(&self.payload[at..at + length]);
            at += length;
        }
        all
    }

    fn event(&mut self, flow: FlowId, event: Event) {
        let slot = &mut self.sockets[flow.slot as usize];
        match event {
            Event::Incoming { .. } => {
                *slot = Some(Socket::new(flow, 0));
                self.incoming.push(flow);
            }
            Event::Reset(_) => {
                self.resets += 1;
                *slot = None;
            }
            Event::Closed => *slot = None,
            event => {
                let Some(socket) = slot else { return };
                match event {
                    Event::Readable(bytes) => socket.arrived += u64::from(bytes),
                    Event::Acked(bytes) => socket.acked += u64::from(bytes),
                    _ => {}
                }
                self.active.push_back(flow.slot);
            }
        }
    }
}

impl Socket {
    fn new(id: FlowId, name: u64) -> Self {
        Self {
            id,
            name,
            written: 0,
            acked: 0,
            ring: vec![0; 1 << BITS],
            number: 0,
            arrived: 0,
            received: Received::default(),
        }
    }

    fn pieces(&self, at: u64, length: u64) -> impl Iterator<Item = std::ops::Range<usize>> {
        let start = (at & (self.ring.len() as u64 - 1)) as u32;
        RingRange { start, len: length as u32 }.pieces(self.ring.len()).into_iter()
    }
}

impl Core {
    /// Host number `host`, of so many flows. `ecn`: they ask for marks.
    pub fn new(host: usize, flows: &Arc<Flows>, ecn: bool) -> Self {
        let count = flows.received.len();
        let config = Config {
            flows: count + 64,
            ecn,
            secret: std::array::from_fn(|_| fastrand::u8(..)),
            stamp_offset: fastrand::u32(..),
            ..Config::default()
        };
        Self {
            outside: Outside {
                host,
                sends: host != RECEIVER,
                sockets: (0..config.flows).map(|_| None).collect(),
                frames: VecDeque::new(),
                payload: vec![],
                active: VecDeque::new(),
                incoming: vec![],
                resets: 0,
            },
            endpoint: Endpoint::new(config),
            poll_at: None,
            flows: flows.clone(),
        }
    }

    /// Listens.
    pub fn receive(&mut self, algorithm: Algorithm) {
        let flow = self.options(End::To, algorithm);
        let backlog = self.flows.received.len() as u32;
        let listen = Listen { app: 0, ip: address(RECEIVER), port: PORT, backlog, flow };
        self.endpoint.listen(listen).expect("nobody listens yet");
    }

    /// Begins flows of these names.
    pub fn send(&mut self, now: u64, names: std::ops::Range<u64>, algorithm: Algorithm) {
        let flow = self.options(End::From, algorithm);
        for name in names {
            let connect = Connect {
                app: 0,
                local_ip: address(self.outside.host),
                local_port: None,
                peer_ip: address(RECEIVER),
                peer_port: PORT,
                route: 0,
                flow,
            };
            let begun = self.endpoint.connect(Time(now), &connect, &mut self.outside);
            let id = begun.expect("there are ports and slots");
            self.outside.sockets[id.slot as usize] = Some(Socket::new(id, name));
        }
        self.poll_at = Some(Time(now));
    }

    /// The next frame that it sends.
    pub fn sent(&mut self) -> Option<Vec<u8>> {
        self.outside.frames.pop_front()
    }

    /// A frame for it.
    pub fn give(&mut self, now: u64, frame: &[u8]) {
        if let Ok(Packet::Tcp(segment, at)) = parse(frame, Checksums::Software) {
            self.outside.payload.clear();
            self.outside.payload.extend_from_slice(&frame[at..]);
            self.endpoint.segment(Time(now), 0, &segment, &mut self.outside);
        }
        self.poll_at = Some(Time(now));
    }

    /// Does what is due, and says when it is to be called again.
    pub fn work(&mut self, now: u64) -> Option<u64> {
        for id in std::mem::take(&mut self.outside.incoming) {
            let number = self.flows.accept();
            if let Some(socket) = &mut self.outside.sockets[id.slot as usize] {
                socket.number = number;
                let _ = self.endpoint.accept(id, 0, 0);
            }
        }
        while let Some(slot) = self.outside.active.pop_front() {
            if let Some(socket) = &mut self.outside.sockets[slot as usize] {
                let bytes =
                    if self.outside.sends { socket.write() } else { socket.take(&self.flows) };
                let told = match (bytes, self.outside.sends) {
                    (0, _) => Ok(()),
                    (bytes, true) => self.endpoint.write(socket.id, bytes as u32),
                    (bytes, false) => self.endpoint.read(socket.id, bytes as u32),
                };
                told.expect("there is room, and it has arrived");
                self.poll_at = Some(Time(now));
            }
        }
        if self.poll_at.is_some_and(|at| at.0 <= now) {
            self.poll_at = self.endpoint.poll(Time(now), BUDGET, &mut self.outside);
        }
        if self.outside.resets > 0 {
            self.flows.wrong.store(true, Relaxed);
        }
        self.poll_at.map(|at| at.0)
    }
}

impl Socket {
    /// Fills the send buffer.
    fn write(&mut self) -> u64 {
        let room = self.ring.len() as u64 - (self.written - self.acked);
        // (Not every acknowledgement is worth it.)
        if room < self.ring.len() as u64 / 4 {
            return 0;
        }
        let mut at = self.written;
        let pieces: Vec<_> = self.pieces(at, room).collect();
        for piece in pieces {
            let length = piece.len() as u64;
            fill(self.name, at, &mut self.ring[piece]);
            at += length;
        }
        self.written += room;
        room
    }

    /// Takes and compares what has come.
    fn take(&mut self, flows: &Flows) -> u64 {
        let length = self.arrived - self.received.bytes;
        let pieces: Vec<_> = self.pieces(self.received.bytes, length).collect();
        for piece in pieces {
            if self.received.compare(&self.ring[piece]).is_err() {
                flows.wrong.store(true, Relaxed);
            }
        }
        if let Some(counter) = flows.received.get(self.number) {
            counter.store(self.received.bytes, Relaxed);
        }
        length
    }
}

impl Core {
    /// Of the flows of an end, which are told of. (It runs in the calling thread.)
    fn options(&self, end: End, algorithm: Algorithm) -> FlowOptions {
        let options =
            FlowOptions { rcv_bits: BITS, snd_bits: BITS, algorithm, ..FlowOptions::default() };
        let known = &self.flows.known;
        known.tell(end, CONGESTION, format!("{algorithm:?}").to_lowercase());
        known.tell(end, SMALL, small(options.nagle));
        known.tell(end, SCHEDULED, scheduled());
        options
    }

    /// It has nothing to send at this moment.
    pub fn is_quiet(&self) -> bool {
        self.outside.frames.is_empty() && self.outside.active.is_empty()
    }
}
