//! A file begins to be held: one that grew between two syncs, and that the program only appends to.

use crate::file::{File, State};
pub(crate) use crate::known::borrowed;
use crate::known::{Known, signature};
use crate::log::Log;
use crate::session::Session;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use rustix::fs::{SeekFrom, seek};
use rustix::time::Timespec;
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_service::{Client, PlainReason, take_over};
use uncopy_log_share::State as EntryState;
use uncopy_log_share::claims::Claim;

/// It has grown before so many syncs in a row.
const GROWN: u32 = 2;
/// A file that cannot be held, or had to become plain, is left alone for so long, then four times
/// as long, and so on.
const PAUSE: u64 = 1_000_000_000;
const LONGEST: u64 = 256 * PAUSE;
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
        let grown = if grew { file.grown.load(Relaxed) + 1 } else { 0 };
        file.grown.store(grown, Relaxed);
        let appended = grown >= GROWN && !file.not_appended.load(Relaxed);
        if appended && file.state() == State::Plain && !self.is_stopped() {
            let now = now();
            if now >= file.after.load(Relaxed) {
                self.try_to_hold(file, fd, now);
            }
        }
    }

    #[cold]
    fn try_to_hold(&'static self, file: &Arc<File>, fd: RawFd, now: u64) {
        let Some(session) = self.session() else { return };
        let log = session.has_log();
        let begin = || {
            log.inspect_err(|why| session.leaves_plain(fd, *why))?;
            session.begins(file, fd)
        };
        if attempt(file, now, begin) == Some(PlainReason::NoService) {
            self.hold_no_more();
        }
    }
}

/// A thread's attempt to hold `file`, which it decided on at `now`: `begin`, unless another thread
/// made one since then. The reason for which it failed.
fn attempt(
    file: &File,
    now: u64,
    begin: impl FnOnce() -> Result<(), PlainReason>,
) -> Option<PlainReason> {
    file.alone(|| {
        if file.state() != State::Plain || now < file.after.load(Relaxed) {
            return None;
        }
        let why = begin().err()?;
        let never = matches!(
            why,
            PlainReason::NotRegular
                | PlainReason::OtherFileSystem
                | PlainReason::Mode
                | PlainReason::NotOurs
                | PlainReason::NoLease
                | PlainReason::Shared
                | PlainReason::NoReserve
        );
        if !never && why != PlainReason::NoService {
            // (The pause begins when the attempt ends, so that it is after each thread's `now` that
            // waits for the lock.)
            put_off(file, self::now());
        }
        file.become_(if never { State::Never } else { State::Plain });
        Some(why)
    })
}

impl Session {
    /// `file` becomes held. After an error the caller sets its state.
    fn begins(&self, file: &File, fd: RawFd) -> Result<(), PlainReason> {
        file.become_(State::Beginning);
        let until = now() + UNDER_WAY;
        while file.calls() > 0 {
            if now() > until {
                self.leaves_plain(fd, PlainReason::Busy);
                return Err(PlainReason::Busy);
            }
            let _ = rustix::thread::nanosleep(&LOOK);
        }
        let held = self.ask(|client: &Client| client.hold(borrowed(fd)));
        let (slot, index) = held.inspect_err(|reason| {
            if *reason == PlainReason::NoService {
                self.gives_back(file, fd);
            }
        })?;
        inject::point(Point::Granted);
        // (Only one description has it open, which is the program's.)
        let entry = self.memory.entry(slot);
        if let Ok(position) = seek(borrowed(fd), SeekFrom::Current(0)) {
            entry.position.store(position, SeqCst);
        }
        file.slot.store(slot as u32, SeqCst);
        file.index.store(index, SeqCst);
        file.logged.store(0, SeqCst);
        file.refused.store(0, SeqCst);
        file.become_(State::Held);
        Ok(())
    }

    /// `fd`'s file stays plain for a while, and the service was not asked: its report says why.
    #[cold]
    fn leaves_plain(&self, fd: RawFd, reason: PlainReason) {
        self.ask(|client| client.leaves_plain(borrowed(fd), reason));
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// Eight threads decide to hold a file while one's attempt is under way. How many made one.
    fn attempts(file: &File, begin: impl Fn() -> Result<(), PlainReason> + Sync) -> usize {
        let (made, decided) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let once = || {
            made.fetch_add(1, SeqCst);
            while decided.load(SeqCst) < 8 {
                std::thread::yield_now();
            }
            // (They come to the lock.)
            std::thread::sleep(Duration::from_millis(50));
            begin()
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let now = now();
                    decided.fetch_add(1, SeqCst);
                    attempt(file, now, once)
                });
            }
        });
        made.load(SeqCst)
    }

    #[test]
    fn threads_whose_attempt_another_made_put_nothing_off() {
        let file = File::new(State::Plain, (1, 2), true, 1);
        let held = || {
            file.become_(State::Held);
            Ok(())
        };
        assert_eq!(attempts(&file, held), 1);
        assert_eq!(file.state(), State::Held);
        assert_eq!((file.after.load(Relaxed), file.pause.load(Relaxed)), (0, 0));
    }

    #[test]
    fn an_attempt_of_several_threads_that_fails_puts_off_once() {
        let file = File::new(State::Plain, (1, 2), true, 1);
        let before = now();
        assert_eq!(attempts(&file, || Err(PlainReason::Busy)), 1);
        assert_eq!(file.state(), State::Plain);
        assert_eq!(file.pause.load(Relaxed), 4 * PAUSE);
        assert!(file.after.load(Relaxed) >= before + PAUSE);
    }

    #[test]
    fn a_file_that_can_never_be_held_is_asked_for_once() {
        let file = File::new(State::Plain, (1, 2), true, 1);
        assert_eq!(attempts(&file, || Err(PlainReason::NoLease)), 1);
        assert_eq!(file.state(), State::Never);
    }
}
