//! All connections, as the service's threads see them. A connection belongs to the lane that heard
//! of it first: that lane's set has its stand-in, and that lane alone moves its bytes, whoever gets
//! its segments.
//!
//! Locks: a thread that holds a flow (the protocol does while it tells of one) locks its bridge,
//! never the other way round; lists are locked by themselves.

use crate::active_opens::{ActiveOpens, Before, Opening};
use crate::bridge::{Bridge, Connection, Heard, Unreported, Wants};
use crate::inward;
use crate::limit::Limit;
use crate::listeners::{self, Listener, Listeners, Listens};
use crate::owner_lookup::OwnerLookup;
use crate::parts::Parts;
use crate::programs::Programs;
use crate::spare::{Spare, Spares};
use crate::stand_in;
use rustix::event::epoll;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use uncopy_tcp_fast::applications::{Calls, SlowOut, Turn};
use uncopy_tcp_fast::spin::Spin;
use uncopy_tcp_fast::{Applications, View};
use uncopy_tcp_proto::flow::Place;
use uncopy_tcp_proto::segment::RingRange;
use uncopy_tcp_proto::wire::Link;
use uncopy_tcp_proto::{
    Algorithm, Endpoint, Event, FlowId, FlowOptions, KeepAlive, Limits, Listen, Refusal, Time,
};
use uncopy_tcp_routes::Routes;
use uncopy_tcp_service::{Lent, Owner, Wires};
use uncopy_tcp_socket::set::{self, Event as Ready};
use uncopy_tcp_socket::{Context, Set, Settings, Waiting};
use uncopy_tcp_wire::steer::Steer;
use uncopy_tcp_wire::{PIECES, Piece};

/// Connections that may wait until the program takes them. (They hardly do: a stand-in is made at
/// once, and then it is Linux' backlog that counts.)
const BACKLOG: u32 = 4096;
/// While it does not sleep, a lane asks the kernel for stand-ins once in so many turns, by a system
/// call.
const ASK: u32 = 64;
/// Stand-ins that are looked at in a turn.
const EVENTS: usize = 128;

/// Bytes of the program's ring that may be on the way at once, as a power of two: a quarter of it,
const LENT_BITS: u8 = 18;
/// and all of it to a peer that is far away.
const FAR_BITS: u8 = 20;

/// Sockets of one address that are known, of the workers of a server; the oldest are forgotten.
const SOCKETS: usize = 1024;

/// A command for the slow path.
#[derive(Debug)]
pub(crate) enum Command {
    /// This program has registered a socket that listens. Its connections slow down by this
    /// algorithm.
    Listens((u64, Owner), Listens, Option<Algorithm>),
    /// The listener here becomes Linux's; somebody may wait until it is.
    Withdraw(SocketAddrV4, Option<Arc<Withdrawn>>),
    /// A listener may have gone.
    LookAtListeners,
    /// The device's addresses, or the ways by it, may be others.
    Addresses,
    /// A program has begun to connect.
    Connect(Box<Opening>),
    /// A program has given up what was asked about a socket before.
    Closes(Before),
    /// Segments of programs that connect do not come here any more.
    NoDetour,
    /// This program has gone.
    Gone(u64),
    /// Report all connections, and those that programs did not get.
    ReportAll(Sender<Wires>),
    /// Report the connection between these ends.
    ReportOne([SocketAddrV4; 2], Arc<Lent>),
}

/// Waits until a listener is Linux's on all devices of a service: each drops its share when it is.
/// The last drop tells the program; a device that has failed drops its share, too.
#[derive(Debug)]
pub(crate) struct Withdrawn(pub Lent);

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.0.is_done();
    }
}

impl Command {
    /// One execution serves both.
    fn is_done_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::LookAtListeners, Self::LookAtListeners) | (Self::Addresses, Self::Addresses) => {
                true
            }
            (Self::Listens(a, at, by), Self::Listens(b, there, also)) => {
                (a, at, by) == (b, there, also)
            }
            _ => false,
        }
    }
}

