//! What the kernel says of this process in a file of `/proc`.

use crate::descriptors::OwnFd;
use crate::inject;
use core::ffi::CStr;
use rustix::fs::{Mode, OFlags};
use uncopy_inject::Call;

/// The file's text, as much of it as `room` takes and the kernel gives at once; `None`: it is not to be had (a chroot, a
/// sandbox, no descriptor left).
pub fn read<'a>(path: &CStr, room: &'a mut [u8]) -> Option<&'a [u8]> {
    inject::check(Call::Open).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = OwnFd::from(file);
    let n = rustix::io::read(&file, &mut *room).ok()?;
    room.get(..n)
}
