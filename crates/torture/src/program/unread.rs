//! Peers that read late: after some outputs the same bytes are sent again and again to a socket
//! whose other end is read when the thread is done with its lines (a child forgets its parent's),
//! long after the buffer was written to, freed and used again.
//!
//! unsafe: sends from a buffer that is the operation's.

use super::calls;
use super::channels::Channel;
use super::log::Note;
use core::cell::RefCell;
use libc::iovec;
use uncopy_torture::op::{OutputBy, Via};

/// Sends of the same bytes.
const TIMES: usize = 4;
/// Peers that a thread keeps waiting at most.
const MOST: usize = 6;

thread_local! {
    static PEERS: RefCell<Vec<(u64, usize, Channel)>> = const { RefCell::new(Vec::new()) };
}

/// Sends the bytes at `at` some times; what arrived is told by [`read`].
///
/// # Safety
/// They are the operation's buffer's.
pub unsafe fn send(at: usize, len: usize, key: u64) {
    let channel = Channel::new(Via::Unix, false);
    let len = len.min(channel.room / (2 * TIMES));
    let by = [OutputBy::Write, OutputBy::Writev, OutputBy::Send, OutputBy::Sendmsg];
    let by = by[(key >> 8) as usize % by.len()];
    let mut sent = 0;
    for _ in 0..TIMES {
        let list = [iovec { iov_base: at as *mut _, iov_len: len }];
        // SAFETY: the caller's promise.
        sent += unsafe { calls::output(by, channel.raw(), &list, 0) }.max(0) as usize;
    }
    PEERS.with_borrow_mut(|peers| {
        if peers.len() < MOST {
            peers.push((key, sent, channel));
        } else {
            tell(key, sent, channel);
        }
    });
}

/// The peers of this thread read now.
pub fn read() {
    for (key, sent, channel) in PEERS.take() {
        tell(key, sent, channel);
    }
}

/// They are the parent's.
pub fn forget() {
    PEERS.take();
}

fn tell(key: u64, sent: usize, channel: Channel) {
    let mut note = Note::new(format_args!("unread{key:x}"));
    note.add(sent);
    let (n, digest) = channel.drained(None);
    note.add(n);
    note.digest(digest);
    note.write();
}
