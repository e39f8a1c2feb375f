//! Sockets: making connections, options, questions, passing them on.

use super::{LINK, Said};
use core::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use uncopy_differ::op::{Ask, Opt};

/// The timeout of SO_RCVTIMEO, in microseconds.
const TIMEOUT: i64 = 20_000;

fn local(v6: bool, port: u16) -> SocketAddr {
    if v6 { (Ipv6Addr::LOCALHOST, port).into() } else { (Ipv4Addr::LOCALHOST, port).into() }
}

/// A socket that listens: its number and its port.
pub fn listen(v6: bool) -> Said {
    match TcpListener::bind(local(v6, 0)) {
        Ok(socket) => {
            let port = socket.local_addr().map_or(0, |at| at.port());
            let fd = i64::from(socket.into_raw_fd());
            Said { result: fd, more: vec![port.into()], ..Said::default() }
        }
        Err(_) => Said::of(-1),
    }
}

/// A connection to it. (Its descriptor is not to be closed by exec.)
pub fn connect(v6: bool, port: u16, nodelay: bool) -> Said {
    match TcpStream::connect(local(v6, port)) {
        Ok(socket) => begins(socket.into_raw_fd(), nodelay),
        Err(_) => Said::of(-1),
    }
}

/// And its other end.
pub fn accept(listener: c_int, nodelay: bool) -> Said {
    // SAFETY: a number, and no address is asked for.
    let fd = unsafe { libc::accept(listener, core::ptr::null_mut(), core::ptr::null_mut()) };
    if fd < 0 { Said::of(-1) } else { begins(fd, nodelay) }
}

fn begins(fd: c_int, nodelay: bool) -> Said {
    // SAFETY: a setting of this descriptor.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if nodelay {
        set_to(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1);
    }
    Said::of(fd.into())
}

fn set_to<T>(fd: c_int, level: c_int, name: c_int, value: &T) -> c_int {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the option's value.
    unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), len) }
}

/// `setsockopt`.
pub fn set(fd: c_int, what: Opt, on: bool) -> Said {
    let value = c_int::from(on);
    let result = match what {
        Opt::Nodelay => set_to(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &value),
        Opt::Cork => set_to(fd, libc::IPPROTO_TCP, libc::TCP_CORK, &value),
        Opt::Linger => {
            let linger = libc::linger { l_onoff: value, l_linger: 0 };
            set_to(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
        }
        Opt::Inline => set_to(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, &value),
        Opt::Rcvtimeo => {
            let time = libc::timeval { tv_sec: 0, tv_usec: if on { TIMEOUT } else { 0 } };
            set_to(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)
        }
        Opt::Keepalive => set_to(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &value),
    };
    Said::of(result.into())
}

fn option(fd: c_int, name: c_int) -> (c_int, c_int) {
    let (mut value, mut len) = (-1, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: our own variables.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast::<c_void>(), &mut len)
    };
    (result, value)
}

type NameOf = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

/// A digest of an address without its port.
fn name(fd: c_int, of: NameOf) -> Said {
    let mut bytes = [0u8; 128];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: our own buffer, of this length.
    let mut said = Said::of(unsafe { of(fd, bytes.as_mut_ptr().cast(), &mut len) }.into());
    bytes[2..4].fill(0);
    said.more = vec![len.into(), bytes[..24].iter().map(|b| u64::from(*b)).sum()];
    said
}

/// Questions.
pub fn ask(fd: c_int, what: Ask) -> Said {
    let number = |request: libc::Ioctl| {
        let mut value: c_int = -1;
        // SAFETY: our own variable.
        let mut said = Said::of(unsafe { libc::ioctl(fd, request, &mut value) }.into());
        said.more = vec![value as u64];
        said
    };
    match what {
        Ask::Error => {
            let (result, value) = option(fd, libc::SO_ERROR);
            Said { more: vec![value as u64], ..Said::of(result.into()) }
        }
        Ask::Unread => number(libc::FIONREAD),
        Ask::Mark => number(0x8905),
        Ask::Peer => name(fd, libc::getpeername),
        Ask::Name => name(fd, libc::getsockname),
        Ask::Kind => {
            let (kind, protocol) = (option(fd, libc::SO_TYPE), option(fd, libc::SO_PROTOCOL));
            let more = vec![kind.1 as u64, protocol.1 as u64];
            Said { more, ..Said::of((kind.0 + protocol.0).into()) }
        }
    }
}

/// Passes a descriptor to the other process.
pub fn give(fd: c_int) -> Said {
    with_message(|message| {
        // SAFETY: the header's room is for one descriptor.
        unsafe {
            let rights = libc::CMSG_FIRSTHDR(message);
            (*rights).cmsg_level = libc::SOL_SOCKET;
            (*rights).cmsg_type = libc::SCM_RIGHTS;
            (*rights).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as usize;
            libc::CMSG_DATA(rights).cast::<c_int>().write_unaligned(fd);
            Said::of(libc::sendmsg(LINK, message, 0) as i64)
        }
    })
}

/// Takes one that the other process has passed.
pub fn get() -> Said {
    with_message(|message| {
        // SAFETY: as above; what has come is looked at.
        unsafe {
            let got = libc::recvmsg(LINK, message, 0);
            let rights = libc::CMSG_FIRSTHDR(message);
            if got != 1 || rights.is_null() || (*rights).cmsg_type != libc::SCM_RIGHTS {
                return Said::of(-1);
            }
            Said::of(libc::CMSG_DATA(rights).cast::<c_int>().read_unaligned().into())
        }
    })
}

fn with_message(call: impl FnOnce(&mut libc::msghdr) -> Said) -> Said {
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0u64; 8];
    // SAFETY: plain data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: arithmetic.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize;
    call(&mut message)
}

/// A call on a connection that changes nothing.
pub fn pump(fd: c_int) -> Said {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: our own byte.
    Said::of(unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, flags) } as i64)
}

/// The library's counts: connections with rings, calls that sent and received by them. Zeros where
/// there is none.
pub fn counters() -> Said {
    // SAFETY: the library exports a function of this type.
    let counter = unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, c"uncopy_counter".as_ptr());
        core::mem::transmute::<*mut c_void, Option<extern "C" fn(*const i8) -> u64>>(at)
    };
    let names = [c"tcp_connections", c"tcp_sends", c"tcp_receives"];
    let more = names.iter().map(|name| counter.map_or(0, |counter| counter(name.as_ptr())));
    Said { more: more.collect(), ..Said::default() }
}
