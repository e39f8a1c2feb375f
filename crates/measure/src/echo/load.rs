//! The load generator: closed-loop connections in one thread, each with one message under way.
//!
//! While time is taken the echoes are read but not looked at, so that the load costs the same
//! on both sides and as little as can be; before and after that, every byte is compared.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::UsageWho;

use crate::failure;
use crate::failure::Failure;
use crate::own_process::cpu_ns;

/// With nothing coming back for so long, the server is taken for dead.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Echoes that are not looked at are read in pieces of this size, into memory that stays hot.
const SCRATCH: usize = 128 << 10;
/// Random messages that the timed requests take turns with: so many, but no more than fit into
/// a processor's own cache, where sending them costs least.
const PREBUILT: usize = 16;
const PREBUILT_BYTES: usize = 256 << 10;

/// The connections and what they send.
pub struct Load {
    epoll: Epoll,
    links: Vec<Link>,
    size: usize,
    prebuilt: Vec<Rc<[u8]>>,
    next_prebuilt: usize,
    scratch: Vec<u8>,
    random: fastrand::Rng,
    verified: u64,
}

struct Link {
    stream: TcpStream,
    message: Rc<[u8]>,
    sent: usize,
    got: usize,
    started: Instant,
    /// Whether it waits for the socket to take more.
    blocked: bool,
    /// Messages on this connection so far.
    messages: u64,
    /// The echo, where it is looked at.
    echo: Vec<u8>,
}

/// The result of a timed run.
pub struct Timed {
    /// Requests that were answered in full.
    pub requests: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// CPU time of the load generator.
    pub cpu_ns: u64,
    /// Nanoseconds from a request's first byte out to its last byte back.
    pub latency: Histogram<u64>,
}

impl Timed {
    /// No run yet.
    pub fn nothing() -> Result<Self, Failure> {
        let latency = Histogram::new_with_bounds(1, 120_000_000_000, 3)
            .map_err(|e| Failure::new("cannot record latencies").because(e))?;
        Ok(Self { requests: 0, elapsed: Duration::ZERO, cpu_ns: 0, latency })
    }

    /// Another run of the same.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.elapsed += other.elapsed;
        self.cpu_ns += other.cpu_ns;
        self.latency.add(&other.latency).expect("both have the same bounds");
    }
}

impl Load {
    /// Opens `connections` to the server on `port` of 127.0.0.1.
    pub fn connect(port: u16, connections: usize, size: usize, seed: u64) -> Result<Self, Failure> {
        let mut random = fastrand::Rng::with_seed(seed);
        let prebuilt: Vec<Rc<[u8]>> = (0..PREBUILT.min(PREBUILT_BYTES / size).max(1))
            .map(|_| random_message(&mut random, size))
            .collect();
        let links: Vec<Link> = (0..connections)
            .map(|_| Link::open(port, &prebuilt[0]))
            .collect::<io::Result<_>>()
            .map_err(|e| Failure::new("cannot connect to the echo server").because(e))?;
        let build = || -> nix::Result<Epoll> {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            for (i, link) in links.iter().enumerate() {
                epoll.add(&link.stream, EpollEvent::new(EpollFlags::EPOLLIN, i as u64))?;
            }
            Ok(epoll)
        };
        let epoll =
            build().map_err(|e| Failure::new("cannot wait for connections").because(e.desc()))?;
        let scratch = vec![0; SCRATCH.min(size)];
        Ok(Self { epoll, links, size, prebuilt, next_prebuilt: 0, scratch, random, verified: 0 })
    }

    /// Messages whose every byte came back right so far.
    pub fn verified(&self) -> u64 {
        self.verified
    }

    /// Sends `each` fresh random messages on every connection and compares every byte.
    pub fn verify(&mut self, each: usize) -> Result<(), Failure> {
        if each == 0 {
            return Ok(());
        }
        let mut left = vec![each; self.links.len()];
        for link in &mut self.links {
            link.echo.resize(self.size, 0);
        }
        for index in 0..self.links.len() {
            let message = random_message(&mut self.random, self.size);
            self.start(index, message)?;
        }
        let mut open = self.links.len();
        while open > 0 {
            for (index, blocked) in self.wait()? {
                if !self.advance(index, blocked, true)? {
                    continue;
                }
                self.links[index].compare(index)?;
                self.verified += 1;
                left[index] -= 1;
                if left[index] == 0 {
                    open -= 1;
                } else {
                    let message = random_message(&mut self.random, self.size);
                    self.start(index, message)?;
                }
            }
        }
        for link in &mut self.links {
            link.echo = Vec::new();
        }
        Ok(())
    }

    /// Keeps every connection busy for `length`, then lets what is under way come to its end. All
    /// of that is timed, so all that the server does for it lies between what it reports before and
    /// after.
    pub fn turn(&mut self, length: Duration) -> Result<Timed, Failure> {
        let mut timed = Timed::nothing()?;
        let cpu = || {
            cpu_ns(UsageWho::RUSAGE_THREAD)
                .map_err(|e| Failure::new("cannot tell the CPU time").because(e))
        };
        let cpu_before = cpu()?;
        let start = Instant::now();
        (0..self.links.len()).try_for_each(|index| self.start_prebuilt(index))?;
        let mut open = self.links.len();
        while open > 0 {
            let goes_on = start.elapsed() < length;
            for (index, blocked) in self.wait()? {
                if !self.advance(index, blocked, false)? {
                    continue;
                }
                timed.requests += 1;
                let took = self.links[index].started.elapsed().as_nanos();
                timed.latency.saturating_record(u64::try_from(took).unwrap_or(u64::MAX));
                if goes_on {
                    self.start_prebuilt(index)?;
                } else {
                    open -= 1;
                }
            }
        }
        timed.elapsed = start.elapsed();
        timed.cpu_ns = cpu()? - cpu_before;
        Ok(timed)
    }

