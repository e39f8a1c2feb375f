//! Two machines of several threads each: lanes of the fast path that get segments of any flow, and
//! one slow path. Every byte arrives in order, once, in both directions, while the wire loses
//! segments and steers some of them to the wrong lane.
//!
//! `UNCOPY_TCP_SEED=n` runs one seed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uncopy_tcp_fast::SharedFlows;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::{Outgoing, Tuple};
use uncopy_tcp_proto::time::MILLISECOND;
use uncopy_tcp_proto::{
    Actions, Config, Connect, Event, FlowId, FlowOptions, Left, Listen, Refusal, Segment, Time,
};

const LANES: usize = 2;
const FLOWS: usize = 24;
const BYTES: u64 = 300_000;
const BUFFER_BITS: u8 = 14;
const SIZE: u64 = 1 << BUFFER_BITS;
const HOSTS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];

/// The byte at `at` of what is sent in a direction of a connection, which its client's port names.
fn byte(port: u16, from: usize, at: u64) -> u8 {
    let mixed =
        (at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(port) << 1 | from as u64);
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (8 * (at & 7))) as u8
}

/// An application's side of a connection.
#[derive(Debug)]
struct Socket {
    id: FlowId,
    port: u16,
    tx: Buffer,
    rx: Buffer,
    written: u64,
    /// Of these, what the flow was told of.
    told: u64,
    acked: u64,
    arrived: u64,
    read: u64,
    shut: bool,
    peer_closed: bool,
}

/// Bytes that nobody wants to see.
struct Buffer(Vec<u8>);

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

type Frame = (Segment, Vec<u8>);

/// The work that lanes leave to the slow path.
enum Work {
    Frame(Frame),
    Left(u32, Left),
    /// The application's turn, where the fast path may not serve it.
    Application(FlowId),
}

struct Machine {
    number: usize,
    shared: SharedFlows,
    sockets: Vec<Mutex<Option<Socket>>>,
    /// To the lanes of the other one.
    wire: Vec<Sender<Frame>>,
    work: Sender<Work>,
    done: AtomicUsize,
    wrong: AtomicUsize,
}

/// One thread's hands: frames leave, payload is placed, events are noted.
struct Out<'a> {
    machine: &'a Machine,
    random: &'a mut fastrand::Rng,
    payload: &'a [u8],
    events: &'a mut VecDeque<(FlowId, Event)>,
}

impl Actions for Out<'_> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        let mut payload = vec![0; segment.payload.len as usize];
        if segment.payload.len > 0 {
            let slot = flow.expect("payload belongs to a flow").slot as usize;
            let socket = self.machine.sockets[slot].lock().unwrap();
            let tx = &socket.as_ref().expect("who sends has a socket").tx.0;
            let mut at = 0;
            for piece in segment.payload.pieces(tx.len()) {
                payload[at..at + piece.len()].copy_from_slice(&tx[piece.clone()]);
                at += piece.len();
            }
        }
        if self.random.u8(..) < 2 {
            return; // Lost: nearly one in a hundred.
        }
        let arrives = Segment {
            tuple: Tuple {
                local_ip: segment.tuple.peer_ip,
                local_port: segment.tuple.peer_port,
                peer_ip: segment.tuple.local_ip,
                peer_port: segment.tuple.local_port,
            },
            seq: segment.seq,
            ack: segment.ack,
            window: segment.window,
            flags: segment.flags,
            marked: false,
            payload: segment.payload.len,
            stamp: segment.stamp,
            sack: segment.sack,
            syn: segment.syn.unwrap_or_default(),
        };
        // One in eight is steered to the wrong lane.
        let ends = usize::from(segment.tuple.local_port ^ segment.tuple.peer_port);
        let wrong = self.random.u8(..8) == 0;
        self.machine.wrong.fetch_add(wrong.into(), SeqCst);
        let lane = (ends + usize::from(wrong)) % LANES;
        // The other machine may be done.
        let _ = self.machine.wire[lane].send((arrives, payload));
    }

    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        let mut socket = self.machine.sockets[flow.slot as usize].lock().unwrap();
        let rx = &mut socket.as_mut().expect("data has somebody who reads it").rx.0;
        let mut at = place.skip as usize;
        for piece in place.to.pieces(rx.len()) {
            let len = piece.len();
            rx[piece].copy_from_slice(&self.payload[at..at + len]);
            at += len;
        }
        place.to.len
    }

    /// The flow is held: so what threads count of one flow is in its order. Work that it causes has
    /// to wait until it is not.
    fn event(&mut self, flow: FlowId, event: Event) {
        if self.machine.hear(flow, event) {
            self.events.push_back((flow, event));
        }
    }
}

