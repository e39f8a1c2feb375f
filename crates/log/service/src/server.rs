//! The loop: programs ask, the kernel says that somebody opens a file, time passes. One thread does
//! all of it, and waits for no program.

use crate::held::{Hold, Left, error};
use crate::homes::Homes;
use crate::identity;
use crate::lease;
use crate::logs::Logs;
use crate::place::{NoPlace, Place};
use crate::plain_reason::PlainReason;
use crate::protocol::{ANSWERS_WAIT, Message, VERSION, receive, send};
use crate::recover::recover_locked;
use crate::report::Report;
use core::fmt;
use core::sync::atomic::Ordering;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, listen, socket_with,
};
use rustix::time::Timespec;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::time::{Duration, Instant};
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_book::as_ever::AsEver;
use uncopy_log_share::claims::{Claim, Claims};
use uncopy_log_share::homing::Which;
use uncopy_log_share::layout::{SLOTS, State};
use uncopy_log_share::memory::Memory;
use uncopy_log_store::{HeldMemory, Kind};

/// Held bytes are home after so many ticks.
const HOME_AFTER: u32 = 5;
/// A file with so much room behind its end has it from its program, which keeps it.
const ROOMY: u64 = 1 << 20;
const TICK: Duration = Duration::from_secs(1);

/// How a service is to be.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of a program's log in bytes.
    pub log_size: u64,
    /// Where logs' bytes lie.
    pub kind: Kind,
    /// It ends when no program has been there for so long.
    pub until_idle: Option<Duration>,
}

/// Why there is no service.
#[derive(Debug)]
pub enum ServiceError {
    /// The directory is no place for a log.
    Place(NoPlace),
    /// Something that it needs was refused.
    Kernel(&'static str, Errno),
    /// A log could not be made.
    Failed(uncopy_log_store::Failed),
    /// Bytes that a crash left could not be brought home, and are still there.
    Recovery(String),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(why) => write!(f, "{why}"),
            Self::Kernel(what, why) => {
                write!(f, "cannot {what} ({})", std::io::Error::from(*why))
            }
            Self::Failed(why) => write!(f, "{why}"),
            Self::Recovery(why) => write!(f, "{why}"),
        }
    }
}

impl std::error::Error for ServiceError {}

#[derive(Debug)]
struct Program {
    socket: OwnedFd,
    has_log: bool,
    greeted: bool,
    /// The code that it said of syncs that return early; 0: nothing.
    answers: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Service {
    place: Place,
    _lock: OwnedFd,
    options: Options,
    listener: OwnedFd,
    signals: OwnedFd,
    memory: Memory<HeldMemory>,
    claims: Claims,
    homes: Homes,
    logs: Logs,
    programs: BTreeMap<u64, Program>,
    holds: [Option<Hold>; SLOTS],
    /// Files that a program uses whose description another may have given to be held, or that went
    /// to who knows nothing of us: they are not held any more.
    shared: HashSet<(u64, u64)>,
    /// Programs that wait for a file to be plain: the program, and the file.
    waiting: Vec<(u64, (u64, u64))>,
    /// Programs that have gone, whose logs could not yet be taken back.
    departed: Vec<u64>,
    refused: BTreeMap<(Vec<u8>, PlainReason), u64>,
    memory_is_gone: bool,
    next_client: u64,
    next_index: u32,
    idle_since: Instant,
    ticked: Instant,
    ends: bool,
}

impl Service {
    /// Recovers what is in `place`, and serves there from now on. Recovery's own messages are in
    /// the report.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn begin(place: Place, options: Options) -> Result<(Self, Report), ServiceError> {
        let lock = place.lock().map_err(ServiceError::Place)?;
        let kernel = |what| move |why| ServiceError::Kernel(what, why);
        let report = recover_locked(&place, options.kind);
        if let Some(why) = &report.kept {
            return Err(ServiceError::Recovery(why.clone()));
        }
        let path = place.memory();
        let memory = match Memory::create(&path) {
            Err(Errno::EXIST) => Memory::open(&path),
            memory => memory,
        };
        let memory = memory.map_err(kernel("make the log's memory in /dev/shm"))?;
        // (All that was held was recovered.)
        memory.header().mount.store(place.mount(), Ordering::Release);
        let claims = Claims::of(memory.file()).map_err(kernel("claim the log's memory"))?;
        let homes = Homes::begin(&place, options.kind).map_err(ServiceError::Failed)?;
        let mut logs = Logs::of(&place, options.log_size, options.kind);
        let signals = lease::signals().map_err(kernel("hear of leases"))?;
        logs.prepare(&place);
        let listener = answer(&place).map_err(kernel("answer in the log's directory"))?;
        let now = Instant::now();
        let service = Self {
            place,
            _lock: lock,
            options,
            listener,
            signals,
            memory,
            claims,
            homes,
            logs,
            programs: BTreeMap::new(),
            holds: [const { None }; SLOTS],
            shared: HashSet::new(),
            waiting: Vec::new(),
            departed: Vec::new(),
            refused: BTreeMap::new(),
            memory_is_gone: false,
            // (A number never comes again: programs of earlier services may live still.)
            next_client: crate::place::now(),
            next_index: 1,
            idle_since: now,
            ticked: now,
            ends: false,
        };
        Ok((service, report))
    }

