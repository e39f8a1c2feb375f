//! The client: closed loops, from the turns of a lane. Every answer is compared.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use uncopy_measure::{Failure, failure};
use uncopy_tcp_fast::applications::{Calls, SlowOut, Turn};
use uncopy_tcp_fast::spin::Spin;
use uncopy_tcp_fast::{Applications, View};
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_proto::wire::Link as Hardware;
use uncopy_tcp_proto::{Connect, Endpoint, Event, FlowId, Time};

use super::Over;
use super::link::Link;
use super::stack::{Opened, bits, config, link, options, quiet};
use crate::rpc::client::told;
use crate::rpc::plan::{EACH_ADDRESS, Hello, Order, Plan, Ready, Turned};
use crate::rpc::requests::{are_requests, requests, wrong};
use crate::rpc::server::answer;

/// Handshakes under way at once.
const AT_ONCE: usize = 128;

struct Loop {
    link: Link,
    /// Of its message's first request.
    number: u64,
    out: Vec<u8>,
    sent: usize,
    got: usize,
    began: Instant,
}

/// The state of the lane. (No flow is asked for anything by who holds what events go to: they come
/// with their flow held.)
struct ClientState {
    doing: Vec<FlowId>,
    /// Numbers of requests.
    next: u64,
    got: Vec<u8>,
    latency: Histogram<u64>,
    verified: u64,
    /// The beginning of the turn.
    begun: Instant,
    length: Duration,
    open: usize,
}

enum News {
    Opened,
    Over,
    Wrong(Failure),
}

struct Client {
    plan: Plan,
    over: Over,
    hardware: Hardware,
    server: Hello,
    loops: Box<[Spin<Option<Box<Loop>>>]>,
    state: Spin<ClientState>,
    /// Connections with something to do.
    todo: Spin<Vec<FlowId>>,
    /// Connections: asked for, and there.
    asked: Spin<(usize, Vec<FlowId>)>,
    ordered: AtomicBool,
    order: Spin<Duration>,
    news: Sender<News>,
}

/// Does what it is told until standard input ends.
pub fn run(plan: &Plan, server: &Hello, over: &Over) -> Result<(), Failure> {
    let failed = |e: io::Error| failure!("RPC client: {e}");
    let (tell, news) = channel();
    let message = plan.message();
    let latency = Histogram::new_with_bounds(1, 120_000_000_000, 3).map_err(Failure::new)?;
    let client = Client {
        plan: plan.clone(),
        over: over.clone(),
        hardware: link(over),
        server: server.clone(),
        loops: (0..config(plan).flows).map(|_| Spin::new(None)).collect(),
        todo: Spin::new(Vec::new()),
        state: Spin::new(ClientState {
            doing: Vec::new(),
            next: 0,
            got: vec![0; message.min(64 << 10)],
            latency,
            verified: 0,
            begun: Instant::now(),
            length: Duration::ZERO,
            open: 0,
        }),
        asked: Spin::new((0, Vec::with_capacity(plan.connections))),
        ordered: AtomicBool::new(false),
        order: Spin::new(Duration::ZERO),
        news: tell,
    };
    let service = Opened::new(over, plan)?.service(plan, quiet(plan.wait), client)?;
    let wait = |wanted: usize| -> Result<(), Failure> {
        for _ in 0..wanted {
            match news.recv_timeout(Duration::from_secs(60)) {
                Ok(News::Opened | News::Over) => {}
                Ok(News::Wrong(why)) => return Err(why),
                Err(_) => return Err(Failure::new("nothing has come back for 60 s")),
            }
        }
        Ok(())
    };
    wait(plan.connections)?;
    answer(&Ready { connections: plan.connections }).map_err(failed)?;
    let client = service.applications();
    for line in io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let order = serde_json::from_str(&line).map_err(|e| failure!("bad order: {e}"))?;
        match order {
            Order::Turn { seconds, anew } => {
                let before = {
                    let mut state = client.state.lock();
                    if anew {
                        state.latency.reset();
                    }
                    state.verified
                };
                *client.order.lock() = Duration::from_secs_f64(seconds);
                let begun = Instant::now();
                client.ordered.store(true, Release);
                service.wake(0);
                wait(1)?;
                let seconds = begun.elapsed().as_secs_f64();
                let rpcs = client.state.lock().verified - before;
                answer(&Turned { rpcs, seconds }).map_err(failed)?;
            }
            Order::Tell => {
                let state = client.state.lock();
                answer(&told(&state.latency, state.verified)).map_err(failed)?;
            }
        }
    }
    Ok(())
}

impl Client {
    /// All connections begin a message.
    fn begin_all(&self, state: &mut ClientState, calls: &mut dyn Calls) {
        let flows = self.asked.lock().1.clone();
        (state.begun, state.length) = (Instant::now(), *self.order.lock());
        state.open = flows.len();
        for flow in flows {
            let put = {
                let mut slot = self.loops[flow.slot as usize].lock();
                let link = slot.as_mut().expect("it is open");
                let now = state.begun;
                self.begin(state, link, now)
            };
            let _ = calls.write(flow, put);
        }
    }

    /// Begins a message. Returns what was put.
    fn begin(&self, state: &mut ClientState, link: &mut Loop, now: Instant) -> u32 {
        link.number = state.next;
        state.next += self.plan.pipeline as u64;
        (link.got, link.began) = (0, now);
        requests(link.number, self.plan.size, &mut link.out);
        link.sent = link.link.put(&link.out);
        link.sent as u32
    }

