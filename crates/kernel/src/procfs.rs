//! The kernel's files in `/proc` about this process.

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
    // (A file that is not a plain one might have whoever opens it wait.)
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

/// Whether a filter of system calls (seccomp) is in force on this thread: one might end the program
/// for a call that it does not make otherwise. `None`: that is not told.
pub fn is_filtered() -> Option<bool> {
    status(filtered)
}

/// How many are: filters stay, and more may come. `None`: that is not told (before Linux 5.9).
pub fn filters() -> Option<u32> {
    status(|text, whole| match filtered(text, whole)? {
        false => Some(0),
        true => number(text, b"Seccomp_filters:\t").filter(|number| *number > 0),
    })
}

/// Whether this thread gains no rights by executing. `None`: that is not told.
pub fn no_new_privs() -> Option<bool> {
    status(|text, _| number(text, b"NoNewPrivs:\t").map(|it| it != 0))
}

/// What the kernel says of this thread; `whole`: that is all.
fn status<T>(of: impl FnOnce(&[u8], bool) -> Option<T>) -> Option<T> {
    let mut room = [0; 4096];
    let had = room.len();
    let text = read(c"/proc/thread-self/status", &mut room)?;
    of(text, text.len() < had)
}

fn number(text: &[u8], name: &[u8]) -> Option<u32> {
    let found = text.split(|&c| c == b'\n').find_map(|line| line.strip_prefix(name))?;
    core::str::from_utf8(found).ok()?.parse().ok()
}

/// `whole`: the text is all that there is.
fn filtered(text: &[u8], whole: bool) -> Option<bool> {
    match text.split(|&c| c == b'\n').find_map(|line| line.strip_prefix(b"Seccomp:\t")) {
        Some(mode) => Some(mode != b"0"),
        // (A kernel that has no filters does not tell.)
        None => (whole && !text.is_empty()).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_in_force_where_the_kernel_says_so_and_none_where_it_knows_none() {
        assert_eq!(filtered(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n", true), Some(true));
        assert_eq!(filtered(b"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n", false), Some(false));
        assert_eq!(filtered(b"Name:\tx\nGroups:\t1 2 3", true), Some(false));
        assert_eq!(filtered(b"Name:\tx\nGroups:\t1 2 3", false), None);
        assert_eq!(filtered(b"", true), None);
        assert_eq!(number(b"Seccomp:\t2\nSeccomp_filters:\t12\n", b"Seccomp_filters:\t"), Some(12));
        assert_eq!(number(b"Seccomp:\t2\n", b"Seccomp_filters:\t"), None);
    }
}