/// A lane's own state.
pub(crate) struct LaneState {
    pub(crate) context: Arc<Context>,
    set: Set,
    /// The lane's connections, by the key that the set has for each.
    pub(crate) bridges: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Connections with work to do.
    todo: Mutex<Vec<Arc<Connection>>>,
    /// Events of stand-ins, from the kernel's set.
    said: Mutex<Vec<Ready>>,
    turns: AtomicUsize,
    /// Connections whose programs have still to take the bytes before their peers' ends, by key.
    unread: Mutex<Unread>,
    /// Connections whose buffers have more than by right, by key.
    grown: Mutex<Grown>,
}

/// See above; and the time of the last look: a lane looks at a turn after [`LOOKS_AT_UNREAD`].
#[derive(Default)]
struct Unread(HashMap<u64, Arc<Connection>>, Option<Instant>);

const LOOKS_AT_UNREAD: Duration = Duration::from_secs(1);

impl Unread {
    fn add(&mut self, key: u64, connection: &Arc<Connection>) {
        self.0.entry(key).or_insert_with(|| connection.clone());
    }

    /// The connections that have waited for too long.
    fn late(&mut self, now: Instant) -> Vec<Arc<Connection>> {
        if self.0.is_empty() || self.1.is_some_and(|last| now < last + LOOKS_AT_UNREAD) {
            return vec![];
        }
        self.1 = Some(now);
        self.0.retain(|_, connection| connection.lock().unread_until().is_some());
        let late = |_: &u64, connection: &mut Arc<Connection>| {
            connection.lock().was_unread_for_too_long(now)
        };
        self.0.extract_if(late).map(|(_, connection)| connection).collect()
    }
}

/// See above; and the time of the last look, likewise.
#[derive(Default)]
struct Grown(HashMap<u64, Arc<Connection>>, Option<Instant>);

impl Grown {
    /// The connections that hold more than by right for too long.
    fn late(&mut self, now: Instant) -> Vec<Arc<Connection>> {
        if self.0.is_empty() || self.1.is_some_and(|last| now < last + LOOKS_AT_UNREAD) {
            return vec![];
        }
        self.1 = Some(now);
        self.0.retain(|_, connection| connection.lock().holds_more());
        let late = |_: &u64, connection: &mut Arc<Connection>| {
            connection.lock().has_held_for_too_long(now)
        };
        self.0.extract_if(late).map(|(_, connection)| connection).collect()
    }
}

/// The sizes of a table.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Connections, at most.
    pub flows: usize,
    /// Lanes.
    pub lanes: usize,
    /// How many lanes, the first ones, have connections.
    pub carrying: usize,
    /// Bytes of a buffer, as a power of two.
    pub bits: u8,
}

/// See the module.
pub struct ConnectionTable {
    bits: u8,
    /// The bytes that buffers may grow by together: as much again as all have by right.
    spare: Spares,
    /// How connections slow down of which the program does not say.
    congestion: Algorithm,
    /// Lanes that have connections.
    carrying: usize,
    /// See [`stand_in::fin_timeout`].
    pub(crate) fin_timeout: Duration,
    pub(crate) routes: Arc<Routes>,
    /// The version of the routes that its connections have followed.
    routes_seen: AtomicU64,
    steer: Arc<Steer>,
    /// None: programs that connect are Linux's.
    active_opens: Option<ActiveOpens>,
    /// The connection of each slot.
    slots: Box<[Spin<Option<Arc<Connection>>>]>,
    lanes: Box<[LaneState]>,
    /// Connections with work for the slow path: those that came, and others.
    came: Mutex<Vec<Arc<Connection>>>,
    slow: Mutex<Vec<Arc<Connection>>>,
    commands: Mutex<Vec<Command>>,
    listeners: Mutex<Listeners>,
    pub(crate) parts: Parts,
    /// Locked after the listeners.
    pub(crate) programs: Mutex<Programs>,
    /// None: the kernel has no such thing.
    owner_lookup: Option<OwnerLookup>,
    last_key: AtomicU64,
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConnectionTable {
    /// An empty table. `name`: the service where its own ends are registered.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(
        Sizes { flows, lanes, carrying, bits }: Sizes,
        congestion: Algorithm,
        (parts, programs): (Parts, Programs),
        name: &str,
        routes: Arc<Routes>,
        steer: Arc<Steer>,
        active_opens: Option<ActiveOpens>,
    ) -> Result<Self, Errno> {
        let (waiting, wary) = (Waiting::Sleep, parts.shared);
        // (A lane's set has each stand-in that can be received from, and says when it has ended.)
        let asks = false;
        // (All others of the lane would wait, too.)
        let may_wait = false;
        let state = |_| {
            let settings = Settings { waiting, wary, asks, may_wait, ..Settings::new(name) };
            let context = Context::new(settings)?;
            let kernel = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?;
            Ok(LaneState {
                set: Set::new(context.clone(), kernel)?,
                context,
                bridges: Mutex::default(),
                todo: Mutex::default(),
                said: Mutex::default(),
                turns: AtomicUsize::new(0),
                unread: Mutex::default(),
                grown: Mutex::default(),
            })
        };
        Ok(Self {
            bits,
            spare: Spare::of_both_ways((flows as u64) << bits),
            congestion,
            carrying,
            fin_timeout: stand_in::fin_timeout(),
            routes_seen: AtomicU64::new(routes.version()),
            routes,
            steer,
            active_opens,
            slots: (0..flows).map(|_| Spin::new(None)).collect(),
            lanes: (0..lanes).map(state).collect::<Result<_, Errno>>()?,
            came: Mutex::default(),
            slow: Mutex::default(),
            commands: Mutex::default(),
            listeners: Mutex::default(),
            parts,
            programs: Mutex::new(programs),
            owner_lookup: OwnerLookup::open().ok(),
            last_key: AtomicU64::new(0),
        })
    }

