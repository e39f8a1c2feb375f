//! The buffers that a call names, and the program's structures that tell them.
//!
//! unsafe: reads and writes those structures, each at one place.

use arrayvec::ArrayVec;
use core::ffi::c_int;
use core::ops::Deref;
use libc::{iovec, msghdr};
use uncopy_core::plan::MAX_PIECES;
use uncopy_kernel::user_access::{self, Plain};
use uncopy_process::process::Process;

/// A list of pieces made by us.
pub type Pieces = ArrayVec<iovec, MAX_PIECES>;

/// One piece.
pub fn piece(addr: usize, len: usize) -> iovec {
    iovec { iov_base: addr as *mut libc::c_void, iov_len: len }
}

/// A list of buffers as the program names it: nothing says that it can be read.
#[derive(Clone, Copy, Debug)]
pub struct IovList {
    /// Where it is.
    pub iov: *const iovec,
    /// How many buffers it has. (A negative count of the program's is a huge one.)
    pub count: usize,
}

impl IovList {
    /// The list that a vectored call names.
    #[inline]
    pub fn new(iov: *const iovec, count: c_int) -> Self {
        Self { iov, count: count as usize }
    }

    /// The list of a message.
    #[inline]
    pub fn of(header: &msghdr) -> Self {
        Self { iov: header.msg_iov, count: header.msg_iovlen }
    }
}

/// Address and length of each buffer of a call, in a list of ours. It is read under the tracker's
/// lock, where the program's own list must not be: it may lie in a view, and its fault would wait
/// for the lock.
#[derive(Clone, Debug, Default)]
pub struct Buffers<const N: usize = MAX_PIECES>(ArrayVec<(usize, usize), N>);

impl Buffers<1> {
    /// The buffer of a call that has one.
    #[inline]
    pub fn one(addr: usize, len: usize) -> Self {
        Self(ArrayVec::from([(addr, len)]))
    }
}

impl Buffers {
    /// The first spans, as many as are planned with.
    pub(crate) fn of(spans: impl Iterator<Item = (usize, usize)>) -> Self {
        Self(spans.take(MAX_PIECES).collect())
    }

    /// The buffers as pieces.
    pub fn pieces(&self) -> Pieces {
        self.iter().map(|&(addr, len)| piece(addr, len)).collect()
    }
}

impl<const N: usize> Deref for Buffers<N> {
    type Target = [(usize, usize)];

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// How many bytes they hold together.
#[inline]
pub fn bytes(buffers: &[(usize, usize)]) -> usize {
    buffers.iter().fold(0, |n, b| n.saturating_add(b.1))
}

/// Whether any of the buffers may hold tracked pages (without the lock). The state is not asked:
/// [`Space::with`](uncopy_space::space::Space::with) does that, for the few of which this is true.
#[inline]
pub fn perhaps_tracked(process: &'static Process, buffers: &[(usize, usize)]) -> bool {
    let space = &process.space;
    buffers.iter().any(|&(addr, len)| len > 0 && space.filter.perhaps_tracked(addr, len))
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

/// Reads a structure of the program's: everything that our shims read by a pointer of its goes
/// through here. `None`: there is none, as the kernel will say.
///
/// # Safety
/// It is the program's, of a call that it makes.
#[inline]
pub unsafe fn take<T: Plain>(from: *const T) -> Option<T> {
    user_access::read(from)
}

/// Writes to a structure of the program's, as [`take`] reads. Returns whether it could.
///
/// # Safety
/// As for [`take`].
#[inline]
pub unsafe fn give<T: Plain>(to: *mut T, value: T) -> bool {
    // SAFETY: the caller's promise.
    unsafe { user_access::write(to, &value) }
}

/// The header of a message, unless nothing can be tracked: then it need not be looked at.
///
/// # Safety
/// As for [`take`].
#[inline]
pub unsafe fn header(process: &'static Process, msg: *const msghdr) -> Option<msghdr> {
    // SAFETY: the caller's promise.
    if process.space.wanted() { unsafe { take(msg) } } else { None }
}

/// The buffers of a vectored call, one after the other, read as they are asked for (so not under
/// the lock); none if there are more than the kernel takes.
///
/// # Safety
/// As for [`take`], of `count` buffers.
pub unsafe fn each(iov: *const iovec, count: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = if count > IOV_MAX { 0 } else { count };
    (0..count).map_while(move |i| {
        // SAFETY: the caller's promise.
        unsafe { take(iov.wrapping_add(i)) }.map(|b| (b.iov_base as usize, b.iov_len))
    })
}

/// Fills `buffers` (empty so far) with those of a vectored call. Returns false where the call is to
/// be made as it is: they need not be looked at, for nothing can be tracked; there are more of them
/// than are planned with; or it is a list that the kernel refuses.
///
/// # Safety
/// As for [`each`].
#[inline]
pub unsafe fn list(
    process: &'static Process,
    iov: *const iovec,
    count: usize,
    buffers: &mut Buffers,
) -> bool {
    if count > MAX_PIECES || !process.space.wanted() {
        return false;
    }
    // SAFETY: the caller's promise.
    buffers.0.extend(unsafe { each(iov, count) });
    buffers.len() == count
}
