//! A program's log: one process writes it, one thread at a time, several files' bytes in one flush.

use crate::layout::State;
use crate::memory::Memory;
use core::fmt;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_record::superblock::PLACES;
use uncopy_log_record::{
    Cursor, Flush, Log, Name, Purpose, Range, SEGMENT, Superblock, Unusable, Written,
};
use uncopy_log_store::Store;

/// Bytes of one file that are made durable by the log: more goes home.
pub const MOST: u64 = 256 << 10;

/// So often, in ns, a program that logs says that it holds leases.
const BEAT: u64 = 2_000_000_000;

/// Bytes of a file are live in a segment.
#[derive(Clone, Copy, Debug)]
struct Live {
    segment: u64,
    slot: usize,
    index: u32,
    to: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Writer {
    store: Box<dyn Store>,
    superblock: Superblock,
    /// When it last said that it lives: ns of the monotonic clock.
    beat: u64,
    log: Log,
    cursor: Cursor,
    /// Files that this segment names, each by its latest name: see [`Entry::names`](crate::Entry).
    named: Vec<(u32, u32)>,
    live: VecDeque<Live>,
    /// A flush failed: what it left on the disk nobody knows, so the next one goes elsewhere.
    abandoned: bool,
}

/// Why a log could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLog {
    /// The kernel says why.
    Kernel(Errno),
    /// It is none, or none that this version writes.
    Unusable(Unusable),
}

impl fmt::Display for NoLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(why) => write!(f, "{}", std::io::Error::from(*why)),
            Self::Unusable(why) => write!(f, "{why}"),
        }
    }
}

/// Why bytes are not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLogged {
    /// It has no room before older bytes are durable in their files.
    Full,
    /// The disk did not take them.
    Failed(Errno),
}

/// The bytes that are to go into the log of one file.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Its slot.
    pub slot: usize,
    /// Its number in records.
    pub index: u32,
    /// The first byte of the file.
    pub from: u64,
    /// Up to this one.
    pub to: u64,
}

/// The superblock of the log in `store`.
///
/// # Errors
/// There is none.
pub fn superblock(store: &dyn Store) -> Result<Superblock, NoLog> {
    let mut sectors = [[0; 4096]; 2];
    for (sector, place) in sectors.iter_mut().zip(PLACES) {
        store.read(place, sector).map_err(NoLog::Kernel)?;
    }
    Superblock::choose(&sectors[0], &sectors[1], store.bytes()).map_err(NoLog::Unusable)
}

/// Writes `superblock` to the log in `store`, durably.
///
/// # Errors
/// The kernel's.
pub fn write_superblock(store: &mut dyn Store, superblock: &Superblock) -> Result<(), Errno> {
    let block = store.memory()[..4096].first_chunk_mut().expect("a block of so many bytes");
    superblock.encode(block);
    store.flush(superblock.place(), 4096)
}

impl Writer {
    /// Of the log in `store`, whose epoch has just begun: nothing of it was written.
    ///
    /// # Errors
    /// It is none.
    pub fn new(store: Box<dyn Store>) -> Result<Self, NoLog> {
        let superblock = superblock(&*store)?;
        let log = superblock.log();
        let (cursor, named, live) = (Cursor::START, Vec::new(), VecDeque::new());
        Ok(Self { store, superblock, beat: 0, log, cursor, named, live, abandoned: false })
    }

