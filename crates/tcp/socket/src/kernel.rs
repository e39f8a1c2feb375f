//! The connection's calls of Linux. They go to the kernel past libc, whose functions of these names
//! are interposed.
//!
//! unsafe: pointers of the program's, which only the kernel looks at; system calls with a signal
//! mask.

use libc::{c_long, iovec};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;
use uncopy_kernel::call::syscall6;
use uncopy_kernel::sleeping;

/// Sends what fits.
///
/// # Safety
/// The buffers are the program's: whatever it named.
pub unsafe fn send(fd: BorrowedFd, from: &[iovec], flags: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { send_as_it_is(fd, from, flags | libc::MSG_DONTWAIT) }
}

/// Sends, waiting as the socket and `flags` say.
///
/// # Safety
/// The contract is that of the call above.
pub unsafe fn send_as_it_is(fd: BorrowedFd, from: &[iovec], flags: i32) -> Result<usize, Errno> {
    if let [one] = from {
        // SAFETY: the caller's promise.
        return unsafe { one_buffer(libc::SYS_sendto, fd, one, flags) };
    }
    // SAFETY: `IoSlice` is an `iovec` (its documentation); only the kernel follows the pointers.
    let from = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<IoSlice>(), from.len()) };
    let flags = SendFlags::from_bits_retain(flags as u32);
    sendmsg(fd, from, &mut SendAncillaryBuffer::default(), flags)
}

/// Receives what is there.
///
/// # Safety
/// The buffers are the program's: whatever it named.
pub unsafe fn receive(fd: BorrowedFd, to: &[iovec], flags: i32) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { receive_as_it_is(fd, to, flags | libc::MSG_DONTWAIT) }
}

/// Receives, waiting as the socket and `flags` say.
///
/// # Safety
/// The contract is that of the call above.
pub unsafe fn receive_as_it_is(fd: BorrowedFd, to: &[iovec], flags: i32) -> Result<usize, Errno> {
    if let [one] = to {
        // SAFETY: the caller's promise.
        return unsafe { one_buffer(libc::SYS_recvfrom, fd, one, flags) };
    }
    let mut to = to.to_vec();
    // SAFETY: `IoSliceMut` is an `iovec` (its documentation); only the kernel follows the pointers.
    let to =
        unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<IoSliceMut>(), to.len()) };
    let flags = RecvFlags::from_bits_retain(flags as u32);
    recvmsg(fd, to, &mut RecvAncillaryBuffer::default(), flags).map(|got| got.bytes)
}

/// [`receive_to_mark`]'s answer where an urgent byte is next. (No other answer of its is that.)
pub const AT_MARK: Errno = Errno::CHRNG;

/// Receives what is there, as a call does that has received something already: an urgent byte that
/// is next ends it, also one that comes meanwhile. (A call that begins passes it.) `keeps` gets an
/// error that Linux tells behind it.
///
/// # Safety
/// The contract is that of the call above.
pub unsafe fn receive_to_mark(
    fd: BorrowedFd,
    to: &[iovec],
    flags: i32,
    keeps: impl FnOnce(Errno),
) -> Result<usize, Errno> {
    // How much there is: behind the mark, where that is next. (By these flags nothing is stored.)
    // SAFETY: the caller's promise.
    let there = unsafe { receive(fd, to, libc::MSG_PEEK | libc::MSG_TRUNC) };
    if is_at_mark(fd) {
        if let Err(error) = there {
            keeps(error);
        }
        return Err(AT_MARK);
    }
    match there {
        // A mark that comes from here on stands behind these.
        // SAFETY: the caller's promise.
        Ok(bytes @ 1..) => unsafe { receive(fd, &first(to, bytes), flags) },
        nothing => nothing,
    }
}

/// The first so many bytes of buffers, or all of them.
pub fn first(of: &[iovec], mut bytes: usize) -> Vec<iovec> {
    let mut parts = of.to_vec();
    for part in &mut parts {
        part.iov_len = part.iov_len.min(bytes);
        bytes -= part.iov_len;
    }
    parts
}

