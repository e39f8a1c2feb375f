//! Syncs of held files that return before they are durable (`--log-sync=answers`). Outputs of the
//! process wait for them (`uncopy_log_answers`); a process that opens such a file waits, too,
//! because its entry says that some log may have bytes of it.
//!
//! Static: the log, for a thread that is given nothing but numbers.
//!
//! unsafe: what is made once and never freed.

use crate::early::Answering;
use crate::file::{File, State};
use crate::guarded::Guarded;
use crate::log::Log;
use crate::session::Session;
use crate::sync::ROUNDS;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicPtr, AtomicU32, fence};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_inject::Point;
use uncopy_kernel::inject;
pub use uncopy_log_answers::outputs::is_mapped;
pub use uncopy_log_answers::{AsEver, Trial, found};
use uncopy_log_answers::{Outputs, Settings};
use uncopy_log_service::PlainReason;
use uncopy_log_service::protocol::{ANSWERS_WAIT, Message};
use uncopy_log_share::words::End;

static LOG: AtomicPtr<Log> = AtomicPtr::new(core::ptr::null_mut());

fn log() -> Option<&'static Log> {
    // SAFETY: a process's one log, which lives as long.
    unsafe { LOG.load(SeqCst).as_ref() }
}

fn flush(numbers: &[u32]) -> bool {
    log().is_some_and(|log| log.makes_durable(numbers))
}

fn told(reason: AsEver) {
    let Some(log) = log() else { return };
    log.answers_are(reason as u32);
    if let Some(answering) = log.answering() {
        (answering.told)(reason);
    }
}

impl Log {
    /// Syncs of held files return early from now on. `told` is called when they do so no more.
    ///
    /// # Errors
    /// They are as ever, for this reason.
    pub fn begin_answers(&'static self, told_: fn(AsEver), trial: Trial) -> Result<(), AsEver> {
        LOG.store(core::ptr::from_ref(self).cast_mut(), SeqCst);
        let outputs = Outputs::begin(Settings { flush, told, trial })?;
        let files = Guarded::new(Vec::new());
        let made = Answering { outputs, files, next: AtomicU32::new(1), told: told_ };
        self.answering.store(Box::into_raw(Box::new(made)), SeqCst);
        self.answers_are(ANSWERS_WAIT);
        Ok(())
    }

    /// They were asked for, and are as ever.
    pub fn no_answers(&self, reason: AsEver) {
        self.answers_are(reason as u32);
    }

    fn answers_are(&self, word: u32) {
        self.answers.store(word, SeqCst);
        // (A child that has the same memory has descriptors of its own.)
        self.untold.store(!self.is_own(), SeqCst);
        self.tells_of_answers();
    }

    /// The service is told, for `uncopy log status`.
    pub(crate) fn tells_of_answers(&self) {
        let word = self.answers.load(SeqCst);
        if word != 0
            && self.is_own()
            && let Some(session) = self.known_session()
        {
            session.ask(|client| client.tell(Message::Answers { word: word.into() }));
        }
    }

    /// The service is told of what a child with the same memory has ended.
    #[cold]
    pub(crate) fn tells_late(&self) {
        if self.is_own() && self.untold.swap(false, SeqCst) {
            self.tells_of_answers();
        }
    }

