//! Ends of connections, by name; and what a socket says of itself to who has a descriptor of it.
//!
//! unsafe: `getsockopt` for an option that rustix does not know.

use crate::stay_reason::StayReason;
use rustix::net::{AddressFamily, SocketType, getpeername, getsockname, ipproto, sockopt};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};

/// One end of a connection within a network namespace, as the kernel names it. IPv4 stands as the
/// IPv6 address that stands for it, so that the ends of a listener for both meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndName {
    local: (u128, u16),
    peer: (u128, u16),
}

impl EndName {
    /// The name of its other end.
    pub fn other(self) -> Self {
        Self { local: self.peer, peer: self.local }
    }

    /// Address and port of this end, and of the other.
    pub fn addresses(self) -> [SocketAddr; 2] {
        [self.local, self.peer]
            .map(|(address, port)| SocketAddr::new(IpAddr::V6(address.into()).to_canonical(), port))
    }

    /// The words of it in messages.
    pub(crate) fn words(self) -> ([u64; 4], u32) {
        let [[a, b], [c, d]] =
            [self.local, self.peer].map(|(address, _)| [(address >> 64) as u64, address as u64]);
        ([a, b, c, d], u32::from(self.local.1) << 16 | u32::from(self.peer.1))
    }

    /// The name that such words say.
    pub(crate) fn of_words([a, b, c, d]: [u64; 4], ports: u32) -> Self {
        let address = |high, low| u128::from(high) << 64 | u128::from(low);
        let (local, peer) = ((ports >> 16) as u16, ports as u16);
        Self { local: (address(a, b), local), peer: (address(c, d), peer) }
    }

    /// Both ends are on this host, as far as addresses tell: no question to the service otherwise.
    pub fn is_local(self) -> bool {
        let address = self.peer.0;
        let loopback = address == 1 || address >> 24 == 0x00FF_FF7F;
        loopback || address == self.local.0
    }
}

fn plain(address: SocketAddr) -> (u128, u16) {
    let bits = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    (bits, address.port())
}

/// A socket's option, as the kernel writes it. `None`: it has none such.
fn option<const BYTES: usize>(socket: impl AsFd, name: libc::c_int) -> Option<[u8; BYTES]> {
    let (mut value, mut length) = ([0; BYTES], BYTES as libc::socklen_t);
    // SAFETY: writes at most `length` bytes to `value`.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (failed == 0).then_some(value)
}

/// Which network namespace it is of, as Linux numbers them.
pub fn network_namespace(socket: impl AsFd) -> Option<u64> {
    /// linux/asm-generic/socket.h, since Linux 5.14.
    const SO_NETNS_COOKIE: i32 = 71;
    option(socket, SO_NETNS_COOKIE).map(u64::from_ne_bytes)
}

/// The holder of the other end of a UNIX socket: process, user. The process is 0 where it is of a
/// PID namespace that is not seen from here (rustix has no such number).
pub fn peer(socket: impl AsFd) -> Option<(u32, u32)> {
    // `struct ucred`: process, user, group.
    let [p0, p1, p2, p3, u0, u1, u2, u3, ..]: [u8; 12] = option(socket, libc::SO_PEERCRED)?;
    Some((u32::from_ne_bytes([p0, p1, p2, p3]), u32::from_ne_bytes([u0, u1, u2, u3])))
}

/// It is one end of a pair of sockets that this user has made, or is connected to one of its
/// programs. Words that the service says by one of another user's would be believed to be root's.
pub fn is_of_user(socket: impl AsFd, uid: u32) -> bool {
    let socket = socket.as_fd();
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && peer(socket).is_some_and(|(_, user)| user == uid)
}

/// The mark of sockets that stand in for connections of the service's to other hosts: the service's
/// own, and those that programs accept from it. Linux gives an accepted socket its peer's mark
/// (`net.ipv4.tcp_fwmark_accept`), and lets nobody set one without CAP_NET_ADMIN or CAP_NET_RAW.
pub const STAND_IN: u32 = 0x7563_7079;

/// It is the end of a connection that stands in for one to another host: its peer is the service.
pub fn is_stand_in(socket: impl AsFd) -> bool {
    option(socket, libc::SO_MARK).map(u32::from_ne_bytes) == Some(STAND_IN)
}

/// It is bound to a device. (Or that cannot be told.)
fn is_bound_to_device(socket: impl AsFd) -> bool {
    let (mut name, mut length) = ([0u8; libc::IFNAMSIZ], libc::IFNAMSIZ as libc::socklen_t);
    // SAFETY: writes at most `length` bytes to `name`.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    failed != 0 || length != 0
}

/// A filter says which segments it gets (SO_ATTACH_FILTER, SO_ATTACH_BPF), its own or its
/// listener's: rings have none. (Or that cannot be told.)
pub fn has_filter(socket: impl AsFd) -> bool {
    let mut length: libc::socklen_t = 0;
    // SAFETY: no byte is asked for: Linux says how long the filter is, and EACCES where it has no
    // such form.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_GET_FILTER,
            std::ptr::null_mut(),
            &raw mut length,
        )
    };
    failed != 0 || length != 0
}

