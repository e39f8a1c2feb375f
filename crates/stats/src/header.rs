//! The identity of a process, as the files give it.

use core::sync::atomic::Ordering::Relaxed;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use uncopy_counters::stats_page::{COMMAND, Header, LAYOUT, MAGIC};
use uncopy_inject::Call;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::inject;

/// Fills the header of this process, whose number is `me`.
pub(crate) fn describe(h: &Header, me: i32) -> Result<(), Errno> {
    inject::check(Call::Open)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(CWD, c"/proc/self/stat", flags, Mode::empty()).map(OwnFd::from)?;
    let mut text = [0u8; 1024];
    let n = rustix::io::read(&fd, &mut text[..])?;
    let (command, start_time) = name_and_start(&text[..n]).ok_or(Errno::INVAL)?;
    let namespace = rustix::fs::statat(CWD, c"/proc/self/ns/pid", AtFlags::empty())?.st_ino;
    h.layout.store(LAYOUT, Relaxed);
    h.pid.store(me as u64, Relaxed);
    h.start_time.store(start_time, Relaxed);
    h.namespace.store(namespace, Relaxed);
    let mut name = [0u8; COMMAND];
    let len = command.len().min(COMMAND);
    name[..len].copy_from_slice(&command[..len]);
    for (word, bytes) in h.command.iter().zip(name.as_chunks().0) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    h.magic.store(MAGIC, Relaxed);
    Ok(())
}

/// Of `/proc/PID/stat`: the second field, in parentheses, and the 22nd.
fn name_and_start(stat: &[u8]) -> Option<(&[u8], u64)> {
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let rest = core::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let start = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some((stat.get(open + 1..close)?, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_hide_the_start_time() {
        let stat = b"7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(name_and_start(stat), Some((&b"a) b (c)"[..], 4711)));
        assert_eq!(name_and_start(b"7 (a"), None);
    }
}
