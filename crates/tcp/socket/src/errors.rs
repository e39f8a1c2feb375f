//! One-time errors (Linux' `sk_err`). Linux tells each to one call and then forgets it. A call that
//! hears one and does not report it, because it has sent or received a part, or because it asked
//! for another reason, keeps it here for the next call of the program's.

use crate::attached::Attached;
use crate::flow::Flow;
use crate::kept_error::{KeptError, is_told_once};
use crate::kernel;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use uncopy_counters::add;
use uncopy_tcp_service::diag::Diag;
use uncopy_tcp_service::ends::name;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::FINISHED;

impl Attached {
    /// The end's kept error.
    #[inline]
    pub fn error(&self) -> &KeptError {
        self.mapped.ends.error(self.slot)
    }

    /// An answer of Linux' that the program is told.
    pub fn tells<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        answer.inspect_err(|&error| self.error().told(error))
    }

    /// The other side has not taken all that this side put into its ring.
    fn has_sent_unread(&self) -> bool {
        let out = self.out();
        // (Before the tail, which is not behind it then.)
        let head = out.consumed.head.load(Acquire);
        !matches!(out.switch.phase.at(), Ok(At::Linux | At::Returned)) && self.tail() != head
    }
}

impl Flow {
    /// A call has sent or received a part before it met this error: the next call is told of it.
    #[cold]
    pub fn keeps(&self, error: Errno) {
        if is_told_once(error)
            && let Some(attached) = self.attached()
        {
            attached.error().keep(error);
            attached.error().told(error);
        }
    }

    /// SO_ERROR: Linux has told the program this error.
    pub fn error_told(&self, error: Errno) {
        if let Some(attached) = self.attached() {
            attached.error().told(error);
        }
    }

    /// SO_ERROR, where Linux has none: the kept error, once.
    pub fn take_error(&self) -> Option<Errno> {
        let attached = self.attached()?;
        self.sees_end(attached);
        attached.error().take()
    }

    /// Linux has news of the connection. True: the peer was killed with bytes unread in its ring,
    /// and what Linux says of it is another thing from now on.
    #[cold]
    pub(crate) fn sees_death(&self) -> bool {
        let Some(attached) = self.attached() else { return false };
        let before = self.has_error();
        self.sees_end(attached);
        !before && self.has_error()
    }

    /// The program asks Linux of the connection, which does not know of every death.
    pub fn looks_for_death(&self) {
        if let Some(attached) = self.attached() {
            self.sees_end(attached);
        }
    }

    /// An error is kept: poll says POLLERR.
    pub fn has_error(&self) -> bool {
        self.attached().is_some_and(|attached| attached.error().is_some())
    }

    /// Linux says that the stream has ended. A peer that was killed with bytes unread in its ring
    /// makes a reset, as it would with these bytes in Linux' queue: ECONNRESET is kept, once. (A
    /// peer that ends the stream has taken what it takes, and sets FINISHED, before Linux says so:
    /// hence the second look. The first one spares the others.)
    pub(crate) fn sees_end(&self, attached: &Attached) {
        if self.would_be_reset(attached)
            && kernel::has_peer_ended(self.fd())
            && self.would_be_reset(attached)
        {
            self.dies(attached);
        }
    }

    /// The service says that the peer's program has ended, or a process of it. Where the peer
    /// waited for room of Linux', Linux cannot tell of its end before this side makes room: but
    /// that nobody has its socket any more. False: somebody has, perhaps because the program is
    /// still ending, or Linux cannot be asked now. `diag`: what it is asked by, once it is open.
    #[cold]
    pub(crate) fn peer_may_be_gone(&self, attached: &Attached, diag: &mut Option<Diag>) -> bool {
        self.sees_end(attached);
        if !self.would_be_reset(attached) || attached.error().is_some() {
            return true;
        }
        let Some(diag) = diag.take().or_else(|| Diag::begin().ok()).map(|new| diag.insert(new))
        else {
            return false;
        };
        let Ok(name) = name(self.fd()) else { return true };
        let orphaned = diag.end(name.other().addresses()).is_ok_and(|found| found.inode() == 0);
        if orphaned {
            self.dies(attached);
        }
        orphaned
    }

    /// A peer that ends here without a word has left bytes unread in its ring.
    fn would_be_reset(&self, attached: &Attached) -> bool {
        let finished = attached.inward().produced.flags.load(Acquire) & FINISHED != 0;
        !finished && attached.has_sent_unread()
    }

    /// The peer was killed with bytes unread in its ring: a reset, of which Linux does not know.
    pub(crate) fn was_reset_by_death(&self, attached: &Attached) -> bool {
        self.sees_end(attached);
        self.would_be_reset(attached) && attached.error().has_seen_death()
    }

    /// The program has shut down both ways with bytes unread at the peer: when that sends, Linux
    /// resets the connection. A call that is told of that is to say so ([`KeptError::told`]), or
    /// the reset would be taken for a death later.
    pub(crate) fn may_be_reset_by_linux(&self, attached: &Attached) -> bool {
        attached.is_shut()
            && attached.out().produced.flags.load(Relaxed) & FINISHED != 0
            && attached.has_sent_unread()
    }

    fn dies(&self, attached: &Attached) {
        if attached.error().sees_death() {
            add(&self.context.settings.counters.tcp_died_unread, 1);
            attached.error().keep(Errno::CONNRESET);
            // Calls after the one that is told of the reset find what they find after one: EPIPE,
            // the end. (Linux knows of an orderly end only.)
            let _ = shutdown(self.fd(), Shutdown::Both);
            // Bytes that were unread in Linux' queue too made Linux keep the same reset: it is told
            // once.
            let _ = sockopt::socket_error(self.fd());
            // A call that sends next asks Linux, too.
            self.ask.store(true, Relaxed);
        }
    }
}
