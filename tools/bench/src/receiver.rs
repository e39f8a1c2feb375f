//! The receiving end of a transfer: reads all, and compares every byte where it is told to.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::{Failure, failure};

use super::content::Expected;

/// Kind of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Socket {
    /// TCP over the loopback device.
    Tcp,
    /// A UNIX socket.
    Unix,
}

/// Where a sender connects to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Address {
    /// A port of 127.0.0.1.
    Tcp(u16),
    /// An abstract name.
    Unix(String),
}

/// Waits for a sender.
pub enum Listener {
    /// On a port.
    Tcp(TcpListener),
    /// On a name.
    Unix(UnixListener, String),
}

impl Listener {
    /// At an address of its own.
    pub fn new(socket: Socket) -> Result<Self, Failure> {
        let failed = |e| Failure::new("cannot listen for the sender").because(e);
        match socket {
            Socket::Tcp => {
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(Self::Tcp).map_err(failed)
            }
            Socket::Unix => {
                let name = format!("uncopy-bench-{}-{:x}", std::process::id(), fastrand::u64(..));
                let address = SocketAddr::from_abstract_name(&name).map_err(failed)?;
                let listener = UnixListener::bind_addr(&address).map_err(failed)?;
                Ok(Self::Unix(listener, name))
            }
        }
    }

    /// The address to tell the sender.
    pub fn address(&self) -> Result<Address, Failure> {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map(|a| Address::Tcp(a.port()))
                .map_err(|e| Failure::new("cannot tell the port").because(e)),
            Self::Unix(_, name) => Ok(Address::Unix(name.clone())),
        }
    }

    /// The sender's connection.
    pub fn accept(&self) -> Result<Stream, Failure> {
        let stream = match self {
            Self::Tcp(listener) => listener.accept().map(|(s, _)| Stream::Tcp(s)),
            Self::Unix(listener, _) => listener.accept().map(|(s, _)| Stream::Unix(s)),
        };
        stream.map_err(|e| Failure::new("the sender did not connect").because(e))
    }
}

/// A connection.
pub enum Stream {
    /// A stream of TCP.
    Tcp(TcpStream),
    /// A stream of a UNIX socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects to a receiver.
    pub fn connect(address: &Address) -> std::io::Result<Self> {
        match address {
            Address::Tcp(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Address::Unix(name) => {
                UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?).map(Self::Unix)
            }
        }
    }

    /// Its descriptor.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }

    fn read(&mut self, place: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(place),
            Self::Unix(s) => s.read(place),
        }
    }
}

/// The order to a sender: whichever comes first.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Send so many messages,
    pub messages: u64,
    /// or for so many nanoseconds.
    pub nanos: u64,
}

/// The sender's answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Messages that were sent.
    pub messages: u64,
    /// User and system time that took.
    pub cpu_ns: u64,
    /// Time that took.
    pub elapsed_ns: u64,
    /// Why it cannot be done this way.
    pub refused: Option<String>,
    /// Sends without copying of which the kernel said so, and of which it said that it copied.
    pub sent_by_reference: [u64; 2],
    /// Whether the library is loaded, and the bytes that it elided or passed on by reference.
    pub preloaded: bool,
}

/// Data that is not looked at is read in pieces of this size.
const SCRATCH: usize = 128 << 10;
const TIMEOUT_MS: u16 = 20_000;

/// The receiving end.
pub struct Receiver {
    stream: Stream,
    size: u64,
    got: u64,
    scratch: Vec<u8>,
    /// Messages of which every byte was compared.
    pub verified: u64,
}

impl Receiver {
    /// Of messages of `size` bytes.
    pub fn new(stream: Stream, size: usize) -> Self {
        let scratch = vec![0; SCRATCH];
        Self { stream, size: size as u64, got: 0, scratch, verified: 0 }
    }

    /// Has the sender send, reads it all, and returns the sender's answer. Where it is to be
    /// compared, `content` is the bytes of each piece of content, and which content piece number n
    /// of this order has.
    pub fn carry_out(
        &mut self,
        sender: &mut ServerProcess,
        order: Order,
        content: Option<(usize, &dyn Fn(u64) -> u64)>,
    ) -> Result<Done, Failure> {
        sender.tell(&serde_json::to_string(&order).expect("an order can be written"))?;
        let begin = self.got;
        let mut expected = content.map(|(unit, id)| (Expected::new(unit), id));
        let mut done: Option<Done> = None;
        let mut closed = false;
        loop {
            if let Some(done) = &done {
                let until = begin + done.messages * self.size;
                if self.got == until {
                    if content.is_some() {
                        self.verified += done.messages;
                    }
                    return Ok(done.clone());
                }
                if self.got > until || closed {
                    let got = self.got - begin;
                    return Err(failure!("{got} bytes came of {}", until - begin));
                }
            }
            let [data, said] = self.wait(sender, done.is_none(), !closed)?;
            if data {
                closed = !self.read(begin, &mut expected)?;
            }
            if said && done.is_none() {
                done = Some(sender.answer()?);
            }
        }
    }

    fn wait(&self, sender: &ServerProcess, answer: bool, open: bool) -> Result<[bool; 2], Failure> {
        let events = |wanted| if wanted { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(self.stream.fd(), events(open)),
            PollFd::new(sender.output(), events(answer)),
        ];
        match poll(&mut fds[usize::from(!open)..], PollTimeout::from(TIMEOUT_MS)) {
            Ok(0) => Err(Failure::new("nothing has come for 20 s")),
            Ok(_) => Ok(fds.map(|fd| fd.any().unwrap_or(false))),
            Err(nix::Error::EINTR) => Ok([false; 2]),
            Err(e) => Err(Failure::new("cannot wait for the sender").because(e.desc())),
        }
    }

    /// Reads what is there; `false` at its end.
    fn read(
        &mut self,
        begin: u64,
        expected: &mut Option<(Expected, &dyn Fn(u64) -> u64)>,
    ) -> Result<bool, Failure> {
        let count = match self.stream.read(&mut self.scratch) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(true),
            count => count.map_err(|e| Failure::new("the connection broke").because(e))?,
        };
        if let Some((expected, id)) = expected {
            expected.compare(self.got - begin, &self.scratch[..count], *id)?;
        }
        self.got += count as u64;
        Ok(count > 0)
    }
}
