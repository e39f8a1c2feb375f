//! Opened, and run.

use crate::detour::Detour;
use crate::listeners::Listens;
use crate::options::congestion;
use crate::outward::{Outward, Passed};
use crate::parts::Parts;
use crate::privileges;
use crate::programs::Programs;
use crate::room::{Ask, Room};
use crate::stand_in;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::SendFlags;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uncopy_tcp_fast::{Service, Wait};
use uncopy_tcp_proto::time::{MILLISECOND, Nanos};
use uncopy_tcp_proto::{Algorithm, Config, Limits};
use uncopy_tcp_routes::{Routes, loopback};
use uncopy_tcp_service::{Lent, Listening, Owner, Wires};
use uncopy_tcp_trace::chosen::{Chosen, Flow};
use uncopy_tcp_trace::{Trace, Traced};
use uncopy_tcp_wire::Wire;
use uncopy_tcp_wire::over::{self, Over, Way};
use uncopy_tcp_wire::steer::Steer;

/// Addresses and ports at which may be listened.
const LISTENERS: u32 = 1024;

/// The program answers a wake-up later: so long acknowledgements wait for it, as Linux' do (`TCP_DELACK_MIN`).
const ACK_WAIT: Nanos = 40 * MILLISECOND;
/// Flows that are acknowledged sooner, as those of requests and answers are, never wake the slow path. A fifth of the least timeout.
const WATCH_AFTER: Nanos = 10 * MILLISECOND;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device.
    pub device: String,
    /// How it is reached. None: as is best there, or by the other way where that is refused.
    pub way: Option<Way>,
    /// The service where programs show their sockets.
    pub name: String,
    /// Connections over the wire, at most.
    pub connections: usize,
    /// Bytes of each of a connection's two buffers, as a power of two.
    pub bits: u8,
    /// How lanes wait.
    pub wait: Wait,
    /// How connections slow down of which the program does not say.
    pub congestion: Algorithm,
    /// What one program may have.
    pub limits: Limits,
    /// Lanes that run, at most. None: one for each of the device's queues.
    pub cores: Option<usize>,
    /// The user and group that it is to be from then on, by their numbers.
    pub user: Option<(u32, u32)>,
    /// It serves all users: one of them gets at most half of its connections and listeners.
    pub shared: bool,
}

impl Options {
    /// Over this device, for the service of this name.
    pub fn over(device: &str, name: &str) -> Self {
        Self {
            device: device.to_owned(),
            way: None,
            name: name.to_owned(),
            connections: 4096,
            bits: 16,
            wait: Wait::Adaptive,
            congestion: Algorithm::default(),
            limits: Limits::default(),
            cores: None,
            user: None,
            shared: false,
        }
    }

    /// What one user may have. (Where it serves all users, the limits are a user's too.)
    fn parts(&self) -> Parts {
        let Limits { connections, buffers, .. } = self.limits;
        let most = (connections as usize).min((buffers >> (self.bits + 1)) as usize);
        let parts = Parts::new(self.connections, LISTENERS as usize, self.shared);
        if self.shared { parts.at_most(most) } else { parts }
    }
}

