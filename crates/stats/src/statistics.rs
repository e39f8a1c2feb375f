//! The statistics of this process, and the file by which other processes see them.
//!
//! They are ordinary memory of the one value that owns this process's state until the space runs.
//! Then a file is made on a memory file system and mapped over them: their addresses stay, nobody
//! who counts takes notice. A forked child first gets memory of its own there. All of it is
//! optional: where it fails nobody outside sees anything, and a counter says so.
//!
//! unsafe: maps memory over a part of that value, which holds nothing but atomics.

use crate::directory::{BASES, Directory, Name};
use crate::header::describe;
use core::ffi::CStr;
use core::fmt::Write;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering::Relaxed};
use rustix::fd::AsRawFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use uncopy_counters::add;
use uncopy_counters::stats_page::{Header, StatsPage};
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::inject;
use uncopy_ranges::span::PAGE;

const SIZE: usize = size_of::<StatsPage>();

/// The statistics of a process that is never given back: what is counted stays where it is.
#[repr(C)]
#[derive(Debug)]
pub struct Statistics {
    /// All of them, in whole pages.
    pub shared: StatsPage,
    /// Whether the program may be looked at.
    allowed: AtomicBool,
    /// Where the file is made.
    pub directory: Directory,
    /// The process whose file is mapped; 0: none.
    published: AtomicI32,
    /// That was tried, or is being tried by a thread.
    tried: AtomicBool,
    /// Which of the bases its file is in.
    at: AtomicU8,
}

const _: () = assert!(SIZE.is_multiple_of(PAGE) && align_of::<StatsPage>() == PAGE);

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

impl Statistics {
    /// Nothing counted, and seen by nobody.
    pub const fn new() -> Self {
        Self {
            shared: StatsPage::new(),
            allowed: AtomicBool::new(false),
            directory: Directory::new(),
            published: AtomicI32::new(0),
            tried: AtomicBool::new(false),
            at: AtomicU8::new(0),
        }
    }

    /// The statistics may be published. For the constructor.
    pub fn allow(&self) {
        self.allowed.store(true, Relaxed);
    }

    /// Whether a file is mapped, perhaps that of the parent.
    #[inline]
    pub fn published(&self) -> bool {
        self.published.load(Relaxed) != 0
    }

    /// Makes the file, and maps it, once. At the start of the space, or with the first connection:
    /// nothing but the twin allocator counts meanwhile (and may lose a count).
    pub fn publish(&'static self) {
        if self.published() || !self.allowed.load(Relaxed) || self.tried.swap(true, Relaxed) {
            return;
        }
        if self.try_publish().is_err() {
            add(&self.shared.counters.unpublished, 1);
        }
    }

    fn try_publish(&'static self) -> Result<(), Errno> {
        let me = rustix::process::getpid().as_raw_pid();
        describe(&self.shared.header, me)?;
        let mut result = Err(Errno::NOENT);
        for base in 0..BASES {
            result = self.directory.open(base).and_then(|d| self.publish_in(&d, me));
            if result.is_ok() {
                self.at.store(base, Relaxed);
                self.published.store(me, Relaxed);
                break;
            }
        }
        result
    }

    fn publish_in(&'static self, directory: &OwnFd, me: i32) -> Result<(), Errno> {
        self.sweep(directory);
        let (mut name, mut new) = (Name::default(), Name::default());
        let _ = write!(name, "{me}");
        let _ = write!(new, "{me}.new");
        let _ = rustix::fs::unlinkat(directory, new.text(), AtFlags::empty());
        let result = self
            .make_file(directory, new.text())
            .and_then(|fd| self.map(&fd))
            .and_then(|()| rustix::fs::renameat(directory, new.text(), directory, name.text()));
        if result.is_err() {
            let _ = rustix::fs::unlinkat(directory, new.text(), AtFlags::empty());
        }
        result
    }

    /// Removes what processes that are gone have left: a server whose children end by `_exit` would
    /// fill the file system while nobody reads.
    fn sweep(&self, directory: &OwnFd) {
        let mut room = [core::mem::MaybeUninit::uninit(); 2048];
        let mut names = rustix::fs::RawDir::new(directory, &mut room);
        for _ in 0..SWEPT {
            let Some(Ok(entry)) = names.next() else { return };
            let name = entry.file_name();
            let number =
                name.to_str().ok().and_then(|n| n.split('.').next()).and_then(|n| n.parse().ok());
            let Some(pid) = number.and_then(rustix::process::Pid::from_raw) else { continue };
            let gone = rustix::process::test_kill_process(pid) == Err(Errno::SRCH);
            if gone && self.of_our_namespace(directory, name) == Ok(true) {
                let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
            }
        }
    }

