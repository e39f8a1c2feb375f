//! The loop: programs come, show sockets, and go. One thread, asleep but for that; it is not in the way of any byte.

use crate::client;
use crate::ends::{self, EndName};
use crate::linger::{Came, Lingering};
use crate::matching::{Shown, Waiting};
use crate::program::Program;
use crate::protocol::{self, DOOR_COUNT, Message, Reason, VERSION};
use crate::regions::Regions;
use crate::relay;
use crate::state::{self, State};
use crate::wired::Wires;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use uncopy_tcp_shared::layout::PAGE;

/// What one program may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections.
    pub flows: usize,
    /// Bytes of memory that its connections really use.
    pub bytes: u64,
}

impl Default for Limits {
    /// All the ports there are, and a quarter of the machine's memory.
    fn default() -> Self {
        let info = total_memory();
        Self { flows: 65_536, bytes: info / 4 }
    }
}

/// Who carries connections between this host's programs and other hosts.
pub trait Listening: Send {
    /// This program, of this user's, has shown that it listens here, by this socket.
    fn listens(&mut self, program: (u64, u32), at: SocketAddrV4, socket: BorrowedFd);
    /// This program has gone: it may have been the last that listens somewhere.
    fn gone(&mut self, program: u64);
    /// Frames of connections with this end, as far as it matters, are written to this file, for who has this number.
    ///
    /// # Errors
    /// EBUSY: somebody else's are already. Those of the file.
    fn trace(
        &mut self,
        whose: u64,
        end: (Option<Ipv4Addr>, Option<u16>),
        file: OwnedFd,
    ) -> Result<(), Errno>;
    /// No more, if it was this one who asked. How many were.
    ///
    /// # Errors
    /// What kept one from being written.
    fn end_trace(&mut self, whose: u64) -> Result<u64, Errno>;
    /// What there is to tell of the connections that it carries.
    fn wired(&mut self) -> Wires;
    /// It carries connections that programs open.
    fn carries_connects(&self) -> bool;
    /// A program is about to connect this socket. A byte is to come by `answer` if this one carries the connection.
    fn connects(&mut self, program: u64, to: SocketAddrV4, socket: OwnedFd, answer: OwnedFd);
    /// The program has closed such a socket, of this cookie, before it was connected.
    fn closes(&mut self, cookie: u64);
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rendezvous' name.
    pub name: String,
    /// Limits of each program.
    pub limits: Limits,
    /// End when the last program has gone, or none came, this long ago.
    pub ends_idle: Option<Duration>,
}

impl Options {
    /// This user's service.
    pub fn of_this_user() -> Self {
        Self::of_user(rustix::process::geteuid().as_raw())
    }

    /// The service of the user of this number.
    pub fn of_user(uid: u32) -> Self {
        Self {
            name: format!("uncopy-tcp-{uid}"),
            limits: Limits::default(),
            ends_idle: Some(Duration::from_secs(1)),
        }
    }
}

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
                    "a service already runs here (its socket is @{name}): use that one, or end it first"
                )
            }
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for ServiceError {}

/// At most so many connections, each with two full rings (32 MB), are given past the limit of bytes.
const LOOKS: usize = 64;

/// The service, bound to its name.
pub struct Service {
    options: Options,
    listener: OwnedFd,
    stop: Arc<OwnedFd>,
    set: Arc<OwnedFd>,
    programs: HashMap<u64, Program>,
    last_program: u64,
    waiting: Waiting,
    regions: Regions,
    since: SystemTime,
    listening: Option<Box<dyn Listening>>,
    /// Held once more by each connection that is relayed.
    relays: Arc<()>,
    lingering: Arc<Lingering>,
    /// So that who comes where no descriptor is left can be sent away.
    spare: Option<OwnedFd>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Service(@{}, {} programs)", self.options.name, self.programs.len())
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

impl Service {
    /// Takes the name. From now on programs can connect; they are answered by [`run`](Self::run).
    pub fn bind(options: Options) -> Result<Self, ServiceError> {
        let system = |what| move |error| ServiceError::System(what, error);
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
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("epoll_create1"))?;
        Ok(Self {
            options,
            listener,
            stop: Arc::new(stop),
            set: Arc::new(set),
            programs: HashMap::new(),
            last_program: 0,
            waiting: Waiting::default(),
            regions: Regions::new(),
            since: SystemTime::now(),
            listening: None,
            relays: Arc::default(),
            lingering: Arc::default(),
            spare: spare(),
        })
    }

    /// Connections from other hosts are taken by this one.
    pub fn listening(mut self, listening: impl Listening + 'static) -> Self {
        self.listening = Some(Box::new(listening));
        self
    }

