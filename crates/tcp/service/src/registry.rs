//! The books of a service: programs, ends that wait for their other end, regions. Nothing of it
//! waits for a program.

use crate::ends::EndName;
use crate::matching::{Inodes, Registration, Waiting};
use crate::options::Limits;
use crate::owner::{self, Owner, Serves};
use crate::program::{COSTS, Program};
use crate::protocol::{self, DOOR_COUNT, Message, StayReason, VERSION};
use crate::regions::{Given, PairRegion, Regions};
use crate::state::{self, State};
use crate::users::{Quota, User};
use crate::wired::Wires;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use uncopy_tcp_shared::layout::PAGE;

/// At most so many connections, each with two full rings (32 MB), are given past the limit of
/// bytes.
const LOOKS: usize = 64;

/// See the module.
pub(crate) struct Registry {
    pub serves: Serves,
    limits: Limits,
    programs: HashMap<u64, Program>,
    last_program: u64,
    waiting: Waiting,
    users: HashMap<Owner, User>,
    /// Between programs of different owners.
    mixed: Regions,
    last_region: u64,
    since: SystemTime,
}

/// A program, as the thread that reads its messages knows it.
pub(crate) struct Session {
    pub socket: Arc<OwnedFd>,
    pub owner: Owner,
    pub quota: Quota,
    /// It has said hello.
    pub greeted: bool,
}

