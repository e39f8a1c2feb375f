//! Which links there are, and which of them a packet takes.

use crate::port::Link;

/// A switch or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A host, by its number.
    Host(u32),
    /// The switch before some hosts.
    Edge(u32),
    /// A pod's switch between edges and cores.
    Middle(u32),
    /// A switch between pods.
    Core(u32),
}

/// Links of one kind, for results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The name.
    pub name: &'static str,
    /// Their numbers.
    pub ports: core::ops::Range<u32>,
}

/// A network.
#[derive(Clone, Debug)]
pub enum Topology {
    /// Hosts on two switches with one link between them.
    One(One),
    /// Three levels of switches.
    FatTree(FatTree),
}

/// The first half of the hosts is on the left.
#[derive(Clone, Debug)]
pub struct One {
    /// Hosts on each side.
    pub each: u32,
    /// Their links.
    pub host: Link,
    /// The link in the middle.
    pub middle: Link,
}

/// Pods of edge switches, each of which is linked to all middle switches of its pod; each middle
/// switch to its own cores; each core to one middle switch of every pod.
#[derive(Clone, Debug)]
pub struct FatTree {
    /// Pods.
    pub pods: u32,
    /// Edge switches of a pod.
    pub edges: u32,
    /// Middle switches of a pod.
    pub middles: u32,
    /// Cores of a middle switch.
    pub cores: u32,
    /// Hosts of an edge switch.
    pub hosts: u32,
    /// Host and edge.
    pub host: Link,
    /// Edge and middle.
    pub edge: Link,
    /// Middle and core.
    pub core: Link,
}

/// A host's own queue loses and marks nothing: the host waits instead.
fn patient(link: Link) -> Link {
    Link { mark: u64::MAX, room: u64::MAX, ..link }
}

impl FatTree {
    fn all_edges(&self) -> u32 {
        self.pods * self.edges
    }

    fn all_middles(&self) -> u32 {
        self.pods * self.middles
    }

    /// Switches of all kinds.
    pub fn switches(&self) -> u32 {
        self.all_edges() + self.all_middles() + self.middles * self.cores
    }

    /// Where the kinds of ports begin, and where the last ends: host up, edge down, edge up, middle
    /// down, middle up, core down.
    fn begins(&self) -> [u32; 7] {
        let hosts = self.all_edges() * self.hosts;
        let counts = [
            hosts,
            hosts,
            self.all_edges() * self.middles,
            self.all_middles() * self.edges,
            self.all_middles() * self.cores,
            self.middles * self.cores * self.pods,
        ];
        let mut begins = [0; 7];
        for (n, count) in counts.into_iter().enumerate() {
            begins[n + 1] = begins[n] + count;
        }
        begins
    }

    fn next(&self, begins: &[u32; 7], at: Node, to: u32, hash: u32) -> u32 {
        let edge = to / self.hosts;
        let pod = edge / self.edges;
        match at {
            Node::Host(host) => begins[0] + host,
            Node::Edge(here) if here == edge => begins[1] + to,
            Node::Edge(here) => begins[2] + here * self.middles + hash % self.middles,
            Node::Middle(here) if here / self.middles == pod => {
                begins[3] + here * self.edges + edge % self.edges
            }
            // Another part of the hash than at the edge.
            Node::Middle(here) => begins[4] + here * self.cores + (hash >> 16) % self.cores,
            Node::Core(here) => begins[5] + here * self.pods + pod,
        }
    }

    fn end(&self, begins: &[u32; 7], port: u32) -> Node {
        let kind = begins[1..].iter().position(|&end| port < end).expect("a port of this network");
        let n = port - begins[kind];
        match kind {
            0 => Node::Edge(n / self.hosts),
            1 => Node::Host(n),
            2 => Node::Middle(n / self.middles / self.edges * self.middles + n % self.middles),
            3 => Node::Edge(n / self.edges / self.middles * self.edges + n % self.edges),
            4 => Node::Core(n / self.cores % self.middles * self.cores + n % self.cores),
            _ => Node::Middle(n % self.pods * self.middles + n / self.pods / self.cores),
        }
    }
}

/// A [`Topology`] with its ports numbered.
#[derive(Clone, Debug)]
pub struct Map {
    topology: Topology,
    begins: [u32; 7],
    /// Where each port's link ends.
    ends: Vec<Node>,
}