    /// Queues a command for the slow path, which is then to be told
    /// ([`uncopy_tcp_fast::Service::ask`]).
    pub(crate) fn command(&self, command: Command) {
        let mut commands = lock(&self.commands);
        // (Linux may have much news, and programs may listen and end in a loop.)
        if !commands.iter().any(|other| command.is_done_with(other)) {
            commands.push(command);
        }
    }

    /// Connections that it has.
    pub fn connections(&self) -> usize {
        self.lanes.iter().map(|state| lock(&state.bridges).len()).sum()
    }

    /// Programs that connect.
    pub(crate) fn active_opens(&self) -> Option<&ActiveOpens> {
        self.active_opens.as_ref()
    }

    /// The device has this address.
    pub(crate) fn has_address(&self, address: Ipv4Addr) -> bool {
        self.routes.addresses().contains(&address)
    }

    /// A program is about to connect. The socket's cookie: the connection is carried.
    pub(crate) fn takes(
        &self,
        program: (u64, Owner),
        to: SocketAddrV4,
        socket: Lent,
    ) -> Option<u64> {
        let active_opens = self.active_opens.as_ref()?;
        let room = self.connections() + active_opens.count() < self.slots.len()
            && self.parts.has_room(program.1, active_opens.waiting_of(program.1));
        if room { active_opens.takes(program, to, socket, &self.routes) } else { None }
    }

