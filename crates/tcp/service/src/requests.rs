//! Requests of programs: one message is taken at a time, its descriptors are looked at and closed,
//! and the registry is told what it says.
//!
//! Descriptors that a program has sent may make a thread that asks about them, or closes them,
//! wait: a file of FUSE, a socket that lingers. So that is done by a thread of its user's, where
//! there are others, and while nothing is held that those need.

use crate::diag::{self, Diag, DiagSocket};
use crate::ends::{self, EndName};
use crate::linger::{Came, Lent};
use crate::listening::Listening;
use crate::matching::{Inodes, Registration};
use crate::owner::{Owner, Serves};
use crate::proof::Looking;
use crate::protocol::{self, CARRIES, DOOR_COUNT, Message, StayReason, TAKES, VERSION};
use crate::registry::{Registry, Session};
use crate::relay;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uncopy_tcp_shared::arena::is_one as is_arena;

/// A user that has had the shared state for this long leaves it to others for three times as long.
const LONG: Duration = Duration::from_millis(1);

/// The state that a service's threads share.
pub(crate) struct ServerState {
    pub registry: Mutex<Registry>,
    pub listening: Option<Box<dyn Listening>>,
    pub diag: Diag,
    /// Of the service's own sockets.
    pub namespace: Option<u64>,
    /// Held once more by each connection that is relayed.
    pub relays: Arc<()>,
    /// Tells the main thread that there may be something else to wait for.
    pub nudge: OwnedFd,
    /// Readable when all is to end.
    pub stop: Arc<OwnedFd>,
}

/// The data by which a set tells of [`ServerState::stop`].
pub(crate) const STOP: u64 = u64::MAX;

