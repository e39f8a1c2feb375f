//! The program that is about to be executed: whether this library can be loaded there.
//!
//! Where it cannot, the dynamic loader would say so on standard error (a program of another
//! architecture, another root directory), or the program would not run (another C library, a
//! sanitizer): there the library is left out of the environment. A program that cannot be examined
//! is taken for one like this.
//!
//! unsafe: reads the program's pointers with care.

use core::ffi::{CStr, c_char, c_int};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use uncopy_executable::{Content, Executable, look};
use uncopy_kernel::user_access;

/// The loader of programs that this library is for.
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2";
/// The kernel follows this many `#!` lines.
const DEEPEST: usize = 5;

/// A file that is to be executed, by whom the directory that it is looked for in may not be known
/// yet (`posix_spawn`'s actions may change it).
#[derive(Clone, Copy)]
pub(super) enum Executed {
    /// A file that is named by its path.
    Path(*const c_char, From),
    /// By its name, as a shell looks for it.
    Named(*const c_char, From),
    /// By its path from a directory's descriptor; by none, the descriptor's own file.
    At(c_int, *const c_char),
}

/// Where a relative path begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// The path begins in the current directory.
    Here,
    /// That is not known.
    Somewhere,
}

struct Opened(OwnedFd);

impl Content for Opened {
    fn read_some(&self, at: u64, into: &mut [u8]) -> usize {
        rustix::io::pread(&self.0, into, at).unwrap_or(0)
    }
}

/// Whether `library` can be loaded into what is executed.
pub(super) fn takes(library: &[u8], executed: Executed) -> bool {
    if user_access::without_calls() {
        return true;
    }
    CString::new(library).is_ok_and(|library| is_allowed(&library, Access::READ_OK))
        && executed.open().is_none_or(runs_under_us)
}

fn runs_under_us(mut file: Opened) -> bool {
    for _ in 0..DEEPEST {
        let interpreter = match look(&file) {
            Executable::Program(program) => return !program.minds_the_library(LOADER),
            Executable::Script(interpreter) => interpreter,
            Executable::Other => return true,
        };
        let Some(next) = CString::new(interpreter).ok().and_then(|path| open(CWD, &path)) else {
            return true;
        };
        file = next;
    }
    true
}

impl Executed {
    fn open(self) -> Option<Opened> {
        match self {
            Self::Path(path, from) => by_path(&string(path)?, from),
            Self::Named(name, from) => named(&string(name)?, from),
            Self::At(directory, path) => {
                let path = string(path)?;
                let directory = match directory {
                    libc::AT_FDCWD => CWD,
                    fd if fd < 0 => return None,
                    // SAFETY: the program's; if it is none the kernel says so.
                    fd => unsafe { BorrowedFd::borrow_raw(fd) },
                };
                if !path.is_empty() {
                    return open(directory, &path);
                }
                // (It may have been opened for nothing but this.)
                use std::os::fd::AsRawFd;
                let itself = format!("/proc/self/fd/{}", directory.as_raw_fd());
                open(CWD, &CString::new(itself).ok()?)
            }
        }
    }
}

fn string(at: *const c_char) -> Option<CString> {
    CString::new(user_access::string(at)?).ok()
}

fn open(directory: BorrowedFd<'_>, path: &CStr) -> Option<Opened> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(directory, path, flags, Mode::empty()).ok()?;
    let attributes = rustix::fs::fstat(&file).ok()?;
    let regular = FileType::from_raw_mode(attributes.st_mode) == FileType::RegularFile;
    regular.then_some(Opened(file))
}

/// To who the process acts as, as in opening and executing.
fn is_allowed(path: &CStr, what: Access) -> bool {
    rustix::fs::accessat(CWD, path, what, AtFlags::EACCESS).is_ok()
}

fn by_path(path: &CStr, from: From) -> Option<Opened> {
    (from == From::Here || path.to_bytes().starts_with(b"/")).then(|| open(CWD, path))?
}

/// The file that `execvp` finds.
fn named(name: &CStr, from: From) -> Option<Opened> {
    if name.to_bytes().contains(&b'/') {
        return by_path(name, from);
    }
    // SAFETY: libc's answer is the program's own string.
    let path = unsafe {
        let path = libc::getenv(c"PATH".as_ptr());
        if path.is_null() { b"/bin:/usr/bin".to_vec() } else { user_access::string(path)? }
    };
    path.split(|b| *b == b':').find_map(|directory| {
        let mut file = directory.to_vec();
        if !file.is_empty() {
            file.push(b'/');
        }
        file.extend_from_slice(name.to_bytes());
        let file = CString::new(file).ok()?;
        is_allowed(&file, Access::EXEC_OK).then(|| open(CWD, &file))?
    })
}
