//! The log's directory, and the memory that belongs to it.
//!
//! | file | what |
//! | --- | --- |
//! | `lock` | locked by the one who serves or recovers |
//! | `socket` | where the service answers |
//! | `log.0` | the service's own log |
//! | `log.1`, .. | programs' logs |
//! | `lost/` | bytes that recovery could not bring home for sure |
//! | `recovered` | what each recovery has said |

use crate::identity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, StatxFlags, fstat, mkdirat, open, openat, statx,
};
use rustix::io::Errno;
use std::fmt;
use std::path::{Path, PathBuf};
use uncopy_log_record::superblock::Here;

/// Logs of programs, at most.
pub const LOGS: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    fd: OwnedFd,
    device: u64,
    inode: u64,
}

/// Why a directory is no place for a log.
#[derive(Debug)]
pub enum NoPlace {
    /// The kernel says why.
    Kernel(PathBuf, Errno),
    /// Others than this user may write there.
    OfOthers(PathBuf),
    /// Somebody serves or recovers there.
    Busy(PathBuf),
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(path, why) => {
                write!(f, "{}: {}", path.display(), std::io::Error::from(*why))
            }
            Self::OfOthers(path) => {
                let path = path.display();
                write!(
                    f,
                    "{path}: other users may write there; make it this user's alone (chown, chmod \
                     700)"
                )
            }
            Self::Busy(path) => {
                let path = path.display();
                write!(f, "{path}: another service, or a recovery, is at work there")
            }
        }
    }
}

impl std::error::Error for NoPlace {}

impl Place {
    /// The directory at `path`.
    ///
    /// # Errors
    /// It is none, or not this user's alone.
    pub fn open(path: &Path) -> Result<Self, NoPlace> {
        let kernel = |why| NoPlace::Kernel(path.to_owned(), why);
        let path = path.canonicalize().map_err(|why| {
            kernel(Errno::from_raw_os_error(why.raw_os_error().unwrap_or(libc::ENOENT)))
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(&path, flags, Mode::empty()).map_err(kernel)?;
        let stat = fstat(&fd).map_err(kernel)?;
        let own = stat.st_uid == rustix::process::geteuid().as_raw();
        if !own || stat.st_mode & 0o022 != 0 {
            return Err(NoPlace::OfOthers(path));
        }
        Ok(Self { path, fd, device: stat.st_dev, inode: stat.st_ino })
    }

    /// As [`Place::open`]; it is made where it is not there.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub fn make(path: &Path) -> Result<Self, NoPlace> {
        use std::os::unix::fs::DirBuilderExt;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|why| {
            let why = Errno::from_raw_os_error(why.raw_os_error().unwrap_or(libc::EIO));
            NoPlace::Kernel(path.to_owned(), why)
        })?;
        Self::open(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file system that it lies on.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// The mount through which it is reached: unique since the machine was booted, and another one
    /// after an unmount. 0: the kernel does not say (before Linux 6.8).
    pub fn mount(&self) -> u64 {
        const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000); // STATX_MNT_ID_UNIQUE
        match statx(&self.fd, "", AtFlags::EMPTY_PATH, UNIQUE) {
            Ok(stat) if stat.stx_mask & UNIQUE.bits() != 0 => stat.stx_mnt_id,
            _ => 0,
        }
    }

    /// Where the service answers.
    pub fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// Where the memory of held files is.
    pub fn memory(&self) -> PathBuf {
        let user = rustix::process::geteuid().as_raw();
        let Self { device, inode, .. } = self;
        PathBuf::from(format!("/dev/shm/uncopy-log-{user}-{device:x}-{inode:x}"))
    }

    /// The one who has this serves, or recovers. It is given up when it is dropped.
    ///
    /// # Errors
    /// [`NoPlace::Busy`]: somebody else has it.
    pub fn lock(&self) -> Result<OwnedFd, NoPlace> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let kernel = |why| NoPlace::Kernel(self.path.join("lock"), why);
        let file = openat(&self.fd, "lock", flags, Mode::RUSR | Mode::WUSR).map_err(kernel)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::AGAIN) => Err(NoPlace::Busy(self.path.clone())),
            Err(why) => Err(kernel(why)),
        }
    }

    /// The name of a log: 0 is the service's own.
    pub fn log_name(number: usize) -> String {
        format!("log.{number}")
    }

    /// The log of this number. `None`: there is none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn log(&self, number: usize) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&self.fd, Self::log_name(number), flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Writes bytes that belong nowhere into a file of their own, durably. Returns its path.
    ///
    /// # Errors
    /// The kernel's: they are not kept.
    pub fn lose(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Errno> {
        match mkdirat(&self.fd, "lost", Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(why) => return Err(why),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let lost = openat(&self.fd, "lost", flags, Mode::empty())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for n in 0.. {
            let name = if n == 0 { name.to_owned() } else { format!("{name}.{n}") };
            let file = match openat(&lost, &name, flags, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => continue,
                file => file?,
            };
            let mut rest = bytes;
            while !rest.is_empty() {
                let n = rustix::io::write(&file, rest)?;
                rest = &rest[n..];
            }
            rustix::fs::fsync(&file)?;
            rustix::fs::fsync(&lost)?;
            rustix::fs::fsync(&self.fd)?;
            return Ok(self.path.join("lost").join(&name));
        }
        Err(Errno::EXIST)
    }

    /// This host, this file system, this boot, as logs name them.
    pub fn here(&self) -> Here {
        let of = |path: &str| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
            let mut id = [0; 16];
            for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
                let pair = std::str::from_utf8(pair).unwrap_or("0");
                *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
            }
            id
        };
        Here {
            host: of("/etc/machine-id"),
            filesystem: identity::filesystem(&self.fd),
            boot: of("/proc/sys/kernel/random/boot_id"),
        }
    }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Now, in ns since 1970.
pub(crate) fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}