    /// All connections that have a place.
    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        self.slots.iter().filter_map(|slot| slot.lock().as_ref().cloned()).collect()
    }

    pub(crate) fn lane_of(&self, connection: &Arc<Connection>) -> &LaneState {
        &self.lanes[connection.lane]
    }

    /// As much of a connection goes outward at once, at most.
    fn send_bits(&self) -> u8 {
        self.bits.max(FAR_BITS)
    }

    /// Puts a connection into its slot, and gives it a lane.
    pub(crate) fn insert(&self, flow: FlowId) -> Arc<Connection> {
        let key = self.last_key.fetch_add(1, Relaxed);
        let lane = flow.slot as usize % self.carrying;
        let limit = Limit::new(self.bits.max(LENT_BITS), self.send_bits());
        let connection = Arc::new(Connection {
            id: flow,
            bridge: Mutex::new(Bridge::new(key, self.bits, limit, self.spare.clone())),
            queued: AtomicBool::new(false),
            lane,
            part: OnceLock::new(),
        });
        *self.slots[flow.slot as usize].lock() = Some(connection.clone());
        connection
    }

    pub(crate) fn at(&self, flow: FlowId) -> Option<Arc<Connection>> {
        let slot = self.slots[flow.slot as usize].lock();
        slot.as_ref().cloned()
    }

    /// Gives a connection's lane work for it. `lane`: the caller, if it is a lane.
    pub(crate) fn to_lane(&self, connection: Arc<Connection>, lane: Option<usize>) {
        if connection.queued.swap(true, AcqRel) {
            return;
        }
        let of = connection.lane;
        let state = &self.lanes[of];
        lock(&state.todo).push(connection);
        if lane != Some(of) {
            state.set.call();
        }
    }

    /// A lane does what there is to do for a connection.
    fn serve(
        &self,
        state: &LaneState,
        connection: &Arc<Connection>,
        calls: &mut dyn Calls,
        turn: &mut Turn,
    ) {
        connection.queued.store(false, Release);
        let mut bridge = connection.lock();
        bridge.advance();
        let (id, unreported) = (connection.id, bridge.take_unreported());
        let mut size = bridge.take_size();
        let wants_distance = bridge.wants_distance();
        if let Some((line, before, wanted)) = bridge.wanted() {
            let (fd, flow) = (line.number(), line.flow().cloned());
            let (key, set) = (bridge.key, &state.set);
            let asked = match (before, wanted) {
                (None, Some(events)) => set.add(fd, flow, events, key),
                (Some(_), Some(events)) => set.modify(fd, events, key),
                (_, None) => set.remove(fd),
            };
            if asked.is_err() {
                bridge.fails();
            }
        }
        let unread = bridge.unread_until().map(|_| bridge.key);
        let over = bridge.is_over().then(|| (bridge.key, bridge.take_line()));
        let slow = unreported.slow || bridge.wants() != Wants::Nothing;
        drop(bridge);
        if let Some(key) = unread {
            lock(&state.unread).add(key, connection);
        }
        if let Some((key, line)) = over {
            drop(line);
            lock(&state.bridges).remove(&key);
            return;
        }
        turn.gave |= unreported.gave;
        // (Not while it is locked: these lock its flow.)
        if wants_distance {
            let round_trip = Duration::from_micros(calls.round_trip(id).into());
            let mut bridge = connection.lock();
            bridge.is_away(round_trip);
            size = bridge.take_size().or(size);
        }
        let mut refused = false;
        if unreported.read > 0 {
            let read = Unreported { read: unreported.read, ..Unreported::default() };
            refused |= self.is_refused(connection, calls.read(id, unreported.read), &read);
        }
        if let Some(bits) = size {
            // (Behind what was read: a smaller buffer would be full of it, and another lane could
            // say so. Refused, it is one from which nobody receives any more.)
            let _ = calls.resize(id, bits);
        }
        if unreported.written > 0 {
            let written = Unreported { written: unreported.written, ..Unreported::default() };
            refused |= self.is_refused(connection, calls.write(id, unreported.written), &written);
        }
        if slow || refused {
            lock(&self.slow).push(connection.clone());
            turn.for_slow_path = true;
        }
    }

    /// Whether the slow path is to report this: a lane may not now.
    fn is_refused(
        &self,
        connection: &Arc<Connection>,
        result: Result<(), Refusal>,
        unreported: &Unreported,
    ) -> bool {
        match result {
            Err(Refusal::WrongState) => {
                connection.lock().refused(unreported);
                true
            }
            // It has gone meanwhile; or an event reports it.
            _ => false,
        }
    }

    /// A connection has come: its stand-in is connected.
    fn meet(
        &self,
        time: Time,
        connection: &Arc<Connection>,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        let id = connection.id;
        // (Refused where it has gone already.)
        let ends = endpoint.accept(id, 0, 0).and_then(|()| Ok(endpoint.info(id)?.tuple));
        endpoint.leave();
        let Ok(ends) = ends else {
            self.forget(id);
            return;
        };
        let peer = SocketAddrV4::new(ends.peer_ip, ends.peer_port);
        let local = SocketAddrV4::new(ends.local_ip, ends.local_port);
        let owner = lock(&self.listeners).owner(local);
        // (Nobody's any more: the next one is Linux'.)
        let part = owner.and_then(|owner| self.parts.connection(owner));
        let Some(part) = part else {
            let _ = endpoint.abort(time, id, out);
            endpoint.leave();
            self.forget(id);
            return;
        };
        connection.is_part_of(part);
        let stand_in = stand_in::connected(peer, local);
        // (Else its user's data would be shown to ours, who asks for frames of it.)
        let stand_in = stand_in.and_then(|stand_in| {
            if self.is_registered(local) { Ok(stand_in) } else { Err(Errno::CONNREFUSED) }
        });
        match stand_in {
            Ok((socket, connected)) => self.stands_in(connection, socket, connected),
            Err(error) => {
                let _ = endpoint.abort(time, id, out);
                endpoint.leave();
                self.forget(id);
                if error == Errno::CONNREFUSED {
                    self.command(Command::LookAtListeners);
                }
            }
        }
    }

    /// Whether the listener at this address, to which a stand-in connects, was registered, and is
    /// not another user's who has the port now. To be asked after the stand-in has been connected,
    /// or has not been.
    fn is_registered(&self, at: SocketAddrV4) -> bool {
        let lookup = self.owner_lookup.as_ref().ok_or(Errno::NOENT);
        let asked = lookup.and_then(|lookup| lookup.ask(at));
        let found = asked.ok().or_else(|| {
            // Nobody does, or that question cannot be asked.
            let all = listeners::of_this_host().unwrap_or_default();
            let any = |one: &Listens| one.at.ip().is_unspecified() && one.at.port() == at.port();
            let one = all.iter().find(|one| one.at == at).or_else(|| all.iter().find(|o| any(o)));
            one.copied()
        });
        // (A listener for one connection may have got it, and be gone.)
        found.is_none_or(|found| {
            if found.signs {
                self.command(Command::Withdraw(found.at, None));
            }
            !found.signs && lock(&self.listeners).has(at, &found)
        })
    }

    /// Does for a connection what its lane could not.
    fn finish(
        &self,
        time: Time,
        connection: &Arc<Connection>,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        let (id, unreported, wants) = {
            let mut bridge = connection.lock();
            let wants = bridge.wants();
            if wants == Wants::Close {
                bridge.has_read_all();
            }
            (connection.id, bridge.take_unreported(), wants)
        };
        if unreported.read > 0 {
            let _ = endpoint.read(id, unreported.read);
            endpoint.leave();
        }
        if unreported.written > 0 {
            let _ = endpoint.write(id, unreported.written);
            endpoint.leave();
        }
        match wants {
            Wants::Nothing => {}
            Wants::Shutdown => {
                let _ = endpoint.shutdown(id);
                endpoint.leave();
                connection.lock().done(wants);
            }
            Wants::Close => {
                connection.lock().done(wants);
                // (Unread bytes make it a reset, as with Linux.)
                let _ = endpoint.close(time, id, out);
                endpoint.leave();
            }
            Wants::Abort => {
                connection.lock().done(wants);
                if endpoint.abort(time, id, out).is_ok() {
                    endpoint.leave();
                    // (No event follows.)
                    self.ended(None, id, true);
                } else {
                    endpoint.leave();
                }
            }
        }
    }

    /// Takes a connection out of its slot.
    pub(crate) fn forget(&self, flow: FlowId) -> Option<Arc<Connection>> {
        let mut slot = self.slots[flow.slot as usize].lock();
        // (The slot may be another connection's by now.)
        slot.take_if(|connection| connection.id == flow)
    }

    /// The connection over the wire is over.
    fn ended(&self, lane: Option<usize>, flow: FlowId, reset: bool) {
        let Some(connection) = self.forget(flow) else { return };
        connection.lock().over(reset);
        self.to_lane(connection, lane);
    }

    /// Whence who listens there is steered to: this host's addresses alone. A socket may listen at
    /// another host's (IP_FREEBIND), whose connections this one may forward.
    fn steered(&self, at: SocketAddrV4) -> Vec<SocketAddrV4> {
        if !at.ip().is_unspecified() {
            return if self.routes.is_own(*at.ip()) { vec![at] } else { vec![] };
        }
        let own = self.routes.addresses().into_iter();
        own.map(|ip| SocketAddrV4::new(ip, at.port())).collect()
    }

    pub(crate) fn flow_options(&self, by: Option<Algorithm>) -> FlowOptions {
        FlowOptions {
            algorithm: by.unwrap_or(self.congestion),
            rcv_bits: self.bits,
            // (More than that lies in the program's ring, or is the service's to spare.)
            rcv_most: Some(inward::MOST.max(self.bits)),
            snd_bits: self.send_bits(),
            // (Lent bytes lie in the program's ring.)
            snd_counted: Some(self.bits),
            // Bytes of the program's have waited for it already.
            nagle: false,
            keep_alive: Some(KeepAlive::default()),
            ..FlowOptions::default()
        }
    }

    fn listens(
        &self,
        time: Time,
        ((program, owner), registered, by): ((u64, Owner), Listens, Option<Algorithm>),
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        let at = registered.at;
        // (The program may not know of a key: another process may have set it.)
        let lookup = self.owner_lookup.as_ref();
        if lookup.is_some_and(|lookup| lookup.ask(at).is_ok_and(|found| found.signs)) {
            return self.withdraw(time, at, endpoint, out);
        }
        let is_others = |known: &mut Listener| known.user() != registered.user;
        if lock(&self.listeners).get(at).is_some_and(is_others) {
            // They have closed theirs, or Linux lets both listen.
            self.look_at_listeners(time, endpoint, out);
        }
        let flow = self.flow_options(by);
        let mut listeners = lock(&self.listeners);
        if let Some(known) = listeners.get(at) {
            if known.user() != registered.user {
                return;
            }
            // (The last that was registered says how they are to be, and whose: a server that was
            // started anew may have been told otherwise.)
            let mut programs = lock(&self.programs);
            let app = programs.of(program, endpoint);
            if endpoint.set_listener(known.id, app, flow).is_ok() {
                programs.listens(app);
                programs.listens_no_more(core::mem::replace(&mut known.app, app));
            }
            if !known.sockets.contains(&registered.inode) {
                known.sockets.push(registered.inode);
                if known.sockets.len() > SOCKETS {
                    known.sockets.remove(0);
                }
            }
            return;
        }
        let Some(part) = self.parts.listener(owner) else { return };
        let mut programs = lock(&self.programs);
        let app = programs.of(program, endpoint);
        let listen = Listen { app, ip: *at.ip(), port: at.port(), backlog: BACKLOG, flow };
        let Ok(id) = endpoint.listen(listen) else { return };
        programs.listens(app);
        let steered = self.steered(at);
        // (Where there is no room for one more, Linux serves it.)
        steered.iter().for_each(|at| _ = self.steer.listen(*at));
        let sockets = vec![registered.inode];
        listeners.add(at, Listener { id, app, part, sockets, steered });
    }

    /// Steers nothing to listeners that are gone.
    fn look_at_listeners(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        let mut listeners = lock(&self.listeners);
        if listeners.is_empty() {
            return;
        }
        let Ok(now) = listeners::of_this_host() else { return };
        for gone in listeners.take_gone(&now) {
            self.leaves(time, &gone, endpoint, out);
        }
    }

    /// The listener here is Linux's from now on: nothing is answered for it any more.
    fn withdraw(
        &self,
        time: Time,
        at: SocketAddrV4,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        if let Some(known) = lock(&self.listeners).take(at) {
            self.leaves(time, &known, endpoint, out);
        }
    }

    fn leaves(
        &self,
        time: Time,
        gone: &Listener,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) {
        gone.steered.iter().for_each(|at| _ = self.steer.stop_listening(*at));
        lock(&self.programs).listens_no_more(gone.app);
        let _ = endpoint.unlisten(time, gone.id, out);
        endpoint.leave();
    }

    /// Connections go where new ones would go. (Where that is by another device, or nowhere, they
    /// go on as before: the peer may still be there.)
    fn look_at_routes(&self, endpoint: &mut Endpoint<View<'_>>) {
        let version = self.routes.version();
        if self.routes_seen.swap(version, Relaxed) == version {
            return;
        }
        for connection in self.all() {
            let peer = endpoint.info(connection.id).map(|info| info.tuple.peer_ip);
            endpoint.leave();
            if let Some(route) = peer.ok().and_then(|peer| self.routes.number(peer)) {
                let _ = endpoint.reroute(connection.id, route);
                endpoint.leave();
            }
        }
    }

    fn look_at_addresses(&self) {
        for (at, listener) in lock(&self.listeners).each() {
            let now = self.steered(at);
            for before in listener.steered.iter().filter(|at| !now.contains(at)) {
                let _ = self.steer.stop_listening(*before);
            }
            for new in now.iter().filter(|at| !listener.steered.contains(at)) {
                let _ = self.steer.listen(*new);
            }
            listener.steered = now;
        }
    }
}

