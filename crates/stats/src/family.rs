//! This process's part of what a program and all that it started did: see
//! [`uncopy_counters::family`].
//!
//! The page is mapped at the start and inherited by forked children, so that adding to it is no
//! system call: it works where a process ends in a sandbox. Each addition is what was counted since
//! the last one.
//!
//! unsafe: maps a page that holds nothing but atomics.

use crate::directory::{BASES, Directory};
use crate::header::describe;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CString;
use uncopy_counters::family::{Family, SAID, UNSAID};
use uncopy_counters::stats_page::Header;
use uncopy_counters::summary;
use uncopy_counters::{Counters, Snapshot};
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::once::OnceInit;
use uncopy_kernel::placement;

/// The end of the file's name; what stands before it is the program's number.
const END: &str = ".sum";
const SIZE: usize = size_of::<Family>();
const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// See the module.
#[derive(Debug)]
pub struct Part {
    page: AtomicPtr<Family>,
    /// The counters that were added so far, and those inherited from a parent, which adds them
    /// itself.
    added: Counters,
    /// The process whose counters these are. (A child of vfork has our memory.)
    owner: AtomicI32,
    /// Whether it is the program itself.
    first: AtomicBool,
    /// Whether it was among the others that left something out.
    among_others: AtomicBool,
    /// The page's file, where there is one.
    file: OnceInit<CString>,
}

impl Default for Part {
    fn default() -> Self {
        Self::new()
    }
}

impl Part {
    /// The part of a process without a family.
    pub const fn new() -> Self {
        Self {
            page: AtomicPtr::new(core::ptr::null_mut()),
            added: Counters::new(),
            owner: AtomicI32::new(0),
            first: AtomicBool::new(false),
            among_others: AtomicBool::new(false),
            file: OnceInit::new(),
        }
    }
}

/// Makes the file for a program that this process is about to execute, in the directory of its
/// statistics. Its path.
pub fn make(session: Option<CString>) -> Option<CString> {
    let ours = Directory::new();
    ours.name_session(session);
    let me = rustix::process::getpid().as_raw_pid();
    let who = nobody();
    describe(&who, me).ok()?;
    let name = CString::new(format!("{me}{END}")).ok()?;
    (0..BASES).find_map(|base| {
        let directory = ours.open(base).ok()?;
        make_in(&directory, &name, &who).ok()?;
        ours.path(base, name.to_str().ok()?)
    })
}

/// The message to the program where no file can be made.
pub fn without_file() -> String {
    format!("{UNSAID}{}{END}", rustix::process::getpid().as_raw_pid())
}

fn nobody() -> Header {
    Header {
        magic: AtomicU64::new(0),
        layout: AtomicU64::new(0),
        pid: AtomicU64::new(0),
        start_time: AtomicU64::new(0),
        namespace: AtomicU64::new(0),
        command: Default::default(),
    }
}

fn make_in(directory: &OwnFd, name: &CStr, who: &Header) -> Result<(), Errno> {
    // (A name of ours that is there is an earlier process's of the same number, or our own of
    // before.)
    let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd =
        rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(OwnFd::from)?;
    let written = rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, SIZE as u64)
        .and_then(|()| map(Some(&fd)))
        .map(|page| {
            let (from, to) = (who, &page.header);
            for (from, to) in [
                (&from.magic, &to.magic),
                (&from.pid, &to.pid),
                (&from.start_time, &to.start_time),
                (&from.namespace, &to.namespace),
            ] {
                to.store(from.load(Relaxed), Relaxed);
            }
        });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
    written
}

fn map(fd: Option<&OwnFd>) -> Result<&'static Family, Errno> {
    let at = placement::SMALL.next(SIZE) as *mut _;
    // SAFETY: fresh memory, of zeros or of the file's words, which is never unmapped and holds
    // atomics only.
    unsafe {
        let page = match fd {
            Some(fd) => rustix::mm::mmap(at, SIZE, ACCESS, MapFlags::SHARED, fd, 0),
            None => rustix::mm::mmap_anonymous(at, SIZE, ACCESS, MapFlags::SHARED),
        }?;
        Ok(&*page.cast::<Family>())
    }
}

