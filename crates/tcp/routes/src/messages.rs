//! Netlink's bytes. A message that cannot be read, or is of no interest here (IPv6, other tables),
//! is passed over.

use crate::table::{Change, Hardware, Route};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::{IpAddr, Ipv4Addr};

/// The length of a message stands in its first four bytes; messages begin at multiples of four.
const HEADER: usize = 16;

/// The content of one datagram.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The changes in the datagram's order.
    pub changes: Vec<Change>,
    /// A dump has ended.
    pub done: bool,
    /// The answer to a request: it was refused (an errno) or done (0).
    pub answer: Option<i32>,
}

/// Reads a datagram.
pub fn read(mut datagram: &[u8]) -> Said {
    let mut said = Said::default();
    while let Some(length) = datagram.get(..4) {
        let length = u32::from_ne_bytes(length.try_into().expect("four bytes")) as usize;
        if length < HEADER || length > datagram.len() {
            break;
        }
        // (Bytes that are no message have an attribute that this library does not know well.)
        if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&datagram[..length])
        {
            match message.payload {
                NetlinkPayload::Done(_) => said.done = true,
                NetlinkPayload::Error(error) => {
                    said.answer = Some(error.code.map_or(0, |code| -code.get()));
                }
                NetlinkPayload::InnerMessage(inner) => {
                    let replaces = message.header.flags & NLM_F_REPLACE != 0;
                    said.changes.extend(change(&inner, replaces));
                }
                _ => {}
            }
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    said
}

fn change(message: &RouteNetlinkMessage, replaces: bool) -> Option<Change> {
    use RouteNetlinkMessage as M;
    match message {
        M::NewLink(link) => Some(device(link)),
        M::DelLink(link) => Some(Change::DeviceGone(link.header.index)),
        M::NewAddress(address) => own(address, true),
        M::DelAddress(address) => own(address, false),
        M::NewNeighbour(neighbour) => neighbour_of(neighbour, true),
        M::DelNeighbour(neighbour) => neighbour_of(neighbour, false),
        M::NewRoute(route) => {
            Some(Change::Route { route: route_of(route)?, there: true, replaces })
        }
        M::DelRoute(route) => {
            Some(Change::Route { route: route_of(route)?, there: false, replaces: false })
        }
        _ => None,
    }
}

fn hardware(bytes: &[u8]) -> Option<Hardware> {
    bytes.try_into().ok()
}

fn device(link: &LinkMessage) -> Change {
    let (mut address, mut mtu) = (None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => address = hardware(bytes),
            LinkAttribute::Mtu(bytes) => mtu = Some(*bytes),
            _ => {}
        }
    }
    let up = link.header.flags.contains(LinkFlags::Up);
    Change::Device { device: link.header.index, address, mtu: mtu.unwrap_or(0), up }
}

fn own(message: &AddressMessage, there: bool) -> Option<Change> {
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(IpAddr::V4(ip)) => local = Some(*ip),
            AddressAttribute::Address(IpAddr::V4(ip)) => address = Some(*ip),
            _ => {}
        }
    }
    // (Of a line between two the other is the peer's.)
    let address = local.or(address)?;
    Some(Change::Own { device: message.header.index, address, there })
}

fn neighbour_of(message: &NeighbourMessage, there: bool) -> Option<Change> {
    let (mut address, mut at) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => address = Some(*ip),
            NeighbourAttribute::LinkLayerAddress(bytes) => at = hardware(bytes),
            _ => {}
        }
    }
    let failed =
        matches!(message.header.state, NeighbourState::Failed | NeighbourState::Incomplete);
    let at = at.filter(|_| there && !failed);
    let fixed = at.is_some() && message.header.state == NeighbourState::Permanent;
    Some(Change::Neighbour { device: message.header.ifindex, address: address?, at, fixed })
}

fn v4(address: &RouteAddress) -> Option<Ipv4Addr> {
    match address {
        RouteAddress::Inet(ip) => Some(*ip),
        _ => None,
    }
}