    pub(crate) fn answering(&self) -> Option<&'static Answering> {
        // SAFETY: made once for a process, never freed.
        unsafe { self.answering.load(SeqCst).as_ref() }
    }

    /// The bytes held of `file` are to be durable, and the log is how: true if its sync may return
    /// now, and what follows from it waits.
    pub(crate) fn promises(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
        fd: RawFd,
        index: u32,
    ) -> bool {
        let Some(answering) = self.answering() else { return false };
        if answering.outputs.reason().is_some() {
            return false;
        }
        let is_logged = file.alone(|| {
            if !file.is_held_by(index) || file.state() != State::Held {
                return false;
            }
            let Some(entry) = session.entry(file) else { return false };
            // (Said before it is looked whether it still may be logged: the one that ends that
            // looks the other way round, and then syncs the file before anybody sees it.)
            entry.logged.store(entry.words.end().at().max(1), SeqCst);
            fence(SeqCst);
            inject::point(Point::Promised);
            matches!(entry.words.end(), End::Open(_))
        });
        // (A thread that closes the descriptor makes that it is nobody's, then waits for the
        // numbers that were given for it.)
        let is_open = || self.file(fd).is_some_and(|open| Arc::ptr_eq(&open, file));
        is_logged && answering.outputs.gives(|| is_open().then(|| answering.number(file, fd)))
    }

    /// For the thread that flushes. False: what was promised is not durable, and will not be.
    fn makes_durable(&'static self, numbers: &[u32]) -> bool {
        let (Some(answering), Some(session)) = (self.answering(), self.known_session()) else {
            return false;
        };
        let files: Vec<Arc<File>> = answering.files.with(|all| {
            let wanted = |file: &&Arc<File>| numbers.contains(&file.number.load(SeqCst));
            all.iter().filter(wanted).cloned().collect()
        });
        // (One flush takes all of them along.)
        if files.len() > 1 {
            session.queue.with(|queue| queue.extend(files.iter().cloned()));
        }
        files.len() == numbers.len()
            && files.iter().all(|file| self.sync_promised(session, file).is_ok())
    }

    fn sync_promised(
        &'static self,
        session: &'static Session,
        file: &Arc<File>,
    ) -> Result<(), Errno> {
        let fd = file.promised_by.load(SeqCst);
        for round in 0.. {
            if round > ROUNDS {
                self.leave(file, fd, PlainReason::NoLog)?;
            }
            match file.state() {
                State::Beginning => file.alone(|| ()),
                State::Held => match self.held_round(session, file, fd, true, None) {
                    Some(0) => return Ok(()),
                    Some(_) => return Err(Errno::IO),
                    None => {}
                },
                // (It was made durable when it was given up: its entry said that it was logged.)
                _ if file.says_loss() => return Err(Errno::IO),
                _ => return Ok(()),
            }
        }
        unreachable!("each round but the last goes on")
    }

    /// Before bytes are appended to `file`, which whoever opens it sees: what other files promise
    /// is durable.
    #[inline]
    pub(crate) fn await_others(&self, file: &File) {
        if let Some(answering) = self.answering() {
            answering.outputs.wait_but_for(file.number.load(SeqCst));
        }
    }

    /// Returns once all is durable that was promised before.
    pub fn await_answers(&self) {
        if let Some(answering) = self.answering() {
            answering.outputs.wait_for_all();
        }
    }

    /// The same, before the file of a program is looked at that is to be executed.
    pub fn await_to_execute(&self) {
        if let Some(answering) = self.answering() {
            answering.outputs.wait_to_execute();
        }
    }

    /// A descriptor of `file` is about to be closed.
    pub(crate) fn closes_promised(&self, file: &File) {
        if file.number.load(SeqCst) != 0 {
            self.await_answers();
        }
    }

    /// The last one is nobody's any more: no sync of it returns early, and what was promised by
    /// others meanwhile is durable once this returns.
    pub(crate) fn forgets_promised(&self, file: &Arc<File>) {
        let Some(answering) = self.answering() else { return };
        let number = file.number.load(SeqCst);
        if number != 0 {
            answering.outputs.forgets(number, || {
                answering.files.with(|all| all.retain(|other| !Arc::ptr_eq(other, file)));
                file.number.store(0, SeqCst);
            });
        }
    }

    /// Before a child is made that has a copy of the memory: nothing waits, and no sync returns
    /// early before [`resumes_answers`](Self::resumes_answers).
    pub fn pauses_answers(&self) {
        if let Some(answering) = self.answering()
            && self.is_own()
        {
            answering.outputs.pauses();
        }
    }

    /// See [`pauses_answers`](Self::pauses_answers).
    pub fn resumes_answers(&self) {
        if let Some(answering) = self.answering()
            && self.is_own()
        {
            answering.outputs.resumes();
        }
    }

    /// Runs `f`, which executes another program or fails: nothing waits meanwhile.
    pub fn executes<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.answering() {
            Some(answering) => answering.outputs.paused(f),
            None => f(),
        }
    }

    /// In a forked child its own syncs are as ever.
    pub(crate) fn no_answers_in_child(&'static self) {
        if !self.answering.swap(core::ptr::null_mut(), SeqCst).is_null() {
            Outputs::gone_in_child();
        }
        // (Its service hears of it when it has one.)
        if self.answers.load(SeqCst) != 0 {
            self.answers.store(AsEver::Forked as u32, SeqCst);
        }
    }
}
