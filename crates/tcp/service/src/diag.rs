//! Answers of Linux about this network namespace's TCP sockets (sock_diag(7)): one question by
//! addresses, answered at once, for which no socket has to be here.

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h.
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Of `struct inet_diag_msg`: what is known of it everywhere.
const MESSAGE: usize = 72;
/// Attributes' kinds; those that are to come are bits, counted from 1.
const INET_DIAG_CONG: u16 = 4;
/// To be asked for: [`DiagSocket::congestion`].
pub const CONGESTION: u8 = 1 << (INET_DIAG_CONG - 1);
/// `TCP_LISTEN` of include/net/tcp_states.h.
const LISTEN: u8 = 10;
/// The loopback device's number, in each namespace.
const LOOPBACK: u32 = 1;

/// A socket that asks.
#[derive(Debug)]
pub struct Diag(Mutex<OwnedFd>);

/// A socket, as Linux has it: `struct inet_diag_msg`, whole, and attributes.
#[derive(Debug)]
pub struct DiagSocket(Vec<u8>);

impl Diag {
    /// Opens it in this network namespace.
    ///
    /// # Errors
    /// A kernel that does not tell of TCP's sockets; no descriptor is left.
    pub fn open() -> Result<Self, Errno> {
        let diag = Self::begin()?;
        // (It would say of each socket that there is none. Where there is no loopback device, there
        // is nothing to ask.)
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { return Ok(diag) };
        let Ok(SocketAddr::V4(at)) = listener.local_addr() else { return Ok(diag) };
        match diag.listener(at, 0) {
            Err(Errno::NOENT) => Err(Errno::OPNOTSUPP),
            found => found.map(|_| diag),
        }
    }

    /// As [`open`](Self::open), for callers that take a kernel that cannot tell for one that knows
    /// no such socket.
    ///
    /// # Errors
    /// The errors are those above.
    pub fn begin() -> Result<Self, Errno> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(SOCK_DIAG),
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(Mutex::new(socket)))
    }

    /// Its descriptor, to be closed.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of a connection that has this address, its peer's behind it.
    ///
    /// # Errors
    /// ENOENT: there is none, or the kernel cannot tell.
    pub fn end(&self, addresses: [SocketAddr; 2]) -> Result<DiagSocket, Errno> {
        let found = self.ask(addresses, 0)?;
        // (Where there is no such connection, a listener at the address is found.)
        let is_it = found.0[1] != LISTEN && found.ports() == addresses.map(|at| at.port());
        if is_it { Ok(found) } else { Err(Errno::NOENT) }
    }

    /// The listener that a connection from this host to this address finds: of IPv4, or of both.
    /// It is told with these attributes.
    ///
    /// # Errors
    /// The errors are those above.
    pub fn listener(&self, at: SocketAddrV4, attributes: u8) -> Result<DiagSocket, Errno> {
        let nobody = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let found = self.ask([at, nobody].map(Into::into), attributes)?;
        if found.0[1] == LISTEN { Ok(found) } else { Err(Errno::NOENT) }
    }

    fn ask(&self, of: [SocketAddr; 2], attributes: u8) -> Result<DiagSocket, Errno> {
        let request = request(of, attributes)?;
        let (kernel, mut answer) = (SocketAddrNetlink::new(0, 0), [0; 4096]);
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::net::sendto(&*socket, &request, SendFlags::DONTWAIT, &kernel)?;
        // (The kernel has answered when that returns.)
        let (length, _) = rustix::net::recv(&*socket, &mut answer, RecvFlags::DONTWAIT)?;
        drop(socket);
        DiagSocket::read(&answer[..length])
    }
}

impl DiagSocket {
    fn read(answer: &[u8]) -> Result<Self, Errno> {
        let (header, rest) = answer.split_at_checked(HEADER).ok_or(Errno::BADMSG)?;
        let number = |of: &[u8]| of.first_chunk().copied().map(i32::from_ne_bytes);
        if header[4..6] != SOCK_DIAG_BY_FAMILY.to_ne_bytes() {
            // (An error's number stands first in its message.)
            let error = number(rest).ok_or(Errno::BADMSG)?;
            return Err(Errno::from_raw_os_error(error.wrapping_neg()));
        }
        if rest.len() < MESSAGE { Err(Errno::BADMSG) } else { Ok(Self(rest.to_vec())) }
    }

    fn word(&self, at: usize) -> [u8; 4] {
        self.0[at..at + 4].try_into().unwrap_or_default()
    }

    /// The program's socket; 0: no program has one any more.
    pub fn inode(&self) -> u32 {
        u32::from_ne_bytes(self.word(68))
    }

    /// Its port, and its peer's.
    fn ports(&self) -> [u16; 2] {
        [4, 6].map(|at| u16::from_be_bytes([self.0[at], self.0[at + 1]]))
    }

