//! Whether an acknowledgement waits for data to go along with (RFC 1122, 4.2.3.2). It does where
//! the application has answered what came, soon, a number of times on end: then its answer is
//! likely to come now as well, and the acknowledgement costs nothing. One that has waited in vain
//! goes out by itself, and it takes as many answers again until another one waits: so a peer that
//! waits for its acknowledgement before it sends the rest (RFC 896) waits once in a while, not each
//! time.
//!
//! Of two segments not acknowledged the second is acknowledged at once.

use super::{Flow, flag};
use crate::time::{MILLISECOND, Nanos, Now, elapsed};

/// Answers on end after which one is expected: as many as Linux acknowledges at once at a
/// connection's beginning (`TCP_MAX_QUICKACKS`).
const ENOUGH: u8 = 16;
/// [`Flow::acks`] counts answers by twos; it is odd while something came that was not answered.
const EXPECTED: u8 = 2 * ENOUGH;
const WAITING: u8 = EXPECTED + 1;

impl Flow {
    /// Data came in order. May its acknowledgement wait?
    #[inline]
    pub(super) fn may_wait(&mut self) -> bool {
        let waits = self.acks == EXPECTED && !self.has(flag::ACK_DUE | flag::ECHO);
        self.acks |= 1;
        waits
    }

    /// An acknowledgement waits.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.acks == WAITING && !self.has(flag::ACK_DUE)
    }

    /// A segment goes out, and every one acknowledges.
    #[inline]
    pub(super) fn goes_along(&mut self) {
        if self.acks == WAITING {
            self.acks = EXPECTED;
        }
    }

    /// Data went out. Is it an answer to what came, and was that soon enough?
    #[inline]
    pub(crate) fn answered(&mut self, now: Now, soon: Nanos) {
        if self.acks & 1 == 1 {
            let after = u64::from(elapsed(now.stamp, self.heard)) * MILLISECOND;
            self.acks = if after < soon { self.acks + 1 } else { 0 };
        }
    }

    /// The connection is over.
    pub(crate) fn acknowledges_nothing(&mut self) {
        self.acks = 0;
    }

    /// The acknowledgement has waited for long enough. False: none waits any more.
    pub(crate) fn waits_in_vain(&mut self) -> bool {
        let waited = self.is_waiting();
        if waited {
            self.acks = 0;
            self.set(flag::ACK_DUE);
        }
        waited
    }
}
