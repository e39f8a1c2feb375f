//! Packets with a mark go by a device, whatever their address: a rule, and a route. (`ip rule add
//! fwmark M lookup T`; `ip route add default dev D src A table T`.)
//!
//! The route goes with the device: from then on the rule finds nothing, and Linux goes on with its
//! other tables. So a device that dies with its process leaves nothing that anybody would notice;
//! the rule is taken away by the next one with the same table.

use crate::kernel::Kernel;
use crate::loopback::add_rule;
use crate::messages::change_request;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;
use std::net::Ipv4Addr;

/// Behind the one of [`crate::loopback`].
const PRIORITY: u32 = 101;

/// Sets the device up, and makes the rule and the route. `source`: what a packet has as its source
/// that has none yet. A device that has used this table before does not any more.
///
/// # Errors
/// No right (CAP_NET_ADMIN); `source` is no address of this host; a kernel without policy routing.
pub fn open(mark: u32, table: u32, device: u32, source: Ipv4Addr) -> io::Result<()> {
    let mut kernel = Kernel::open(false)?;
    let mut link = LinkMessage::default();
    link.header.index = device;
    (link.header.flags, link.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    kernel.ask(&change_request(RouteNetlinkMessage::SetLink(link), 0))?;
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![RuleAttribute::Priority(PRIORITY), RuleAttribute::Table(table)];
    let older = change_request(RouteNetlinkMessage::DelRule(rule), 0);
    while kernel.ask(&older).is_ok() {}
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Link;
    route.header.kind = RouteType::Unicast;
    route.attributes = vec![
        RouteAttribute::Table(table),
        RouteAttribute::Oif(device),
        RouteAttribute::PrefSource(RouteAddress::Inet(source)),
    ];
    let route = RouteNetlinkMessage::NewRoute(route);
    kernel.ask(&change_request(route, NLM_F_CREATE | NLM_F_REPLACE))?;
    add_rule(&mut kernel, PRIORITY, mark, table)
}