/// Reading and writing: as the fast path, or as the slow path.
trait Calls {
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal>;
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal>;
}

impl<F: uncopy_tcp_proto::flows::Flows> Calls for uncopy_tcp_proto::Lane<F> {
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        uncopy_tcp_proto::Lane::read(self, flow, n)
    }
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        uncopy_tcp_proto::Lane::write(self, flow, n)
    }
}

impl<F: uncopy_tcp_proto::flows::Flows> Calls for uncopy_tcp_proto::Endpoint<F> {
    fn read(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        let result = uncopy_tcp_proto::Endpoint::read(self, flow, n);
        self.leave();
        result
    }
    fn write(&mut self, flow: FlowId, n: u32) -> Result<(), Refusal> {
        let result = uncopy_tcp_proto::Endpoint::write(self, flow, n);
        self.leave();
        result
    }
}

impl Machine {
    /// The meaning of an event to the application. True if it has something to do.
    fn hear(&self, flow: FlowId, event: Event) -> bool {
        let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
        match event {
            Event::Closed => {
                let gone = socket.take().expect("it was open");
                assert_eq!((gone.id, gone.arrived, gone.acked), (flow, BYTES, BYTES));
                // Bytes that are left in its buffer can still be read.
                self.compare(&gone, gone.arrived - gone.read);
                self.done.fetch_add(1, SeqCst);
                return false;
            }
            Event::Reset(reason) => panic!("reset: {reason:?}"),
            _ => {}
        }
        let socket = socket.as_mut().expect("an event belongs to a socket");
        assert_eq!(socket.id, flow);
        match event {
            Event::Readable(n) => socket.arrived += u64::from(n),
            Event::Acked(n) => socket.acked += u64::from(n),
            Event::PeerClosed => socket.peer_closed = true,
            _ => {}
        }
        true
    }

    fn compare(&self, socket: &Socket, n: u64) {
        for at in socket.read..socket.read + n {
            let want = byte(socket.port, 1 - self.number, at);
            assert_eq!(socket.rx.0[(at % SIZE) as usize], want, "byte {at} of {}", socket.port);
        }
    }

    /// The application's turn: it reads what there is and writes what there is room for. False if
    /// `calls` may not.
    fn application(&self, flow: FlowId, calls: &mut impl Calls) -> bool {
        loop {
            // Not while the flow is asked: it would ask for buffers under its lock.
            let (read, write) = {
                let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
                let Some(socket) = socket.as_mut().filter(|socket| socket.id == flow) else {
                    return true;
                };
                let read = socket.arrived - socket.read;
                self.compare(socket, read);
                socket.read += read;
                let write = (SIZE - (socket.written - socket.acked)).min(BYTES - socket.written);
                for at in socket.written..socket.written + write {
                    socket.tx.0[(at % SIZE) as usize] = byte(socket.port, self.number, at);
                }
                socket.written += write;
                (read as u32, write as u32)
            };
            if read == 0 && write == 0 {
                return true;
            }
            let results = [
                if read > 0 { calls.read(flow, read) } else { Ok(()) },
                if write > 0 { calls.write(flow, write) } else { Ok(()) },
            ];
            // If it was not the fast path's, it is undone, and the slow path's turn.
            let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
            let Some(socket) = socket.as_mut().filter(|socket| socket.id == flow) else {
                return true;
            };
            socket.told += if results[1] == Ok(()) { u64::from(write) } else { 0 };
            if results == [Ok(()), Ok(())] {
                continue;
            }
            for (result, count, n) in
                [(results[0], &mut socket.read, read), (results[1], &mut socket.written, write)]
            {
                match result {
                    Ok(()) => {}
                    Err(Refusal::WrongState) => *count -= u64::from(n),
                    Err(Refusal::NoSuchFlow) => return true,
                    Err(other) => panic!("{other}"),
                }
            }
            return false;
        }
    }
}

