//! `libuncopy_tcp`: the low-level API (`uncopy-tcp-events`) for programs in C.
//! `include/uncopy_tcp.h` is its description; each function here is a thin shim.
//!
//! unsafe: C's pointers, which are what the header says that they are.

use libc::{c_char, c_int, c_void, sockaddr, socklen_t, ssize_t};
use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::Duration;
use uncopy_tcp_events::{Context, Id, Listen, Settings, Waiting};

/// `uncopy_tcp_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    connection: u64,
    data: u64,
    bytes: *const u8,
    length: usize,
    what: u32,
    error: i32,
}

/// `uncopy_tcp`.
#[derive(Debug)]
pub struct Tcp {
    context: Context,
    events: Vec<Event>,
}

fn negated(error: &io::Error) -> c_int {
    -error.raw_os_error().unwrap_or(libc::EIO)
}

fn outcome(of: io::Result<c_int>) -> c_int {
    of.unwrap_or_else(|error| negated(&error))
}

fn invalid() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// # Safety
/// `at` points to so many bytes.
unsafe fn address(at: *const sockaddr, length: socklen_t) -> io::Result<SocketAddr> {
    let length = length as usize;
    if at.is_null() || length < size_of::<libc::sa_family_t>() {
        return Err(invalid());
    }
    // SAFETY: it is as long as that.
    match c_int::from(unsafe { (&raw const (*at).sa_family).read_unaligned() }) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: as above.
            let v4 = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok((ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(invalid()),
        _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
    }
}

fn settings(carrier: c_int, waiting: c_int, service: Option<&CStr>) -> Option<Settings> {
    let waiting = match waiting {
        0 => Waiting::Adaptive,
        1 => Waiting::Spin,
        2 => Waiting::Sleep,
        _ => return None,
    };
    let settings = match (carrier, service) {
        (0, None) => Settings::default(),
        (0, Some(name)) => Settings::by_service(name.to_str().ok()?),
        (1, _) => Settings::sockets(),
        _ => return None,
    };
    Some(Settings { waiting, ..settings })
}

/// See the header.
///
/// # Safety
/// `service` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_tcp_open(
    carrier: c_int,
    waiting: c_int,
    service: *const c_char,
) -> *mut Tcp {
    // SAFETY: the caller's promise.
    let service = (!service.is_null()).then(|| unsafe { CStr::from_ptr(service) });
    let made = settings(carrier, waiting, service).ok_or_else(invalid).and_then(Context::new);
    match made {
        Ok(context) => Box::into_raw(Box::new(Tcp { context, events: vec![] })),
        Err(error) => {
            // SAFETY: errno's address is always valid.
            unsafe { *libc::__errno_location() = -negated(&error) };
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// `context` is NULL, or of [`uncopy_tcp_open`] and not ended yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_tcp_end(context: *mut Tcp) {
    if !context.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(context) });
    }
}

/// See the header.
///
/// # Safety
/// `context` as above, `at` points to an address of that length, `id` to a number or nowhere
/// (NULL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_tcp_listen(
    context: &mut Tcp,
    at: *const sockaddr,
    length: socklen_t,
    backlog: c_int,
    shared: c_int,
    data: u64,
    id: Option<&mut u64>,
) -> c_int {
    // SAFETY: the caller's promise.
    let begun = unsafe { address(at, length) }
        .and_then(|at| context.context.listen(at, Listen { backlog, shared: shared != 0, data }));
    outcome(begun.map(|(begun, _)| {
        id.into_iter().for_each(|id| *id = begun.0);
        0
    }))
}

/// See the header.
///
/// # Safety
/// As [`uncopy_tcp_listen`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_tcp_connect(
    context: &mut Tcp,
    at: *const sockaddr,
    length: socklen_t,
    data: u64,
    id: Option<&mut u64>,
) -> c_int {
    // SAFETY: the caller's promise.
    let begun = unsafe { address(at, length) }.and_then(|at| context.context.connect(at, data));
    outcome(begun.map(|begun| {
        id.into_iter().for_each(|id| *id = begun.0);
        0
    }))
}

/// See the header.
///
/// # Safety
/// `events` points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_tcp_poll(
    tcp: &mut Tcp,
    timeout_ms: c_int,
    events: &mut *const Event,
) -> c_int {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    tcp.events.clear();
    let count = match tcp.context.poll(timeout) {
        Ok(count) => count,
        Err(error) => return negated(&error),
    };
    for i in 0..count {
        let (event, bytes) = (tcp.context.event(i), tcp.context.bytes(i));
        tcp.events.push(Event {
            connection: event.connection.0,
            data: event.data,
            bytes: bytes.as_ptr(),
            length: bytes.len(),
            what: event.what.0,
            error: event.error,
        });
    }
    *events = tcp.events.as_ptr();
    count as c_int
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_take(tcp: &mut Tcp, i: c_int, bytes: usize) -> c_int {
    let i = usize::try_from(i).unwrap_or(usize::MAX);
    if i >= tcp.events.len() || bytes > tcp.context.bytes(i).len() {
        return -libc::EINVAL;
    }
    tcp.context.take(i, bytes);
    0
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_again(tcp: &mut Tcp, connection: u64) {
    tcp.context.again(Id(connection));
}

/// See the header.
///
/// # Safety
/// `bytes` points to so many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncopy_tcp_send(
    tcp: &mut Tcp,
    connection: u64,
    bytes: *const c_void,
    length: usize,
) -> ssize_t {
    if length == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) };
    match tcp.context.send(Id(connection), bytes) {
        Ok(sent) => sent as ssize_t,
        Err(error) => negated(&error) as ssize_t,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_finish(tcp: &mut Tcp, connection: u64) -> c_int {
    outcome(tcp.context.finish(Id(connection)).map(|()| 0))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_close(tcp: &mut Tcp, it: u64) {
    tcp.context.close(Id(it));
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_set_data(tcp: &mut Tcp, it: u64, data: u64) {
    tcp.context.set_data(Id(it), data);
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_is_over(tcp: &Tcp, connection: u64) -> c_int {
    tcp.context.is_over(Id(connection)).into()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_is_by_ring(tcp: &Tcp, connection: u64) -> c_int {
    tcp.context.is_by_ring(Id(connection)).into()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn uncopy_tcp_descriptor(tcp: &Tcp, it: u64) -> c_int {
    tcp.context.descriptor(Id(it)).map_or(-libc::EBADF, |fd| fd.as_raw_fd())
}
