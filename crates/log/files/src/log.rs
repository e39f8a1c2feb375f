//! The one value of a process.

use crate::early::Answering;
use crate::file::{File, Plain, State};
use crate::session::Session;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use rustix::time::Timespec;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use uncopy_kernel::critical;
use uncopy_kernel::fd_table::FdTable;
use uncopy_kernel::lock::Lock;
use uncopy_log_service::PlainReason;

/// So long is waited before bytes that could not come home are tried again.
const RETRY_SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The settings of a log.
#[derive(Debug)]
pub struct Settings {
    /// Where the service answers.
    pub directory: PathBuf,
    /// Which files; none: all of that file system.
    pub patterns: Vec<String>,
}

/// See the module. Zeros at first.
#[derive(Debug)]
pub struct Log {
    pub(crate) table: FdTable<Arc<File>>,
    settings: AtomicPtr<Settings>,
    session: AtomicPtr<Session>,
    making: Lock,
    /// In a forked child: its parent's.
    pub(crate) parents: AtomicPtr<Session>,
    process: AtomicU32,
    /// Nothing is held any more: there is no service, or the program does what goes past us.
    stopped: AtomicBool,
    /// Syncs that return early; null: none does.
    pub(crate) answering: AtomicPtr<Answering>,
    /// The code that the service is told of that; 0: nobody has asked for it.
    pub(crate) answers: AtomicU32,
    /// The service was not told of the latest one.
    pub(crate) untold: AtomicBool,
}

impl Default for Log {
    fn default() -> Self {
        Self::new()
    }
}

impl Log {
    /// Nothing is looked at.
    pub const fn new() -> Self {
        Self {
            table: FdTable::new(),
            settings: AtomicPtr::new(core::ptr::null_mut()),
            session: AtomicPtr::new(core::ptr::null_mut()),
            making: Lock::new(),
            parents: AtomicPtr::new(core::ptr::null_mut()),
            process: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            answering: AtomicPtr::new(core::ptr::null_mut()),
            answers: AtomicU32::new(0),
            untold: AtomicBool::new(false),
        }
    }

    /// From now on files are looked at. A service must answer; false: none does.
    pub fn begin(&'static self, settings: Settings) -> bool {
        self.process.store(std::process::id(), Relaxed);
        self.settings.store(Box::into_raw(Box::new(settings)), Release);
        // (As long as this program lives the service does.)
        self.session().is_some() && self.table.begin()
    }

    /// Files are looked at.
    #[inline]
    pub fn begun(&self) -> bool {
        self.table.begun()
    }

    /// There was a file that may be held.
    #[inline]
    pub fn in_use(&self) -> bool {
        !self.table.is_empty()
    }

    pub(crate) fn settings(&self) -> Option<&'static Settings> {
        // SAFETY: made once, never freed.
        unsafe { self.settings.load(Acquire).as_ref() }
    }

    /// The table is this process's. (A child of vfork shares our memory, but has descriptors of its
    /// own.)
    pub(crate) fn is_own(&self) -> bool {
        self.process.load(Relaxed) == std::process::id()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    /// Nothing is held from now on.
    pub(crate) fn hold_no_more(&self) {
        self.stopped.store(true, SeqCst);
    }

    pub(crate) fn known_session(&self) -> Option<&'static Session> {
        // SAFETY: made once for a process, never freed.
        unsafe { self.session.load(Acquire).as_ref() }
    }

    /// This process's session; it is made where there is none, and none was refused.
    pub(crate) fn session(&self) -> Option<&'static Session> {
        if let Some(session) = self.known_session() {
            return Some(session);
        }
        if self.is_stopped() {
            return None;
        }
        critical::within(|| {
            self.making.lock();
            let made = self.known_session().is_some()
                || self
                    .settings()
                    .and_then(|settings| Session::open(&settings.directory).ok())
                    .map(|session| {
                        self.session.store(Box::into_raw(Box::new(session)), Release);
                    })
                    .is_some();
            if !made {
                self.hold_no_more();
            }
            self.making.unlock();
        });
        self.tells_of_answers();
        self.known_session()
    }

    pub(crate) fn no_session(&self) {
        self.session.store(core::ptr::null_mut(), Release);
        self.stopped.store(false, SeqCst);
        self.making.reset();
        self.process.store(std::process::id(), Relaxed);
    }

    pub(crate) fn lock_making(&self) {
        self.making.lock();
    }

    pub(crate) fn unlock_making(&self) {
        self.making.unlock();
    }

    /// The file `fd`, if it is one that may be held.
    #[inline]
    pub fn file(&self, fd: RawFd) -> Option<Arc<File>> {
        if !self.in_use() {
            return None;
        }
        self.table.find(fd).map(|found| (*found).clone())
    }

    /// Before a call on `fd` that the kernel is to make as it is: what was held is home, and
    /// nothing is held before what this returns is dropped.
    #[inline]
    pub fn plainly(&'static self, fd: RawFd, reason: PlainReason) -> Option<Plain> {
        let file = self.file(fd)?;
        Some(self.made_plain(&file, fd, reason))
    }

    /// As [`plainly`](Self::plainly), before a call that changes what only the kernel's own sync
    /// makes durable.
    pub fn changes(&'static self, fd: RawFd) -> Option<Plain> {
        let file = self.file(fd)?;
        let plain = self.made_plain(&file, fd, PlainReason::NotAppended);
        file.signature.store(0, SeqCst);
        Some(plain)
    }

    #[cold]
    pub(crate) fn made_plain(
        &'static self,
        file: &Arc<File>,
        fd: RawFd,
        reason: PlainReason,
    ) -> Plain {
        loop {
            if let Some(plain) = file.plainly() {
                return plain;
            }
            match file.state() {
                State::Held => {
                    if self.leave(file, fd, reason).is_err() {
                        // (It is told where it can be: by writes and syncs. Others wait.)
                        let _ = rustix::thread::nanosleep(&RETRY_SLEEP);
                    }
                }
                State::Inherited => self.share(file, fd),
                // (The thread that begins has the lock.)
                State::Beginning => file.alone(|| ()),
                State::Plain | State::Never => {}
            }
        }
    }

    /// As [`plainly`](Self::plainly), and for good.
    pub fn plain_for_good(&'static self, fd: RawFd, reason: PlainReason) {
        if let Some(file) = self.file(fd) {
            self.never(&file, fd, reason);
        }
    }

    pub(crate) fn never(&'static self, file: &Arc<File>, fd: RawFd, reason: PlainReason) {
        drop(self.made_plain(file, fd, reason));
        file.alone(|| {
            if file.state() == State::Plain {
                file.become_(State::Never);
            }
        });
        if file.state() != State::Never {
            self.never(file, fd, reason);
        }
    }

    /// The program does what goes past us: no file is held any more.
    pub fn stop(&'static self, reason: PlainReason) {
        self.hold_no_more();
        for (fd, file) in self.table.all(0, u32::MAX) {
            if file.state() == State::Held {
                drop(self.made_plain(&file, fd, reason));
            }
        }
    }

    /// All that is held is home; what cannot come there is tried once.
    pub fn leave_all(&'static self, reason: PlainReason) {
        for (fd, file) in self.table.all(0, u32::MAX) {
            // (Else the service goes on trying, or recovery.)
            let _ = self.leave(&file, fd, reason);
        }
    }

    /// The program ends.
    pub fn program_ends(&'static self) {
        if self.in_use() && self.is_own() {
            self.leave_all(PlainReason::Ends);
        }
    }
}