/// Reads what of a file is in memory; EAGAIN: it would have to be waited for; EOPNOTSUPP: this file
/// cannot tell.
///
/// # Safety
/// The buffers may be written to.
pub unsafe fn read_at_hand(file: BorrowedFd, to: &[iovec], at: u64) -> Result<usize, Errno> {
    let parts = [to.as_ptr() as usize, to.len()];
    let at = [at as usize, (at >> 32) as usize];
    let arguments =
        [file.as_raw_fd() as usize, parts[0], parts[1], at[0], at[1], libc::RWF_NOWAIT as usize];
    // SAFETY: the caller's promise. (The kernel takes the position in two halves, of which on 64
    // bits the first is all of it.)
    outcome(unsafe { syscall6(libc::SYS_preadv2 as usize, arguments) })
}

/// sendto(2) or recvfrom(2), without an address.
unsafe fn one_buffer(
    call: c_long,
    fd: BorrowedFd,
    part: &iovec,
    flags: i32,
) -> Result<usize, Errno> {
    let number = fd.as_raw_fd() as usize;
    let arguments = [number, part.iov_base as usize, part.iov_len, flags as usize, 0, 0];
    // SAFETY: the caller's promise: only the kernel follows the pointer.
    outcome(unsafe { syscall6(call as usize, arguments) })
}

/// Whether the stream goes on: `Ok(Some(0))` it has ended, `Ok(None)` nothing there, an error once.
pub fn look(fd: BorrowedFd) -> Result<Option<usize>, Errno> {
    let mut byte = 0u8;
    let to = [iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }];
    // SAFETY: our own byte.
    match unsafe { receive(fd, &to, libc::MSG_PEEK) } {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Poll's answer now.
pub fn poll_now(fd: BorrowedFd, events: PollFlags) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(1) => fds[0].revents(),
        _ => PollFlags::empty(),
    }
}

/// Sleeps until Linux has room for bytes, the connection has ended, or a signal handler ran.
pub fn wait_for_room(fd: BorrowedFd) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None);
}

/// The peer has closed, finished or died.
pub fn hung_up(fd: BorrowedFd) -> bool {
    !poll_now(fd, PollFlags::RDHUP).is_empty()
}

/// SIOCOUTQ: what was sent and is not in the other end's queue yet.
pub fn unsent(fd: BorrowedFd) -> Result<usize, Errno> {
    /// TIOCOUTQ, which is SIOCOUTQ.
    type Unsent = rustix::ioctl::Getter<0x5411, i32>;
    // SAFETY: tcp(7): writes an int.
    unsafe { rustix::ioctl::ioctl(fd, Unsent::new()) }.map(|bytes| bytes as usize)
}

/// SIOCATMARK: the urgent byte is next.
pub fn is_at_mark(fd: BorrowedFd) -> bool {
    type AtMark = rustix::ioctl::Getter<0x8905, i32>;
    // SAFETY: tcp(7): writes an int.
    let said = unsafe { rustix::ioctl::ioctl(fd, AtMark::new()) };
    said == Ok(1)
}

/// The urgent byte is next, and is one of the stream (SO_OOBINLINE).
pub fn is_at_mark_inline(fd: BorrowedFd) -> bool {
    is_at_mark(fd) && sockopt::socket_oobinline(fd) == Ok(true)
}

