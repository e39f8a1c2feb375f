//! A file that is overwritten, and synced often: its calls are the kernel's, what they write is
//! noted, and a sync reads that back into the log.
//!
//! unsafe: a system call with numbers.

use crate::begin::{borrowed, leave_long, now};
use crate::file::{File, Plain, State, Writes};
use crate::known::{signature, stat};
use crate::log::Log;
use crate::session::Session;
use crate::sync::{failed, precisely};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use uncopy_inject::Point;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;
use uncopy_log_book::{Answer, Event, Outcome, Step};
use uncopy_log_service::protocol::Message;
use uncopy_log_service::{Client, PlainReason};
use uncopy_log_share::State as EntryState;
use uncopy_log_share::layout::{FOR_GOOD, ONCE};
use uncopy_log_share::overwritten::{Overwritten, Range};
use uncopy_log_store::home;

/// Calls under way are waited for so many times.
const TURNS: u32 = 1000;
/// It grew before so many syncs in a row.
const GROWN_LONG: u32 = 8;
/// So long, in ns, this process tries to end what the log has of a file. Then the service does.
const TIMEOUT: u64 = 30_000_000_000;

impl File {
    /// It is held by this number.
    pub(crate) fn is_held_by(&self, index: u32) -> bool {
        matches!(self.state(), State::Held | State::Overwritten) && self.index() == index
    }

    /// A call that writes, of a file whose bytes are the kernel's: `at` none, at its position.
    pub(crate) fn writes(self: &Arc<Self>, fd: RawFd, at: Option<i64>) -> Option<Plain> {
        let mut plain = self.by_kernel()?;
        let appends = self.appends.load(Relaxed);
        let mut writes = Writes { at: at.map(|at| at as u64), before: None, moves: 0, appends };
        if self.state() == State::Overwritten && at.is_none() {
            writes.moves = self.moves.fetch_add(1, SeqCst) + 1;
            writes.before = seek(borrowed(fd), SeekFrom::Current(0)).ok();
        }
        plain.writes = Some(writes);
        Some(plain)
    }

    /// Where a call has written `n` bytes; `None`: nobody knows.
    fn range(&self, writes: &Writes, fd: RawFd, n: u64) -> Option<Range> {
        let offset = match writes.at {
            // (Where O_APPEND is set the kernel heeds no place.)
            Some(_) if writes.appends => return None,
            Some(at) => at,
            None => {
                let after = seek(borrowed(fd), SeekFrom::Current(0)).ok()?;
                // (Another call moves the position, too.)
                let alone = self.moves.load(SeqCst) == writes.moves && self.calls() == 1;
                let from = after.checked_sub(n).filter(|_| alone)?;
                if !writes.appends && Some(from) != writes.before {
                    return None;
                }
                from
            }
        };
        Some(Range { offset, length: n })
    }
}

impl Plain {
    /// The call on `fd` has written `n` bytes. (Told before the program is.)
    pub fn wrote(&self, fd: RawFd, n: isize) {
        let Some(writes) = &self.writes else { return };
        let file = &self.file;
        let over = file.state() == State::Overwritten;
        if let Ok(n @ 1..) = u64::try_from(n) {
            if over {
                inject::point(Point::Noted);
                let range = file.range(writes, fd, n);
                file.book.with(|book| match range {
                    Some(range) => book.wrote(range),
                    None => book.wrote_somewhere(),
                });
            } else if !writes.appends {
                let length = file.length.load(Relaxed);
                let within = writes.at.is_some_and(|at| at + n <= length);
                file.written.store(true, Relaxed);
                // (A program that says where it writes is no log's writer: it will read what it
                // adds, or write over it, and then wants it in the page cache.)
                if writes.at.is_some() {
                    file.not_appended.store(true, Relaxed);
                }
                if within {
                    file.written_over.store(true, Relaxed);
                }
            }
        }
        if over && writes.at.is_none() {
            file.moves.fetch_add(1, SeqCst);
        }
    }
}

impl Log {
    /// Before a call that reads.
    pub(crate) fn read_by_kernel(
        &'static self,
        file: &Arc<File>,
        fd: RawFd,
        reason: PlainReason,
    ) -> Plain {
        loop {
            if let Some(mut plain) = file.by_kernel() {
                if file.state() == State::Overwritten {
                    file.moves.fetch_add(1, SeqCst);
                    plain.reads = true;
                }
                return plain;
            }
            if file.state() != State::Beginning {
                return self.made_plain(file, fd, reason);
            }
            file.alone(|| ());
        }
    }

