//! Whose the listener is that a connection to an address of this host finds, as Linux says (sock_diag(7)): one question, answered at once. What all of them are
//! would be asked by [`crate::listeners`].

use crate::listeners::Listens;
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Of linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h.
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`, and of `struct inet_diag_msg` what is known of it everywhere.
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// The attribute that has a listener's keys, `INET_DIAG_MD5SIG`: it is told to who has CAP_NET_ADMIN, and asks for more than the least (`INET_DIAG_INFO`). (Of TCP-AO's
/// keys Linux tells nothing.)
const KEYS: u16 = 18;
const INFO: u8 = 1 << (2 - 1);
/// `TCP_LISTEN` of include/net/tcp_states.h.
const LISTEN: u8 = 10;
/// The loopback device's number, in each namespace: stand-ins come by it.
const LOOPBACK: u32 = 1;

/// A socket that asks.
#[derive(Debug)]
pub struct Whose(Mutex<OwnedFd>);

impl Whose {
    /// In this network namespace.
    ///
    /// # Errors
    /// A kernel without it; no descriptor is left.
    pub fn open() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            flags,
            Some(SOCK_DIAG),
        )?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(Mutex::new(socket)))
    }

    /// The listener that is found at this address.
    ///
    /// # Errors
    /// ENOENT: there is none, or the kernel cannot tell.
    pub fn ask(&self, at: SocketAddrV4) -> Result<Listens, Errno> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::net::sendto(
            &*socket,
            &request(at),
            SendFlags::DONTWAIT,
            &SocketAddrNetlink::new(0, 0),
        )?;
        // (The kernel has answered when that returns.)
        let mut answer = [0; 4096];
        let (length, _) = rustix::net::recv(&*socket, &mut answer, RecvFlags::DONTWAIT)?;
        read(&answer[..length])
    }
}

fn request(at: SocketAddrV4) -> [u8; HEADER + REQUEST] {
    let mut request = [0; HEADER + REQUEST];
    let mut put = |at: usize, bytes: &[u8]| request[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &((HEADER + REQUEST) as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(HEADER, &[libc::AF_INET as u8, libc::IPPROTO_TCP as u8, INFO]);
    put(HEADER + 4, &(1u32 << LISTEN).to_ne_bytes());
    // `struct inet_diag_sockid`: both ports, both addresses, the device, any cookie.
    put(HEADER + 8, &at.port().to_be_bytes());
    put(HEADER + 12, &at.ip().octets());
    put(HEADER + 44, &LOOPBACK.to_ne_bytes());
    put(HEADER + 48, &[0xff; 8]);
    request
}

fn read(answer: &[u8]) -> Result<Listens, Errno> {
    let word = |at: usize| {
        let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or(Errno::BADMSG)
    };
    let kind = word(4)? as u16;
    if kind != SOCK_DIAG_BY_FAMILY {
        // (An error's number stands first in its message.)
        return Err(Errno::from_raw_os_error(word(HEADER)?.cast_signed().wrapping_neg()));
    }
    let message = answer.get(HEADER..HEADER + MESSAGE).ok_or(Errno::BADMSG)?;
    if message[1] != LISTEN {
        return Err(Errno::NOENT);
    }
    // (Of one for both families the last word is IPv4's.)
    let ip = if i32::from(message[0]) == libc::AF_INET { 8..12 } else { 20..24 };
    let ip = <[u8; 4]>::try_from(&message[ip]).map_or(Ipv4Addr::UNSPECIFIED, Ipv4Addr::from);
    let port = u16::from_be_bytes([message[4], message[5]]);
    Ok(Listens {
        at: SocketAddrV4::new(ip, port),
        user: word(HEADER + 64)?,
        inode: word(HEADER + 68)?.into(),
        signs: has_attribute(&answer[HEADER + MESSAGE..], KEYS),
    })
}

/// Each has its length with its head, and its kind, and is filled up to a multiple of four.
fn has_attribute(mut attributes: &[u8], wanted: u16) -> bool {
    while let [l0, l1, k0, k1, ..] = *attributes {
        if u16::from_ne_bytes([k0, k1]) == wanted {
            return true;
        }
        let length = usize::from(u16::from_ne_bytes([l0, l1])).max(4).next_multiple_of(4);
        attributes = attributes.get(length..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::of_this_host;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use uncopy_tests::verdict::leave_out;

    #[test]
    fn a_listener_is_found_with_its_user_and_its_inode_where_one_connects() {
        let whose = Whose::open().unwrap();
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(socket) = TcpListener::bind(listen) else { continue };
            let port = socket.local_addr().unwrap().port();
            let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            // (It is the listener that is meant, not a connection.)
            let _connected = TcpStream::connect(SocketAddr::V4(at)).unwrap();
            let found = whose.ask(at).unwrap();
            assert_eq!(found.user, rustix::process::geteuid().as_raw());
            assert!(of_this_host().unwrap().contains(&found), "{listen}: {found:?}");
            drop(socket);
            assert_eq!(whose.ask(at), Err(Errno::NOENT));
        }
    }

    #[test]
    fn a_listener_with_a_key_is_known_to_sign() {
        let whose = Whose::open().unwrap();
        let socket = TcpListener::bind("0.0.0.0:0").unwrap();
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port());
        assert!(!whose.ask(at).unwrap().signs);
        // `struct tcp_md5sig`: the peer's address, the key's length behind it, the key.
        let mut key = [0; 216];
        key[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        key[4..8].copy_from_slice(&[10, 0, 0, 1]);
        (key[130], key[136]) = (1, b'k');
        if crate::options::set_bytes(&socket, libc::SOL_TCP, libc::TCP_MD5SIG, &key).is_err()
            || !rustix::process::geteuid().is_root()
        {
            return leave_out("a kernel that signs tells root alone of keys");
        }
        for ip in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            assert!(whose.ask(SocketAddrV4::new(ip, at.port())).unwrap().signs);
        }
    }
}
