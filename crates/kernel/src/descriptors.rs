//! Descriptors of our own: how they are closed, where they lie in the program's table, and tables
//! of our threads' own.
//!
//! Statics: the numbers of those that are [kept](Kept), and below and above which there are none.
//! The table of descriptors is the process's, and so is what of it is ours.
//!
//! unsafe: closes what it owns; changes the calling thread's table of descriptors.

use crate::call::syscall4;
use crate::inject;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use uncopy_inject::Call;

/// A descriptor that is closed by a direct system call. The standard library's `OwnedFd` is closed
/// by libc's `close`, which is the program's (a cancellation point, our own shim), sets `errno`,
/// and needs a thread that libc knows.
#[derive(Debug)]
pub struct OwnFd(ManuallyDrop<OwnedFd>);

impl OwnFd {
    /// It is not owned any more: its number.
    pub fn into_raw(self) -> i32 {
        ManuallyDrop::new(self).as_raw_fd()
    }
}

impl From<OwnedFd> for OwnFd {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for OwnFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for OwnFd {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Drop for OwnFd {
    fn drop(&mut self) {
        // SAFETY: owned, and not used after this.
        unsafe { rustix::io::close(self.0.as_raw_fd()) };
    }
}

/// No number of ours was ever below. (A static of its own: `close`'s entry, in assembly, compares
/// with it.)
pub static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);

/// Whether `fd` may be one of ours: most numbers of a program's lie below all of them.
#[inline]
pub fn perhaps_ours(fd: i32) -> bool {
    fd >= LOWEST.load(Ordering::Relaxed)
}

/// No number of a [`Kept`] one was ever above.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// The numbers that are looked at: as many descriptors as a process has at most (`fs.nr_open` as it
/// comes).
const NUMBERS: usize = 1 << 20;

static KEPT: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn mark(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((KEPT.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether the number is that of a [`Kept`] one.
#[inline]
pub fn is_kept(fd: i32) -> bool {
    mark(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The numbers of all that are kept, of `first` to `last`.
pub fn kept_between(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let words = KEPT.iter().enumerate().skip(first as usize / 64);
    words
        .take_while(move |(i, _)| i * 64 <= last as usize)
        .flat_map(|(i, word)| {
            let bits = word.load(Ordering::Relaxed);
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| i as u32 * 64 + bit)
        })
        .filter(move |fd| (first..=last).contains(fd))
}

/// A descriptor of ours that lies high in the program's table if it can, and whose number can be
/// asked for.
#[derive(Debug)]
pub struct Kept(OwnFd);

impl Kept {
    /// Keeps it from now on.
    ///
    /// # Errors
    /// When its number is too high to be known.
    pub fn new(fd: impl Into<OwnFd>) -> Result<Self, Errno> {
        let fd = fd.into();
        // (Where nothing is free there it stays where it is.)
        let fd = lift_or_halfway(&fd).unwrap_or(fd);
        Self::marked(fd)
    }

    /// The descriptor that `make` makes is kept from now on, if the program can spare it.
    ///
    /// # Errors
    /// EMFILE: as many are kept as may be, or no descriptor is free.
    pub fn if_room<T: Into<OwnFd>>(make: impl FnOnce() -> Result<T, Errno>) -> Result<Self, Errno> {
        if !have_room(1) {
            return Err(Errno::MFILE);
        }
        let kept = Self::new(make()?)?;
        // (Other threads may have asked at the same time.)
        if have_room(0) { Ok(kept) } else { Err(Errno::MFILE) }
    }

    /// A duplicate of `fd` is kept from now on.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub fn duplicate_of(fd: impl AsFd) -> Result<Self, Errno> {
        Self::marked(lift_if_possible(fd)?)
    }

    fn marked(fd: OwnFd) -> Result<Self, Errno> {
        let (word, bit) = mark(fd.as_raw_fd()).ok_or(Errno::MFILE)?;
        LOWEST.fetch_min(fd.as_raw_fd(), Ordering::Relaxed);
        HIGHEST.fetch_max(fd.as_raw_fd(), Ordering::Relaxed);
        word.fetch_or(bit, Ordering::Relaxed);
        Ok(Self(fd))
    }

    /// Its number, which stays kept until [`Kept::from_raw`] has it again.
    pub fn into_raw(self) -> i32 {
        ManuallyDrop::new(self).as_raw_fd()
    }

    /// Takes back a descriptor that [`Kept::into_raw`] has given.
    ///
    /// # Safety
    /// It is owned by nobody else.
    pub unsafe fn from_raw(fd: i32) -> Self {
        // SAFETY: the caller's promise.
        Self(OwnFd::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Kept {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some((word, bit)) = mark(self.0.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The number of a descriptor of ours, for callers without a lock. (Zeros are none, so that what
/// has many costs no memory before they are used.)
#[derive(Debug)]
pub struct AtomicFd(AtomicI32);

impl Default for AtomicFd {
    fn default() -> Self {
        Self::none()
    }
}

impl AtomicFd {
    /// None.
    pub const fn none() -> Self {
        Self(AtomicI32::new(0))
    }

    /// The number; -1: none.
    #[inline]
    pub fn get(&self) -> i32 {
        !self.0.load(Ordering::Relaxed)
    }

    /// It is `fd` from now on; -1: none.
    pub fn set(&self, fd: i32) {
        if fd >= 0 {
            LOWEST.fetch_min(fd, Ordering::Relaxed);
        }
        self.0.store(!fd, Ordering::Relaxed);
    }

    /// There is none any more. Returns what there was.
    pub fn take(&self) -> i32 {
        !self.0.swap(!-1, Ordering::Relaxed)
    }

    /// The number `fd` is somebody else's now.
    pub fn forget(&self, fd: i32) {
        let _ = self.0.compare_exchange(!fd, !-1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Under a lower RLIMIT_NOFILE no descriptor is ours: a program that is given so few may want each
/// of them.
pub const LEAST_LIMIT: u64 = 128;

/// At most this part of the descriptors that a program may have is kept by us.
const PART: u64 = 8;

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The program may have so few descriptors that none is to be ours.
pub fn are_few() -> bool {
    limit() < LEAST_LIMIT
}

/// `more` descriptors may be kept besides those that are. (Those above a limit that was lowered
/// meanwhile take nothing from the program.)
pub fn have_room(more: u64) -> bool {
    let limit = limit();
    let last = u64::from(HIGHEST.load(Ordering::Relaxed).max(0) as u32).min(limit.max(1) - 1);
    let first = LOWEST.load(Ordering::Relaxed) as u32;
    let ours = kept_between(first, last as u32).count() as u64;
    limit >= LEAST_LIMIT && ours + more <= limit / PART
}

/// A duplicate of `fd`, at a number from `least` on.
///
/// # Errors
/// When no descriptor is free there.
pub fn duplicate(fd: impl AsFd, least: i32) -> Result<OwnFd, Errno> {
    inject::check(Call::Dup)?;
    rustix::io::fcntl_dupfd_cloexec(fd, least).map(OwnFd::from)
}

/// Where our descriptors lie in the program's table: high, but not so high that the table grows for
/// them alone.
pub fn floor() -> i32 {
    limit().min(1024).saturating_sub(16) as i32
}

/// A duplicate of `fd` where our descriptors lie.
///
/// # Errors
/// When no descriptor is free there.
pub fn lift(fd: impl AsFd) -> Result<OwnFd, Errno> {
    duplicate(fd, floor())
}

/// The same. There are few numbers up there where the limit is low: then among the upper half.
fn lift_or_halfway(fd: impl AsFd) -> Result<OwnFd, Errno> {
    lift(&fd).or_else(|_| duplicate(&fd, (floor() + 16) / 2))
}

/// The same; and where nothing is free there either, at any number but those of the standard
/// streams.
///
/// # Errors
/// When no descriptor is free.
pub fn lift_if_possible(fd: impl AsFd) -> Result<OwnFd, Errno> {
    lift_or_halfway(&fd).or_else(|_| duplicate(&fd, 3))
}

/// Leaves this thread with a descriptor table of its own that holds only ours: what the program
/// closes is closed, and what it closes of ours stays open here. Returns false where that is not to
/// be had: then the thread must end (a file of the program's would stay open as long as it lives,
/// or the program could put another file at our number).
pub fn keep_only(ours: [i32; 2]) -> bool {
    let (low, high) = (ours[0].min(ours[1]) as u32, ours[0].max(ours[1]) as u32);
    // SAFETY: from the first call on the table is this thread's alone (CLOSE_RANGE_UNSHARE).
    unsafe {
        let close = |from: u32, to: u32, flags: usize| {
            let call = libc::SYS_close_range as usize;
            from > to
                || inject::check(Call::CloseRange).is_ok()
                    && syscall4(call, from as usize, to as usize, flags, 0) == 0
        };
        const UNSHARE: usize = 2;
        close(high + 1, u32::MAX, UNSHARE)
            && close(low + 1, high - 1, 0)
            && (low == 0 || close(0, low - 1, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_descriptor_is_known_by_its_number_until_it_is_closed() {
        let new =
            || OwnFd::from(rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let (a, b) = (Kept::new(new()).unwrap(), Kept::new(new()).unwrap());
        let numbers = [a.as_raw_fd(), b.as_raw_fd()];
        assert!(numbers.iter().all(|fd| is_kept(*fd)) && !is_kept(-1) && !is_kept(i32::MAX));
        assert!(numbers.iter().all(|fd| perhaps_ours(*fd)) && !perhaps_ours(-1));
        let all: Vec<u32> = kept_between(0, u32::MAX).collect();
        assert!(numbers.iter().all(|fd| all.contains(&(*fd as u32))), "{numbers:?}: {all:?}");
        assert_eq!(kept_between(numbers[0] as u32, numbers[0] as u32).count(), 1);
        drop(a);
        assert!(!is_kept(numbers[0]) && is_kept(numbers[1]));
        let number = Kept::duplicate_of(&b).unwrap().into_raw();
        assert!(is_kept(number) && is_kept(numbers[1]));
        // SAFETY: from just above.
        drop(unsafe { Kept::from_raw(number) });
        assert!(!is_kept(number));
    }

    /// (A process of its own would not be worth it: the tests here need few descriptors.)
    #[test]
    fn an_eighth_of_a_program_s_descriptors_may_be_ours() {
        use rustix::process::{Rlimit, setrlimit};
        let old = getrlimit(Resource::Nofile);
        let set = |current| {
            setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..old }).unwrap();
        };
        set(LEAST_LIMIT - 1);
        let few = (are_few(), have_room(0));
        set(LEAST_LIMIT);
        let enough = (are_few(), have_room(8), have_room(LEAST_LIMIT / PART + 1));
        setrlimit(Resource::Nofile, old).unwrap();
        assert_eq!(few, (true, false));
        assert_eq!(enough, (false, true, false));
    }

    #[test]
    fn a_number_is_none_until_it_is_set_and_after_it_was_somebody_elses() {
        let fd = AtomicFd::none();
        assert_eq!(fd.get(), -1);
        assert!(!perhaps_ours(0));
        fd.set(0);
        assert_eq!(fd.get(), 0);
        assert!(perhaps_ours(0));
        fd.forget(1);
        assert_eq!(fd.get(), 0);
        fd.forget(0);
        assert_eq!(fd.get(), -1);
        fd.set(7);
        assert_eq!((fd.take(), fd.get()), (7, -1));
    }
}
