//! The channels of inputs and outputs: made anew for every operation, so that no operation depends
//! on another, and no child shares one with its parent.

use super::raw;
use super::threads::{self, Thread};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use uncopy_torture::bytes::{self, Digest};
use uncopy_torture::op::Via;

/// The room of a pipe.
const PIPE_ROOM: usize = 1 << 20;
/// A datagram's size at most.
pub const DATAGRAM_MAX: usize = 100 << 10;
/// How much a feeding or draining thread takes at a time.
const BITE: usize = 24 << 10;

/// A channel: the program's end and the other.
pub struct Channel {
    /// The program's end.
    pub fd: OwnedFd,
    other: Option<OwnedFd>,
    via: Via,
    /// How much it holds without waiting.
    pub room: usize,
}

fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "no descriptor: {}", std::io::Error::last_os_error());
    // SAFETY: just made, nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl Channel {
    /// Makes one; `input`: the program reads.
    pub fn new(via: Via, input: bool) -> Self {
        let (fd, other, room) = match via {
            Via::File | Via::Disk => (file(via), None, usize::MAX),
            Via::Pipe | Via::SlowPipe => {
                let (r, w) = pipe();
                let mut room = usize::MAX;
                if via == Via::Pipe {
                    // SAFETY: changes the pipe's size only.
                    let size =
                        unsafe { libc::fcntl(w.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_ROOM as i32) };
                    room = size.max(4096) as usize;
                }
                if input { (r, Some(w), room) } else { (w, Some(r), room) }
            }
            Via::Unix | Via::Datagram => {
                let (ours, theirs) = unix(via);
                let sender = if input { &theirs } else { &ours };
                let room = grow(sender) / 4;
                let room = if via == Via::Datagram { room.min(DATAGRAM_MAX) } else { room };
                (ours, Some(theirs), room)
            }
            Via::Tcp => {
                let (ours, theirs) = tcp();
                (ours, Some(theirs), usize::MAX)
            }
        };
        Self { fd, other, via, room }
    }

    /// Whether calls wait for the other end, and may come back with a part.
    pub fn waits(&self) -> bool {
        matches!(self.via, Via::Tcp | Via::SlowPipe)
    }

    /// The program's descriptor.
    pub fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Puts bytes `0..len` of the content of `key` in, and ends it.
    pub fn feed(&mut self, key: u64, len: usize) -> Option<Thread<()>> {
        if matches!(self.via, Via::File | Via::Disk) {
            put(self.raw(), key, len);
            // SAFETY: moves the file's position only.
            unsafe { libc::lseek(self.raw(), 0, libc::SEEK_SET) };
            return None;
        }
        let other = self.other.take()?;
        if self.waits() {
            return Some(apart(move || put(other.as_raw_fd(), key, len)));
        }
        match self.via {
            Via::Datagram => self.feed_datagrams(&other, key, &[len]),
            _ => put(other.as_raw_fd(), key, len),
        }
        None
    }

    /// Datagrams of these lengths, together the content of `key`.
    pub fn feed_messages(&mut self, key: u64, lens: &[usize]) {
        if let Some(other) = self.other.take() {
            self.feed_datagrams(&other, key, lens);
        }
    }

    fn feed_datagrams(&self, other: &OwnedFd, key: u64, lens: &[usize]) {
        let mut at = 0;
        for &len in lens {
            let mut message = vec![0; len];
            bytes::fill(key, at, &mut message);
            at += len;
            let a = [other.as_raw_fd() as usize, message.as_ptr() as usize, len, 0, 0, 0];
            // SAFETY: reads the message.
            unsafe { raw::call(libc::SYS_sendto, a) };
        }
    }

    /// Begins to take what the program writes, where somebody must.
    pub fn drain(&mut self) -> Option<Thread<(usize, u64)>> {
        if !self.waits() {
            return None;
        }
        let other = self.other.take()?;
        Some(apart(move || take(other.as_raw_fd(), usize::MAX)))
    }

    /// The program's writes: length and digest. The program writes no more.
    pub fn drained(self, drain: Option<Thread<(usize, u64)>>) -> (usize, u64) {
        match (drain, self.other) {
            (Some(thread), _) => {
                drop(self.fd);
                thread.join()
            }
            (None, None) => {
                // SAFETY: moves the file's position only.
                unsafe { libc::lseek(self.fd.as_raw_fd(), 0, libc::SEEK_SET) };
                take(self.fd.as_raw_fd(), usize::MAX)
            }
            (None, Some(other)) => {
                drop(self.fd);
                take(other.as_raw_fd(), usize::MAX)
            }
        }
    }

    /// A digest of `count` datagrams that the program has sent.
    pub fn messages(self, count: usize) -> (usize, u64) {
        let mut digest = Digest::default();
        let mut total = 0;
        let mut message = vec![0; DATAGRAM_MAX];
        if let Some(other) = &self.other {
            for _ in 0..count {
                let n = raw::read(other.as_raw_fd(), &mut message);
                digest.add(&(n as u64).to_le_bytes());
                digest.add(&message[..n]);
                total += n;
            }
        }
        (total, digest.value())
    }
}

