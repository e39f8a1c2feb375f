//! Whether the kernel lets this user have userfaultfd, with `UFFDIO_MOVE`.

// Unsafe: opening and asking a userfaultfd has no safe wrapper.

use std::fmt::{self, Display};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;

use uncopy_kernel::survey::{Group, Obstacle, Survey};
use uncopy_kernel::uffd;

use crate::failure::Failure;

/// The device that hands out userfaultfds to whoever may open it.
pub const DEVICE: &str = "/dev/userfaultfd";
/// The group whose members may open it, where the package or [`grant`]'s commands made it.
pub const GROUP: &str = "uncopy";
/// `_IO(0xAA, 0x00)`.
const USERFAULTFD_IOC_NEW: libc::Ioctl = 0xAA00;
/// `_IOWR(0xAA, 0x3F, struct uffdio_api)`.
const UFFDIO_API: libc::Ioctl = 0xC018_AA3F;
const UFFD_API: u64 = 0xAA;
const UFFD_FEATURE_MOVE: u64 = 1 << 16;

/// `struct uffdio_api` of the kernel.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// Why userfaultfd is not to be had.
#[derive(Debug)]
pub enum NoUserfaultfd {
    /// The kernel has none, or a sandbox hides it.
    Hidden,
    /// It is refused to this user.
    Refused(Errno),
    /// Its handshake is not answered.
    Handshake(io::Error),
    /// The kernel of this release cannot move pages.
    NoMove(String),
    /// A filter of system calls ends programs for a call of ours, or may.
    Filter(Obstacle),
}

impl Display for NoUserfaultfd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden => f.write_str("this kernel has no userfaultfd (or a sandbox hides it)"),
            Self::Refused(why) => write!(f, "userfaultfd is refused ({})", why.desc()),
            Self::Handshake(why) => {
                write!(f, "the kernel does not answer userfaultfd's handshake ({why})")
            }
            Self::NoMove(release) => write!(f, "this kernel ({release}) has no UFFDIO_MOVE"),
            Self::Filter(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for NoUserfaultfd {}

impl NoUserfaultfd {
    /// The advice.
    pub fn advice(&self) -> String {
        if matches!(self, Self::Filter(_)) {
            return "have it let that pass, or refuse it (SystemCallErrorNumber=EPERM)".to_owned();
        }
        if !matches!(self, Self::Refused(_)) {
            return "Linux 6.8 or newer is needed".to_owned();
        }
        let (command, remark) = allow();
        format!(
            "allow it as root with '{command}' ({remark}), or to all with \
             'sysctl -w vm.unprivileged_userfaultfd=1'"
        )
    }
}

impl From<NoUserfaultfd> for Failure {
    fn from(why: NoUserfaultfd) -> Self {
        Self::new(&why).advise(why.advice())
    }
}

/// Checks that the library will get what it needs. Where a filter of system calls is in force,
/// children ask it before, so that it ends nobody else.
///
/// # Errors
/// [`NoUserfaultfd`], with what can be done.
pub fn check() -> Result<(), Failure> {
    let survey = Survey::new();
    survey.look();
    if let Some(why) = survey.obstacle(Group::Elision) {
        return Err(NoUserfaultfd::Filter(why).into());
    }
    Ok(look()?)
}

fn look() -> Result<(), NoUserfaultfd> {
    let fd = open().map_err(refused)?;
    let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
    // SAFETY: the request takes a pointer to this structure, which lives through the call.
    if unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) } == -1 {
        return Err(NoUserfaultfd::Handshake(io::Error::last_os_error()));
    }
    if api.features & UFFD_FEATURE_MOVE == 0 {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        return Err(NoUserfaultfd::NoMove(release.trim().to_owned()));
    }
    Ok(())
}

fn open() -> io::Result<OwnedFd> {
    // The device first, as the library does; any refusal leads to the system call.
    let by_device = OpenOptions::new().read(true).write(true).open(DEVICE).and_then(|device| {
        // SAFETY: the request's argument is a plain number, the new descriptor's flags.
        owned(unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                USERFAULTFD_IOC_NEW,
                libc::c_ulong::from((libc::O_CLOEXEC | libc::O_NONBLOCK).cast_unsigned()),
            )
        })
    });
    by_device.or_else(|_| {
        if uffd::call_ends() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // SAFETY: the call takes flags only.
        let fd =
            unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
        owned(RawFd::try_from(fd).unwrap_or(-1))
    })
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn refused(error: io::Error) -> NoUserfaultfd {
    match Errno::from_raw(error.raw_os_error().unwrap_or_default()) {
        Errno::ENOSYS => NoUserfaultfd::Hidden,
        why => NoUserfaultfd::Refused(why),
    }
}

/// The command by which root lets this user have it, and what to know of that.
pub fn allow() -> (String, &'static str) {
    let user = user();
    let group =
        group().filter(|group| std::fs::metadata(DEVICE).is_ok_and(|found| found.gid() == *group));
    match group {
        Some(_) => (format!("adduser {user} {GROUP}"), "from the next login on"),
        None => (
            format!("setfacl -m u:{user}:rw {DEVICE}"),
            "until the next boot; the Debian package's group 'uncopy' lasts",
        ),
    }
}

/// How root makes a group whose members may use it, without the package.
pub fn grant() -> String {
    format!(
        "groupadd --system {GROUP}; chgrp {GROUP} {DEVICE}; chmod 660 {DEVICE} (a udev rule as the \
         package's makes it last: KERNEL==\"userfaultfd\", GROUP=\"{GROUP}\", MODE=\"0660\")"
    )
}

/// The number of that group, if it is there.
pub fn group() -> Option<u32> {
    nix::unistd::Group::from_name(GROUP).ok().flatten().map(|group| group.gid.as_raw())
}

/// The user to be named in a command for root: by name where there is one.
fn user() -> String {
    let number = nix::unistd::geteuid();
    let name = nix::unistd::User::from_uid(number).ok().flatten().map(|user| user.name);
    name.unwrap_or_else(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_sysctl_and_the_device() {
        let why = refused(io::Error::from_raw_os_error(libc::EPERM));
        let text = Failure::from(why).to_string();
        assert!(text.contains("vm.unprivileged_userfaultfd=1"), "{text}");
        assert!(
            text.contains("setfacl -m u:") && text.contains(DEVICE) || text.contains("adduser"),
            "{text}"
        );
        assert!(!text.contains('\n'));
    }
}