    /// The connections that something can be done on, and whether they waited to send.
    fn wait(&self) -> Result<impl Iterator<Item = (usize, bool)> + use<>, Failure> {
        let mut events = [EpollEvent::empty(); 64];
        let timeout = EpollTimeout::try_from(TIMEOUT).expect("it is short");
        let ready = loop {
            match self.epoll.wait(&mut events, timeout) {
                Ok(0) => {
                    return Err(failure!("nothing has come back for {} s", TIMEOUT.as_secs()));
                }
                Ok(ready) => break ready,
                Err(nix::Error::EINTR) => {}
                Err(e) => return Err(Failure::new("cannot wait for connections").because(e.desc())),
            }
        };
        Ok(events.into_iter().take(ready).map(|event| {
            let writable = event.events().contains(EpollFlags::EPOLLOUT);
            (usize::try_from(event.data()).expect("an index"), writable)
        }))
    }

    fn start_prebuilt(&mut self, index: usize) -> Result<(), Failure> {
        self.next_prebuilt = (self.next_prebuilt + 1) % self.prebuilt.len();
        let message = Rc::clone(&self.prebuilt[self.next_prebuilt]);
        self.start(index, message)
    }

    fn start(&mut self, index: usize, message: Rc<[u8]>) -> Result<(), Failure> {
        let link = &mut self.links[index];
        link.message = message;
        link.sent = 0;
        link.got = 0;
        link.messages += 1;
        link.started = Instant::now();
        self.push(index)
    }

    /// Sends as much as the socket takes.
    fn push(&mut self, index: usize) -> Result<(), Failure> {
        let link = &mut self.links[index];
        let blocked = link.send().map_err(|e| link.lost(index, &e))?;
        if blocked != link.blocked {
            link.blocked = blocked;
            let mut wanted = EpollFlags::EPOLLIN;
            wanted.set(EpollFlags::EPOLLOUT, blocked);
            self.epoll
                .modify(&link.stream, &mut EpollEvent::new(wanted, index as u64))
                .map_err(|e| Failure::new("cannot wait for connections").because(e.desc()))?;
        }
        Ok(())
    }

    /// Goes on with a connection; whether its echo is complete now.
    fn advance(&mut self, index: usize, writable: bool, keep: bool) -> Result<bool, Failure> {
        if writable {
            self.push(index)?;
        }
        let link = &mut self.links[index];
        while link.got < self.size {
            let left = self.size - link.got;
            let place = if keep {
                &mut link.echo[link.got..]
            } else {
                let piece = left.min(self.scratch.len());
                &mut self.scratch[..piece]
            };
            let wanted = place.len();
            match link.stream.read(place) {
                Ok(0) => return Err(link.lost(index, &io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    link.got += n;
                    if n < wanted {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(link.lost(index, &e)),
            }
        }
        Ok(link.got == self.size)
    }
}

impl Link {
    fn open(port: u16, message: &Rc<[u8]>) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            message: Rc::clone(message),
            sent: 0,
            got: 0,
            started: Instant::now(),
            blocked: false,
            messages: 0,
            echo: Vec::new(),
        })
    }

    /// Whether something is left that the socket does not take now.
    fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.message.len() {
            match self.stream.write(&self.message[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(false)
    }

    fn compare(&self, index: usize) -> Result<(), Failure> {
        match first_difference(&self.message, &self.echo) {
            None => Ok(()),
            Some((offset, expected, got)) => Err(failure!(
                "WRONG DATA on connection {index}, message {}, offset {offset}: expected \
                 {expected:#04x}, got {got:#04x}",
                self.messages
            )),
        }
    }

    fn lost(&self, index: usize, error: &io::Error) -> Failure {
        failure!(
            "connection {index} broke in message {} with {} of {} bytes back",
            self.messages,
            self.got,
            self.message.len()
        )
        .because(error)
    }
}

fn first_difference(expected: &[u8], got: &[u8]) -> Option<(usize, u8, u8)> {
    if expected == got {
        return None;
    }
    expected.iter().zip(got).enumerate().find(|(_, (e, g))| e != g).map(|(i, (e, g))| (i, *e, *g))
}

fn random_message(random: &mut fastrand::Rng, size: usize) -> Rc<[u8]> {
    let mut bytes = vec![0; size];
    random.fill(&mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn echo(flip: Option<usize>) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut message = vec![0; 10_000];
            while stream.read_exact(&mut message).is_ok() {
                if let Some(offset) = flip {
                    message[offset] ^= 1;
                }
                stream.write_all(&message).unwrap();
            }
        });
        port
    }

    #[test]
    fn right_echoes_are_counted_and_timed() {
        let mut load = Load::connect(echo(None), 1, 10_000, 1).unwrap();
        load.verify(3).unwrap();
        assert_eq!(load.verified(), 3);
        let timed = load.turn(Duration::from_millis(20)).unwrap();
        load.verify(1).unwrap();
        assert_eq!(timed.latency.len(), timed.requests);
        assert!(timed.requests > 1 && load.verified() == 4);
    }

    #[test]
    fn a_wrong_byte_is_named() {
        let mut load = Load::connect(echo(Some(4321)), 1, 10_000, 1).unwrap();
        let error = load.verify(1).unwrap_err();
        assert!(
            error.to_string().contains("connection 0, message 1, offset 4321: expected"),
            "{error}"
        );
    }
}
