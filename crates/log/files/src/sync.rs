//! Bytes that were appended become durable: by the log where they are few, in the file where they
//! are many.

use crate::begin::{borrowed, leave_long};
use crate::file::{File, State};
use crate::known::{signature, stat};
use crate::log::Log;
use crate::session::Session;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_book::timing::{SyncBy, Timing};
use uncopy_log_service::{Client, PlainReason};
use uncopy_log_share::words::End;
use uncopy_log_share::writer::{Job, MOST, NotLogged};

use uncopy_log_store::home::sync;

const BLOCK: u64 = 4096;
/// A sync that is not done after so many rounds has the file plain.
pub(crate) const ROUNDS: u32 = 8;

/// The work that a sync has to do.
enum Need {
    Nothing,
    /// Bytes up to here go into the log.
    Log(u64),
    /// As `Home`, because it is much.
    Much(u64),
    /// Blocks up to here go home, and the file is synced.
    Home(u64),
    /// A sync failed: what is kept is written once more, which makes it plain.
    Again,
    Plain,
}

/// Now, in ns.
fn precisely() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Log {
    /// Syncs `fd`; `real` has the kernel do it. `data`: nothing but what is needed to read it
    /// again.
    pub fn sync(&'static self, fd: RawFd, data: bool, real: impl Fn() -> i32) -> i32 {
        if self.untold.load(Relaxed) {
            self.tells_late();
        }
        let Some(file) = self.file(fd) else { return real() };
        for round in 0.. {
            if round > ROUNDS {
                // (The log has no room: what another file has there is not durable in its own yet.)
                if let Err(why) = self.leave(&file, fd, PlainReason::NoLog) {
                    return failed(why.raw_os_error());
                }
            }
            if file.state() == State::Beginning {
                file.alone(|| ());
                continue;
            }
            if file.state() != State::Held {
                let plain = self.made_plain(&file, fd, PlainReason::NotAppended);
                let before = stat(fd);
                let begun = precisely();
                let result = real();
                let took = precisely() - begun;
                drop(plain);
                if file.says_loss() {
                    return failed(libc::EIO);
                }
                if let Some(before) = before.filter(|_| result == 0) {
                    let appended = before.size.wrapping_sub(file.length.load(Relaxed));
                    if (1..=MOST).contains(&appended) {
                        file.timing.with(|timing| timing.took(SyncBy::Plain, took, true));
                    }
                    self.synced_plainly(&file, fd, data, &before);
                }
                return result;
            }
            let Some(session) = self.known_session() else { return real() };
            let made = self.held_round(session, &file, fd, data, Some(round == 0));
            if let Some(result) = made {
                return result;
            }
        }
        unreachable!("each round but the last goes on")
    }

    /// Makes a held file durable, as far as that goes in one round. `None`: it is to be looked at
    /// once more. `own`: the program's own sync, and whether this is its first round; it may return
    /// early.
    pub(crate) fn held_round(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        data: bool,
        own: Option<bool>,
    ) -> Option<i32> {
        let index = file.index();
        let made = |left: Result<(), Errno>| left.err().map(|why| failed(why.raw_os_error()));
        match session.needs(file, fd, data) {
            Need::Nothing => Some(0),
            Need::Again => made(self.leave(file, fd, PlainReason::Failed)),
            Need::Plain => made(self.await_plain(session, file, fd, index)),
            Need::Log(_) | Need::Much(_)
                if own.is_some() && self.promises(session, file, fd, index) =>
            {
                Some(0)
            }
            Need::Log(to) => {
                let begun = precisely();
                if !session.log(file, index, to) {
                    return self.sync_at_home(session, file, fd, (index, to), data);
                }
                let took = precisely() - begun;
                let loses = own.is_some_and(|first| {
                    file.timing.with(|timing| {
                        timing.took(SyncBy::Log, took, first);
                        timing.loses()
                    })
                });
                if loses {
                    self.gains_nothing(file, fd);
                }
                Some(0)
            }
            // (The rest of the last block goes into the log.)
            Need::Much(to) | Need::Home(to) => {
                let done = self.sync_at_home(session, file, fd, (index, to), data);
                done.filter(|result| *result != 0)
            }
        }
    }

    /// The log was dearer than the file's own syncs: it is plain, and tried again after long.
    #[cold]
    fn gains_nothing(&'static self, file: &Arc<File>, fd: RawFd) {
        file.timing.with(|timing| *timing = Timing::default());
        // (Where its bytes do not come home yet it is held still.)
        if self.leave(file, fd, PlainReason::NoGain).is_ok() {
            leave_long(file);
        }
    }

    /// Blocks up to `to` come home, and the kernel syncs the file. `None`: it is to be looked at
    /// once more.
    fn sync_at_home(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        (index, to): (u32, u64),
        data: bool,
    ) -> Option<i32> {
        let entry = session.memory.entry(file.slot());
        let blocks = to / BLOCK * BLOCK;
        loop {
            let turn = entry.turn();
            if file.state() != State::Held || file.index() != index {
                return None;
            }
            if matches!(entry.words.end(), End::Closed(_)) {
                return None;
            }
            let home = entry.words.home();
            if home >= blocks {
                let before = stat(fd);
                // (Nothing else is done to the file meanwhile but that more comes home.)
                // (No thread is cancelled in it, which would leave the lock locked.)
                let call = || sync(borrowed(fd), data);
                let synced = file.kernels.with(|()| entry.synced(call));
                match synced {
                    Ok(true) => {}
                    // (It is made once more.)
                    Ok(false) => return None,
                    Err(why) => return Some(failed(why.raw_os_error())),
                }
                if let Some(before) = before.filter(|_| !data) {
                    file.signature.store(signature(&before), Relaxed);
                }
                if home < to && session.log_failed(file) {
                    // The bytes that are left are in no log: the file is plain from here on.
                    return match self.leave(file, fd, PlainReason::Failed) {
                        Ok(()) => None,
                        Err(why) => Some(failed(why.raw_os_error())),
                    };
                }
                return None;
            }
            let error = entry.error.load(SeqCst);
            if error != 0 {
                return Some(failed(error as i32));
            }
            if !session.ask(Client::lives) {
                return match self.leave(file, fd, PlainReason::NoService) {
                    Ok(()) => None,
                    Err(why) => Some(failed(why.raw_os_error())),
                };
            }
            session.bring(entry, file);
            entry.wait(turn, 20);
        }
    }
}

