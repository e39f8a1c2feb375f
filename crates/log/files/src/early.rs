//! Files whose syncs have returned early, and the threads that wait for these.

use crate::file::File;
use crate::guarded::Guarded;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;
use std::os::fd::RawFd;
use std::sync::Arc;
use uncopy_log_answers::{AsEver, Outputs};

/// The state that a process has of it. It lives as long.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) outputs: &'static Outputs,
    /// Files whose syncs have returned early, until they are closed.
    pub(crate) files: Guarded<Vec<Arc<File>>>,
    pub(crate) next: AtomicU32,
    pub(crate) told: fn(AsEver),
}

impl Answering {
    /// Its number, and by which descriptor it was synced.
    pub(crate) fn number(&self, file: &Arc<File>, fd: RawFd) -> u32 {
        self.files.with(|all| {
            file.promised_by.store(fd, SeqCst);
            if file.number.load(SeqCst) == 0 {
                file.number.store(self.next.fetch_add(1, SeqCst), SeqCst);
                all.push(file.clone());
            }
            file.number.load(SeqCst)
        })
    }
}
