//! Programs and the service over a simulated disk: the book's steps are carried out, one thing at a
//! time, and at each point somebody may look.

use crate::files::{FileId, Files};
use crate::oracle::History;
use crate::platter::{LOG, Platter};
use crate::promises::Promises;
use uncopy_log_book::{Answer, At, Event, Inode, Limits, Outcome, State, Step};
use uncopy_log_record::{
    BLOCK, Cursor, Flush, HEAD, Here, Name, Purpose, Range, Record, Superblock, Written,
};

/// A step that is left out, or done in the wrong order: the oracle must complain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// `HOME` is never written.
    NoHome,
    /// Recovery does not look at checksums.
    NoChecksum,
    /// A flush goes on in the block in which the last one ended.
    NoNewBlock,
    /// `HOME` is written before the file's own sync.
    HomeBeforeSync,
    /// A sync answers before anything is durable.
    AnswerEarly,
    /// The lease is given up while records are live.
    LeaseBeforeHome,
    /// Recovery does not look at when files were changed.
    NoTime,
    /// A segment is entered though it has live records.
    NoRoomKept,
    /// Segments do not name the files of their data.
    NoName,
    /// An answer leaves before the syncs that returned before it are durable.
    AnswerUnheld,
    /// A flush answers for syncs that returned after it had begun.
    LateNumbers,
    /// Something that is no answer on a stream leaves without waiting.
    LeavesUnheld,
    /// A process that opens a file does not wait.
    OpenUnheld,
    /// The bytes that a dead program was promised come home, and are not made durable.
    DeadUnsynced,
    /// Records are ended, to make room or because they are old, once the kernel has their bytes.
    ReleasedEarly,
}

/// Looks at a world at a point at which it may crash, and hears what is wrong in any case.
pub trait Probe {
    /// It may crash here.
    fn point(&mut self, world: &World);
    /// Something is wrong without any crash.
    fn wrong(&mut self, what: String);
}

/// The entry of a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) inode: Inode,
    /// Memory that outlives programs: what is held, by its place in the file.
    pub(crate) memory: Vec<u8>,
    /// It has no name and was closed: nobody can do anything with it.
    pub(crate) gone: bool,
}

/// Bytes that recovery refused, saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) epoch: u64,
    pub(crate) index: u32,
    pub(crate) pieces: Vec<(u64, Vec<u8>)>,
}

/// The doings of other threads while a job is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleaving {
    /// Nothing.
    Nothing,
    /// They write, once.
    Write,
    /// They write, sync, which returns early, and answer; once.
    Promise,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) platter: Platter,
    pub(crate) files: Files,
    pub(crate) histories: Vec<History>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) superblock: Superblock,
    cursor: Cursor,
    /// A flush was begun; nobody knows what it left.
    in_flight: bool,
    pub(crate) now: u64,
    pub(crate) booted: u64,
    pub(crate) saved: Vec<Saved>,
    pub(crate) mutation: Option<Mutation>,
    /// The last block that was flushed, for [`Mutation::NoNewBlock`].
    tail: Vec<u8>,
    /// Counts writes, so that each has its own bytes.
    writes: u8,
    /// Files with a job under way.
    pub(crate) busy: Vec<FileId>,
    /// The epoch is about to end: what is durable in its file needs no `HOME`.
    pub(crate) ending: bool,
    /// Says what it does.
    pub(crate) traces: bool,
    /// Some steps fail.
    pub(crate) faults: Option<fastrand::Rng>,
    /// Of syncs that returned early.
    pub(crate) promises: Promises,
}

const SEGMENTS: usize = 3;
const SEGMENT: usize = 3 * BLOCK;
/// Small, so that short scripts meet them.
const LIMITS: Limits = Limits { log: 6000, home: 8192, held: 24 << 10, ahead: 4096 };
const MILLISECOND: u64 = 1_000_000;

impl World {
    /// Some files with content, durable, all of them held, with an empty log.
    pub fn new(contents: &[Vec<u8>], mutation: Option<Mutation>) -> World {
        let now = 1_700_000_000_000_000_000;
        let mut world = World {
            platter: Platter::default(),
            files: Files::default(),
            histories: Vec::new(),
            entries: Vec::new(),
            superblock: Superblock {
                uuid: [1; 16],
                host: [2; 16],
                filesystem: [3; 16],
                boot: [0; 16],
                epoch: 1,
                turn: 0,
                heartbeat: now,
                size: (HEAD + SEGMENTS * SEGMENT) as u64,
                segment: SEGMENT as u32,
                recovering: false,
            },
            cursor: Cursor::START,
            in_flight: false,
            now,
            booted: now - 1000 * MILLISECOND,
            saved: Vec::new(),
            mutation,
            tail: Vec::new(),
            writes: 0,
            busy: Vec::new(),
            ending: false,
            traces: false,
            faults: None,
            promises: Promises::none(),
        };
        world.write_superblock();
        for content in contents {
            world.files.add(&mut world.platter, content, now);
            world.histories.push(History::new(content));
        }
        world.open_all();
        world
    }

