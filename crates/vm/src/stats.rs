//! The statistics of this process, and the file by which other processes see them.
//!
//! They are ordinary static memory until the space runs. Then a file is made on a memory file system
//! and mapped over them: their addresses stay, nobody who counts takes notice. A forked child first
//! gets memory of its own there. All of it is optional: where it fails nobody outside sees
//! anything, and a counter says so.
//!
//! unsafe: maps memory over a static of ours, which holds nothing but atomics.

use crate::{critical, inject};
use core::ffi::CStr;
use core::fmt::Write;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering::Relaxed};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};
use std::ffi::CString;
use std::sync::OnceLock;
use uncopy_counters::shared::{COMMAND, Header, LAYOUT, MAGIC, Shared};
use uncopy_counters::{Counters, add};
use uncopy_decide::{CopyPrices, Pauses};
use uncopy_inject::Call;

/// All of them.
pub static SHARED: Shared = Shared::new();
/// What was done.
pub static COUNTERS: &Counters = &SHARED.counters;
/// Call sites that are left alone; see [`Pauses`].
pub static PAUSES: &Pauses = &SHARED.pauses;
/// What copies cost in this program.
pub static COPY_PRICES: &CopyPrices = &SHARED.copies;

const SIZE: usize = size_of::<Shared>();
/// Where directories are made when the session has none of its own.
const BASE: &CStr = c"/dev/shm";
/// `TMPFS_MAGIC`: on another file system a write could wait for a disk.
const TMPFS: i64 = 0x0102_1994;

/// Whether the program may be looked at.
static ALLOWED: AtomicBool = AtomicBool::new(false);
/// `XDG_RUNTIME_DIR` at the start.
static SESSION: OnceLock<CString> = OnceLock::new();
/// The process whose file is mapped; 0: none.
static PUBLISHED: AtomicI32 = AtomicI32::new(0);
/// Which of the bases its file is in.
static AT: AtomicU8 = AtomicU8::new(0);

/// Files of ours belong below `session` (`XDG_RUNTIME_DIR`) or `/dev/shm`. For the constructor.
pub fn name_session(session: Option<CString>) {
    if let Some(directory) = session {
        let _ = SESSION.set(directory);
    }
}

/// The statistics may be published. For the constructor.
pub fn allow() {
    ALLOWED.store(true, Relaxed);
}

/// Whether a file is mapped, perhaps that of the parent.
#[inline]
pub fn published() -> bool {
    PUBLISHED.load(Relaxed) != 0
}

/// Makes the file, and maps it. At the start of the space: nothing but the twin allocator counts
/// meanwhile (and may lose a count).
pub(crate) fn publish() {
    if ALLOWED.load(Relaxed) && try_publish().is_err() {
        add(&COUNTERS.unpublished, 1);
    }
}

fn try_publish() -> Result<(), Errno> {
    let me = rustix::process::getpid().as_raw_pid();
    describe(me)?;
    let mut result = Err(Errno::NOENT);
    for base in 0..BASES {
        result = directory(base).and_then(|d| publish_in(&d, me));
        if result.is_ok() {
            AT.store(base, Relaxed);
            PUBLISHED.store(me, Relaxed);
            break;
        }
    }
    result
}

/// How many places there are for our directory: number 0 is the session's, number 1 everybody's.
pub(crate) const BASES: u8 = 2;

fn base(number: u8) -> Option<&'static CStr> {
    if number == 0 { SESSION.get().map(CString::as_c_str) } else { Some(BASE) }
}

/// The path of a file in the directory that is ours alone.
pub(crate) fn path(number: u8, name: &str) -> Option<CString> {
    let user = rustix::process::geteuid().as_raw();
    CString::new(format!("{}/uncopy-{user}/{name}", base(number)?.to_str().ok()?)).ok()
}

