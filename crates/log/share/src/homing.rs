//! Bytes of a ring go to the file that they belong to. One process does that for an entry at a
//! time: the service; or who takes the entry over from a dead one (`claims`).
//!
//! unsafe: bytes of a ring, which nobody changes before they are home.

use crate::memory::Memory;
use core::fmt;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::{Errno, pread};
use uncopy_inject::Call;
use uncopy_kernel::inject;
use uncopy_log_store::home;
use uncopy_log_store::home::BLOCK;

/// Bytes that are compared at a time.
const PIECE: usize = 64 << 10;

/// How much is brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Whole blocks of the file: what is left of the last one is still appended to.
    Blocks,
    /// All that was appended.
    All,
}

/// Why bytes are not home. They are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHome {
    /// The kernel does not take them.
    Refused(Errno),
    /// The file has another length than it was left with: somebody has changed it who did not know
    /// of us, and our bytes do not belong there any more.
    Changed {
        /// Its length.
        is: u64,
        /// What it should be.
        should: u64,
    },
}

impl fmt::Display for NotHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "{}", std::io::Error::from(*why)),
            Self::Changed { is, should } => {
                write!(f, "somebody else changed the file: it has {is} bytes instead of {should}")
            }
        }
    }
}

/// Brings what was appended to the file of `slot` home, by its description `file`. `direct`: whole
/// blocks go past the page cache. Returns how far the file has its bytes now.
///
/// # Errors
/// See [`NotHome`]; what is home until then is said in the words.
pub fn bring<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    which: Which,
    direct: bool,
) -> Result<u64, NotHome> {
    let entry = memory.entry(slot);
    let words = &entry.words;
    loop {
        let (end, at) = (words.end().at(), words.home());
        let to = if which == Which::Blocks { end / BLOCK * BLOCK } else { end };
        if to <= at {
            return Ok(at);
        }
        let stat = inject::check(Call::Fstat).and_then(|()| fstat(file));
        let size = stat.map_err(NotHome::Refused)?.st_size as u64;
        // (More than is said to be home: whoever wrote that died before it said so.)
        let written = size > at && size <= end && is_ours(memory, slot, file, at, size);
        let at = if written { size } else { at };
        if size != at {
            return Err(NotHome::Changed { is: size, should: at });
        }
        words.homed(at);
        let mut done = at;
        for (from, bytes) in memory.runs(slot, at, to.saturating_sub(at) as usize) {
            // SAFETY: published, and written by nobody before it is said to be home.
            let bytes = unsafe { core::slice::from_raw_parts(from, bytes) };
            let homed = home(file, done, bytes, direct);
            done += homed.bytes as u64;
            words.homed(done);
            if let Some(why) = homed.error {
                entry.error.store(why.raw_os_error() as u32, Ordering::Release);
                entry.turned();
                return Err(NotHome::Refused(why));
            }
        }
        entry.error.store(0, Ordering::Release);
        entry.turned();
    }
}

/// Whether the bytes `from..to` of `file` are those that its ring has: if not, somebody else wrote
/// them. (As many as are held tell nothing.)
fn is_ours<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    from: u64,
    to: u64,
) -> bool {
    match same(memory, slot, file, from, to) {
        Err(Errno::BADF) => {}
        compared => return compared == Ok(true),
    }
    // The program may have opened it for writing only.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match open(path, flags, Mode::empty()) {
        Ok(file) => same(memory, slot, file.as_fd(), from, to) == Ok(true),
        // The lease is still there, so nobody else has had it open.
        Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}

fn same<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    from: u64,
    to: u64,
) -> Result<bool, Errno> {
    let (mut is, mut wanted) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = from;
    while at < to {
        let most = PIECE.min((to - at) as usize);
        let n = match pread(file, &mut is[..most], at) {
            Err(Errno::INTR) => continue,
            n => n?,
        };
        memory.copy_out(slot, at, &mut wanted[..n]);
        if n == 0 || is[..n] != wanted[..n] {
            return Ok(false);
        }
        at += n as u64;
    }
    Ok(true)
}

/// Makes durable what is home of `slot`.
///
/// # Errors
/// The kernel's. It may have dropped what it could not write, and says so once: what the log has is
/// not given up.
pub fn sync<F: AsFd>(memory: &Memory<F>, slot: usize, file: BorrowedFd<'_>) -> Result<(), Errno> {
    let words = &memory.entry(slot).words;
    let home = words.home();
    uncopy_log_store::home::sync(file)?;
    words.synced(home);
    Ok(())
}