impl ServerState {
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A user's thread: hears its programs until it has none.
    pub fn hears(&self, owner: Owner, set: &OwnedFd) {
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 64];
        let mut looking = Looking::default();
        loop {
            let count = match epoll::wait(set, &mut events, None) {
                Err(Errno::INTR) => 0,
                Ok(count) => count,
                Err(_) => return,
            };
            let known = self.registry().waits_for();
            for event in &events[..count] {
                match event.data.u64() {
                    STOP => return,
                    id => self.serve(id, &mut looking),
                }
            }
            let mut registry = self.registry();
            let left = registry.is_left(owner);
            if registry.waits_for() != known {
                let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
            }
            if left {
                return;
            }
        }
    }

    /// Takes one message of a program, or its end. One: a program that sends many waits its turn.
    pub fn serve(&self, id: u64, looking: &mut Looking) {
        let mut turn = Turn { shared: self, held: Duration::ZERO, looking };
        let Some(session) = turn.within(|registry| registry.session(id)) else { return };
        let received = protocol::receive(session.socket.as_fd(), RecvFlags::DONTWAIT);
        let goes_on = match received {
            Err(Errno::AGAIN) => true,
            Err(_) => false,
            Ok((message, fds)) => {
                let fds = Came::new(fds, &session.quota.closer);
                self.take(&mut turn, id, &session, message, fds)
            }
        };
        if !goes_on {
            // It has gone, or it is none of ours.
            let gone = turn.within(|registry| registry.goes(id));
            if let Some(listening) = &self.listening {
                listening.gone(id);
            }
            drop(gone);
        }
        turn.ends(session.owner);
    }

    /// False: that is no message for a service, or not now.
    fn take(
        &self,
        turn: &mut Turn,
        id: u64,
        session: &Session,
        message: Message,
        fds: Came,
    ) -> bool {
        let Session { owner, greeted, .. } = session;
        let (owner, greeted) = (*owner, *greeted);
        let of = |token| Registration { program: id, owner, token };
        match message {
            Message::Hello(VERSION) if fds.len() == DOOR_COUNT && !greeted => {
                let carries =
                    |wire: &dyn Listening| if wire.carries_connects() { CARRIES } else { 0 };
                let wire = self.listening.as_deref().map_or(0, |wire| TAKES | carries(wire));
                fds.iter().all(|fd| self.is_door(fd))
                    && turn.within(|registry| registry.welcome(id, fds.take(), wire))
            }
            Message::Register { token, name, filtered } if fds.len() <= 1 && greeted => {
                let found = if filtered {
                    Err(StayReason::Filtered)
                } else {
                    self.finds(turn, owner, name, &fds)
                };
                drop(fds);
                turn.within(|registry| registry.registered(of(token), name, found));
                true
            }
            Message::Forget { token } => {
                turn.within(|registry| registry.take_back(of(token)));
                true
            }
            Message::Door { region, slot, side, generation } if fds.len() <= 1 => {
                let side = usize::from(side != 0);
                if let Some(door) = fds.first().filter(|door| self.is_door(door)) {
                    let (who, place) = ((id, owner), (region, side));
                    turn.within(|all| all.hands_on(who, place, (slot, generation), door));
                }
                true
            }
            Message::Arena { region, side, .. } if fds.len() <= 1 && greeted => {
                let (who, place) = ((id, owner), (region, usize::from(side != 0)));
                // (The program that gets it asks, with its own locks held.)
                if let Some(memory) = fds.first().filter(|fd| is_arena(fd).is_ok()) {
                    turn.within(|all| all.says_of_arena(who, place, message, Some(memory)));
                }
                true
            }
            Message::ArenaEnds { region, side, .. } if fds.is_empty() && greeted => {
                let (who, place) = ((id, owner), (region, usize::from(side != 0)));
                turn.within(|all| all.says_of_arena(who, place, message, None));
                true
            }
            Message::Missing { region, slot, side, generation } => {
                let side = usize::from(side != 0);
                let what = (slot as usize, generation as u32);
                turn.within(|registry| registry.misses((id, owner), (region, side), what));
                true
            }
            Message::Relay if greeted => {
                self.relays(turn.serves(), session, fds);
                true
            }
            Message::Listen { address, port } if fds.len() <= 1 && greeted => {
                if let (Some(at), Some(listening)) = (place(address, port), &self.listening)
                    && let Ok(found) = self.diag.listener(at, diag::CONGESTION)
                    && is_its(turn.looking, owner, &fds, &found)
                {
                    listening.listens((id, owner), at, &found);
                }
                true
            }
            Message::Withdraw { address, port } if greeted => {
                self.withdraws(turn.looking, session, place(address, port), fds);
                true
            }
            Message::Connect { address, port } if greeted => {
                self.connects(id, session, (address, port), fds);
                true
            }
            Message::Closes { cookie } if greeted => {
                if let Some(listening) = &self.listening {
                    listening.closes(id, cookie);
                }
                true
            }
            Message::Info if greeted => {
                self.tells(session, fds);
                true
            }
            Message::Trace { address, port } => {
                turn.within(|registry| registry.looks(id));
                let end = (
                    u32::try_from(address).ok().filter(|a| *a != 0).map(Ipv4Addr::from),
                    u16::try_from(port).ok().filter(|port| *port != 0),
                );
                let begun = match &self.listening {
                    _ if !turn.serves().sees_all(owner) => Err(Errno::PERM),
                    None => Err(Errno::OPNOTSUPP),
                    Some(listening) => match fds.these() {
                        None => Err(Errno::MFILE),
                        Some([file]) => listening.trace(id, end, file),
                    },
                };
                answer_trace(session, begun.map(|()| 0));
                true
            }
            Message::EndTrace => {
                let none = Err(Errno::OPNOTSUPP);
                // (A program that has not begun one cannot end it.)
                let ended = self.listening.as_ref().map_or(none, |wire| wire.end_trace(id));
                answer_trace(session, ended);
                true
            }
            Message::Tell => {
                let begun = Instant::now();
                let wires = self.listening.as_ref().map(|wire| wire.wired()).unwrap_or_default();
                turn.held += begun.elapsed();
                let told = turn.within(|registry| {
                    registry.looks(id);
                    registry.state(owner, wires)
                });
                // (A program that does not take the answer has gone, or asks more often than it
                // reads.)
                if let Ok((memory, words)) = told.write() {
                    let (to, message) = (session.socket.as_fd(), Message::Told { words });
                    let _ = protocol::send(to, message, &[memory.as_fd()]);
                }
                true
            }
            _ => false,
        }
    }

    /// A program has this end of a connection of this network namespace.
    fn finds(
        &self,
        turn: &mut Turn,
        owner: Owner,
        name: EndName,
        fds: &Came,
    ) -> Result<Inodes, StayReason> {
        // (Without one: no descriptor was left for it here.)
        let set = fds.first().ok_or(StayReason::NoMemory)?;
        let end = self.diag.end(name.addresses()).map_err(|_| StayReason::NotConnected)?;
        match turn.looking.finds(end.inode(), set) {
            // (Numbers of sockets come again after some billions.)
            Ok(true) if turn.serves().may_show(owner, end.user()) => {
                let other = self.diag.end(name.other().addresses());
                Ok(Inodes { own: end.inode(), other: other.map_or(0, |other| other.inode()) })
            }
            Ok(true) => Err(StayReason::OtherUser),
            Err(Errno::MFILE | Errno::NFILE) => Err(StayReason::NoMemory),
            _ => Err(StayReason::NotConnected),
        }
    }

    /// It is of an eventfd's kind, as far as that can be told.
    fn is_door(&self, fd: impl AsFd) -> bool {
        let kind =
            |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).map(|stat| (stat.st_dev, stat.st_ino));
        // (All that have no name are one file.)
        kind(&fd).is_ok_and(|kind_of| kind(&self.stop) == Ok(kind_of))
    }

    fn relays(&self, serves: Serves, session: &Session, fds: Came) {
        let most = if serves == Serves::ItsUser { relay::MOST } else { relay::MOST / 2 };
        let quota = &session.quota;
        if Arc::strong_count(&self.relays) <= relay::MOST
            && Arc::strong_count(&quota.relays) <= most
            && let Some(taken) = quota.share.take(4)
            && let Some(fds) = fds.these()
        {
            let alive = (self.relays.clone(), quota.relays.clone(), taken);
            relay::start(fds, session.owner.uid(), alive);
        }
    }

    fn withdraws(
        &self,
        looking: &mut Looking,
        session: &Session,
        at: Option<SocketAddrV4>,
        fds: Came,
    ) {
        // (Where Linux finds none, it may be bound to a device by now.)
        let at = at.filter(|at| match self.diag.listener(*at, 0) {
            Ok(found) => is_its(looking, session.owner, &fds, &found),
            Err(_) => true,
        });
        // (Without both, as below: the program hears that it is not done.)
        if let Some((set, answer)) = with_answer(session, fds) {
            // (This is its user's thread.)
            session.quota.closer.close_now(set);
            match (at, &self.listening) {
                (Some(at), Some(listening)) => listening.withdraws(at, answer),
                // Nothing is taken for it.
                _ => answer.is_done(),
            }
        }
    }

    fn tells(&self, session: &Session, fds: Came) {
        // (Without both the program hears that there is nothing to tell. Only who stands in for
        // another host has a socket marked so.)
        if let Some(listening) = &self.listening
            && let Some((socket, answer)) = with_answer(session, fds)
        {
            // (In a network namespace of its own a user may give any mark.)
            let carried =
                ends::is_stand_in(&socket) && ends::network_namespace(&socket) == self.namespace;
            let its = carried.then(|| ends::name(&socket).ok()).flatten();
            // (This is its user's thread.)
            session.quota.closer.close_now(socket);
            if let Some([SocketAddr::V4(local), SocketAddr::V4(peer)]) =
                its.map(|name| name.addresses())
            {
                listening.info([local, peer], answer);
            }
        }
    }

    fn connects(&self, id: u64, session: &Session, (address, port): (u64, u64), fds: Came) {
        // (Without both: no descriptor was left for them here, and the program hears that nobody
        // has the other end.)
        if let (Ok(address), Ok(port), Some(listening)) =
            (u32::try_from(address), u16::try_from(port), &self.listening)
            && fds.get(1).is_some_and(|answer| ends::is_of_user(answer, session.owner.uid()))
            && let Some(taken) = session.quota.share.take(1)
            && let Some([socket, answer]) = fds.these()
        {
            let to = SocketAddrV4::new(address.into(), port);
            let socket = Lent::new(socket, taken, session.quota.closer.clone());
            listening.connects((id, session.owner), to, socket, answer);
        }
    }
}

