//! The meaning of a system call to those outside the process. A call that is not known leaves.
#![forbid(unsafe_code)]

use libc::c_long;
use uncopy_log_book::as_ever::AsEver;

/// The bytes that a call is about to send to a stream, if its descriptor is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// So many bytes from here.
    Bytes(u64, u64),
    /// So many buffers, which are listed here.
    Buffers(u64, u64),
    /// The buffers of this message (`struct msghdr`).
    Message(u64),
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Nobody outside sees it, or it is no answer.
    Stays,
    /// It takes bytes, or a connection, from this descriptor: of an internet socket that is no
    /// answer. Else it makes room for a writer, or moves a position that others have, too.
    Receives(u64),
    /// It reads this descriptor at a place that it names: of a regular file nobody sees that.
    ReadsAt(u64),
    /// Bytes leave by this descriptor: into a queue, if it is an internet stream.
    Sends(u64, Sends),
    /// It leaves, or may: it waits.
    Leaves,
    /// The thread ends.
    EndsThread,
    /// The process ends.
    Ends,
    /// A child with a copy of the memory is made.
    Forks,
    /// A thread or a child is made, as the flags say that stand at this address.
    Clones(u64),
    /// This descriptor is mapped, and shared: if it is open for writing memory is shared.
    Shares(u64),
    /// A file is mapped: the mapping may be the last that has its description.
    Maps,
    /// A file's code is mapped.
    Loads,
    /// So much memory is unmapped here: with a file's mapping its description may end, and so a
    /// lock.
    Unmaps(u64, u64),
    /// The same, where memory moves: its address and length, and how much it is to be.
    Moves(u64, u64, u64),
    /// The properties of this descriptor are asked for, or it is synced. The process that serves
    /// its file system hears of it, where that is not the kernel.
    Asks(u64),
    /// The same, if nothing stands at this address; else a path is looked up.
    AsksBy(u64, u64),
    /// A request to this descriptor that is not known: a device may read memory from then on.
    Requests(u64),
    /// The process executes something.
    Executes,
    /// Bytes that streams send are not the bytes that were written any more: a protocol is put over
    /// one.
    Wraps,
    /// The user or the rights of the process, or of a thread, change.
    Rights,
    /// What follows is not seen: syncs are as ever from then on. (Of a child that has the same
    /// memory, too: it is about the memory.)
    Off(AsEver),
    /// The calls of this process that follow are not seen: syncs are as ever if it is the one that
    /// syncs.
    OwnOff(AsEver),
}

use Meaning::{Asks, AsksBy, Leaves, Off, OwnOff, ReadsAt, Receives, Rights, Stays, Unmaps};

const MAP_KIND: u64 = 0xf;
const MAP_SHARED: u64 = libc::MAP_SHARED as u64;
const MAP_SHARED_VALIDATE: u64 = libc::MAP_SHARED_VALIDATE as u64;
const ZEROCOPY: u64 = libc::MSG_ZEROCOPY as u64;
/// Flags with which a message may go into a queue.
pub const QUEUED: u64 = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u64;

const CLONE_VM: u64 = libc::CLONE_VM as u64;
const CLONE_FILES: u64 = libc::CLONE_FILES as u64;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
const CLOSE_RANGE_UNSHARE: u64 = 2;

// (Numbers that the libc crate does not have.)
const SYS_LANDLOCK_RESTRICT_SELF: c_long = 446;
/// Numbers from here on are those of another interface (x32), to the same calls.
const OTHER_NUMBERS: core::ops::Range<u64> = 0x4000_0000..0x4000_0400;
/// `personality` asks.
const PERSONALITY_ASKED: u64 = 0xffff_ffff;
const PR_SET_VMA: u64 = 0x5356_4d41;
const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;

const TCP_INFO: (u64, u64) = (libc::SOL_TCP as u64, libc::TCP_INFO as u64);

/// `flags` of a send that goes into a queue, or of one that does not.
fn sends(fd: u64, what: Sends, flags: u64) -> Meaning {
    match flags {
        _ if flags & ZEROCOPY != 0 => Off(AsEver::Lent),
        _ if flags & !QUEUED == 0 => Meaning::Sends(fd, what),
        _ => Leaves,
    }
}

