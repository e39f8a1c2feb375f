//! Packets on their way: each has a number from when it is sent until it has arrived or is lost.

use crate::events::{Event, Events};
use crate::port::{Fate, Port, on_link};
use crate::topology::{Map, Node};
use core::net::Ipv4Addr;
use uncopy_tcp_proto::segment::Tuple;
use uncopy_tcp_proto::{Outgoing, Segment};

/// Ethernet's and IPv4's header.
const HEADERS: u32 = 14 + 20;

struct Packet {
    segment: Segment,
    markable: bool,
    /// On a link.
    bytes: u32,
    to: u32,
    hash: u32,
    /// The link that it is on.
    port: u32,
}

/// See the module.
pub(crate) struct Network {
    pub map: Map,
    pub ports: Vec<Port>,
    packets: Vec<Packet>,
    free: Vec<u32>,
    salt: u64,
}

/// The address of a host.
pub(crate) fn address(host: u32) -> Ipv4Addr {
    Ipv4Addr::from(10 << 24 | host)
}

/// The host of an address.
pub(crate) fn host(address: Ipv4Addr) -> u32 {
    u32::from(address) & 0xff_ffff
}

/// Bytes of the frame of `segment`, as `uncopy_tcp_proto::wire` would write it.
fn frame(segment: &Outgoing) -> u32 {
    let stamp = if segment.stamp.is_some() { 12 } else { 0 };
    let blocks = segment.sack.as_slice().len() as u32;
    let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
    let syn = segment.syn.map_or(0, |syn| {
        4 * u32::from(syn.mss.is_some())
            + 4 * u32::from(syn.shift.is_some())
            + 4 * u32::from(syn.sack)
    });
    HEADERS + 20 + stamp + sack + syn + segment.payload.len
}

impl Network {
    pub fn new(map: Map, seed: u64) -> Network {
        let ports = map.links().into_iter().map(Port::new).collect();
        Network { map, ports, packets: Vec::new(), free: Vec::new(), salt: seed }
    }

    /// Which of several ways a connection's packets take.
    fn hash(&self, tuple: &Tuple) -> u32 {
        let ends = u64::from(u32::from(tuple.local_ip)) << 32 | u64::from(u32::from(tuple.peer_ip));
        let ports = u64::from(tuple.local_port) << 16 | u64::from(tuple.peer_port);
        // SplitMix64's last step.
        let mut z = ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ports ^ self.salt;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 32) as u32
    }

    /// A host sends `segment`.
    pub fn send(&mut self, now: u64, segment: &Outgoing, events: &mut Events) {
        let tuple = segment.tuple;
        let from = host(tuple.local_ip);
        let to = host(tuple.peer_ip);
        let packet = Packet {
            segment: Segment {
                tuple: Tuple {
                    local_ip: tuple.peer_ip,
                    local_port: tuple.peer_port,
                    peer_ip: tuple.local_ip,
                    peer_port: tuple.local_port,
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
            },
            markable: segment.markable,
            bytes: on_link(frame(segment)),
            to,
            hash: self.hash(&tuple),
            port: 0,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        };
        self.forward(now, Node::Host(from), number, events);
    }

    fn forward(&mut self, now: u64, at: Node, number: u32, events: &mut Events) {
        let packet = &mut self.packets[number as usize];
        packet.port = self.map.next(at, packet.to, packet.hash);
        match self.ports[packet.port as usize].send(now, packet.bytes, packet.markable) {
            Fate::Arrives(time, marked) => {
                packet.segment.marked |= marked;
                events.push(time, Event::Packet(number));
            }
            Fate::Lost => self.free.push(number),
        }
    }

    /// A packet arrives behind its link: at its host, or it goes on.
    pub fn arrived(&mut self, now: u64, number: u32, events: &mut Events) -> Option<Segment> {
        let packet = &self.packets[number as usize];
        match self.map.end(packet.port) {
            Node::Host(_) => {
                self.free.push(number);
                Some(packet.segment)
            }
            node => {
                self.forward(now, node, number, events);
                None
            }
        }
    }
}
