//! The program's descriptors: opened, closed, duplicated; and what the kernel's answers lack of a
//! file of which it does not have all.

use crate::begin::borrowed;
use crate::file::{File, NEVER, State};
use crate::log::Log;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use rustix::fs::fstat;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use uncopy_log_service::PlainReason;

/// Whether `path` is one that `pattern` names: `*` stands for any text, `?` for one byte. A pattern
/// without a slash is one of a file's name.
pub(crate) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let path = if pattern.contains(&b'/') {
        path
    } else {
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    };
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < path.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == path[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                (p, t) = (at + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

impl Log {
    /// The program has opened `fd` with these flags.
    pub fn opened(&'static self, fd: RawFd, flags: i32) {
        let access = flags & libc::O_ACCMODE;
        let unusual = libc::O_DIRECT | libc::O_DSYNC | libc::O_SYNC | libc::O_PATH | libc::O_ASYNC;
        if !self.begun() || fd < 0 || !self.is_own() {
            return;
        }
        // (The file that it was before was closed past us.)
        self.table.remove(fd);
        // Standard streams are handed on to whatever is started.
        if fd <= 2 || access == libc::O_RDONLY || flags & unusual != 0 || self.is_stopped() {
            return;
        }
        let (Some(session), Ok(stat)) = (self.known_session(), fstat(borrowed(fd))) else { return };
        let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if !regular || stat.st_dev != session.device || !self.names(fd) {
            return;
        }
        let appends = flags & libc::O_APPEND != 0;
        let identity = (stat.st_dev, stat.st_ino);
        self.table.put(fd, Arc::new(File::new(State::Plain, identity, appends, 1)));
    }

    fn names(&self, fd: RawFd) -> bool {
        let Some(settings) = self.settings() else { return false };
        if settings.patterns.is_empty() {
            return true;
        }
        let link = format!("/proc/self/fd/{}", borrowed(fd).as_raw_fd());
        let path = rustix::fs::readlink(link, Vec::new());
        path.is_ok_and(|path| {
            settings.patterns.iter().any(|p| matches(p.as_bytes(), path.as_bytes()))
        })
    }

    /// The program closes `fd`: if it is the last number, what is held comes home.
    pub fn closes(&'static self, fd: RawFd) {
        let Some(file) = self.file(fd) else { return };
        if !self.is_own() {
            return;
        }
        let last = file.fds.load(SeqCst) == 1;
        self.closes_promised(&file);
        if last && file.state() == State::Held {
            // (Where bytes do not come home the service goes on trying.)
            let _ = self.leave(&file, fd, PlainReason::Ends);
        }
        if self.table.remove(fd).is_some() {
            file.fds.fetch_sub(1, SeqCst);
        }
        if last {
            self.forgets_promised(&file);
        }
    }

    /// Those of `first` to `last` are closed.
    pub fn close_between(&'static self, first: u32, last: u32) {
        if self.in_use() {
            for (fd, _) in self.table.all(first, last) {
                self.closes(fd);
            }
        }
    }

    /// `old` has one more number.
    pub fn duplicated(&'static self, old: RawFd, new: RawFd) {
        if !self.in_use() || new < 0 || new == old || !self.is_own() {
            return;
        }
        self.table.remove(new);
        if let Some(file) = self.file(old) {
            if new <= 2 {
                return self.never(&file, old, PlainReason::Shared);
            }
            file.fds.fetch_add(1, SeqCst);
            self.table.put(new, file);
        }
    }

    /// The program wants the number `new` for something else: what it was is closed.
    pub fn replaced(&'static self, new: RawFd) {
        if self.in_use() {
            self.closes(new);
        }
    }

    /// The program has set flags of `fd`.
    pub fn flags_set(&'static self, fd: RawFd, flags: i32) {
        let Some(file) = self.file(fd) else { return };
        file.appends.store(flags & libc::O_APPEND != 0, Relaxed);
        if flags & (libc::O_DIRECT | libc::O_ASYNC) != 0 {
            self.never(&file, fd, PlainReason::Mode);
        }
    }

    /// Flags as the kernel says them, without O_DIRECT, which is set while bytes are brought home,
    /// and O_ASYNC, which a lease sets.
    pub fn flags_told(&'static self, fd: RawFd, flags: i32) -> i32 {
        let held = |file: Arc<File>| matches!(file.state(), State::Held | State::Inherited);
        let held = self.file(fd).is_some_and(held);
        if held && flags >= 0 { flags & !(libc::O_DIRECT | libc::O_ASYNC) } else { flags }
    }

    /// The length of `fd`, if the kernel does not have all of it.
    pub fn length(&'static self, fd: RawFd) -> Option<u64> {
        let file = self.file(fd)?;
        if file.state() == State::Inherited {
            // (The caller has asked the kernel before.)
            drop(self.made_plain(&file, fd, PlainReason::Shared));
            return fstat(borrowed(fd)).ok().map(|stat| stat.st_size as u64);
        }
        let session = self.known_session()?;
        let kernels = || fstat(borrowed(fd)).ok().map(|stat| stat.st_size as u64);
        if file.state() != State::Held {
            // (It may have become plain since the kernel was asked.)
            return if file.slot.load(SeqCst) == NEVER { None } else { kernels() };
        }
        let length = file.alone(|| {
            if file.state() != State::Held {
                return None;
            }
            match session.entry(&file)?.words.end() {
                uncopy_log_share::End::Open(end) => Some(end),
                uncopy_log_share::End::Closed(_) => None,
            }
        });
        if length.is_none() {
            // Its bytes are on their way, and somebody else may append behind them.
            drop(self.made_plain(&file, fd, PlainReason::OpenedLater));
            return kernels();
        }
        length
    }

    /// Moves the position of a held file. `None`: the kernel does that.
    pub fn seek(&'static self, fd: RawFd, offset: i64, whence: i32) -> Option<i64> {
        let file = self.file(fd)?;
        if file.state() == State::Inherited {
            drop(self.made_plain(&file, fd, PlainReason::Shared));
            return None;
        }
        let session = self.known_session()?;
        if !matches!(whence, libc::SEEK_SET | libc::SEEK_CUR | libc::SEEK_END) {
            drop(self.made_plain(&file, fd, PlainReason::NotAppended));
            return None;
        }
        let moved = file.alone(|| {
            if file.state() != State::Held {
                return None;
            }
            let entry = session.entry(&file)?;
            // (The thread that makes it plain sets the kernel's position: not while this does.)
            let position = entry.position.load(SeqCst);
            let uncopy_log_share::End::Open(end) = entry.words.end() else { return None };
            let from = match whence {
                libc::SEEK_SET => 0,
                libc::SEEK_CUR => position,
                _ => end,
            };
            let to = i64::try_from(from).ok().and_then(|from| from.checked_add(offset));
            let Some(to) = to.filter(|to| *to >= 0) else {
                // SAFETY: errno's address is always valid.
                unsafe { *libc::__errno_location() = libc::EINVAL };
                return Some(-1);
            };
            entry.moves(position, to as u64).then_some(to)
        });
        if moved.is_none() {
            // (So it is made after the kernel's position was set.)
            drop(self.made_plain(&file, fd, PlainReason::NotAppended));
        }
        moved
    }

    /// Some file of the program's has another name.
    pub fn renamed(&'static self) {
        if self.in_use()
            && let Some(session) = self.known_session()
            && self.table.all(0, u32::MAX).iter().any(|(_, file)| file.state() == State::Held)
        {
            session.ask(|client| client.tell(uncopy_log_service::protocol::Message::Renamed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files_by_their_names_or_their_paths() {
        for (pattern, path, wanted) in [
            ("*.aof", "/srv/appendonly.aof", true),
            ("*.aof", "/srv/x.aof/data", false),
            ("/srv/*", "/srv/a/b", true),
            ("*.log", "/var/a.logs", false),
            ("a?c*", "/abcd", true),
            ("*", "/any", true),
            ("", "/any", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), path.as_bytes()), wanted, "{pattern} {path}");
        }
    }
}
