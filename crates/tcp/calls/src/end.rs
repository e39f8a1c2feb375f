//! Numbers are closed and duplicated.
//!
//! unsafe: descriptors by their numbers.

use crate::connection::Connection;
use crate::data::answer;
use crate::entry::Entry;
use crate::tcp::Tcp;
use core::ffi::c_int;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// libc's own streams read and write there, and so do the commands that it executes (`system`):
/// past us.
pub(crate) fn is_standard(fd: RawFd) -> bool {
    (0..=2).contains(&fd)
}

/// As the kernel says it where a number is not to be had just now.
fn busy() -> c_int {
    answer(Err(Errno::BUSY)) as c_int
}

/// A number that is being closed, between "before" and "after".
#[derive(Debug)]
#[must_use]
pub struct Closing(Option<Arc<Connection>>);

impl Tcp {
    /// Before `fd` is closed.
    pub fn closes(&self, fd: RawFd) -> Closing {
        if !self.is_own() {
            return Closing(None);
        }
        self.early.closes(fd..=fd);
        match self.table.remove(fd) {
            Some(Entry::Connection(connection)) if connection.one_less() => {
                connection.says_that_it_closes();
                connection.flow.closes(fd);
                Closing(Some(connection))
            }
            Some(Entry::Connection(connection)) => {
                connection.flow.loses(fd);
                Closing(None)
            }
            _ => Closing(None),
        }
    }

    /// After it was.
    pub fn closed(&self, closing: Closing) {
        if let Some(connection) = closing.0 {
            connection.close_own();
            connection.flow.closed();
        }
    }

    /// The program closed it past us.
    pub(crate) fn was_closed(&self, what: Option<Entry>) {
        if let Some(Entry::Connection(connection)) = what
            && connection.one_less()
        {
            connection.flow.was_closed();
        }
    }

    /// Closes `fd`, by `close`, if it is something of ours.
    pub fn close(&self, fd: RawFd, close: impl FnOnce() -> c_int) -> c_int {
        let closing = self.closes(fd);
        let result = close();
        self.closed(closing);
        result
    }

    /// The numbers from `first` to `last` are about to be closed all at once: those that are ours
    /// are closed by `close`.
    pub fn close_between(&self, first: u32, last: u32, close: impl Fn(RawFd)) {
        if !self.in_use() || !self.is_own() {
            return;
        }
        let most = RawFd::MAX.cast_unsigned();
        self.early.closes(first.min(most).cast_signed()..=last.min(most).cast_signed());
        for (fd, _) in self.table.all(first, last) {
            let closing = self.closes(fd);
            close(fd);
            self.closed(closing);
        }
    }

    /// `old` is duplicated by `duplicate`, which returns the new number, or -1; `new`, where it is
    /// known before, is closed by it.
    pub fn duplicate(
        &self,
        old: RawFd,
        new: Option<RawFd>,
        duplicate: impl FnOnce() -> c_int,
    ) -> c_int {
        if !self.in_use() || new == Some(old) {
            return duplicate();
        }
        if !self.is_own() {
            // After vfork: what is duplicated there is for another program, whatever the old
            // number's flags are.
            let another = || self.connection(old).is_some_and(|of| !self.is_number_of(old, &of));
            return if another() || self.is_left_to_another(old) { duplicate() } else { busy() };
        }
        if new.is_some_and(is_standard) && !self.is_used_past(old) {
            return busy();
        }
        let what = self.find(old).map(|found| (*found).clone());
        // With a number of its own before there are two. (Where there is none for it, `duplicate`
        // may yet find one: that of `new`, or of what another thread closes.)
        let what = match what {
            Some(Entry::Connection(connection)) if connection.one_more().is_err() => {
                if !self.is_used_past(old) {
                    return busy();
                }
                None
            }
            Some(Entry::Set(set)) => match set.one_more() {
                Err(error) => return answer(Err(error)) as c_int,
                Ok(()) => Some(Entry::Set(set)),
            },
            other => other,
        };
        // SAFETY: asks only. (A negative one is open nowhere.)
        let is_open =
            || old >= 0 && rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(old) }).is_ok();
        let closing = match new {
            Some(new) if (self.find(new).is_some() || self.early.is_any()) && is_open() => {
                Some(self.closes(new))
            }
            _ => None,
        };
        let result = duplicate();
        if let Some(closing) = closing {
            self.closed(closing);
        }
        match what {
            Some(what) if result >= 0 => {
                let older = self.table.put(result, what);
                self.was_closed(older);
                if is_standard(result) {
                    self.is_used_past(result);
                }
            }
            Some(Entry::Connection(connection)) => {
                connection.one_less();
            }
            _ => {}
        }
        result
    }
}