    /// Takes what has come of a connection.
    fn advance(
        &self,
        state: &mut ClientState,
        flow: FlowId,
        calls: &mut dyn Calls,
    ) -> Result<(), Failure> {
        loop {
            let (got, put) = {
                let mut slot = self.loops[flow.slot as usize].lock();
                let Some(link) = slot.as_mut() else { return Ok(()) };
                link.link.queued = false;
                let left = (link.out.len() - link.got).min(state.got.len());
                let got = link.link.take(&mut state.got[..left]);
                let mut put = 0;
                if !are_requests(link.number, self.plan.size, link.got, &state.got[..got]) {
                    return Err(Failure::new(wrong(flow.slot as usize, link.number, link.got)));
                }
                link.got += got;
                if link.got == link.out.len() {
                    let now = Instant::now();
                    let took = (now - link.began).as_nanos() as u64;
                    state.latency.saturating_record_n(took, self.plan.pipeline as u64);
                    state.verified += self.plan.pipeline as u64;
                    if now - state.begun < state.length {
                        put = self.begin(state, link, now);
                    } else {
                        // Nothing of it is expected.
                        (link.got, link.sent) = (0, link.out.len());
                        state.open -= 1;
                        if state.open == 0 {
                            let _ = self.news.send(News::Over);
                        }
                    }
                } else if link.sent < link.out.len() {
                    let more = link.link.put(&link.out[link.sent..]);
                    link.sent += more;
                    put = more as u32;
                }
                (got as u32, put)
            };
            if got > 0 && calls.read(flow, got).is_err()
                || put > 0 && calls.write(flow, put).is_err()
            {
                return Err(Failure::new("a connection ended"));
            }
            if got == 0 {
                return Ok(());
            }
        }
    }
}

impl Applications for Client {
    fn place(&self, _: Option<usize>, flow: FlowId, place: Place, payload: &[u8]) -> u32 {
        if let Some(link) = self.loops[flow.slot as usize].lock().as_mut() {
            link.link.place(place, payload);
        }
        place.to.len
    }

    fn fetch(&self, flow: FlowId, range: RingRange, to: &mut [u8]) -> bool {
        let link = self.loops[flow.slot as usize].lock();
        link.as_ref().map(|link| link.link.fetch(range, to)).is_some()
    }

    fn event(&self, _: Option<usize>, flow: FlowId, event: Event) {
        let mut slot = self.loops[flow.slot as usize].lock();
        match event {
            Event::Connected => {
                let link = Link::new(flow, 1 << bits(&self.plan));
                let began = Instant::now();
                let out = vec![0; self.plan.message()];
                *slot = Some(Box::new(Loop { link, number: 0, out, sent: 0, got: 0, began }));
                drop(slot);
                self.asked.lock().1.push(flow);
                let _ = self.news.send(News::Opened);
                return;
            }
            Event::Readable(bytes) => {
                if let Some(link) = slot.as_mut() {
                    link.link.arrived(bytes);
                }
            }
            Event::Acked(bytes) => {
                if let Some(link) = slot.as_mut() {
                    let stuck = link.link.room() == 0;
                    link.link.acked(bytes);
                    if !stuck {
                        return;
                    }
                }
            }
            other => {
                let _ = self.news.send(News::Wrong(failure!("a connection ended: {other:?}")));
                return;
            }
        }
        if let Some(link) = slot.as_mut()
            && !std::mem::replace(&mut link.link.queued, true)
        {
            drop(slot);
            self.todo.lock().push(flow);
        }
    }

    fn turn(&self, _: usize, calls: &mut dyn Calls) -> Turn {
        let ordered = self.ordered.load(Acquire);
        let mut state = self.state.lock();
        let mut doing = std::mem::take(&mut state.doing);
        std::mem::swap(&mut *self.todo.lock(), &mut doing);
        if doing.is_empty() && !ordered {
            return Turn::default();
        }
        if ordered {
            self.ordered.store(false, Release);
            self.begin_all(&mut state, calls);
        }
        for flow in doing.drain(..) {
            if let Err(why) = self.advance(&mut state, flow, calls) {
                let _ = self.news.send(News::Wrong(why));
            }
        }
        state.doing = doing;
        Turn { worked: true, ..Turn::default() }
    }

    fn slow_turn(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool {
        let mut worked = false;
        loop {
            let i = {
                let mut asked = self.asked.lock();
                let (begun, there) = (asked.0, asked.1.len());
                if begun == self.plan.connections || begun - there >= AT_ONCE {
                    return worked;
                }
                asked.0 += 1;
                begun
            };
            let SocketAddr::V4(server) = self.server.addresses[i / EACH_ADDRESS] else {
                unreachable!("the server has IPv4")
            };
            let connect = Connect {
                app: 0,
                local_ip: self.over.address,
                local_port: None,
                peer_ip: *server.ip(),
                peer_port: server.port(),
                route: 0,
                flow: options(&self.plan),
            };
            if let Err(why) = endpoint.connect(time, &connect, out) {
                let _ = self.news.send(News::Wrong(Failure::new("cannot connect").because(why)));
            }
            endpoint.leave();
            worked = true;
        }
    }

    fn link(&self, _: u16) -> Option<Hardware> {
        Some(self.hardware)
    }
}
