//! A userfaultfd of the program's own; what is asked of a connection that rings know better.
//!
//! unsafe: see the crate.

use super::files::before_ioctl;
use super::memory_common::make_ordinary;
use crate::process::PROCESS;
use crate::real;
use core::ffi::{c_int, c_ulong, c_void};
use uncopy_kernel::user_access;
use uncopy_ranges::span::Span;

/// The kernel's `UFFDIO_REGISTER`: its argument begins with the range, as address and length.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;

/// `UFFDIO_MOVE`: its argument begins with destination, source and length.
const UFFDIO_MOVE: c_ulong = 0xc028_aa05;

/// asm-generic/ioctls.h: as fcntl's O_ASYNC.
const FIOASYNC: c_ulong = 0x5452;

/// asm-generic/sockios.h.
const SIOCATMARK: c_ulong = 0x8905;

/// `ioctl(2)`: memory that the program registers with a userfaultfd of its own must not be
/// registered with ours, for the kernel allows one (EBUSY); and what it moves must be there
/// (ENOENT). All other operations of a userfaultfd name memory that is registered with it, and so
/// not with ours; the source of `UFFDIO_COPY` is read with faults.
///
/// # Safety
/// The caller keeps the contract of the man page. (It is variadic in C; what it reads lies in the
/// same registers.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        if request == UFFDIO_REGISTER
            && let Some([addr, len]) = user_access::read(argument.cast::<[u64; 2]>())
        {
            PROCESS.twin().alter(Span::sized(addr as usize, len as usize));
            make_ordinary(addr as usize, len as usize);
        }
        if request == UFFDIO_MOVE
            && PROCESS.space.wanted()
            && let Some(words) = user_access::read(argument.cast::<[u64; 3]>())
        {
            let [to, from, len] = words.map(|n| n as usize);
            make_ordinary(from, len);
            // (Those of the pages that are not moved stay excluded for nothing.)
            let from = Span::sized(from, len);
            if let Some(given) = PROCESS.space.exclusions(from) {
                PROCESS.space.put_exclusions(&given.moved(from, Span::sized(to, len)));
            }
        }
        // (Also where there is a log: `Tcp::attend`.)
        if PROCESS.tcp.in_use() {
            return of_file_or_connection(fd, request, argument);
        }
        real::ioctl(fd, request, argument)
    }
}

#[inline(never)]
unsafe fn of_file_or_connection(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let plain = before_ioctl(fd, request);
        let result = real::ioctl(fd, request, argument);
        drop(plain);
        if result == 0 { of_connection(fd, request, argument.cast()) } else { result }
    }
}

/// The answer to a request that the kernel has answered, where a connection's bytes lie in rings.
unsafe fn of_connection(fd: c_int, request: c_ulong, argument: *mut c_int) -> c_int {
    // SAFETY: the kernel has read or written it.
    unsafe {
        match request {
            libc::FIONBIO => {
                if let Some(nonblocking) = user_access::read(argument) {
                    PROCESS.tcp.set_nonblocking(fd, nonblocking != 0);
                }
            }
            FIOASYNC if user_access::read(argument).is_some_and(|on| on != 0) => {
                PROCESS.tcp.give_to_linux(fd);
            }
            libc::FIONREAD | libc::TIOCOUTQ => {
                let (unread, unsent) = PROCESS.tcp.queued(fd);
                let more = if request == libc::FIONREAD { unread } else { unsent };
                if more > 0
                    && let Some(said) = user_access::read(argument)
                {
                    user_access::write(argument, &said.saturating_add(more as c_int));
                }
            }
            SIOCATMARK if PROCESS.tcp.mark_is_behind(fd) => {
                user_access::write(argument, &0);
            }
            _ => {}
        }
    }
    0
}

/// `sockatmark(3)`: libc's own makes the call past us.
///
/// # Safety
/// The caller keeps the contract of the man page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut is_at: c_int = 0;
    // SAFETY: it writes an int.
    match unsafe { ioctl(fd, SIOCATMARK, (&raw mut is_at).cast()) } {
        0 => is_at,
        failed => failed,
    }
}
