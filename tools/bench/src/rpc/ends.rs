//! A connection's end, and a set of them, by either interface: the calls of an ordinary program, or
//! the socket library's own.

// Unsafe: the calls and buffers under test are C's own, by intention.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use uncopy_tcp_socket::set::Event;
use uncopy_tcp_socket::{Context, Flow, Set, Settings, Waiting, iovec};

use super::choices::Wait;
use super::plan::Plan;

/// Nothing has come for so long: the other end hangs, or has died without a word.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The library's, where the plan wants its rings.
pub fn context(plan: &Plan) -> io::Result<Option<Arc<Context>>> {
    let Some(service) = &plan.service else { return Ok(None) };
    let waiting = match plan.wait {
        Wait::Spin => Waiting::Spin,
        Wait::Sleep => Waiting::Sleep,
    };
    let settings = Settings { waiting, ..Settings::new(service.clone()) };
    Ok(Some(Context::new(settings)?))
}

/// The other end is not at a loopback address.
fn flow_is_remote(socket: &TcpStream) -> io::Result<bool> {
    Ok(!socket.peer_addr()?.ip().is_loopback())
}

/// SO_BUSY_POLL: calls that find nothing ask the device's queue for so many microseconds.
fn busy_poll(socket: &TcpStream) -> io::Result<()> {
    let microseconds: libc::c_int = 50;
    set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &microseconds.to_ne_bytes())
}

fn set(socket: &TcpStream, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    let at = value.as_ptr().cast();
    // SAFETY: the kernel reads the value, which is as long as that.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, at, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for so many descriptors, and some. (Root may raise its limit itself.)
pub fn make_room(connections: usize) -> io::Result<()> {
    let wanted = connections as u64 + 64;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).map_err(|_| {
        io::Error::other(format!(
            "{connections} connections need {wanted} descriptors, and {hard} may be had: raise \
             that with 'ulimit -Hn {wanted}'"
        ))
    })
}

/// An end.
pub struct End {
    socket: TcpStream,
    flow: Option<Arc<Flow>>,
    /// Calls do not wait. (The library spins itself.)
    asks: bool,
}

impl End {
    /// Of a socket that was just connected or accepted.
    pub fn new(socket: TcpStream, plan: &Plan, context: Option<&Arc<Context>>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        if flow_is_remote(&socket)? {
            // As uncopy's flows have it, whatever this machine has otherwise.
            set(&socket, libc::SOL_TCP, libc::TCP_CONGESTION, b"cubic")?;
            if plan.wait == Wait::Spin {
                // Where the device can be asked, calls ask it.
                busy_poll(&socket)?;
            }
        }
        let flow = context.map(|context| context.register(socket.as_raw_fd(), false));
        let asks = plan.wait == Wait::Spin && flow.is_none();
        Ok(Self { socket, flow, asks })
    }

    /// Sends what can be sent: none, where that is nothing. It waits, unless `now`, or the end asks
    /// again and again.
    pub fn send(&self, bytes: &[u8], now: bool) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | if now || self.asks { libc::MSG_DONTWAIT } else { 0 };
        let sent = if let Some(flow) = &self.flow {
            let part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            // SAFETY: it is only read.
            unsafe { flow.send(&[part], flags) }.map_err(io::Error::from)
        } else {
            // SAFETY: as above.
            result(unsafe {
                libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
            })
        };
        or_none(sent)
    }

    /// Receives what is there; `None`: nothing is. It waits as above.
    pub fn receive(&self, bytes: &mut [u8], now: bool) -> io::Result<Option<usize>> {
        let flags = if now || self.asks { libc::MSG_DONTWAIT } else { 0 };
        let got = if let Some(flow) = &self.flow {
            let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            // SAFETY: it is as long as that.
            unsafe { flow.receive(&[part], flags) }.map_err(io::Error::from)
        } else {
            let (at, length) = (bytes.as_mut_ptr().cast(), bytes.len());
            // SAFETY: as above.
            result(unsafe { libc::recv(self.socket.as_raw_fd(), at, length, flags) })
        };
        match got {
            Ok(got) => Ok(Some(got)),
            Err(e) if waits(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends all of it.
    pub fn send_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += self.send(&bytes[sent..], false)?;
        }
        Ok(())
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn result(of: isize) -> io::Result<usize> {
    usize::try_from(of).map_err(|_| io::Error::last_os_error())
}

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn or_none(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(e) if waits(&e) => Ok(0),
        sent => sent,
    }
}

/// A set of ends.
pub enum Ends {
    /// epoll. True: it does not wait.
    Sockets(Epoll, bool),
    /// The library's.
    Rings(Set),
}

impl Ends {
    /// None so far.
    pub fn new(plan: &Plan, context: Option<&Arc<Context>>) -> io::Result<Self> {
        let kernel = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(match context {
            None => Self::Sockets(kernel, plan.wait == Wait::Spin),
            Some(context) => Self::Rings(Set::new(context.clone(), kernel.0)?),
        })
    }

    /// One more.
    pub fn add(&self, end: &End, data: u64) -> io::Result<()> {
        match self {
            Self::Sockets(set, _) => {
                set.add(end.socket.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, data))?;
            }
            Self::Rings(set) => {
                let events = libc::EPOLLIN.cast_unsigned();
                set.add(end.socket.as_raw_fd(), end.flow.clone(), events, data)?;
            }
        }
        Ok(())
    }

    /// One less.
    pub fn remove(&self, end: &End) -> io::Result<()> {
        match self {
            Self::Sockets(set, _) => set.delete(end.socket.as_fd())?,
            Self::Rings(set) => set.remove(end.socket.as_raw_fd())?,
        }
        Ok(())
    }

    /// Those that have something: none, where it did not wait, or was interrupted.
    pub fn wait(&self, ready: &mut Vec<usize>) -> io::Result<()> {
        ready.clear();
        match self {
            Self::Sockets(set, asks) => {
                let mut events = [EpollEvent::empty(); 256];
                let timeout = if *asks { Duration::ZERO } else { TIMEOUT };
                let timeout = EpollTimeout::try_from(timeout).map_err(io::Error::other)?;
                let count = match set.wait(&mut events, timeout) {
                    Err(nix::Error::EINTR) => 0,
                    count => count?,
                };
                ready.extend(events[..count].iter().map(|event| event.data() as usize));
            }
            Self::Rings(set) => {
                let mut events = [Event::default(); 256];
                let count = match set.wait(&mut events, Some(TIMEOUT)).map_err(io::Error::from) {
                    Err(e) if waits(&e) => 0,
                    count => count?,
                };
                ready.extend(events[..count].iter().map(|event| event.data as usize));
            }
        }
        Ok(())
    }
}
