//! The file that holds this process's words, mapped: whatever ends the process, the command finds
//! them.
//!
//! unsafe: maps a file of the command's directory, which holds nothing but atomics.

use core::sync::atomic::AtomicU64;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CString;
use uncopy_flow::layout::{LAYOUT, MAGIC, Tables, WORDS, header};
use uncopy_kernel::placement;

/// A fresh book for this process in `directory`.
pub fn open(directory: &str) -> Option<Tables<'static>> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let now = now_ns();
    // A process may execute several programs, one after the other.
    let name = CString::new(format!("{directory}/{pid}.{now}")).ok()?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    // The command reads it, whatever user the process becomes: it made the directory, and its user
    // owns this file, or it is root.
    let fd = rustix::fs::openat(CWD, &*name, flags, Mode::RUSR | Mode::WUSR).ok()?;
    let size = WORDS * size_of::<u64>();
    // Writing beyond that limit would raise a signal; a hole that finds no memory later, too.
    // (Holes they are, because a program may have thousands of children that use next to nothing of
    // it.)
    const SPARE: u64 = 64 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if limit.is_some_and(|most| most < size as u64) {
        return None;
    }
    let free = rustix::fs::fstatfs(&fd).ok()?;
    if free.f_bavail.saturating_mul(free.f_bsize as u64) < SPARE {
        return None;
    }
    rustix::fs::ftruncate(&fd, size as u64).ok()?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let at = placement::SMALL.next(size) as *mut _;
    // SAFETY: a new mapping, never unmapped.
    let words: &'static [AtomicU64] = unsafe {
        let at = rustix::mm::mmap(at, size, access, MapFlags::SHARED, &fd, 0);
        core::slice::from_raw_parts(at.ok()?.cast(), WORDS)
    };
    let book = Tables::new(words);
    book.set_path(None, &name_of_program());
    book.set_head(header::PID, pid as u64);
    let parent = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get());
    book.set_head(header::PARENT, parent as u64);
    book.set_head(header::BEGAN, now);
    book.set_head(header::LAYOUT, LAYOUT);
    book.set_head(header::MAGIC, MAGIC);
    Some(book)
}

/// The program's file.
pub fn executable() -> Vec<u8> {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    path.into_os_string().into_encoded_bytes()
}

/// The path by which it was executed, which may be a link that tells more than the file
/// (`redis-server` is `redis-check-rdb`); a script's interpreter is itself.
fn name_of_program() -> Vec<u8> {
    let file = executable();
    // SAFETY: the kernel put the path there, for the life of the process.
    let given = unsafe {
        let at = libc::getauxval(libc::AT_EXECFN) as *const core::ffi::c_char;
        if at.is_null() { c"" } else { core::ffi::CStr::from_ptr(at) }
    };
    use std::os::unix::ffi::OsStrExt;
    let given = std::path::Path::new(std::ffi::OsStr::from_bytes(given.to_bytes()));
    // (Not by `realpath`: it calls the program's malloc, whose constructor has not run yet.)
    let same = || {
        let [given, file] = [rustix::fs::stat(given).ok()?, rustix::fs::stat(&*file).ok()?];
        Some((given.st_dev, given.st_ino) == (file.st_dev, file.st_ino))
    };
    let leads = given.is_absolute() && same() == Some(true);
    if leads { given.as_os_str().as_bytes().to_vec() } else { file }
}

/// CLOCK_MONOTONIC, ns.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CPU time of the calling thread, ns.
pub fn thread_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Writes down how much CPU time the process has taken, and how many pages it was given.
pub fn note_usage(book: Tables<'_>) {
    let usage = {
        // SAFETY: all zeros is a valid one; the kernel fills it.
        unsafe {
            let mut usage: libc::rusage = core::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        }
    };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    book.set_head(header::USER_NS, ns(usage.ru_utime));
    book.set_head(header::SYSTEM_NS, ns(usage.ru_stime));
    let faults = usage.ru_minflt.unsigned_abs();
    if book.head(header::FRESH_BEFORE) == 0 {
        book.set_head(header::FRESH_BEFORE, faults);
    }
    book.set_head(header::FRESH, faults.saturating_sub(book.head(header::FRESH_BEFORE)));
}
