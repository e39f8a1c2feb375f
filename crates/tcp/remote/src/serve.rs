//! A device: opened, and run.

use crate::active_opens::{ActiveOpens, Passed};
use crate::connection_table::{Command, ConnectionTable, Sizes};
use crate::detour::Detour;
use crate::parts::Parts;
use crate::privileges;
use crate::programs::Programs;
use crate::stand_in;
use rustix::event::{PollFd, PollFlags, poll};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use uncopy_tcp_fast::{Service, Wait};
use uncopy_tcp_proto::time::{MILLISECOND, Nanos};
use uncopy_tcp_proto::{Algorithm, Config, Limits};
use uncopy_tcp_routes::{Routes, loopback};
use uncopy_tcp_trace::{Trace, Traced};
use uncopy_tcp_wire::Wire;
use uncopy_tcp_wire::over::{self, Access, Over};
use uncopy_tcp_wire::steer::Steer;

/// Addresses and ports at which may be listened.
const LISTENERS: u32 = 1024;

/// The program answers a wake-up later: so long acknowledgements wait for it, as Linux' do
/// (`TCP_DELACK_MIN`).
const ACK_WAIT: Nanos = 40 * MILLISECOND;
/// Flows that are acknowledged sooner, as those of requests and answers are, never wake the slow
/// path. A fifth of the least timeout.
const WATCH_AFTER: Nanos = 10 * MILLISECOND;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The devices.
    pub devices: Vec<String>,
    /// How each is reached. None: as is best there, or by the other way where that is refused.
    pub way: Option<Access>,
    /// The service where programs register their sockets.
    pub name: String,
    /// Connections over each, at most.
    pub connections: usize,
    /// Bytes of each of a connection's two buffers, as a power of two.
    pub bits: u8,
    /// How lanes wait.
    pub wait: Wait,
    /// How connections slow down of which the program does not say.
    pub congestion: Algorithm,
    /// The limits of one program.
    pub limits: Limits,
    /// Lanes that run for each, at most. None: one for each of its queues.
    pub cores: Option<usize>,
    /// The user and group that it is to be from then on, by their numbers.
    pub user: Option<(u32, u32)>,
    /// It serves all users: one of them gets at most half of its connections and listeners.
    pub shared: bool,
}

impl Options {
    /// Options for this device, and the service of this name.
    pub fn over(device: &str, name: &str) -> Self {
        Self {
            devices: vec![device.to_owned()],
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

    /// The part of one user. (Where it serves all users, the limits are a user's too.)
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
                " (a service over a device is started as root, or with CAP_NET_ADMIN, CAP_NET_RAW, \
                 CAP_BPF and CAP_PERFMON)"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// A device was named twice.
    pub(crate) fn twice(device: &str) -> Self {
        Self {
            what: format!("the device {device}"),
            why: io::Error::new(io::ErrorKind::InvalidInput, "it was named before"),
        }
    }
}

fn step<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|why| Failure { what: what.to_owned(), why: why.into() })
}

/// A device's wire, opened: [`crate::multi_device`] runs it.
pub struct Remote {
    device: String,
    service: Arc<Service<ConnectionTable>>,
    routes: Arc<Routes>,
    wires: Vec<Over>,
    way: Access,
    refused: Option<(Access, io::Error)>,
    lanes: usize,
    stop: OwnedFd,
    why_not: Option<io::Error>,
    trace: Arc<Trace>,
}

/// A device, reached.
struct Reached {
    way: Access,
    steer: Arc<Steer>,
    wires: Vec<Over>,
    refused: Option<(Access, io::Error)>,
}

fn open_device(device: &str, options: &Options) -> Result<Reached, Failure> {
    let by = |way: Access| {
        let opened = over::open(device, way, options.connections as u32, LISTENERS);
        step(&format!("the device {device} by {}", way.name()), opened)
            .map(|(steer, wires)| Reached { way, steer: Arc::new(steer), wires, refused: None })
    };
    if let Some(way) = options.way {
        return by(way);
    }
    let best = step(&format!("the device {device}"), Access::best(device))?;
    by(best).or_else(|refused| match by(best.other()) {
        Ok(reached) => Ok(Reached { refused: Some((best, refused.why)), ..reached }),
        Err(_) => Err(refused),
    })
}

/// All of it that needs privileges.
pub(crate) struct Opened {
    device: String,
    index: u32,
    reached: Reached,
    routes: Arc<Routes>,
    active_opens: Option<ActiveOpens>,
    why_not: Option<io::Error>,
}