/// A child or a thread with these flags (`clone(2)`) is made.
#[must_use]
pub fn clones(flags: u64) -> Meaning {
    match flags {
        _ if flags & CLONE_VM == 0 => Meaning::Forks,
        // (It has the same memory: what it calls waits.)
        _ if flags & CLONE_THREAD == 0 => Leaves,
        _ if flags & CLONE_FILES == 0 => OwnOff(AsEver::PastUs),
        _ => Stays,
    }
}

fn maps([at, length, protection, flags, fd, _]: [u64; 6]) -> Meaning {
    let is = |what: i32| protection & what as u64 != 0;
    let anonymous = flags & libc::MAP_ANONYMOUS as u64 != 0;
    match flags & MAP_KIND {
        MAP_SHARED | MAP_SHARED_VALIDATE if anonymous || is(libc::PROT_WRITE) => {
            Off(AsEver::Mapped)
        }
        _ if !is(libc::PROT_EXEC) => match flags & MAP_KIND {
            MAP_SHARED | MAP_SHARED_VALIDATE => Meaning::Shares(fd),
            _ if !anonymous => Meaning::Maps,
            _ if flags & libc::MAP_FIXED as u64 != 0 => Unmaps(at, length),
            _ => Stays,
        },
        // (Code in a file that others change is looked through by nobody.)
        MAP_SHARED | MAP_SHARED_VALIDATE => Off(AsEver::Code),
        _ if anonymous || is(libc::PROT_WRITE) => Off(AsEver::Code),
        _ => Meaning::Loads,
    }
}

fn futex([_, operation, ..]: [u64; 6]) -> Meaning {
    const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;
    // (A thread that wakes another process's tells it something; one that waits is counted by the
    // one that wakes.)
    if operation & PRIVATE != 0 { Stays } else { Leaves }
}

fn fcntl([_, command, ..]: [u64; 6]) -> Meaning {
    const F_GETPIPE_SZ: i32 = libc::F_GETPIPE_SZ;
    match command as i32 {
        libc::F_GETFD | libc::F_SETFD | libc::F_GETFL | libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            Stays
        }
        libc::F_GETOWN | F_GETPIPE_SZ | libc::F_GET_SEALS => Stays,
        _ => Leaves,
    }
}

fn ioctl([fd, request, ..]: [u64; 6]) -> Meaning {
    match request {
        // How much is there; whether it is a terminal, and how large; closed when executing.
        libc::FIONREAD | libc::TCGETS | libc::TIOCGWINSZ => Stays,
        libc::FIOCLEX | libc::FIONCLEX => Stays,
        _ => Meaning::Requests(fd),
    }
}

/// The properties of a file are asked for, with flags as `newfstatat` has them.
fn asks(fd: u64, path: u64, flags: u64) -> Meaning {
    if flags & libc::AT_EMPTY_PATH as u64 != 0 { AsksBy(fd, path) } else { Leaves }
}

fn setsockopt([_, level, name, ..]: [u64; 6]) -> Meaning {
    const TCP_ULP: i32 = 31;
    match (level as i32, name as i32) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => Off(AsEver::Lent),
        (libc::SOL_TCP, TCP_ULP) => Meaning::Wraps,
        _ => Leaves,
    }
}

fn prctl([operation, ..]: [u64; 6]) -> Meaning {
    if operation == PR_SET_VMA {
        return Stays;
    }
    match operation as i32 {
        libc::PR_SET_SECCOMP | PR_SET_SYSCALL_USER_DISPATCH => OwnOff(AsEver::Sandbox),
        libc::PR_SET_NAME | libc::PR_GET_NAME | libc::PR_GET_DUMPABLE | libc::PR_GET_SECCOMP => {
            Stays
        }
        libc::PR_CAPBSET_READ => Stays,
        libc::PR_CAPBSET_DROP
        | libc::PR_SET_SECUREBITS
        | libc::PR_CAP_AMBIENT
        | libc::PR_SET_NO_NEW_PRIVS => Rights,
        _ => Leaves,
    }
}