    /// From now on some steps fail, as this seed says.
    pub fn begin_faults(&mut self, seed: u64) {
        self.faults = Some(fastrand::Rng::with_seed(seed));
    }

    /// Whether the next thing fails.
    fn fails(&mut self) -> bool {
        self.faults.as_mut().is_some_and(|rng| rng.u8(0..10) == 0)
    }

    /// Programs open all files and are granted leases.
    pub(crate) fn open_all(&mut self) {
        self.entries.clear();
        for file in 0..self.histories.len() {
            let inode = Inode::with_limits(self.now, LIMITS);
            self.entries.push(Entry {
                inode,
                memory: Vec::new(),
                gone: !self.files.has_name(file),
            });
            self.grant(file);
        }
    }

    /// The service gets a lease.
    pub(crate) fn grant(&mut self, file: FileId) {
        self.files.write_back(&mut self.platter, file);
        let content = self.files.content(file).to_vec();
        self.entries[file].inode.granted(content.len() as u64);
        self.entries[file].memory = content;
    }

    /// Where it is.
    pub(crate) fn here(&self) -> Here {
        let Superblock { host, filesystem, .. } = self.superblock;
        let mut boot = [0; 16];
        boot[..8].copy_from_slice(&self.booted.to_le_bytes());
        Here { host, filesystem, boot }
    }

    pub(crate) fn write_superblock(&mut self) {
        let mut block = [0; BLOCK];
        self.superblock.encode(&mut block);
        self.platter.write(LOG, self.superblock.place() as usize, &block);
        self.platter.flush();
    }

    /// Another life of the log begins: nothing is live.
    pub(crate) fn begin_epoch(&mut self) {
        (self.cursor, self.in_flight) = (Cursor::START, false);
    }