    /// Whether the number in a file's name is one that we can judge.
    fn of_our_namespace(&self, directory: &OwnFd, name: &CStr) -> Result<bool, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(directory, name, flags, Mode::empty()).map(OwnFd::from)?;
        let mut header = [0u8; size_of::<Header>()];
        let read = rustix::io::pread(&fd, &mut header[..], 0)?;
        let word = |at: usize| header[at..].first_chunk().map(|b| u64::from_ne_bytes(*b));
        let ours = self.shared.header.namespace.load(Relaxed);
        Ok(read == header.len() && word(offset_of!(Header, namespace)) == Some(ours))
    }

    fn make_file(&self, directory: &OwnFd, name: &CStr) -> Result<OwnFd, Errno> {
        // Writing beyond that limit would raise a signal.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|most| most < SIZE as u64) {
            return Err(Errno::FBIG);
        }
        inject::check(Call::Open)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(directory, name, flags, mode).map(OwnFd::from)?;
        rustix::fs::fchmod(&fd, mode)?;
        // All of it is written, so that all of it has memory: a hole might find none when it is
        // counted in.
        let mut done = 0;
        while done < SIZE {
            let from = self.address() as usize + done;
            // (No slice: other threads may be counting. The kernel reads each word as it is at the
            // moment.) SAFETY: reads pages of ours only.
            let wrote = unsafe {
                let number = fd.as_raw_fd() as usize;
                syscall4(libc::SYS_pwrite64 as usize, number, from, SIZE - done, done)
            };
            match wrote {
                1.. => done += wrote as usize,
                0 => return Err(Errno::IO),
                _ => return Err(Errno::from_raw_os_error(-wrote as i32)),
            }
        }
        Ok(fd)
    }

    fn address(&self) -> *mut core::ffi::c_void {
        (&raw const self.shared).cast_mut().cast()
    }

    fn map(&'static self, fd: &OwnFd) -> Result<(), Errno> {
        inject::check(Call::Mmap)?;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: over pages of ours of just this size, with the same content. (The kernel tests
        // limits and permissions before it takes away what is there.)
        unsafe { rustix::mm::mmap(self.address(), SIZE, access, flags, fd, 0) }.map(drop)
    }

    /// Ends that what is counted here shows in a file; in a forked child, its parent's. The
    /// counting of each call site begins anew.
    pub fn keep_private(&'static self) {
        self.tried.store(false, Relaxed);
        if self.published.swap(0, Relaxed) == 0 {
            return;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: fresh memory gets the content of ours, then takes its place, in one step for
        // other threads (what they count meanwhile is lost); where that cannot be, it starts from
        // zeros.
        unsafe {
            let fresh =
                rustix::mm::mmap_anonymous(core::ptr::null_mut(), SIZE, access, MapFlags::PRIVATE);
            let moved = fresh.and_then(|fresh| {
                // (Word by word: not by memcpy, which would be our own.)
                for i in 0..SIZE / size_of::<u64>() {
                    let word = self.address().cast::<u64>().add(i).read_volatile();
                    fresh.cast::<u64>().add(i).write_volatile(word);
                }
                rustix::mm::mremap_fixed(fresh, SIZE, SIZE, MremapFlags::MAYMOVE, self.address())
            });
            if moved.is_err() {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED;
                let _ = rustix::mm::mmap_anonymous(self.address(), SIZE, access, flags);
            }
        }
        self.shared.records.restart();
    }

    /// Before the program enters a sandbox, which might not forgive system calls of ours at exit or
    /// after fork: nobody sees it any more.
    pub fn close(&'static self) {
        self.allowed.store(false, Relaxed);
        self.withdraw();
        self.keep_private();
    }

    /// At exit: takes the file away.
    pub fn withdraw(&self) {
        // (No call at all where there is nothing to take away: a sandbox might not forgive it.)
        if !self.published() {
            return;
        }
        let me = rustix::process::getpid().as_raw_pid();
        // (A child of vfork has our memory, but another number.)
        if self.published.load(Relaxed) != me {
            return;
        }
        let mut name = Name::default();
        let _ = write!(name, "{me}");
        if let Ok(directory) = self.directory.open(self.at.load(Relaxed)) {
            let _ = rustix::fs::unlinkat(&directory, name.text(), AtFlags::empty());
        }
    }
}

/// Names looked at in one [`sweep`].
const SWEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// A file of statistics as a reader sees it, below `base`.
    fn file(base: &std::path::Path) -> std::path::PathBuf {
        let me = rustix::process::getpid().as_raw_pid();
        base.join(format!("uncopy-{}/{me}", rustix::process::geteuid().as_raw()))
    }

    #[test]
    fn counts_show_in_the_file_until_they_are_kept_private() {
        let base =
            std::path::PathBuf::from(format!("/dev/shm/uncopy-stats-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let all: &'static Statistics = Box::leak(Box::new(Statistics::new()));
        let kept = &all.shared.counters.kept_reads;
        all.directory.name_session(Some(CString::new(base.to_str().unwrap()).unwrap()));
        all.allow();
        kept.store(5, Relaxed);
        all.publish();
        assert!(all.published());
        let at = (kept.as_ptr() as usize) - (all.address() as usize);
        let word = || {
            let bytes = std::fs::read(file(&base)).unwrap();
            u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap())
        };
        assert_eq!(word(), 5);
        kept.store(6, Relaxed);
        assert_eq!(word(), 6);
        all.keep_private();
        kept.store(7, Relaxed);
        assert_eq!((word(), kept.load(Relaxed)), (6, 7));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