/// Two ends of a pipe that holds `room` bytes at most: what is read, what is written.
pub fn small_pipe(room: usize) -> (OwnedFd, OwnedFd, usize) {
    let (r, w) = pipe();
    // SAFETY: changes the pipe's size only.
    let size = unsafe { libc::fcntl(w.as_raw_fd(), libc::F_SETPIPE_SZ, room as i32) };
    (r, w, size.max(4096) as usize)
}

/// A connection whose reader's window is small, so that most of what is sent waits at the sender:
/// what is read, what is written, and how much of it waits there at most.
pub fn narrow_tcp() -> (OwnedFd, OwnedFd, usize) {
    let (ours, theirs) = tcp();
    let size: i32 = 16 << 10;
    // SAFETY: the option takes an int.
    unsafe {
        let (value, len) = ((&raw const size).cast(), size_of::<i32>() as libc::socklen_t);
        libc::setsockopt(theirs.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, len);
    }
    let room = grow(&ours) / 4;
    (theirs, ours, room)
}

/// Runs `f` in a thread that takes no signals.
fn apart<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Thread<T> {
    super::signals::blocked(|| threads::spawn(f))
}

fn put(fd: i32, key: u64, len: usize) {
    let mut bite = [0; BITE];
    let mut at = 0;
    while at < len {
        let n = (len - at).min(BITE);
        bytes::fill(key, at, &mut bite[..n]);
        if !raw::write_all(fd, &bite[..n]) {
            return;
        }
        at += n;
        if at % 7 == 0 {
            std::thread::yield_now();
        }
    }
}

/// Reads to the end, or `most` bytes: length and digest.
pub fn take(fd: i32, most: usize) -> (usize, u64) {
    let mut bite = [0; BITE];
    let mut digest = Digest::default();
    let mut total = 0;
    while total < most {
        let n = raw::read(fd, &mut bite[..BITE.min(most - total)]);
        if n == 0 {
            break;
        }
        digest.add(&bite[..n]);
        total += n;
    }
    (total, digest.value())
}

/// A new, empty file with no name.
pub fn file(via: Via) -> OwnedFd {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the names are strings.
    unsafe {
        let mut fd = -1;
        if via == Via::Disk {
            fd = libc::open(c"/tmp".as_ptr(), flags, 0o600);
        }
        // (A child that has given up its rights makes no files.)
        owned(if fd >= 0 { fd } else { libc::memfd_create(c"torture".as_ptr(), libc::MFD_CLOEXEC) })
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [-1; 2];
    // SAFETY: writes two numbers.
    unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) };
    (owned(fds[0]), owned(fds[1]))
}

fn unix(via: Via) -> (OwnedFd, OwnedFd) {
    let kind = if via == Via::Datagram { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    let mut fds = [-1; 2];
    // SAFETY: writes two numbers.
    unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) };
    (owned(fds[0]), owned(fds[1]))
}

/// Makes a socket's room for what it sends large; returns how large it is.
fn grow(fd: &OwnedFd) -> usize {
    let wanted: i32 = 4 << 20;
    let mut size: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the options take and give an int.
    unsafe {
        for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            let value = (&raw const wanted).cast();
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, value, len);
        }
        let value = (&raw mut size).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, value, &mut len);
    }
    size.max(4096) as usize
}

fn tcp() -> (OwnedFd, OwnedFd) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let address = listener.local_addr().expect("a bound socket has an address");
    let theirs = std::net::TcpStream::connect(address).expect("a connection on loopback");
    let (ours, _) = listener.accept().expect("a connection that was made");
    (ours.into(), theirs.into())
}
