//! The program's memory, reached through the kernel as another process' would be: the kernel
//! answers with an error where a touch of our own would crash, or wait for ourselves.
//!
//! unsafe: system calls on addresses that need not be memory.

use crate::call::syscall4;
use crate::descriptors::OwnFd;
use crate::inject;
use crate::own_memory::own_memory;
use rustix::io::Errno;
use rustix::mm::Advice;
use uncopy_inject::{Call, Error};
use uncopy_ranges::span::PAGE;

/// Reads a byte of this process from each of the places. Returns false where that is forbidden, or
/// where one of several is no memory.
pub fn peek(places: &[libc::iovec], bytes: &mut [u8]) -> bool {
    let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: places.len() };
    // SAFETY: reads bytes of this process into bytes of ours, or answers EFAULT.
    let result = inject::check(Call::Peek)
        .is_ok()
        .then(|| unsafe { own_memory(libc::SYS_process_vm_readv, &to, places) });
    let nowhere = -(libc::EFAULT as isize);
    result.is_some_and(|r| r == places.len() as isize || r == nowhere && places.len() == 1)
}

/// Has the kernel make the page at `addr` present.
pub fn populate(addr: usize, how: Advice) -> Result<(), Errno> {
    // SAFETY: a page of the program's, which keeps its content.
    unsafe { rustix::mm::madvise((addr & !(PAGE - 1)) as *mut _, PAGE, how) }
}

/// Whether there is a page at `addr`, in memory or in swap.
pub fn present(addr: usize) -> bool {
    use rustix::fs::{Mode, OFlags};
    let look = || {
        inject::check(Call::Open).ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(c"/proc/self/pagemap", flags, Mode::empty()).ok()?;
        let fd = OwnFd::from(fd);
        let mut entry = [0u8; 8];
        let n = rustix::io::pread(&fd, &mut entry[..], (addr / PAGE * 8) as u64).ok()?;
        (n == 8).then(|| u64::from_ne_bytes(entry) >> 62 != 0)
    };
    look().unwrap_or_else(|| {
        // Without /proc: whether it is in memory; it was made a moment ago.
        let mut resident = 0u8;
        let page = addr & !(PAGE - 1);
        let to = core::ptr::from_mut(&mut resident) as usize;
        // SAFETY: writes the one byte for one page.
        let result = unsafe { syscall4(libc::SYS_mincore as usize, page, PAGE, to, 0) };
        result == 0 && resident & 1 != 0
    })
}

/// Copies within this process through the kernel. Returns how much of it, or an error's number
/// below zero.
pub fn copy_within(from: &libc::iovec, to: &libc::iovec) -> isize {
    // SAFETY: the callers may overwrite what is there.
    unsafe { own_memory(libc::SYS_process_vm_readv, to, core::slice::from_ref(from)) }
}

/// Copies within this process through the kernel, as much of it as is there.
pub fn poke(to: usize, from: usize, len: usize) -> Result<usize, Errno> {
    let len = match inject::draw(Call::Poke, len <= PAGE) {
        None => len,
        Some(Error::Short) => len / 2,
        Some(error) => return Err(inject::errno(error)),
    };
    let piece = |addr: usize| libc::iovec { iov_base: addr as *mut _, iov_len: len };
    let (from, to) = (piece(from), piece(to));
    let there = core::slice::from_ref(&to);
    // SAFETY: the destination is the program's own memory, the source the pool.
    let n = unsafe { own_memory(libc::SYS_process_vm_writev, &from, there) };
    usize::try_from(n).map_err(|_| Errno::from_raw_os_error(-n as i32))
}
