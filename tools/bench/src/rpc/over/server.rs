//! The server: answers every request with the request, from the turns of its lanes.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use uncopy_measure::Failure;
use uncopy_tcp_fast::applications::{Calls, SlowOut, Turn};
use uncopy_tcp_fast::spin::Spin;
use uncopy_tcp_fast::{Applications, Service, View};
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_proto::wire::Link as Hardware;
use uncopy_tcp_proto::{Endpoint, Event, FlowId, Listen, Refusal, Time};

use super::Over;
use super::link::Link;
use super::stack::{Opened, bits, config, link, options, quiet};
use crate::rpc::plan::{EACH_ADDRESS, Hello, Plan, Ready};
use crate::rpc::server::answer;
use crate::rpc::work::work;

/// The first port at which it listens; each takes so many connections ([`EACH_ADDRESS`]).
const PORT: u16 = 7000;

struct Served {
    link: Link,
    /// Bytes of its next request that have come.
    seen: usize,
}

/// The state of a lane. (No flow is asked for anything by who holds what events go to: they come
/// with their flow held.)
struct ServerState {
    doing: Vec<FlowId>,
    buffer: Vec<u8>,
}

/// See the module.
pub struct Server {
    plan: Plan,
    hardware: Hardware,
    listen: Spin<Vec<SocketAddrV4>>,
    links: Box<[Spin<Option<Box<Served>>>]>,
    /// The state of each lane.
    states: Box<[Spin<ServerState>]>,
    /// Connections with something to do for each lane.
    todo: Box<[Spin<Vec<FlowId>>]>,
    came: Spin<Vec<FlowId>>,
    /// Flows whose clients have ended them.
    ended: Spin<Vec<FlowId>>,
    opened: Sender<()>,
}

/// Serves until standard input ends.
pub fn serve(plan: &Plan, over: &Over) -> Result<(), Failure> {
    let (_service, came) = start(plan, over, quiet(plan.wait))?;
    let failed = |e: io::Error| Failure::new("cannot answer").because(e);
    came.iter().take(plan.connections).for_each(drop);
    answer(&Ready { connections: plan.connections }).map_err(failed)?;
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(failed)?;
    Ok(())
}

/// Begins to serve as many connections at a time as the plan says, and says where. Lanes sleep
/// after so long without work. Each connection that comes is told.
pub fn start(
    plan: &Plan,
    over: &Over,
    quiet: Duration,
) -> Result<(Arc<Service<Server>>, Receiver<()>), Failure> {
    let ports = plan.connections.div_ceil(EACH_ADDRESS) as u16;
    let addresses: Vec<_> = (0..ports).map(|i| SocketAddrV4::new(over.address, PORT + i)).collect();
    let opened = Opened::new(over, plan)?;
    for &address in &addresses {
        opened.listens(address)?;
    }
    let (connections, came) = channel();
    let state =
        || ServerState { doing: Vec::new(), buffer: vec![0; plan.message().clamp(4096, 64 << 10)] };
    let lanes = opened.lanes();
    let server = Server {
        plan: plan.clone(),
        hardware: link(over),
        listen: Spin::new(addresses.clone()),
        links: (0..config(plan).flows).map(|_| Spin::new(None)).collect(),
        todo: (0..lanes).map(|_| Spin::new(Vec::new())).collect(),
        states: (0..lanes).map(|_| Spin::new(state())).collect(),
        came: Spin::new(Vec::new()),
        ended: Spin::new(Vec::new()),
        opened: connections,
    };
    let service = opened.service(plan, quiet, server)?;
    while !service.applications().listen.lock().is_empty() {
        std::thread::yield_now();
    }
    let addresses = addresses.into_iter().map(Into::into).collect();
    answer(&Hello { addresses }).map_err(|e| Failure::new("cannot answer").because(e))?;
    Ok((service, came))
}