    /// Bytes that nobody wrote before.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        self.writes = self.writes % 200 + 1;
        vec![self.writes; length]
    }

    /// A program writes; `at` of none is the end.
    pub fn write(&mut self, file: FileId, at: Option<usize>, length: usize, probe: &mut dyn Probe) {
        let bytes = self.bytes(length);
        let mut content = self.histories[file].latest().to_vec();
        let offset = at.unwrap_or(content.len());
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&bytes);
        self.histories[file].begin(content);
        let at = at.map_or(At::End, |offset| At::Offset(offset as u64));
        let event = Event::Write { at, length: length as u64 };
        match self.job(file, event, &bytes, Interleaving::Nothing, probe) {
            Answer::Failed(_) => self.histories[file].failed(),
            _ => self.histories[file].returned(),
        }
        probe.point(self);
    }

    /// A program syncs.
    pub fn sync(
        &mut self,
        file: FileId,
        data_only: bool,
        meanwhile: Interleaving,
        probe: &mut dyn Probe,
    ) {
        let version = self.histories[file].at();
        if self.mutation == Some(Mutation::AnswerEarly) {
            self.histories[file].acked(version);
            probe.point(self);
        }
        match self.job(file, Event::Sync { data_only }, &[], meanwhile, probe) {
            Answer::Failed(_) if self.faults.is_some() => {}
            Answer::Failed(errno) => probe.wrong(format!("a sync failed with error {errno}")),
            _ => self.histories[file].acked(version),
        }
        probe.point(self);
    }

    /// A program truncates.
    pub fn truncate(&mut self, file: FileId, size: usize, probe: &mut dyn Probe) {
        let mut content = self.histories[file].latest().to_vec();
        content.resize(size, 0);
        self.histories[file].begin(content);
        match self.job(file, Event::Truncate, &[size as u8], Interleaving::Nothing, probe) {
            Answer::Failed(_) => self.histories[file].failed(),
            _ => self.histories[file].returned(),
        }
        probe.point(self);
    }

    /// A program maps it for writing, stores, syncs if it is told to, and unmaps it.
    pub fn store(&mut self, file: FileId, sync: bool, probe: &mut dyn Probe) {
        if matches!(self.event(file, Event::MapShared, probe), Answer::Failed(_)) {
            return;
        }
        if self.files.content(file).len() >= 40 {
            let bytes = self.bytes(20);
            let mut content = self.histories[file].latest().to_vec();
            content[10..30].copy_from_slice(&bytes);
            self.histories[file].begin(content);
            self.files.write(file, 10, &bytes, self.now);
            self.histories[file].returned();
            probe.point(self);
            if sync {
                self.sync(file, true, Interleaving::Nothing, probe);
            }
        }
        self.event(file, Event::Unmap, probe);
    }

    /// Anything else happens to a file.
    pub fn event(&mut self, file: FileId, event: Event, probe: &mut dyn Probe) -> Answer {
        let versions: Vec<usize> = self.histories.iter().map(History::at).collect();
        let answer = self.job(file, event, &[], Interleaving::Nothing, probe);
        match (event, answer) {
            (_, Answer::TryLease) => self.grant(file),
            // (Of other files the service brings held bytes home at their own events.)
            (Event::SyncAll, Answer::AsCalled) => self.histories[file].acked(versions[file]),
            _ => {}
        }
        probe.point(self);
        answer
    }

    /// It becomes plain; what fails is tried again.
    fn becomes_plain(&mut self, file: FileId, event: Event, probe: &mut dyn Probe) {
        for _ in 0..if self.faults.is_some() { 50 } else { 1 } {
            self.event(file, event, probe);
            if self.entries[file].inode.state() == State::Plain {
                return;
            }
        }
        probe.wrong(format!("{event:?}: it does not become plain"));
    }

    /// Somebody without the library opens it, appends, syncs, closes.
    pub fn stranger(&mut self, file: FileId, probe: &mut dyn Probe) {
        if !self.files.has_name(file) {
            return;
        }
        self.becomes_plain(file, Event::OpenedElsewhere, probe);
        if let Err(what) = self.histories[file].is_current(self.files.content(file)) {
            probe.wrong(format!("a stranger sees what is old: {what}"));
        }
        let bytes = self.bytes(33);
        let mut content = self.histories[file].latest().to_vec();
        let at = content.len();
        content.extend(&bytes);
        self.histories[file].begin(content);
        self.files.write(file, at, &bytes, self.now);
        self.histories[file].returned();
        let version = self.histories[file].at();
        probe.point(self);
        self.sync_file(file, true, probe);
        self.histories[file].acked(version);
        probe.point(self);
    }

    /// The last descriptor is closed, and a program opens it again.
    pub fn reopen(&mut self, file: FileId, probe: &mut dyn Probe) {
        self.becomes_plain(file, Event::Close, probe);
        if self.files.has_name(file) {
            if let Err(what) = self.histories[file].is_current(self.files.content(file)) {
                probe.wrong(format!("a closed file lacks something: {what}"));
            }
            self.entries[file].inode = Inode::with_limits(self.now, LIMITS);
            self.grant(file);
        } else {
            self.entries[file].gone = true;
        }
        probe.point(self);
    }

    /// Six seconds pass; the service looks after everything.
    pub fn time(&mut self, probe: &mut dyn Probe) {
        self.now += 6000 * MILLISECOND;
        self.superblock = self.superblock.beat(self.now);
        self.write_superblock();
        for file in 0..self.entries.len() {
            self.event(file, Event::Tick, probe);
        }
    }

    /// The kernel writes back what it likes.
    pub fn write_back(&mut self, file: FileId, probe: &mut dyn Probe) {
        self.files.write_back(&mut self.platter, file);
        probe.point(self);
    }

    fn sync_file(&mut self, file: FileId, data_only: bool, probe: &mut dyn Probe) {
        self.files.write_back(&mut self.platter, file);
        probe.point(self);
        self.files.sync(&mut self.platter, file, data_only);
        probe.point(self);
    }

    /// Carries a job out. `bytes` are what a write writes.
    pub(crate) fn job(
        &mut self,
        file: FileId,
        event: Event,
        bytes: &[u8],
        meanwhile: Interleaving,
        probe: &mut dyn Probe,
    ) -> Answer {
        self.busy.push(file);
        let answer = self.steps(file, event, bytes, meanwhile, probe);
        self.busy.pop();
        answer
    }

    fn steps(
        &mut self,
        file: FileId,
        event: Event,
        bytes: &[u8],
        mut meanwhile: Interleaving,
        probe: &mut dyn Probe,
    ) -> Answer {
        let mut job = self.entries[file].inode.begin(event, self.now);
        let mut outcome = Outcome::Done;
        let mut steps = 0;
        loop {
            self.now += MILLISECOND / 10;
            steps += 1;
            assert!(steps < 100, "{event:?} does not end: {job:?}, {:?}", self.entries[file].inode);
            let step = self.entries[file].inode.next(&mut job, outcome, self.now);
            if self.entries[file].inode.lost() {
                self.histories[file].is_lost();
            }
            if self.traces {
                eprintln!("file {file}: {event:?}: {outcome:?} -> {step:?}");
            }
            self.forget(file);
            outcome = match step {
                Step::Answer(answer) => return answer,
                _ => self.carry_out(file, event, step, bytes, probe),
            };
            let slow = matches!(
                step,
                Step::Home { .. } | Step::SyncFile { .. } | Step::Log { .. } | Step::LogHome
            );
            let done = slow
                && match meanwhile {
                    Interleaving::Nothing => false,
                    Interleaving::Write => self.write_beside(file),
                    Interleaving::Promise => self.promise_beside(file),
                };
            if done {
                meanwhile = Interleaving::Nothing;
            }
            probe.point(self);
        }
    }

    /// Memory below what is kept is used for something else.
    fn forget(&mut self, file: FileId) {
        let Entry { inode, memory, .. } = &mut self.entries[file];
        let kept = (inode.kept() as usize).min(memory.len());
        memory[..kept].fill(0xee);
    }

    /// Another thread writes while a job is under way.
    pub(crate) fn write_beside(&mut self, file: FileId) -> bool {
        let bytes = self.bytes(70);
        let mut content = self.histories[file].latest().to_vec();
        let Entry { inode, memory, .. } = &mut self.entries[file];
        if let Some(offset) = inode.append(70) {
            memory.truncate(offset as usize);
            memory.extend(&bytes);
            content.extend(&bytes);
            self.histories[file].begin(content);
            inode.appended(70, self.now);
        } else {
            return false;
        }
        self.histories[file].returned();
        true
    }

    fn carry_out(
        &mut self,
        file: FileId,
        event: Event,
        step: Step,
        bytes: &[u8],
        probe: &mut dyn Probe,
    ) -> Outcome {
        // (The kernel's own doings do not fail here: those are its own errors.)
        let done = |ok: bool| if ok { Outcome::Done } else { Outcome::Failed(28) };
        let (mutation, fails) = (self.mutation, self.fails());
        let mutated = |it| mutation == Some(it);
        match step {
            Step::Hold { offset, .. } => {
                let memory = &mut self.entries[file].memory;
                memory.truncate(offset as usize);
                memory.extend(bytes);
                Outcome::Done
            }
            Step::Home { from, to } if fails => {
                // Some of it got there.
                self.home(file, from as usize, from.midpoint(to) as usize, probe);
                Outcome::Failed(5)
            }
            Step::Home { from, to } => {
                self.home(file, from as usize, to as usize, probe);
                Outcome::Done
            }
            Step::Rewrite => {
                let range = self.entries[file].inode.range();
                let bytes = self.files.content(file);
                let end = (range.end() as usize).min(bytes.len());
                if let Some(bytes) = bytes.get(range.offset as usize..end) {
                    let bytes = bytes.to_vec();
                    self.files.write(file, range.offset as usize, &bytes, self.now);
                }
                Outcome::Done
            }
            Step::Reserve { .. } => done(!fails),
            Step::Answer(_) => Outcome::Done,
            Step::SyncFile { .. } if fails => {
                let seed = self.now;
                self.files.fail_sync(&mut self.platter, file, seed);
                self.histories[file].may_have_holes();
                Outcome::Failed(5)
            }
            Step::SyncFile { .. }
                if mutated(Mutation::ReleasedEarly)
                    && matches!(event, Event::MakeRoom | Event::Tick) =>
            {
                Outcome::Done
            }
            Step::SyncFile { data_only } => {
                let early = mutated(Mutation::HomeBeforeSync);
                if early && self.entries[file].inode.live().is_some() {
                    self.log_home(file, probe);
                }
                self.sync_file(file, data_only, probe);
                Outcome::Done
            }
            Step::Log { home } => {
                let home = home && !mutated(Mutation::NoHome);
                done(self.log_data(file, home, probe))
            }
            Step::LogHome if mutated(Mutation::NoHome) => Outcome::Done,
            Step::LogHome
                if mutated(Mutation::LeaseBeforeHome) && event == Event::OpenedElsewhere =>
            {
                Outcome::Done
            }
            Step::LogHome => done(self.log_home(file, probe)),
            Step::LogName => done(self.log_name(file, probe)),
            Step::GiveUpLease => Outcome::Done,
            Step::Call => self.call(file, event, bytes, probe),
        }
    }

    /// The program's call as it is.
    fn call(&mut self, file: FileId, event: Event, bytes: &[u8], probe: &mut dyn Probe) -> Outcome {
        match event {
            Event::Write { at, .. } => {
                let offset = match at {
                    At::End => self.files.content(file).len(),
                    At::Offset(offset) => offset as usize,
                };
                self.files.write(file, offset, bytes, self.now);
            }
            Event::Read => {
                if let Err(what) = self.histories[file].is_current(self.files.content(file)) {
                    probe.wrong(format!("a read sees what is old: {what}"));
                }
            }
            Event::Sync { data_only } => self.sync_file(file, data_only, probe),
            Event::Rename => self.files.name(file, Some(100 + file as u32)),
            Event::Unlink { .. } => self.files.name(file, None),
            Event::Truncate => {
                let size = usize::from(bytes[0]);
                self.files.truncate(&mut self.platter, file, size, self.now);
            }
            Event::SyncAll => {
                self.files.write_back(&mut self.platter, file);
                self.files.commit(&mut self.platter);
            }
            _ => {}
        }
        Outcome::Done
    }

    /// Whole blocks go past the page cache, the rest through it.
    fn home(&mut self, file: FileId, from: usize, to: usize, probe: &mut dyn Probe) {
        let memory = self.entries[file].memory.clone();
        let first = from / BLOCK * BLOCK;
        let blocks = to / BLOCK * BLOCK;
        if first < blocks {
            let bytes = &memory[first..blocks];
            self.files.write_direct(&mut self.platter, file, first, bytes, self.now);
            probe.point(self);
        }
        let rest = from.max(blocks);
        if rest < to {
            self.files.write(file, rest, &memory[rest..to], self.now);
        }
    }

    /// The oldest segment with live records.
    fn oldest(&self) -> Option<u64> {
        if self.mutation == Some(Mutation::NoRoomKept) {
            return None;
        }
        let live = self.entries.iter().filter_map(|entry| entry.inode.live());
        live.map(|live| live.segment).min()
    }

    /// A cursor at which there is room for a flush, of some more bytes than a record's header.
    fn room(&mut self, purpose: Purpose, probe: &mut dyn Probe) -> bool {
        loop {
            let log = self.superblock.log();
            let oldest = self.oldest();
            let here = if self.in_flight || self.cursor.left(&log) < BLOCK {
                self.cursor.next_segment(&log, oldest, purpose)
            } else {
                self.cursor.admits(&log, oldest, purpose).map(|()| self.cursor)
            };
            match here {
                Ok(cursor) => {
                    (self.cursor, self.in_flight) = (cursor, false);
                    return true;
                }
                Err(full) => {
                    let of = self.entries.iter().position(|entry| {
                        entry.inode.live().is_some_and(|live| live.segment == full.oldest)
                    });
                    let can = |other: &FileId| !self.busy.contains(other);
                    let Some(other) = of.filter(can).filter(|_| purpose == Purpose::Data) else {
                        return false;
                    };
                    let made = self.job(other, Event::MakeRoom, &[], Interleaving::Nothing, probe);
                    if matches!(made, Answer::Failed(_)) {
                        return false;
                    }
                }
            }
        }
    }

    fn log_data(&mut self, file: FileId, home: bool, probe: &mut dyn Probe) -> bool {
        let Entry { inode, memory, .. } = &self.entries[file];
        let range = inode.range();
        let mut offset = range.offset;
        let mut bytes = memory[offset as usize..range.end() as usize].to_vec();
        let (mut before, mut home) = (None, home);
        while !bytes.is_empty() || home {
            if !self.room(Purpose::Data, probe) {
                return false;
            }
            let log = self.superblock.log();
            let mut buffer = vec![0; SEGMENT];
            let mut flush = Flush::begin(&log, self.cursor, &mut buffer);
            let Entry { inode, .. } = &mut self.entries[file];
            inode.entering(flush.segment(), self.now);
            let size = inode.end();
            let named = inode.unnamed(flush.segment());
            if named && self.mutation != Some(Mutation::NoName) {
                let _ = flush.name(file as u32, size, &name(file));
            }
            before.get_or_insert(flush.sequence() - 1);
            let room = flush.room_for_data(1).min(bytes.len());
            if room > 0 {
                let range = Range { offset, length: room as u64 };
                offset = range.end();
                let data = flush.data(file as u32, offset, &[range], &[&bytes[..room]]);
                data.expect("there was room");
                bytes.drain(..room);
            }
            if bytes.is_empty() && home {
                home = flush.home(file as u32, size, before.unwrap_or(0)).is_err();
            }
            let segment = flush.segment();
            let Some(written) = flush.finish() else { continue };
            if !self.flush(&written, &buffer, probe) {
                return false;
            }
            self.entries[file].inode.named(segment);
        }
        true
    }

    fn log_home(&mut self, file: FileId, probe: &mut dyn Probe) -> bool {
        if self.ending {
            return true;
        }
        if !self.room(Purpose::Home, probe) {
            return self.end_epoch(file, probe);
        }
        self.log_one(file, Purpose::Home, probe, |flush, size| {
            let upto = flush.sequence() - 1;
            flush.home(file as u32, size, upto).is_ok()
        })
    }

    /// Failures have used up the room that is kept for `HOME`. The own sync of this file is done;
    /// so is that of all others then, and another epoch begins.
    fn end_epoch(&mut self, file: FileId, probe: &mut dyn Probe) -> bool {
        let live = |world: &World, other: FileId| world.entries[other].inode.live().is_some();
        let others = (0..self.entries.len()).filter(|&other| other != file && live(self, other));
        for other in others.collect::<Vec<_>>() {
            if self.busy.contains(&other) {
                return false;
            }
            self.ending = true;
            let answer = self.job(other, Event::MakeRoom, &[], Interleaving::Nothing, probe);
            self.ending = false;
            if matches!(answer, Answer::Failed(_)) {
                return false;
            }
        }
        self.superblock = self.superblock.succeed(&self.here(), self.now);
        self.write_superblock();
        self.begin_epoch();
        self.entries.iter_mut().for_each(|entry| entry.inode.epoch_began());
        true
    }

    fn log_name(&mut self, file: FileId, probe: &mut dyn Probe) -> bool {
        self.log_one(file, Purpose::Data, probe, |flush, size| {
            flush.name(file as u32, size, &name(file)).is_ok()
        })
    }

    fn log_one(
        &mut self,
        file: FileId,
        purpose: Purpose,
        probe: &mut dyn Probe,
        fill: impl FnOnce(&mut Flush<'_>, u64) -> bool,
    ) -> bool {
        if !self.room(purpose, probe) {
            return false;
        }
        let mut buffer = vec![0; SEGMENT];
        let mut flush = Flush::begin(&self.superblock.log(), self.cursor, &mut buffer);
        if !fill(&mut flush, self.entries[file].inode.end()) {
            return false;
        }
        let Some(written) = flush.finish() else { return false };
        self.flush(&written, &buffer, probe)
    }

    /// Writes a flush, and waits for it. Whether it worked.
    fn flush(&mut self, written: &Written, buffer: &[u8], probe: &mut dyn Probe) -> bool {
        self.in_flight = true;
        let (mut offset, mut after) = (written.offset as usize, written.after);
        let mut bytes = buffer[..written.length].to_vec();
        if self.mutation == Some(Mutation::NoNewBlock) {
            let start = if self.cursor.used == 0 { BLOCK } else { 0 };
            let mut end = start;
            while let Ok(record) = Record::decode(&self.superblock.log(), &bytes[end..]) {
                end += record.pace();
            }
            if start == 0 && !self.tail.is_empty() {
                bytes = [&self.tail[..], &bytes[..end]].concat();
                end = bytes.len();
                offset -= BLOCK;
            }
            self.tail = bytes[end / BLOCK * BLOCK..end].to_vec();
            bytes.resize(end.next_multiple_of(BLOCK), 0);
            let log = self.superblock.log();
            after.used = (offset + bytes.len()) as u32 - log.offset(self.cursor.number) as u32;
        }
        self.platter.write(LOG, offset, &bytes);
        probe.point(self);
        if self.fails() {
            return false;
        }
        self.platter.flush();
        probe.point(self);
        (self.cursor, self.in_flight) = (after, false);
        true
    }
}

fn name(file: FileId) -> Name<'static> {
    Name {
        device: 1,
        inode: file as u64,
        generation: 0,
        handle_kind: 1,
        handle: b"the file's handle",
        path: b"/the/file",
    }
}