impl Registry {
    /// A registry that knows nobody yet.
    pub fn new(serves: Serves, limits: Limits) -> Self {
        let since = SystemTime::now();
        // (Their numbers are no earlier service's: programs still have regions of that one.)
        let last_region = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            serves,
            limits,
            programs: HashMap::new(),
            last_program: 0,
            waiting: Waiting::default(),
            users: HashMap::new(),
            mixed: Regions::default(),
            last_region: last_region.as_nanos() as u64,
            since,
        }
    }

    /// A user's record; made, if this is its first program.
    pub fn user(&mut self, owner: Owner) -> &mut User {
        let serves = self.serves;
        self.users.entry(owner).or_insert_with(|| User::new(serves, owner))
    }

    /// A program has connected; its user's thread sleeps in `set`.
    ///
    /// # Errors
    /// Its user has as many as it may.
    pub fn comes(
        &mut self,
        socket: &Arc<OwnedFd>,
        (owner, pid): (Owner, u32),
        set: Arc<OwnedFd>,
    ) -> Result<(), Errno> {
        let taken = self
            .room(owner, COSTS)
            .and_then(|()| self.user(owner).quota.share.take(COSTS).ok_or(StayReason::OverLimit));
        let taken = taken.map_err(|_| Errno::MFILE)?;
        let id = self.last_program + 1;
        let program = Program::new(socket.clone(), (id, pid, owner), set, taken)?;
        self.last_program = id;
        self.programs.insert(id, program);
        self.user(owner).programs += 1;
        Ok(())
    }

    /// A program's, and what it has not been told yet is told.
    pub fn session(&mut self, id: u64) -> Option<Session> {
        let program = self.programs.get_mut(&id)?;
        program.tell_rest();
        let (socket, owner) = (program.socket.clone(), program.owner);
        let greeted = program.mailbox.is_some();
        Some(Session { socket, owner, quota: self.user(owner).quota.clone(), greeted })
    }

    /// A program has said hello, with its doors. False: it could not be answered.
    pub fn welcome(&mut self, id: u64, doors: Vec<OwnedFd>, wire: u64) -> bool {
        let Some(program) = self.programs.get_mut(&id) else { return false };
        let made = || {
            let mailbox = rustix::fs::memfd_create("uncopy-tcp-mailbox", MemfdFlags::CLOEXEC)?;
            rustix::fs::ftruncate(&mailbox, PAGE as u64)?;
            let message = Message::Welcome { version: VERSION, wire };
            protocol::send(program.socket.as_fd(), message, &[mailbox.as_fd()])?;
            Ok::<_, Errno>(mailbox)
        };
        program.mailbox = made().ok();
        program.doors = doors;
        program.mailbox.is_some()
    }

    /// A program only looks, unless it has said hello.
    pub fn looks(&mut self, id: u64) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.looks |= program.mailbox.is_none();
        }
    }

    /// Some program is here to be served; when an end will have waited long enough.
    pub fn waits_for(&self) -> (bool, Option<Instant>) {
        (self.programs.values().any(|program| !program.looks), self.waiting.next())
    }

    /// Tells ends that have waited long enough.
    pub fn expire(&mut self) {
        let programs = &mut self.programs;
        self.waiting.expire(Instant::now(), |registration, name| {
            stays(programs, registration, Some(name), StayReason::PeerNotHere);
        });
    }

    /// A socket was registered as this end, and whether it is was found.
    pub fn registered(
        &mut self,
        registration: Registration,
        name: EndName,
        found: Result<Inodes, StayReason>,
    ) {
        let outcome = found.and_then(|inodes| {
            self.is_within_limits(registration)?;
            Ok(self.waiting.register(name, registration, inodes, Instant::now()))
        });
        let name = found.ok().map(|_| name);
        match outcome {
            Ok(None) => {}
            Ok(Some(other)) => {
                if let Err(reason) = self.matched(other, registration, name) {
                    let programs = &mut self.programs;
                    stays(programs, other, name.map(EndName::other), reason);
                    stays(programs, registration, name, reason);
                }
            }
            Err(reason) => stays(&mut self.programs, registration, name, reason),
        }
    }

    /// One more connection would not be too many.
    fn is_within_limits(
        &mut self,
        Registration { program: id, owner, .. }: Registration,
    ) -> Result<(), StayReason> {
        // (The kernel is asked how much is used, by a call for each region: not each time.)
        let bytes = |of: &Self| of.bytes_of(id, owner) >= of.limits.bytes;
        let program = self.programs.get(&id).ok_or(StayReason::NoService)?;
        let looks = program.registered.is_multiple_of(LOOKS);
        let is_over = if looks { bytes(self) } else { program.over };
        let program = self.programs.get_mut(&id).ok_or(StayReason::NoService)?;
        (program.over, program.registered) = (is_over, program.registered + 1);
        let user = self.users.get(&owner).ok_or(StayReason::NoService)?;
        let count =
            |of: &mut dyn Iterator<Item = &PairRegion>| of.map(PairRegion::used).sum::<usize>();
        let flows = count(&mut user.regions.of(id)) + count(&mut self.mixed.of(id));
        let mut over = is_over || flows + self.waiting.of(id) >= self.limits.flows;
        if self.serves != Serves::ItsUser && owner != Owner::Service {
            let both = user.regions.held.iter().chain(self.mixed.of_owner(owner));
            let flows = both.map(PairRegion::used).sum::<usize>() + self.waiting.of_owner(owner);
            over |= flows >= self.limits.flows || self.uses_too_much(owner);
        }
        if over { Err(StayReason::OverLimit) } else { Ok(()) }
    }

    /// A user's programs have more memory than they may, or all have.
    fn uses_too_much(&mut self, owner: Owner) -> bool {
        let mixed = &self.mixed;
        let Some(user) = self.users.get_mut(&owner) else { return true };
        if user.registered.is_multiple_of(LOOKS) {
            let both = user.regions.held.iter().chain(mixed.of_owner(owner));
            user.bytes = both.map(PairRegion::bytes).sum();
            user.over = user.bytes >= self.limits.bytes;
        }
        user.registered += 1;
        let over = user.over;
        let all: u64 = self.users.values().map(|user| user.bytes).sum();
        over || all / 2 >= self.limits.bytes
    }

    /// Bytes that a program's connections use.
    fn bytes_of(&self, program: u64, owner: Owner) -> u64 {
        let own = self.users.get(&owner).into_iter().flat_map(|user| user.regions.of(program));
        own.chain(self.mixed.of(program)).map(PairRegion::bytes).sum()
    }

    /// There is room for so many descriptors of a user's; it is looked for, if need be.
    fn room(&mut self, owner: Owner, count: usize) -> Result<(), StayReason> {
        let share = self.user(owner).quota.share.clone();
        if !share.has(count) {
            let programs = self.programs.values_mut().filter(|program| program.owner == owner);
            programs.for_each(Program::looks_what_it_took);
        }
        if share.has(count) { Ok(()) } else { Err(StayReason::OverLimit) }
    }

    /// A place for a connection.
    fn give(&mut self, a: Registration, b: Registration) -> Result<Given, StayReason> {
        let regions = regions_between(&mut self.users, &mut self.mixed, a.owner, b.owner)?;
        if let Some(given) = regions.give(a.program, b.program) {
            return Ok(given);
        }
        // A new region costs its memory, and what both are sent with it.
        let mut taken = vec![];
        let both = [a.owner, b.owner];
        for &owner in if a.owner == b.owner { &both[..1] } else { &both } {
            self.room(owner, 1 + 2 * (1 + DOOR_COUNT))?;
            taken.push(self.user(owner).quota.share.take(1).ok_or(StayReason::OverLimit)?);
        }
        self.last_region += 1;
        let sides = [(a.program, a.owner), (b.program, b.owner)];
        let regions = regions_between(&mut self.users, &mut self.mixed, a.owner, b.owner)?;
        regions.make(self.last_region, sides, taken)
    }

    /// `name` is what `b` calls the connection.
    fn matched(
        &mut self,
        a: Registration,
        b: Registration,
        name: Option<EndName>,
    ) -> Result<(), StayReason> {
        if !self.serves.meet(a.owner, b.owner) {
            return Err(StayReason::OtherUser);
        }
        let given = self.give(a, b)?;
        let regions = regions_between(&mut self.users, &mut self.mixed, a.owner, b.owner)?;
        let held = &mut regions.held[given.region];
        // Both may be one program: then the first is side 0.
        let side_of_a = usize::from(held.programs[0] != a.program);
        if let Some(name) = name {
            let (name, tokens) = match side_of_a {
                0 => (name.other(), [a.token, b.token]),
                _ => (name, [b.token, a.token]),
            };
            held.name(given.slot, name, tokens, SystemTime::now());
        }
        for (registration, side) in [(a, side_of_a), (b, 1 - side_of_a)] {
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
                token: registration.token,
                region: held.id,
                slot: given.slot as u64,
                side: side as u64,
                generation: given.generation.into(),
            };
            // (A program that it does not reach does not attach, and the other then uses it no more
            // than it.)
            if let Some(program) = self.programs.get_mut(&registration.program)
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

    /// The socket that was registered by this name is closed.
    pub fn take_back(&mut self, registration: Registration) {
        if !self.waiting.take_back(registration)
            && !self.user(registration.owner).regions.take_back(registration)
        {
            self.mixed.take_back(registration);
        }
    }

    /// The regions that this owner's programs may have.
    fn regions_of(&mut self, owner: Owner) -> impl Iterator<Item = &mut Regions> {
        let own = self.users.get_mut(&owner).map(|user| &mut user.regions);
        own.into_iter().chain([&mut self.mixed])
    }

    /// A program has not got a region's memory.
    pub fn misses(
        &mut self,
        (id, owner): (u64, Owner),
        (region, side): (u64, usize),
        (slot, generation): (usize, u32),
    ) {
        let held = self.regions_of(owner).find_map(|all| all.of_side(id, region, side));
        if let Some(held) = held {
            held.is_missed(side, slot, generation);
        }
    }

    /// A program gives the other side a door of its own for a connection.
    pub fn hands_on(
        &mut self,
        (id, owner): (u64, Owner),
        (region, side): (u64, usize),
        (slot, generation): (u64, u64),
        door: &OwnedFd,
    ) {
        let other = self.regions_of(owner).find_map(|all| all.other_side(id, region, side));
        if let Some(other) = other.and_then(|other| self.programs.get_mut(&other)) {
            let side = 1 - side as u64;
            other.tell(Message::Door { region, slot, side, generation }, &[door.as_fd()]);
        }
    }

    /// A program lets the other side map an arena, or says what becomes of one: only where both are
    /// one user's, and this service finds that they could trace each other.
    pub fn says_of_arena(
        &mut self,
        (id, owner): (u64, Owner),
        (region, side): (u64, usize),
        mut message: Message,
        memory: Option<&OwnedFd>,
    ) {
        let own = self.users.get(&owner).map(|user| &user.regions);
        let Some(other) = own.and_then(|own| own.other_side(id, region, side)) else { return };
        let pids = [id, other].map(|id| self.programs.get(&id).map_or(0, |of| of.pid));
        if owner != Owner::Service
            && owner::could_trace(pids)
            && let Some(other) = self.programs.get_mut(&other)
        {
            if let Message::Arena { side, .. } | Message::ArenaEnds { side, .. } = &mut message {
                *side = 1 - u64::from(*side != 0);
            }
            let memory: Vec<BorrowedFd> = memory.iter().map(|memory| memory.as_fd()).collect();
            other.tell(message, &memory);
        }
    }

    /// A program has gone. Its record, to be dropped where that may wait.
    pub fn goes(&mut self, id: u64) -> Option<Program> {
        let gone = self.programs.remove(&id)?;
        self.waiting.forget(id, gone.owner);
        self.user(gone.owner).programs -= 1;
        let mut left = vec![];
        self.regions_of(gone.owner)
            .for_each(|all| all.forget(id, |program, region| left.push((program, region))));
        for (program, region) in left {
            if let Some(program) = self.programs.get_mut(&program) {
                program.tell(Message::Gone { region }, &[]);
            }
        }
        Some(gone)
    }

    /// A user's thread has nobody to hear, and ends.
    pub fn is_left(&mut self, owner: Owner) -> bool {
        let user = self.user(owner);
        let left = user.programs == 0;
        if left {
            (user.set, user.bytes) = (None, 0);
            self.users.retain(|_, user| !user.is_gone());
        }
        left
    }

    /// The state as it is told to this one.
    pub fn state(&self, to: Owner, wires: Wires) -> State {
        let all = self.serves.sees_all(to);
        let is_its = |owner: Owner| all || owner == to;
        let its = || self.programs.iter().filter(|(_, program)| is_its(program.owner));
        let greeted = its().filter(|(_, program)| program.mailbox.is_some());
        let mut programs: Vec<state::Program> = greeted
            .map(|(&id, program)| state::Program {
                id,
                pid: program.pid,
                uid: program.owner.uid(),
                since: program.since,
                waiting: self.waiting.of(id) as u64,
                bytes: self.bytes_of(id, program.owner),
                stayed: program.stayed,
            })
            .collect();
        programs.sort_by_key(|program| program.id);
        let users = self.users.iter().filter(|(owner, _)| is_its(**owner));
        let held = users.flat_map(|(_, user)| &user.regions.held);
        let held =
            held.chain(self.mixed.held.iter().filter(|held| held.owners.into_iter().any(is_its)));
        let flows: Vec<state::FlowReport> = held.flat_map(flows_of).collect();
        let waiting = self.waiting.ends().filter(|(_, registration, _)| is_its(registration.owner));
        let waiting = waiting.map(|(name, registration, since)| state::Stayed {
            program: registration.program,
            addresses: name.addresses(),
            since: SystemTime::now() - since.elapsed(),
            reason: StayReason::Waiting,
        });
        let stayed = its().flat_map(|(&program, of)| {
            of.last.iter().map(move |&(name, since, reason)| state::Stayed {
                program,
                addresses: name.addresses(),
                since,
                reason,
            })
        });
        // (Of a connection over the wire the program's end is among the others, with its
        // stand-in's.)
        let ends: HashSet<[SocketAddr; 2]> = flows
            .iter()
            .flat_map(|flow| [flow.addresses, [flow.addresses[1], flow.addresses[0]]])
            .collect();
        let Wires { flows: wired, refused } = wires;
        let mut state = State {
            pid: std::process::id(),
            since: self.since,
            stayed: waiting.chain(stayed).collect(),
            wired: wired.into_iter().filter(|of| all || ends.contains(&of.addresses)).collect(),
            flows,
            programs,
        };
        // (Only programs that are reported.)
        for (program, count) in refused {
            state.refused(program, count);
        }
        state
    }
}

/// A region's connections.
fn flows_of(held: &PairRegion) -> impl Iterator<Item = state::FlowReport> {
    held.named().filter_map(|(slot, generation, name, since)| {
        let place = (held.id, slot as u64);
        let header = held.header(slot)?;
        // (Its slot is given back when one is wanted.)
        if held.is_closed(slot, &header) {
            return None;
        }
        Some(state::FlowReport::read(&header, held.programs, place, generation, name, since))
    })
}

fn regions_between<'a>(
    users: &'a mut HashMap<Owner, User>,
    mixed: &'a mut Regions,
    a: Owner,
    b: Owner,
) -> Result<&'a mut Regions, StayReason> {
    if a != b {
        return Ok(mixed);
    }
    users.get_mut(&a).map(|user| &mut user.regions).ok_or(StayReason::NoService)
}

fn stays(
    programs: &mut HashMap<u64, Program>,
    registration: Registration,
    name: Option<EndName>,
    reason: StayReason,
) {
    if let Some(program) = programs.get_mut(&registration.program) {
        program.stays(name, reason);
        program.tell(Message::Stays { token: registration.token, reason }, &[]);
    }
}