    /// What ends it.
    pub fn stop(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves until it is stopped, or idle for long enough.
    pub fn run(mut self) -> Result<(), ServiceError> {
        const LISTENER: u64 = 0;
        const STOP: u64 = u64::MAX;
        let system = |what| move |error| ServiceError::System(what, error);
        let set = self.set.clone();
        let add = |fd: &OwnedFd, data| {
            let data = epoll::EventData::new_u64(data);
            epoll::add(&set, fd, data, epoll::EventFlags::IN).map_err(system("epoll_ctl"))
        };
        add(&self.listener, LISTENER)?;
        add(&self.stop, STOP)?;
        let mut idle_since = Instant::now();
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 64];
        loop {
            let now = Instant::now();
            let has_programs = Arc::strong_count(&self.relays) > 1
                || self.programs.values().any(|program| !program.looks);
            if has_programs {
                idle_since = now;
            }
            let idle_ends = self
                .options
                .ends_idle
                .filter(|_| !has_programs)
                .map(|patience| idle_since + patience);
            if idle_ends.is_some_and(|end| end <= now) {
                return Ok(());
            }
            // (A relay that ends does not say so.)
            let relays_end = (Arc::strong_count(&self.relays) > 1)
                .then(|| self.options.ends_idle.map(|patience| now + patience))
                .flatten();
            let until = [idle_ends, relays_end, self.waiting.next()].into_iter().flatten().min();
            let timeout = until.map(|until| {
                let left = until.saturating_duration_since(now) + Duration::from_millis(1);
                rustix::event::Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let count = match epoll::wait(&set, &mut events, timeout.as_ref()) {
                Err(Errno::INTR) => 0,
                other => other.map_err(system("epoll_wait"))?,
            };
            for event in &events[..count] {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => {
                        self.accept();
                    }
                    program => self.serve(program),
                }
            }
            let programs = &mut self.programs;
            self.waiting.expire(Instant::now(), |shown, name| {
                if let Some(program) = programs.get_mut(&shown.program) {
                    let reason = Reason::PeerNotHere;
                    program.stays(Some(name), reason);
                    program.tell(Message::Stays { token: shown.token, reason }, &[]);
                }
            });
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
        // Only this user's. Another's learns no more than that somebody is here.
        let Ok(peer) = sockopt::socket_peercred(&socket) else { return };
        if peer.uid != rustix::process::geteuid() {
            return;
        }
        self.last_program += 1;
        let id = self.last_program;
        let pid = peer.pid.as_raw_nonzero().get().cast_unsigned();
        if let Ok(program) = Program::new(socket, id, pid, self.set.clone()) {
            self.programs.insert(id, program);
        }
    }

    /// Takes one message of a program, or its end. One: who sends many waits its turn.
    fn serve(&mut self, id: u64) {
        let wire = self.listening.as_ref().is_some_and(|listening| listening.carries_connects());
        let Some(program) = self.programs.get_mut(&id) else { return };
        program.tell_rest();
        let received = protocol::receive(program.socket.as_fd(), RecvFlags::DONTWAIT)
            .map(|(message, fds)| (message, Came::new(fds, &self.lingering)));
        match received {
            Err(Errno::AGAIN) => {}
            Ok((Message::Hello(VERSION), doors))
                if doors.len() == DOOR_COUNT && program.mailbox.is_none() =>
            {
                if !welcome(program, doors.take(), wire) {
                    self.forget(id);
                }
            }
            Ok((Message::Show { token }, fds)) if fds.len() <= 1 && program.mailbox.is_some() => {
                self.shown(Shown { program: id, token }, fds);
            }
            Ok((Message::Forget { token }, _)) => {
                let shown = Shown { program: id, token };
                if !self.waiting.take_back(shown) {
                    self.regions.take_back(shown);
                }
            }
            Ok((Message::Door { region, slot, side, generation }, fds)) if fds.len() <= 1 => {
                let side = usize::from(side != 0);
                let other = self.regions.other_side(id, region, side);
                if let Some(other) = other.and_then(|other| self.programs.get_mut(&other))
                    && !fds.is_empty()
                {
                    let side = 1 - side as u64;
                    let message = Message::Door { region, slot, side, generation };
                    other.tell(message, &[fds[0].as_fd()]);
                }
            }
            Ok((Message::Missing { region, slot, side, generation }, _)) => {
                let side = usize::from(side != 0);
                if let Some(held) = self.regions.of_side(id, region, side) {
                    held.is_missed(side, slot as usize, generation as u32);
                }
            }
            Ok((Message::Relay, fds)) if program.mailbox.is_some() => {
                if Arc::strong_count(&self.relays) <= relay::MOST
                    && let Some(fds) = fds.these()
                {
                    relay::start(fds, self.relays.clone());
                }
            }
            Ok((Message::Listen, fds)) if fds.len() == 1 && program.mailbox.is_some() => {
                if let (Some(at), Some(listening)) = (ends::listens(&fds[0]), &mut self.listening) {
                    // (It serves nobody else.)
                    let user = rustix::process::geteuid().as_raw();
                    listening.listens((id, user), at, fds[0].as_fd());
                }
                // (A kept one would hold the port open after the program.)
                drop(fds);
            }
            Ok((Message::Connect { address, port }, fds)) if program.mailbox.is_some() => {
                // (Without both: no descriptor was left for them here, and the program hears that nobody has the other end.)
                if let (Ok(address), Ok(port), Some(listening)) =
                    (u32::try_from(address), u16::try_from(port), &mut self.listening)
                    && let Some([socket, answer]) = fds.these()
                {
                    let to = SocketAddrV4::new(address.into(), port);
                    listening.connects(id, to, socket, answer);
                }
            }
            Ok((Message::Closes { cookie }, _)) if program.mailbox.is_some() => {
                if let Some(listening) = &mut self.listening {
                    listening.closes(cookie);
                }
            }
            Ok((Message::Trace { address, port }, fds)) => {
                program.looks |= program.mailbox.is_none();
                let end = (
                    u32::try_from(address).ok().filter(|a| *a != 0).map(Ipv4Addr::from),
                    u16::try_from(port).ok().filter(|port| *port != 0),
                );
                let begun = match &mut self.listening {
                    None => Err(Errno::OPNOTSUPP),
                    Some(listening) => match fds.these() {
                        None => Err(Errno::MFILE),
                        Some([file]) => listening.trace(id, end, file),
                    },
                };
                self.answer_trace(id, begun.map(|()| 0));
            }
            Ok((Message::EndTrace, _)) => {
                let none = Err(Errno::OPNOTSUPP);
                let ended = self.listening.as_mut().map_or(none, |wire| wire.end_trace(id));
                self.answer_trace(id, ended);
            }
            Ok((Message::Tell, _)) => {
                program.looks |= program.mailbox.is_none();
                let wires = self.listening.as_mut().map(|listening| listening.wired());
                let Wires { flows: wired, refused } = wires.unwrap_or_default();
                let mut state = State { wired, ..self.state() };
                for (program, count) in refused {
                    state.refused(program, count);
                }
                let told = state.write();
                // (Who does not take the answer has gone, or asks more often than it reads.)
                if let (Ok((memory, words)), Some(program)) = (told, self.programs.get(&id)) {
                    let message = Message::Told { words };
                    let _ = protocol::send(program.socket.as_fd(), message, &[memory.as_fd()]);
                }
            }
            // It has gone, or it is none of ours.
            _ => self.forget(id),
        }
    }

    fn answer_trace(&self, id: u64, outcome: Result<u64, Errno>) {
        let Some(program) = self.programs.get(&id) else { return };
        let error = outcome.err().map_or(0, |error| error.raw_os_error() as u64);
        let message = Message::Traced { frames: outcome.unwrap_or(0), error };
        // (Who does not take the answer has gone.)
        let _ = protocol::send(program.socket.as_fd(), message, &[]);
    }

    fn state(&self) -> State {
        let programs = self.programs.iter().filter(|(_, program)| program.mailbox.is_some());
        let mut programs: Vec<state::Program> = programs
            .map(|(&id, program)| state::Program {
                id,
                pid: program.pid,
                since: program.since,
                waiting: self.waiting.of(id) as u64,
                bytes: self.regions.bytes_of(id),
                stayed: program.stayed,
            })
            .collect();
        programs.sort_by_key(|program| program.id);
        let flows = self.regions.held.iter().flat_map(|held| {
            held.named().filter_map(|(slot, generation, name, since)| {
                let place = (held.id, slot as u64);
                let header = held.header(slot)?;
                // (Its slot is given back when one is wanted.)
                if held.is_closed(slot, &header) {
                    return None;
                }
                Some(state::Flow::read(&header, held.programs, place, generation, name, since))
            })
        });
        let waiting = self.waiting.ends().map(|(name, shown, since)| state::Stayed {
            program: shown.program,
            addresses: name.addresses(),
            since: SystemTime::now() - since.elapsed(),
            reason: Reason::Waiting,
        });
        let stayed = self.programs.iter().flat_map(|(&program, of)| {
            of.last.iter().map(move |&(name, since, reason)| state::Stayed {
                program,
                addresses: name.addresses(),
                since,
                reason,
            })
        });
        State {
            pid: std::process::id(),
            since: self.since,
            flows: flows.collect(),
            stayed: waiting.chain(stayed).collect(),
            wired: vec![],
            programs,
        }
    }

    fn shown(&mut self, shown: Shown, socket: Came) {
        // (Without one: no descriptor was left for it here.)
        let found = socket.first().ok_or(Reason::NoMemory).and_then(ends::name);
        // Before it is told anything: a program that knows does not expect a copy.
        drop(socket);
        let name = found.ok();
        let outcome = found.and_then(|name| {
            let flows = self.regions.flows_of(shown.program) + self.waiting.of(shown.program);
            let Some(program) = self.programs.get_mut(&shown.program) else {
                return Err(Reason::NoService);
            };
            // What is used is asked of the kernel, a call for each region: not each time.
            if program.shown.is_multiple_of(LOOKS) {
                program.over = self.regions.bytes_of(shown.program) >= self.options.limits.bytes;
            }
            program.shown += 1;
            if program.over || flows >= self.options.limits.flows {
                return Err(Reason::OverLimit);
            }
            Ok(self.waiting.show(name, shown, Instant::now()))
        });
        match outcome {
            Ok(None) => {}
            Ok(Some(other)) => {
                if let Err(reason) = self.matched(other, shown, name) {
                    self.stays(other, name.map(EndName::other), reason);
                    self.stays(shown, name, reason);
                }
            }
            Err(reason) => self.stays(shown, name, reason),
        }
    }

    fn stays(&mut self, shown: Shown, name: Option<EndName>, reason: Reason) {
        if let Some(program) = self.programs.get_mut(&shown.program) {
            program.stays(name, reason);
            program.tell(Message::Stays { token: shown.token, reason }, &[]);
        }
    }

    /// `name` is what `b` calls the connection.
    fn matched(&mut self, a: Shown, b: Shown, name: Option<EndName>) -> Result<(), Reason> {
        let given = self.regions.give(a.program, b.program)?;
        let held = &mut self.regions.held[given.region];
        // Both may be one program: then the first is side 0.
        let side_of_a = usize::from(held.programs[0] != a.program);
        if let Some(name) = name {
            let (name, tokens) = match side_of_a {
                0 => (name.other(), [a.token, b.token]),
                _ => (name, [b.token, a.token]),
            };
            held.name(given.slot, name, tokens, SystemTime::now());
        }
        for (shown, side) in [(a, side_of_a), (b, 1 - side_of_a)] {
            let other = held.programs[1 - side];
            // (Borrowed from it for as long as the message is made: both may be one program.)
            let of_other = self.programs.get_mut(&other);
            let doors = of_other.map_or(vec![], |other| std::mem::take(&mut other.doors));
            let mut with = vec![];
            if !held.sent[side] {
                with.push(held.memory.as_fd());
                with.extend(doors.iter().map(AsFd::as_fd));
            }
            let message = Message::Matched {
                token: shown.token,
                region: held.id,
                slot: given.slot as u64,
                side: side as u64,
                generation: given.generation.into(),
            };
            // (Whom it does not reach does not attach, and the other then uses it no more than it.)
            if let Some(program) = self.programs.get_mut(&shown.program)
                && program.tell(message, &with)
            {
                held.sent[side] = true;
            }
            if let Some(other) = self.programs.get_mut(&other) {
                other.doors = doors;
            }
        }
        Ok(())
    }

    fn forget(&mut self, id: u64) {
        self.programs.remove(&id);
        if let Some(listening) = &mut self.listening {
            listening.gone(id);
        }
        self.waiting.forget(id);
        let programs = &mut self.programs;
        self.regions.forget(id, |program, region| {
            if let Some(program) = programs.get_mut(&program) {
                program.tell(Message::Gone { region }, &[]);
            }
        });
    }
}

/// A descriptor that is good for nothing.
fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

fn welcome(program: &mut Program, doors: Vec<OwnedFd>, wire: bool) -> bool {
    let made = || {
        let mailbox = rustix::fs::memfd_create("uncopy-tcp-mailbox", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&mailbox, PAGE as u64)?;
        let with = [mailbox.as_fd()];
        let message = Message::Welcome { version: VERSION, wire: wire.into() };
        protocol::send(program.socket.as_fd(), message, &with)?;
        Ok::<_, Errno>(mailbox)
    };
    program.mailbox = made().ok();
    program.doors = doors;
    program.mailbox.is_some()
}

/// A service is there under this name, and takes who comes.
pub fn is_running(name: &str) -> bool {
    client::rendezvous(name).is_ok()
}

fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}
