//! Where the segments of programs go that connect: by a device of ours, because their sockets have
//! a mark. So their SYNs are seen here, and by nobody else; what a program is to hear is put onto
//! the loopback device as if its peer had sent it. When this process dies, so does the device, and
//! Linux sends what is still to be sent.

use crate::options::{number, set};
use crate::packets;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use uncopy_tcp_routes::detour;
use uncopy_tcp_service::ends::STAND_IN;
use uncopy_tcp_wire::tun::Tun;

/// Tables of routes, one for each device over which a service serves; behind [`STAND_IN`].
const TABLES: u32 = 0x7564_0000;
/// Marks: of each service another one, so that a socket of one that has died is not another's.
const MARKS: u32 = 0x6300_0000;

/// See the module.
#[derive(Debug)]
pub struct Detour {
    tun: Tun,
    raw: OwnedFd,
    mark: u32,
    source: Ipv4Addr,
}

impl Detour {
    /// For connections by this device, whose sockets get `source` as their address where they have
    /// none.
    ///
    /// # Errors
    /// No `/dev/net/tun`; no right (CAP_NET_ADMIN, CAP_NET_RAW).
    pub fn open(device: u32, source: Ipv4Addr) -> io::Result<Self> {
        let tun = Tun::open("uncopy%d")?;
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let protocol = rustix::net::RawProtocol::new(libc::IPPROTO_RAW as u32);
        let protocol = protocol.map(rustix::net::Protocol::from_raw);
        let raw = rustix::net::socket_with(AddressFamily::INET, kind, flags, protocol)?;
        set(&raw, libc::SOL_SOCKET, libc::SO_MARK, STAND_IN.cast_signed())?;
        let its_number = rustix::net::netdevice::name_to_index(&raw, tun.name())?;
        // (IPv6 has nothing to say there.)
        let six = format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", tun.name());
        let _ = std::fs::write(six, "1");
        let mark = MARKS | fastrand::u32(..1 << 24);
        detour::open(mark, TABLES + device, its_number, source)?;
        Ok(Self { tun, raw, mark, source })
    }

    /// The address for sockets that have none.
    pub fn source(&self) -> Ipv4Addr {
        self.source
    }

    /// A socket of this network namespace.
    pub fn own(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }

    /// Readable when a program has sent something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }

    /// The next packet's length; none: there is none.
    ///
    /// # Errors
    /// The device is gone.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        self.tun.read(packet)
    }

    /// Segments of this socket come here from now on.
    ///
    /// # Errors
    /// No right.
    pub fn take(&self, socket: impl AsFd) -> Result<(), Errno> {
        set(socket, libc::SOL_SOCKET, libc::SO_MARK, self.mark.cast_signed())
    }

    /// Whether segments of this socket come here.
    pub fn is_taken(&self, socket: impl AsFd) -> bool {
        number(socket, libc::SOL_SOCKET, libc::SO_MARK) == Ok(self.mark.cast_signed())
    }

    /// Segments of this socket are Linux's again.
    pub fn leave(&self, socket: impl AsFd) {
        let socket = socket.as_fd();
        if self.is_taken(socket) {
            let _ = set(socket, libc::SOL_SOCKET, libc::SO_MARK, 0);
        }
    }

    /// Segments of this socket stay on this host from now on: its peer is a stand-in.
    ///
    /// # Errors
    /// No right.
    pub fn keep(socket: impl AsFd) -> Result<(), Errno> {
        set(socket, libc::SOL_SOCKET, libc::SO_MARK, STAND_IN.cast_signed())
    }

    /// A packet goes to where it is for, on this host: a stand-in.
    pub fn pass_on(&self, packet: &[u8], to: Ipv4Addr) {
        let to = SocketAddrV4::new(to, 0);
        // (A lost one is sent again.)
        let _ = rustix::net::sendto(&self.raw, packet, SendFlags::DONTWAIT, &to);
    }

    /// Tells a socket that has sent a SYN of this number that nobody listens there.
    pub fn refuse(&self, peer: SocketAddrV4, local: SocketAddrV4, number: u32) {
        self.pass_on(&packets::refusal(peer, local, number), *local.ip());
    }
}
