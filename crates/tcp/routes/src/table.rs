//! All that is known: from a peer's address to its next hop.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// An Ethernet address.
pub type Hardware = [u8; 6];

/// A route of the main table. Without a device it says that nobody is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// To these addresses...
    pub to: Ipv4Addr,
    /// ... as far as their first bits are the same.
    pub prefix: u8,
    /// The lowest is taken.
    pub metric: u32,
    /// The device that packets go by.
    pub device: Option<u32>,
    /// To this host, who knows the rest; none: the peer itself is a neighbour.
    pub gateway: Option<Ipv4Addr>,
}

/// A change that Linux reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A device is so.
    Device {
        /// Its number.
        device: u32,
        /// Its hardware address, if it has an Ethernet one.
        address: Option<Hardware>,
        /// The longest packet, in bytes.
        mtu: u32,
        /// It is in use.
        up: bool,
    },
    /// A device is no more.
    DeviceGone(u32),
    /// A device has an address, or has lost it.
    Own {
        /// The device's number.
        device: u32,
        /// The address.
        address: Ipv4Addr,
        /// It is there.
        there: bool,
    },
    /// A neighbour is at this hardware address, or is not known.
    Neighbour {
        /// The device's number.
        device: u32,
        /// The neighbour.
        address: Ipv4Addr,
        /// Where.
        at: Option<Hardware>,
        /// Somebody has said so for good: Linux does not look for it.
        fixed: bool,
    },
    /// A route.
    Route {
        /// The route.
        route: Route,
        /// It is there.
        there: bool,
        /// It has taken the place of the one that was there.
        replaces: bool,
    },
}

/// A device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its hardware address, if it has an Ethernet one.
    pub address: Option<Hardware>,
    /// The longest packet, in bytes.
    pub mtu: u32,
    /// It is in use.
    pub up: bool,
}

/// Where a packet to a peer goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The device that packets go by.
    pub device: u32,
    /// The neighbour that packets go to.
    pub neighbour: Ipv4Addr,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Table {
    devices: HashMap<u32, Device>,
    addresses: BTreeSet<(u32, Ipv4Addr)>,
    /// Hardware addresses, and whether they are fixed.
    neighbours: HashMap<NextHop, (Hardware, bool)>,
    /// By prefix length, address, metric, device (0: none): one of several with the same is the
    /// last that was told.
    routes: BTreeMap<(u8, u32, u32, u32), Route>,
}

fn network(address: Ipv4Addr, prefix: u8) -> u32 {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    address.to_bits() & mask
}

impl Table {
    /// Takes what Linux says.
    pub fn apply(&mut self, change: &Change) {
        match *change {
            Change::Device { device, address, mtu, up } => {
                self.devices.insert(device, Device { address, mtu, up });
                if !up {
                    // (Linux takes the routes of a device that goes down away, and does not say so
                    // of each.)
                    self.routes.retain(|_, route| route.device != Some(device));
                }
            }
            Change::DeviceGone(device) => {
                self.devices.remove(&device);
                self.addresses.retain(|(of, _)| *of != device);
                self.neighbours.retain(|hop, _| hop.device != device);
                self.routes.retain(|_, route| route.device != Some(device));
            }
            Change::Own { device, address, there: true } => {
                self.addresses.insert((device, address));
            }
            Change::Own { device, address, there: false } => {
                self.addresses.remove(&(device, address));
            }
            Change::Neighbour { device, address: neighbour, at, fixed } => {
                let hop = NextHop { device, neighbour };
                match at {
                    Some(at) => self.neighbours.insert(hop, (at, fixed)),
                    None => self.neighbours.remove(&hop),
                };
            }
            Change::Route { ref route, there, replaces } => {
                let (prefix, to) = (route.prefix, network(route.to, route.prefix));
                let key = (prefix, to, route.metric, route.device.unwrap_or(0));
                if there && replaces {
                    self.routes.retain(|&(a, b, c, _), _| (a, b, c) != (prefix, to, route.metric));
                }
                if there {
                    self.routes.insert(key, route.clone());
                } else if self.routes.get(&key).is_some_and(|known| known == route) {
                    self.routes.remove(&key);
                }
            }
        }
    }