fn failed(errno: i32) -> i32 {
    // SAFETY: errno's address is always valid.
    unsafe { *libc::__errno_location() = errno };
    -1
}

impl Session {
    fn needs(&self, file: &File, fd: RawFd, data: bool) -> Need {
        let Some(entry) = self.entry(file) else { return Need::Plain };
        let End::Open(end) = entry.words.end() else { return Need::Plain };
        if entry.failed.load(SeqCst) != 0 {
            return Need::Again;
        }
        let from = self.from(file);
        // (Before the first sync by the kernel nobody knows what of the file is durable.)
        if from < entry.base.load(SeqCst)
            || entry.words.durable() == 0 && file.logged.load(SeqCst) == 0
        {
            return Need::Home(end);
        }
        let changed =
            || stat(fd).is_none_or(|stat| signature(&stat) != file.signature.load(Relaxed));
        if !data && changed() {
            return Need::Home(end);
        }
        match end.saturating_sub(from) {
            0 => Need::Nothing,
            n if n <= MOST => Need::Log(end),
            _ => Need::Much(end),
        }
    }

    /// From where on the file's bytes are not durable.
    fn from(&self, file: &File) -> u64 {
        let entry = self.memory.entry(file.slot());
        entry.words.durable().max(file.logged.load(SeqCst))
    }

    fn log_failed(&self, file: &File) -> bool {
        file.log_failed.load(SeqCst)
    }

    /// Bytes up to `to` go into the log, together with those of other files that wait. False: they
    /// are not in it.
    fn log(&'static self, file: &Arc<File>, index: u32, to: u64) -> bool {
        self.queue.with(|queue| queue.push(file.clone()));
        self.writer.with(|writer| {
            let is_logged = || file.index() == index && self.from(file) >= to;
            // (The thread that led the last flush may have taken this one along.)
            if is_logged() {
                return true;
            }
            let Some(writer) = writer else { return false };
            let mut files = self.queue.with(core::mem::take);
            if !files.iter().any(|other| Arc::ptr_eq(other, file)) {
                files.push(file.clone());
            }
            let mut jobs: Vec<(Job, Arc<File>)> = Vec::new();
            for file in files {
                if !jobs.iter().any(|(_, other)| Arc::ptr_eq(other, &file))
                    && let Some(job) = file.alone(|| self.job(&file))
                {
                    jobs.push((job, file));
                }
            }
            while !jobs.is_empty() {
                let of: Vec<Job> = jobs.iter().map(|(job, _)| *job).collect();
                let fill = |job: &Job, place: &mut [u8]| {
                    let file = jobs.iter().find(|(of, _)| of.index == job.index).map(|(_, f)| f);
                    file.is_some_and(|file| file.alone(|| self.copies(file, job, place)))
                };
                let n = match writer.flush(&self.memory, &of, fill) {
                    Ok(n) => n,
                    // (Once blocks are durable in their file there is room again.)
                    Err(NotLogged::Full) => return false,
                    Err(NotLogged::Failed(_)) => {
                        for (_, file) in &jobs {
                            file.log_failed.store(true, SeqCst);
                        }
                        return false;
                    }
                };
                for (job, file) in jobs.drain(..n) {
                    if file.index() == job.index && !file.left_out.swap(false, SeqCst) {
                        file.logged.fetch_max(job.to, SeqCst);
                        file.log_failed.store(false, SeqCst);
                    }
                }
            }
            is_logged()
        })
    }

    /// The bytes of a file that are to go into the log.
    fn job(&self, file: &File) -> Option<Job> {
        if file.state() != State::Held {
            return None;
        }
        let slot = file.slot();
        let entry = self.entry(file)?;
        // (Said before it is looked whether it still may be logged: the one that ends that looks
        // the other way round.)
        entry.logged.store(entry.words.end().at().max(1), SeqCst);
        core::sync::atomic::fence(SeqCst);
        inject::point(Point::Logging);
        let End::Open(to) = entry.words.end() else { return None };
        let from = self.from(file);
        let fits = from < to && to - from <= MOST && from >= entry.base.load(SeqCst);
        fits.then_some(Job { slot, index: file.index(), from, to })
    }

    /// Copies a job's bytes, while nobody appends. False: they are not there any more.
    fn copies(&self, file: &File, job: &Job, place: &mut [u8]) -> bool {
        let there = file.state() == State::Held
            && file.index() == job.index
            && self.memory.entry(job.slot).words.end().at() - job.from <= uncopy_log_share::RING;
        if there {
            self.memory.copy_out(job.slot, job.from, place);
        }
        file.left_out.store(!there, SeqCst);
        there
    }
}