fn route_of(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    if header.address_family != AddressFamily::Inet || header.tos != 0 {
        return None;
    }
    let mut table = u32::from(header.table);
    let mut route = Route {
        to: Ipv4Addr::UNSPECIFIED,
        prefix: header.destination_prefix_length,
        metric: 0,
        device: None,
        gateway: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => route.to = v4(to)?,
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Oif(device) => route.device = Some(*device),
            RouteAttribute::Gateway(gateway) => route.gateway = Some(v4(gateway)?),
            RouteAttribute::MultiPath(hops) => {
                let first = hops.first()?;
                route.device = Some(first.interface_index);
                route.gateway = first.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Gateway(gateway) => v4(gateway),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    if table != u32::from(RouteHeader::RT_TABLE_MAIN) {
        return None;
    }
    if header.kind != RouteType::Unicast {
        // It says that nobody is there.
        (route.device, route.gateway) = (None, None);
    }
    Some(route)
}

/// The things that can be asked for as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum All {
    /// Devices.
    Devices,
    /// Addresses of this host.
    Addresses,
    /// Routes.
    Routes,
    /// Neighbours.
    Neighbours,
}

fn request(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Asks for all of a kind.
pub fn dump(what: All) -> Vec<u8> {
    use RouteNetlinkMessage as M;
    let message = match what {
        All::Devices => M::GetLink(LinkMessage::default()),
        All::Addresses => {
            let mut message = AddressMessage::default();
            message.header.family = AddressFamily::Inet;
            M::GetAddress(message)
        }
        All::Routes => {
            let mut message = RouteMessage::default();
            message.header.address_family = AddressFamily::Inet;
            M::GetRoute(message)
        }
        All::Neighbours => {
            let mut message = NeighbourMessage::default();
            message.header.family = AddressFamily::Inet;
            M::GetNeighbour(message)
        }
    };
    request(message, NLM_F_DUMP)
}

/// Asks Linux to look for a neighbour, or whether the one that it knows is still there, as if it
/// had a packet for it.
pub fn look_for(device: u32, address: Ipv4Addr) -> Vec<u8> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = device;
    message.header.flags = NeighbourFlags::Use;
    message.attributes = vec![NeighbourAttribute::Destination(NeighbourAddress::Inet(address))];
    request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE)
}

/// A request that changes something, and says whether it did.
pub(crate) fn change_request(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    request(message, NLM_F_ACK | flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: RouteNetlinkMessage) -> Vec<Change> {
        read(&request(message, 0)).changes
    }

    fn route(prefix: u8, attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.kind = RouteType::Unicast;
        message.header.destination_prefix_length = prefix;
        message.attributes = attributes;
        message
    }

    #[test]
    fn a_default_route_and_its_end_are_read() {
        let gateway = Ipv4Addr::new(10, 0, 0, 1);
        let attributes = vec![
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)),
            RouteAttribute::Oif(3),
            RouteAttribute::Priority(100),
        ];
        let message = route(0, attributes);
        let read = Route {
            to: Ipv4Addr::UNSPECIFIED,
            prefix: 0,
            metric: 100,
            device: Some(3),
            gateway: Some(gateway),
        };
        assert_eq!(
            said(RouteNetlinkMessage::NewRoute(message.clone())),
            [Change::Route { route: read.clone(), there: true, replaces: false }]
        );
        assert_eq!(
            said(RouteNetlinkMessage::DelRoute(message)),
            [Change::Route { route: read, there: false, replaces: false }]
        );
    }

    #[test]
    fn a_route_of_another_table_or_family_is_none_of_ours() {
        let other = route(24, vec![RouteAttribute::Oif(3), RouteAttribute::Table(5200)]);
        assert_eq!(said(RouteNetlinkMessage::NewRoute(other)), []);
        let mut six = route(24, vec![]);
        six.header.address_family = AddressFamily::Inet6;
        assert_eq!(said(RouteNetlinkMessage::NewRoute(six)), []);
    }

    #[test]
    fn a_route_that_refuses_leads_nowhere() {
        let mut message = route(32, vec![RouteAttribute::Oif(1)]);
        message.header.kind = RouteType::BlackHole;
        let [Change::Route { route, there: true, .. }] =
            &said(RouteNetlinkMessage::NewRoute(message))[..]
        else {
            panic!("a route")
        };
        assert_eq!(route.device, None);
    }

    #[test]
    fn a_neighbour_counts_while_linux_would_send_to_it() {
        let address = Ipv4Addr::new(10, 0, 0, 7);
        let at = [2, 0, 0, 0, 0, 7];
        for (state, known) in [
            (NeighbourState::Reachable, true),
            (NeighbourState::Stale, true),
            (NeighbourState::Permanent, true),
            (NeighbourState::Failed, false),
            (NeighbourState::Incomplete, false),
        ] {
            let mut message = NeighbourMessage::default();
            message.header.family = AddressFamily::Inet;
            message.header.ifindex = 4;
            message.header.state = state;
            message.attributes = vec![
                NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
                NeighbourAttribute::LinkLayerAddress(at.to_vec()),
            ];
            let fixed = state == NeighbourState::Permanent;
            let change = Change::Neighbour { device: 4, address, at: known.then_some(at), fixed };
            assert_eq!(said(RouteNetlinkMessage::NewNeighbour(message.clone())), [change]);
            let gone = Change::Neighbour { device: 4, address, at: None, fixed: false };
            assert_eq!(said(RouteNetlinkMessage::DelNeighbour(message)), [gone]);
        }
    }

    #[test]
    fn damaged_bytes_say_less_and_never_panic() {
        let attributes = vec![
            RouteAttribute::Oif(3),
            RouteAttribute::Destination(RouteAddress::Inet([9; 4].into())),
        ];
        let whole = request(RouteNetlinkMessage::NewRoute(route(24, attributes)), 0);
        for end in 0..whole.len() {
            let _ = read(&whole[..end]);
        }
        for at in 0..whole.len() {
            for bits in [0xff, 0x80, 1] {
                let mut bad = whole.clone();
                bad[at] ^= bits;
                let _ = read(&bad);
            }
        }
    }
}
