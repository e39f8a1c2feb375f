//! The endpoints, and the applications on them: a sender opens a connection, writes and closes; a
//! receiver reads.
//!
//! One [`Endpoint`] plays all hosts: it owns flows, not addresses, and between flows it shares
//! nothing that these results depend on. Both ends of a connection are flows of it, with their own
//! numbers, windows and timers.

use crate::events::Events;
use crate::network::{Network, address};
use crate::sender::Sender;
use crate::vanilla::{Acknowledged, Vanilla};
use std::collections::HashMap;
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::{Flags, Tuple};
use uncopy_tcp_proto::time::{MILLISECOND, Nanos};
use uncopy_tcp_proto::{
    Actions, Algorithm, Config, Connect, Endpoint, Event, FlowId, FlowOptions, Listen, Outgoing,
    Segment, Time,
};

/// Buffers of both sides: 1 MB, more than any of these ways holds.
const BUFFER_BITS: u8 = 20;
/// All applications listen here.
const PORT: u16 = 80;
/// Least retransmission timeout: what data centres set (Alizadeh et al., SIGCOMM 2010, 4).
const RTO_MIN: Nanos = 10 * MILLISECOND;
/// Nothing comes late here: many round trips.
const TIME_WAIT: Nanos = 2 * MILLISECOND;

/// An end of a connection.
enum App {
    /// The bytes that are to be written yet, and how its window is set if the core does not.
    Sends { flow: u32, left: u64, vanilla: Option<Vanilla> },
    /// The bytes that are to be read yet.
    Receives { flow: u32, left: u64 },
    /// Nothing any more.
    Done,
}

/// The news from applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The receiver has all of this flow.
    Complete(u32),
    /// The connection of this flow broke.
    Failed(u32),
}

struct Out<'a> {
    now: Time,
    network: &'a mut Network,
    events: &'a mut Events,
    heard: &'a mut Vec<(FlowId, Event)>,
}

impl Actions for Out<'_> {
    fn send(&mut self, _: Option<FlowId>, segment: &Outgoing) {
        self.network.send(self.now.0, segment, self.events);
    }

    fn place(&mut self, _: FlowId, place: Place) -> u32 {
        place.to.len
    }

    fn event(&mut self, flow: FlowId, event: Event) {
        self.heard.push((flow, event));
    }
}

/// See the module.
pub(crate) struct Hosts {
    endpoint: Endpoint,
    algorithm: Algorithm,
    apps: Vec<App>,
    /// The flow, and its size, of whoever connects from these ends (as the receiver sees them).
    expected: HashMap<Tuple, (u32, u64)>,
    heard: Vec<(FlowId, Event)>,
    /// Bytes of each flow that its receiver has.
    pub received: Vec<u64>,
    pub poll_at: Option<Time>,
    pub news: Vec<News>,
}

impl Hosts {
    pub fn new(sender: Sender, connections: usize, seed: u64) -> Hosts {
        let algorithm = match sender {
            Sender::Core { algorithm, .. } => algorithm,
            Sender::Vanilla => Algorithm::Caller,
        };
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let mut endpoint = Endpoint::new(Config {
            flows: connections,
            secret,
            rto_min: RTO_MIN,
            time_wait: TIME_WAIT,
            control: match sender {
                Sender::Core { interval, .. } => interval,
                Sender::Vanilla => None,
            },
            ports: 1024..=u16::MAX,
            ..Config::default()
        });
        let listen = Listen {
            app: 0,
            ip: [0, 0, 0, 0].into(),
            port: PORT,
            backlog: u32::MAX / 2,
            flow: options(Algorithm::Dctcp),
        };
        endpoint.listen(listen).expect("the first listener");
        Hosts {
            endpoint,
            algorithm,
            apps: (0..connections).map(|_| App::Done).collect(),
            expected: HashMap::new(),
            heard: Vec::new(),
            received: Vec::new(),
            poll_at: None,
            news: Vec::new(),
        }
    }

    /// Opens the connection of `flow`. False if there is no room for one more.
    pub fn start(
        &mut self,
        now: Time,
        (flow, size): (u32, u64),
        (from, to): (u32, u32),
        network: &mut Network,
        events: &mut Events,
    ) -> bool {
        let connect = Connect {
            app: 0,
            local_ip: address(from),
            local_port: None,
            peer_ip: address(to),
            peer_port: PORT,
            route: 0,
            flow: options(self.algorithm),
        };
        let mut out = Out { now, network, events, heard: &mut self.heard };
        let Ok(id) = self.endpoint.connect(now, &connect, &mut out) else { return false };
        let tuple = self.endpoint.flow(id).expect("it was just made").tuple();
        let seen = Tuple {
            local_ip: tuple.peer_ip,
            local_port: tuple.peer_port,
            peer_ip: tuple.local_ip,
            peer_port: tuple.local_port,
        };
        self.expected.insert(seen, (flow, size));
        self.received.resize(flow as usize + 1, 0);
        self.apps[id.slot as usize] = App::Sends { flow, left: size, vanilla: None };
        true
    }

