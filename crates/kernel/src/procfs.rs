//! What the kernel says of this process in a file of `/proc`.

use crate::descriptors::OwnFd;
use crate::inject;
use core::ffi::CStr;
use rustix::fs::{Mode, OFlags};
use uncopy_inject::Call;

/// The file's text, as much of it as `room` takes and the kernel gives at once; `None`: it is not
/// to be had (a chroot, a sandbox, no descriptor left).
pub fn read<'a>(path: &CStr, room: &'a mut [u8]) -> Option<&'a [u8]> {
    inject::check(Call::Open).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = OwnFd::from(file);
    let n = rustix::io::read(&file, &mut *room).ok()?;
    room.get(..n)
}

/// The file, to be read with [`again`]. (A path with a zero byte is none.)
pub fn open(path: &[u8]) -> Option<OwnFd> {
    inject::check(Call::Open).ok()?;
    // (What is no plain file might have whoever opens it wait.)
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(OwnFd::from)
}

/// The file's text as it is now, as much of it as `room` takes and the kernel gives at once.
pub fn again<'a>(file: &OwnFd, room: &'a mut [u8]) -> Option<&'a [u8]> {
    let n = rustix::io::pread(file, &mut *room, 0).ok()?;
    room.get(..n)
}

/// All of the file's text, if it is no more than `most` bytes.
pub fn whole(path: &CStr, most: usize) -> Option<Vec<u8>> {
    const AT_ONCE: usize = 4096;
    let file = open(path.to_bytes())?;
    let mut text = Vec::new();
    loop {
        let had = text.len();
        text.resize(had + AT_ONCE, 0);
        let n = rustix::io::read(&file, &mut text[had..]).ok()?;
        text.truncate(had + n);
        if n == 0 {
            return Some(text);
        }
        if text.len() > most {
            return None;
        }
    }
}
