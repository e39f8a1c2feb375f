//! Packets with a mark come back to this host, whatever their address: a rule, and a route by the
//! loopback device. So a socket of this host can have a peer's address. (`ip rule add fwmark M
//! lookup T`; `ip route add local default dev lo table T`.)
//!
//! Both stay when the process ends: other services may use them, and nothing else has the mark.

use crate::kernel::Kernel;
use crate::messages::change_request;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;

/// Before the main table's (32766), behind the local one's.
const PRIORITY: u32 = 100;
/// The loopback device's number, in each namespace.
const LOOPBACK: u32 = 1;

/// Makes the rule and the route, where they are missing.
///
/// # Errors
/// No right (CAP_NET_ADMIN); a kernel without policy routing.
pub fn open(mark: u32, table: u32) -> io::Result<()> {
    let mut kernel = Kernel::open(false)?;
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.table = RouteHeader::RT_TABLE_UNSPEC;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Host;
    route.header.kind = RouteType::Local;
    route.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(LOOPBACK)];
    let route = RouteNetlinkMessage::NewRoute(route);
    kernel.ask(&change_request(route, NLM_F_CREATE | NLM_F_REPLACE))?;
    add_rule(&mut kernel, PRIORITY, mark, table)
}

/// Has the table route packets with the mark, from now on.
pub(crate) fn add_rule(
    kernel: &mut Kernel,
    priority: u32,
    mark: u32,
    table: u32,
) -> io::Result<()> {
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::Priority(priority),
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(table),
    ];
    let rule = RouteNetlinkMessage::NewRule(rule);
    match kernel.ask(&change_request(rule, NLM_F_CREATE | NLM_F_EXCL)) {
        // It is there.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