/// The directory in a base that is ours alone.
pub(crate) fn directory(number: u8) -> Result<OwnedFd, Errno> {
    let base = base(number).ok_or(Errno::NOENT)?;
    let user = rustix::process::geteuid().as_raw();
    let mut name = Name::default();
    let _ = write!(name, "uncopy-{user}");
    inject::check(Call::Open)?;
    let base = rustix::fs::openat(CWD, base, OFlags::PATH | DIRECTORY, Mode::empty())?;
    match rustix::fs::mkdirat(&base, name.text(), Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    // Where anybody may make directories, this may be somebody else's: his link, or his to look into.
    let flags = OFlags::RDONLY | DIRECTORY | OFlags::NOFOLLOW;
    let ours = rustix::fs::openat(&base, name.text(), flags, Mode::empty())?;
    let found = rustix::fs::fstat(&ours)?;
    if found.st_uid != user || found.st_mode & 0o077 != 0 {
        return Err(Errno::PERM);
    }
    if rustix::fs::fstatfs(&ours)?.f_type as i64 != TMPFS {
        return Err(Errno::NODEV);
    }
    Ok(ours)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

fn publish_in(directory: &OwnedFd, me: i32) -> Result<(), Errno> {
    sweep(directory);
    let (mut name, mut new) = (Name::default(), Name::default());
    let _ = write!(name, "{me}");
    let _ = write!(new, "{me}.new");
    let _ = rustix::fs::unlinkat(directory, new.text(), AtFlags::empty());
    let result = make_file(directory, new.text())
        .and_then(|fd| map(&fd))
        .and_then(|()| rustix::fs::renameat(directory, new.text(), directory, name.text()));
    if result.is_err() {
        let _ = rustix::fs::unlinkat(directory, new.text(), AtFlags::empty());
    }
    result
}

/// Names looked at in one [`sweep`].
const SWEPT: usize = 256;

/// Removes what processes that are gone have left: a server whose children end by `_exit` would fill the
/// file system while nobody reads.
fn sweep(directory: &OwnedFd) {
    let mut room = [core::mem::MaybeUninit::uninit(); 2048];
    let mut names = rustix::fs::RawDir::new(directory, &mut room);
    for _ in 0..SWEPT {
        let Some(Ok(entry)) = names.next() else { return };
        let name = entry.file_name();
        let number =
            name.to_str().ok().and_then(|n| n.split('.').next()).and_then(|n| n.parse().ok());
        let Some(pid) = number.and_then(rustix::process::Pid::from_raw) else { continue };
        let gone = rustix::process::test_kill_process(pid) == Err(Errno::SRCH);
        if gone && of_our_namespace(directory, name) == Ok(true) {
            let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}

/// Whether the number in a file's name is one that we can judge.
fn of_our_namespace(directory: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let mut header = [0u8; size_of::<Header>()];
    let read = rustix::io::pread(&fd, &mut header[..], 0)?;
    let word = |at: usize| header[at..].first_chunk().map(|b| u64::from_ne_bytes(*b));
    let ours = SHARED.header.namespace.load(Relaxed);
    Ok(read == header.len() && word(offset_of!(Header, namespace)) == Some(ours))
}

fn make_file(directory: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    // Writing beyond that limit would raise a signal.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|most| most < SIZE as u64) {
        return Err(Errno::FBIG);
    }
    inject::check(Call::Open)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let fd = rustix::fs::openat(directory, name, flags, mode)?;
    rustix::fs::fchmod(&fd, mode)?;
    // All of it is written, so that all of it has memory: a hole might find none when it is counted in.
    let mut done = 0;
    while done < SIZE {
        let from = address() as usize + done;
        // (No slice: other threads may be counting. The kernel reads each word as it is at the moment.)
        // SAFETY: reads a static of ours only.
        let wrote = unsafe {
            let number = fd.as_raw_fd() as usize;
            critical::syscall4(libc::SYS_pwrite64 as usize, number, from, SIZE - done, done)
        };
        match wrote {
            1.. => done += wrote as usize,
            0 => return Err(Errno::IO),
            _ => return Err(Errno::from_raw_os_error(-wrote as i32)),
        }
    }
    Ok(fd)
}

fn address() -> *mut core::ffi::c_void {
    (&raw const SHARED).cast_mut().cast()
}

fn map(fd: &OwnedFd) -> Result<(), Errno> {
    inject::check(Call::Mmap)?;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: over a static of ours of just this size, with the same content. (The kernel tests limits
    // and permissions before it takes away what is there.)
    unsafe { rustix::mm::mmap(address(), SIZE, access, flags, fd, 0) }.map(drop)
}

/// Ends that what is counted here shows in a file; in a forked child, its parent's. What is counted
/// for each call site begins anew.
pub(crate) fn keep_private() {
    if PUBLISHED.swap(0, Relaxed) == 0 {
        return;
    }
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh memory gets the content of the static, then takes its place, in one step for other
    // threads (what they count meanwhile is lost); where that cannot be, it starts from zeros.
    unsafe {
        let fresh =
            rustix::mm::mmap_anonymous(core::ptr::null_mut(), SIZE, access, MapFlags::PRIVATE);
        let moved = fresh.and_then(|fresh| {
            // (Word by word: not by memcpy, which would be our own.)
            for i in 0..SIZE / size_of::<u64>() {
                let word = address().cast::<u64>().add(i).read_volatile();
                fresh.cast::<u64>().add(i).write_volatile(word);
            }
            rustix::mm::mremap_fixed(fresh, SIZE, SIZE, MremapFlags::MAYMOVE, address())
        });
        if moved.is_err() {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            let _ = rustix::mm::mmap_anonymous(address(), SIZE, access, flags);
        }
    }
    SHARED.records.restart();
}

/// Before the program enters a sandbox, which might not forgive system calls of ours at exit or after
/// fork: nobody sees it any more.
pub(crate) fn close() {
    withdraw();
    keep_private();
}

/// At exit: takes the file away.
pub fn withdraw() {
    // (No call at all where there is nothing to take away: a sandbox might not forgive it.)
    if !published() {
        return;
    }
    let me = rustix::process::getpid().as_raw_pid();
    // (A child of vfork has our memory, but another number.)
    if PUBLISHED.load(Relaxed) != me {
        return;
    }
    let mut name = Name::default();
    let _ = write!(name, "{me}");
    if let Ok(directory) = directory(AT.load(Relaxed)) {
        let _ = rustix::fs::unlinkat(&directory, name.text(), AtFlags::empty());
    }
}

/// Fills the header.
pub(crate) fn describe(me: i32) -> Result<(), Errno> {
    inject::check(Call::Open)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/self/stat", flags, Mode::empty())?;
    let mut text = [0u8; 1024];
    let n = rustix::io::read(&fd, &mut text[..])?;
    let (command, start_time) = name_and_start(&text[..n]).ok_or(Errno::INVAL)?;
    let namespace = rustix::fs::statat(CWD, c"/proc/self/ns/pid", AtFlags::empty())?.st_ino;
    let h = &SHARED.header;
    h.layout.store(LAYOUT, Relaxed);
    h.pid.store(me as u64, Relaxed);
    h.start_time.store(start_time, Relaxed);
    h.namespace.store(namespace, Relaxed);
    let mut name = [0u8; COMMAND];
    let len = command.len().min(COMMAND);
    name[..len].copy_from_slice(&command[..len]);
    for (word, bytes) in h.command.iter().zip(name.as_chunks().0) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    h.magic.store(MAGIC, Relaxed);
    Ok(())
}

/// Of `/proc/PID/stat`: the second field, in parentheses, and the 22nd.
fn name_and_start(stat: &[u8]) -> Option<(&[u8], u64)> {
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let rest = core::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let start = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some((stat.get(open + 1..close)?, start))
}

/// A short file name, without an allocation.
#[derive(Default)]
struct Name {
    bytes: [u8; 32],
    len: usize,
}

impl Name {
    fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl Write for Name {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let end = self.len + s.len();
        let room = self.bytes.len() - 1;
        self.bytes[..room]
            .get_mut(self.len..end)
            .ok_or(core::fmt::Error)?
            .copy_from_slice(s.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_hide_the_start_time() {
        let stat = b"7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(name_and_start(stat), Some((&b"a) b (c)"[..], 4711)));
        assert_eq!(name_and_start(b"7 (a"), None);
    }
}