impl Part {
    /// Takes part: in the family whose file this is; without one, as the first of its own. For the
    /// constructor.
    pub fn join(&self, path: Option<&CStr>) {
        let me = rustix::process::getpid().as_raw_pid();
        self.owner.store(me, Relaxed);
        let has_file = path.is_some_and(|path| path.to_bytes().starts_with(b"/"));
        let page = match path {
            None => map(None),
            Some(path) if !has_file && !is_first(path, me) => return,
            Some(_) if !has_file => map(None),
            Some(path) => match open(path) {
                Ok(page) => Ok(page),
                // (Of another user by now: the program itself speaks for itself and for its forked
                // children.)
                Err(_) if is_first(path, me) => map(None),
                Err(e) => Err(e),
            },
        };
        let Ok(page) = page else { return };
        let first = path.is_none_or(|path| is_first(path, me));
        self.first.store(first, Relaxed);
        if path.is_some_and(|path| path.to_bytes().starts_with(SAID.as_bytes())) {
            page.announces();
        }
        if let Some(path) = path.filter(|_| first && has_file) {
            // SAFETY: the constructor is alone.
            unsafe { self.file.make(path.to_owned()) };
        }
        self.page.store(core::ptr::from_ref(page).cast_mut(), Relaxed);
    }

    fn page(&self) -> Option<&'static Family> {
        // SAFETY: null, or mapped for good.
        unsafe { self.page.load(Relaxed).as_ref() }
    }

    /// Whether executed programs add to the sum, too; at the start of the first one.
    pub fn counts_executed(&self) -> bool {
        // SAFETY: nobody changes it.
        unsafe { self.file.get() }.is_some()
    }

    /// Whether the line at the start is this process's to say: nobody of the family has said it.
    pub fn announces(&self) -> bool {
        self.page().is_some_and(Family::announces)
    }

    /// In a forked child: what was counted so far is the parent's.
    pub fn in_child(&self, counters: &Counters) {
        if self.owner.load(Relaxed) == 0 {
            return;
        }
        self.owner.store(rustix::process::getpid().as_raw_pid(), Relaxed);
        self.first.store(false, Relaxed);
        self.among_others.store(false, Relaxed);
        self.added.catch_up(&counters.snapshot());
    }

    /// Whether what is counted here is the calling process's. (A sandbox might not forgive the
    /// question, and a program in one does not have children by vfork.)
    pub fn is_ours(&self, counters: &Counters) -> bool {
        let owner = self.owner.load(Relaxed);
        counters.off_sandbox.load(Relaxed) > 0 && owner != 0
            || owner == rustix::process::getpid().as_raw_pid()
    }

    /// The process whose counters these are.
    pub fn owner(&self) -> i32 {
        self.owner.load(Relaxed)
    }

    /// Adds what was done since the last time.
    pub fn add(&self, counters: &Counters) {
        let Some(page) = self.page() else { return };
        if !self.is_ours(counters) {
            return;
        }
        let done = self.added.catch_up(&counters.snapshot()).sums();
        if self.first.load(Relaxed) {
            page.own.add_all(&done);
            return;
        }
        page.of_others.add_all(&done);
        if summary::saved_anything(&done) && !self.among_others.swap(true, Relaxed) {
            page.others.fetch_add(1, Relaxed);
        }
    }

    /// The family's work, for the program itself at its end: its own part, how many others left
    /// something out, and their part.
    pub fn take(&self, counters: &Counters) -> Option<(Snapshot, u64, Snapshot)> {
        let page = self.page().filter(|_| self.first.swap(false, Relaxed))?;
        // SAFETY: nobody changes it.
        if let Some(file) = unsafe { self.file.get() }
            && counters.off_sandbox.load(Relaxed) == 0
        {
            let _ = rustix::fs::unlinkat(CWD, file.as_c_str(), AtFlags::empty());
        }
        Some((page.own.snapshot(), page.others.load(Relaxed), page.of_others.snapshot()))
    }
}

fn open(path: &CStr) -> Result<&'static Family, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = rustix::fs::openat(CWD, path, flags, Mode::empty()).map(OwnFd::from)?;
    // (A page beyond the end of a shorter file would raise a signal.)
    if rustix::fs::fstat(&fd)?.st_size != SIZE as i64 {
        return Err(Errno::INVAL);
    }
    map(Some(&fd))
}

/// Whether the file is that of the program with this number.
fn is_first(path: &CStr, number: i32) -> bool {
    let name = path.to_str().ok().and_then(|p| p.rsplit('/').next()).unwrap_or_default();
    name.strip_suffix(END).and_then(|n| n.parse().ok()) == Some(number)
}
