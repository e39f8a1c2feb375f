//! The kind of descriptor that a call is made on: whether it takes several pieces as one.
//!
//! unsafe: borrows a descriptor for one call.

use core::sync::atomic::Ordering::Relaxed;
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, Stat, fstat, fstatfs, major, minor};
use uncopy_inject::Call;
use uncopy_kernel::inject;
use uncopy_process::calls::{Calls, FILE_SYSTEMS};

/// The kind of descriptor that a call is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// A descriptor that takes several pieces as one: a socket, a regular file.
    Vectored,
    /// Any descriptor: only some take several pieces as one.
    Descriptor(i32),
}

impl On {
    /// Whether so many pieces may stand for so many buffers.
    pub(crate) fn takes(self, calls: &Calls, pieces: usize, buffers: usize) -> bool {
        match self {
            Self::Descriptor(fd) if pieces != 1 || buffers != 1 => takes_pieces(calls, fd),
            _ => true,
        }
    }
}

/// Whether `fd` takes several pieces as one piece: a socket, a pipe or a file that holds data. A
/// driver without vectored writes would see several calls, and so would a file that the kernel
/// makes up.
fn takes_pieces(calls: &Calls, fd: i32) -> bool {
    if fd < 0 {
        return false;
    }
    // SAFETY: used for system calls that answer EBADF if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = inject::check(Call::Fstat).and_then(|()| fstat(fd));
    stat.is_ok_and(|s| match FileType::from_raw_mode(s.st_mode) {
        FileType::Socket | FileType::Fifo => true,
        FileType::RegularFile => holds_data(calls, fd, &s),
        _ => false,
    })
}

/// File systems without a device that write all pieces of a call as one: of others it is not known
/// (procfs, securityfs and their kind call a file's `write` for each piece). From `linux/magic.h`,
/// but for the last ones.
const KNOWN: [u32; 14] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x9123_683e, // btrfs
    0x6969,      // nfs
    0x6573_5546, // fuse
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x0102_1997, // 9p
    0x00c3_6400, // ceph
    0xf15f,      // ecryptfs
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // zfs
    0x0bd0_0bd0, // lustre
];

/// Whether a regular file holds data, rather than being made up by the kernel.
fn holds_data(calls: &Calls, fd: BorrowedFd<'_>, s: &Stat) -> bool {
    // A file that has a device, or blocks, is stored somewhere.
    major(s.st_dev) != 0 || s.st_blocks > 0 || known(calls, fd, s.st_dev)
}

/// Whether the file system `dev`, which has no device, is one of [`KNOWN`]: it is asked once.
/// (Should the number become that of another, this is for what is empty.)
fn known(calls: &Calls, fd: BorrowedFd<'_>, dev: u64) -> bool {
    let asked = &calls.file_systems[minor(dev) as usize % FILE_SYSTEMS];
    let mut value = asked.load(Relaxed);
    if value >> 1 != dev {
        let Ok(fs) = inject::check(Call::Fstat).and_then(|()| fstatfs(fd)) else { return false };
        value = dev << 1 | u64::from(KNOWN.contains(&(fs.f_type as u32)));
        asked.store(value, Relaxed);
    }
    value & 1 != 0
}

/// Whether the call just refused may have been refused for the sake of its pieces: they are aligned
/// otherwise than the program's buffer (O_DIRECT), or a part of the buffer is not memory. The plain
/// call knows the right answer.
pub(crate) fn refused_for_pieces() -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    matches!(errno, Some(libc::EINVAL | libc::EFAULT))
}
