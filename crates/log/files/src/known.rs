//! The kernel's knowledge of the program's descriptors.
//!
//! unsafe: the program's own descriptors, for the time of its own calls.

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, StatxFlags, fstat, statx};
use std::os::fd::RawFd;
use uncopy_inject::Call;
use uncopy_kernel::inject;

pub(crate) fn borrowed(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the program's own number, for the time of its own call on it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The attributes that the kernel's sync makes durable besides bytes, as far as they can be told.
pub(crate) fn signature(known: &Known) -> u64 {
    let owner = u64::from(known.owner.0) << 32 | u64::from(known.owner.1);
    let rest = u64::from(known.mode) << 32 | (known.links & 0xffff_ffff);
    owner.rotate_left(17) ^ rest
}

/// The attributes of a file, without its times: asking for these makes each write after that set
/// new ones, in the journal (since Linux 6.13; it cost 50 us of a sync of 170).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) links: u64,
}

pub(crate) fn stat(fd: RawFd) -> Option<Known> {
    inject::check(Call::Fstat).ok()?;
    let wanted =
        StatxFlags::SIZE | StatxFlags::MODE | StatxFlags::UID | StatxFlags::GID | StatxFlags::NLINK;
    let known = statx(borrowed(fd), "", AtFlags::EMPTY_PATH, wanted).map(|stat| Known {
        size: stat.stx_size,
        mode: stat.stx_mode.into(),
        owner: (stat.stx_uid, stat.stx_gid),
        links: stat.stx_nlink.into(),
    });
    // (Where a filter of system calls refuses it.)
    let known = known.or_else(|_| {
        fstat(borrowed(fd)).map(|stat| Known {
            size: stat.st_size as u64,
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            links: stat.st_nlink,
        })
    });
    known.ok()
}
