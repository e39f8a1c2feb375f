//! A process: its doors, its connection to the service, the regions that it shares with others. It
//! knows of connections what `Registered` says.

use crate::blocks::{Blocks, Exchange, Whose};
use crate::door::knock_at;
use crate::dying::Deaths;
use crate::ends::Ends;
use crate::holders::Words;
use crate::knocks::Knocks;
use crate::lengths::Lengths;
use crate::lock::{Guarded, lock};
use crate::mapped::{Mapped, Registered};
use crate::order::{AllNews, ByLinux, Knocked, News};
use crate::own::Own;
use crate::settings::Settings;
use crate::sleepers::Sleepers;
use crate::spinning::Spinning;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use uncopy_kernel::descriptors::{Kept, OwnFd, have_room};
use uncopy_kernel::{clock, critical, placement};
use uncopy_tcp_service::ends::EndName;
use uncopy_tcp_service::protocol::{Message, StayReason};
use uncopy_tcp_service::{Client, Wired};
use uncopy_tcp_shared::layout::REGION;
use uncopy_tcp_shared::notice::{Notice, SLOTS};
use uncopy_tcp_shared::region::SharedRegion;
use uncopy_tcp_shared::stores::Prices;
use uncopy_tcp_shared::ticks::ticks;
use uncopy_tcp_shared::wanted::{ASK, DOORS};

#[derive(Debug, Default)]
enum Service {
    #[default]
    NotAsked,
    /// One is there and did not answer; since when, and for how long it is not asked again.
    Silent(Instant, Duration),
    /// It was started; so long it may take.
    Starting(Instant),
    /// Since when nobody is asked.
    None(Instant),
    Here(Arc<Client>),
}

/// Loading a program takes some milliseconds, on a busy machine some hundred.
const STARTS: Duration = Duration::from_secs(2);
/// Where there was none it is asked again after this long; also one that has not answered for
/// long: it may have been stopped, or had no room.
const AGAIN: Duration = Duration::from_secs(30);
/// One that has not answered is asked again after this long, then twice as long each time.
const PAUSE: Duration = Duration::from_secs(1);
/// Blocks of a program that has gone are looked for again after this long, in ms: a call may be
/// reading them, and its last process may still be ending.
const TRIES_AGAIN: u64 = 20;
/// Then twice as long each time, up to this: a forked child may have what its parent had as long as
/// it lives.
const SELDOM: u64 = 1000;

/// An answer to "is there a service?".
pub(crate) enum ClientLookup {
    Here(Arc<Client>),
    NotYet,
    None,
}

/// See above.
#[derive(Debug)]
pub struct Context {
    pub(crate) settings: Settings,
    pub(crate) process: AtomicU32,
    pub(crate) doors: Vec<Kept>,
    pub(crate) knocks: Arc<Knocks>,
    pub(crate) by_linux: Arc<ByLinux>,
    /// When this process has knocked at doors of its own first, since that was taken; 0: it has
    /// not.
    knocked_at_own: [AtomicU64; DOORS + 1],
    pub(crate) sleepers: Sleepers,
    pub(crate) spinning: Spinning,
    pub(crate) lengths: Lengths,
    /// We were given some.
    has_arenas: AtomicBool,
    /// See [`gives_nothing`](Self::gives_nothing).
    pub(crate) gives_nothing: AtomicBool,
    /// Blocks that we were given were given on.
    pub(crate) gives_on: AtomicBool,
    /// Our own blocks, as long as some peer has them.
    pub(crate) arena: Guarded<Weak<Own>>,
    /// Those in which something has settled.
    pub(crate) settled: Guarded<Vec<Arc<Own>>>,
    /// There are some.
    pub(crate) has_settled: AtomicBool,
    service: Guarded<Service>,
    pub(crate) words: Guarded<Words>,
    pumping: Guarded<()>,
    next_door: AtomicU32,
    /// How many sets share each door.
    sets: [AtomicU32; DOORS],
    last_token: AtomicU64,
    registered: Guarded<HashMap<u64, Weak<dyn Registered>>>,
    unregistered: Guarded<VecDeque<(u64, EndName)>>,
    has_unregistered: AtomicBool,
    regions: Guarded<Vec<Arc<Mapped>>>,
    /// Some of these may be let go of: programs have gone.
    has_left: AtomicBool,
    /// Of programs at the other ends.
    pub(crate) deaths: Deaths,
    /// When that is tried again, in ms, and how long after that.
    tries_again: AtomicU64,
    pause: AtomicU64,
    /// How many threads sleep over sets at each door. Changed with the lock of `regions`, whose
    /// notices say so.
    asleep: [AtomicU32; DOORS],
    /// It, or a process that it was forked from, is in another process namespace than that one's
    /// parent: their numbers are not each other's.
    elsewhere: AtomicBool,
}

