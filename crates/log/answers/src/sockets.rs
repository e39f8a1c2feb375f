//! The kernel's knowledge of a descriptor, asked past the gate, and bytes that leave by it. No
//! question here is told to a process that serves a file system, unless it says so.
//!
//! unsafe: system calls on numbers of the program's, with structures of ours.

use libc::c_int;
use uncopy_kernel::call::{syscall4, syscall6};

/// The outcome of sending.
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

/// Whether it is a TCP socket with nothing put over it.
pub(crate) fn is_stream(fd: u64) -> bool {
    const TCP_ULP: c_int = 31;
    let is_tcp = is_internet(fd) && number(fd, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP);
    let is_bare = || option(fd, libc::SOL_TCP, TCP_ULP).is_none_or(|name: [u8; 16]| name[0] == 0);
    is_tcp && is_bare()
}

/// The number that no other socket has, ever.
pub(crate) fn cookie(fd: u64) -> Option<u64> {
    option(fd, libc::SOL_SOCKET, libc::SO_COOKIE).map(u64::from_ne_bytes)
}

/// Whether it is a connection by which can be sent. (One that is not connected yet may begin to be
/// with its first message: TCP_FASTOPEN_CONNECT.)
pub(crate) fn is_open(fd: u64) -> bool {
    /// The first byte of `tcp_info` for an open stream: TCP_ESTABLISHED, TCP_CLOSE_WAIT.
    const OPEN: [u8; 2] = [1, 8];
    option(fd, libc::SOL_TCP, libc::TCP_INFO).is_some_and(|[state]| OPEN.contains(&state))
}

fn send(fd: u64, bytes: &[u8]) -> isize {
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    let (call, at) = (libc::SYS_sendto as usize, bytes.as_ptr() as usize);
    // SAFETY: bytes of ours.
    unsafe { syscall6(call, [fd as usize, at, bytes.len(), flags, 0, 0]) }
}

/// Whether the send buffer has room for so many bytes, so that a thread that is told that they are
/// sent finds no less room than if they were: a quarter of it, because each message takes more than
/// its bytes.
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

/// Sends bytes by `fd`, if that is still the stream `of`. Of one that was reset the program is told
/// why: a send would take that away from it. One that goes on loses no bytes, whatever errors there
/// are (IP_RECVERR).
pub(crate) fn sends(fd: u64, of: u64, bytes: &[u8]) -> Sent {
    if cookie(fd) != Some(of) || !is_open(fd) {
        return Sent::Gone;
    }
    match send(fd, bytes) {
        n if n >= 0 => Sent::Bytes(n as usize),
        n if n == -(libc::EPIPE as isize) => Sent::Gone,
        _ if is_open(fd) => Sent::Later,
        _ => Sent::Gone,
    }
}

/// An open description, as far as the kernel knows it without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    kind: u32,
    /// The mount that it lies in, by a number that no other ever has. `None`: the kernel does not
    /// number them so (before Linux 6.8).
    pub(crate) mount: Option<u64>,
    inode: u64,
    driver: u32,
}

impl Known {
    /// Whether it is a regular file.
    pub(crate) fn is_regular(&self) -> bool {
        self.kind == libc::S_IFREG
    }

    /// Whether it is a device that can be asked to read memory by itself: none of the kernel's own
    /// (null, zeros, random numbers), and no terminal.
    pub(crate) fn is_device(&self) -> bool {
        self.kind == libc::S_IFCHR && !matches!(self.driver, 1 | 4 | 5 | 136..=143)
    }
}

/// The description that is open as `fd`.
pub(crate) fn known(fd: u64) -> Option<Known> {
    const FLAGS: c_int = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    const MOUNT: u32 = libc::STATX_MNT_ID_UNIQUE;
    // SAFETY: zeros are one.
    let mut told: libc::statx = unsafe { core::mem::zeroed() };
    let (empty, to) = (c"".as_ptr() as usize, &raw mut told as usize);
    let mask = (libc::STATX_TYPE | libc::STATX_INO | MOUNT) as usize;
    let call = libc::SYS_statx as usize;
    // SAFETY: the kernel fills it.
    let got = unsafe { syscall6(call, [fd as usize, empty, FLAGS as usize, mask, to, 0]) };
    (got == 0).then(|| Known {
        kind: u32::from(told.stx_mode) & libc::S_IFMT,
        mount: (told.stx_mask & MOUNT != 0).then_some(told.stx_mnt_id),
        inode: told.stx_ino,
        driver: told.stx_rdev_major,
    })
}

/// Whether the kernel itself has the file system, so that no process, and no other host, is told
/// what is read of it or asked. (Such a one is told of this question.)
pub(crate) fn is_of_the_kernel(fd: u64) -> bool {
    /// ext4, XFS, btrfs, F2FS, tmpfs, pipes, sockets, what has no name, terminals.
    const ITS_OWN: [u32; 9] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0xf2f5_2010,
        0x0102_1994,
        0x5049_5045,
        0x534f_434b,
        0x0904_1934,
        0x1cd1,
    ];
    // SAFETY: zeros are one.
    let mut told: libc::statfs = unsafe { core::mem::zeroed() };
    let to = &raw mut told as usize;
    // SAFETY: the kernel fills it.
    let got = unsafe { syscall4(libc::SYS_fstatfs as usize, fd as usize, to, 0, 0) };
    got == 0 && ITS_OWN.contains(&(told.f_type as u32))
}

