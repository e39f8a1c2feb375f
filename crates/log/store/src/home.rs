//! How held bytes get into their file: whole blocks past the page cache, what is left of a block
//! through it.
//!
//! The kernel grants the lease that makes a file ours only while nobody else has it open, and so
//! there is no second description that could have O_DIRECT: the flag is set on the program's own
//! for as long as blocks are written. The thread that does so has the entry's lock, so that no call
//! of the program's meets the flag.
//!
//! unsafe: a call with numbers.

use crate::file::written;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, pwrite};
use uncopy_inject::{Call, Point};
use uncopy_kernel::inject;

/// Blocks in bytes: memory, file offset and length of what goes past the page cache are multiples.
pub const BLOCK: u64 = 4096;
/// Pieces in which bytes go past the page cache. (64 KB pieces cost more than the page cache does:
/// 430 us of processor time a MB on ext4, against 117 in pieces of 1 to 2 MB.)
const PIECE: usize = 1 << 20;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homed {
    /// The bytes that are in the file now, from the first on.
    pub bytes: usize,
    /// Why not all of them.
    pub error: Option<Errno>,
}

/// Writes `bytes` to `file` from `at` on, which is where the file ends. `direct`: whole blocks go
/// past the page cache; `bytes` lies in memory at an address that is `at` modulo 4,096.
///
/// Nothing is durable before the file is synced.
pub fn home(file: BorrowedFd<'_>, at: u64, bytes: &[u8], direct: bool) -> Homed {
    let skew = (at % BLOCK) as usize;
    let fringe = if skew == 0 { 0 } else { (BLOCK as usize - skew).min(bytes.len()) };
    let blocks = (bytes.len() - fringe) / BLOCK as usize * BLOCK as usize;
    if !direct || blocks == 0 || bytes.as_ptr() as usize % BLOCK as usize != skew {
        return by_cache(file, at, bytes);
    }
    let first = by_cache(file, at, &bytes[..fringe]);
    if first.error.is_some() {
        return first;
    }
    let core = &bytes[fringe..fringe + blocks];
    let core = past_cache(file, at + fringe as u64, core);
    let done = fringe + core.bytes;
    if core.bytes < blocks && !core.error.is_some_and(is_refusal) {
        return Homed { bytes: done, error: core.error };
    }
    let rest = by_cache(file, at + done as u64, &bytes[done..]);
    Homed { bytes: done + rest.bytes, error: rest.error }
}

/// The file system, or this file, does not do so; it may do otherwise.
fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::OPNOTSUPP)
}

fn by_cache(file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> Homed {
    let mut done = 0;
    while done < bytes.len() {
        let left = bytes.len() - done;
        let wrote = written(Call::LogHome, left, |most| {
            pwrite(file, &bytes[done..done + most.min(left)], at + done as u64)
        });
        match wrote {
            Ok(n) => done += n,
            Err(error) => return Homed { bytes: done, error: Some(error) },
        }
    }
    Homed { bytes: done, error: None }
}

/// The pages that the page cache has of the file before `at` are on their way to the disk. Bytes
/// that go past the cache make the file longer, and a crash would leave zeros where such pages are
/// missing (seen on ext4: 100 KB of them, before a megabyte that was written so). It is not waited
/// for: that would take the kernel's report of an error from the program's next sync.
fn write_back(file: BorrowedFd<'_>, at: u64) {
    let bytes = i64::try_from(at).unwrap_or(i64::MAX);
    // (No bytes would mean all. A failure now is said by the file's own sync.)
    if at > 0 {
        // SAFETY: a call with numbers.
        unsafe { libc::sync_file_range(file.as_raw_fd(), 0, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

fn past_cache(file: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> Homed {
    write_back(file, at);
    let flags = inject::check(Call::LogDirect).and_then(|()| fcntl_getfl(file));
    let set = flags.and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT).map(|()| flags));
    let flags = match set {
        Ok(flags) => flags,
        // (The page cache takes them, whatever the reason.)
        Err(_) => return Homed { bytes: 0, error: Some(Errno::INVAL) },
    };
    inject::point(Point::Direct);
    let mut done = 0;
    let mut error = None;
    while done < bytes.len() && error.is_none() {
        let most = PIECE.min(bytes.len() - done);
        let wrote = written(Call::LogHome, most, |most| {
            pwrite(file, &bytes[done..done + most], at + done as u64)
        });
        match wrote {
            // (Behind a part that is no whole block nothing goes past the cache any more.)
            Ok(n) if !n.is_multiple_of(BLOCK as usize) => {
                done += n;
                error = Some(Errno::INVAL);
            }
            Ok(n) => done += n,
            Err(why) => error = Some(why),
        }
        inject::point(Point::HomePart);
    }
    // The program's own flags. (Nobody changed them meanwhile: see the module.)
    while fcntl_setfl(file, flags) == Err(Errno::INTR) {}
    Homed { bytes: done, error }
}

/// Makes what is in `file` durable; `data`: nothing but what is needed to read it again.
///
/// # Errors
/// The kernel's. It says so once, and may have dropped what it could not write.
pub fn sync(file: BorrowedFd<'_>, data: bool) -> Result<(), Errno> {
    loop {
        let synced = inject::check(Call::LogSync).and_then(|()| {
            if data { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
        });
        if synced != Err(Errno::INTR) {
            return synced;
        }
    }
}
