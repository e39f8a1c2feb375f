//! An echo server of ours, clients of Linux that compare every byte.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uncopy_tcp_fast::applications::{Calls, SlowOut, Turn};
use uncopy_tcp_fast::{Applications, Service, View};
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_proto::wire::Link;
use uncopy_tcp_proto::{Config, Endpoint, Event, FlowId, FlowOptions, Listen, Refusal, Time};
use uncopy_tcp_wire::steer::Steer;

pub const LANES: usize = 2;
const BITS: u8 = 16;
const SIZE: usize = 1 << BITS;
pub const PORT: u16 = 7007;

/// Linux's side: connections at once, each sends random bytes and compares what comes back.
const CLIENTS: &str = r#"
import socket, sys, threading, random
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
failed = []
def client(n):
    data = random.Random(n).randbytes(size)
    s = socket.create_connection((address, 7007), timeout=60)
    s.settimeout(60)
    def send():
        s.sendall(data); s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send); t.start()
    got = bytearray()
    while True:
        part = s.recv(1 << 16)
        if not part: break
        got += part
    t.join()
    if got != data: failed.append((n, len(got), next((i for i, (a, b) in enumerate(zip(got, data)) if a != b), -1)))
def run(n):
    try: client(n)
    except Exception as e: failed.append((n, repr(e)))
all = [threading.Thread(target=run, args=(n,)) for n in range(count)]
[t.start() for t in all]; [t.join() for t in all]
print("wrong" if failed else "right", failed, flush=True)
"#;