    /// The user of that socket.
    pub fn user(&self) -> u32 {
        u32::from_ne_bytes(self.word(64))
    }

    /// Its address, of IPv4.
    pub fn at(&self) -> SocketAddrV4 {
        // (Of one for both families the last word is IPv4's.)
        let ip = self.word(if i32::from(self.0[0]) == libc::AF_INET { 8 } else { 20 });
        SocketAddrV4::new(ip.into(), u16::from_be_bytes([self.0[4], self.0[5]]))
    }

    /// An attribute of this kind. Each has its length with its head, and its kind, and is filled up
    /// to a multiple of four.
    pub fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        let mut attributes = &self.0[MESSAGE..];
        while let [l0, l1, k0, k1, ..] = *attributes {
            let length = usize::from(u16::from_ne_bytes([l0, l1])).max(4);
            if u16::from_ne_bytes([k0, k1]) == wanted {
                return attributes.get(4..length);
            }
            attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        None
    }

    /// How its connections slow down, if [that](CONGESTION) was asked for.
    pub fn congestion(&self) -> Option<&[u8]> {
        self.attribute(INET_DIAG_CONG)?.split(|byte| *byte == 0).next()
    }
}

fn request(of: [SocketAddr; 2], attributes: u8) -> Result<[u8; HEADER + REQUEST], Errno> {
    let mut request = [0; HEADER + REQUEST];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    // (A connection of IPv4 is found as one, whatever its sockets are.)
    let family = match of.map(|address| address.ip().to_canonical()) {
        [IpAddr::V4(local), IpAddr::V4(peer)] => {
            put(HEADER + 12, &local.octets());
            put(HEADER + 28, &peer.octets());
            libc::AF_INET
        }
        [IpAddr::V6(local), IpAddr::V6(peer)] => {
            put(HEADER + 12, &local.octets());
            put(HEADER + 28, &peer.octets());
            libc::AF_INET6
        }
        _ => return Err(Errno::NOENT),
    };
    put(0, &((HEADER + REQUEST) as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(HEADER, &[family as u8, libc::IPPROTO_TCP as u8, attributes]);
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    // `struct inet_diag_sockid`: both ports, both addresses (above), the device, any cookie.
    put(HEADER + 8, &of[0].port().to_be_bytes());
    put(HEADER + 10, &of[1].port().to_be_bytes());
    put(HEADER + 44, &LOOPBACK.to_ne_bytes());
    put(HEADER + 48, &[0xff; 8]);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;
    use std::net::TcpStream;

    fn ends(listen: &str, connect: &str) -> Option<[TcpStream; 2]> {
        let listener = TcpListener::bind(format!("{listen}:0")).ok()?;
        let port = listener.local_addr().unwrap().port();
        let a = TcpStream::connect(format!("{connect}:{port}")).unwrap();
        Some([listener.accept().unwrap().0, a])
    }

    fn addresses(of: &TcpStream) -> [SocketAddr; 2] {
        [of.local_addr().unwrap(), of.peer_addr().unwrap()]
    }

    #[test]
    fn each_end_is_found_with_its_inode_until_it_is_closed() {
        let diag = Diag::open().unwrap();
        for (listen, connect) in
            [("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]"), ("[::]", "127.0.0.1")]
        {
            let Some(both) = ends(listen, connect) else { continue };
            for end in &both {
                let (stat, found) = (rustix::fs::fstat(end).unwrap(), diag.end(addresses(end)));
                let found = found.map(|found| (found.inode().into(), found.user()));
                assert_eq!(found, Ok((stat.st_ino, stat.st_uid)), "{listen}");
            }
            let [_, a] = both;
            let gone = addresses(&a);
            sockopt::set_socket_linger(&a, Some(std::time::Duration::ZERO)).unwrap();
            drop(a);
            assert_eq!(diag.end(gone).unwrap_err(), Errno::NOENT);
            let mixed = [gone[1], "[::1]:1".parse().unwrap()];
            assert_eq!(diag.end(mixed).unwrap_err(), Errno::NOENT);
        }
    }

    #[test]
    fn a_listener_is_found_with_how_it_slows_down_and_one_of_ipv6_alone_is_not() {
        let diag = Diag::open().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(at) = socket.local_addr().unwrap() else { panic!() };
        let found = diag.listener(at, CONGESTION).unwrap();
        assert_eq!(u64::from(found.inode()), rustix::fs::fstat(&socket).unwrap().st_ino);
        let congestion = sockopt::tcp_congestion(&socket).unwrap();
        assert_eq!((found.at(), found.congestion()), (at, Some(congestion.as_bytes())));
        let Ok(six) = TcpListener::bind("[::1]:0") else { return };
        let port = six.local_addr().unwrap().port();
        let found = diag.listener(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), 0);
        assert_eq!(found.unwrap_err(), Errno::NOENT);
    }
}