    /// A device.
    pub fn device(&self, device: u32) -> Option<Device> {
        self.devices.get(&device).copied()
    }

    /// The addresses of a device.
    pub fn addresses(&self, device: u32) -> impl Iterator<Item = Ipv4Addr> {
        self.addresses
            .range((device, Ipv4Addr::UNSPECIFIED)..=(device, Ipv4Addr::BROADCAST))
            .map(|(_, address)| *address)
    }

    /// Nobody but this host sends from there, as Linux has it (RFC 1122, 3.2.1.3; its "martian"
    /// sources): its own addresses, and those that are no host's.
    pub fn is_nobody_else(&self, peer: Ipv4Addr) -> bool {
        peer.is_loopback()
            || peer.is_multicast()
            || peer.is_broadcast()
            || peer.octets()[0] == 0
            || self.is_own(peer)
    }

    /// Some device has this address.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|(_, own)| *own == address)
    }

    /// The way to a peer by this device: of the routes to it those that name most of its address,
    /// of these the device's own one of the lowest metric. (Linux may choose another device's among
    /// them: two may lead to one network.) None: there is none, or one before it says that nobody
    /// is there.
    pub fn way(&self, peer: Ipv4Addr, by: u32) -> Option<NextHop> {
        (0..=32u8).rev().find_map(|prefix| {
            let to = network(peer, prefix);
            let same = self.routes.range((prefix, to, 0, 0)..=(prefix, to, u32::MAX, u32::MAX));
            let mut same = same.map(|(_, route)| route).peekable();
            same.peek()?;
            let own = same.find(|route| route.device.is_none_or(|device| device == by));
            Some(own.and_then(|route| {
                let neighbour = route.gateway.unwrap_or(peer);
                route.device.map(|device| NextHop { device, neighbour })
            }))
        })?
    }

    /// Where a neighbour is.
    pub fn neighbour(&self, hop: NextHop) -> Option<Hardware> {
        self.neighbours.get(&hop).map(|(at, _)| *at)
    }

    /// Somebody has said for good where a neighbour is.
    pub fn is_fixed(&self, hop: NextHop) -> bool {
        self.neighbours.get(&hop).is_some_and(|(_, fixed)| *fixed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(to: [u8; 4], prefix: u8, metric: u32, gateway: Option<[u8; 4]>) -> Change {
        let route = Route {
            to: to.into(),
            prefix,
            metric,
            device: Some(2),
            gateway: gateway.map(Ipv4Addr::from),
        };
        Change::Route { route, there: true, replaces: false }
    }

    fn gone(change: Change) -> Change {
        match change {
            Change::Route { route, .. } => Change::Route { route, there: false, replaces: false },
            other => other,
        }
    }

    fn hop(neighbour: [u8; 4]) -> Option<NextHop> {
        Some(NextHop { device: 2, neighbour: neighbour.into() })
    }

    #[test]
    fn the_longest_prefix_comes_first_then_the_lowest_metric() {
        let mut table = Table::default();
        assert_eq!(table.way([10, 0, 0, 9].into(), 2), None);
        table.apply(&route([0; 4], 0, 100, Some([10, 0, 0, 1])));
        table.apply(&route([0; 4], 0, 50, Some([10, 0, 0, 2])));
        table.apply(&route([10, 0, 0, 0], 24, 0, None));
        table.apply(&route([10, 0, 0, 128], 25, 0, Some([10, 0, 0, 3])));
        assert_eq!(table.way([8, 8, 8, 8].into(), 2), hop([10, 0, 0, 2]));
        assert_eq!(table.way([10, 0, 0, 9].into(), 2), hop([10, 0, 0, 9]));
        assert_eq!(table.way([10, 0, 0, 200].into(), 2), hop([10, 0, 0, 3]));
        table.apply(&gone(route([0; 4], 0, 50, Some([10, 0, 0, 2]))));
        assert_eq!(table.way([8, 8, 8, 8].into(), 2), hop([10, 0, 0, 1]));
    }

    #[test]
    fn a_route_that_leads_nowhere_hides_the_wider_ones() {
        let mut table = Table::default();
        table.apply(&route([0; 4], 0, 0, Some([10, 0, 0, 1])));
        let nowhere = Route {
            to: [192, 168, 0, 0].into(),
            prefix: 16,
            metric: 0,
            device: None,
            gateway: None,
        };
        table.apply(&Change::Route { route: nowhere, there: true, replaces: false });
        assert_eq!(table.way([192, 168, 3, 4].into(), 2), None);
        assert_eq!(table.way([192, 169, 3, 4].into(), 2), hop([10, 0, 0, 1]));
    }

    #[test]
    fn of_two_devices_in_one_network_each_has_its_own_way() {
        let mut table = Table::default();
        let by = |device, replaces| {
            let to = [10, 0, 0, 0].into();
            let route = Route { to, prefix: 24, metric: 0, device: Some(device), gateway: None };
            Change::Route { route, there: true, replaces }
        };
        let peer = Ipv4Addr::new(10, 0, 0, 9);
        let device = |table: &Table, by| table.way(peer, by).map(|hop| hop.device);
        table.apply(&by(2, false));
        table.apply(&by(3, false));
        assert_eq!([2, 3, 4].map(|by| device(&table, by)), [Some(2), Some(3), None]);
        table.apply(&gone(by(3, false)));
        assert_eq!([2, 3].map(|by| device(&table, by)), [Some(2), None]);
        // Of one that takes another's place Linux does not say that the other is gone.
        table.apply(&by(3, true));
        assert_eq!([2, 3].map(|by| device(&table, by)), [None, Some(3)]);
    }

    #[test]
    fn a_new_route_is_not_taken_away_by_the_end_of_the_one_before() {
        let mut table = Table::default();
        let old = route([0; 4], 0, 0, Some([10, 0, 0, 1]));
        table.apply(&old);
        table.apply(&route([0; 4], 0, 0, Some([10, 0, 0, 2])));
        table.apply(&gone(old));
        assert_eq!(table.way([8, 8, 8, 8].into(), 2), hop([10, 0, 0, 2]));
    }

    #[test]
    fn an_address_of_this_host_or_of_no_host_is_nobody_elses() {
        let mut table = Table::default();
        let own = Ipv4Addr::new(10, 0, 0, 1);
        table.apply(&Change::Own { device: 3, address: own, there: true });
        for claimed in [own.octets(), [127, 0, 0, 1], [224, 0, 0, 1], [255; 4], [0, 0, 0, 1]] {
            assert!(table.is_nobody_else(claimed.into()), "{claimed:?}");
        }
        assert!(!table.is_nobody_else([10, 0, 0, 2].into()));
        table.apply(&Change::Own { device: 3, address: own, there: false });
        assert!(!table.is_nobody_else(own));
    }

    #[test]
    fn a_device_takes_its_routes_addresses_and_neighbours_with_it() {
        let mut table = Table::default();
        let (own, peer) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        table.apply(&Change::Device { device: 2, address: Some([2; 6]), mtu: 1500, up: true });
        table.apply(&Change::Own { device: 2, address: own, there: true });
        let at = Some([4; 6]);
        table.apply(&Change::Neighbour { device: 2, address: peer, at, fixed: true });
        table.apply(&route([10, 0, 0, 0], 24, 0, None));
        let hop = table.way(peer, 2).unwrap();
        assert_eq!((table.neighbour(hop), table.is_fixed(hop)), (at, true));
        assert_eq!(table.addresses(2).collect::<Vec<_>>(), [own]);
        assert_eq!(table.addresses(3).count(), 0);
        assert!(table.is_own(own) && !table.is_own(peer));
        table.apply(&Change::DeviceGone(2));
        assert_eq!((table.way(peer, 2), table.neighbour(hop)), (None, None));
        assert_eq!(table.addresses(2).count(), 0);
        assert_eq!(table.device(2), None);
    }
}