/// Why it cannot serve.
#[derive(Debug)]
pub struct Failure {
    what: String,
    why: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        if self.why.kind() == io::ErrorKind::PermissionDenied {
            write!(
                f,
                " (a service over a device is started as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON)"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

fn step<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|why| Failure { what: what.to_owned(), why: why.into() })
}

/// A device's wire, opened: connections over it are carried while [`run`](Self::run) runs.
pub struct Remote {
    device: String,
    service: Arc<Service<Room>>,
    routes: Arc<Routes>,
    wires: Vec<Over>,
    way: Way,
    refused: Option<(Way, io::Error)>,
    lanes: usize,
    stop: OwnedFd,
    why_not: Option<io::Error>,
    trace: Arc<Trace>,
}

/// A device, reached.
struct Reached {
    way: Way,
    steer: Arc<Steer>,
    wires: Vec<Over>,
    refused: Option<(Way, io::Error)>,
}

fn reach(options: &Options) -> Result<Reached, Failure> {
    let by = |way: Way| {
        let opened = over::open(&options.device, way, options.connections as u32, LISTENERS);
        step(&format!("the device {} by {}", options.device, way.name()), opened)
            .map(|(steer, wires)| Reached { way, steer: Arc::new(steer), wires, refused: None })
    };
    if let Some(way) = options.way {
        return by(way);
    }
    let best = step(&format!("the device {}", options.device), Way::best(&options.device))?;
    match by(best) {
        Err(Failure { why, .. }) if why.kind() != io::ErrorKind::PermissionDenied => {
            by(best.other()).map(|reached| Reached { refused: Some((best, why)), ..reached })
        }
        reached => reached,
    }
}

impl Remote {
    /// Opens all that needs privileges, and gives those up that it needs no more. To be called before this process has other threads.
    ///
    /// # Errors
    /// What is missing: a device, a right, something of the kernel's.
    pub fn open(options: &Options) -> Result<Self, Failure> {
        let device = &options.device;
        let index = rustix::net::netdevice::name_to_index(
            &rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::DGRAM,
                None,
            )
            .map_err(|why| Failure { what: "a socket".into(), why: why.into() })?,
            device,
        );
        let index = step(&format!("the device {device}"), index)?;
        let Reached { way, steer, wires, refused } = reach(options)?;
        step(
            "making accepted sockets, and refusals, take their peer's mark (net.ipv4.tcp_fwmark_accept, fwmark_reflect)",
            stand_in::accept_marks(),
        )?;
        step(
            "a rule and a route for what stands in for other hosts",
            loopback::open(uncopy_tcp_service::ends::STAND_IN, stand_in::TABLE),
        )?;
        let routes = Arc::new(step("routes and neighbours (rtnetlink)", Routes::of(index))?);
        let source = routes.addresses().first().copied();
        let source = source.ok_or_else(|| io::Error::other("the device has no address"));
        let detour = source.and_then(|source| Detour::open(index, source));
        let (outward, why_not) = match detour.and_then(|detour| Ok(Outward::new(detour)?)) {
            Ok(outward) => (Some(outward), None),
            Err(error) => (None, Some(error)),
        };
        step("giving privileges up", privileges::drop_them(options.user, privileges::OF_WIRES))?;
        let mtu = routes.device().mtu.clamp(576, 65_535) as u16;
        // (Each that uses its number has a listener or a connection; and one number is for all others.)
        let programs = options.connections + LISTENERS as usize + 1;
        let programs = u16::try_from(programs).unwrap_or(u16::MAX);
        let config = Config {
            flows: options.connections,
            apps: programs.into(),
            secret: std::array::from_fn(|_| fastrand::u8(..)),
            stamp_offset: fastrand::u32(..),
            mtu,
            most: wires[0].offers().segment.map_or(0, u32::from),
            // What is for nobody here is Linux'.
            reset_strangers: false,
            ack_wait: ACK_WAIT,
            watch_after: WATCH_AFTER,
            ..Config::default()
        };
        let lanes = options.cores.map_or(wires.len(), |cores| cores.clamp(1, wires.len()));
        let room = Room::new(
            (options.connections, wires.len(), lanes, options.bits),
            options.congestion,
            (options.parts(), Programs::new(programs, options.limits)),
            &options.name,
            routes.clone(),
            steer.clone(),
            outward,
        );
        let room = step("the lanes' sets", room)?;
        let service = step("the lanes", Service::new(&config, wires.len(), room))?;
        let service = service.waits(options.wait).at_most(lanes).steered_by(steer);
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        let stop = step("an eventfd", stop)?;
        let device = device.clone();
        Ok(Self {
            device,
            service: Arc::new(service),
            routes,
            wires,
            way,
            refused,
            lanes,
            stop,
            why_not,
            trace: Arc::default(),
        })
    }

    /// How it reaches the device.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The way that would have been better, and why it is refused, where nobody has said how.
    pub fn refused(&self) -> Option<&(Way, io::Error)> {
        self.refused.as_ref()
    }

    /// How many queues of the device, or of the TAP beside it, it has.
    pub fn queues(&self) -> usize {
        self.wires.len()
    }

    /// How many lanes may run at once.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Why programs that connect are Linux's, if they are.
    pub fn why_not_outward(&self) -> Option<&io::Error> {
        self.why_not.as_ref()
    }

    /// Who is to be told of programs that listen.
    pub fn listening(&self) -> impl Listening + use<> {
        let device = self.device.clone();
        let whose = Mutex::default();
        Told { service: self.service.clone(), trace: self.trace.clone(), device, whose }
    }

    /// Carries connections until the wire fails.
    ///
    /// # Errors
    /// The wire's: the device is gone.
    pub fn run(self) -> io::Result<()> {
        let Self { service, routes, wires, stop, trace, .. } = self;
        let wires = wires.into_iter().map(|wire| Traced::new(wire, trace.clone())).collect();
        std::thread::scope(|scope| {
            let keeper = std::thread::Builder::new().name("uncopy-routes".into());
            let (told, stop) = (&service, &stop);
            let kept = keeper.spawn_scoped(scope, move || {
                let kept = routes.keep(stop.as_fd(), || {
                    told.applications().ask(Ask::Addresses);
                    told.ask();
                });
                // (Who does not hear where its peers are cannot go on.)
                told.stop();
                kept
            })?;
            let connects = std::thread::Builder::new().name("uncopy-connects".into());
            let hears = connects.spawn_scoped(scope, move || hear(told, stop))?;
            let result = service.run(wires);
            let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
            let kept = kept.join().expect("it does not panic");
            let _ = hears.join();
            result.and(kept)
        })
    }
}