/// Passes the urgent byte, where that is next and is none of the stream, as a call does that
/// receives what follows it. The bytes that follow it stay.
///
/// # Errors
/// An error that Linux tells once.
pub fn pass_mark(fd: BorrowedFd) -> Result<(), Errno> {
    // (In memory that nobody can write to: a byte that follows is not received.)
    static NOWHERE: u8 = 0;
    let to = [iovec { iov_base: (&raw const NOWHERE).cast_mut().cast(), iov_len: 1 }];
    for _ in 0..INTERRUPTED {
        // SAFETY: the kernel, which alone follows the pointer, is refused there.
        match unsafe { receive(fd, &to, 0) } {
            // (A signal that comes makes Linux stop at the mark.)
            Err(Errno::AGAIN) if is_at_mark(fd) => {}
            Err(Errno::AGAIN | Errno::FAULT) | Ok(_) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// So many signals one after the other end a call that does not wait, at most.
const INTERRUPTED: u32 = 32;

/// There is an urgent byte that nobody has received, or it is next.
pub fn has_mark(fd: BorrowedFd) -> bool {
    poll_now(fd, PollFlags::PRI).contains(PollFlags::PRI) || is_at_mark(fd)
}

/// Behind the `seen` bytes that were looked at stands an urgent byte that nobody has received. (The
/// bytes that can be received end there, but for SO_OOBINLINE.)
pub fn mark_follows(fd: BorrowedFd, seen: usize) -> bool {
    poll_now(fd, PollFlags::PRI).contains(PollFlags::PRI)
        && unread(fd).is_ok_and(|there| {
            there == seen || there > seen && sockopt::socket_oobinline(fd) == Ok(true)
        })
}

/// All that was sent is in the other end's queue.
pub fn all_arrived(fd: BorrowedFd) -> bool {
    unsent(fd) == Ok(0)
}

/// SIOCINQ: what can be received.
pub fn unread(fd: BorrowedFd) -> Result<usize, Errno> {
    rustix::io::ioctl_fionread(fd).map(|bytes| bytes as usize)
}

// include/net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;

/// The peer's stream has ended, or the connection has: not only this end's receiving, which another
/// process may have shut down.
#[cold]
pub fn has_peer_ended(fd: BorrowedFd) -> bool {
    !matches!(state(fd), Some(ESTABLISHED | FIN_WAIT1 | FIN_WAIT2))
}

/// Neither side has ended its stream, whichever process did, and whenever.
#[cold]
pub fn is_established(fd: BorrowedFd) -> bool {
    state(fd) == Some(ESTABLISHED)
}

/// This side has ended its stream, or the connection is none any more.
#[cold]
pub fn has_finished(fd: BorrowedFd) -> bool {
    !matches!(state(fd), Some(ESTABLISHED | CLOSE_WAIT))
}

/// Both ways have ended, or the connection was reset.
#[cold]
pub fn is_over(fd: BorrowedFd) -> bool {
    state(fd) == Some(CLOSE)
}

/// The connection's state.
fn state(fd: BorrowedFd) -> Option<u8> {
    let mut state = 0u8;
    let mut length = size_of_val(&state) as u32;
    // SAFETY: the kernel writes no more than one byte there, tcp_info's first (tcpi_state).
    let told = unsafe {
        syscall6(
            libc::SYS_getsockopt as usize,
            [
                fd.as_raw_fd() as usize,
                libc::IPPROTO_TCP as usize,
                libc::TCP_INFO as usize,
                (&raw mut state) as usize,
                (&raw mut length) as usize,
                0,
            ],
        )
    };
    (told >= 0).then_some(state)
}

/// Sends what Linux holds back to send it with what follows (Nagle): where the answers come by a
/// ring they acknowledge nothing, and the bytes would wait for the peer's delayed acknowledgement
/// (40 ms). The socket's option is as before.
pub fn push(fd: BorrowedFd) {
    if sockopt::tcp_nodelay(fd) == Ok(false) {
        let _ = sockopt::set_tcp_nodelay(fd, true);
        let _ = sockopt::set_tcp_nodelay(fd, false);
    }
}

/// As [`push`], also what TCP_CORK holds back: setting TCP_NODELAY sends all (tcp(7)), though it
/// may be set.
pub fn push_all(fd: BorrowedFd) {
    let was_set = sockopt::tcp_nodelay(fd) != Ok(false);
    let _ = sockopt::set_tcp_nodelay(fd, true);
    if !was_set {
        let _ = sockopt::set_tcp_nodelay(fd, false);
    }
}

/// Sends while the socket's send buffer is as large as an unprivileged program may make it; EAGAIN:
/// it is so large already.
pub fn with_room(
    fd: BorrowedFd,
    send: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    // More than two rings: the kernel counts its own overhead too. It sets twice what is asked for,
    // which is at most this.
    let most = most_room().min(1 << 20);
    let before = sockopt::socket_send_buffer_size(fd)?;
    if before >= 2 * most {
        // (Nor could it be made as large again.)
        return Err(Errno::AGAIN);
    }
    let fixed = fixed_buffers(fd);
    sockopt::set_socket_send_buffer_size(fd, most)?;
    let sent = send();
    let _ = sockopt::set_socket_send_buffer_size(fd, before / 2);
    if let Some(fixed) = fixed {
        fix_buffers(fd, fixed);
    }
    sent
}

/// net.core.wmem_max, or what Linux has there where nobody can tell.
fn most_room() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let said = std::fs::read_to_string("/proc/sys/net/core/wmem_max");
        said.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(212_992)
    })
}