/// Whether bytes can be written to `fd` now.
pub(crate) fn takes_bytes(fd: u64) -> bool {
    let mut one = libc::pollfd { fd: fd as c_int, events: libc::POLLOUT, revents: 0 };
    let at = &raw mut one as usize;
    // SAFETY: one entry of ours; it does not wait.
    let got = unsafe { syscall4(libc::SYS_poll as usize, at, 1, 0, 0) };
    got > 0 && one.revents == libc::POLLOUT
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
        assert_eq!(cookie(fd(&here)), cookie(fd(&other)));
        assert!(cookie(fd(&here)).is_some() && cookie(fd(&here)) != cookie(fd(&there)));
        assert!(is_stream(fd(&here)) && is_open(fd(&here)));
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let unix = UnixStream::pair().unwrap().0;
        assert!(!is_stream(fd(&udp)) && !is_stream(fd(&unix)) && !is_stream(u64::MAX));
        assert!(!is_open(fd(&udp)) && !is_open(fd(&unix)) && !is_open(u64::MAX));
        assert!(is_internet(fd(&udp)) && is_internet(fd(&here)) && !is_internet(fd(&unix)));
    }

    #[test]
    fn bytes_go_to_the_stream_that_was_meant_and_to_no_other() {
        let ((here, mut there), (other, _)) = (pair(), pair());
        let of = cookie(fd(&here)).unwrap();
        assert_eq!(sends(fd(&other), of, b"x"), Sent::Gone);
        assert!(!is_open(fd(&TcpListener::bind("127.0.0.1:0").unwrap())));
        assert_eq!(sends(fd(&here), of, b"abc"), Sent::Bytes(3));
        let mut got = [0; 3];
        there.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abc");
        assert!(has_room(fd(&here), 100) && !has_room(fd(&here), 1 << 30));
    }

    #[test]
    fn an_error_of_a_stream_is_left_to_the_program() {
        let (here, there) = pair();
        let of = cookie(fd(&here)).unwrap();
        // (With bytes that nobody has read the other side resets the connection.)
        assert_eq!(sends(fd(&here), of, b"abc"), Sent::Bytes(3));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(there);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(sends(fd(&here), of, b"abc"), Sent::Gone);
        let error = here.take_error().unwrap().map(|why| why.raw_os_error());
        assert_eq!(error, Some(Some(libc::ECONNRESET)));
    }

    #[test]
    fn an_error_that_is_not_the_connections_loses_no_bytes() {
        // (SOF_TIMESTAMPING_SOFTWARE, _TX_ACK, _OPT_TSONLY.)
        let told: c_int = 1 << 4 | 1 << 9 | 1 << 11;
        let (here, mut there) = pair();
        let (number, at) = (fd(&here) as usize, &raw const told as usize);
        let option = [number, libc::SOL_SOCKET as usize, libc::SO_TIMESTAMPING as usize, at, 4, 0];
        // SAFETY: a number of ours.
        assert_eq!(unsafe { syscall6(libc::SYS_setsockopt as usize, option) }, 0);
        let of = cookie(fd(&here)).unwrap();
        assert_eq!(sends(fd(&here), of, b"a"), Sent::Bytes(1));
        let mut got = [0; 4];
        there.read_exact(&mut got[..1]).unwrap();
        let mut one = libc::pollfd { fd: here.as_raw_fd(), events: 0, revents: 0 };
        let at = &raw mut one as usize;
        // SAFETY: one entry of ours.
        assert_eq!(unsafe { syscall4(libc::SYS_poll as usize, at, 1, 5000, 0) }, 1);
        assert_eq!(one.revents & libc::POLLERR, libc::POLLERR);
        assert_eq!(sends(fd(&here), of, b"bcd"), Sent::Bytes(3));
        there.read_exact(&mut got[1..]).unwrap();
        assert_eq!(&got, b"abcd");
    }

    #[test]
    fn a_descriptor_is_known_by_what_it_is() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (_end, pipe) = std::io::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let of = |fd| known(fd).unwrap();
        assert!(of(fd(&file)).is_regular() && !of(fd(&pipe)).is_regular());
        assert!(!of(fd(&null)).is_device() && !of(fd(&file)).is_device());
        assert!(Known { driver: 10, ..of(fd(&null)) }.is_device());
        assert!(known(u64::MAX).is_none());
        assert!(is_of_the_kernel(fd(&pipe)) && !is_of_the_kernel(u64::MAX));
        assert!(takes_bytes(fd(&pipe)) && !takes_bytes(u64::MAX));
        assert_eq!(of(fd(&pipe)), of(fd(&pipe.try_clone().unwrap())));
        assert!(!is_for_writing(fd(&file)) && is_for_writing(u64::MAX));
    }
}