/// Where a registered socket listens for other hosts by IPv4, such that the service may take
/// connections for it. Not by one device alone: the service would come by another one; and not with
/// a filter, which sees the segments of the wire.
pub fn listens(socket: impl AsFd) -> Option<SocketAddrV4> {
    let socket = socket.as_fd();
    listens_at(socket).filter(|_| !is_bound_to_device(socket) && !has_filter(socket))
}

/// Where it listens for other hosts by IPv4. Not at loopback addresses: nobody else reaches those.
pub fn listens_at(socket: impl AsFd) -> Option<SocketAddrV4> {
    let socket = socket.as_fd();
    if sockopt::socket_protocol(socket).ok()? != Some(ipproto::TCP)
        || !sockopt::socket_acceptconn(socket).ok()?
    {
        return None;
    }
    let address = match SocketAddr::try_from(getsockname(socket).ok()?).ok()? {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(address) => {
            let both = address.ip().is_unspecified() && !sockopt::ipv6_v6only(socket).ok()?;
            let ip = if both { Ipv4Addr::UNSPECIFIED } else { address.ip().to_ipv4_mapped()? };
            SocketAddrV4::new(ip, address.port())
        }
    };
    (!address.ip().is_loopback()).then_some(address)
}

/// It is connected.
pub fn is_connected(socket: impl AsFd) -> bool {
    getpeername(socket).is_ok()
}

/// Which end of which connection this is.
pub fn name(socket: impl AsFd) -> Result<EndName, StayReason> {
    let named = || {
        let socket = socket.as_fd();
        if sockopt::socket_type(socket).ok()? != SocketType::STREAM
            || sockopt::socket_protocol(socket).ok()? != Some(ipproto::TCP)
        {
            return None;
        }
        let local = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
        let peer = SocketAddr::try_from(getpeername(socket).ok()??).ok()?;
        Some(EndName { local: plain(local), peer: plain(peer) })
    };
    named().ok_or(StayReason::NotConnected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_two_ends_name_each_other_also_across_families() {
        for (listen, connect) in
            [("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]"), ("[::]", "127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(format!("{listen}:0")) else { continue };
            let port = listener.local_addr().unwrap().port();
            let a = TcpStream::connect(format!("{connect}:{port}")).unwrap();
            let (b, _) = listener.accept().unwrap();
            assert_eq!(name(&a).unwrap().other(), name(&b).unwrap());
            let (addresses, ports) = name(&a).unwrap().words();
            assert_eq!(EndName::of_words(addresses, ports), name(&a).unwrap());
            assert!(name(&a).unwrap().is_local());
            assert_eq!(name(&listener), Err(StayReason::NotConnected));
        }
    }

    #[test]
    fn a_listener_says_where_other_hosts_reach_it_by_ipv4() {
        let at =
            |address: &str| TcpListener::bind(address).map(|socket| (listens(&socket), socket));
        let (any, socket) = at("0.0.0.0:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(any, Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)));
        assert!(!is_stand_in(&socket));
        assert_eq!(at("127.0.0.1:0").unwrap().0, None);
        if let Ok((both, socket)) = at("[::]:0") {
            let port = socket.local_addr().unwrap().port();
            assert_eq!(both, Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)));
        }
        let connected = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(listens(&connected), None);
    }

    #[test]
    fn a_filter_is_seen_where_it_was_attached_and_where_it_was_inherited() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!has_filter(&listener) && listens(&listener).is_some());
        // Lets all through.
        let mut all = libc::sock_filter { code: 6, jt: 0, jf: 0, k: u32::MAX };
        let filter = libc::sock_fprog { len: 1, filter: &raw mut all };
        // SAFETY: reads both, which live here.
        let failed = unsafe {
            libc::setsockopt(
                listener.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of_val(&filter) as libc::socklen_t,
            )
        };
        assert_eq!(failed, 0);
        let connected = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!([has_filter(&listener), has_filter(&accepted)], [true; 2]);
        assert!(!has_filter(&connected));
        // It listens, but nobody may take connections for it.
        let at = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        assert_eq!((listens_at(&listener), listens(&listener)), (Some(at), None));
    }

    #[test]
    fn a_listener_of_one_device_is_not_reached_by_another() {
        let socket = TcpListener::bind("0.0.0.0:0").unwrap();
        assert!(listens(&socket).is_some());
        let name = c"lo".to_bytes_with_nul();
        // SAFETY: reads the name.
        let failed = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name.as_ptr().cast(),
                name.len() as libc::socklen_t,
            )
        };
        assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(listens(&socket), None);
    }

    #[test]
    fn a_file_that_is_no_tcp_socket_proves_nothing() {
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(name(&unix), Err(StayReason::NotConnected));
        assert_eq!(name(std::fs::File::open("/dev/null").unwrap()), Err(StayReason::NotConnected));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect("127.0.0.1:9").unwrap();
        assert_eq!(name(&udp), Err(StayReason::NotConnected));
    }
}
