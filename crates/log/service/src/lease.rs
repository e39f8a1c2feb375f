//! The kernel's write leases on programs' descriptions: while one is held, nobody else has the file
//! open, and a process that opens it waits until the lease is given up.
//!
//! unsafe: system calls with numbers.

use crate::plain_reason::PlainReason;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use uncopy_inject::Call;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;

/// The signal by which the kernel says that somebody opens a leased file.
pub(crate) fn signal() -> i32 {
    libc::SIGRTMIN()
}

/// `F_SETSIG`
const SETSIG: i32 = 10;

/// By a system call: libc's function is the program's where this runs in one, and its shim would
/// make the file plain first.
fn fcntl(file: BorrowedFd<'_>, command: i32, argument: usize) -> Result<i32, Errno> {
    let (fd, command) = (file.as_raw_fd() as usize, command as usize);
    // SAFETY: commands that take a number, or a structure that the caller has.
    let result = unsafe { syscall4(libc::SYS_fcntl as usize, fd, command, argument, 0) };
    if result >= 0 { Ok(result as i32) } else { Err(Errno::from_raw_os_error(-result as i32)) }
}

/// This thread gets the description's signals; without `here`, nobody.
fn owned(file: BorrowedFd<'_>, here: bool) -> Result<(), Errno> {
    const SETOWN_EX: i32 = 15; // F_SETOWN_EX
    const TID: i32 = 0; // F_OWNER_TID
    let thread = if here { rustix::thread::gettid().as_raw_pid() } else { 0 };
    let owner = [TID, thread];
    fcntl(file, SETOWN_EX, owner.as_ptr() as usize).map(|_| ())
}

fn last() -> Errno {
    let why = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Errno::from_raw_os_error(why)
}

/// Takes a write lease; this thread is told when it is broken.
pub(crate) fn take(file: BorrowedFd<'_>) -> Result<(), PlainReason> {
    let taken = inject::check(Call::Lease).and_then(|()| {
        owned(file, true)?;
        fcntl(file, SETSIG, signal() as usize)?;
        fcntl(file, libc::F_SETLEASE, libc::F_WRLCK as usize)
    });
    taken.map(|_| ()).map_err(|why| match why {
        Errno::AGAIN => PlainReason::OpenElsewhere,
        Errno::ACCESS | Errno::PERM => PlainReason::NotOurs,
        _ => PlainReason::NoLease,
    })
}

/// Whether it is held, and nobody waits for it.
pub(crate) fn holds(file: BorrowedFd<'_>) -> bool {
    fcntl(file, libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK)
}

/// Gives it up: processes that wait to open the file go on.
pub(crate) fn give_up(file: BorrowedFd<'_>) {
    let _ = fcntl(file, libc::F_SETLEASE, libc::F_UNLCK as usize);
    // (The description lives on in the program: it gets no signals from it.)
    let _ = owned(file, false);
    let _ = fcntl(file, SETSIG, 0);
}

/// The process that was told of its lease is no more.
pub(crate) fn unheard(file: BorrowedFd<'_>) {
    let _ = owned(file, false);
}

/// A signalfd of what the service handles, which this thread does not get otherwise any more.
pub(crate) fn signals() -> Result<OwnedFd, Errno> {
    use rustix::fd::FromRawFd;
    // SAFETY: a set of ours; blocks signals in this thread, and those that it makes.
    let fd = unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [signal(), libc::SIGIO, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: a descriptor that was just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Signals that have come. True: one asks the service to end.
pub(crate) fn heard(signals: impl AsFd) -> bool {
    let mut ends = false;
    let mut one = [0u8; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(&signals, &mut one) == Ok(one.len()) {
        let number = u32::from_ne_bytes([one[0], one[1], one[2], one[3]]) as i32;
        ends |= number != signal() && number != libc::SIGIO;
    }
    ends
}