impl Opened {
    /// # Errors
    /// Returns what is missing: a device, a right, something of the kernel's.
    pub fn of(device: &str, options: &Options) -> Result<Self, Failure> {
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
        let reached = open_device(device, options)?;
        step(
            "making accepted sockets, and refusals, take their peer's mark \
             (net.ipv4.tcp_fwmark_accept, fwmark_reflect)",
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
        let opened = detour.and_then(|detour| Ok(ActiveOpens::new(detour)?));
        let (active_opens, why_not) = match opened {
            Ok(active_opens) => (Some(active_opens), None),
            Err(error) => (None, Some(error)),
        };
        Ok(Self { device: device.to_owned(), index, reached, routes, active_opens, why_not })
    }

    /// The device's number.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// Gives up privileges once all devices are open.
pub(crate) fn give_up(options: &Options) -> Result<(), Failure> {
    step("giving privileges up", privileges::drop_them(options.user, privileges::OF_WIRES))
}

impl Remote {
    /// `trace`: of all devices of a service.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn of(
        opened: Opened,
        options: &Options,
        trace: &Arc<Trace>,
    ) -> Result<Self, Failure> {
        let Opened { device, reached, routes, active_opens, why_not, .. } = opened;
        let Reached { way, steer, wires, refused } = reached;
        let mtu = routes.device().mtu.clamp(576, 65_535) as u16;
        // (Each that uses its number has a listener or a connection; and one number is for all
        // others.)
        let programs = options.connections + LISTENERS as usize + 1;
        let programs = u16::try_from(programs).unwrap_or(u16::MAX);
        let config = Config {
            flows: options.connections,
            apps: programs.into(),
            secret: std::array::from_fn(|_| fastrand::u8(..)),
            stamp_offset: fastrand::u32(..),
            mtu,
            most: wires[0].offers().segment.map_or(0, u32::from),
            // Segments for nobody here are Linux'.
            reset_strangers: false,
            ack_wait: ACK_WAIT,
            watch_after: WATCH_AFTER,
            ..Config::default()
        };
        let lanes = options.cores.map_or(wires.len(), |cores| cores.clamp(1, wires.len()));
        let connections = ConnectionTable::new(
            Sizes {
                flows: options.connections,
                lanes: wires.len(),
                carrying: lanes,
                bits: options.bits,
            },
            options.congestion,
            (options.parts(), Programs::new(programs, options.limits)),
            &options.name,
            routes.clone(),
            steer.clone(),
            active_opens,
        );
        let connections = step("the lanes' sets", connections)?;
        let service = step("the lanes", Service::new(&config, wires.len(), connections))?;
        let service = service.waits(options.wait).at_most(lanes).steered_by(steer);
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        let stop = step("an eventfd", stop)?;
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
            trace: trace.clone(),
        })
    }

    /// How it reaches the device.
    pub fn way(&self) -> Access {
        self.way
    }

    /// The way that would have been better, and why it is refused, where nobody has said how.
    pub fn refused(&self) -> Option<&(Access, io::Error)> {
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
    pub fn why_no_active_opens(&self) -> Option<&io::Error> {
        self.why_not.as_ref()
    }

    /// The device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The service that its threads run.
    pub(crate) fn service(&self) -> &Arc<Service<ConnectionTable>> {
        &self.service
    }

    /// Carries connections until the wire fails.
    ///
    /// # Errors
    /// The wire's: the device is gone.
    pub(crate) fn run(self) -> io::Result<()> {
        let Self { service, routes, wires, stop, trace, .. } = self;
        let wires = wires.into_iter().map(|wire| Traced::new(wire, trace.clone())).collect();
        std::thread::scope(|scope| {
            let keeper = std::thread::Builder::new().name("uncopy-routes".into());
            let (service, stop) = (&service, &stop);
            let kept = keeper.spawn_scoped(scope, move || {
                let kept = routes.keep(stop.as_fd(), || {
                    service.applications().command(Command::Addresses);
                    service.ask();
                });
                // (Without news of routes it cannot go on.)
                service.stop();
                kept
            })?;
            let connects = std::thread::Builder::new().name("uncopy-connects".into());
            let hears = connects.spawn_scoped(scope, move || hear(service, stop))?;
            let result = service.run(wires);
            let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
            let kept = kept.join().expect("it does not panic");
            let _ = hears.join();
            result.and(kept)
        })
    }
}

/// Programs that connect: their segments, until there are none any more.
fn hear(service: &Service<ConnectionTable>, stop: &OwnedFd) {
    let connections = service.applications();
    let Some(active_opens) = connections.active_opens() else { return };
    let mut packet = [0; 2048];
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(active_opens.detour().descriptor(), PollFlags::IN),
            PollFd::from_borrowed_fd(active_opens.timer(), PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_ok_and(|_| !fds[2].revents().is_empty()) {
            return;
        }
        if !fds[1].revents().is_empty() {
            active_opens.purge();
        }
        loop {
            let command = match active_opens.detour().read(&mut packet) {
                Ok(Some(length)) => match active_opens.passes(&packet[..length]) {
                    None => continue,
                    Some(Passed::Opens(opening)) => Command::Connect(Box::new(opening)),
                    Some(Passed::Again(before)) => Command::Closes(before),
                },
                Ok(None) => break,
                // Somebody has taken the device away: Linux connects.
                Err(_) => {
                    connections.command(Command::NoDetour);
                    return service.ask();
                }
            };
            connections.command(command);
            service.ask();
        }
    }
}