    /// `lseek` of an overwritten file.
    pub(crate) fn seek_by_kernel(&self, file: &File, fd: RawFd, to: i64, whence: i32) -> i64 {
        file.moves.fetch_add(1, SeqCst);
        let number = borrowed(fd).as_raw_fd() as usize;
        // SAFETY: numbers only.
        let result =
            unsafe { syscall4(libc::SYS_lseek as usize, number, to as usize, whence as usize, 0) };
        file.moves.fetch_add(1, SeqCst);
        if result < 0 {
            return failed(-result as i32).into();
        }
        result as i64
    }

    /// Syncs it. `None`: it is to be looked at once more.
    pub(crate) fn sync_overwritten(
        &'static self,
        file: &Arc<File>,
        fd: RawFd,
        data: bool,
    ) -> Option<i32> {
        let session = self.known_session()?;
        let index = file.index();
        let is_plain = |entry: &uncopy_log_share::Entry| {
            entry.state() == EntryState::Plain || !session.is_of(entry, index)
        };
        let entry = session.memory.entry(file.slot());
        if is_plain(entry) {
            let _ = self.await_plain(session, file, fd, index);
            return None;
        }
        let answer = file.kernels.with(|()| {
            if file.state() != State::Overwritten || file.index() != index {
                return None;
            }
            let before = stat(fd);
            let changed =
                before.as_ref().is_none_or(|s| signature(s) != file.signature.load(Relaxed));
            if !data && changed {
                file.book.with(|book| book.was_changed());
            }
            if let Some(before) = &before {
                let grew = file.length.swap(before.size, Relaxed) < before.size;
                let grown = file.grown.load(Relaxed);
                if !grew && grown >= GROWN_LONG {
                    file.book.with(|book| book.stopped_growing());
                }
                file.grown.store(if grew { grown + 1 } else { 0 }, Relaxed);
            }
            let answer = self.job(session, file, fd, Event::Sync { data_only: data });
            if let Some(before) = before.filter(|_| !data && changed && answer == Answer::Done) {
                file.signature.store(signature(&before), Relaxed);
            }
            Some(answer)
        })?;
        let told = entry.lost.compare_exchange(ONCE, 0, SeqCst, SeqCst);
        if told != Err(0) && session.is_of(entry, index) {
            return Some(failed(libc::EIO));
        }
        if let Answer::Failed(why) = answer {
            return Some(failed(why));
        }
        file.synced.store(now(), Relaxed);
        if file.book.with(|book| book.gains_nothing()) {
            file.timing.with(|timing| *timing = Default::default());
            if self.leave(file, fd, PlainReason::NoGain).is_ok() {
                leave_long(file);
            }
        } else if !session.ask(Client::lives) {
            let _ = self.leave(file, fd, PlainReason::NoService);
        }
        Some(0)
    }

    /// The log's bytes of it are ended by this process, and the service gives up the lease.
    pub(crate) fn leave_overwritten(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        reason: PlainReason,
    ) -> Result<(), Errno> {
        let index = file.index();
        let entry = session.memory.entry(file.slot());
        let answer = file.kernels.with(|()| {
            let here = file.state() == State::Overwritten
                && file.index() == index
                && session.is_of(entry, index)
                && entry.state() != EntryState::Plain;
            if here { self.job(session, file, fd, Event::Close) } else { Answer::Done }
        });
        if let Answer::Failed(why) = answer {
            let _ = file.refused.compare_exchange(0, now(), SeqCst, SeqCst);
            if now() - file.refused.load(SeqCst) < TIMEOUT {
                return Err(Errno::from_raw_os_error(why));
            }
        }
        self.leave_by_service(session, file, fd, reason)
    }

    fn leave_by_service(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        reason: PlainReason,
    ) -> Result<(), Errno> {
        let (slot, index) = (file.slot(), file.index());
        let leave = Message::Leave { slot: slot as u64, index: index.into(), reason };
        session.ask(|client| client.tell(leave));
        inject::point(Point::Left);
        self.await_plain(session, file, fd, index)
    }

