//! Pages that the kernel has by reference: in a pipe (`vmsplice`) or at the sender of a connection
//! (MSG_ZEROCOPY) that nobody reads for a while. The bytes that are read in the end must be those
//! that were there when they were given. Until then the program does not write to these bytes
//! ([`Given::take`] comes before), because plainly that may be seen at the other end; but it
//! copies, moves and unmaps them.
//!
//! unsafe: sends from a buffer that is the operation's.

use super::log::Note;
use super::{calls, channels};
use core::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use uncopy_torture::bytes::digest;
use uncopy_torture::op::{GiveBy, OutputBy};
use uncopy_torture::pieces::pieces;

/// The bytes that are given at a time.
const PIPE_ROOM: usize = 256 << 10;
/// The runs that are given of one buffer at a time, at most.
const MOST: usize = 2;

/// The runs that were given of one buffer.
#[derive(Debug, Default)]
pub struct Given(Vec<Run>);

/// A run that was given at once.
#[derive(Debug)]
struct Run {
    /// Where in the buffer; nowhere if that memory is the buffer's no more.
    range: Range<usize>,
    key: u64,
    sent: usize,
    digest: u64,
    reader: OwnedFd,
    /// Open, so that all of it arrives.
    _writer: OwnedFd,
}

impl Given {
    /// Gives bytes `range` of the buffer at `buffer`.
    ///
    /// # Safety
    /// The range lies in the buffer, and nobody else uses these bytes meanwhile.
    pub unsafe fn give(
        &mut self,
        buffer: *mut u8,
        range: Range<usize>,
        by: GiveBy,
        count: usize,
        key: u64,
        note: &mut Note,
    ) {
        let (reader, writer, room) = match by {
            // How many bytes fit depends on where in a page they lie.
            GiveBy::Vmsplice => {
                let (reader, writer, room) = channels::small_pipe(PIPE_ROOM);
                (reader, writer, if room > 16 * 4096 { room / 2 } else { 0 })
            }
            GiveBy::ZeroCopy => channels::narrow_tcp(),
        };
        let range = range.start..range.start + range.len().min(room.min(PIPE_ROOM));
        if range.is_empty() {
            return note.add("nothing");
        }
        let start = buffer.wrapping_add(range.start);
        let list = calls::list(start, &pieces(range.len(), count.min(8), key));
        let mut content = Vec::with_capacity(range.len());
        // SAFETY: the pieces lie in the range, and the caller's promise.
        let sent = unsafe {
            match by {
                GiveBy::Vmsplice => calls::output(OutputBy::Vmsplice, writer.as_raw_fd(), &list, 0),
                GiveBy::ZeroCopy => calls::send_zerocopy(writer.as_raw_fd(), &list),
            }
        };
        for v in &list {
            // SAFETY: as above.
            content.extend_from_slice(unsafe {
                core::slice::from_raw_parts(v.iov_base.cast::<u8>(), v.iov_len)
            });
        }
        let sent = note.result(sent).max(0) as usize;
        if sent > 0 {
            let digest = digest(&content[..sent]);
            self.0.push(Run { range, key, sent, digest, reader, _writer: writer });
        }
        if self.0.len() > MOST {
            tell(self.0.remove(0));
        }
    }

    /// Reads and compares the bytes of `range` that the kernel has; all that it has, if that is all
    /// there could be.
    pub fn take(&mut self, range: Range<usize>) {
        let all = range == (0..usize::MAX);
        let hit = |g: &mut Run| all || g.range.start < range.end && range.start < g.range.end;
        self.0.extract_if(.., hit).for_each(tell);
    }

    /// The buffer's memory is nobody's now but the kernel's.
    pub fn outlive(&mut self) {
        self.0.iter_mut().for_each(|g| g.range = 0..0);
    }
}

fn tell(g: Run) {
    let mut note = Note::new(format_args!("given{:x}", g.key));
    let (n, digest) = channels::take(g.reader.as_raw_fd(), g.sent);
    note.add(n);
    note.digest(digest);
    note.add(if digest == g.digest { "right" } else { "wrong" });
    note.write();
}
