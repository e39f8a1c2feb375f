//! Files that are kept go over rings from where they are kept, as the program's own memory would:
//! what is sent again and again settles in the arena that receivers map, and nothing is copied for
//! it any more.
//!
//! Whether a file is kept, and that it cannot change while it is, is [`uncopy_kept::files`]'s
//! business. What was sent never changes, whatever becomes of the file.

use crate::buffers::Buffers;
use crate::calls::OutputCall;
use crate::linux::file::{self, READ_MIN};
use crate::output::output;
use crate::ring;
use crate::stack::Host;
use core::ffi::c_int;
use rustix::fd::BorrowedFd;
use uncopy_counters::add;
use uncopy_kept::files::Kept;
use uncopy_tcp_calls::data::Ring;

/// A call's part of a larger file, in bytes: its pieces fit one plan.
const PART: usize = 4 << 20;

/// A kept file that a call sends: what it held when the call began, whatever its number is later.
#[derive(Debug)]
pub struct KeptFile {
    kept: Kept,
    /// The connection that it is sent to.
    to: c_int,
    /// The file.
    from: c_int,
}

/// The outcome of sending a part of one.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// As of `sendfile(2)`.
    pub answer: isize,
    /// The program's call ends here: the file does, or there is no room, or an error.
    pub is_over: bool,
}

impl KeptFile {
    /// The file `from`, of which up to `bytes` are to be sent to `to`. `None`: it is not kept, or
    /// `to` does not carry it.
    pub fn new((to, from): (c_int, c_int), bytes: usize, host: &Host) -> Option<Self> {
        if from < 0 || !file::perhaps(host.process, bytes) {
            return None;
        }
        if bytes < least(&host.process.tcp.ring(to)?) {
            return None;
        }
        // SAFETY: used for calls that answer EBADF if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(from) };
        let kept = host.process.files.ask(fd, from, bytes)?;
        Some(Self { kept, to, from })
    }

    /// Sends the first of `bytes` from `at` on by the ring. `None`: nothing has happened, and they
    /// are to be sent otherwise.
    pub fn send(&self, at: u64, bytes: usize, host: &Host) -> Option<Sent> {
        let &Self { ref kept, to, from } = self;
        let ring = host.process.tcp.ring(to)?;
        let left = usize::try_from(kept.size().checked_sub(at)?).ok()?;
        let least = least(&ring);
        if bytes < least {
            return None;
        }
        if left == 0 {
            return Some(Sent { answer: 0, is_over: true });
        }
        let most = bytes.min(left);
        // (What is left of it is large, too.)
        let want = if most < 2 * PART { most } else { PART };
        // SAFETY: used for calls that answer EBADF if it is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(from) };
        if want < least || !ring.takes_file() || !file::fill(kept, fd, at, want, host) {
            return None;
        }
        ring.sends_file();
        let buf = kept.address(at);
        let call = OutputCall::Send { buf: buf as *const _, n: want, flags: 0 };
        // (It is no memory of a call site's.)
        let mut send = ring::Send::new(ring, to, &call, 0);
        let answer = output(&mut send, &Buffers::one(buf, want), host);
        send.was_of_file();
        if answer > 0 {
            let counters = host.process.space.counters();
            add(&counters.kept_sends, 1);
            add(&counters.kept_sent_bytes, answer as u64);
        }
        Some(Sent { answer, is_over: answer < want as isize || want == left })
    }
}

/// From how many bytes on a part may go so.
fn least(ring: &Ring<'_>) -> usize {
    ring.files_from().max(READ_MIN)
}
