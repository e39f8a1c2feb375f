//! Which arriving segments are the service's, said to the kernel: it owns flows, not addresses, and
//! Linux keeps all others.
//!
//! The kernel is asked before any of its own work (XDP), or before it looks for who a segment is
//! for (tcx). An entry made here holds from the next frame on; all of them end with the [`Steer`],
//! also when the service is killed, and what still arrives for its flows is then answered by Linux:
//! with a reset.
//!
//! Not steered, so never a flow of the service's: IPv6, VLANs, fragments.

pub use crate::bpf::Attach;
use crate::bpf::{self, Kind, Map, Purpose};
use crate::program::{FLOW_KEY, Goal, LISTENER_KEY, Maps, onward, program};
use crate::xsk::Xsk;
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Queues of a device, at most.
const QUEUES: u32 = 256;

/// A flow, as its own host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SteeredFlow {
    /// This host's end.
    pub local: SocketAddrV4,
    /// The other end.
    pub remote: SocketAddrV4,
}

/// See the module.
#[derive(Debug)]
pub struct Steer {
    flows: Map,
    listeners: Map,
    /// The sockets of an XDP program.
    sockets: Option<Map>,
    cookies: Map,
    program: OwnedFd,
    attached: Vec<OwnedFd>,
}

impl Steer {
    /// Loads the XDP program, with room for `flows` flows and `listeners` listeners. It is attached
    /// nowhere yet.
    ///
    /// # Errors
    /// No right: CAP_BPF and CAP_NET_ADMIN are needed.
    pub fn load(flows: u32, listeners: u32) -> io::Result<Self> {
        let sockets = Map::make(Kind::XskMap, size_of::<u32>(), size_of::<u32>(), QUEUES)?;
        Self::load_for(Goal::Sockets(sockets.number()), Some(sockets), flows, listeners)
    }

    /// Loads the classifier ([`Attach::Ingress`]), with such room: what is the service's is sent by
    /// the device of index `to`.
    ///
    /// # Errors
    /// As of [`load`](Self::load).
    pub fn load_to_device(to: u32, flows: u32, listeners: u32) -> io::Result<Self> {
        Self::load_for(Goal::Device(to), None, flows, listeners)
    }

    fn load_for(goal: Goal, sockets: Option<Map>, flows: u32, listeners: u32) -> io::Result<Self> {
        let flows = Map::make(Kind::Hash, FLOW_KEY, size_of::<u32>(), flows)?;
        let listeners = Map::make(Kind::Hash, LISTENER_KEY, size_of::<u32>(), listeners)?;
        let cookies = Map::make(Kind::Array, size_of::<u32>(), size_of::<u32>(), 1)?;
        let maps = Maps {
            flows: flows.number(),
            listeners: listeners.number(),
            cookies: cookies.number(),
        };
        let purpose = if sockets.is_some() { Purpose::Xdp } else { Purpose::Classifier };
        let program = bpf::load("uncopy_steer", purpose, &program(&maps, goal))?;
        Ok(Self { flows, listeners, sockets, cookies, program, attached: Vec::new() })
    }

    /// Attaches the program to the device of this index.
    ///
    /// # Errors
    /// `EBUSY`: the device has an XDP program already. `EOPNOTSUPP`: its driver takes none
    /// ([`Attach::Generic`] works with any). `EINVAL`: the program is not made for this, or the
    /// kernel is older than [`Attach::Ingress`].
    pub fn attach(&mut self, device: u32, how: Attach) -> io::Result<()> {
        self.attached.push(bpf::attach(&self.program, device, how)?);
        Ok(())
    }

    /// All that arrives on the device `from` is sent by the device `to`, as long as this lives.
    ///
    /// # Errors
    /// As of [`load`](Self::load) and [`attach`](Self::attach).
    pub fn onward(&mut self, from: u32, to: u32) -> io::Result<()> {
        let program = bpf::load("uncopy_onward", Purpose::Classifier, &onward(to))?;
        self.attached.push(bpf::attach(&program, from, Attach::Ingress)?);
        Ok(())
    }

    /// Frames that arrive on queue `queue` of the device to which `socket` is bound go there.
    ///
    /// # Errors
    /// The kernel's; a queue of more than 256 is `E2BIG`; a classifier has no sockets (`EINVAL`).
    pub fn serve(&self, queue: u32, socket: &Xsk) -> io::Result<()> {
        let sockets = self.sockets.as_ref().ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        sockets.set(&queue.to_ne_bytes(), &socket.socket().as_raw_fd().to_ne_bytes())
    }

    /// From now on `flow` is the service's.
    ///
    /// # Errors
    /// There is no room for another (`E2BIG`).
    pub fn take(&self, flow: SteeredFlow) -> io::Result<()> {
        self.flows.set(&flow_key(flow), &[0; 4])
    }

    /// `flow` is Linux's again. Returns whether it was the service's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn leave(&self, flow: SteeredFlow) -> io::Result<bool> {
        self.flows.remove(&flow_key(flow))
    }

    /// Connections that are opened from outside to `address` (`0.0.0.0`: to any) are the service's.
    ///
    /// # Errors
    /// There is no room for another (`E2BIG`).
    pub fn listen(&self, address: SocketAddrV4) -> io::Result<()> {
        self.listeners.set(&listener_key(address), &[0; 4])
    }

    /// They are Linux's again. Returns whether they were the service's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop_listening(&self, address: SocketAddrV4) -> io::Result<bool> {
        self.listeners.remove(&listener_key(address))
    }

    /// Whether acknowledgements to who listens that belong to no flow, and to no connection of
    /// Linux', are the service's too: they may bring SYN cookies back. (At first they are not.)
    ///
    /// # Errors
    /// The kernel's.
    pub fn cookies(&self, are_out: bool) -> io::Result<()> {
        self.cookies.set(&[0; 4], &u32::from(are_out).to_ne_bytes())
    }
}

fn end(address: Ipv4Addr, port: u16) -> ([u8; 4], [u8; 2]) {
    (address.octets(), port.to_be_bytes())
}

fn flow_key(flow: SteeredFlow) -> [u8; FLOW_KEY] {
    let (remote, remote_port) = end(*flow.remote.ip(), flow.remote.port());
    let (local, local_port) = end(*flow.local.ip(), flow.local.port());
    let mut key = [0; FLOW_KEY];
    key[..4].copy_from_slice(&remote);
    key[4..8].copy_from_slice(&local);
    key[8..10].copy_from_slice(&remote_port);
    key[10..].copy_from_slice(&local_port);
    key
}

fn listener_key(address: SocketAddrV4) -> [u8; LISTENER_KEY] {
    let (address, port) = end(*address.ip(), address.port());
    let mut key = [0; LISTENER_KEY];
    key[..4].copy_from_slice(&address);
    key[4..6].copy_from_slice(&port);
    key
}