/// SO_BUF_LOCK: which of the socket's buffers were given a size, which the kernel does not change
/// by itself then. `None`: a kernel that cannot tell (before 5.16).
fn fixed_buffers(fd: BorrowedFd) -> Option<u32> {
    let mut fixed = 0u32;
    let mut length = size_of_val(&fixed) as u32;
    let (at, length) = ((&raw mut fixed) as usize, (&raw mut length) as usize);
    let number = fd.as_raw_fd() as usize;
    let option = [libc::SOL_SOCKET as usize, libc::SO_BUF_LOCK as usize];
    let arguments = [number, option[0], option[1], at, length, 0];
    // SAFETY: socket(7): writes an int, and its length.
    let told = unsafe { syscall6(libc::SYS_getsockopt as usize, arguments) };
    (told >= 0).then_some(fixed)
}

fn fix_buffers(fd: BorrowedFd, which: u32) {
    let number = fd.as_raw_fd() as usize;
    let option = [libc::SOL_SOCKET as usize, libc::SO_BUF_LOCK as usize];
    let at = (&raw const which) as usize;
    let arguments = [number, option[0], option[1], at, size_of_val(&which), 0];
    // SAFETY: reads an int.
    unsafe { syscall6(libc::SYS_setsockopt as usize, arguments) };
}

/// For the kernel: a call that failed says so by a negative number.
fn outcome(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result as i32))
}

/// A system call of the program's that waits so long: where it does, it is ended by a handler that
/// has run since the program's call began.
///
/// # Safety
/// The caller keeps the contract of the system call.
unsafe fn waits(call: c_long, arguments: [usize; 6], timeout: Option<Duration>) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match timeout {
            Some(Duration::ZERO) => syscall6(call as usize, arguments),
            _ => sleeping::sleep(call as usize, arguments),
        }
    }
}

/// epoll_pwait(2), with the signal mask as the kernel has it, if there is one. (Where the time is
/// none of whole milliseconds epoll_pwait2, which some filters of system calls do not know.)
pub fn epoll_wait(
    set: BorrowedFd,
    events: &mut [epoll::Event],
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    let whole = timeout.is_none_or(|timeout| timeout.subsec_nanos().is_multiple_of(1_000_000));
    let milliseconds = timeout.map_or(Ok(-1), |timeout| i32::try_from(timeout.as_millis()));
    let until = timeout.map(timespec);
    let (call, until) = match milliseconds {
        Ok(milliseconds) if whole => (libc::SYS_epoll_pwait, milliseconds as usize),
        _ => {
            let until = until.as_ref().map_or(0, |until| core::ptr::from_ref(until) as usize);
            (libc::SYS_epoll_pwait2, until)
        }
    };
    let number = set.as_raw_fd() as usize;
    let (to, room) = (events.as_mut_ptr() as usize, events.len());
    let mask = mask.as_ref().map_or(0, |mask| core::ptr::from_ref(mask) as usize);
    let arguments = [number, to, room, until, mask, size_of::<u64>()];
    // SAFETY: the kernel writes at most so many events, and reads the timeout and the mask.
    outcome(unsafe { waits(call, arguments, timeout) })
}

