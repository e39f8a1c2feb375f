//! The endpoint behind a call's descriptor: looked up once, at the call's beginning. From there on
//! everything goes straight down: [`input`] and [`output`] decide what becomes a view, and the
//! endpoint makes the call.
//!
//! unsafe: the calls are the program's own.

use crate::buffers::Buffers;
use crate::calls::{InputCall, Named, OutputCall};
use crate::input::{input, input_listed};
use crate::linux::{self, file};
use crate::output::{concerned, output, output_listed};
use crate::stack::{Host, Input, Output};
use crate::{log, ring};
use core::ffi::c_int;
use uncopy_process::process::Process;
use uncopy_tcp_calls::data::Ring;
use uncopy_tcp_socket::Way;

/// The endpoint behind a descriptor.
#[derive(Debug)]
pub enum Endpoint<'a> {
    /// Linux's own: a socket, a pipe, a file; or a connection that is Linux' for good.
    Linux(Option<Ring<'a>>),
    /// A TCP connection that goes by a ring, or may.
    Ring(Ring<'a>),
    /// A file whose appends may be held.
    Log,
}

impl Endpoint<'static> {
    /// The endpoint of `fd`.
    #[inline]
    pub fn of(process: &'static Process, fd: c_int) -> Self {
        match process.tcp.ring(fd) {
            Some(ring) if !ring.is_linux() => Self::Ring(ring),
            None if process.log.in_use() && process.log.file(fd).is_some() => Self::Log,
            connection => Self::Linux(connection),
        }
    }
}

/// Makes an input call of the program's on `fd`, which returns to `caller`. `kept`: it may be
/// answered from a kept file.
///
/// # Safety
/// As the man page of the function says.
#[inline]
pub unsafe fn receive(
    fd: c_int,
    call: &InputCall,
    kept: Option<file::Read>,
    caller: usize,
    host: &Host,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match Endpoint::of(host.process, fd) {
            Endpoint::Linux(connection) => {
                drop(connection);
                received(linux::Receive::new(host.process, fd, call, kept), call, host)
            }
            Endpoint::Ring(ring) => {
                received(ring::Receive::new(ring, fd, call, host.process, caller), call, host)
            }
            Endpoint::Log => {
                let _plain = log::reads(host.process, fd);
                received(linux::Receive::new(host.process, fd, call, kept), call, host)
            }
        }
    }
}

unsafe fn received(mut at: impl Input, call: &InputCall, host: &Host) -> isize {
    let received = match call.named() {
        Named::One(addr, len) => input(&mut at, &Buffers::one(addr, len), host),
        // SAFETY: the program's list.
        Named::List(list) => unsafe { input_listed(&mut at, list, host) },
        Named::Unseen => at.as_it_is(),
    };
    if at.is_told() {
        return received;
    }
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = libc::EFAULT };
    -1
}

/// Makes an output call of the program's on `fd`, which returns to `caller`.
///
/// # Safety
/// As the man page of the function says.
#[inline]
pub unsafe fn send(fd: c_int, call: &OutputCall, caller: usize, host: &Host) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match Endpoint::of(host.process, fd) {
            Endpoint::Linux(connection) => {
                let _sends = sends(connection.as_ref());
                sent(linux::Send::new(host.process, fd, call, caller), call, host)
            }
            Endpoint::Ring(ring) => sent(ring::Send::new(ring, fd, call, caller), call, host),
            Endpoint::Log => sent(log::Send::new(host.process, fd, call), call, host),
        }
    }
}

/// To be kept while Linux sends: what rings tell of afterwards comes after that.
#[inline]
fn sends<'a>(connection: Option<&'a Ring<'_>>) -> Option<Way<'a>> {
    connection.map(|connection| connection.way(true))
}

unsafe fn sent(mut at: impl Output, call: &OutputCall, host: &Host) -> isize {
    match call.named() {
        Named::One(addr, len) => output(&mut at, &Buffers::one(addr, len), host),
        Named::List(list) => {
            let from = at.lending().map_or(usize::MAX, |lending| lending.from);
            // SAFETY: the program's list.
            unsafe {
                if concerned(host.process, list, from) {
                    output_listed(&mut at, list, host)
                } else {
                    at.as_it_is()
                }
            }
        }
        Named::Unseen => at.as_it_is(),
    }
}

/// Makes an output call on `fd` just as it is.
///
/// # Safety
/// As the man page of the function says.
pub unsafe fn send_as_it_is(process: &'static Process, fd: c_int, call: &OutputCall) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match Endpoint::of(process, fd) {
            Endpoint::Linux(connection) => {
                let _sends = sends(connection.as_ref());
                linux::send(fd, call)
            }
            Endpoint::Ring(ring) => ring::Send::new(ring, fd, call, 0).as_it_is(),
            Endpoint::Log => log::Send::new(process, fd, call).as_it_is(),
        }
    }
}
