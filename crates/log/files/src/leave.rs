//! A held file becomes plain: the service brings home what is held; where there is none any more,
//! this process does.

use crate::begin::{borrowed, now, put_off};
use crate::file::{File, State};
use crate::log::Log;
use crate::session::Session;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_service::protocol::Message;
use uncopy_log_service::{Client, PlainReason, take_over};
use uncopy_log_share::State as EntryState;
use uncopy_log_share::claims::Claim;

/// So long, in ms, is slept before it is looked whether the service lives.
const RETRY_SLEEP: u32 = 20;
/// So long, in ns, bytes that cannot come home are tried again; then they are put aside.
const TIMEOUT: u64 = 30_000_000_000;

impl Log {
    /// Makes it plain.
    ///
    /// # Errors
    /// Its bytes could not be brought home for now: they are kept, and the file is held still.
    pub(crate) fn leave(
        &'static self,
        file: &Arc<File>,
        fd: RawFd,
        reason: PlainReason,
    ) -> Result<(), Errno> {
        let Some(session) = self.known_session() else { return Ok(()) };
        let (slot, index) = (file.slot(), file.index());
        if file.state() != State::Held {
            return Ok(());
        }
        if reason == PlainReason::NotAppended {
            file.not_appended.store(true, Relaxed);
        }
        let leave = Message::Leave { slot: slot as u64, index: index.into(), reason };
        session.ask(|client| client.tell(leave));
        inject::point(Point::Left);
        self.await_plain(session, file, fd, index)
    }

    /// Waits until the file that is held by `index` is plain, which somebody has asked for.
    ///
    /// # Errors
    /// As [`leave`](Self::leave).
    pub(crate) fn await_plain(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        index: u32,
    ) -> Result<(), Errno> {
        let slot = file.slot();
        let entry = session.memory.entry(slot);
        loop {
            let turn = entry.turn();
            if !file.is_held_by(index) {
                return Ok(());
            }
            if entry.state() == EntryState::Plain || !session.is_of(entry, index) {
                break;
            }
            let lives = session.ask(Client::lives);
            if !lives {
                self.hold_no_more();
                self.bring_home_here(session, file, index, fd);
                if entry.state() == EntryState::Plain {
                    continue;
                }
            }
            let error = entry.error.load(SeqCst);
            if error != 0 && matches!(entry.words.end(), uncopy_log_share::End::Closed(_)) {
                return Err(Errno::from_raw_os_error(error as i32));
            }
            entry.wait(turn, RETRY_SLEEP);
        }
        // (Another process may have brought it home, which cannot strike out what is in our log.)
        if entry.logged.load(SeqCst) != 0
            && !session.ask(Client::lives)
            && session.is_of(entry, index)
        {
            let size = entry.words.end().at();
            session.writer.with(|writer| {
                writer.as_mut().map(|writer| writer.home(&session.memory, index, size))
            });
        }
        file.alone(|| {
            if file.is_held_by(index) {
                if session.is_of(entry, index) {
                    file.lost.fetch_max(entry.lost.load(SeqCst), SeqCst);
                }
                put_off(file, now());
                file.become_(State::Plain);
                let knows = Message::Knows { slot: slot as u64, index: index.into() };
                let told = session.ask(|client| client.tell(knows));
                // (The next service leaves it to this process, as long as that lives.)
                if !told && session.is_of(entry, index) && entry.state() == EntryState::Plain {
                    entry.free();
                }
            }
        });
        Ok(())
    }

    /// In the place of a service that is no more.
    #[cold]
    pub(crate) fn bring_home_here(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        index: u32,
        fd: RawFd,
    ) {
        let slot = file.slot();
        let entry = session.memory.entry(slot);
        // (Another process with the same description may be at it.)
        if !session.claims.claim(Claim::Entry(slot)) {
            return entry.wait(entry.turn(), RETRY_SLEEP);
        }
        if entry.state() == EntryState::Held && session.is_of(entry, index) {
            let directory = self.settings().map(|settings| settings.directory.as_path());
            let _ = file.refused.compare_exchange(0, now(), SeqCst, SeqCst);
            let hopeless = now() - file.refused.load(SeqCst) > TIMEOUT;
            // The bytes that this program has in its log are home, and so must not come there
            // again.
            let struck = |size| {
                session.writer.with(|writer| match writer {
                    Some(writer) => writer.home(&session.memory, index, size).is_ok(),
                    None => true,
                })
            };
            file.kernels.with(|()| {
                take_over(&session.memory, slot, borrowed(fd), directory, hopeless, struck);
            });
        }
        session.claims.give_up(Claim::Entry(slot));
    }
}