/// ppoll(2), likewise.
pub fn ppoll(
    fds: &mut [PollFd],
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Result<usize, Errno> {
    let mut until = timeout.map(timespec);
    let until = until.as_mut().map_or(0, |until| core::ptr::from_mut(until) as usize);
    let (to, count) = (fds.as_mut_ptr() as usize, fds.len());
    let mask = mask.as_ref().map_or(0, |mask| core::ptr::from_ref(mask) as usize);
    let arguments = [to, count, until, mask, size_of::<u64>(), 0];
    // SAFETY: `PollFd` is a `pollfd` (its documentation); the kernel may change the timeout, which
    // is a copy.
    outcome(unsafe { waits(libc::SYS_ppoll, arguments, timeout) })
}

/// Seconds and nanoseconds.
pub fn timespec(left: Duration) -> Timespec {
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    fn size(of: &TcpStream) -> usize {
        sockopt::socket_send_buffer_size(of).unwrap()
    }

    #[test]
    fn a_send_buffer_is_of_the_same_size_and_as_free_as_before_it_was_made_larger() {
        for set in [None, Some(8 << 10)] {
            let (socket, _other) = connected();
            if let Some(set) = set {
                sockopt::set_socket_send_buffer_size(&socket, set).unwrap();
            }
            let (before, fixed) = (size(&socket), fixed_buffers(socket.as_fd()));
            let meanwhile = with_room(socket.as_fd(), || Ok(size(&socket)));
            assert_eq!((size(&socket), fixed_buffers(socket.as_fd())), (before, fixed));
            match meanwhile {
                Ok(meanwhile) => assert!(meanwhile > before),
                // (One that nobody has set is as large from the beginning.)
                other => assert_eq!((other, set), (Err(Errno::AGAIN), None)),
            }
        }
    }

    #[test]
    fn a_mark_is_passed_and_nothing_behind_it_is_taken() {
        for (behind, received) in [(&b""[..], false), (b"behind", false), (b"behind", true)] {
            let (mut to, socket) = connected();
            let fd = socket.as_fd();
            let urgent = rustix::net::SendFlags::OOB;
            assert_eq!(rustix::net::send(&to, b"!", urgent), Ok(1));
            to.write_all(behind).unwrap();
            while !all_arrived(to.as_fd()) || !has_mark(fd) {
                std::thread::yield_now();
            }
            let mut byte = [0u8];
            let part = [iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
            if received {
                // SAFETY: our own byte.
                assert_eq!(unsafe { receive(fd, &part, libc::MSG_OOB) }, Ok(1));
            }
            assert!(is_at_mark(fd));
            assert_eq!(pass_mark(fd), Ok(()));
            assert!(!is_at_mark(fd) && !has_mark(fd));
            assert_eq!(unread(fd), Ok(behind.len()));
            sockopt::set_socket_oobinline(fd, true).unwrap();
            assert_eq!(unread(fd), Ok(behind.len()), "the byte is gone");
            assert_eq!(look(fd), Ok((!behind.is_empty()).then_some(1)));
        }
    }

    #[test]
    fn a_mark_that_is_part_of_the_stream_is_not_passed() {
        let (to, socket) = connected();
        sockopt::set_socket_oobinline(&socket, true).unwrap();
        assert_eq!(rustix::net::send(&to, b"!", rustix::net::SendFlags::OOB), Ok(1));
        while !is_at_mark(socket.as_fd()) {
            std::thread::yield_now();
        }
        assert_eq!(pass_mark(socket.as_fd()), Ok(()));
        assert!(is_at_mark_inline(socket.as_fd()));
        assert_eq!(unread(socket.as_fd()), Ok(1));
    }
}
