//! The cost of sending within the host to the sender, copied by the kernel and by reference.

// Unsafe: options of sockets of ours, and the calls that the library makes.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use nix::time::{ClockId, clock_gettime};
use uncopy_lend::kind::Kind;
use uncopy_lend::send::{Calls, Lending, Lent, Target};
use uncopy_measure::{Failure, cores, medians::median};
use uncopy_ranges::span::Span;

use super::mapping::Mapping;
use super::measured::{Measured, Work};
use super::sample::of;

/// The pipes that are measured with.
static LENDING: Lending = Lending::new();

const MB: usize = 1 << 20;
const SMALL: usize = 64 << 10;
/// So many messages are sent in turn: large ones are more than a core's own caches hold, small ones
/// (where little is to be gained, and much to be lost) are not.
const MESSAGES: usize = 8;
/// Rounds after which a connection's window and pace are what they will be.
const WARM: usize = 24;
/// Fresh connections for each median: one keeps the window that it happened to find for long.
const CONNECTIONS: usize = 5;

/// Measures, with the sender on the first of `available` cores and the receiver on the second;
/// calls `done` after each piece of work. Where a connection cannot be had, or there is one core
/// only, that piece is left out.
pub fn measure(
    available: &[usize],
    results: &mut Vec<Measured>,
    mut done: impl FnMut(),
) -> Result<(), Failure> {
    let memory = Mapping::map(MESSAGES * MB)?;
    memory.touch(memory.span());
    let works = [
        (Work::Send, SMALL, false),
        (Work::SendByReference, SMALL, true),
        (Work::Send, MB, false),
        (Work::SendByReference, MB, true),
    ];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..CONNECTIONS {
        for (times, (_, size, by_reference)) in times.iter_mut().zip(works) {
            if let [own, other, ..] = *available
                && let Ok(ends) = connection()
            {
                times.extend(one(&memory, [own, other], ends, size, by_reference));
            }
            done();
        }
    }
    for (times, (work, bytes, ..)) in times.into_iter().zip(works) {
        if !times.is_empty() {
            results.push(Measured { work, bytes, ns: median(times) });
        }
    }
    Ok(())
}

fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    receiver.set_nodelay(true)?;
    // (BBR's go plainly: `uncopy_lend::kind`.)
    let congestion = "reno";
    // SAFETY: the name is as long as is said.
    let set = unsafe {
        let (name, len) = (congestion.as_ptr().cast(), congestion.len() as u32);
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_TCP, libc::TCP_CONGESTION, name, len)
    };
    if set == 0 { Ok((sender, receiver)) } else { Err(io::Error::last_os_error()) }
}

/// CPU time of a message for its sender.
fn one(
    memory: &Mapping,
    [own, other]: [usize; 2],
    (sender, receiver): (TcpStream, TcpStream),
    size: usize,
    by_reference: bool,
) -> Option<f64> {
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = cores::pin(other);
            // (It ends when the sender closes.)
            let _ = receive(receiver, size);
        });
        // A thread of its own, whose core and CPU time are its.
        let sending = scope.spawn(move || {
            let _ = cores::pin(own);
            let mut failed = false;
            let mut turn = 0;
            let times = (MB / 2 / size).max(1);
            let mut next = || {
                let before = cpu_ns();
                for _ in 0..times {
                    turn += 1;
                    let message = memory.part(turn % MESSAGES * size, size);
                    failed |= send(&sender, message, by_reference).is_none();
                }
                (cpu_ns() - before) / times as f64
            };
            for _ in 0..WARM {
                next();
            }
            let ns = of(next);
            (!failed).then_some(ns)
        });
        sending.join().ok().flatten()
    })
}

fn receive(mut from: TcpStream, size: usize) -> io::Result<()> {
    let mut buffer = vec![0; size];
    loop {
        from.read_exact(&mut buffer)?;
        from.write_all(&[0])?;
    }
}

/// Sends it, and waits until all of it has arrived.
fn send(mut to: &TcpStream, message: Span, by_reference: bool) -> Option<()> {
    if by_reference {
        let calls = Calls { splice: libc_splice, vmsplice: libc_vmsplice, sendmsg: libc_sendmsg };
        let target = Target { fd: to.as_raw_fd(), more: false, no_signal: true, calls };
        let piece = libc::iovec { iov_base: message.start as *mut _, iov_len: message.len() };
        if LENDING.send(Kind::Tcp, &target, &[piece], 1) != Lent::Done(message.len() as isize) {
            return None;
        }
    } else {
        // SAFETY: a part of a mapping that lives until this returns, and is not written to any
        // more.
        let bytes =
            unsafe { std::slice::from_raw_parts(message.start as *const u8, message.len()) };
        to.write_all(bytes).ok()?;
    }
    to.read_exact(&mut [0]).ok()
}

unsafe fn libc_splice(
    from: i32,
    at: *mut i64,
    to: i32,
    there: *mut i64,
    len: usize,
    flags: u32,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { libc::splice(from, at, to, there, len, flags) }
}

unsafe fn libc_vmsplice(to: i32, pieces: *const libc::iovec, count: usize, flags: u32) -> isize {
    // SAFETY: the caller's promise.
    unsafe { libc::vmsplice(to, pieces, count, flags) }
}

unsafe fn libc_sendmsg(to: i32, message: *const libc::msghdr, flags: i32) -> isize {
    // SAFETY: the caller's promise.
    unsafe { libc::sendmsg(to, message, flags) }
}

/// CPU time of this thread, in ns.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has one");
    now.tv_sec() as f64 * 1e9 + now.tv_nsec() as f64
}