/// Programs that connect: their segments, until there are none any more.
fn hear(service: &Service<Room>, stop: &OwnedFd) {
    let room = service.applications();
    let Some(outward) = room.outward() else { return };
    let mut packet = [0; 2048];
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(outward.detour().descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(outward.bell(), PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_ok_and(|_| !fds[2].revents().is_empty()) {
            return;
        }
        if !fds[1].revents().is_empty() {
            outward.purge();
        }
        loop {
            let ask = match outward.detour().read(&mut packet) {
                Ok(Some(length)) => match outward.passes(&packet[..length]) {
                    None => continue,
                    Some(Passed::Opens(opening)) => Ask::Connect(Box::new(opening)),
                    Some(Passed::Again(before)) => Ask::Closes(before),
                },
                Ok(None) => break,
                // Somebody has taken the device away: Linux connects.
                Err(_) => {
                    room.ask(Ask::NoDetour);
                    return service.ask();
                }
            };
            room.ask(ask);
            service.ask();
        }
    }
}

struct Told {
    service: Arc<Service<Room>>,
    trace: Arc<Trace>,
    device: String,
    /// Who has the frames written.
    whose: Mutex<Option<u64>>,
}

impl Listening for Told {
    fn listens(&self, (program, owner): (u64, Owner), at: SocketAddrV4, socket: BorrowedFd) {
        let Ok(stat) = rustix::fs::fstat(socket) else { return };
        let shown = Listens { at, user: owner.uid(), inode: stat.st_ino, signs: false };
        let program = (program, owner);
        self.service.applications().ask(Ask::Listens(program, shown, congestion(socket)));
        self.service.ask();
    }

    fn withdraws(&self, at: SocketAddrV4, answer: Lent) {
        self.service.applications().ask(Ask::Withdraw(at, Some(answer)));
        self.service.ask();
    }

    fn gone(&self, program: u64) {
        let _ = self.end_trace(program);
        self.service.applications().ask(Ask::Gone(program));
        self.service.ask();
    }

    fn trace(
        &self,
        whose: u64,
        (address, port): (Option<Ipv4Addr>, Option<u16>),
        file: OwnedFd,
    ) -> Result<(), Errno> {
        let mut holder = self.whose.lock().unwrap_or_else(PoisonError::into_inner);
        if holder.is_some() {
            return Err(Errno::BUSY);
        }
        // What is written must never be waited for: a lane writes it.
        if !FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode).is_file() {
            return Err(Errno::INVAL);
        }
        let all = address.is_none() && port.is_none();
        let flows = if all { vec![] } else { vec![Flow::of(address, port)] };
        let begun = self.trace.begin(Chosen::new(flows), &self.device, Box::new(File::from(file)));
        begun.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        *holder = Some(whose);
        Ok(())
    }

    fn end_trace(&self, whose: u64) -> Result<u64, Errno> {
        let mut holder = self.whose.lock().unwrap_or_else(PoisonError::into_inner);
        holder.take_if(|holder| *holder == whose).ok_or(Errno::INVAL)?;
        let ended = self.trace.end();
        ended.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(self.trace.frames())
    }

    fn wired(&self) -> Wires {
        let (to, told) = channel();
        self.service.applications().ask(Ask::Tell(to));
        self.service.ask();
        // (Where it is behind, who looks sees the rest.)
        told.recv_timeout(Duration::from_millis(500)).unwrap_or_default()
    }

    fn info(&self, ends: [SocketAddrV4; 2], answer: Lent) {
        self.service.applications().ask(Ask::TellOf(ends, answer));
        self.service.ask();
    }

    fn carries_connects(&self) -> bool {
        self.service.applications().outward().is_some()
    }

    fn connects(&self, program: (u64, Owner), to: SocketAddrV4, socket: Lent, answer: OwnedFd) {
        let room = self.service.applications();
        if let Some(before) = room.outward().and_then(|outward| outward.frees(&socket)) {
            room.ask(Ask::Closes(before));
            self.service.ask();
        }
        let taken = room.takes(program, to, socket);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Some(cookie) = taken
            && rustix::net::send(&answer, &[1], flags).is_err()
        {
            // Who has not waited connects by Linux. (What was sent here meanwhile is sent again.)
            self.closes(program.0, cookie);
        }
    }

    fn closes(&self, program: u64, cookie: u64) {
        if let Some(outward) = self.service.applications().outward() {
            self.service.applications().ask(Ask::Closes(outward.before_of(program, cookie)));
            self.service.ask();
        }
    }
}
