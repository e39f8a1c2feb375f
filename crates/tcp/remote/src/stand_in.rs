//! A socket of this host with another host's name, connected to a listener of this host, or to a
//! socket that connects itself: so the program sees the peer that it has.
//!
//! It has the mark by which Linux brings it back (`uncopy_tcp_routes::loopback`), and never leaves
//! the loopback device.

use crate::options::{set, set_bytes};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, sockopt};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::time::Duration;
use uncopy_tcp_service::ends::STAND_IN;

/// The table of routes that brings marked packets back.
pub const TABLE: u32 = STAND_IN;

/// linux/tcp.h: without a probe of the window.
const REPAIR_OFF: i32 = -1;
const REPAIR_ON: i32 = 1;

/// Makes accepted sockets take their peer's mark, in this network namespace, and Linux' answers
/// where there is no socket (any more): else a refusal, or a reset, would go to the host whose name
/// the stand-in has. Where it was so before, nothing is written.
///
/// # Errors
/// No right.
pub fn accept_marks() -> io::Result<()> {
    for file in ["tcp_fwmark_accept", "fwmark_reflect"] {
        let file = format!("/proc/sys/net/ipv4/{file}");
        if std::fs::read_to_string(&file)?.trim() != "1" {
            std::fs::write(&file, "1")?;
        }
    }
    Ok(())
}

/// A socket that begins to connect, from `peer` to `local`. True: it is connected already.
///
/// If this process dies, its other end is reset.
///
/// # Errors
/// ECONNREFUSED: nobody listens. EPERM: no right to be somebody else (CAP_NET_ADMIN).
pub fn connected(peer: SocketAddrV4, local: SocketAddrV4) -> Result<(OwnedFd, bool), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_MARK, STAND_IN.cast_signed())?;
    set(&socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)?;
    set_bytes(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, c"lo".to_bytes_with_nul())?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    resets(&socket, true)?;
    // The peer's port may be one at which somebody listens here, for all addresses: Linux takes
    // that for a conflict, but for sockets that are under repair.
    set(&socket, libc::SOL_TCP, libc::TCP_REPAIR, REPAIR_ON)?;
    let bound = bind(&socket, &peer);
    set(&socket, libc::SOL_TCP, libc::TCP_REPAIR, REPAIR_OFF)?;
    bound?;
    // (A peer may use a port for several connections; and a program that is to listen there is not
    // kept from it.)
    sockopt::set_socket_reuseaddr(&socket, true)?;
    match connect(&socket, &local) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// How long Linux keeps a connection that a program has closed and its peer has not
/// (`net.ipv4.tcp_fin_timeout`).
pub fn fin_timeout() -> Duration {
    let seconds = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fin_timeout").ok();
    let seconds = seconds.and_then(|text| text.trim().parse().ok()).unwrap_or(60u64);
    Duration::from_secs(seconds.max(1))
}

/// The program sends no more. Whether it has closed its socket, and will read no more either, Linux
/// does not say; but once Linux has forgotten a closed one, whoever asks is reset. So it is asked,
/// each time after so long.
///
/// # Errors
/// Those of setsockopt(2).
pub fn asks(socket: impl std::os::fd::AsFd, fin_timeout: Duration) -> Result<(), Errno> {
    let socket = socket.as_fd();
    sockopt::set_tcp_keepidle(socket, fin_timeout)?;
    sockopt::set_tcp_keepintvl(socket, fin_timeout)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Its end is a reset (also when this process dies), or an orderly one.
///
/// # Errors
/// Those of setsockopt(2).
pub fn resets(socket: impl std::os::fd::AsFd, resets: bool) -> Result<(), Errno> {
    sockopt::set_socket_linger(socket, resets.then_some(Duration::ZERO))
}