    /// Its file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.store.file()
    }

    /// The oldest segment with live bytes, once what came home is struck out.
    fn oldest<F: AsFd>(&mut self, memory: &Memory<F>) -> Option<u64> {
        let is_dead = |live: &Live| {
            let entry = memory.entry(live.slot);
            entry.index.load(Ordering::Relaxed) != live.index
                || entry.state() != State::Held
                || entry.words.durable() >= live.to
        };
        while self.live.front().is_some_and(is_dead) {
            self.live.pop_front();
        }
        self.live.front().map(|live| live.segment)
    }

    fn next_segment<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        purpose: Purpose,
    ) -> Result<(), NotLogged> {
        let oldest = self.oldest(memory);
        let next = self.cursor.next_segment(&self.log, oldest, purpose);
        self.cursor = next.map_err(|_| NotLogged::Full)?;
        self.abandoned = false;
        self.named.clear();
        Ok(())
    }

    /// Says that leases are held for what is logged now. (So recovery can tell a change that
    /// somebody else made later from one of ours.)
    fn say_alive(&mut self) -> Result<(), NotLogged> {
        let ns = |clock| {
            let now = clock_gettime(clock);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let now = ns(ClockId::MonotonicCoarse);
        if self.beat == 0 || now - self.beat > BEAT {
            let next = self.superblock.beat(ns(ClockId::Realtime));
            write_superblock(&mut *self.store, &next).map_err(NotLogged::Failed)?;
            inject::point(Point::Beaten);
            (self.superblock, self.beat) = (next, now);
        }
        Ok(())
    }

    /// Writes what was put together.
    fn write(&mut self, written: &Written) -> Result<(), NotLogged> {
        self.store.flush(written.offset, written.length).map_err(|why| {
            self.abandoned = true;
            NotLogged::Failed(why)
        })?;
        inject::point(Point::Logged);
        self.cursor = written.after;
        Ok(())
    }

    /// Puts `jobs` into the log, as many as one flush has room for: they are durable once it
    /// returns. `fill` copies its bytes to where it is told
    /// (false: they are not there any more, and the job is left out). Returns how many there were.
    ///
    /// # Errors
    /// None of them is; what was there before is as it was.
    pub fn flush<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        jobs: &[Job],
        mut fill: impl FnMut(&Job, &mut [u8]) -> bool,
    ) -> Result<usize, NotLogged> {
        self.say_alive()?;
        if self.abandoned || self.cursor.left(&self.log) < SEGMENT / 8 {
            self.next_segment(memory, Purpose::Data)?;
        }
        let oldest = self.oldest(memory);
        let admitted = self.cursor.admits(&self.log, oldest, Purpose::Data);
        admitted.map_err(|_| NotLogged::Full)?;
        loop {
            let mut flush = Flush::begin(&self.log, self.cursor, self.store.memory());
            let mut taken = 0;
            for job in jobs {
                if !Self::add(memory, &mut flush, &mut self.named, job, &mut fill) {
                    break;
                }
                taken += 1;
            }
            if taken == 0 && !jobs.is_empty() {
                // (A whole segment has room for what one file may bring.)
                self.next_segment(memory, Purpose::Data)?;
                continue;
            }
            let Some(written) = flush.finish() else { return Ok(taken) };
            self.write(&written)?;
            for &Job { slot, index, to, .. } in &jobs[..taken] {
                self.live.push_back(Live { segment: written.segment, slot, index, to });
            }
            return Ok(taken);
        }
    }

    /// The file of `job` is named in the flush's segment. False: it does not fit.
    fn name<F: AsFd>(
        memory: &Memory<F>,
        flush: &mut Flush<'_>,
        named: &mut Vec<(u32, u32)>,
        job: &Job,
    ) -> bool {
        let is = (job.index, memory.entry(job.slot).names.load(Ordering::Acquire));
        if named.contains(&is) {
            return true;
        }
        let of = memory.entry(job.slot).named();
        let name = Name {
            device: of.device,
            inode: of.inode,
            generation: of.generation,
            handle_kind: of.handle_kind,
            handle: &of.handle,
            path: &of.path,
        };
        if flush.name(job.index, job.to, &name).is_err() {
            return false;
        }
        named.push(is);
        true
    }

    fn add<F: AsFd>(
        memory: &Memory<F>,
        flush: &mut Flush<'_>,
        named: &mut Vec<(u32, u32)>,
        job: &Job,
        fill: &mut impl FnMut(&Job, &mut [u8]) -> bool,
    ) -> bool {
        let bytes = job.to - job.from;
        // (Name and bytes go in together, or not at all.)
        if flush.room_for_data(1) < bytes as usize + 8192 {
            return false;
        }
        if !Self::name(memory, flush, named, job) {
            return false;
        }
        let range = Range { offset: job.from, length: bytes };
        let put = |place: &mut [u8]| fill(job, place).then_some(()).ok_or(Errno::IO);
        // (One whose bytes are gone is done with: its file is plain.)
        let _ = flush.data_by(job.index, job.to, &[range], put);
        true
    }

    /// Says, durably, that what the log has of this index is in its file.
    ///
    /// # Errors
    /// It could not be said.
    pub fn home<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        index: u32,
        size: u64,
    ) -> Result<(), NotLogged> {
        loop {
            if self.abandoned {
                self.next_segment(memory, Purpose::Home)?;
            }
            let mut flush = Flush::begin(&self.log, self.cursor, self.store.memory());
            if flush.home(index, size, u64::MAX).is_err() {
                self.next_segment(memory, Purpose::Home)?;
                continue;
            }
            let Some(written) = flush.finish() else { return Ok(()) };
            return self.write(&written);
        }
    }
}
