//! The error of one end that the program has still to be told.

use rustix::io::Errno;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The error of one end that the program has still to be told, shared by all processes that hold
/// the end.
#[repr(transparent)]
#[derive(Debug)]
pub struct KeptError(AtomicI32);

/// The bits of the error's number.
const NUMBER: i32 = 0xffff;
/// The other side's death was looked at: it makes at most one error.
const DEATH_SEEN: i32 = 1 << 16;

impl KeptError {
    /// Keeps an error, unless one is kept already: the first one is told, as Linux does.
    pub fn keep(&self, error: Errno) {
        let number = error.raw_os_error();
        let set = |word: i32| (word & NUMBER == 0).then_some(word | number);
        let _ = self.0.fetch_update(AcqRel, Acquire, set);
    }

    /// The kept error, once.
    #[inline]
    pub fn take(&self) -> Option<Errno> {
        if self.0.load(Relaxed) & NUMBER == 0 {
            return None;
        }
        let number = self.0.fetch_and(!NUMBER, AcqRel) & NUMBER;
        (number != 0).then(|| Errno::from_raw_os_error(number))
    }

    /// An error is kept.
    pub fn is_some(&self) -> bool {
        self.0.load(Acquire) & NUMBER != 0
    }

    /// True for the first caller.
    pub(crate) fn sees_death(&self) -> bool {
        self.0.fetch_or(DEATH_SEEN, AcqRel) & DEATH_SEEN == 0
    }

    /// Somebody was.
    pub(crate) fn has_seen_death(&self) -> bool {
        self.0.load(Acquire) & DEATH_SEEN != 0
    }

    /// Linux has told the program this error: bytes that were unread in a ring too make no second
    /// one.
    #[inline]
    pub fn told(&self, error: Errno) {
        if is_told_once(error) {
            self.sees_death();
        }
    }
}

/// Linux tells this error once. (The others say something of the call, or are told again as long as
/// they are true.)
pub(crate) fn is_told_once(error: Errno) -> bool {
    use Errno as E;
    !matches!(
        error,
        E::AGAIN
            | E::INTR
            | E::PIPE
            | E::BADF
            | E::FAULT
            | E::INVAL
            | E::MSGSIZE
            | E::NOMEM
            | E::NOBUFS
            | E::NOTCONN
            | E::OPNOTSUPP
            | E::NOSYS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_told_once() {
        let kept = KeptError(AtomicI32::new(0));
        assert_eq!((kept.take(), kept.is_some()), (None, false));
        kept.keep(Errno::CONNRESET);
        kept.keep(Errno::TIMEDOUT);
        assert!(kept.is_some());
        assert_eq!((kept.take(), kept.take()), (Some(Errno::CONNRESET), None));
    }

    #[test]
    fn a_death_makes_no_error_after_linux_has_told_one() {
        let kept = KeptError(AtomicI32::new(0));
        kept.told(Errno::AGAIN);
        assert!(kept.sees_death());
        let kept = KeptError(AtomicI32::new(0));
        kept.told(Errno::CONNRESET);
        assert!(!kept.sees_death());
    }

    #[test]
    fn a_death_makes_one_error_also_after_that_was_told() {
        let kept = KeptError(AtomicI32::new(0));
        assert!(kept.sees_death() && !kept.sees_death());
        kept.keep(Errno::CONNRESET);
        assert_eq!(kept.take(), Some(Errno::CONNRESET));
        assert!(!kept.sees_death());
    }
}