/// Linux' clients in a namespace, against that address.
pub fn clients(namespace: &str, address: Ipv4Addr, count: usize, size: usize) -> Child {
    Command::new("ip")
        .args(["netns", "exec", namespace, "python3", "-c", CLIENTS])
        .args([address.to_string(), count.to_string(), size.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the clients start")
}

/// The clients' result.
pub fn said(child: &mut Child) -> String {
    let line = line(child);
    child.wait().expect("the clients");
    line
}

/// Its first line.
pub fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("the clients' words");
    line.trim().to_owned()
}

struct Socket {
    id: FlowId,
    rx: Vec<u8>,
    tx: Vec<u8>,
    arrived: u64,
    echoed: u64,
    /// Of what was echoed, what the flow was told of.
    told: u64,
    acked: u64,
    peer_closed: bool,
    closed: bool,
}

/// Echoes.
pub struct Echo {
    sockets: Vec<Mutex<Option<Socket>>>,
    /// Flows with something to do: of each lane, and of the slow path.
    todo: [Mutex<Vec<FlowId>>; LANES + 1],
    opened: Mutex<bool>,
    address: Ipv4Addr,
    /// Where to say so: the kernel.
    pub steer: Option<Arc<Steer>>,
    /// The time that each turn of the applications takes of a lane.
    burn: Duration,
}

impl Echo {
    fn new(flows: usize, address: Ipv4Addr, burn: Duration) -> Echo {
        Echo {
            sockets: (0..flows).map(|_| Mutex::new(None)).collect(),
            todo: [const { Mutex::new(Vec::new()) }; LANES + 1],
            opened: Mutex::new(false),
            address,
            steer: None,
            burn,
        }
    }

    /// Echoes what has room; true if the slow path has to go on with it.
    fn echo(
        &self,
        flow: FlowId,
        mut read: impl FnMut(u32) -> Result<(), Refusal>,
        mut write: impl FnMut(u32) -> Result<(), Refusal>,
    ) -> bool {
        let n = {
            let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
            let Some(socket) = socket.as_mut().filter(|socket| socket.id == flow) else {
                return false;
            };
            let room = SIZE as u64 - (socket.echoed - socket.acked);
            let n = room.min(socket.arrived - socket.echoed);
            for at in socket.echoed..socket.echoed + n {
                socket.tx[at as usize % SIZE] = socket.rx[at as usize % SIZE];
            }
            socket.echoed += n;
            n as u32
        };
        if n > 0 {
            // Not while the socket is locked: a thread that holds a flow locks sockets.
            match (read(n), write(n)) {
                (Ok(()), Ok(())) => {}
                (Err(Refusal::WrongState), Err(Refusal::WrongState)) => {
                    let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
                    if let Some(socket) = socket.as_mut().filter(|socket| socket.id == flow) {
                        socket.echoed -= u64::from(n);
                    }
                    return true;
                }
                (Err(Refusal::NoSuchFlow), _) => return false,
                other => panic!("{other:?}"),
            }
        }
        let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
        let Some(socket) = socket.as_mut().filter(|socket| socket.id == flow) else { return false };
        socket.told += u64::from(n);
        socket.peer_closed && socket.told == socket.arrived && !socket.closed
    }

    /// Until somebody listens.
    pub fn await_opened(&self) {
        let soon = Instant::now() + Duration::from_secs(10);
        while !*self.opened.lock().unwrap() && Instant::now() < soon {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn later(&self, flow: FlowId) {
        self.todo[LANES].lock().unwrap().push(flow);
    }
}

impl Applications for Echo {
    fn place(&self, _: Option<usize>, flow: FlowId, place: Place, payload: &[u8]) -> u32 {
        let mut socket = self.sockets[flow.slot as usize].lock().unwrap();
        let rx = &mut socket.as_mut().expect("data has a socket").rx;
        let mut at = place.skip as usize;
        for piece in place.to.pieces(SIZE) {
            let len = piece.len();
            rx[piece].copy_from_slice(&payload[at..at + len]);
            at += len;
        }
        place.to.len
    }

    fn fetch(&self, flow: FlowId, range: RingRange, to: &mut [u8]) -> bool {
        let socket = self.sockets[flow.slot as usize].lock().unwrap();
        let tx = &socket.as_ref().expect("who sends has a socket").tx;
        let mut at = 0;
        for piece in range.pieces(SIZE) {
            to[at..at + piece.len()].copy_from_slice(&tx[piece.clone()]);
            at += piece.len();
        }
        true
    }

    fn event(&self, lane: Option<usize>, flow: FlowId, event: Event) {
        let mut slot = self.sockets[flow.slot as usize].lock().unwrap();
        match (event, slot.as_mut()) {
            (Event::Incoming { .. }, _) => {
                *slot = Some(Socket {
                    id: flow,
                    rx: vec![0; SIZE],
                    tx: vec![0; SIZE],
                    arrived: 0,
                    echoed: 0,
                    told: 0,
                    acked: 0,
                    peer_closed: false,
                    closed: false,
                });
            }
            (Event::Closed, _) => *slot = None,
            (Event::Reset(reason), _) => panic!("reset: {reason:?}"),
            (Event::Readable(n), Some(socket)) => socket.arrived += u64::from(n),
            (Event::Acked(n), Some(socket)) => socket.acked += u64::from(n),
            (Event::PeerClosed, Some(socket)) => socket.peer_closed = true,
            other => panic!("{other:?}", other = other.0),
        }
        self.todo[lane.unwrap_or(LANES)].lock().unwrap().push(flow);
    }

    fn turn(&self, lane: usize, calls: &mut dyn Calls) -> Turn {
        let todo = std::mem::take(&mut *self.todo[lane].lock().unwrap());
        let mut turn = Turn { worked: !todo.is_empty(), ..Turn::default() };
        let begin = Instant::now();
        while turn.worked && begin.elapsed() < self.burn {
            std::hint::spin_loop();
        }
        for flow in todo {
            let calls = std::cell::RefCell::new(&mut *calls);
            let (read, write) =
                (|n| calls.borrow_mut().read(flow, n), |n| calls.borrow_mut().write(flow, n));
            if self.echo(flow, read, write) {
                self.later(flow);
                turn.for_slow_path = true;
            }
        }
        turn
    }

    fn slow_turn(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool {
        let mut opened = self.opened.lock().unwrap();
        if !std::mem::replace(&mut *opened, true) {
            let flow = FlowOptions { rcv_bits: BITS, snd_bits: BITS, ..FlowOptions::default() };
            let listen = Listen { app: 0, ip: self.address, port: PORT, backlog: 64, flow };
            endpoint.listen(listen).expect("listen");
            if let Some(steer) = &self.steer {
                steer.listen(SocketAddrV4::new(self.address, PORT)).expect("room for one");
            }
        }
        drop(opened);
        let todo = std::mem::take(&mut *self.todo[LANES].lock().unwrap());
        let worked = !todo.is_empty();
        for flow in todo {
            // (Refused where it was accepted already.)
            let _ = endpoint.accept(flow, 0, 0);
            let cell = std::cell::RefCell::new(&mut *endpoint);
            let call = |n, read: bool| {
                let mut endpoint = cell.borrow_mut();
                let result = if read { endpoint.read(flow, n) } else { endpoint.write(flow, n) };
                // The socket is looked at next; its flow must not be held then.
                endpoint.leave();
                result
            };
            cell.borrow_mut().leave();
            if self.echo(flow, |n| call(n, true), |n| call(n, false)) {
                if let Some(socket) = self.sockets[flow.slot as usize].lock().unwrap().as_mut() {
                    socket.closed = true;
                }
                endpoint.close(time, flow, out).expect("it is open");
                endpoint.leave();
            }
        }
        worked
    }

    fn link(&self, _: u16) -> Option<Link> {
        Some(Link { local: [2; 6], peer: [4; 6] })
    }
}

/// Processor time of this process.
pub fn used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is mounted");
    let fields: Vec<u64> = stat
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .filter_map(|field| field.parse().ok())
        .collect();
    // utime and stime in hundredths of a second: the 11th and 12th of the numbers behind the state.
    Duration::from_millis(10 * (fields[10] + fields[11]))
}

/// One test at a time: the processor time of the whole process is looked at.
pub static ALONE: Mutex<()> = Mutex::new(());

pub fn config() -> Config {
    Config {
        flows: 256,
        secret: [9; 16],
        mtu: 1500,
        // Others than the clients' belong to the kernel.
        reset_strangers: false,
        ..Config::default()
    }
}

pub fn service(address: Ipv4Addr, burn: Duration, steer: Option<Arc<Steer>>) -> Service<Echo> {
    let config = config();
    let echo = Echo { steer: steer.clone(), ..Echo::new(config.flows, address, burn) };
    let service = Service::new(&config, LANES, echo).expect("descriptors");
    match steer {
        Some(steer) => service.steered_by(steer),
        None => service,
    }
}

/// One lane is enough where nothing happens.
pub fn one_lane_soon(service: &Service<Echo>) {
    let soon = Instant::now() + Duration::from_secs(10);
    while service.active() > 1 && Instant::now() < soon {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(service.active(), 1);
}

/// Also when an assertion fails: otherwise the threads would run for ever.
pub struct Stop<'a>(pub &'a Service<Echo>);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Clients get every byte back; then nothing happens, and nothing is used; then they come again,
/// while lanes come and go. `between` is done when the first have gone.
pub fn serves_sleeps_and_wakes(
    service: &Service<Echo>,
    clients: impl Fn(usize, usize) -> Child,
    between: impl FnOnce(),
) {
    let start = Instant::now();
    assert_eq!(said(&mut clients(8, 3_000_000)), "right []");
    println!("8 times 3 MB and back: {:?}, {} lanes", start.elapsed(), service.active());
    between();
    one_lane_soon(service);
    std::thread::sleep(Duration::from_millis(300));
    let (before, parks) = (used(), service.parks());
    std::thread::sleep(Duration::from_secs(1));
    let idle = used() - before;
    println!("idle: {idle:?} of a second, {} parks", service.parks() - parks);
    assert!(idle <= Duration::from_millis(50), "{idle:?} of a second while nothing happens");
    let mut clients = clients(8, 1_000_000);
    for turn in 0.. {
        if clients.try_wait().expect("the clients").is_some() {
            break;
        }
        service.fix(1 + turn % LANES);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(said(&mut clients), "right []");
}