    /// Carries the book's steps out. One at a time for a file.
    fn job(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        event: Event,
    ) -> Answer {
        let entry = session.memory.entry(file.slot());
        let mut job = file.book.with(|book| {
            if entry.failed.load(SeqCst) != 0 {
                book.failed_elsewhere();
            }
            book.begin(event, precisely())
        });
        let (mut outcome, mut last) = (Outcome::Done, Step::Answer(Answer::Done));
        loop {
            let step = file.book.with(|book| book.next(&mut job, outcome, precisely()));
            let done = |ok: bool| if ok { Outcome::Done } else { Outcome::Failed(libc::EIO) };
            if let (Step::Call, Outcome::Failed(why)) = (last, outcome) {
                return Answer::Failed(why);
            }
            last = step;
            outcome = match step {
                Step::SyncFile { data_only } => {
                    let synced = entry.syncs_itself(|| home::sync(borrowed(fd), data_only));
                    inject::point(Point::OwnSynced);
                    synced
                        .map_or_else(|why| Outcome::Failed(why.raw_os_error()), |()| Outcome::Done)
                }
                // (Another thread has ended what the log has, and the lease is on its way.)
                Step::Call => match event {
                    Event::Sync { data_only } => entry
                        .syncs_itself(|| home::sync(borrowed(fd), data_only))
                        .map_or_else(|why| Outcome::Failed(why.raw_os_error()), |()| Outcome::Done),
                    _ => Outcome::Done,
                },
                Step::Log { .. } => done(session.overwrites(file, fd)),
                Step::LogHome => done(self.ends(session, file, fd)),
                Step::Rewrite => done(self.writes_once_more(file, fd)),
                Step::Answer(answer) => {
                    let well = !file.book.with(|book| book.failed());
                    if well && entry.failed.load(SeqCst) != 0 {
                        entry.made_good();
                    }
                    return if answer == Answer::AsCalled { Answer::Done } else { answer };
                }
                // (A segment names a file that has another name. The lease is the service's.)
                _ => Outcome::Done,
            };
        }
    }

    /// Says in the log that what it has of the file is durable there. If that cannot be said, the
    /// service does.
    fn ends(&'static self, session: &'static Session, file: &Arc<File>, fd: RawFd) -> bool {
        let entry = session.memory.entry(file.slot());
        let size = stat(fd).map_or(0, |known| known.size);
        let said = session.writer.with(|writer| {
            let writer = writer.as_mut()?;
            writer.home_until_now(&session.memory, file.index(), size).ok()
        });
        inject::point(Point::Ended);
        if said.is_some() {
            entry.logs_nothing();
            return true;
        }
        self.leave_by_service(session, file, fd, PlainReason::NoLog).is_ok()
    }

    /// A sync failed: what it was about the kernel takes for clean, and has still. Nobody else
    /// writes meanwhile.
    #[cold]
    fn writes_once_more(&'static self, file: &Arc<File>, fd: RawFd) -> bool {
        file.alone(|| {
            if file.state() != State::Overwritten {
                return false;
            }
            file.become_(State::Beginning);
            let mut turns = 0;
            while file.calls() > 0 && turns < TURNS {
                turns += 1;
                rustix::thread::sched_yield();
            }
            let ranges = file.book.with(|book| book.ranges().to_vec());
            let done = file.calls() == 0
                && ranges
                    .iter()
                    .all(|range| home::once_more(borrowed(fd), range.offset, range.length).is_ok());
            file.become_(State::Overwritten);
            done
        })
    }
}

impl Session {
    /// The ranges that were written become durable in the log.
    fn overwrites(&'static self, file: &Arc<File>, fd: RawFd) -> bool {
        let Some(entry) = self.entry(file) else { return false };
        let Some(size) = stat(fd).map(|known| known.size) else { return false };
        let Some(flush) = entry.logs() else { return false };
        // (Where nobody hears of those who open the file, nothing may be live.)
        if entry.lost.load(SeqCst) == FOR_GOOD || !self.ask(Client::lives) {
            return false;
        }
        let ranges = file.book.with(|book| book.ranges().to_vec());
        let (slot, index) = (file.slot(), file.index());
        let of = Overwritten { slot, index, size, flush, ranges: &ranges };
        let enters = |segment| file.book.with(|book| book.entering(segment, precisely()));
        let fill = |ranges: &[Range], mut place: &mut [u8]| {
            ranges.iter().all(|range| {
                let (here, rest) = core::mem::take(&mut place).split_at_mut(range.length as usize);
                place = rest;
                reads(fd, range.offset, here)
            })
        };
        self.writer.with(|writer| {
            let Some(writer) = writer else { return false };
            writer.overwrites(&self.memory, &of, enters, fill).is_ok()
        })
    }
}

/// Fills `to` with what the file has from `at` on. False: it has less, or cannot be read.
fn reads(fd: RawFd, at: u64, to: &mut [u8]) -> bool {
    let mut done = 0;
    while done < to.len() {
        match pread(borrowed(fd), &mut to[done..], at + done as u64) {
            Ok(0) => return false,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}