fn lane(
    machine: &Machine,
    number: usize,
    frames: Receiver<Frame>,
    clock: Instant,
    stop: &AtomicBool,
    seed: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut lane = machine.shared.lane(number);
    let mut events = VecDeque::new();
    // (The slow path may have ended before us, but not while there is anything to do.)
    let hand_on = |work| match machine.work.send(work) {
        Ok(()) => {}
        Err(_) => assert!(stop.load(SeqCst), "nobody takes what the slow path is to do"),
    };
    while !stop.load(SeqCst) {
        let time = now(clock);
        let mut quiet = true;
        for frame in frames.try_iter().take(32) {
            quiet = false;
            let mut out =
                Out { machine, random: &mut random, payload: &frame.1, events: &mut events };
            match lane.segment(time, &frame.0, &mut out) {
                None => hand_on(Work::Frame(frame)),
                Some((_, Left::NOTHING)) => {}
                Some((slot, left)) => hand_on(Work::Left(slot, left)),
            }
        }
        while let Some((flow, _)) = events.pop_front() {
            if !machine.application(flow, &mut lane) {
                hand_on(Work::Application(flow));
            }
        }
        machine.shared.collect(number, &mut lane);
        let mut out = Out { machine, random: &mut random, payload: &[], events: &mut events };
        lane.poll(now(clock), 64, &mut out, |slot, left| {
            hand_on(Work::Left(slot, left));
        });
        if quiet {
            std::thread::yield_now();
        }
    }
}

fn now(clock: Instant) -> Time {
    Time(1_000_000_000 + clock.elapsed().as_nanos() as u64)
}

fn slow(machine: &Machine, work: Receiver<Work>, clock: Instant, stop: &AtomicBool, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut endpoint = machine.shared.slow_path();
    let mut events: VecDeque<(FlowId, Event)> = VecDeque::new();
    let options = FlowOptions {
        rcv_bits: BUFFER_BITS,
        snd_bits: BUFFER_BITS,
        nagle: false,
        ..FlowOptions::default()
    };
    let (ours, theirs) = (HOSTS[machine.number], HOSTS[1 - machine.number]);
    let socket = |id, port| Socket {
        id,
        port,
        tx: Buffer(vec![0; SIZE as usize]),
        rx: Buffer(vec![0; SIZE as usize]),
        written: 0,
        told: 0,
        acked: 0,
        arrived: 0,
        read: 0,
        shut: false,
        peer_closed: false,
    };
    let mut opened = 0;
    if machine.number == 1 {
        let listen =
            Listen { app: 0, ip: ours.into(), port: 80, backlog: FLOWS as u32, flow: options };
        endpoint.listen(listen).expect("listen");
    }
    while !stop.load(SeqCst) {
        let time = now(clock);
        if machine.number == 0 && opened < FLOWS {
            let mut out = Out { machine, random: &mut random, payload: &[], events: &mut events };
            let connect = Connect {
                app: 0,
                local_ip: ours.into(),
                local_port: None,
                peer_ip: theirs.into(),
                peer_port: 80,
                route: 0,
                flow: options,
            };
            let id = endpoint.connect(time, &connect, &mut out).expect("connect");
            let port = endpoint.info(id).expect("it is there").tuple.local_port;
            endpoint.leave();
            *machine.sockets[id.slot as usize].lock().unwrap() = Some(socket(id, port));
            opened += 1;
        }
        for work in work.try_iter().take(64) {
            let payload: &[u8] = if let Work::Frame(frame) = &work { &frame.1 } else { &[] };
            let mut out = Out { machine, random: &mut random, payload, events: &mut events };
            match &work {
                Work::Frame((segment, _)) => {
                    // A connection that comes in needs its buffers before its first data, which may
                    // come with it.
                    endpoint.segment(
                        time,
                        0,
                        segment,
                        &mut Opening { out, socket: &socket, segment },
                    );
                }
                Work::Left(slot, left) => endpoint.attend(time, *slot, *left, &mut out),
                Work::Application(flow) => events.push_back((*flow, Event::Readable(0))),
            }
            endpoint.leave();
        }
        while let Some((flow, event)) = events.pop_front() {
            if let Event::Incoming { .. } = event {
                endpoint.accept(flow, 0, 0).expect("it waits");
                endpoint.leave();
            }
            machine.application(flow, &mut endpoint);
        }
        // Everything written and everything read: it closes.
        for slot in &machine.sockets {
            let id = match slot.lock().unwrap().as_mut() {
                Some(socket) if socket.told == BYTES && !socket.shut => {
                    socket.shut = true;
                    socket.id
                }
                _ => continue,
            };
            // (By the time it may have ended: then its end is among the events.)
            if let Err(refusal) = endpoint.shutdown(id) {
                assert_eq!(refusal, Refusal::NoSuchFlow);
            }
            endpoint.leave();
        }
        let mut out = Out { machine, random: &mut random, payload: &[], events: &mut events };
        endpoint.poll(now(clock), 64, &mut out);
        endpoint.leave();
        std::thread::yield_now();
    }
    for slot in &machine.sockets {
        if let Some(socket) = &*slot.lock().unwrap() {
            println!("{}: {socket:?} {:?}", machine.number, endpoint.info(socket.id));
        }
    }
    assert_eq!(endpoint.usage(0), (0, 0), "all connections have ended");
}

