//! Sockets that connect to other hosts. A service that has a wire is asked before, and makes the
//! socket so that its segments come to it; then Linux connects it, and says what became of that.

use crate::context::{ClientLookup, Context};
use rustix::io::Errno;
use rustix::net::sockopt::socket_cookie;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;

/// The carrier of a connection to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The service: the socket is to connect now.
    Service,
    /// Linux: this connection.
    Linux,
    /// Linux: there is no service with a wire now. It need not be asked for a while.
    Nobody,
}

impl Context {
    /// Asks for a socket that is about to connect to another host. No service is started for it.
    pub fn connects(&self, socket: BorrowedFd, to: SocketAddrV4) -> Carrier {
        let ClientLookup::Here(client) = self.client_of(None) else { return Carrier::Nobody };
        if !client.carries() {
            if client.is_over() {
                self.lost(&client);
            }
            return Carrier::Nobody;
        }
        match client.connects(socket, to) {
            Ok(true) => Carrier::Service,
            Err(error) if self.has_lost(&client, error) => Carrier::Nobody,
            // It is stopped, or behind: the next connection does not wait for it again.
            Err(Errno::TIMEDOUT | Errno::AGAIN) => Carrier::Nobody,
            _ => Carrier::Linux,
        }
    }

    /// Such a socket was not connected, or is about to be closed, or dissolved: the service is told
    /// where it is not connected yet.
    pub fn closes(&self, socket: BorrowedFd) {
        if uncopy_tcp_service::ends::name(socket).is_err()
            && let Some(client) = self.known_client()
            && client.carries()
            && let Ok(cookie) = socket_cookie(socket)
        {
            // (A service that it does not reach finds out when the peer answers.)
            let _ = client.closes(cookie);
        }
    }
}