    /// Serves until it is idle for long enough, or a signal says that it is to end.
    ///
    /// # Errors
    /// Waiting failed.
    pub fn run(mut self) -> Result<(), ServiceError> {
        while !self.ends && !self.is_idle() {
            self.turn().map_err(|why| ServiceError::Kernel("wait for programs", why))?;
        }
        self.end();
        Ok(())
    }

    fn is_idle(&mut self) -> bool {
        // (A client that only asks, as `uncopy log status` does, sends no `Hello`.)
        let greeted = self.programs.values().any(|program| program.greeted);
        if greeted || self.holds.iter().any(Option::is_some) {
            self.idle_since = Instant::now();
        }
        self.programs.is_empty()
            && self.options.until_idle.is_some_and(|after| self.idle_since.elapsed() >= after)
    }

    fn turn(&mut self) -> Result<(), Errno> {
        let clients: Vec<u64> = self.programs.keys().copied().collect();
        let mut fds = vec![
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(&self.signals, PollFlags::IN),
        ];
        fds.extend(self.programs.values().map(|p| PollFd::new(&p.socket, PollFlags::IN)));
        let left = TICK.saturating_sub(self.ticked.elapsed());
        let left = if self.retries() { left.min(Duration::from_millis(20)) } else { left };
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[1] {
            self.ends |= lease::heard(&self.signals);
            self.look_at_leases();
        }
        for (client, _) in clients.into_iter().zip(&ready[2..]).filter(|(_, ready)| **ready) {
            self.hear(client);
        }
        if ready[0] {
            self.greet();
        }
        if self.ticked.elapsed() >= TICK {
            self.ticked = Instant::now();
            self.tick();
        }
        self.leave_those_that_leave();
        Ok(())
    }

    fn retries(&self) -> bool {
        self.holds.iter().flatten().any(|hold| hold.leaves.is_some())
    }

