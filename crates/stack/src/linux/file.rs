//! Reads that are answered from kept files: the buffer becomes a view of what was read once.
//!
//! Whether a file is kept, and that it cannot change while it is, is [`uncopy_kept::files`]'s
//! business. Its bytes lie in memory of ours that consists of views; so a read of it is an elided
//! copy like any other: the policy decides, by the place that the program called from.
//!
//! unsafe: has the tracker copy into the program's buffer. Bytes that the tracker leaves to be
//! copied by hand go through the kernel, because a program may pass a pointer into nowhere.

use super::on::refused_for_pieces;
use crate::buffers::{Buffers, Pieces};
use crate::copy::{Source, copy};
use crate::input::input;
use crate::stack::{Host, Input};
use core::cell::Cell;
use libc::iovec;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::SeekFrom;
use uncopy_counters::add;
use uncopy_inject::{Call, Error};
pub use uncopy_kept::files::READ_MIN;
use uncopy_kept::files::{CHUNK, Kept, chunks};
use uncopy_kernel::inject;
use uncopy_kernel::remote_mem::copy_within;
use uncopy_process::process::Process;
use uncopy_ranges::span::Span;
use uncopy_real as real;
use uncopy_shelf::Chunk;

/// Whether a read of `n` bytes may be answered from a kept file.
#[inline]
pub fn perhaps(process: &'static Process, n: usize) -> bool {
    n >= READ_MIN && process.files.allowed()
}

/// A read that may be answered from a kept file.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The program's descriptor.
    pub fd: i32,
    /// Its buffer.
    pub dst: usize,
    /// Where in the file; `None`: at its position, which moves.
    pub at: Option<i64>,
    /// Where its call returns to.
    pub caller: usize,
    /// The process that the call runs in.
    pub host: Host,
}

/// Answers a read of `n` bytes. `None`: nothing was done, the call is to be made as it is.
///
/// # Safety
/// As for `read(2)`: what is valid of the buffer may be overwritten.
pub(super) unsafe fn read(call: &Read, n: usize) -> Option<isize> {
    let &Read { fd, dst, at, caller, ref host } = call;
    let space = &host.process.space;
    // (For a site that rests the bytes would have to be copied, and the plain read copies faster.)
    if fd < 0 || at.is_some_and(|at| at < 0) || space.pauses().rests(caller, n) {
        return None;
    }
    // SAFETY: used for calls that answer EBADF if it is not open.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let kept = host.process.files.ask(file, fd, n)?;
    let from = match at {
        Some(at) => at as u64,
        None => seek(file, 0)?,
    };
    let want = (kept.size().checked_sub(from)?).min(n as u64) as usize;
    if want < READ_MIN || n / 2 >= want && space.pauses().rests(caller, want) {
        return None;
    }
    if !fill(&kept, file, from, want, host) {
        return None;
    }
    if at.is_some() {
        // SAFETY: the caller's promise.
        return unsafe { deliver(host.process, &kept, dst, from, want, caller) }
            .then_some(want as isize);
    }
    // The position moves first: another thread that reads here now gets what follows, as it does
    // when the kernel makes one read wait for the other.
    let start = seek(file, want as i64)?.checked_sub(want as u64)?;
    if start == from {
        // SAFETY: the caller's promise.
        if unsafe { deliver(host.process, &kept, dst, from, want, caller) } {
            return Some(want as isize);
        }
    }
    // SAFETY: the caller's promise.
    let got = unsafe { real::pread(fd, dst as *mut _, want, start as i64) };
    let short = want as i64 - got.max(0) as i64;
    if short > 0 {
        let _ = rustix::fs::seek(file, SeekFrom::Current(-short));
    }
    Some(got)
}

/// Moves the position by `by`; returns where it is then.
fn seek(file: BorrowedFd<'_>, by: i64) -> Option<u64> {
    inject::check(Call::Seek).ok()?;
    rustix::fs::seek(file, SeekFrom::Current(by)).ok()
}

/// Has the chunks of `len` bytes from `from` read, where they are not there. Returns whether all
/// are.
pub(crate) fn fill(kept: &Kept, file: BorrowedFd<'_>, from: u64, len: usize, host: &Host) -> bool {
    for chunk in chunks(from, len) {
        match kept.need(chunk) {
            Chunk::There => {}
            Chunk::NotNow => return false,
            Chunk::Yours => {
                let there = fill_chunk(kept, chunk, file, host);
                if !kept.filled(chunk, file, there) {
                    return false;
                }
            }
        }
    }
    true
}

/// A read of a chunk, which a regular file answers into several pieces as into one.
struct Filling {
    fd: i32,
    span: Span,
    offset: i64,
}

impl Input for Filling {
    fn as_it_is(&mut self) -> isize {
        // SAFETY: the chunk is ours.
        unsafe { real::pread(self.fd, self.span.start as *mut _, self.span.len(), self.offset) }
    }

    fn scatter(&mut self, pieces: &mut Pieces) -> Option<isize> {
        // SAFETY: pieces of extents in its place.
        let got =
            unsafe { real::preadv(self.fd, pieces.as_ptr(), pieces.len() as i32, self.offset) };
        (got != -1 || !refused_for_pieces()).then_some(got)
    }
}

/// Reads a chunk into extents.
fn fill_chunk(kept: &Kept, chunk: usize, file: BorrowedFd<'_>, host: &Host) -> bool {
    let span = kept.chunk(chunk);
    if inject::draw(Call::Refill, false).is_some() {
        return false;
    }
    let buffer = Buffers::one(span.start, span.len());
    let mut call = Filling { fd: file.as_raw_fd(), span, offset: (chunk * CHUNK) as i64 };
    let got = input(&mut call, &buffer, host);
    add(&host.process.space.counters().kept_fill_bytes, got.max(0) as u64);
    got == span.len() as isize
}

/// Makes the buffer a view of the file's bytes. Returns false where that was not to be (some of
/// them may be there all the same: they are what a plain read puts there).
unsafe fn deliver(
    process: &'static Process,
    kept: &Kept,
    dst: usize,
    from: u64,
    len: usize,
    caller: usize,
) -> bool {
    FAILED.with(|f| f.set(false));
    // SAFETY: the source is ours; the buffer is the caller's to be overwritten, and reached through
    // the kernel only, or through the tracker, which knows it.
    let done = unsafe {
        copy(process, dst, kept.address(from), len, caller, Source::KeptFile, through_kernel)
    };
    if !done || FAILED.with(Cell::get) {
        return false;
    }
    add(&process.space.counters().kept_reads, 1);
    add(&process.space.counters().kept_read_bytes, len as u64);
    true
}

thread_local! {
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// Copies through the kernel, which answers EFAULT where we would crash.
unsafe extern "C" fn through_kernel(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    let most = match inject::draw(Call::Deliver, false) {
        None => n,
        Some(Error::Short) => n / 2,
        Some(_) => 0,
    };
    let to = iovec { iov_base: dst.cast(), iov_len: most };
    let from = iovec { iov_base: src.cast_mut().cast(), iov_len: most };
    let done = copy_within(&from, &to);
    if done != n as isize {
        FAILED.with(|f| f.set(true));
    }
    dst
}