impl Server {
    /// Answers what has come of a connection.
    fn advance(&self, flow: FlowId, buffer: &mut [u8], calls: &mut dyn Calls) {
        loop {
            let bytes = {
                let mut served = self.links[flow.slot as usize].lock();
                let Some(served) = served.as_mut().filter(|served| served.link.id == flow) else {
                    return;
                };
                served.link.queued = false;
                let most = served.link.room().min(buffer.len());
                let bytes = served.link.take(&mut buffer[..most]);
                if self.plan.work > 0 {
                    served.seen += bytes;
                    while served.seen >= self.plan.size {
                        served.seen -= self.plan.size;
                        work(self.plan.work);
                    }
                }
                let put = served.link.put(&buffer[..bytes]);
                assert_eq!(put, bytes, "there was room");
                bytes as u32
            };
            if bytes == 0 {
                return;
            }
            // (Refused where the other end has gone meanwhile.)
            let _: [Result<(), Refusal>; 2] = [calls.read(flow, bytes), calls.write(flow, bytes)];
        }
    }
}

impl Applications for Server {
    fn place(&self, _: Option<usize>, flow: FlowId, place: Place, payload: &[u8]) -> u32 {
        if let Some(served) = self.links[flow.slot as usize].lock().as_mut() {
            served.link.place(place, payload);
        }
        place.to.len
    }

    fn fetch(&self, flow: FlowId, range: RingRange, to: &mut [u8]) -> bool {
        let served = self.links[flow.slot as usize].lock();
        served.as_ref().map(|served| served.link.fetch(range, to)).is_some()
    }

    fn event(&self, lane: Option<usize>, flow: FlowId, event: Event) {
        let mut slot = self.links[flow.slot as usize].lock();
        match event {
            Event::Incoming { .. } => {
                let link = Link::new(flow, 1 << bits(&self.plan));
                *slot = Some(Box::new(Served { link, seen: 0 }));
                drop(slot);
                self.came.lock().push(flow);
                let _ = self.opened.send(());
                return;
            }
            Event::Closed | Event::Reset(_) => *slot = None,
            Event::Readable(bytes) => {
                if let Some(served) = slot.as_mut() {
                    served.link.arrived(bytes);
                }
            }
            Event::Acked(bytes) => {
                if let Some(served) = slot.as_mut() {
                    let stuck = served.link.room() == 0;
                    served.link.acked(bytes);
                    if !stuck {
                        return;
                    }
                }
            }
            // (All that it asked has been answered, or nobody waits for it.)
            Event::PeerClosed => {
                drop(slot);
                self.ended.lock().push(flow);
                return;
            }
            Event::Connected => return,
        }
        if let Some(served) = slot.as_mut()
            && !std::mem::replace(&mut served.link.queued, true)
        {
            drop(slot);
            // (The first lane always runs.)
            self.todo[lane.unwrap_or(0)].lock().push(flow);
        }
    }

    fn turn(&self, lane: usize, calls: &mut dyn Calls) -> Turn {
        let for_slow_path = !self.ended.lock().is_empty();
        let mut state = self.states[lane].lock();
        let ServerState { doing, buffer } = &mut *state;
        std::mem::swap(&mut *self.todo[lane].lock(), doing);
        if doing.is_empty() {
            return Turn { for_slow_path, ..Turn::default() };
        }
        for flow in doing.drain(..) {
            self.advance(flow, buffer, calls);
        }
        Turn { worked: true, for_slow_path, ..Turn::default() }
    }

    fn slow_turn(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool {
        let mut listen = self.listen.lock();
        for address in listen.iter() {
            let listen = Listen {
                app: 0,
                ip: *address.ip(),
                port: address.port(),
                backlog: self.plan.connections as u32,
                flow: options(&self.plan),
            };
            endpoint.listen(listen).expect("nobody else listens");
        }
        listen.clear();
        drop(listen);
        let came = std::mem::take(&mut *self.came.lock());
        for &flow in &came {
            // (Refused where it has ended already.)
            let _ = endpoint.accept(flow, 0, 0);
            endpoint.leave();
        }
        let ended = std::mem::take(&mut *self.ended.lock());
        for &flow in &ended {
            // (A flow that has ended already refuses.)
            let _ = endpoint.close(time, flow, out);
            endpoint.leave();
        }
        !came.is_empty() || !ended.is_empty()
    }

    fn link(&self, _: u16) -> Option<Hardware> {
        Some(self.hardware)
    }
}