/// The meaning of the call of this number, with these arguments.
#[must_use]
pub fn meaning(number: u64, args: &[u64; 6]) -> Meaning {
    let [a, b, c, d, e, _] = *args;
    match number as c_long {
        libc::SYS_write => Meaning::Sends(a, Sends::Bytes(b, c)),
        libc::SYS_writev => Meaning::Sends(a, Sends::Buffers(b, c)),
        // (With an address it goes elsewhere.)
        libc::SYS_sendto if e == 0 => sends(a, Sends::Bytes(b, c), d),
        libc::SYS_sendto if d & ZEROCOPY != 0 => Off(AsEver::Lent),
        libc::SYS_sendmsg => sends(a, Sends::Message(b), c),
        libc::SYS_sendmmsg if d & ZEROCOPY != 0 => Off(AsEver::Lent),

        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => Receives(a),
        libc::SYS_recvmmsg | libc::SYS_accept | libc::SYS_accept4 => Receives(a),
        libc::SYS_pread64 | libc::SYS_preadv => ReadsAt(a),
        // (At -1 the position counts.)
        libc::SYS_preadv2 if d as i64 != -1 => ReadsAt(a),

        libc::SYS_mmap => maps(*args),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect if c & libc::PROT_EXEC as u64 != 0 => {
            Off(AsEver::Code)
        }
        libc::SYS_madvise if c == libc::MADV_REMOVE as u64 => Leaves,
        libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_madvise => Stays,
        libc::SYS_munmap => Unmaps(a, b),
        libc::SYS_mremap => Meaning::Moves(a, b, c),
        libc::SYS_brk | libc::SYS_mincore => Stays,
        libc::SYS_mlock | libc::SYS_mlock2 | libc::SYS_munlock | libc::SYS_mlockall => Stays,
        libc::SYS_munlockall | libc::SYS_pkey_alloc | libc::SYS_pkey_free => Stays,
        libc::SYS_shmat => Off(AsEver::Mapped),

        // The kernel tells nobody what it makes durable.
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_syncfs => Asks(a),
        libc::SYS_sync_file_range => Asks(a),

        libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => Stays,
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Stays,
        // (`epoll_ctl` waits: another process may have the same set.)
        libc::SYS_epoll_create | libc::SYS_epoll_create1 => Stays,

        // (A call that looks a path up may ask a process that serves a part of it.)
        libc::SYS_fstat => Asks(a),
        libc::SYS_newfstatat => asks(a, b, d),
        libc::SYS_statx => asks(a, b, c),
        libc::SYS_getcwd => Stays,

        libc::SYS_socket | libc::SYS_socketpair | libc::SYS_pipe | libc::SYS_pipe2 => Stays,
        libc::SYS_eventfd | libc::SYS_eventfd2 | libc::SYS_timerfd_create => Stays,
        // (It tells what was acknowledged, which is no more than what has left.)
        libc::SYS_getsockopt if (b, c) == TCP_INFO => Leaves,
        libc::SYS_dup | libc::SYS_getsockopt | libc::SYS_getsockname => Stays,
        libc::SYS_getpeername => Stays,
        libc::SYS_fcntl => fcntl(*args),
        libc::SYS_ioctl => ioctl(*args),
        libc::SYS_setsockopt => setsockopt(*args),

        libc::SYS_futex => futex(*args),
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask | libc::SYS_rt_sigreturn => Stays,
        libc::SYS_rt_sigpending | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => Stays,
        libc::SYS_sigaltstack | libc::SYS_pause | libc::SYS_restart_syscall => Stays,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_sched_yield => Stays,
        libc::SYS_clock_gettime | libc::SYS_clock_getres | libc::SYS_gettimeofday => Stays,
        libc::SYS_time | libc::SYS_times | libc::SYS_alarm | libc::SYS_setitimer => Stays,
        libc::SYS_getitimer | libc::SYS_timer_settime | libc::SYS_timer_gettime => Stays,
        libc::SYS_timer_getoverrun | libc::SYS_timer_delete => Stays,
        libc::SYS_getpid | libc::SYS_gettid | libc::SYS_getppid | libc::SYS_getuid => Stays,
        libc::SYS_geteuid | libc::SYS_getgid | libc::SYS_getegid | libc::SYS_getgroups => Stays,
        libc::SYS_getresuid | libc::SYS_getresgid | libc::SYS_getpgrp | libc::SYS_getpgid => Stays,
        libc::SYS_getsid | libc::SYS_getcpu | libc::SYS_getrandom | libc::SYS_getrusage => Stays,
        libc::SYS_getrlimit | libc::SYS_sysinfo | libc::SYS_uname | libc::SYS_membarrier => Stays,
        libc::SYS_sched_getaffinity | libc::SYS_sched_getparam => Stays,
        libc::SYS_sched_getscheduler | libc::SYS_getpriority | libc::SYS_capget => Stays,
        libc::SYS_prlimit64 if c == 0 => Stays,
        libc::SYS_personality if a & 0xffff_ffff == PERSONALITY_ASKED => Stays,
        libc::SYS_set_robust_list | libc::SYS_get_robust_list | libc::SYS_rseq => Stays,
        libc::SYS_set_tid_address | libc::SYS_arch_prctl => Stays,

        libc::SYS_exit => Meaning::EndsThread,
        libc::SYS_exit_group => Meaning::Ends,
        libc::SYS_clone => clones(a),
        libc::SYS_clone3 => Meaning::Clones(a),
        libc::SYS_fork => Meaning::Forks,
        libc::SYS_execve | libc::SYS_execveat => Meaning::Executes,

        libc::SYS_prctl => prctl(*args),
        libc::SYS_setuid | libc::SYS_setgid | libc::SYS_setreuid | libc::SYS_setregid => Rights,
        libc::SYS_setresuid | libc::SYS_setresgid | libc::SYS_setfsuid => Rights,
        libc::SYS_setfsgid | libc::SYS_setgroups | libc::SYS_capset => Rights,
        SYS_LANDLOCK_RESTRICT_SELF => Rights,

        libc::SYS_seccomp => OwnOff(AsEver::Sandbox),
        libc::SYS_vmsplice | libc::SYS_userfaultfd => Off(AsEver::Lent),
        // (Memory that can be read may be executed from then on.)
        libc::SYS_personality => Off(AsEver::Code),
        libc::SYS_iopl | libc::SYS_ioperm => Off(AsEver::PastUs),
        _ if OTHER_NUMBERS.contains(&number) => Off(AsEver::PastUs),
        libc::SYS_io_uring_setup | libc::SYS_io_uring_enter | libc::SYS_io_setup => {
            Off(AsEver::PastUs)
        }
        libc::SYS_io_uring_register | libc::SYS_io_submit => Off(AsEver::PastUs),
        // A thread's own descriptors, or namespaces that a process with another thread of ours
        // could not have.
        libc::SYS_unshare | libc::SYS_setns => OwnOff(AsEver::PastUs),
        libc::SYS_close_range if c & CLOSE_RANGE_UNSHARE != 0 => OwnOff(AsEver::PastUs),
        _ => Leaves,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: c_long, args: &[u64]) -> Meaning {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        meaning(number as u64, &all)
    }

    #[test]
    fn what_is_not_known_leaves() {
        assert_eq!(meaning(100_000, &[0; 6]), Leaves);
        assert_eq!(meaning(u64::MAX, &[0; 6]), Leaves);
        for number in [libc::SYS_kill, libc::SYS_close, libc::SYS_openat, libc::SYS_epoll_ctl] {
            assert_eq!(of(number, &[3]), Leaves, "{number}");
        }
        // (A child that is waited for is gone, which others see.)
        for number in [libc::SYS_wait4, libc::SYS_waitid, libc::SYS_sync, libc::SYS_msync] {
            assert_eq!(of(number, &[3]), Leaves, "{number}");
        }
        for number in [libc::SYS_shutdown, libc::SYS_pwrite64, libc::SYS_splice, libc::SYS_lseek] {
            assert_eq!(of(number, &[3]), Leaves, "{number}");
        }
    }

    #[test]
    fn only_plain_messages_without_an_address_go_into_queues() {
        let send = |flags: i32, address| of(libc::SYS_sendto, &[3, 8, 9, flags as u64, address, 0]);
        assert_eq!(send(0, 0), Meaning::Sends(3, Sends::Bytes(8, 9)));
        assert_eq!(send(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT, 0), send(0, 0));
        assert_eq!(send(libc::MSG_OOB, 0), Leaves);
        assert_eq!(send(libc::MSG_MORE, 0), Leaves);
        assert_eq!(send(0, 1), Leaves);
        assert_eq!(send(libc::MSG_ZEROCOPY, 0), Off(AsEver::Lent));
        assert_eq!(send(libc::MSG_ZEROCOPY, 1), Off(AsEver::Lent));
        assert_eq!(of(libc::SYS_sendmsg, &[3, 8, 0]), Meaning::Sends(3, Sends::Message(8)));
        assert_eq!(of(libc::SYS_sendmsg, &[3, 8, ZEROCOPY]), Off(AsEver::Lent));
        assert_eq!(of(libc::SYS_writev, &[3, 8, 2]), Meaning::Sends(3, Sends::Buffers(8, 2)));
    }

    #[test]
    fn a_mapping_that_shares_or_makes_code_ends_it() {
        use libc::{
            MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, PROT_EXEC, PROT_READ,
            PROT_WRITE,
        };
        let map =
            |prot: i32, flags: i32| of(libc::SYS_mmap, &[0, 4096, prot as u64, flags as u64, 7, 0]);
        assert_eq!(map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS), Stays);
        assert_eq!(map(PROT_READ, MAP_SHARED), Meaning::Shares(7));
        assert_eq!(map(0, MAP_SHARED_VALIDATE), Meaning::Shares(7));
        assert_eq!(map(PROT_READ | PROT_WRITE, MAP_SHARED), Off(AsEver::Mapped));
        assert_eq!(map(PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE), Off(AsEver::Mapped));
        assert_eq!(map(PROT_READ, MAP_SHARED | MAP_ANONYMOUS), Off(AsEver::Mapped));
        assert_eq!(map(PROT_READ | PROT_EXEC, MAP_PRIVATE), Meaning::Loads);
        assert_eq!(map(PROT_READ | PROT_EXEC, MAP_SHARED), Off(AsEver::Code));
        assert_eq!(map(PROT_WRITE | PROT_EXEC, MAP_PRIVATE), Off(AsEver::Code));
        assert_eq!(map(PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS), Off(AsEver::Code));
        assert_eq!(of(libc::SYS_personality, &[0x0040_0000]), Off(AsEver::Code));
        assert_eq!(of(libc::SYS_personality, &[0xffff_ffff]), Stays);
        let protect = |prot: i32| of(libc::SYS_mprotect, &[0, 4096, prot as u64]);
        assert_eq!(protect(PROT_READ | PROT_EXEC), Off(AsEver::Code));
        assert_eq!(protect(PROT_READ | PROT_WRITE), Stays);
    }

    #[test]
    fn what_ends_a_mapping_is_known_by_its_place() {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = |flags: i32| of(libc::SYS_mmap, &[4096, 8192, 1, flags as u64, 7, 0]);
        assert_eq!(map(libc::MAP_PRIVATE), Meaning::Maps);
        assert_eq!(map(kind | libc::MAP_FIXED), Unmaps(4096, 8192));
        assert_eq!(map(kind | libc::MAP_FIXED_NOREPLACE), Stays);
        assert_eq!(of(libc::SYS_munmap, &[4096, 8192]), Unmaps(4096, 8192));
        assert_eq!(of(libc::SYS_mremap, &[4096, 8192, 99]), Meaning::Moves(4096, 8192, 99));
    }

    #[test]
    fn a_path_leaves_and_a_descriptor_is_asked() {
        const EMPTY: u64 = libc::AT_EMPTY_PATH as u64;
        for number in [libc::SYS_stat, libc::SYS_access, libc::SYS_readlink, libc::SYS_statfs] {
            assert_eq!(of(number, &[8]), Leaves, "{number}");
        }
        assert_eq!(of(libc::SYS_newfstatat, &[3, 8, 9, 0]), Leaves);
        assert_eq!(of(libc::SYS_newfstatat, &[3, 8, 9, EMPTY]), AsksBy(3, 8));
        assert_eq!(of(libc::SYS_statx, &[3, 8, 0, 0]), Leaves);
        assert_eq!(of(libc::SYS_statx, &[3, 8, EMPTY, 0]), AsksBy(3, 8));
        assert_eq!((of(libc::SYS_fstat, &[3]), of(libc::SYS_fsync, &[3])), (Asks(3), Asks(3)));
        assert_eq!(of(libc::SYS_ioctl, &[3, libc::TCGETS]), Stays);
        assert_eq!(of(libc::SYS_ioctl, &[3, 0xae80]), Meaning::Requests(3));
        assert_eq!(of(libc::SYS_ioctl, &[3, libc::TIOCOUTQ]), Meaning::Requests(3));
        assert_eq!(of(libc::SYS_getsockopt, &[3, TCP_INFO.0, TCP_INFO.1]), Leaves);
        assert_eq!(of(libc::SYS_getsockopt, &[3, 1, libc::SO_ERROR as u64]), Stays);
        assert_eq!(of(libc::SYS_fcntl, &[3, libc::F_GETLK as u64]), Leaves);
    }

    #[test]
    fn a_thread_stays_and_a_child_leaves() {
        use libc::{CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD, CLONE_VFORK, CLONE_VM};
        let thread = CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
        assert_eq!(clones(thread as u64), Stays);
        assert_eq!(clones((thread & !CLONE_FILES) as u64), OwnOff(AsEver::PastUs));
        assert_eq!(clones((CLONE_VM | CLONE_VFORK | libc::SIGCHLD) as u64), Leaves);
        assert_eq!(of(libc::SYS_clone, &[libc::SIGCHLD as u64]), Meaning::Forks);
        assert_eq!(of(libc::SYS_vfork, &[]), Leaves);
        assert_eq!(of(libc::SYS_clone3, &[64, 88]), Meaning::Clones(64));
    }

    #[test]
    fn who_wakes_another_process_or_may_be_woken_by_one_waits() {
        let futex = |operation: i32| of(libc::SYS_futex, &[64, operation as u64, 1]);
        assert_eq!(futex(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG), Stays);
        assert_eq!(futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG), Stays);
        assert_eq!(futex(libc::FUTEX_WAIT), Leaves);
        assert_eq!(futex(libc::FUTEX_WAKE), Leaves);
        assert_eq!(futex(libc::FUTEX_WAKE | libc::FUTEX_CLOCK_REALTIME), Leaves);
    }

    #[test]
    fn what_goes_past_libc_ends_it() {
        for (number, args, reason) in [
            (libc::SYS_io_uring_setup, [8, 0, 0], AsEver::PastUs),
            (libc::SYS_io_setup, [8, 0, 0], AsEver::PastUs),
            (libc::SYS_vmsplice, [1, 0, 1], AsEver::Lent),
            (libc::SYS_userfaultfd, [0, 0, 0], AsEver::Lent),
            (libc::SYS_iopl, [3, 0, 0], AsEver::PastUs),
            (libc::SYS_getpid | 1 << 30, [0, 0, 0], AsEver::PastUs),
            (libc::SYS_shmat, [1, 0, 0], AsEver::Mapped),
        ] {
            assert_eq!(of(number, &args), Off(reason), "{number}");
        }
        for (number, args, reason) in [
            (libc::SYS_seccomp, [1, 0, 0], AsEver::Sandbox),
            (libc::SYS_prctl, [libc::PR_SET_SECCOMP as u64, 2, 0], AsEver::Sandbox),
            (libc::SYS_prctl, [59, 1, 0], AsEver::Sandbox),
            (libc::SYS_unshare, [CLONE_FILES, 0, 0], AsEver::PastUs),
            (libc::SYS_close_range, [3, 9, CLOSE_RANGE_UNSHARE], AsEver::PastUs),
        ] {
            assert_eq!(of(number, &args), OwnOff(reason), "{number}");
        }
        assert_eq!(of(libc::SYS_close_range, &[3, 9, 0]), Leaves);
        assert_eq!(of(libc::SYS_setuid, &[0]), Rights);
        assert_eq!(of(libc::SYS_execve, &[8]), Meaning::Executes);
        assert_eq!(of(libc::SYS_prctl, &[libc::PR_SET_NAME as u64]), Stays);
        assert_eq!(of(libc::SYS_setsockopt, &[3, 1, 60]), Off(AsEver::Lent));
        assert_eq!(of(libc::SYS_setsockopt, &[3, 6, 31]), Meaning::Wraps);
        assert_eq!(of(libc::SYS_setsockopt, &[3, 6, 1]), Leaves);
    }

    #[test]
    fn reading_by_the_position_may_be_an_answer_and_at_a_place_is_none() {
        assert_eq!(of(libc::SYS_read, &[3]), Receives(3));
        assert_eq!(of(libc::SYS_recvmsg, &[3]), Receives(3));
        assert_eq!(of(libc::SYS_pread64, &[3]), ReadsAt(3));
        assert_eq!(of(libc::SYS_preadv2, &[3, 0, 1, -1i64 as u64]), Leaves);
        assert_eq!(of(libc::SYS_preadv2, &[3, 0, 1, 5]), ReadsAt(3));
    }
}