/// The address that a program's words say.
fn place(address: u64, port: u64) -> Option<SocketAddrV4> {
    Some(SocketAddrV4::new(u32::try_from(address).ok()?.into(), u16::try_from(port).ok()?))
}

/// The socket that listens there is this user's, or the program has it.
fn is_its(looking: &mut Looking, owner: Owner, fds: &Came, found: &DiagSocket) -> bool {
    let proves = |set| looking.finds(found.inode(), set) == Ok(true);
    found.user() == owner.uid() || fds.first().is_some_and(proves)
}

/// A socket that something is asked about, and where the answer goes: to this user.
fn with_answer(session: &Session, fds: Came) -> Option<(OwnedFd, Lent)> {
    if !fds.get(1).is_some_and(|answer| ends::is_of_user(answer, session.owner.uid())) {
        return None;
    }
    let taken = session.quota.share.take(1)?;
    let [socket, answer] = fds.these()?;
    Some((socket, Lent::new(answer, taken, session.quota.closer.clone())))
}

fn answer_trace(session: &Session, outcome: Result<u64, Errno>) {
    let error = outcome.err().map_or(0, |error| error.raw_os_error() as u64);
    let message = Message::Traced { frames: outcome.unwrap_or(0), error };
    // (A program that does not take the answer has gone.)
    let _ = protocol::send(session.socket.as_fd(), message, &[]);
}

/// One message's way through.
struct Turn<'a> {
    shared: &'a ServerState,
    /// How long it has had what all share.
    held: Duration,
    /// Its thread's.
    looking: &'a mut Looking,
}

impl Turn<'_> {
    fn within<T>(&mut self, does: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = self.shared.registry();
        let begun = Instant::now();
        let done = does(&mut registry);
        self.held += begun.elapsed();
        done
    }

    fn serves(&self) -> Serves {
        self.shared.registry().serves
    }

    /// A user that takes much of it takes no more than a part.
    fn ends(self, owner: Owner) {
        if self.held >= LONG && self.serves() != Serves::ItsUser && owner != Owner::Service {
            std::thread::sleep(3 * self.held);
        }
    }
}

/// A descriptor that is good for nothing but to be written to.
pub(crate) fn bell() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}