impl Map {
    /// Numbers the ports.
    pub fn new(topology: Topology) -> Map {
        let (begins, count) = match &topology {
            Topology::FatTree(tree) => (tree.begins(), tree.begins()[6]),
            // Hosts up, hosts down, left to right, right to left.
            Topology::One(one) => ([0; 7], 4 * one.each + 2),
        };
        let ends = (0..count)
            .map(|port| match &topology {
                Topology::FatTree(tree) => tree.end(&begins, port),
                Topology::One(one) => {
                    let hosts = 2 * one.each;
                    match port {
                        _ if port < hosts => Node::Edge(port / one.each),
                        _ if port < 2 * hosts => Node::Host(port - hosts),
                        _ => Node::Edge(1 - (port - 2 * hosts)),
                    }
                }
            })
            .collect();
        Map { topology, begins, ends }
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> u32 {
        match &self.topology {
            Topology::One(one) => 2 * one.each,
            Topology::FatTree(tree) => tree.all_edges() * tree.hosts,
        }
    }

    /// The links of all ports.
    pub fn links(&self) -> Vec<Link> {
        (0..self.ends.len() as u32)
            .map(|port| match &self.topology {
                Topology::One(one) => match port {
                    _ if port < 2 * one.each => patient(one.host),
                    _ if port < 4 * one.each => one.host,
                    _ => one.middle,
                },
                Topology::FatTree(tree) => {
                    match self.begins[1..].iter().position(|&end| port < end) {
                        Some(0) => patient(tree.host),
                        Some(1) => tree.host,
                        Some(2 | 3) => tree.edge,
                        _ => tree.core,
                    }
                }
            })
            .collect()
    }

    /// The port by which a packet leaves `at` on its way to the host `to`. `hash` chooses where
    /// there are several ways; the same one for all packets of a connection, which so stay in
    /// order.
    #[inline]
    pub fn next(&self, at: Node, to: u32, hash: u32) -> u32 {
        match &self.topology {
            Topology::FatTree(tree) => tree.next(&self.begins, at, to, hash),
            Topology::One(one) => match at {
                Node::Host(host) => host,
                Node::Edge(side) if side == to / one.each => 2 * one.each + to,
                Node::Edge(side) | Node::Middle(side) | Node::Core(side) => 4 * one.each + side,
            },
        }
    }

    /// Where the link behind `port` ends.
    #[inline]
    pub fn end(&self, port: u32) -> Node {
        self.ends[port as usize]
    }

    /// The links that results tell apart.
    pub fn layers(&self) -> Vec<Layer> {
        let layer = |name, ports| Layer { name, ports };
        match &self.topology {
            Topology::One(one) => vec![layer("the link", 4 * one.each..4 * one.each + 1)],
            Topology::FatTree(_) => {
                let b = &self.begins;
                let names = [
                    "edge to host",
                    "edge to middle",
                    "middle to edge",
                    "middle to core",
                    "core to middle",
                ];
                names.into_iter().zip(1..).map(|(name, n)| layer(name, b[n]..b[n + 1])).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { rate: 1, delay: 0, mark: 0, room: 0 };

    fn path(map: &Map, from: u32, to: u32, hash: u32) -> Vec<Node> {
        let mut path = vec![Node::Host(from)];
        while path.last() != Some(&Node::Host(to)) {
            assert!(path.len() < 8, "{path:?}");
            path.push(map.end(map.next(*path.last().expect("not empty"), to, hash)));
        }
        path
    }

    fn tree() -> FatTree {
        FatTree {
            pods: 3,
            edges: 4,
            middles: 2,
            cores: 2,
            hosts: 5,
            host: LINK,
            edge: LINK,
            core: LINK,
        }
    }

    #[test]
    fn every_host_reaches_every_other_by_every_way_and_the_shortest() {
        let tree = tree();
        let map = Map::new(Topology::FatTree(tree.clone()));
        for from in 0..map.hosts() {
            for to in (0..map.hosts()).filter(|&to| to != from) {
                let (edge, pod) = (|host| host / tree.hosts, |host| host / tree.hosts / tree.edges);
                let want = match () {
                    () if edge(from) == edge(to) => 3,
                    () if pod(from) == pod(to) => 5,
                    () => 7,
                };
                for hash in [0, 1, 1 << 16, 1 << 16 | 1] {
                    assert_eq!(path(&map, from, to, hash).len(), want);
                }
            }
        }
    }

    #[test]
    fn ways_differ_by_their_hash_and_every_link_between_switches_is_on_one() {
        let map = Map::new(Topology::FatTree(tree()));
        let mut used = std::collections::HashSet::new();
        for from in 0..map.hosts() {
            for to in (0..map.hosts()).filter(|&to| to != from) {
                for hash in [0, 1, 1 << 16, 1 << 16 | 1] {
                    let mut at = Node::Host(from);
                    while at != Node::Host(to) {
                        let port = map.next(at, to, hash);
                        used.insert(port);
                        at = map.end(port);
                    }
                }
            }
        }
        assert_eq!(used.len(), map.links().len());
    }

    #[test]
    fn one_link_is_on_the_way_of_all_from_the_left() {
        let map = Map::new(Topology::One(One { each: 3, host: LINK, middle: LINK }));
        let port = map.layers()[0].ports.start;
        for to in 3..6 {
            assert_eq!(path(&map, 1, to, 0).len(), 4);
            assert_eq!(map.next(Node::Edge(0), to, 0), port);
        }
        assert_eq!(
            path(&map, 4, 2, 0),
            [Node::Host(4), Node::Edge(1), Node::Edge(0), Node::Host(2)]
        );
        assert_eq!(path(&map, 0, 1, 0), [Node::Host(0), Node::Edge(0), Node::Host(1)]);
    }
}
