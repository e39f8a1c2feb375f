//! Opened, and run.

use crate::privileges;
use crate::room::{Ask, Room};
use crate::stand_in;
use std::fmt;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use uncopy_tcp_fast::Service;
use uncopy_tcp_fast::service::QUIET;
use uncopy_tcp_proto::Config;
use uncopy_tcp_proto::time::{MILLISECOND, Nanos};
use uncopy_tcp_routes::{Routes, loopback};
use uncopy_tcp_service::Listening;
use uncopy_tcp_wire::queues;
use uncopy_tcp_wire::xsk::Xsk;

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
    /// The service where programs show their sockets.
    pub name: String,
    /// Connections over the wire, at most.
    pub connections: usize,
    /// Bytes of each of a connection's two buffers, as a power of two.
    pub bits: u8,
    /// Lanes sleep after so long without work.
    pub quiet: Duration,
    /// The user and group that it is to be from then on, by their numbers.
    pub user: Option<(u32, u32)>,
}

impl Options {
    /// Over this device, for the service of this name.
    pub fn over(device: &str, name: &str) -> Self {
        Self {
            device: device.to_owned(),
            name: name.to_owned(),
            connections: 4096,
            bits: 16,
            quiet: QUIET,
            user: None,
        }
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
    service: Arc<Service<Room>>,
    routes: Arc<Routes>,
    wires: Vec<Xsk>,
    stop: OwnedFd,
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
        let opened = queues::open(device, options.connections as u32, LISTENERS);
        let (steer, wires) = step(&format!("the device {device} by AF_XDP"), opened)?;
        let steer = Arc::new(steer);
        step(
            "making accepted sockets, and refusals, take their peer's mark (net.ipv4.tcp_fwmark_accept, fwmark_reflect)",
            stand_in::accept_marks(),
        )?;
        step(
            "a rule and a route for what stands in for other hosts",
            loopback::open(uncopy_tcp_service::ends::STAND_IN, stand_in::TABLE),
        )?;
        step("giving privileges up", privileges::drop_them(options.user))?;
        let routes = Arc::new(step("routes and neighbours (rtnetlink)", Routes::of(index))?);
        let mtu = routes.device().mtu.clamp(576, 65_535) as u16;
        let config = Config {
            flows: options.connections,
            apps: 1,
            secret: std::array::from_fn(|_| fastrand::u8(..)),
            stamp_offset: fastrand::u32(..),
            mtu,
            // What is for nobody here is Linux'.
            reset_strangers: false,
            ack_wait: ACK_WAIT,
            watch_after: WATCH_AFTER,
            ..Config::default()
        };
        let room = Room::new(
            (options.connections, wires.len(), options.bits),
            &options.name,
            routes.clone(),
            steer.clone(),
        );
        let room = step("the lanes' sets", room)?;
        let service = step("the lanes", Service::new(&config, wires.len(), room))?;
        let service = service.quiet(options.quiet).steered_by(steer);
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        Ok(Self { service: Arc::new(service), routes, wires, stop: step("an eventfd", stop)? })
    }

    /// How many queues of the device it has.
    pub fn queues(&self) -> usize {
        self.wires.len()
    }

    /// Who is to be told of programs that listen.
    pub fn listening(&self) -> impl Listening + use<> {
        Told(self.service.clone())
    }

    /// Carries connections until the wire fails.
    ///
    /// # Errors
    /// The wire's: the device is gone.
    pub fn run(self) -> io::Result<()> {
        let Self { service, routes, wires, stop } = self;
        std::thread::scope(|scope| {
            let keeper = std::thread::Builder::new().name("uncopy-routes".into());
            let (told, stop) = (&service, &stop);
            let kept = keeper.spawn_scoped(scope, move || {
                let kept = routes.keep(std::os::fd::AsFd::as_fd(stop), || {
                    told.applications().ask(Ask::Addresses);
                    told.ask();
                });
                // (Who does not hear where its peers are cannot go on.)
                told.stop();
                kept
            })?;
            let result = service.run(wires);
            let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
            let kept = kept.join().expect("it does not panic");
            result.and(kept)
        })
    }
}

struct Told(Arc<Service<Room>>);

impl Listening for Told {
    fn listens(&mut self, at: SocketAddrV4) {
        self.0.applications().ask(Ask::Listens(at));
        self.0.ask();
    }

    fn gone(&mut self) {
        self.0.applications().ask(Ask::Look);
        self.0.ask();
    }
}
