//! The directory of our files, which is this user's alone: in the session's, or in everybody's.

use core::ffi::CStr;
use core::fmt::Write;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use uncopy_inject::Call;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::inject;
use uncopy_kernel::once::OnceInit;

/// Where directories are made when the session has none of its own.
const BASE: &CStr = c"/dev/shm";
/// `TMPFS_MAGIC`: on another file system a write could wait for a disk.
const TMPFS: i64 = 0x0102_1994;
/// How many places there are for our directory: number 0 is the session's, number 1 everybody's.
pub const BASES: u8 = 2;

/// See the module.
#[derive(Debug, Default)]
pub struct Directory {
    /// `XDG_RUNTIME_DIR` at the start.
    session: OnceInit<CString>,
}

impl Directory {
    /// In a session that is not known.
    pub const fn new() -> Self {
        Self { session: OnceInit::new() }
    }

    /// Files of ours belong below `session` (`XDG_RUNTIME_DIR`) or `/dev/shm`. Before this process
    /// has threads, and once.
    pub fn name_session(&self, session: Option<CString>) {
        if let Some(directory) = session {
            // SAFETY: nobody else is here.
            unsafe { self.session.make(directory) };
        }
    }

    fn base(&self, number: u8) -> Option<&CStr> {
        // SAFETY: nobody changes it.
        let session = || unsafe { self.session.get() }.map(|path| path.as_c_str());
        if number == 0 { session() } else { Some(BASE) }
    }

    /// The path of a file in it.
    pub fn path(&self, number: u8, name: &str) -> Option<CString> {
        let user = rustix::process::geteuid().as_raw();
        CString::new(format!("{}/uncopy-{user}/{name}", self.base(number)?.to_str().ok()?)).ok()
    }

    /// Makes it, where it is not there, and opens it.
    ///
    /// # Errors
    /// The kernel's; EPERM where somebody else may look into it, ENODEV where it is not on a memory
    /// file system.
    pub fn open(&self, number: u8) -> Result<OwnFd, Errno> {
        let base = self.base(number).ok_or(Errno::NOENT)?;
        let user = rustix::process::geteuid().as_raw();
        let mut name = Name::default();
        let _ = write!(name, "uncopy-{user}");
        inject::check(Call::Open)?;
        let base = rustix::fs::openat(CWD, base, OFlags::PATH | DIRECTORY, Mode::empty())
            .map(OwnFd::from)?;
        match rustix::fs::mkdirat(&base, name.text(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        // Where anybody may make directories, this may be somebody else's: his link, or his to look
        // into.
        let flags = OFlags::RDONLY | DIRECTORY | OFlags::NOFOLLOW;
        let ours = rustix::fs::openat(&base, name.text(), flags, Mode::empty()).map(OwnFd::from)?;
        let found = rustix::fs::fstat(&ours)?;
        if found.st_uid != user || found.st_mode & 0o077 != 0 {
            return Err(Errno::PERM);
        }
        if rustix::fs::fstatfs(&ours)?.f_type as i64 != TMPFS {
            return Err(Errno::NODEV);
        }
        Ok(ours)
    }
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// A short file name, without an allocation.
#[derive(Default)]
pub(crate) struct Name {
    bytes: [u8; 32],
    len: usize,
}

impl Name {
    pub(crate) fn text(&self) -> &CStr {
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
