//! The `iovec` list of a call, ours or the program's.
//!
//! unsafe: reads the list that the program passed, and borrows descriptors for one call.

use arrayvec::ArrayVec;
use libc::iovec;
use uncopy_core::inject::Call;
use uncopy_core::plan::MAX_PIECES;
use uncopy_vm::{inject, space};

/// A list of pieces made by us.
pub type Pieces = ArrayVec<iovec, MAX_PIECES>;

/// One piece.
pub fn piece(addr: usize, len: usize) -> iovec {
    iovec { iov_base: addr as *mut libc::c_void, iov_len: len }
}

/// Address and length of each buffer.
pub fn spans(buffers: &[iovec]) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
    buffers.iter().map(|b| (b.iov_base as usize, b.iov_len))
}

/// Whether any of the buffers may hold tracked pages (without the lock).
#[inline]
pub fn perhaps_tracked(buffers: &[iovec]) -> bool {
    space::running()
        && buffers.len() <= MAX_PIECES
        && spans(buffers).any(|(addr, len)| len > 0 && space::FILTER.perhaps_tracked(addr, len))
}

/// Whether `p` can point to something of the program's: programs (and their tests) pass small or
/// huge numbers, to which the kernel answers EFAULT.
pub fn plausible<T>(p: *const T) -> bool {
    (LOWEST_ADDRESS..HIGHEST_ADDRESS).contains(&(p as usize))
}

/// `vm.mmap_min_addr`.
const LOWEST_ADDRESS: usize = 65536;
/// The end of the program's half of the address space on x86-64.
pub const HIGHEST_ADDRESS: usize = 0x7fff_ffff_f000;

/// Most buffers that one call may have.
pub const IOV_MAX: usize = 1024;

/// The buffers of a vectored call; none if the list is one that the kernel refuses.
///
/// # Safety
/// Unless it is null or too long, `iov` points to `count` buffers.
pub unsafe fn list<'a>(iov: *const iovec, count: usize) -> &'a [iovec] {
    if !plausible(iov) || count > IOV_MAX || !iov.is_aligned() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(iov, count) }
}

/// Whether the call just refused may have been refused for the sake of its pieces.
pub fn refused_for_pieces() -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    matches!(errno, Some(libc::EINVAL | libc::EFAULT))
}

/// The same of an input. From a socket the message is gone where an address was wrong: the plain call would take the next.
pub fn refused_input(on: On) -> bool {
    let errno = std::io::Error::last_os_error().raw_os_error();
    refused_for_pieces() && !(on == On::Vectored && errno == Some(libc::EFAULT))
}

/// What a call is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// What takes several pieces as one: a socket, a regular file.
    Vectored,
    /// Any descriptor: only some take several pieces as one.
    Descriptor(i32),
}

impl On {
    /// Whether so many pieces may stand for so many buffers.
    pub(crate) fn takes(self, pieces: usize, buffers: usize) -> bool {
        match self {
            Self::Descriptor(fd) if pieces != 1 || buffers != 1 => takes_pieces(fd),
            _ => true,
        }
    }
}

/// Whether `fd` takes several pieces as one piece: a socket, a pipe or a regular file. A driver
/// without vectored writes would see several calls.
fn takes_pieces(fd: i32) -> bool {
    use rustix::fs::FileType;
    if fd < 0 {
        return false;
    }
    // SAFETY: used for one system call, which answers EBADF if it is not open.
    let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(fd) };
    inject::check(Call::Fstat).and_then(|()| rustix::fs::fstat(fd)).is_ok_and(|s| {
        matches!(
            FileType::from_raw_mode(s.st_mode),
            FileType::Socket | FileType::Fifo | FileType::RegularFile
        )
    })
}
