//! The owner of the listener that a connection to an address of this host finds, as Linux says
//! (sock_diag(7)): one question, answered at once. [`crate::listeners`] asks for all listeners.

use crate::listeners::Listens;
use rustix::io::Errno;
use std::net::SocketAddrV4;
use uncopy_tcp_service::diag::Diag;

/// The attribute that has a listener's keys, `INET_DIAG_MD5SIG`: it is told to who has
/// CAP_NET_ADMIN, and asks for more than the least (`INET_DIAG_INFO`). (Of TCP-AO's keys Linux
/// tells nothing.)
const KEYS: u16 = 18;
const INFO: u8 = 1 << (2 - 1);

/// The socket for these questions.
#[derive(Debug)]
pub struct OwnerLookup(Diag);

impl OwnerLookup {
    /// Opens it in this network namespace.
    ///
    /// # Errors
    /// A kernel without it; no descriptor is left.
    pub fn open() -> Result<Self, Errno> {
        Diag::open().map(Self)
    }

    /// The listener that is found at this address, where stand-ins connect.
    ///
    /// # Errors
    /// ENOENT: there is none, or the kernel cannot tell.
    pub fn ask(&self, at: SocketAddrV4) -> Result<Listens, Errno> {
        let found = self.0.listener(at, INFO)?;
        let (user, inode) = (found.user(), found.inode().into());
        Ok(Listens { at: found.at(), user, inode, signs: found.attribute(KEYS).is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners::of_this_host;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use uncopy_tests::verdict::leave_out;

    #[test]
    fn a_listener_is_found_with_its_user_and_its_inode_where_one_connects() {
        let lookup = OwnerLookup::open().unwrap();
        for listen in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(socket) = TcpListener::bind(listen) else { continue };
            let port = socket.local_addr().unwrap().port();
            let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            // (It is the listener that is meant, not a connection.)
            let _connected = TcpStream::connect(SocketAddr::V4(at)).unwrap();
            let found = lookup.ask(at).unwrap();
            assert_eq!(found.user, rustix::process::geteuid().as_raw());
            assert!(of_this_host().unwrap().contains(&found), "{listen}: {found:?}");
            drop(socket);
            assert_eq!(lookup.ask(at), Err(Errno::NOENT));
        }
    }

    #[test]
    fn a_listener_with_a_key_is_known_to_sign() {
        let lookup = OwnerLookup::open().unwrap();
        let socket = TcpListener::bind("0.0.0.0:0").unwrap();
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port());
        assert!(!lookup.ask(at).unwrap().signs);
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
            assert!(lookup.ask(SocketAddrV4::new(ip, at.port())).unwrap().signs);
        }
    }
}
