//! Bytes of a ring go to the file that they belong to. One process does that for an entry at a
//! time: the service; or who takes the entry over from a dead one (`claims`).
//!
//! unsafe: bytes of a ring, which nobody changes before they are home.

use crate::layout::{FILL, ONCE, RING};
use crate::memory::Memory;
use core::fmt;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, open};
use rustix::io::{Errno, pread};
use uncopy_inject::{Call, Point};
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
        /// The length that it should be.
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
        // (More than is said to be home: the process that wrote that died before it said so.)
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
            inject::point(Point::HomeWritten);
            words.homed(done);
            inject::point(Point::HomeSaid);
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

/// Recovery: the file may have lost what was home and not durable, for its device was gone
/// meanwhile. If what it has of that are the ring's bytes, only as far as it has them is home.
///
/// # Errors
/// See [`NotHome`]: another's bytes are there, or the ring does not reach back so far.
pub fn reconsider<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
) -> Result<(), NotHome> {
    let entry = memory.entry(slot);
    let words = &entry.words;
    let (end, home) = (words.end().at(), words.home());
    let sure = words.durable().max(entry.base.load(Ordering::SeqCst)).min(home);
    let from = sure.max(end.saturating_sub(RING));
    let size = fstat(file).map_err(NotHome::Refused)?.st_size as u64;
    if size < from || !is_ours(memory, slot, file, from, size.min(home)) {
        return Err(NotHome::Changed { is: size, should: home });
    }
    if size < home {
        words.homed(size);
    }
    Ok(())
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

/// Makes durable what is home of `slot`. `Ok(false)`: it may be so, see
/// [`Entry::synced`](crate::Entry::synced).
///
/// # Errors
/// The kernel's. It may have dropped what it could not write, and says so once; so the program's
/// next sync says it too.
pub fn sync<F: AsFd>(memory: &Memory<F>, slot: usize, file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let entry = memory.entry(slot);
    let known = entry.failed.load(Ordering::SeqCst) != 0;
    let synced = entry.synced(|| uncopy_log_store::home::sync(file, true));
    if synced.is_err() && !known {
        entry.loses(ONCE);
    }
    synced
}

/// How a file is left.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// Some log has bytes of it: they must be durable in the file.
    pub logged: bool,
    /// Nobody else syncs it any more: whose sync is said to be under way has died over it.
    pub alone: bool,
    /// Somebody else may have written to it.
    pub open: bool,
}

/// All of `slot` is home, and nothing is appended any more: it is made durable as far as it must
/// be. `Ok(false)`: a sync failed, and what is not in the ring any more may not be on the disk.
///
/// # Errors
/// See [`NotHome`]; EAGAIN: the program syncs it just now.
pub fn finish<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    ending: Ending,
) -> Result<bool, NotHome> {
    let entry = memory.entry(slot);
    let died = ending.alone && entry.is_synced_now();
    if entry.failed.load(Ordering::SeqCst) == 0 && !died {
        if !ending.logged {
            return Ok(true);
        }
        match sync(memory, slot, file) {
            Ok(true) => return Ok(true),
            Ok(false) => return Err(NotHome::Refused(Errno::AGAIN)),
            Err(_) => {}
        }
    }
    if !ending.alone && entry.is_synced_now() {
        return Err(NotHome::Refused(Errno::AGAIN));
    }
    again(memory, slot, file, ending.open)
}

/// Writes once more what the ring has of what is not durable for sure, and syncs it: a sync failed,
/// and the kernel may have dropped it. See [`finish`].
fn again<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    open: bool,
) -> Result<bool, NotHome> {
    let entry = memory.entry(slot);
    let words = &entry.words;
    let (end, home) = (words.end().at(), words.home());
    let sure = words.durable().max(entry.base.load(Ordering::SeqCst)).min(home);
    // (Somebody may have been about to append: what lies a whole ring before is his.)
    let from = sure.max(end.saturating_sub(RING - FILL)).min(home);
    let all = from == sure || entry.logged.load(Ordering::SeqCst) <= sure;
    let size = fstat(file).map_err(NotHome::Refused)?.st_size as u64;
    if size < home || open && !is_ours(memory, slot, file, from, home) {
        return Err(NotHome::Changed { is: size, should: home });
    }
    // (With O_APPEND it would be written behind the end.)
    let flags = fcntl_getfl(file).map_err(NotHome::Refused)?;
    let appends = flags.contains(OFlags::APPEND);
    if appends {
        fcntl_setfl(file, flags - OFlags::APPEND).map_err(NotHome::Refused)?;
    }
    let (mut at, mut error) = (from, None);
    for (bytes, n) in memory.runs(slot, from, (home - from) as usize) {
        if error.is_none() {
            // SAFETY: published, and nobody writes there: see above.
            let bytes = unsafe { core::slice::from_raw_parts(bytes, n) };
            let homed = uncopy_log_store::home(file, at, bytes, false);
            at += homed.bytes as u64;
            error = homed.error;
        }
    }
    if appends {
        while fcntl_setfl(file, flags) == Err(Errno::INTR) {}
    }
    match error {
        Some(why) => return Err(NotHome::Refused(why)),
        None => uncopy_log_store::home::sync(file, true).map_err(NotHome::Refused)?,
    }
    if all {
        words.synced(home);
    }
    entry.made_good();
    Ok(all)
}
