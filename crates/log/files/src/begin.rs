//! A file begins to be held: one that grew between two syncs, and that the program only appends to.

use crate::file::{File, State};
pub(crate) use crate::known::borrowed;
use crate::known::{Known, signature};
use crate::log::Log;
use crate::session::Session;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, fstat, seek};
use rustix::time::Timespec;
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_book::Inode;
use uncopy_log_service::{Client, PlainReason, take_over};
use uncopy_log_share::State as EntryState;
use uncopy_log_share::claims::Claim;

/// It has grown before so many syncs in a row.
const GROWN: u32 = 2;
/// It was overwritten before so many.
const OVERS: u32 = 4;
/// A file that cannot be held, or had to become plain, is left alone for so long, then four times
/// as long, and so on.
const PAUSE: u64 = 1_000_000_000;
const LONGEST: u64 = 256 * PAUSE;
/// A file that was not synced for so long became plain for that, in ns.
const IDLE: u64 = 2_000_000_000;
/// Calls under way are waited for so long, in ns: most disks sync sooner. (A program of several
/// threads that sync has always one under way.)
const UNDER_WAY: u64 = 50_000_000;
/// So long is waited until it is looked again.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Now, in ns.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Log {
    /// The kernel has synced `fd` (`data`: by `fdatasync`), which is plain; its length was `length`
    /// before that.
    pub(crate) fn synced_plainly(
        &'static self,
        file: &Arc<File>,
        fd: RawFd,
        data: bool,
        known: &Known,
    ) {
        // (`fdatasync` leaves mode and owner where they are.)
        if !data {
            file.signature.store(signature(known), Relaxed);
        }
        let length = known.size;
        let grew = file.length.swap(length, Relaxed) < length;
        let count = |of: &AtomicU32, is: bool| {
            let count = if is { of.load(Relaxed) + 1 } else { 0 };
            of.store(count, Relaxed);
            count
        };
        let grown = count(&file.grown, grew);
        let written = file.written.swap(false, Relaxed);
        let over = file.written_over.swap(false, Relaxed) || written && !grew;
        let not_appended = file.not_appended.load(Relaxed);
        let wanted = self.settings().is_some_and(|settings| settings.overwrites);
        let over = count(&file.overs, over || grew && not_appended) >= OVERS && wanted;
        let held = grown >= GROWN && !not_appended;
        if (held || over) && file.state() == State::Plain && !self.is_stopped() {
            let now = now();
            if now >= file.after.load(Relaxed) {
                self.try_to_hold(file, fd, now, over);
            }
        }
    }

    #[cold]
    fn try_to_hold(&'static self, file: &Arc<File>, fd: RawFd, now: u64, over: bool) {
        let Some(session) = self.session() else { return };
        // (The bytes that a sync brings are read back.)
        let reads = |flags: OFlags| flags & OFlags::RWMODE == OFlags::RDWR;
        if over && !fcntl_getfl(borrowed(fd)).is_ok_and(reads) {
            return leave_long(file);
        }
        let begun = session.has_log().and_then(|()| {
            file.alone(|| {
                if file.state() != State::Plain {
                    return Err(PlainReason::NotAppended);
                }
                file.become_(State::Beginning);
                let until = self::now() + UNDER_WAY;
                while file.calls() > 0 {
                    if self::now() > until {
                        file.become_(State::Plain);
                        return Err(PlainReason::NotAppended);
                    }
                    let _ = rustix::thread::nanosleep(&LOOK);
                }
                let held = session.ask(|client: &Client| match over {
                    true => client.hold_overwritten(borrowed(fd)),
                    false => client.hold(borrowed(fd)),
                });
                let (slot, index) = match held {
                    Ok(held) => held,
                    Err(reason) => {
                        if reason == PlainReason::NoService {
                            session.gives_back(file, fd);
                        }
                        file.become_(State::Plain);
                        return Err(reason);
                    }
                };
                inject::point(Point::Granted);
                // (Only one description has it open, which is the program's.)
                let entry = session.memory.entry(slot);
                if over {
                    let size = fstat(borrowed(fd)).map_or(0, |stat| stat.st_size as u64);
                    let timing = file.timing.with(|timing| *timing);
                    file.book.with(|book| {
                        *book = Inode::new(now);
                        book.granted_to_overwrite(size, timing);
                    });
                } else if let Ok(position) = seek(borrowed(fd), SeekFrom::Current(0)) {
                    entry.position.store(position, SeqCst);
                }
                file.slot.store(slot as u32, SeqCst);
                file.index.store(index, SeqCst);
                file.logged.store(0, SeqCst);
                file.refused.store(0, SeqCst);
                file.become_(if over { State::Overwritten } else { State::Held });
                Ok(())
            })
        });
        match begun {
            Ok(()) => {}
            Err(PlainReason::NoService) => self.hold_no_more(),
            Err(
                PlainReason::NotRegular
                | PlainReason::OtherFileSystem
                | PlainReason::Mode
                | PlainReason::NotOurs
                | PlainReason::NoLease
                | PlainReason::Shared
                | PlainReason::NoReserve,
            ) => file.alone(|| {
                if file.state() == State::Plain {
                    file.become_(State::Never);
                }
            }),
            Err(_) => put_off(file, now),
        }
    }
}

impl Session {
    /// A service that died before it could say so may have begun to hold `file`: its lease is given
    /// up.
    #[cold]
    fn gives_back(&self, file: &File, fd: RawFd) {
        if self.ask(Client::lives) {
            return;
        }
        for (slot, entry) in self.memory.entries() {
            let is_it = entry.state() == EntryState::Held
                && entry.identity() == (file.device, file.inode)
                && self.is_of(entry, entry.index.load(SeqCst));
            if is_it && self.claims.claim(Claim::Entry(slot)) {
                take_over(&self.memory, slot, borrowed(fd), None, false, |_| true);
                self.claims.give_up(Claim::Entry(slot));
            }
        }
    }
}

/// It has become plain: it is left alone for a while, unless it was so only because nobody synced
/// it.
pub(crate) fn put_off_after(file: &File, now: u64) {
    let was_over = file.state() == State::Overwritten;
    if !was_over || now.saturating_sub(file.synced.load(Relaxed)) < IDLE {
        put_off(file, now);
    }
    file.overs.store(0, Relaxed);
}

/// It is left alone for as long as any file is.
pub(crate) fn leave_long(file: &File) {
    file.pause.store(LONGEST, Relaxed);
    put_off(file, now());
}

/// It is left alone for a while.
pub(crate) fn put_off(file: &File, now: u64) {
    let pause = file.pause.load(Relaxed).clamp(PAUSE, LONGEST);
    file.pause.store((pause * 4).min(LONGEST), Relaxed);
    file.after.store(now + pause, Relaxed);
    file.grown.store(0, Relaxed);
}