impl Context {
    /// Nothing happens before the first socket is registered, but for the doors, which are made.
    pub fn new(settings: Settings) -> Result<Arc<Self>, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let door = |_| Kept::new(OwnFd::from(eventfd(0, flags)?));
        let doors = (0..=ASK).map(door).collect::<Result<_, _>>()?;
        let waiting = settings.waiting;
        let lengths = Lengths::new(settings.after);
        let knocks = Arc::new(Knocks::new(settings.wary)?);
        Ok(Arc::new(Self {
            settings,
            process: AtomicU32::new(std::process::id()),
            doors,
            knocks,
            by_linux: Arc::default(),
            knocked_at_own: Default::default(),
            sleepers: Sleepers::default(),
            spinning: Spinning::new(waiting),
            lengths,
            has_arenas: AtomicBool::new(false),
            gives_nothing: AtomicBool::new(false),
            gives_on: AtomicBool::new(false),
            arena: Guarded::new(Weak::new()),
            settled: Guarded::default(),
            has_settled: AtomicBool::new(false),
            service: Guarded::default(),
            words: Guarded::default(),
            pumping: Guarded::default(),
            next_door: AtomicU32::new(0),
            sets: [const { AtomicU32::new(0) }; DOORS],
            last_token: AtomicU64::new(0),
            registered: Guarded::default(),
            unregistered: Guarded::default(),
            has_unregistered: AtomicBool::new(false),
            regions: Guarded::default(),
            has_left: AtomicBool::new(false),
            deaths: Deaths::default(),
            tries_again: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            asleep: [const { AtomicU32::new(0) }; DOORS],
            elsewhere: AtomicBool::new(false),
        }))
    }

    /// The process that locks are held for.
    #[inline]
    pub(crate) fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn known_client(&self) -> Option<Arc<Client>> {
        match &*lock(&self.service) {
            Service::Here(client) => Some(client.clone()),
            _ => None,
        }
    }

    fn client(&self) -> ClientLookup {
        self.client_of(self.settings.start)
    }

    /// `start`: what starts a service where none is.
    pub(crate) fn client_of(&self, start: Option<fn()>) -> ClientLookup {
        let mut service = lock(&self.service);
        match &*service {
            Service::Here(client) => return ClientLookup::Here(client.clone()),
            Service::None(since) if since.elapsed() < AGAIN => return ClientLookup::None,
            Service::Silent(since, pause) if since.elapsed() < *pause => {
                return ClientLookup::NotYet;
            }
            _ => {}
        }
        let doors: Vec<BorrowedFd> = self.doors.iter().map(AsFd::as_fd).collect();
        let which = &self.settings.service;
        let found = match &*service {
            // (It is started because nobody answers.)
            Service::Starting(_) => Client::connect(&which.own(), &doors),
            _ => which
                .ask(|name| Client::connect(name, &doors))
                .map_or_else(|(e, _)| Err(e), |(c, _)| Ok(c)),
        };
        match (found, &*service, start) {
            (Ok(client), ..) => {
                let client = Arc::new(client);
                *service = Service::Here(client.clone());
                ClientLookup::Here(client)
            }
            (Err(Errno::CONNREFUSED), Service::Starting(since), _) if since.elapsed() < STARTS => {
                ClientLookup::NotYet
            }
            (Err(Errno::CONNREFUSED), Service::NotAsked | Service::Silent(..), Some(start)) => {
                start();
                *service = Service::Starting(Instant::now());
                ClientLookup::NotYet
            }
            // It is there, and many have come before.
            (Err(Errno::AGAIN), ..) => ClientLookup::NotYet,
            // It is there, and has no core, or was stopped. Each question may take this program's
            // timeout: so they are fewer and fewer.
            (Err(Errno::TIMEDOUT), before, _) => {
                let pause = match before {
                    Service::Silent(_, pause) => (*pause * 2).min(AGAIN),
                    _ => PAUSE,
                };
                *service = Service::Silent(Instant::now(), pause);
                ClientLookup::NotYet
            }
            // (Somebody else may start one.)
            (Err(Errno::CONNREFUSED), Service::NotAsked, None) if self.settings.start.is_some() => {
                ClientLookup::NotYet
            }
            // (Nothing is started a second time.)
            _ => {
                *service = Service::None(Instant::now());
                ClientLookup::None
            }
        }
    }

    /// The service has ended: the next connection starts another one. Those that wait for its
    /// answer are registered anew.
    pub(crate) fn lost(&self, client: &Arc<Client>) {
        {
            let mut service = lock(&self.service);
            if matches!(&*service, Service::Here(other) if Arc::ptr_eq(other, client)) {
                *service = Service::NotAsked;
            }
        }
        lock(&self.unregistered).clear();
        {
            // Nobody will say any more that the other programs have gone.
            let regions = lock(&self.regions);
            regions.iter().for_each(|mapped| mapped.gone.store(true, Ordering::Relaxed));
        }
        self.let_go_of_regions();
        let waiting = std::mem::take(&mut *lock(&self.registered));
        waiting.values().filter_map(Weak::upgrade).for_each(|flow| flow.not_yet());
    }

    /// Whether `error`, with which a call of `client`'s has ended, says that the service has ended.
    /// Then it is given up: [`Context::lost`].
    pub(crate) fn has_lost(&self, client: &Arc<Client>, error: Errno) -> bool {
        let gone = says_gone(error);
        if gone {
            self.lost(client);
        }
        gone
    }

    /// The program has become another user. One that cannot be the user again that the service
    /// knows begins anew, as the user that it is now.
    ///
    /// True: so it does.
    pub fn user_changes(&self) -> bool {
        let known = match &mut *lock(&self.service) {
            Service::Here(client) if !client.is_users() => client.clone(),
            service @ (Service::None(_) | Service::Silent(..)) => {
                *service = Service::NotAsked;
                return false;
            }
            _ => return false,
        };
        self.lost(&known);
        // (A process that has what this one was sees nothing that it sends from now on.)
        *lock(&self.arena) = Weak::new();
        lock(&self.regions).iter().for_each(|mapped| mapped.exchange.user_changes());
        true
    }

    /// In a forked child, before it uses anything: what is shared stays shared, but for the
    /// conversation with the service, which is the parent's.
    pub fn after_fork_in_child(&self) {
        self.process.store(std::process::id(), Ordering::Relaxed);
        if rustix::process::getppid().is_none() {
            self.elsewhere.store(true, Ordering::Relaxed);
        }
        *lock(&self.service) = Service::NotAsked;
        *lock(&self.words) = Words::default();
        // (What has settled is the parent's.)
        self.has_settled.store(false, Ordering::Relaxed);
        lock(&self.registered).clear();
        lock(&self.unregistered).clear();
        self.deaths.clear();
        self.sleepers.clear();
        self.asleep.iter().for_each(|door| door.store(0, Ordering::Relaxed));
        lock(&self.regions).iter().for_each(|mapped| mapped.exchange.is_inherited());
    }

    /// Its number, and those of the processes that it shares connections with, mean the same to all
    /// of them.
    pub(crate) fn is_in_its_place(&self) -> bool {
        !self.elsewhere.load(Ordering::Relaxed)
    }

    /// Before fork: nothing of it changes.
    pub(crate) fn hold(&self) {
        self.settled.hold();
        self.service.hold();
        self.pumping.hold();
        self.deaths.hold();
        self.unregistered.hold();
        self.registered.hold();
        self.words.hold();
        self.regions.hold();
        // SAFETY: it is held.
        unsafe { &*self.regions.value() }.iter().for_each(|mapped| {
            mapped.flows.hold();
            mapped.exchange.hold();
        });
        self.sleepers.hold();
    }

    /// After fork, in the parent and in the child.
    pub(crate) fn let_go(&self) {
        self.sleepers.let_go();
        // SAFETY: it is still held.
        unsafe { &*self.regions.value() }.iter().for_each(|mapped| {
            mapped.exchange.let_go();
            mapped.flows.let_go();
        });
        self.regions.let_go();
        self.words.let_go();
        self.registered.let_go();
        self.unregistered.let_go();
        self.deaths.let_go();
        self.pumping.let_go();
        self.service.let_go();
        self.settled.let_go();
    }

    /// Wakes all of this process' own sleepers (but for those that listen at their connection's own
    /// door alone).
    pub fn wake_sleepers(&self) {
        (0..self.doors.len()).for_each(|door| self.knock_at_own(door));
    }

    /// Wakes those that sleep at this door of this process'.
    pub(crate) fn knock_at_own(&self, door: usize) {
        let knocked = &self.knocked_at_own[door];
        let _ = knocked.compare_exchange(0, ticks(), Ordering::Relaxed, Ordering::Relaxed);
        knock_at(&self.doors[door]);
    }

    /// Until [`knocks_now`](Self::knocks_now), which has to follow soon, nobody is woken because of
    /// bytes or room.
    pub fn knocks_later(&self) {
        self.knocks.later();
    }

    /// Wakes who was to be woken.
    pub fn knocks_now(&self) {
        self.knocks.now();
    }

    /// A door for a set, until [`Context::no_set`].
    pub(crate) fn next_door(&self) -> usize {
        let door = self.next_door.fetch_add(1, Ordering::Relaxed) as usize % DOORS;
        self.sets[door].fetch_add(1, Ordering::Relaxed);
        door
    }

    /// A set of this door is no more.
    pub(crate) fn no_set(&self, door: usize) {
        self.sets[door].fetch_sub(1, Ordering::Relaxed);
    }

    /// Registers a connection with the service, by one short message.
    pub(crate) fn register_with_service(&self, flow: Arc<dyn Registered>, name: EndName) {
        let client = match self.client() {
            ClientLookup::Here(client) => client,
            ClientLookup::NotYet => return flow.not_yet(),
            ClientLookup::None => return flow.stays(StayReason::NoService),
        };
        let token = self.last_token.fetch_add(1, Ordering::Relaxed);
        flow.is_named(token);
        lock(&self.registered).insert(token, Arc::downgrade(&flow));
        // In the order of accepting; and answers are read while questions are asked, so that
        // neither queue overflows in a storm of connections.
        lock(&self.unregistered).push_back((token, name));
        self.has_unregistered.store(true, Ordering::Relaxed);
        self.pump();
        self.ask(&client);
    }

    /// The socket that was registered by this name is closed, and nobody has said what becomes of
    /// it. The answer may find a program that sleeps for long: so the service hears that nobody
    /// waits for it.
    pub(crate) fn forgets(&self, token: u64) {
        // (While nobody registers: one that was not registered yet is passed over there.)
        let unregistered = lock(&self.unregistered);
        let waited = lock(&self.registered).remove(&token).is_some();
        drop(unregistered);
        if waited && let Some(client) = self.known_client() {
            // (A service that it does not reach hears it with this program's next call.)
            let _ = client.forgets(token);
        }
    }

    /// Registers a socket that listens here, to a service that is there and takes connections for
    /// it: none is started for it. True: one has taken it.
    pub fn register_listener(&self, socket: BorrowedFd, at: SocketAddrV4) -> bool {
        let ClientLookup::Here(client) = self.client_of(None) else { return false };
        if !client.takes() {
            return false;
        }
        client.listens(socket, at).inspect_err(|error| _ = self.has_lost(&client, *error)).is_ok()
    }

    /// The service's knowledge of the connection of this socket, which it carries over its wire.
    ///
    /// # Errors
    /// There is none that answers.
    pub fn wired(&self, socket: BorrowedFd) -> Result<Option<Wired>, Errno> {
        let ClientLookup::Here(client) = self.client_of(None) else {
            return Err(Errno::CONNREFUSED);
        };
        client.info(socket).inspect_err(|error| _ = self.has_lost(&client, *error))
    }

    /// A socket that listens here is to be Linux's again. False: it may not be yet.
    pub fn withdraw_listener(&self, socket: BorrowedFd, at: SocketAddrV4) -> bool {
        let client = match self.client_of(None) {
            ClientLookup::Here(client) => client,
            // (It may have been there, and have it, though it does not answer this one now.)
            ClientLookup::NotYet | ClientLookup::None => {
                let doors: Vec<BorrowedFd> = self.doors.iter().map(AsFd::as_fd).collect();
                match self.settings.service.ask(|name| Client::connect(name, &doors)) {
                    Ok((client, _)) => Arc::new(client),
                    Err((error, _)) => return !matches!(error, Errno::AGAIN | Errno::TIMEDOUT),
                }
            }
        };
        if !client.takes() {
            return true;
        }
        match client.withdraws(socket, at) {
            Ok(done) => done || client.is_over(),
            // (The segments that it has steered end with it.)
            Err(error) => self.has_lost(&client, error),
        }
    }

    /// Registers what is still to be registered, as far as the service takes it now.
    fn ask(&self, client: &Arc<Client>) {
        let mut unregistered = lock(&self.unregistered);
        while let Some(&(token, name)) = unregistered.front() {
            let flow = lock(&self.registered).get(&token).and_then(Weak::upgrade);
            let outcome =
                flow.as_ref().map_or(Ok(()), |flow| client.register(token, flow.fd(), name));
            match outcome {
                Err(Errno::AGAIN) => return,
                Err(error) if says_gone(error) => {
                    drop(unregistered);
                    return self.lost(client);
                }
                _ => {}
            }
            unregistered.pop_front();
            if outcome.is_err() || flow.is_none() {
                lock(&self.registered).remove(&token);
            }
            if let (Err(error), Some(flow)) = (outcome, flow) {
                flow.stays(match error {
                    Errno::MFILE | Errno::NFILE | Errno::NOMEM => StayReason::NoMemory,
                    _ => StayReason::NoService,
                });
            }
        }
        self.has_unregistered.store(false, Ordering::Relaxed);
    }

    /// Takes the service's answers. Hardly anything, where there are none.
    #[inline]
    pub fn pump(&self) {
        self.collects();
        self.deaths.look_again();
        let has_unregistered = self.has_unregistered.load(Ordering::Relaxed);
        let news = match &*lock(&self.service) {
            Service::Here(client) if client.has_news() || has_unregistered => Some(client.clone()),
            _ if self.has_left.load(Ordering::Relaxed) => None,
            _ => return,
        };
        // Descriptors that come with an answer in a child of vfork, which has this memory, would be
        // none of this process.
        if std::process::id() != self.process() {
            return;
        }
        if let Some(news) = news {
            self.pump_news(&news);
            if has_unregistered {
                self.ask(&news);
            }
        }
        if self.has_left.load(Ordering::Relaxed)
            && clock::millis() >= self.tries_again.load(Ordering::Relaxed)
        {
            self.let_go_of_regions();
        }
    }

    /// The service has sent what nobody has taken yet.
    pub fn has_news(&self) -> bool {
        self.known_client().is_some_and(|client| client.has_news())
    }

    #[cold]
    fn pump_news(&self, client: &Client) {
        // In the order in which they come: the first of a region brings its memory.
        let _order = lock(&self.pumping);
        while let Some((message, fds)) = client.next() {
            // (To be closed past libc: a thread that is cancelled would end in its `close`, with
            // the lock held.)
            let fds: Vec<OwnFd> = fds.into_iter().map(OwnFd::from).collect();
            match message {
                Message::Matched { token, region, slot, side, generation } => {
                    let flow =
                        lock(&self.registered).remove(&token).and_then(|flow| flow.upgrade());
                    let Some(mapped) = self.mapped(region, side, fds) else {
                        // (Else each connection with that program would stay Linux's, also once
                        // there is room again.)
                        let _ = client.misses(region, side, slot, generation);
                        flow.into_iter().for_each(|flow| flow.stays(StayReason::NoMemory));
                        continue;
                    };
                    let (slot, generation) = (slot as usize, generation as u32);
                    match flow {
                        _ if slot >= SLOTS => {}
                        Some(flow) => flow.attach(mapped, slot, generation),
                        None => mapped.closed(slot, generation),
                    }
                }
                Message::Stays { token, reason } => {
                    if let Some(flow) =
                        lock(&self.registered).remove(&token).and_then(|flow| flow.upgrade())
                    {
                        flow.stays(reason);
                    }
                }
                Message::Door { region, slot, side, generation } => {
                    if let (Some(mapped), Some(door)) =
                        (self.known(region, side), fds.into_iter().next())
                        && (slot as usize) < SLOTS
                        && let Some(flow) = mapped.flow(slot as usize)
                    {
                        flow.take_door(generation as u32, door);
                    }
                }
                Message::Arena { region, side, number, generation, by } => {
                    if let (Some(mapped), Some(memory)) =
                        (self.known(region, side), fds.into_iter().next())
                        && mapped.blocks != Blocks::NONE
                        && !self.gives_nothing.load(Ordering::Relaxed)
                    {
                        let which = (mapped.id, mapped.side);
                        // (An arena that does not fit is left out: bytes go by the ring.)
                        self.has_arenas.store(true, Ordering::Relaxed);
                        let number = (number, generation);
                        let _ = mapped.exchange.takes(memory, number, &mapped.region, which, by);
                        // (It may have come in place of another.)
                        self.may_let_go();
                    }
                }
                Message::ArenaEnds { region, side, number, generation, done } => {
                    if let Some(mapped) = self.known(region, side)
                        && mapped.exchange.ends((number, generation), done != 0)
                    {
                        self.may_let_go();
                    }
                }
                Message::Gone { region } => {
                    let of = |mapped: &&Arc<Mapped>| mapped.id == region;
                    let gone: Vec<_> = lock(&self.regions).iter().filter(of).cloned().collect();
                    for mapped in gone {
                        mapped.gone.store(true, Ordering::Relaxed);
                        self.deaths.look(mapped.flows(), self.settings.may_wait);
                    }
                    self.may_let_go();
                }
                _ => {}
            }
        }
    }

    fn known(&self, id: u64, side: u64) -> Option<Arc<Mapped>> {
        let side = usize::from(side != 0);
        let same = |mapped: &&Arc<Mapped>| mapped.id == id && mapped.side == side;
        lock(&self.regions).iter().find(same).cloned()
    }

    fn mapped(&self, id: u64, side: u64, mut fds: Vec<OwnFd>) -> Option<Arc<Mapped>> {
        // (It may come again: two answers found no room for descriptors, and both were told of.)
        let known = self.known(id, side);
        if known.is_some() || fds.is_empty() {
            return known;
        }
        // A side that lacks a door could not wake the threads that sleep at it. And the program may
        // want the descriptors for itself.
        if fds.len() != 1 + self.doors.len() || !have_room(self.doors.len() as u64) {
            return None;
        }
        let side = usize::from(side != 0);
        let memory = fds.remove(0);
        let region = Arc::new(SharedRegion::map(placement::SHARED.next(REGION), &memory).ok()?);
        let mapped = Arc::new(Mapped {
            id,
            process: self.process(),
            side,
            region,
            doors: fds
                .into_iter()
                .map(|door| Kept::new(self.is_door(&door).then_some(door).ok_or(Errno::INVAL)?))
                .collect::<Result<Vec<_>, _>>()
                .ok()?
                .into(),
            ends: Ends::new().ok()?,
            exchange: Exchange::new(self.process()),
            blocks: if self.settings.wary { Blocks::NONE } else { self.settings.blocks },
            prices: Prices::default(),
            knocks: self.knocks.clone(),
            by_linux: self.by_linux.clone(),
            knocked: Knocked::default(),
            gone: AtomicBool::new(false),
            flows: Guarded::new([const { None }; SLOTS]),
        });
        // (Another thread may have made some meanwhile.)
        if !have_room(0) {
            return None;
        }
        self.may_let_go();
        lock(&self.regions).push(mapped.clone());
        Some(mapped)
    }

    /// The next look at the service's answers lets go of regions.
    fn may_let_go(&self) {
        self.pause.store(0, Ordering::Relaxed);
        self.tries_again.store(0, Ordering::Relaxed);
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Those of programs that have gone, once no connection here is in them. Views of their blocks
    /// are called back: they would keep the regions, and their descriptors, for as long as the
    /// program likes. Programs that such blocks were given on to hear of it.
    ///
    /// Not with a lock of ours held, nor before this thread forks: calling back waits for a fork
    /// that is under way.
    fn let_go_of_regions(&self) {
        if !critical::may_wait() {
            return self.may_let_go();
        }
        self.has_left.store(false, Ordering::Relaxed);
        self.lets_go_of_settled();
        Self::lets_go_of(&self.take_over());
        let all: Vec<Arc<Mapped>> = lock(&self.regions).clone();
        let mut again = false;
        // (Blocks that were given on to others keep the memory that they lie in.)
        for mapped in &all {
            mapped.exchange.collects(mapped.region.returns(mapped.side));
        }
        for mapped in &all {
            let exchange = &mapped.exchange;
            let left = mapped.is_left() || exchange.is_to_be_forsworn();
            exchange.frees_numbers();
            if left {
                exchange.all_end();
            }
            if left || exchange.has_leaving() {
                exchange.recalls(left);
                exchange.collects(mapped.region.returns(mapped.side));
                again |= mapped.is_left() || exchange.is_to_be_forsworn() || exchange.has_leaving();
            }
        }
        for mapped in &all {
            again |= self.says_that_arenas_end(mapped);
        }
        drop(all);
        let over = self.take_over();
        again |= !over.is_empty();
        Self::lets_go_of(&over);
        if again {
            let pause = self.pause.load(Ordering::Relaxed).max(TRIES_AGAIN);
            self.pause.store((pause * 2).min(SELDOM), Ordering::Relaxed);
            self.tries_again.store(clock::millis() + pause, Ordering::Relaxed);
            self.has_left.store(true, Ordering::Relaxed);
        }
    }

    /// Blocks that were given go now, and not with the last reference to these: it may be kept for
    /// long, or dropped in a section.
    fn lets_go_of(over: &[Arc<Mapped>]) {
        over.iter().for_each(|mapped| mapped.exchange.lets_go());
    }

    /// Those that nobody will look at again: to be dropped without a lock, as the books are that
    /// know a peer's arena.
    fn take_over(&self) -> Vec<Arc<Mapped>> {
        let over: Vec<Arc<Mapped>> =
            lock(&self.regions).extract_if(.., |mapped| mapped.is_over()).collect();
        over.iter().for_each(|mapped| mapped.exchange.all_end());
        over
    }

    /// This process gives up rights, and the user that it is from then on is not to see what
    /// others' arenas show: theirs go of which no connection reads any more
    /// ([`crate::flow::Flow::has_arenas`]).
    pub fn forgets_arenas(&self) {
        let all: Vec<Arc<Mapped>> = lock(&self.regions).clone();
        for mapped in all.iter().filter(|mapped| mapped.exchange.has_arenas()) {
            if mapped.flows().iter().all(|flow| flow.has_ended() || flow.has_left()) {
                mapped.exchange.forswears();
            }
        }
        drop(all);
        self.let_go_of_regions();
    }

    /// Nobody is to look at this process' memory any more: nothing more is put where others can,
    /// nor taken from there.
    pub fn gives_nothing(&self) {
        self.gives_nothing.store(true, Ordering::Relaxed);
    }

    /// To whom they were given on. True: again later.
    fn says_that_arenas_end(&self, mapped: &Mapped) -> bool {
        let (client, which) = (self.known_client(), (mapped.id, mapped.side));
        let gone = mapped.gone.load(Ordering::Relaxed);
        mapped.exchange.arenas_end(mapped.region.returns(mapped.side), |number, done| {
            // (A peer that has gone, or whose service has, hears nothing.)
            let tells = |client: &Arc<Client>| client.arena_ends(which, number, done).is_ok();
            gone || client.as_ref().is_some_and(tells)
        })
    }

    /// Blocks of others that were given on, and that are back, go back themselves. Not with a lock
    /// held.
    pub(crate) fn collects(&self) {
        if !self.gives_on.load(Ordering::Relaxed) || !critical::may_wait() {
            return;
        }
        let keeps = |mapped: &&Arc<Mapped>| mapped.exchange.keeps_some();
        let all: Vec<Arc<Mapped>> = lock(&self.regions).iter().filter(keeps).cloned().collect();
        for mapped in &all {
            mapped.exchange.collects(mapped.region.returns(mapped.side));
        }
    }

    /// Bytes that were sent without a copy, because they lie in blocks that others have sent.
    pub fn bytes_given_on(&self) -> u64 {
        self.settings.counters.tcp_given_on_bytes.load(Ordering::Relaxed)
    }

    /// There were arenas that we were given.
    pub(crate) fn has_arenas(&self) -> bool {
        self.has_arenas.load(Ordering::Relaxed)
    }

    /// The arena in which these bytes lie.
    pub(crate) fn arena_with(&self, at: usize, bytes: usize) -> Option<Whose> {
        let own = || self.settled_with(at, bytes).map(Whose::Own);
        if !self.has_arenas() {
            return own();
        }
        let regions = lock(&self.regions);
        let peer = regions.iter().find_map(|mapped| mapped.exchange.peer_with(at, bytes));
        drop(regions);
        peer.map(Whose::Peer).or_else(own)
    }

    /// A connection of this region has been closed.
    pub(crate) fn has_ended_in(&self, mapped: &Mapped) {
        if mapped.gone.load(Ordering::Relaxed) {
            self.let_go_of_regions();
        }
    }

    /// It is of the same kind as ours: writing to anything else (a pipe, a file of FUSE) might wait
    /// for its giver.
    pub(crate) fn is_door(&self, door: impl AsFd) -> bool {
        let kind = |fd: BorrowedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        // (All that have no name are one file.)
        kind(door.as_fd()).is_ok_and(|kind_of| kind(self.doors[0].as_fd()) == Ok(kind_of))
    }

    /// Takes the notices of a door, for the sets that they are for.
    #[inline]
    pub(crate) fn news(&self, door: usize) -> AllNews<Arc<dyn Registered>> {
        let process = self.process();
        let mut all = AllNews::default();
        for mapped in lock(&self.regions).iter().filter(|mapped| mapped.process == process) {
            mapped.region.notice(mapped.side, door).collect(|slot| {
                let Some(flow) = mapped.flow(slot) else { return };
                let header = mapped.region.slot(slot).header;
                all.add(News::new(&header.directions[1 - mapped.side].produced, flow));
            });
        }
        all
    }

    /// When this door was knocked at first, and not because of a notice, since that was taken.
    pub(crate) fn woken(&self, door: usize) -> Option<u64> {
        let own = self.knocked_at_own[door].load(Ordering::Relaxed);
        self.first_woken(door, own, Notice::woken, 0)
    }

    /// The first one of `since` and later, and from now on the next one is the first.
    pub(crate) fn take_woken(&self, door: usize, since: u64) -> Option<u64> {
        let own = &self.knocked_at_own[door];
        let own = if own.load(Ordering::Relaxed) == 0 { 0 } else { own.swap(0, Ordering::Relaxed) };
        self.first_woken(door, own, Notice::take_woken, since)
    }

    /// (Of each peer what is older hides nothing that another has said since.)
    fn first_woken(
        &self,
        door: usize,
        own: u64,
        by_others: fn(&Notice) -> Option<u64>,
        since: u64,
    ) -> Option<u64> {
        let process = self.process();
        let regions = lock(&self.regions);
        let of_others = regions
            .iter()
            .filter(|mapped| mapped.process == process)
            .filter_map(|mapped| by_others(mapped.region.notice(mapped.side, door)));
        let all = of_others.chain(Some(own).filter(|&own| own != 0));
        all.filter(|&at| at >= since).min()
    }

    /// Several sets have this door.
    pub(crate) fn is_shared(&self, door: usize) -> bool {
        self.sets[door].load(Ordering::Relaxed) > 1
    }

    /// The conversation with the service; begun, if it was not.
    pub(crate) fn any_client(&self) -> Option<Arc<Client>> {
        match self.client() {
            ClientLookup::Here(client) => Some(client),
            _ => None,
        }
    }

    /// Gives up the rings that the other sides have asked for.
    #[inline]
    pub(crate) fn serve_asked(&self) {
        let asked = |mapped: &Arc<Mapped>| mapped.region.notice(mapped.side, ASK).any();
        let asked: Vec<Arc<Mapped>> =
            lock(&self.regions).iter().filter(|mapped| asked(mapped)).cloned().collect();
        for mapped in asked {
            mapped.region.notice(mapped.side, ASK).collect(|slot| {
                if let Some(flow) = mapped.flow(slot) {
                    flow.is_asked_for();
                }
            });
        }
    }

    /// Serves what the other sides ask for, whatever this program does meanwhile, until `stop` can
    /// be read. For a thread of its own. Without one, the next call that waits, or that sends on
    /// the connection, does it.
    pub fn attend(&self, stop: BorrowedFd) -> Result<(), Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (door, end) = (epoll::EventData::new_u64(0), epoll::EventData::new_u64(1));
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &self.doors[ASK], door, edges)?;
        epoll::add(&set, stop, end, epoll::EventFlags::IN)?;
        loop {
            self.serve_asked();
            let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: door }; 2];
            match epoll::wait(&set, &mut events, None) {
                Err(Errno::INTR) => {}
                count => {
                    if events[..count?].iter().any(|event| event.data.u64() == 1) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The other sides knock at this door from now on. (Not those of a parent process: their
    /// notices are the parent's.)
    pub(crate) fn falls_asleep(&self, door: usize) {
        let regions = lock(&self.regions);
        self.asleep[door].fetch_add(1, Ordering::Relaxed);
        for mapped in regions.iter().filter(|mapped| mapped.process == self.process()) {
            mapped.region.notice(mapped.side, door).falls_asleep();
        }
    }

    /// True: there is news after all.
    pub(crate) fn has_notices(&self, door: usize) -> bool {
        {
            let process = self.process();
            lock(&self.regions).iter().any(|mapped| {
                mapped.process == process && mapped.region.notice(mapped.side, door).any()
            })
        }
    }

    /// `others`: further threads sleep in the same set, of which a knock has woken only this one:
    /// they want to hear of what comes next.
    pub(crate) fn is_awake(&self, door: usize, others: bool) {
        let regions = lock(&self.regions);
        // (Another set's thread may sleep at the same door.)
        let last = self.asleep[door].fetch_sub(1, Ordering::Relaxed) == 1;
        if last || others {
            for mapped in regions.iter().filter(|mapped| mapped.process == self.process()) {
                let notice = mapped.region.notice(mapped.side, door);
                if last { notice.is_awake() } else { notice.falls_asleep() }
            }
        }
    }
}

/// Whether a call of a client's that ends with this has met nobody.
fn says_gone(error: Errno) -> bool {
    matches!(error, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they come where a program has no room for more descriptors.
    #[test]
    fn a_region_without_all_doors_is_none() {
        let context = Context::new(Settings::new("uncopy-tcp-test-nobody")).unwrap();
        let door = |_| eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let with = |doors: usize| {
            let memory = uncopy_tcp_shared::region::create().unwrap();
            std::iter::once(memory).chain((0..doors).map(door)).map(OwnFd::from).collect()
        };
        assert!((0..=ASK).all(|doors| context.mapped(1, 0, with(doors)).is_none()));
        assert!(context.known(1, 0).is_none());
        assert!(context.mapped(1, 0, with(ASK + 1)).is_some());
    }

    /// Two answers came where there was no room for descriptors, and so the service sends them
    /// twice.
    #[test]
    fn a_region_that_comes_again_is_the_one_that_is_known() {
        let context = Context::new(Settings::new("uncopy-tcp-test-nobody")).unwrap();
        let memory = uncopy_tcp_shared::region::create().unwrap();
        let door = |_| eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let with = || {
            let memory = std::iter::once(memory.try_clone().unwrap());
            memory.chain((0..=ASK).map(door)).map(OwnFd::from)
        };
        let first = context.mapped(1, 0, with().collect()).unwrap();
        let again = context.mapped(1, 0, with().collect()).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        // Its other side is another one, where both ends are this program's.
        let other = context.mapped(1, 1, with().collect()).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
        assert_eq!(lock(&context.regions).len(), 2);
    }

    /// It was stopped, or had no room. From then on nothing is started in its place.
    #[test]
    fn a_service_that_did_not_answer_is_asked_again_after_a_while() {
        use uncopy_tcp_service::{Limits, Options, Service as Serving};
        let name = format!("uncopy-tcp-test-again-{}", std::process::id());
        let context = Context::new(Settings::new(name.as_str())).unwrap();
        let ask = || context.client_of(Some(|| panic!("it is started")));
        let long_ago = || Service::None(Instant::now().checked_sub(AGAIN).unwrap());
        *lock(&context.service) = long_ago();
        assert!(matches!(ask(), ClientLookup::None));
        let limits = Limits::default();
        let service = Serving::bind(Options { name, limits, ends_idle: None }).unwrap();
        let stop = service.stop();
        let runs = std::thread::spawn(|| service.run());
        assert!(matches!(ask(), ClientLookup::None), "so soon");
        *lock(&context.service) = long_ago();
        assert!(matches!(ask(), ClientLookup::Here(_)));
        stop.stop();
        runs.join().unwrap().unwrap();
    }

    /// A machine that is busy, or was stopped for a moment, leaves it no core for a second.
    #[test]
    fn one_that_is_there_and_silent_is_asked_again_soon_and_then_seldom() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
        use uncopy_tcp_service::{Limits, Options, Service as Serving};
        let name = format!("uncopy-tcp-test-silent-{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let (unix, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(unix, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 8).unwrap();
        let context = Context::new(Settings::new(name.as_str())).unwrap();
        let ask = || context.client_of(Some(|| panic!("it is started")));
        let pause = || match &*lock(&context.service) {
            Service::Silent(_, pause) => *pause,
            other => panic!("{other:?}"),
        };
        assert!(matches!(ask(), ClientLookup::NotYet));
        assert_eq!(pause(), PAUSE);
        let begun = Instant::now();
        assert!(matches!(ask(), ClientLookup::NotYet));
        assert!(begun.elapsed() < PAUSE / 2, "it waited so soon again");
        let later = |pause| Service::Silent(Instant::now().checked_sub(pause).unwrap(), pause);
        *lock(&context.service) = later(PAUSE);
        assert!(matches!(ask(), ClientLookup::NotYet));
        assert_eq!(pause(), PAUSE * 2);
        *lock(&context.service) = later(AGAIN);
        assert!(matches!(ask(), ClientLookup::NotYet));
        assert_eq!(pause(), AGAIN);
        // It answers after all.
        drop(listener);
        let limits = Limits::default();
        let service = Serving::bind(Options { name, limits, ends_idle: None }).unwrap();
        let stop = service.stop();
        let runs = std::thread::spawn(|| service.run());
        *lock(&context.service) = later(AGAIN);
        assert!(matches!(ask(), ClientLookup::Here(_)));
        stop.stop();
        runs.join().unwrap().unwrap();
    }

    /// A peer could give a door that lets whoever knocks there wait.
    #[test]
    fn a_file_that_is_no_eventfd_is_no_door() {
        let context = Context::new(Settings::new("uncopy-tcp-test-nobody")).unwrap();
        let (_read, pipe) = std::io::pipe().unwrap();
        let memory = uncopy_tcp_shared::region::create().unwrap();
        let mut with = vec![OwnFd::from(memory)];
        let door = |_| eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        with.extend((0..ASK).map(door).map(OwnFd::from));
        with.push(OwnFd::from(std::os::fd::OwnedFd::from(pipe)));
        assert!(context.mapped(1, 0, with).is_none());
    }

    /// Peers can write to a door: one that they have filled takes no more until it is emptied.
    #[test]
    fn sleepers_are_woken_at_a_door_that_somebody_has_filled() {
        let context = Context::new(Settings::new("uncopy-tcp-test-nobody")).unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &context.doors[0], epoll::EventData::new_u64(0), edges).unwrap();
        let knocks = || {
            let nothing = epoll::EventFlags::empty();
            let mut events =
                [epoll::Event { flags: nothing, data: epoll::EventData::new_u64(0) }; 2];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&set, &mut events, Some(&now)).unwrap()
        };
        rustix::io::write(&context.doors[0], &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert_eq!((knocks(), knocks()), (1, 0));
        context.wake_sleepers();
        assert_eq!(knocks(), 1);
    }
}
