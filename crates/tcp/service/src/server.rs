//! The service: programs come, and are heard until they go. Asleep but for that; it is not in the
//! way of any byte.
//!
//! One thread where it serves one user. Where it serves all, one for each of them besides: what a
//! program sends can hold up who looks at it (`requests`).

use crate::diag::Diag;
use crate::ends;
use crate::listening::Listening;
use crate::options::Options;
use crate::owner::{Owner, Serves};
use crate::proof::Looking;
use crate::registry::Registry;
use crate::requests::{STOP, ServerState, bell};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Why there is no service.
#[derive(Debug)]
pub enum ServiceError {
    /// Another one is there.
    Running(String),
    /// A system call failed.
    System(&'static str, Errno),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Running(name) => {
                write!(
                    f,
                    "a service already runs here (its socket is @{name}): use that one, or end it \
                     first"
                )
            }
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServiceError {}

/// The service, bound to its name.
pub struct Service {
    options: Options,
    serves: Serves,
    listener: OwnedFd,
    stop: Arc<OwnedFd>,
    listening: Option<Box<dyn Listening>>,
    diag: Diag,
    looking: Looking,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Service(@{}, {:?})", self.options.name, self.serves)
    }
}

/// Ends a service from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Ends it.
    pub fn stop(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A service that runs, as its main thread has it.
struct Running {
    options: Options,
    shared: Arc<ServerState>,
    listener: OwnedFd,
    set: Arc<OwnedFd>,
    /// So that a program that comes where no descriptor is left can be sent away.
    spare: Option<OwnedFd>,
    looking: Looking,
}

const LISTENER: u64 = 0;
/// No program's number: somebody has nudged.
const NUDGE: u64 = u64::MAX - 1;

impl Service {
    /// Takes the name. From now on programs can connect; they are answered by [`run`](Self::run).
    pub fn bind(options: Options) -> Result<Self, ServiceError> {
        let system = |what| move |error| ServiceError::System(what, error);
        // Without these it could believe nobody.
        let diag = Diag::open().map_err(system("sock_diag"))?;
        let looking = Looking::open().map_err(system("/proc/self/fdinfo"))?;
        let listener = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(system("socket"))?;
        let address = SocketAddrUnix::new_abstract_name(options.name.as_bytes())
            .map_err(system("the name"))?;
        match rustix::net::bind(&listener, &address) {
            Err(Errno::ADDRINUSE) => return Err(ServiceError::Running(options.name)),
            other => other.map_err(system("bind"))?,
        }
        rustix::net::listen(&listener, 1024).map_err(system("listen"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(system("eventfd"))?;
        let (serves, stop) = (Serves::ItsUser, Arc::new(stop));
        Ok(Self { options, serves, listener, stop, listening: None, diag, looking })
    }

    /// Connections from other hosts are taken by this one.
    pub fn listening(mut self, listening: impl Listening + 'static) -> Self {
        self.listening = Some(Box::new(listening));
        self
    }

    /// The users whom it serves.
    pub fn serving(mut self, whom: Serves) -> Self {
        self.serves = whom;
        self
    }

    /// The handle that ends it.
    pub fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves until it is stopped, or idle for long enough.
    pub fn run(self) -> Result<(), ServiceError> {
        let system = |what| move |error| ServiceError::System(what, error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create1"))?;
        let Self { options, serves, listener, stop, listening, diag, looking } = self;
        let shared = ServerState {
            registry: Mutex::new(Registry::new(serves, options.limits)),
            listening,
            diag,
            namespace: ends::network_namespace(&listener),
            relays: Arc::default(),
            nudge: bell().map_err(system("eventfd"))?,
            stop,
        };
        let add = |fd: &OwnedFd, data| {
            let data = epoll::EventData::new_u64(data);
            epoll::add(&set, fd, data, epoll::EventFlags::IN).map_err(system("epoll_ctl"))
        };
        add(&listener, LISTENER)?;
        add(&shared.stop, STOP)?;
        add(&shared.nudge, NUDGE)?;
        let (shared, set) = (Arc::new(shared), Arc::new(set));
        Running { options, shared, listener, set, spare: spare(), looking }.run()
    }
}

impl Running {
    fn run(mut self) -> Result<(), ServiceError> {
        let set = self.set.clone();
        let mut idle_since = Instant::now();
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 64];
        loop {
            let now = Instant::now();
            let relayed = Arc::strong_count(&self.shared.relays) > 1;
            let (has_programs, expires) = self.shared.registry().waits_for();
            let has_programs = relayed || has_programs;
            if has_programs {
                idle_since = now;
            }
            let idle_ends =
                self.options.ends_idle.filter(|_| !has_programs).map(|idle| idle_since + idle);
            if idle_ends.is_some_and(|end| end <= now) {
                return Ok(());
            }
            // (A relay that ends does not say so.)
            let relays_end =
                relayed.then(|| self.options.ends_idle.map(|idle| now + idle)).flatten();
            let until = [idle_ends, relays_end, expires].into_iter().flatten().min();
            let timeout = until.map(|until| {
                let left = until.saturating_duration_since(now) + Duration::from_millis(1);
                rustix::event::Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let count = match epoll::wait(&set, &mut events, timeout.as_ref()) {
                Err(Errno::INTR) => 0,
                other => other.map_err(|error| ServiceError::System("epoll_wait", error))?,
            };
            for event in &events[..count] {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept(),
                    NUDGE => _ = rustix::io::read(&self.shared.nudge, &mut [0; 8]),
                    program => self.shared.serve(program, &mut self.looking),
                }
            }
            self.shared.registry().expire();
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match rustix::net::accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE) => {
                // Else it would wait for an answer, and the listener say so again and again.
                drop(self.spare.take());
                drop(rustix::net::accept_with(&self.listener, flags));
                self.spare = spare();
                return;
            }
            Err(_) => return,
        };
        let Some(peer) = ends::peer(&socket) else { return };
        let mut registry = self.shared.registry();
        // A user whom it does not serve learns no more than that somebody is here.
        let Some(owner) = registry.serves.owner_of(peer) else { return };
        let closer = registry.user(owner).quota.closer.clone();
        let socket = Arc::new(socket);
        let comes = self
            .set_of(&mut registry, owner)
            .and_then(|set| registry.comes(&socket, (owner, peer.0), set));
        drop(registry);
        if let (Err(_), Some(socket)) = (comes, Arc::into_inner(socket)) {
            // (It may have sent what is not to be closed here.)
            closer.close(socket, None);
        }
    }

    /// Where this owner's programs are waited for.
    fn set_of(&self, registry: &mut Registry, owner: Owner) -> Result<Arc<OwnedFd>, Errno> {
        if registry.serves == Serves::ItsUser {
            return Ok(self.set.clone());
        }
        let known = registry.user(owner).set.clone();
        known.map_or_else(|| self.hears(registry, owner), Ok)
    }

    /// A thread for a user.
    fn hears(&self, registry: &mut Registry, owner: Owner) -> Result<Arc<OwnedFd>, Errno> {
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let stop = epoll::EventData::new_u64(STOP);
        epoll::add(&set, &self.shared.stop, stop, epoll::EventFlags::IN)?;
        let (shared, own) = (self.shared.clone(), set.clone());
        let thread = std::thread::Builder::new().name(format!("uncopy-{}", owner.uid()));
        let spawned = thread.spawn(move || shared.hears(owner, &own));
        spawned.map_err(|_| Errno::AGAIN)?;
        registry.user(owner).set = Some(set.clone());
        Ok(set)
    }
}

/// A descriptor that is good for nothing.
fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}
