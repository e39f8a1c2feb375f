//! A host that is Linux: a network namespace behind a TAP device, and threads in it, one for each
//! flow.
//!
//! unsafe: the device's ioctl.

use crate::facts::{End, Known};
use crate::frame::{PORT, RECEIVER, address, hardware};
use crate::stream::{Received, fill};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// See above. It goes away with this value.
#[derive(Debug)]
pub struct Linux {
    tap: OwnedFd,
    namespace: String,
}

/// The flows that threads of hosts share.
#[derive(Debug)]
pub struct Flows {
    /// Bytes that the receiver has of each, in the order in which they came.
    pub received: Vec<AtomicU64>,
    /// Flows that came.
    pub accepted: AtomicU64,
    /// All is over.
    pub stop: AtomicBool,
    /// Whether a byte was wrong. (No flow has an end before all have.)
    pub wrong: AtomicBool,
    /// The facts of both ends' connections.
    pub known: Known,
}

impl Flows {
    /// So many.
    pub fn new(flows: usize) -> Self {
        Self {
            received: (0..flows).map(|_| AtomicU64::new(0)).collect(),
            accepted: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            wrong: AtomicBool::new(false),
            known: Known::default(),
        }
    }

    /// One more: the next number.
    pub fn accept(&self) -> usize {
        self.accepted.fetch_add(1, Relaxed) as usize
    }
}

fn ip(words: &str) -> io::Result<()> {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    let why = String::from_utf8_lossy(&output.stderr);
    let refused = || io::Error::other(format!("'ip {words}' was refused: {}", why.trim()));
    if output.status.success() { Ok(()) } else { Err(refused()) }
}

impl Linux {
    /// Host number `host`, of as many others as the link has. `ecn`: its connections ask for marks,
    /// as the core's do.
    ///
    /// # Errors
    /// No right to it (root's); no `/dev/net/tun`, or no `ip`.
    pub fn new(host: usize, others: impl Iterator<Item = usize>, ecn: bool) -> io::Result<Self> {
        // Of this process alone, also where it has several links at a time.
        static HOSTS: AtomicU64 = AtomicU64::new(0);
        let name = format!("ucl{}h{}", std::process::id(), HOSTS.fetch_add(1, Relaxed));
        ip(&format!("netns add {name}"))?;
        let tap = match tap(&name) {
            Ok(tap) => tap,
            Err(error) => {
                let _ = ip(&format!("netns del {name}"));
                return Err(error);
            }
        };
        let linux = Self { tap, namespace: name.clone() };
        let text = |hardware: [u8; 6]| hardware.map(|byte| format!("{byte:02x}")).join(":");
        ip(&format!("link set {name} address {}", text(hardware(host))))?;
        ip(&format!("link set {name} txqueuelen 1000 netns {name}"))?;
        ip(&format!("-n {name} addr add {}/24 dev {name}", address(host)))?;
        ip(&format!("-n {name} link set {name} up"))?;
        for other in others.filter(|other| *other != host) {
            let (to, way) = (address(other), text(hardware(other)));
            ip(&format!("-n {name} neigh replace {to} lladdr {way} dev {name}"))?;
        }
        linux.set("tcp_ecn", if ecn { "1" } else { "0" })?;
        // (Also where a SYN was lost: the core's are sent again as they were.)
        linux.set("tcp_ecn_fallback", "0")?;
        Ok(linux)
    }

    /// One of the namespace's own settings of TCP: which namespace a file of `/proc/sys/net` is of,
    /// who opens it decides.
    fn set(&self, name: &'static str, value: &'static str) -> io::Result<()> {
        let namespace = self.namespace.clone();
        let thread = std::thread::spawn(move || {
            Self::enter(&namespace)?;
            std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
        });
        let done = thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
        done.map_err(|e| io::Error::other(format!("cannot set net.ipv4.{name} to {value}: {e}")))
    }

    /// Where frames come from.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }

    /// The next frame that it sends.
    ///
    /// # Errors
    /// The device's.
    pub fn sent(&self, buffer: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
        match rustix::io::read(&self.tap, &mut *buffer) {
            Ok(length) => Ok(Some(buffer[..length].to_vec())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A frame for it. A frame that finds no room there is lost.
    pub fn give(&self, frame: &[u8]) {
        let _ = rustix::io::write(&self.tap, frame);
    }

    fn enter(namespace: &str) -> io::Result<()> {
        let path = format!("/run/netns/{namespace}");
        let namespace = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `what` in a thread that is there.
    fn spawn(&self, what: impl FnOnce() -> io::Result<()> + Send + 'static) {
        let namespace = self.namespace.clone();
        std::thread::spawn(move || Self::enter(&namespace).and_then(|()| what()));
    }

    /// Its threads receive what comes. It listens when this returns.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn receive(&self, flows: &Arc<Flows>, congestion: &str) -> io::Result<()> {
        let (flows, congestion) = (flows.clone(), congestion.to_owned());
        let (tell, told) = std::sync::mpsc::channel();
        self.spawn(move || {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT));
            let listener = match listener {
                Ok(listener) => listener,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(());
                }
            };
            set_tcp_congestion(&listener, &congestion)?;
            let _ = tell.send(Ok(()));
            for _ in 0..flows.received.len() {
                let (stream, _) = listener.accept()?;
                let flows = flows.clone();
                std::thread::spawn(move || take(stream, &flows));
            }
            Ok(())
        });
        told.recv().map_err(io::Error::other)?
    }

    /// Its threads send so many flows, of these names.
    pub fn send(&self, flows: &Arc<Flows>, names: std::ops::Range<u64>, congestion: &str) {
        for name in names {
            let (flows, congestion) = (flows.clone(), congestion.to_owned());
            self.spawn(move || give(name, &flows, &congestion));
        }
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}

/// A TAP device of this name.
fn tap(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tap = open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: plain old data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: reads and writes the request, which lives here.
    if unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(tap)
}

/// A thread looks so often whether all is over.
const LOOKS: Duration = Duration::from_millis(200);

fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn take(mut stream: TcpStream, flows: &Flows) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOKS))?;
    flows.known.tell_of(End::To, &stream)?;
    let Some(counter) = flows.received.get(flows.accept()) else { return Ok(()) };
    let (mut received, mut buffer) = (Received::default(), vec![0; 64 << 10]);
    while !flows.stop.load(Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Err(error) if waits(&error) => {}
            got => {
                if received.compare(&buffer[..got?]).is_err() {
                    flows.wrong.store(true, Relaxed);
                    return Ok(());
                }
                counter.store(received.bytes, Relaxed);
            }
        }
    }
    Ok(())
}

fn give(name: u64, flows: &Flows, congestion: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect((address(RECEIVER), PORT))?;
    set_tcp_congestion(&stream, congestion)?;
    stream.set_write_timeout(Some(LOOKS))?;
    flows.known.tell_of(End::From, &stream)?;
    let (mut at, mut piece) = (0, vec![0; 16 << 10]);
    while !flows.stop.load(Relaxed) {
        fill(name, at, &mut piece);
        match stream.write(&piece) {
            Err(error) if waits(&error) => {}
            sent => at += sent? as u64,
        }
    }
    Ok(())
}
