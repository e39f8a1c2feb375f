//! `syscall(2)`: calls by number go through the same shims.
//!
//! The function behind a shim may be another library's that makes the call by number (tcmalloc's
//! `mmap`, many a preloaded library's `close`), and so comes here again: then the shim has done its
//! part, and the call is made as it is (`Named`).
//!
//! A thread's own: the shim that it is in.
//!
//! unsafe: see the crate. The function is variadic in C; declared with all six arguments it reads
//! the same registers and stack word that libc's own does.

use super::{
    advice, descriptors, files, input, ioctl, limits, mapping, memory_common, output, process,
    protection, remap, rights, signals, sockets, unwaited, uring, waiting,
};
use crate::process::PROCESS;
use crate::real;
use core::cell::Cell;
use uncopy_ranges::span::PAGE;
use uncopy_real::with_table;
use uncopy_stack::buffers::take;

/// These numbers are newer than the oldest libc that this is built with.
const SYS_SET_MEMPOLICY_HOME_NODE: i64 = 450;
const SYS_MSEAL: i64 = 462;

/// A call by number that goes through a shim on this thread.
#[derive(Clone, Copy)]
struct Named {
    number: isize,
    /// Its first argument: what lies between may pass the call on in pieces, but on the same file
    /// or memory.
    first: usize,
    /// Where it stands on the stack.
    at: usize,
}

thread_local! {
    static INNERMOST: Cell<Named> = const { Cell::new(Named { number: -1, first: 0, at: 0 }) };
}

impl Named {
    /// Returns the one around it, which [`Named::end`] wants; `None`: it comes from the shim of
    /// that one. (Or from a handler that interrupted it: what these calls do to memory is heeded
    /// without shims too.)
    #[inline(never)]
    fn begin(number: isize, first: usize) -> Option<Self> {
        let here = 0u8;
        let at = core::ptr::from_ref(core::hint::black_box(&here)) as usize;
        let outer = INNERMOST.get();
        // (One that was left by `longjmp` lies deeper.)
        if outer.number == number && outer.first == first && at < outer.at {
            return None;
        }
        INNERMOST.set(Self { number, first, at });
        Some(outer)
    }

    fn end(outer: Self) {
        INNERMOST.set(outer);
    }
}

/// Whether the call goes on to the kernel from here, whatever is done before and after.
fn goes_on_by_number(n: i64) -> bool {
    matches!(
        n,
        libc::SYS_fork
            | libc::SYS_clone
            | libc::SYS_clone3
            | libc::SYS_exit
            | libc::SYS_seccomp
            | libc::SYS_futex
            | libc::SYS_set_tid_address
            | libc::SYS_set_robust_list
    )
}

/// `syscall(2)`.
///
/// # Safety
/// The caller keeps the contract of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    n: isize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    // SAFETY: as this function.
    unsafe {
        if goes_on_by_number(n as i64) {
            return shim(n, a, b, c, d, e, f);
        }
        let Some(outer) = Named::begin(n, a) else {
            return real::syscall(n, a, b, c, d, e, f);
        };
        let result = shim(n, a, b, c, d, e, f);
        Named::end(outer);
        result
    }
}

/// The calls whose arguments are what their functions take: their rows say which words these are.
macro_rules! by_number {
    ({} $( $group:ident $module:ident::$name:ident [$($same:ident)*] [$($other:ident)*]
        $( ($($arg:ident: $type:ty),*) -> $result:ty $(, else $early:expr)? )?;
        $(by $number:ident $( ($($word:literal)*) $(if $guard:ident)? )?)?
        $(not $not:literal)? $(-)?;
        $place:ident, $why:literal;
    )*) => {
        /// Makes the call by its function; `None`: it is none of these.
        #[inline(always)]
        #[allow(clippy::unnecessary_cast)]
        unsafe fn by_row(number: i64, words: [usize; 6]) -> Option<isize> {
            // SAFETY: the program's own arguments, as libc's function of this name takes them.
            Some(unsafe {
                match number {
                    $( $( $(
                        libc::$number $(if PROCESS.$guard.begun())? => {
                            $module::$name($(words[$word] as _),*) as isize
                        }
                    )? )? )*
                    _ => return None,
                }
            })
        }
    };
}

with_table!(by_number {});

#[inline(always)]
unsafe fn shim(n: isize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the program's own arguments, as the libc function of the same name takes them.
    unsafe {
        if let Some(result) = by_row(n as i64, [a, b, c, d, e, f]) {
            return result;
        }
        match n as i64 {
            libc::SYS_sync if PROCESS.log.begun() => {
                files::sync();
                0
            }
            // (Its mask comes by a structure of address and size; the time that is left is the
            // kernel's to write back.)
            libc::SYS_pselect6 if PROCESS.tcp.in_use() => {
                let mask = take(f as *const [usize; 2]).map_or(0, |[mask, _]| mask);
                waiting::pselect(a as _, b as _, c as _, d as _, e as _, mask as _) as isize
            }
            libc::SYS_io_setup if PROCESS.log.begun() => {
                PROCESS.log.stop(uncopy_log_service::PlainReason::PastUs);
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_io_uring_setup => uring::setup(a, b as _),
            // (The calls of libnuma.)
            libc::SYS_mbind | SYS_SET_MEMPOLICY_HOME_NODE | SYS_MSEAL => {
                memory_common::alter(a as *const u8, b);
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_futex => {
                unwaited::before_futex(b as _, [a, e]);
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_set_tid_address => {
                unwaited::written_by_kernel(a, size_of::<i32>());
                real::syscall(n, a, b, c, d, e, f)
            }
            // (The head; the list's own entries are locks of the program's making.)
            libc::SYS_set_robust_list => {
                unwaited::written_by_kernel(a, b.min(PAGE));
                real::syscall(n, a, b, c, d, e, f)
            }
            // (By libc's own functions the whole process exits.)
            libc::SYS_exit => {
                PROCESS.stand_down_if_alone();
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_fork => process::with_everything_ordinary(
                || real::syscall(n, a, b, c, d, e, f),
                |pid| *pid == 0,
            ),
            libc::SYS_clone if a & libc::CLONE_VM as usize == 0 => {
                process::with_everything_ordinary(
                    || real::syscall(n, a, b, c, d, e, f),
                    |pid| *pid == 0,
                )
            }
            // The first word of its arguments holds the flags.
            libc::SYS_clone3
                if b >= 8
                    && take(a as *const u64).is_some_and(|f| f & libc::CLONE_VM as u64 == 0) =>
            {
                process::with_everything_ordinary(
                    || real::syscall(n, a, b, c, d, e, f),
                    |pid| *pid == 0,
                )
            }
            libc::SYS_clone if a & libc::CLONE_CHILD_CLEARTID as usize != 0 => {
                unwaited::written_by_kernel(d, size_of::<i32>());
                real::syscall(n, a, b, c, d, e, f)
            }
            // Flags, a place for a descriptor, the child's word.
            libc::SYS_clone3 if b >= 24 => {
                if let Some([flags, _, word]) = take(a as *const [u64; 3])
                    && flags & libc::CLONE_CHILD_CLEARTID as u64 != 0
                {
                    unwaited::written_by_kernel(word as usize, size_of::<i32>());
                }
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_rt_sigaction => signals::rt_sigaction(a as _, b as _, c as _, d),
            libc::SYS_seccomp => {
                process::before_sandbox();
                real::syscall(n, a, b, c, d, e, f)
            }
            _ => {
                let result = real::syscall(n, a, b, c, d, e, f);
                rights::after(n as i64, result);
                result
            }
        }
    }
}
