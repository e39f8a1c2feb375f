//! A recording of this process: a file of a fixed size that is mapped, so that what is recorded
//! needs no call, and is there even if the process is killed. Its content is `uncopy_trace`'s
//! business.
//!
//! unsafe: maps the file, and writes into that mapping, which is ours alone.

use crate::space::{Inner, Record, Space};
use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CString;
use uncopy_decide::{Event, Observer, Operation, SiteId, Times};
use uncopy_inject::Call;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::{inject, placement};
use uncopy_trace::{HEAD, Head, Start, Writer};

/// A recording under way.
pub(crate) struct Recorder {
    memory: NonNull<u8>,
    bytes: usize,
    /// Where the next entry belongs.
    at: usize,
    /// Where the first one is.
    first: usize,
    writer: Writer,
    began: Option<Times>,
    now: fn() -> Option<Times>,
    path: CString,
    process: rustix::process::Pid,
}

// SAFETY: the mapping is reached through this value alone.
unsafe impl Send for Recorder {}

impl Space {
    /// Begins the recording, if this process is to be recorded and is not yet.
    pub(crate) fn record(&self, inner: &mut Inner) {
        let (s, Some(books)) = (&inner.settings, &mut inner.books) else { return };
        let Some(record) = s.record.filter(|_| !self.recording.load(Relaxed)) else { return };
        let limits = books.limits();
        let start = Start {
            command: name(),
            controller: s.controller.to_string(),
            threshold: self.threshold(),
            backoff: s.backoff,
            extent_bytes: limits.extent_bytes,
            ranges: limits.ranges,
            costs: s.costs,
        };
        match Recorder::begin(record, &start, s.times) {
            Ok(recorder) => {
                self.recording.store(true, Relaxed);
                books.observed_by(Some(Box::new(recorder)));
            }
            Err(_) => uncopy_counters::add(&self.counters().unrecorded, 1),
        }
    }

    /// The program ends, or must not be seen making calls from here on.
    pub fn end_recording(&'static self) {
        if self.recording.swap(false, Relaxed) {
            self.with(|b| b.observed_by(None));
        }
    }
}

/// The program's name.
fn name() -> String {
    let mut room = [0; 64];
    let text = uncopy_kernel::procfs::read(c"/proc/self/comm", &mut room).unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

impl Recorder {
    fn begin(record: Record, start: &Start, now: fn() -> Option<Times>) -> Result<Self, Errno> {
        let text = start.to_string();
        let first = HEAD + text.len();
        if record.bytes < first {
            return Err(Errno::NOSPC);
        }
        // Writing beyond that limit would raise a signal.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|most| most < record.bytes as u64) {
            return Err(Errno::FBIG);
        }
        let process = rustix::process::getpid();
        let (fd, path) = open(record.file, process)?;
        // A hole might find no room when it is written to, which would kill the process.
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, record.bytes as u64)?;
        inject::check(Call::Mmap)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let at = placement::SMALL.next(record.bytes) as *mut _;
        // SAFETY: a new mapping where there is none.
        let memory =
            unsafe { rustix::mm::mmap(at, record.bytes, access, MapFlags::SHARED, &fd, 0) }?;
        let memory = NonNull::new(memory.cast()).ok_or(Errno::NOMEM)?;
        let writer = Writer::new();
        let bytes = record.bytes;
        let mut new = Self { memory, bytes, at: 0, first, writer, began: None, now, path, process };
        new.put(&Head { text: text.len() as u32, ..Head::default() }.bytes());
        new.put(text.as_bytes());
        Ok(new)
    }

    /// Adds `bytes`. (Not by memcpy, which would be our own, and takes the lock that is held.)
    fn put(&mut self, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: the callers have seen that there is room in the mapping.
            unsafe { self.memory.add(self.at + i).write_volatile(*byte) };
        }
        self.at += bytes.len();
    }

    /// Whether this is the process that is recorded: a child that was made behind our back, or by
    /// vfork, has the same mapping.
    fn is_ours(&self) -> bool {
        rustix::process::getpid() == self.process
    }

    fn head(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the head, in the mapping, which others may read.
        unsafe { self.memory.add(at).cast().as_ref() }
    }

    fn entry(&mut self, bytes: &[u8]) {
        // (Once one is lost the next cannot be read either.)
        if self.at + bytes.len() > self.bytes || self.head(Head::FULL_AT).load(Relaxed) != 0 {
            return self.head(Head::FULL_AT).store(1, Relaxed);
        }
        self.put(bytes);
        self.head(Head::USED_AT).store((self.at - self.first) as u64, Relaxed);
    }
}

impl Observer for Recorder {
    fn did(&mut self, operation: Operation) {
        if !self.is_ours() {
            return;
        }
        let now = (self.now)().unwrap_or_default();
        let began = *self.began.get_or_insert(now);
        let past = Times {
            cpu: now.cpu.saturating_sub(began.cpu),
            wall: now.wall.saturating_sub(began.wall),
        };
        let bytes = self.writer.did(past, operation);
        self.entry(&bytes);
    }

    fn told(&mut self, site: SiteId, event: Event) {
        if !self.is_ours() {
            return;
        }
        let bytes = self.writer.told(site, event);
        self.entry(&bytes);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, and not used after this.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.bytes) };
        // (A forked child has its parent's.)
        if self.is_ours()
            && let Ok(fd) = rustix::fs::open(&self.path, OFlags::WRONLY | FLAGS, Mode::empty())
        {
            let _ = rustix::fs::ftruncate(OwnFd::from(fd), self.at as u64);
        }
    }
}

const FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// A new file: nothing that is there is written over.
fn open(file: &CStr, process: rustix::process::Pid) -> Result<(OwnFd, CString), Errno> {
    inject::check(Call::Open)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | FLAGS;
    let make = |path: CString| {
        rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map(|fd| (OwnFd::from(fd), path))
    };
    match make(file.to_owned()) {
        Err(Errno::EXIST) => {
            let mut numbered = file.to_bytes().to_vec();
            numbered.extend(format!(".{}", process.as_raw_nonzero()).bytes());
            make(CString::new(numbered).map_err(|_| Errno::INVAL)?)
        }
        other => other,
    }
}