    /// Programs that have come.
    fn greet(&mut self) {
        while let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) {
            // (The directory is this user's, but perhaps not closed to others.)
            let user = rustix::process::geteuid();
            let of = rustix::net::sockopt::socket_peercred(&socket).map(|peer| peer.uid);
            if !of.is_ok_and(|of| of == user || of.is_root()) {
                continue;
            }
            let client = self.next_client;
            self.next_client += 1;
            self.programs
                .insert(client, Program { socket, has_log: false, greeted: false, answers: 0 });
        }
    }

    fn hear(&mut self, client: u64) {
        // (Not more at once than others wait for.)
        for _ in 0..64 {
            let Some(program) = self.programs.get(&client) else { return };
            match receive(program.socket.as_fd(), RecvFlags::DONTWAIT) {
                Ok((message, with)) => {
                    if self.answer(client, message, with).is_none() {
                        return self.gone(client);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(_) => return self.gone(client),
            }
        }
    }

    fn tell(&self, client: u64, message: Message, with: Option<BorrowedFd<'_>>) -> Option<()> {
        let program = self.programs.get(&client)?;
        send(program.socket.as_fd(), message, with, SendFlags::DONTWAIT).ok()
    }

    /// `None`: that program is served no more.
    fn answer(&mut self, client: u64, message: Message, with: Option<OwnedFd>) -> Option<()> {
        match message {
            Message::Hello(VERSION) => {
                self.programs.get_mut(&client)?.greeted = true;
                let device = self.place.device();
                let welcome = Message::Welcome { version: VERSION, client, device };
                self.tell(client, welcome, Some(self.memory.file()))
            }
            Message::Status => {
                let text = self.status();
                let file = text_file(&text).ok()?;
                self.tell(client, Message::Status, Some(file.as_fd()))
            }
            Message::Digest => {
                // (A program that syncs it just now hides from us what came of that.)
                let pause = || std::thread::sleep(Duration::from_millis(2));
                let all = (0..SLOTS).all(|slot| {
                    (0..50).any(|_| {
                        let settled = self.settle(slot);
                        if !settled {
                            pause();
                        }
                        settled
                    })
                });
                all.then(|| self.tell(client, Message::Digest, None))?
            }
            _ if !self.programs.get(&client)?.greeted => None,
            Message::WantLog => {
                let given = self.logs.give(&self.place, client);
                self.programs.get_mut(&client)?.has_log |= given.is_some();
                match given {
                    Some((file, kind)) => {
                        let kind = 1 + Kind::ALL.iter().position(|k| *k == kind)? as u64;
                        self.tell(client, Message::Log { kind }, Some(file.as_fd()))
                    }
                    None => self.tell(client, Message::Log { kind: 0 }, None),
                }
            }
            Message::Hold => {
                // (This process had no descriptor free for it.)
                let Some(file) = with else {
                    return self.tell(client, Message::Refused(PlainReason::NoRoom), None);
                };
                let path = identity::path_of(file.as_fd());
                match self.hold(client, file) {
                    Ok((slot, index)) => {
                        self.tell(client, Message::Held { slot, index: index.into() }, None)
                    }
                    Err(reason) => {
                        self.note(path, reason);
                        self.tell(client, Message::Refused(reason), None)
                    }
                }
            }
            Message::StaysPlain(reason) => {
                // (Without the file, no descriptor was free here.)
                if let Some(file) = with {
                    self.note(identity::path_of(file.as_fd()), reason);
                }
                Some(())
            }
            Message::Leave { slot, index, reason } => {
                let hold = self.own(client, slot, index)?;
                if let Some(hold) = hold {
                    hold.leaves.get_or_insert(reason);
                }
                Some(())
            }
            Message::Knows { slot, index } => {
                let entry = self.memory.entry(usize::try_from(slot).ok().filter(|s| *s < SLOTS)?);
                let is_its = entry.client.load(Ordering::Acquire) == client
                    && u64::from(entry.index.load(Ordering::Acquire)) == index;
                if is_its && entry.state() == State::Plain {
                    entry.free();
                }
                Some(())
            }
            Message::Bring { slot, index } => {
                if self.own(client, slot, index)?.is_some() {
                    let slot = slot as usize;
                    self.memory.entry(slot).asked.store(0, Ordering::SeqCst);
                    self.bring(slot, Which::Blocks);
                }
                Some(())
            }
            Message::Share { device, inode } => {
                self.shared.insert((device, inode));
                self.each_of((device, inode), PlainReason::Shared);
                self.waiting.push((client, (device, inode)));
                Some(())
            }
            Message::Answers { word } => {
                self.programs.get_mut(&client)?.answers = u32::try_from(word).ok()?;
                Some(())
            }
            Message::Renamed => {
                for (slot, hold) in self.holds.iter_mut().enumerate() {
                    let Some(hold) = hold.as_mut().filter(|hold| hold.client == client) else {
                        continue;
                    };
                    let Ok(named) = identity::named(hold.file.as_fd()) else { continue };
                    let entry = self.memory.entry(slot);
                    // (A log names it as it was; recovery that is not root's looks in that
                    // directory only.)
                    if directory(&named.path) != directory(&entry.named().path) {
                        hold.leaves.get_or_insert(PlainReason::Moved);
                    }
                    entry.name(&named);
                }
                Some(())
            }
            _ => None,
        }
    }

    /// A hold of that program's. `None`: it speaks nonsense. `Some(None)`: there was one.
    fn own(&mut self, client: u64, slot: u64, index: u64) -> Option<Option<&mut Hold>> {
        let slot = usize::try_from(slot).ok().filter(|slot| *slot < SLOTS)?;
        let hold = self.holds[slot].as_mut();
        Some(hold.filter(|hold| hold.client == client && u64::from(hold.index) == index))
    }

    fn note(&mut self, path: Vec<u8>, reason: PlainReason) {
        // (A program that opens many files is not to fill our memory.)
        if self.refused.len() < 1000 {
            *self.refused.entry((path, reason)).or_default() += 1;
        }
    }

    fn each_of(&mut self, file: (u64, u64), reason: PlainReason) {
        for (slot, hold) in self.holds.iter_mut().enumerate() {
            if let Some(hold) = hold
                && self.memory.entry(slot).identity() == file
            {
                hold.leaves.get_or_insert(reason);
            }
        }
    }

    fn hold(&mut self, client: u64, file: OwnedFd) -> Result<(u64, u32), PlainReason> {
        if self.ends {
            return Err(PlainReason::Ends);
        }
        if self.memory_is_gone {
            return Err(PlainReason::NoMemory);
        }
        let stat = fstat(&file).map_err(|_| PlainReason::NotRegular)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(PlainReason::NotRegular);
        }
        if stat.st_dev != self.place.device() {
            return Err(PlainReason::OtherFileSystem);
        }
        let flags = fcntl_getfl(&file).map_err(|_| PlainReason::Mode)?;
        let writes = matches!(flags & OFlags::RWMODE, OFlags::WRONLY | OFlags::RDWR);
        let unusual = OFlags::DIRECT | OFlags::SYNC | OFlags::DSYNC | OFlags::PATH;
        if !writes || flags.intersects(unusual) {
            return Err(PlainReason::Mode);
        }
        let (device, inode) = (stat.st_dev, stat.st_ino);
        if self.shared.contains(&(device, inode)) {
            return Err(PlainReason::Shared);
        }
        if !self.homes.has_room() {
            return Err(PlainReason::NoRoom);
        }
        let named = identity::named(file.as_fd()).map_err(|_| PlainReason::NotRegular)?;
        let free = |slot: &usize| {
            self.holds[*slot].is_none() && self.memory.entry(*slot).state() == State::Free
        };
        let slot = (0..SLOTS).find(free).ok_or(PlainReason::NoRoom)?;
        lease::take(file.as_fd())?;
        inject::point(Point::Leased);
        let Ok(stat) = fstat(&file) else {
            lease::give_up(file.as_fd());
            return Err(PlainReason::NotRegular);
        };
        let index = self.next_index;
        self.next_index += 1;
        self.memory.entry(slot).hold(client, index, stat.st_size as u64, &named);
        // (Blocks that the file system needs for itself count as the file's too.)
        let blocks = (stat.st_blocks as u64).saturating_mul(512);
        if blocks > stat.st_size as u64 + ROOMY {
            self.memory.entry(slot).roomy.store(1, Ordering::SeqCst);
        }
        self.holds[slot] = Some(Hold::new(file, index, client));
        inject::point(Point::Held);
        Ok((slot as u64, index))
    }

    fn look_at_leases(&mut self) {
        for hold in self.holds.iter_mut().flatten() {
            if !lease::holds(hold.file.as_fd()) {
                hold.leaves.get_or_insert(PlainReason::OpenedLater);
            }
        }
    }

    /// Brings home; what cannot be is said to the program, and tried again.
    fn bring(&mut self, slot: usize, which: Which) {
        let Some(hold) = &self.holds[slot] else { return };
        if let Err(why) = hold.bring(&self.memory, slot, which) {
            self.memory.entry(slot).refuses(error(why));
        }
    }

    fn settle(&mut self, slot: usize) -> bool {
        let Some(hold) = &mut self.holds[slot] else { return true };
        let entry = self.memory.entry(slot);
        let settled = hold.settle(&self.memory, slot);
        // (A file that is to be written once more must not be appended to meanwhile.)
        if entry.failed.load(Ordering::SeqCst) != 0 {
            hold.leaves.get_or_insert(PlainReason::Failed);
        }
        match settled {
            Ok(sure) => {
                entry.error.store(0, Ordering::Release);
                sure
            }
            Err(why) => {
                entry.refuses(error(why));
                false
            }
        }
    }

    /// A second has passed.
    fn tick(&mut self) {
        self.take_logs_back();
        self.free_those_of_the_dead();
        self.logs.prepare(&self.place);
        self.look_at_leases();
        // (Somebody has removed it: nobody would find it after this process.)
        self.memory_is_gone |= fstat(self.memory.file()).is_ok_and(|stat| stat.st_nlink == 0);
        for slot in 0..SLOTS {
            let Some(hold) = &mut self.holds[slot] else { continue };
            if self.memory_is_gone {
                hold.leaves.get_or_insert(PlainReason::NoMemory);
            }
            let entry = self.memory.entry(slot);
            let words = &entry.words;
            if entry.failed.load(Ordering::SeqCst) != 0 {
                hold.leaves.get_or_insert(PlainReason::Failed);
            }
            let logged = entry.logged.load(Ordering::Acquire) > words.durable();
            if !logged && words.end().at() <= words.home() {
                hold.waits = 0;
                continue;
            }
            hold.waits += 1;
            if hold.waits >= HOME_AFTER {
                hold.waits = 0;
                if logged {
                    self.settle(slot);
                } else {
                    self.bring(slot, Which::All);
                }
            }
        }
    }

    /// Files become plain that are to, and programs hear of it that wait.
    fn leave_those_that_leave(&mut self) {
        for slot in 0..SLOTS {
            let Some(hold) = &mut self.holds[slot] else { continue };
            let Some(reason) = hold.leaves else { continue };
            let (index, client) = (hold.index, hold.client);
            let alone = !self.programs.contains_key(&client)
                && !self.claims.is_others(Claim::Client(client));
            let logged = match hold.leave(&self.memory, slot, &self.place, alone) {
                Left::Later => continue,
                Left::Plain { logged } => logged,
                Left::Lost(said) => {
                    let _ = Report::append(&self.place, &[said]);
                    true
                }
            };
            if logged && let Err(why) = self.homes.add(index, client) {
                if let Some(hold) = &mut self.holds[slot] {
                    hold.is_refused(self.memory.entry(slot), why.raw_os_error() as u32);
                }
                continue;
            }
            inject::point(Point::Struck);
            let Some(hold) = self.holds[slot].take() else { continue };
            let path = self.memory.entry(slot).named().path;
            hold.let_go(&self.memory, slot);
            self.note(path, reason);
            if !self.programs.contains_key(&client) {
                self.ended(client);
            }
        }
        let held: HashSet<(u64, u64)> = (0..SLOTS)
            .filter(|slot| self.holds[*slot].is_some())
            .map(|slot| self.memory.entry(slot).identity())
            .collect();
        let told: Vec<u64> =
            self.waiting.extract_if(.., |(_, file)| !held.contains(file)).map(|w| w.0).collect();
        for client in told {
            if self.tell(client, Message::Shared, None).is_none() {
                self.gone(client);
            }
        }
    }

    /// A program has gone: what it held comes home.
    fn gone(&mut self, client: u64) {
        if self.programs.remove(&client).is_none() {
            return;
        }
        self.waiting.retain(|(of, _)| *of != client);
        for hold in self.holds.iter_mut().flatten().filter(|hold| hold.client == client) {
            hold.leaves.get_or_insert(PlainReason::Ends);
        }
        self.ended(client);
    }

    /// Entries of plain files, of programs that will not say that they know. (One that lives, and
    /// does not speak to us any more, has yet to see what its entry says.)
    fn free_those_of_the_dead(&self) {
        for (slot, entry) in self.memory.entries() {
            let client = entry.client.load(Ordering::Acquire);
            let is_nobodys = self.holds[slot].is_none() && entry.state() == State::Plain;
            if is_nobodys
                && !self.programs.contains_key(&client)
                && !self.claims.is_others(Claim::Client(client))
            {
                entry.free();
            }
        }
    }

    /// If nothing is left of what a program held, its log is another's.
    fn ended(&mut self, client: u64) {
        self.free_those_of_the_dead();
        self.departed.push(client);
        self.take_logs_back();
    }

    fn take_logs_back(&mut self) {
        let departed = core::mem::take(&mut self.departed);
        self.departed = departed.into_iter().filter(|client| !self.takes_back(*client)).collect();
    }

    fn takes_back(&mut self, client: u64) -> bool {
        if self.programs.contains_key(&client) {
            return true;
        }
        // (A program that lives, and does not speak to us any more, may still write there. And what
        // belongs to a dead one goes bit by bit.)
        let used = self.holds.iter().flatten().any(|hold| hold.client == client)
            || self.claims.is_others(Claim::Client(client));
        let taken = !used && self.logs.take_back(&self.place, client);
        if taken {
            self.homes.forget(client);
        }
        taken
    }

    /// All that is held comes home, and programs go on plainly.
    fn end(&mut self) {
        let _ = std::fs::remove_file(self.place.socket());
        for hold in self.holds.iter_mut().flatten() {
            hold.leaves.get_or_insert(PlainReason::Ends);
        }
        for _ in 0..100 {
            self.leave_those_that_leave();
            if self.holds.iter().all(Option::is_none) {
                // (Programs that have not said that they know may still look.)
                if self.programs.is_empty() {
                    let _ = std::fs::remove_file(self.place.memory());
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Of how many programs answers wait for syncs, and why not of the others that wanted it.
    fn say_answers(&self, text: &mut String) {
        let count = |word: u32| self.programs.values().filter(|p| p.answers == word).count();
        let waits = count(ANSWERS_WAIT);
        if waits > 0 {
            let _ = writeln!(text, "answers wait for syncs: {waits} programs");
        }
        for reason in AsEver::ALL {
            let programs = count(*reason as u32);
            if programs > 0 {
                let (name, why) = (reason.name(), reason.text());
                let _ = writeln!(text, "syncs are as ever: {programs} programs: {name}: {why}");
            }
        }
    }

    /// The service's report on itself.
    fn status(&mut self) -> String {
        let mut text = String::new();
        let (logs, used) = self.logs.count();
        let path = self.place.path().display();
        let _ = writeln!(text, "{path}: {} programs, {used} of {logs} logs used", {
            self.programs.values().filter(|program| program.greeted).count()
        });
        self.say_answers(&mut text);
        if self.options.kind == Kind::Memory {
            let _ = writeln!(text, "the store is `memory`: nothing outlives a loss of power");
        }
        if let Some(failed) = &self.logs.failed {
            let _ = writeln!(text, "no further log: {failed}");
        }
        for (slot, hold) in self.holds.iter().enumerate() {
            let Some(hold) = hold else { continue };
            let entry = self.memory.entry(slot);
            let path = entry.named().path;
            let path = path.escape_ascii();
            let words = &entry.words;
            let (end, home) = (words.end().at(), words.home());
            let error = entry.error.load(Ordering::Relaxed);
            let durable = words.durable();
            let leaves = hold.leaves.map_or("", PlainReason::name);
            let _ = write!(text, "held {path}: {end} bytes, {home} home, {durable} durable there");
            if error != 0 {
                let error = std::io::Error::from_raw_os_error(error as i32);
                let _ = write!(text, ", not home: {error}");
            }
            let _ = writeln!(text, "{}{leaves}", if leaves.is_empty() { "" } else { ", leaves: " });
        }
        for ((path, reason), count) in &self.refused {
            let (path, name) = (path.escape_ascii(), reason.name());
            let _ = writeln!(text, "plain {path}: {name} ({count}): {}", reason.text());
        }
        text
    }
}

/// A socket that programs find.
fn answer(place: &Place) -> Result<OwnedFd, Errno> {
    let path = place.socket();
    // (The one who had it has gone: we have the lock.)
    let _ = std::fs::remove_file(&path);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &address(place)?)?;
    rustix::fs::chmod(&path, Mode::RUSR | Mode::WUSR)?;
    listen(&socket, 128)?;
    Ok(socket)
}

/// The socket's address. (Addresses are short, and paths need not be.)
pub(crate) fn address(place: impl AsFd) -> Result<SocketAddrUnix, Errno> {
    use rustix::fd::AsRawFd;
    SocketAddrUnix::new(format!("/proc/self/fd/{}/socket", place.as_fd().as_raw_fd()))
}

/// The directory that a path is in.
fn directory(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// A file that is a text, in memory.
fn text_file(text: &str) -> Result<OwnedFd, Errno> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let file = memfd_create("uncopy-log-status", MemfdFlags::CLOEXEC)?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let n = rustix::io::write(&file, rest)?;
        rest = &rest[n..];
    }
    Ok(file)
}
