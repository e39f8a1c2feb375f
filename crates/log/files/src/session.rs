//! The parts of a service that a process has: a connection, the memory that both map, a log of its
//! own.
//!
//! unsafe: descriptors that are kept for good.

use crate::file::File;
use crate::guarded::Guarded;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::SeqCst;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use uncopy_kernel::descriptors::{Kept, is_kept};
use uncopy_log_service::{Client, PlainReason};
use uncopy_log_share::claims::{Claim, Claims};
use uncopy_log_share::memory::Memory;
use uncopy_log_share::writer::Writer;
use uncopy_log_share::{Entry, State};

/// See the module. It lives as long as the process.
#[derive(Debug)]
pub(crate) struct Session {
    /// One question at a time.
    client: Guarded<Client>,
    pub(crate) device: u64,
    /// The service's number of this process.
    number: u64,
    pub(crate) memory: Memory<OwnedFd>,
    pub(crate) claims: Claims,
    pub(crate) writer: Guarded<Option<Writer>>,
    /// The connection's descriptor, and the log's; -1: there is none.
    socket: RawFd,
    log: AtomicI32,
    /// Files that wait for the next flush.
    pub(crate) queue: Guarded<Vec<Arc<File>>>,
}

/// A descriptor of ours that the program does not close, for good.
fn keep(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    let number = Kept::new(fd)?.into_raw();
    // SAFETY: it was just given up by who had it; its number stays marked as ours.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl Session {
    pub(crate) fn open(directory: &Path) -> Result<Self, Errno> {
        let (client, memory) = Client::open_with(directory, keep)?;
        let claims = Claims::kept(memory.file(), keep)?;
        if !claims.claim(Claim::Client(client.number)) {
            return Err(Errno::PROTO);
        }
        Ok(Self {
            device: client.device,
            number: client.number,
            socket: client.socket().as_raw_fd(),
            log: AtomicI32::new(-1),
            client: Guarded::new(client),
            memory,
            claims,
            writer: Guarded::new(None),
            queue: Guarded::new(Vec::new()),
        })
    }

    /// The entry by which `file` is held, as long as it is. (A slot's next holding is another
    /// file's.)
    pub(crate) fn entry(&self, file: &File) -> Option<&Entry> {
        let entry = self.memory.entry(file.slot());
        self.is_of(entry, file.index()).then_some(entry)
    }

    /// Whether `entry` is still the one by whose index this process holds a file.
    pub(crate) fn is_of(&self, entry: &Entry, index: u32) -> bool {
        entry.client.load(SeqCst) == self.number
            && entry.index.load(SeqCst) == index
            && entry.state() != State::Free
    }

    /// In a forked child: by what it has of this the service, and a process that looks for claims,
    /// would take its parent for alive when that is dead.
    ///
    /// # Safety
    /// Nobody uses any of it in this process but the memory.
    pub(crate) unsafe fn closed_in_child(&self) {
        for fd in [self.socket, self.claims.fd(), self.log.load(SeqCst)] {
            if fd >= 0 && is_kept(fd) {
                // SAFETY: the caller's promise: its owner in this copy of the memory never drops
                // it.
                drop(unsafe { Kept::from_raw(fd) });
            }
        }
    }

    /// One question, or something that is said.
    pub(crate) fn ask<R>(&self, f: impl FnOnce(&Client) -> R) -> R {
        self.client.with(|client| f(client))
    }

    /// This process has a log. It is asked for where it has none.
    pub(crate) fn has_log(&self) -> Result<(), PlainReason> {
        self.writer.with(|writer| {
            if writer.is_some() {
                return Ok(());
            }
            let given = self.ask(Client::log).map_err(|_| PlainReason::NoService)?;
            let (file, kind) = given.ok_or(PlainReason::NoLog)?;
            let file = keep(file).map_err(|_| PlainReason::NoLog)?;
            self.log.store(file.as_raw_fd(), SeqCst);
            let store = uncopy_log_store::open(file, kind).ok();
            let made = store.and_then(|store| Writer::new(store).ok());
            *writer = Some(made.ok_or(PlainReason::NoLog)?);
            Ok(())
        })
    }
}
