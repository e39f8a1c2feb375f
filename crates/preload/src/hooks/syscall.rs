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
    advice, descriptors, files, input, ioctl, limits, mapping, ours, output, process, protection,
    remap, rights, signals, sockets, unwaited, uring, waiting,
};
use crate::process::PROCESS;
use crate::real;
use core::cell::Cell;
use uncopy_ranges::span::PAGE;
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
/// As the system call demands.
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

#[inline(always)]
unsafe fn shim(n: isize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: the program's own arguments, as the libc function of the same name takes them.
    unsafe {
        match n as i64 {
            libc::SYS_read => input::read(a as _, b as _, c),
            libc::SYS_readv => input::readv(a as _, b as _, c as _),
            libc::SYS_pread64 => input::pread(a as _, b as _, c, d as _),
            libc::SYS_preadv => input::preadv(a as _, b as _, c as _, d as _),
            libc::SYS_recvfrom => input::recvfrom(a as _, b as _, c, d as _, e as _, f as _),
            libc::SYS_recvmsg => input::recvmsg(a as _, b as _, c as _),
            libc::SYS_recvmmsg => input::recvmmsg(a as _, b as _, c as _, d as _, e as _) as isize,
            // (The position comes in halves, of which the lower one holds all of it here.)
            libc::SYS_preadv2 => input::preadv2(a as _, b as _, c as _, d as _, f as _),
            libc::SYS_pwritev2 => output::pwritev2(a as _, b as _, c as _, d as _, f as _),
            libc::SYS_write => output::write(a as _, b as _, c),
            libc::SYS_writev => output::writev(a as _, b as _, c as _),
            libc::SYS_pwrite64 => output::pwrite(a as _, b as _, c, d as _),
            libc::SYS_pwritev => output::pwritev(a as _, b as _, c as _, d as _),
            libc::SYS_sendto => output::sendto(a as _, b as _, c, d as _, e as _, f as _),
            libc::SYS_sendmsg => output::sendmsg(a as _, b as _, c as _),
            libc::SYS_sendmmsg => output::sendmmsg(a as _, b as _, c as _, d as _) as isize,
            libc::SYS_vmsplice => output::vmsplice(a as _, b as _, c, d as _),
            libc::SYS_close => descriptors::close(a as _) as isize,
            libc::SYS_open if PROCESS.log.begun() => files::open(a as _, b as _, c as _) as isize,
            libc::SYS_openat if PROCESS.log.begun() => {
                files::openat(a as _, b as _, c as _, d as _) as isize
            }
            libc::SYS_creat if PROCESS.log.begun() => files::creat(a as _, b as _) as isize,
            libc::SYS_fsync if PROCESS.log.begun() => files::fsync(a as _) as isize,
            libc::SYS_fdatasync if PROCESS.log.begun() => files::fdatasync(a as _) as isize,
            libc::SYS_lseek if PROCESS.log.begun() => files::lseek(a as _, b as _, c as _) as isize,
            libc::SYS_fstat if PROCESS.log.begun() => files::fstat(a as _, b as _) as isize,
            libc::SYS_newfstatat if PROCESS.log.begun() => {
                files::fstatat(a as _, b as _, c as _, d as _) as isize
            }
            libc::SYS_statx if PROCESS.log.begun() => {
                files::statx(a as _, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_ftruncate if PROCESS.log.begun() => files::ftruncate(a as _, b as _) as isize,
            libc::SYS_fallocate if PROCESS.log.begun() => {
                files::fallocate(a as _, b as _, c as _, d as _) as isize
            }
            libc::SYS_sync_file_range if PROCESS.log.begun() => {
                files::sync_file_range(a as _, b as _, c as _, d as _) as isize
            }
            libc::SYS_copy_file_range if PROCESS.log.begun() => {
                files::copy_file_range(a as _, b as _, c as _, d as _, e, f as _)
            }
            libc::SYS_fchmod if PROCESS.log.begun() => files::fchmod(a as _, b as _) as isize,
            libc::SYS_fchown if PROCESS.log.begun() => {
                files::fchown(a as _, b as _, c as _) as isize
            }
            libc::SYS_fsetxattr if PROCESS.log.begun() => {
                files::fsetxattr(a as _, b as _, c as _, d, e as _) as isize
            }
            libc::SYS_fremovexattr if PROCESS.log.begun() => {
                files::fremovexattr(a as _, b as _) as isize
            }
            libc::SYS_utimensat if PROCESS.log.begun() => {
                files::utimensat(a as _, b as _, c as _, d as _) as isize
            }
            libc::SYS_sync if PROCESS.log.begun() => {
                files::sync();
                0
            }
            libc::SYS_syncfs if PROCESS.log.begun() => files::syncfs(a as _) as isize,
            libc::SYS_rename if PROCESS.log.begun() => files::rename(a as _, b as _) as isize,
            libc::SYS_renameat if PROCESS.log.begun() => {
                files::renameat(a as _, b as _, c as _, d as _) as isize
            }
            libc::SYS_renameat2 if PROCESS.log.begun() => {
                files::renameat2(a as _, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_listen => sockets::listen(a as _, b as _) as isize,
            libc::SYS_close_range => descriptors::close_range(a as _, b as _, c as _) as isize,
            libc::SYS_connect => sockets::connect(a as _, b as _, c as _) as isize,
            libc::SYS_accept => sockets::accept(a as _, b as _, c as _) as isize,
            libc::SYS_accept4 => sockets::accept4(a as _, b as _, c as _, d as _) as isize,
            libc::SYS_shutdown => sockets::shutdown(a as _, b as _) as isize,
            libc::SYS_getpeername => sockets::getpeername(a as _, b as _, c as _) as isize,
            libc::SYS_getsockopt => {
                sockets::getsockopt(a as _, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_setsockopt => {
                sockets::setsockopt(a as _, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_sendfile => sockets::sendfile(a as _, b as _, c as _, d),
            libc::SYS_splice => sockets::splice(a as _, b as _, c as _, d as _, e, f as _),
            libc::SYS_fcntl => descriptors::fcntl(a as _, b as _, c) as isize,
            libc::SYS_dup => descriptors::dup(a as _) as isize,
            libc::SYS_pidfd_getfd => descriptors::pidfd_getfd(a as _, b as _, c as _) as isize,
            libc::SYS_poll => waiting::poll(a as _, b as _, c as _) as isize,
            libc::SYS_epoll_create => waiting::epoll_create(a as _) as isize,
            libc::SYS_epoll_create1 => waiting::epoll_create1(a as _) as isize,
            libc::SYS_epoll_ctl => waiting::epoll_ctl(a as _, b as _, c as _, d as _) as isize,
            libc::SYS_epoll_wait => waiting::epoll_wait(a as _, b as _, c as _, d as _) as isize,
            // (Of a call by number the time that is left is written back, and the mask's size is
            // given.)
            libc::SYS_ppoll => waiting::ppoll(a as _, b as _, c as _, d as _) as isize,
            libc::SYS_epoll_pwait => {
                waiting::epoll_pwait(a as _, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_epoll_pwait2 => {
                waiting::epoll_pwait2(a as _, b as _, c as _, d as _, e as _) as isize
            }
            // (Its mask comes by a structure of address and size; the time that is left is the
            // kernel's to write back.)
            libc::SYS_pselect6 if PROCESS.tcp.in_use() => {
                let mask = take(f as *const [usize; 2]).map_or(0, |[mask, _]| mask);
                waiting::pselect(a as _, b as _, c as _, d as _, e as _, mask as _) as isize
            }
            libc::SYS_select => waiting::select(a as _, b as _, c as _, d as _, e as _) as isize,
            libc::SYS_io_setup if PROCESS.log.begun() => {
                PROCESS.log.stop(uncopy_log_service::Reason::PastUs);
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_io_uring_setup => uring::setup(a, b as _),
            libc::SYS_dup2 => descriptors::dup2(a as _, b as _) as isize,
            libc::SYS_dup3 => descriptors::dup3(a as _, b as _, c as _) as isize,
            libc::SYS_mremap => remap::mremap(a as _, b, c, d as _, e as _) as isize,
            libc::SYS_mprotect => protection::mprotect(a as _, b, c as _) as isize,
            libc::SYS_pkey_mprotect => {
                protection::pkey_mprotect(a as _, b, c as _, d as _) as isize
            }
            libc::SYS_madvise => advice::madvise(a as _, b, c as _) as isize,
            libc::SYS_mincore => advice::mincore(a as _, b, c as _) as isize,
            libc::SYS_process_madvise => advice::process_madvise(a as _, b as _, c, d as _, e as _),
            libc::SYS_mmap => mapping::mmap(a as _, b, c as _, d as _, e as _, f as _) as isize,
            libc::SYS_munmap => mapping::munmap(a as _, b) as isize,
            libc::SYS_ioctl => ioctl::ioctl(a as _, b as _, c as _) as isize,
            libc::SYS_shmat => mapping::shmat(a as _, b as _, c as _) as isize,
            libc::SYS_mlock => protection::mlock(a as _, b) as isize,
            libc::SYS_mlock2 => protection::mlock2(a as _, b, c as _) as isize,
            // (What libnuma calls.)
            libc::SYS_mbind | SYS_SET_MEMPOLICY_HOME_NODE | SYS_MSEAL => {
                ours::alter(a as *const u8, b);
                real::syscall(n, a, b, c, d, e, f)
            }
            libc::SYS_setrlimit => limits::setrlimit(a as _, b as _) as isize,
            libc::SYS_prlimit64 => limits::prlimit(a as _, b as _, c as _, d as _) as isize,
            libc::SYS_mlockall => limits::mlockall(a as _) as isize,
            libc::SYS_execve => process::execve(a as _, b as _, c as _) as isize,
            libc::SYS_execveat => {
                process::execveat(a as _, b as _, c as _, d as _, e as _) as isize
            }
            libc::SYS_prctl => rights::prctl(a as _, b, c, d, e) as isize,
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
            libc::SYS_unshare => rights::unshare(a as _) as isize,
            libc::SYS_setns => rights::setns(a as _, b as _) as isize,
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
            libc::SYS_sigaltstack => signals::sigaltstack(a as _, b as _) as isize,
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