impl crate::programs::Applications for Endpoint<View<'_>> {
    fn connections(&self, app: u16) -> u32 {
        self.usage(app).0
    }

    fn limit(&mut self, app: u16, limits: Limits) {
        // (Numbers are handed out below what the endpoint has.)
        let _ = self.set_limits(app, limits);
    }

    fn refused(&mut self, app: u16) -> u64 {
        self.take_refused(app)
    }
}

impl Applications for ConnectionTable {
    fn begins(&self, lane: usize) {
        // A program gets all of a turn at once, and is woken once.
        self.lanes[lane].context.knocks_later();
    }

    fn place(&self, lane: Option<usize>, flow: FlowId, place: Place, payload: &[u8]) -> u32 {
        // (Of one that has gone nobody receives anything.)
        let Some(connection) = self.at(flow) else { return place.to.len };
        let own = lane == Some(connection.lane);
        let mut bridge = connection.lock();
        let taken = bridge.place(place, payload, own);
        let grown = bridge.begins_to_hold_more().then_some(bridge.key);
        drop(bridge);
        if let Some(key) = grown {
            let lane = &self.lanes[connection.lane];
            lock(&lane.grown).0.insert(key, connection);
        }
        taken
    }

    fn fetch(&self, flow: FlowId, range: RingRange, to: &mut [u8]) -> bool {
        let Some(connection) = self.at(flow) else { return false };
        let fetched = connection.lock().fetch(range, to);
        if !fetched {
            self.to_lane(connection, None);
        }
        fetched
    }

