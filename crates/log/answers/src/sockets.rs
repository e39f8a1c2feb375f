//! What the kernel knows of a descriptor, asked past the gate, and bytes that leave by it.
//!
//! unsafe: system calls on numbers of the program's, with structures of ours.

use libc::c_int;
use uncopy_kernel::call::{syscall4, syscall6};

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has taken so many bytes.
    Bytes(usize),
    /// It has no room.
    Later,
    /// The stream is no more, or the number is another one's: nobody gets these bytes.
    Gone,
}

fn option<const N: usize>(fd: u64, level: c_int, name: c_int) -> Option<[u8; N]> {
    let (mut value, mut length) = ([0u8; N], N as libc::socklen_t);
    let (to, of) = (value.as_mut_ptr() as usize, &raw mut length as usize);
    let call = libc::SYS_getsockopt as usize;
    // SAFETY: the kernel writes as many bytes as there is room for.
    let got = unsafe { syscall6(call, [fd as usize, level as usize, name as usize, to, of, 0]) };
    (got == 0).then_some(value)
}

fn number(fd: u64, name: c_int) -> Option<i32> {
    option(fd, libc::SOL_SOCKET, name).map(i32::from_ne_bytes)
}

/// Whether it is an internet socket.
pub(crate) fn is_internet(fd: u64) -> bool {
    matches!(number(fd, libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
}

/// The number that nothing else has, if it is a TCP connection with nothing put over it.
pub(crate) fn stream(fd: u64) -> Option<u64> {
    const TCP_ULP: c_int = 31;
    let is_tcp = is_internet(fd)
        && number(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && number(fd, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP);
    let is_bare = || option(fd, libc::SOL_TCP, TCP_ULP).is_none_or(|name: [u8; 16]| name[0] == 0);
    if is_tcp && is_bare() { cookie(fd) } else { None }
}

fn cookie(fd: u64) -> Option<u64> {
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE).map(u64::from_ne_bytes)
}

/// What a message of no bytes says: 0, or the error that one with bytes has.
pub(crate) fn asks(fd: u64) -> isize {
    send(fd, &[])
}

fn send(fd: u64, bytes: &[u8]) -> isize {
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    let (call, at) = (libc::SYS_sendto as usize, bytes.as_ptr() as usize);
    // SAFETY: bytes of ours.
    unsafe { syscall6(call, [fd as usize, at, bytes.len(), flags, 0, 0]) }
}

/// Whether the send buffer has room for so many bytes, so that who is told that they are sent finds
/// no less room than if they were: a quarter of it, because each message takes more than its
/// bytes.
pub(crate) fn has_room(fd: u64, bytes: usize) -> bool {
    let Some(all) = number(fd, libc::SO_SNDBUF).and_then(|all| usize::try_from(all).ok()) else {
        return false;
    };
    let mut used: c_int = 0;
    let (call, to) = (libc::SYS_ioctl as usize, &raw mut used as usize);
    // SAFETY: the kernel writes a number.
    let got = unsafe { syscall4(call, fd as usize, libc::TIOCOUTQ as usize, to, 0) };
    got == 0 && (used as usize).saturating_add(bytes) <= all / 4
}

/// Whether the program would be told of an error, which a send would take away from it.
fn has_error(fd: u64) -> bool {
    let mut one = libc::pollfd { fd: fd as c_int, events: 0, revents: 0 };
    let at = &raw mut one as usize;
    // SAFETY: one entry of ours; it does not wait.
    let got = unsafe { syscall4(libc::SYS_poll as usize, at, 1, 0, 0) };
    got > 0 && one.revents & (libc::POLLERR | libc::POLLNVAL) != 0
}

/// Sends bytes by `fd`, if that is still the stream `cookie`.
pub(crate) fn sends(fd: u64, of: u64, bytes: &[u8]) -> Sent {
    if cookie(fd) != Some(of) || has_error(fd) {
        return Sent::Gone;
    }
    loop {
        return match send(fd, bytes) {
            n if n >= 0 => Sent::Bytes(n as usize),
            n if n == -(libc::EINTR as isize) => continue,
            n if n == -(libc::EAGAIN as isize) || n == -(libc::ENOMEM as isize) => Sent::Later,
            n if n == -(libc::ENOBUFS as isize) => Sent::Later,
            _ => Sent::Gone,
        };
    }
}

/// Whether it is a regular file.
pub(crate) fn is_regular(fd: u64) -> bool {
    kind(fd) == Some(libc::S_IFREG)
}

fn kind(fd: u64) -> Option<u32> {
    // SAFETY: zeros are one.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    let to = &raw mut stat as usize;
    // SAFETY: the kernel fills it.
    let got = unsafe { syscall4(libc::SYS_fstat as usize, fd as usize, to, 0, 0) };
    (got == 0).then_some(stat.st_mode & libc::S_IFMT)
}

/// Whether it may be written to.
pub(crate) fn is_for_writing(fd: u64) -> bool {
    // SAFETY: a question.
    let flags =
        unsafe { syscall4(libc::SYS_fcntl as usize, fd as usize, libc::F_GETFL as usize, 0, 0) };
    flags < 0 || flags as c_int & libc::O_ACCMODE != libc::O_RDONLY
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn fd(of: &impl AsRawFd) -> u64 {
        of.as_raw_fd() as u64
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    #[test]
    fn only_tcp_connections_are_streams_and_each_has_a_number_of_its_own() {
        let (here, there) = pair();
        let other = here.try_clone().unwrap();
        assert_eq!(stream(fd(&here)), stream(fd(&other)));
        assert!(stream(fd(&here)).is_some() && stream(fd(&here)) != stream(fd(&there)));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixStream::pair().unwrap().0;
        assert_eq!((stream(fd(&udp)), stream(fd(&unix)), stream(u64::MAX)), (None, None, None));
        assert!(is_internet(fd(&udp)) && is_internet(fd(&here)) && !is_internet(fd(&unix)));
    }

    #[test]
    fn bytes_go_to_the_stream_that_was_meant_and_to_no_other() {
        let ((here, mut there), (other, _)) = (pair(), pair());
        let cookie = stream(fd(&here)).unwrap();
        assert_eq!(sends(fd(&other), cookie, b"x"), Sent::Gone);
        assert_eq!(asks(fd(&here)), 0);
        assert_eq!(sends(fd(&here), cookie, b"abc"), Sent::Bytes(3));
        let mut got = [0; 3];
        there.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abc");
        assert!(has_room(fd(&here), 100) && !has_room(fd(&here), 1 << 30));
    }

    #[test]
    fn an_error_of_a_stream_is_left_to_the_program() {
        let (here, there) = pair();
        let cookie = stream(fd(&here)).unwrap();
        // (With bytes that nobody has read the other side resets the connection.)
        assert_eq!(sends(fd(&here), cookie, b"abc"), Sent::Bytes(3));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(there);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(sends(fd(&here), cookie, b"abc"), Sent::Gone);
        let error = here.take_error().unwrap().map(|why| why.raw_os_error());
        assert_eq!(error, Some(Some(libc::ECONNRESET)));
    }

    #[test]
    fn a_descriptor_is_known_by_what_it_is() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (pipe, _end) = std::io::pipe().unwrap();
        assert!(is_regular(fd(&file)) && !is_regular(fd(&pipe)) && !is_regular(u64::MAX));
        assert!(!is_for_writing(fd(&file)) && is_for_writing(u64::MAX));
    }
}