/// Makes the socket of a connection at the moment it comes in.
struct Opening<'a, 'b, S> {
    out: Out<'a>,
    socket: &'b S,
    segment: &'b Segment,
}

impl<S: Fn(FlowId, u16) -> Socket> Actions for Opening<'_, '_, S> {
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing) {
        self.out.send(flow, segment);
    }
    fn place(&mut self, flow: FlowId, place: Place) -> u32 {
        self.out.place(flow, place)
    }
    fn event(&mut self, flow: FlowId, event: Event) {
        if let Event::Incoming { .. } = event {
            let socket = (self.socket)(flow, self.segment.tuple.peer_port);
            *self.out.machine.sockets[flow.slot as usize].lock().unwrap() = Some(socket);
        }
        self.out.event(flow, event);
    }
}

fn exchange(seed: u64) {
    println!("seed {seed}");
    let clock = Instant::now();
    let config = |n: u64| Config {
        flows: 2 * FLOWS,
        secret: [n as u8; 16],
        rto_min: 5 * MILLISECOND,
        // Longer than what is sent again may take, also where the machine has other things to do.
        time_wait: 60_000 * MILLISECOND,
        reset_strangers: false,
        ..Config::default()
    };
    let (mut frames, mut wires) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (to, from): (Vec<_>, Vec<_>) = (0..LANES).map(|_| channel()).unzip();
        wires.push(to);
        frames.push(from);
    }
    // (Taken from the back: what machine 0 sends arrives at machine 1.)
    let mut machines = Vec::new();
    let mut works = Vec::new();
    for number in 0..2 {
        let config = config(seed + number as u64);
        let (work, receiver) = channel();
        works.push(receiver);
        machines.push(Machine {
            number,
            shared: SharedFlows::new(&config, LANES),
            sockets: (0..config.flows).map(|_| Mutex::new(None)).collect(),
            wire: wires.pop().expect("one for each"),
            work,
            done: AtomicUsize::new(0),
            wrong: AtomicUsize::new(0),
        });
    }
    let machines = Arc::new(machines);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for ((machine, frames), work) in machines.iter().zip(frames).zip(works) {
            let stop = &stop;
            for (number, frames) in frames.into_iter().enumerate() {
                let seed = seed ^ (machine.number * 8 + number + 1) as u64;
                scope.spawn(move || lane(machine, number, frames, clock, stop, seed));
            }
            scope
                .spawn(move || slow(machine, work, clock, stop, seed + 77 + machine.number as u64));
        }
        let done = || machines.iter().map(|machine| machine.done.load(SeqCst)).sum::<usize>();
        while done() < 2 * FLOWS {
            std::thread::sleep(Duration::from_millis(1));
            if clock.elapsed() > Duration::from_secs(120) {
                stop.store(true, SeqCst);
                for machine in machines.iter() {
                    for socket in &machine.sockets {
                        if let Some(socket) = &*socket.lock().unwrap() {
                            println!("{}: {socket:?}", machine.number);
                        }
                    }
                }
                panic!("stuck: {} of {} ends are done", done(), 2 * FLOWS);
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(machines.iter().all(|machine| machine.wrong.load(SeqCst) > 100));
}

#[test]
fn every_byte_arrives_once_and_in_order_while_several_threads_share_the_flows() {
    let seed = std::env::var("UNCOPY_TCP_SEED").ok().map(|seed| seed.parse().expect("a number"));
    match seed {
        Some(seed) => exchange(seed),
        None => (1..=4).for_each(exchange),
    }
}
