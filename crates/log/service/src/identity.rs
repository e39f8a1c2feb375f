//! Which file a description is, and the same file found again after a crash.
//!
//! unsafe: system calls with structures of ours.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use uncopy_log_share::layout::{HANDLE, Named};

/// `struct file_handle`, with room for the largest.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE],
}

/// Which file system a directory lies on, whatever number its disk has in this boot. (XFS makes
/// what `statvfs` says of that number; its own call has its uuid.)
pub(crate) fn filesystem(directory: impl AsFd) -> [u8; 16] {
    const XFS: i64 = 0x5846_5342;
    const GEOMETRY: u64 = 0x8070_5864; // XFS_IOC_FSGEOMETRY_V1
    let mut id = [0; 16];
    if rustix::fs::fstatfs(&directory).is_ok_and(|stat| stat.f_type == XFS) {
        // `struct xfs_fsop_geom_v1`, whose bytes 64 to 79 are the uuid.
        let mut geometry = [0u64; 14];
        // SAFETY: a structure of ours, of the length that the number names.
        let said = unsafe {
            let fd = directory.as_fd().as_raw_fd();
            libc::ioctl(fd, GEOMETRY, geometry.as_mut_ptr())
        };
        if said == 0 {
            id[..8].copy_from_slice(&geometry[8].to_ne_bytes());
            id[8..].copy_from_slice(&geometry[9].to_ne_bytes());
            return id;
        }
    }
    if let Ok(stat) = rustix::fs::fstatvfs(&directory) {
        id[..8].copy_from_slice(&stat.f_fsid.to_le_bytes());
    }
    id
}

/// The handle that `name_to_handle_at` gives; empty where there is none.
fn handle(file: BorrowedFd<'_>) -> (i32, Vec<u8>) {
    let mut handle = Handle { bytes: HANDLE as u32, kind: 0, handle: [0; HANDLE] };
    let mut mount = 0;
    // SAFETY: structures of ours, as long as the call takes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return (0, Vec::new());
    }
    (handle.kind, handle.handle[..(handle.bytes as usize).min(HANDLE)].to_vec())
}

/// The generation of its inode; 0 where the file system has none.
fn generation(file: BorrowedFd<'_>) -> u64 {
    const GETVERSION: libc::c_ulong = 0x8008_7601; // FS_IOC_GETVERSION
    let mut version: libc::c_long = 0;
    // SAFETY: a word of ours. (File systems write an int.)
    let result = unsafe { libc::ioctl(file.as_raw_fd(), GETVERSION, &raw mut version) };
    if result == 0 { u64::from(version as u32) } else { 0 }
}

/// Where it is now, as the kernel says.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> Vec<u8> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.map(|path| path.into_os_string().into_vec()).unwrap_or_default()
}

/// Which file it is.
pub(crate) fn named(file: BorrowedFd<'_>) -> Result<Named, Errno> {
    let stat = fstat(file)?;
    let (handle_kind, handle) = handle(file);
    Ok(Named {
        device: stat.st_dev,
        inode: stat.st_ino,
        generation: generation(file),
        handle_kind,
        handle,
        path: path_of(file),
    })
}

/// Why a file is not found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It is no more.
    Deleted,
    /// It is not where it was, and nobody knows whether it is elsewhere.
    Unknown,
    /// The kernel does not let it be opened.
    Refused(Errno),
}

fn is_it(file: BorrowedFd<'_>, wanted: &Named) -> bool {
    named(file).is_ok_and(|is| {
        // (Device numbers are handed out anew at each boot.)
        is.inode == wanted.inode
            && is.generation == wanted.generation
            && is.handle_kind == wanted.handle_kind
            && is.handle == wanted.handle
    })
}

/// Opens it. (Nobody else may make us wait: what is no regular file is not opened.)
fn open_if(path: &Path, wanted: &Named) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let at = match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        at => at?,
    };
    let stat = fstat(&at)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_ino != wanted.inode {
        return Ok(None);
    }
    let file = format!("/proc/self/fd/{}", at.as_raw_fd());
    let file = open(file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(is_it(file.as_fd(), wanted).then_some(file))
}

/// Finds a file again, to be read and written: where it was, else by its handle (root), else by its
/// inode in the directory where it was.
pub(crate) fn find(log: BorrowedFd<'_>, wanted: &Named) -> Result<OwnedFd, Gone> {
    let path = PathBuf::from(OsStr::from_bytes(&wanted.path));
    if let Some(file) = open_if(&path, wanted).map_err(Gone::Refused)? {
        return Ok(file);
    }
    match by_handle(log, wanted) {
        Ok(file) if is_it(file.as_fd(), wanted) => return Ok(file),
        Ok(_) | Err(Errno::STALE) => return Err(Gone::Deleted),
        Err(_) => {}
    }
    let entries = path.parent().and_then(|parent| std::fs::read_dir(parent).ok());
    for entry in entries.into_iter().flatten().flatten().filter(|e| e.ino() == wanted.inode) {
        if let Some(file) = open_if(&entry.path(), wanted).map_err(Gone::Refused)? {
            return Ok(file);
        }
    }
    Err(Gone::Unknown)
}

fn by_handle(mount: BorrowedFd<'_>, wanted: &Named) -> Result<OwnedFd, Errno> {
    if wanted.handle.is_empty() || wanted.handle.len() > HANDLE {
        return Err(Errno::OPNOTSUPP);
    }
    let mut handle =
        Handle { bytes: wanted.handle.len() as u32, kind: wanted.handle_kind, handle: [0; HANDLE] };
    handle.handle[..wanted.handle.len()].copy_from_slice(&wanted.handle);
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a structure of ours, as long as the call takes.
    let file = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut handle, flags)
    };
    if file < 0 {
        let why = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(why.unwrap_or(libc::EIO)));
    }
    // SAFETY: a descriptor that was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(file as i32) })
}