    /// A segment arrived at its host.
    pub fn segment(
        &mut self,
        now: Time,
        segment: &Segment,
        network: &mut Network,
        events: &mut Events,
    ) {
        let mut out = Out { now, network, events, heard: &mut self.heard };
        self.endpoint.segment(now, 0, segment, &mut out);
        self.listen(now, segment.flags.any(Flags::ECE), network, events);
        self.poll(now, network, events);
    }

    /// Timers, and what may be sent.
    pub fn poll(&mut self, now: Time, network: &mut Network, events: &mut Events) {
        loop {
            let mut out = Out { now, network, events, heard: &mut self.heard };
            self.poll_at = self.endpoint.poll(now, usize::MAX, &mut out);
            if self.heard.is_empty() {
                return;
            }
            self.listen(now, false, network, events);
        }
    }

    /// The applications hear what has happened.
    fn listen(&mut self, now: Time, marked: bool, network: &mut Network, events: &mut Events) {
        let mut at = 0;
        while let Some(&(id, event)) = self.heard.get(at) {
            at += 1;
            let app = &mut self.apps[id.slot as usize];
            match (event, app) {
                (Event::Incoming { .. }, app) => {
                    self.endpoint.accept(id, 0, 0).expect("it waits");
                    let tuple = self.endpoint.flow(id).expect("it is there").tuple();
                    let (flow, left) = self.expected.remove(&tuple).expect("somebody connected");
                    *app = App::Receives { flow, left };
                }
                (Event::Readable(n), App::Receives { flow, left }) => {
                    self.endpoint.read(id, n).expect("it came");
                    *left -= u64::from(n);
                    self.received[*flow as usize] += u64::from(n);
                    if *left == 0 {
                        self.news.push(News::Complete(*flow));
                    }
                }
                (Event::PeerClosed, App::Receives { .. }) => {
                    let mut out = Out { now, network, events, heard: &mut self.heard };
                    self.endpoint.close(now, id, &mut out).expect("it is there");
                }
                (Event::Connected, App::Sends { left, vanilla, .. }) => {
                    if self.algorithm == Algorithm::Caller {
                        let mss = self.endpoint.info(id).expect("it is there").mss;
                        let new = Vanilla::new(mss.into());
                        self.endpoint.set_window(id, new.window()).expect("it is there");
                        *vanilla = Some(new);
                    }
                    write(&mut self.endpoint, id, left);
                }
                (Event::Acked(bytes), App::Sends { left, vanilla, .. }) => {
                    if let Some(vanilla) = vanilla {
                        let info = self.endpoint.info(id).expect("it is there");
                        vanilla.acknowledged(&Acknowledged {
                            bytes,
                            marked,
                            in_flight: info.in_flight,
                            losses: info.totals.fast_retransmits,
                            timeouts: info.totals.timeouts,
                        });
                        self.endpoint.set_window(id, vanilla.window()).expect("it is there");
                    }
                    write(&mut self.endpoint, id, left);
                }
                (Event::Reset(_), app) => {
                    // Of a receiver that has all, its sender's last acknowledgement was lost:
                    // nothing is missing.
                    if let App::Sends { flow, .. } | App::Receives { flow, left: 1.. } = app {
                        self.news.push(News::Failed(*flow));
                    }
                    *app = App::Done;
                }
                (Event::Closed, app) => *app = App::Done,
                _ => {}
            }
        }
        self.heard.clear();
    }
}

/// Writes what there is room for, and closes behind the last of it.
fn write(endpoint: &mut Endpoint, id: FlowId, left: &mut u64) {
    if *left == 0 {
        return;
    }
    let room = endpoint.flow(id).expect("it is there").writable();
    let n = (*left).min(room.into()) as u32;
    endpoint.write(id, n).expect("there is room");
    *left -= u64::from(n);
    if *left == 0 {
        endpoint.shutdown(id).expect("it was open");
    }
}

fn options(algorithm: Algorithm) -> FlowOptions {
    FlowOptions {
        rcv_bits: BUFFER_BITS,
        snd_bits: BUFFER_BITS,
        algorithm,
        nagle: false,
        ..FlowOptions::default()
    }
}