    fn lend(
        &self,
        flow: FlowId,
        range: RingRange,
        with: &mut dyn FnMut(&[Piece<'_>; PIECES]),
    ) -> bool {
        self.at(flow).is_some_and(|connection| connection.lock().lend(range, with))
    }

    fn event(&self, lane: Option<usize>, flow: FlowId, event: Event) {
        match event {
            Event::Incoming { .. } => {
                let connection = self.insert(flow);
                lock(&self.came).push(connection);
            }
            Event::Closed => self.ended(lane, flow, false),
            Event::Reset(why) => {
                if let Some(active_opens) = &self.active_opens {
                    active_opens.decides(flow, Some(why));
                }
                self.ended(lane, flow, true);
            }
            Event::Connected => {
                if let Some(active_opens) = &self.active_opens {
                    active_opens.decides(flow, None);
                }
            }
            Event::Readable(_) | Event::Acked(_) | Event::PeerClosed => {
                let Some(connection) = self.at(flow) else { return };
                let mut bridge = connection.lock();
                let of_use = match event {
                    Event::Readable(bytes) => {
                        bridge.came(bytes);
                        true
                    }
                    Event::Acked(bytes) => bridge.acked(bytes),
                    _ => {
                        bridge.peer_closed();
                        true
                    }
                };
                drop(bridge);
                if of_use {
                    self.to_lane(connection, lane);
                }
            }
        }
    }

    fn turn(&self, lane: usize, calls: &mut dyn Calls) -> Turn {
        let state = &self.lanes[lane];
        let asks = (state.turns.fetch_add(1, Relaxed) as u32).is_multiple_of(ASK);
        let said = core::mem::take(&mut *lock(&state.said));
        let mut ready = [Ready::default(); EVENTS];
        let count = state.set.look_now(&mut ready, &said, asks).unwrap_or(0);
        let mut doing = core::mem::take(&mut *lock(&state.todo));
        let mut turn = Turn::default();
        for event in &ready[..count] {
            let connection = lock(&state.bridges).get(&event.data).cloned();
            let Some(connection) = connection else { continue };
            let heard = connection.lock().hears(event.events);
            let refused = match heard {
                Heard::Nothing => false,
                Heard::Refused => true,
                Heard::Connected(to) => to.is_some_and(|to| !self.is_registered(to)),
            };
            if refused {
                connection.lock().fails();
                self.command(Command::LookAtListeners);
                turn.for_slow_path = true;
            }
            if !connection.queued.swap(true, AcqRel) {
                doing.push(connection);
            }
        }
        for connection in lock(&state.unread).late(Instant::now()) {
            connection.lock().fails();
            if !connection.queued.swap(true, AcqRel) {
                doing.push(connection);
            }
        }
        let held = lock(&state.grown).late(Instant::now());
        for connection in held {
            // (While its flow is held, as where something comes.)
            calls.forget_early(connection.id, &mut || connection.lock().forgets_early());
        }
        turn.worked = !doing.is_empty();
        // (Begun before, but where the lane is about to sleep.)
        state.context.knocks_later();
        for connection in doing {
            self.serve(state, &connection, calls, &mut turn);
        }
        state.context.knocks_now();
        turn
    }

    fn slow_turn(
        &self,
        time: Time,
        endpoint: &mut Endpoint<View<'_>>,
        out: &mut SlowOut<'_, Self>,
    ) -> bool {
        let commands = core::mem::take(&mut *lock(&self.commands));
        let came = core::mem::take(&mut *lock(&self.came));
        let slow = core::mem::take(&mut *lock(&self.slow));
        let mut some = !(commands.is_empty() && came.is_empty() && slow.is_empty());
        // (Once for all: Linux is asked for all of its sockets.)
        let (mut looks, mut gone) = (false, vec![]);
        for command in commands {
            match (command, &self.active_opens) {
                (Command::Connect(opening), Some(active_opens)) => {
                    self.open(time, active_opens, *opening, endpoint, out);
                }
                (Command::Closes(before), Some(active_opens)) => {
                    let flows = active_opens.take_back_before(before);
                    self.take_back(time, flows, endpoint, out);
                }
                (Command::NoDetour, Some(active_opens)) => {
                    self.take_back(time, active_opens.ends(), endpoint, out);
                }
                (Command::Gone(program), active_opens) => {
                    let all = |active_opens: &ActiveOpens| active_opens.take_back_of(program);
                    self.take_back(time, active_opens.as_ref().map_or(vec![], all), endpoint, out);
                    looks = true;
                    gone.push(program);
                }
                // (Somebody who does not wait any more does not hear it.)
                (Command::ReportAll(to), _) => {
                    let refused = lock(&self.programs).refused(endpoint);
                    let _ = to.send(Wires { flows: self.wired(endpoint), refused });
                }
                (Command::ReportOne(ends, answer), _) => {
                    if let Some(wired) = self.wired_one(ends, endpoint) {
                        answer.says(&wired.bytes());
                    }
                }
                (Command::Connect(_) | Command::Closes(_) | Command::NoDetour, None) => {}
                (Command::Listens(program, registered, by), _) => {
                    self.listens(time, (program, registered, by), endpoint, out);
                }
                (Command::Withdraw(at, answer), _) => {
                    self.withdraw(time, at, endpoint, out);
                    drop(answer);
                }
                (Command::LookAtListeners, _) => looks = true,
                (Command::Addresses, _) => {
                    self.look_at_addresses();
                    self.look_at_routes(endpoint);
                }
            }
        }
        if looks {
            self.look_at_listeners(time, endpoint, out);
        }
        // (Their numbers are free once their listeners are gone.)
        gone.into_iter().for_each(|program| lock(&self.programs).gone(program, endpoint));
        came.iter().for_each(|connection| self.meet(time, connection, endpoint, out));
        slow.iter().for_each(|connection| self.finish(time, connection, endpoint, out));
        if let Some(active_opens) = &self.active_opens {
            some |= self.decided(time, active_opens, endpoint, out);
        }
        some
    }

    fn route(&self, peer: Ipv4Addr) -> Option<u16> {
        self.routes.number(peer)
    }

    fn link(&self, route: u16) -> Option<Link> {
        let peer = self.routes.find(route)?;
        Some(Link { local: self.routes.hardware(), peer })
    }

    fn park_set(&self, lane: usize) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.lanes[lane].set.descriptor(), set::door()))
    }

    fn asleep(&self, lane: usize) -> bool {
        let state = &self.lanes[lane];
        let quiet = state.set.falls_asleep();
        quiet && lock(&state.todo).is_empty()
    }

    fn awake(&self, lane: usize, said: &[epoll::Event]) {
        let state = &self.lanes[lane];
        state.set.is_awake();
        let said = said.iter().map(Ready::said);
        let mut of_sockets = said.filter(|said| said.data != set::door()).peekable();
        if of_sockets.peek().is_some() {
            lock(&state.said).extend(of_sockets);
        }
    }
}

impl std::fmt::Debug for ConnectionTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sets: Vec<_> =
            self.lanes.iter().map(|state| state.set.descriptor().as_raw_fd()).collect();
        write!(f, "ConnectionTable({} connections, sets {sets:?})", self.connections())
    }
}
