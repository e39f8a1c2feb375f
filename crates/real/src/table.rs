//! Every libc function that uncopy's libraries export in its place: the one list of them. A row is
//! the source of all that can be derived from it:
//!
//! | what | where |
//! | --- | --- |
//! | the function behind ours, by its signature | `real/src/lib.rs` |
//! | names that mean the same, each a jump | `preload/src/hooks/other_names.rs` |
//! | the call by its number, through `syscall(2)` | `preload/src/hooks/syscall.rs` |
//! | what the libraries export, and `docs/interposed.md` | `preload/tests/interposed` |
//!
//! To interpose another function, add its row and write it; the test says what is missing.
//! A row consists of
//!
//! - its group in the document, the module of `preload/src/hooks` that has it, its name;
//! - in brackets names that mean the same; names that have functions or ways in of their own;
//! - arguments and result, where ours calls the one behind it; `else`: what it answers while the
//!   allocator is being looked up;
//! - `by` its number, with the words of that call that are its arguments, where it takes them as
//!   they are (`if log`: while a log is in use); `not`, why it has none; `-`: there is no such
//!   call;
//! - the libraries that have it; why it is interposed.

/// Hands all rows to the macro `$then`, behind what else it is to be given.
#[macro_export]
macro_rules! with_table {
    ($then:ident { $($more:tt)* }) => { $then! { { $($more)* }
    Copy copy::memcpy [] [__memcpy_chk];
        -; Both, "a copy of input makes views instead";
    Copy copy::memmove [] [__memmove_chk];
        -; Both, "as memcpy";
    Copy copy::mempcpy [__mempcpy] [__mempcpy_chk];
        -; Both, "as memcpy";
    Copy copy::bcopy [] [];
        -; Both, "as memmove";
    Copy copy::memset [] [__memset_chk];
        -; Both,
        "zeros that fill pages of views take their place; what is set is no input any more";

    Input input::read [__read] [__read_chk] (fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t;
        by SYS_read(0 1 2); Both, "what arrives is input: received into extents, or remembered";
    Input input::readv [] [] (fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
        by SYS_readv(0 1 2); Both, "input";
    Input input::pread [__pread64] [pread64 __pread_chk __pread64_chk]
        (fd: c_int, buf: *mut c_void, n: size_t, at: off_t) -> ssize_t;
        by SYS_pread64(0 1 2 3); Both, "input; /proc/self/mem";
    Input input::preadv [preadv64] []
        (fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t;
        by SYS_preadv(0 1 2 3); Both, "input; /proc/self/mem";
    Input input::preadv2 [preadv64v2] []
        (fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
        by SYS_preadv2(0 1 2 3 5); Both, "input; /proc/self/mem";
    Input input::recv [] [__recv_chk]
        (fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t;
        -; Both, "input (its number is recvfrom's)";
    Input input::recvfrom [] [__recvfrom_chk]
        (fd: c_int, buf: *mut c_void, n: size_t, flags: c_int, addr: *mut sockaddr,
            len: *mut socklen_t) -> ssize_t;
        by SYS_recvfrom(0 1 2 3 4 5); Both, "input";
    Input input::recvmsg [] [] (fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
        by SYS_recvmsg(0 1 2); Both, "input";
    Input input::recvmmsg [] []
        (fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int,
            timeout: *mut timespec) -> c_int;
        by SYS_recvmmsg(0 1 2 3 4); Both, "input, remembered";
    Input profile::fread [] [__fread_chk _IO_fread];
        -; Profile, "input, seen from outside of stdio";
    Input profile::fread_unlocked [] [__fread_unlocked_chk];
        -; Profile, "as fread";

    Output output::write [__write] [] (fd: c_int, buf: *const c_void, n: size_t) -> ssize_t;
        by SYS_write(0 1 2); Both, "views are gathered from extents, or sent by reference";
    Output output::writev [] [] (fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
        by SYS_writev(0 1 2); Both, "as write";
    Output output::pwrite [__pwrite64] [pwrite64]
        (fd: c_int, buf: *const c_void, n: size_t, at: off_t) -> ssize_t;
        by SYS_pwrite64(0 1 2 3); Both, "as write; /proc/self/mem";
    Output output::pwritev [pwritev64] []
        (fd: c_int, iov: *const iovec, count: c_int, at: off_t) -> ssize_t;
        by SYS_pwritev(0 1 2 3); Both, "as write; /proc/self/mem";
    Output output::pwritev2 [pwritev64v2] []
        (fd: c_int, iov: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
        by SYS_pwritev2(0 1 2 3 5); Both, "as write; /proc/self/mem";
    Output output::send [__send] []
        (fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t;
        -; Both, "as write (its number is sendto's)";
    Output output::sendto [] []
        (fd: c_int, buf: *const c_void, n: size_t, flags: c_int, addr: *const sockaddr,
            len: socklen_t) -> ssize_t;
        by SYS_sendto(0 1 2 3 4 5); Both, "as write; MSG_ZEROCOPY gives pages to the kernel";
    Output output::sendmsg [] [] (fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
        by SYS_sendmsg(0 1 2); Both, "as sendto";
    Output output::sendmmsg [] []
        (fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
        by SYS_sendmmsg(0 1 2 3); Both, "as sendto";
    Output output::vmsplice [] []
        (fd: c_int, iov: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
        by SYS_vmsplice(0 1 2 3); Both, "gives pages to a pipe: they stay where they are";
    Output profile::fwrite [] [_IO_fwrite];
        -; Profile, "output, seen from outside of stdio";
    Output profile::fwrite_unlocked [] [];
        -; Profile, "as fwrite";
    Output sockets::sendfile [] [sendfile64]
        (to: c_int, from: c_int, at: *mut off_t, n: size_t) -> ssize_t;
        by SYS_sendfile(0 1 2 3); Both,
        "data that the kernel moves; over a connection within this host by Linux";
    Output sockets::splice [] []
        (from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, n: size_t,
            flags: c_uint) -> ssize_t;
        by SYS_splice(0 1 2 3 4 5); Both, "as sendfile";
    Output profile::tee [] [];
        not "only counted"; Profile, "data that the kernel moves";
    Output files::copy_file_range [] []
        (from: c_int, at: *mut off_t, to: c_int, there: *mut off_t, n: size_t,
            flags: c_uint) -> ssize_t;
        by SYS_copy_file_range(0 1 2 3 4 5) if log; Both,
        "data that the kernel moves; what is held of a file comes home first (`--log`)";
    Output files::fsync [] [] (fd: c_int) -> c_int;
        by SYS_fsync(0) if log; Run, "what is held of a file becomes durable (`--log`)";
    Output files::fdatasync [] [] (fd: c_int) -> c_int;
        by SYS_fdatasync(0) if log; Run, "as fsync";
    Output files::sync [] [] () -> ();
        by SYS_sync; Run, "what is held comes home first";
    Output files::syncfs [] [] (fd: c_int) -> c_int;
        by SYS_syncfs(0) if log; Run, "as sync";
    Output files::sync_file_range [] [] (fd: c_int, at: off_t, n: off_t, flags: c_uint) -> c_int;
        by SYS_sync_file_range(0 1 2 3) if log; Run, "as copy_file_range";
    Output files::ftruncate [] [ftruncate64] (fd: c_int, to: off_t) -> c_int;
        by SYS_ftruncate(0 1) if log; Run, "as copy_file_range";
    Output files::fallocate [] [fallocate64] (fd: c_int, mode: c_int, at: off_t, n: off_t) -> c_int;
        by SYS_fallocate(0 1 2 3) if log; Run, "as copy_file_range";
    Output files::posix_fallocate [] [posix_fallocate64] (fd: c_int, at: off_t, n: off_t) -> c_int;
        -; Run, "as copy_file_range";
    Output files::fchmod [] [] (fd: c_int, mode: c_uint) -> c_int;
        by SYS_fchmod(0 1) if log; Run, "as copy_file_range; the next fsync is the kernel's";
    Output files::fchown [] [] (fd: c_int, user: uid_t, group: gid_t) -> c_int;
        by SYS_fchown(0 1 2) if log; Run, "as fchmod";
    Output files::futimens [] [] (fd: c_int, times: *const timespec) -> c_int;
        -; Run, "as fchmod";
    Output files::futimes [] [] (fd: c_int, times: *const timeval) -> c_int;
        -; Run, "as fchmod";
    Output files::fsetxattr [] []
        (fd: c_int, name: *const c_char, value: *const c_void, n: size_t, flags: c_int) -> c_int;
        by SYS_fsetxattr(0 1 2 3 4) if log; Run, "as fchmod";
    Output files::fremovexattr [] [] (fd: c_int, name: *const c_char) -> c_int;
        by SYS_fremovexattr(0 1) if log; Run, "as fchmod";
    Output files::utimensat [] []
        (dir: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
        by SYS_utimensat(0 1 2 3) if log; Run, "as fchmod, without a path";
    Output files::lseek [] [lseek64 __lseek] (fd: c_int, at: off_t, whence: c_int) -> off_t;
        by SYS_lseek(0 1 2) if log; Run, "a held file's position and end are not the kernel's";

    Memory mapping::mmap [] [mmap64]
        (addr: *mut c_void, n: size_t, prot: c_int, flags: c_int, fd: c_int,
            at: off_t) -> *mut c_void;
        by SYS_mmap(0 1 2 3 4 5); Both,
        "addresses that come back before their unmapping was reported";
    Memory mapping::munmap [] [] (addr: *mut c_void, n: size_t) -> c_int;
        by SYS_munmap(0 1); Both, "leaves the books before another thread can have the addresses";
    Memory remap::mremap [] []
        (addr: *mut c_void, old: size_t, new: size_t, flags: c_int,
            to: *mut c_void) -> *mut c_void;
        by SYS_mremap(0 1 2 3 4); Both, "the kernel refuses ranges of several mappings";
    Memory advice::madvise [] [] (addr: *mut c_void, n: size_t, advice: c_int) -> c_int;
        by SYS_madvise(0 1 2); Both, "what children see, how pages are made";
    Memory advice::process_madvise [] []
        (process: c_int, iov: *const iovec, count: size_t, advice: c_int,
            flags: c_uint) -> ssize_t;
        by SYS_process_madvise(0 1 2 3 4); Run, "as madvise, of this process";
    Memory advice::mincore [] [] (addr: *mut c_void, n: size_t, answer: *mut c_uchar) -> c_int;
        by SYS_mincore(0 1 2); Run, "pages that only elision made missing are there";
    Memory protection::mprotect [] [] (addr: *mut c_void, n: size_t, prot: c_int) -> c_int;
        by SYS_mprotect(0 1 2); Both, "memory that must not be reached is not ours to serve";
    Memory protection::pkey_mprotect [] []
        (addr: *mut c_void, n: size_t, prot: c_int, key: c_int) -> c_int;
        by SYS_pkey_mprotect(0 1 2 3); Both, "as mprotect";
    Memory protection::mlock [] [] (addr: *const c_void, n: size_t) -> c_int;
        by SYS_mlock(0 1); Run, "ends what was known of a block; our own mappings are left out";
    Memory protection::mlock2 [] [] (addr: *const c_void, n: size_t, flags: c_uint) -> c_int;
        by SYS_mlock2(0 1 2); Run, "as mlock";
    Memory limits::mlockall [] [] (flags: c_int) -> c_int;
        by SYS_mlockall(0); Both, "the pool must not be locked; eliding ends";
    Memory limits::setrlimit [] [setrlimit64] (resource: c_uint, new: *const rlimit) -> c_int;
        by SYS_setrlimit(0 1); Run, "our address space must not count against a limit";
    Memory limits::prlimit [] [prlimit64]
        (pid: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int;
        by SYS_prlimit64(0 1 2 3); Run, "as setrlimit";
    Memory mapping::shmat [] [] (id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void;
        by SYS_shmat(0 1 2); Run, "SHM_REMAP unmaps without a report";
    Memory ioctl::ioctl [] [] (fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
        by SYS_ioctl(0 1 2); Run, "memory registered with the program's own userfaultfd";

    Process process::_Fork [] [];
        not "only counted"; Both, "fork without its handlers: all memory is made ordinary";
    Process process::clone [__clone] []
        (f: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void, ptid: *mut c_void,
            tls: *mut c_void, ctid: *mut c_void) -> c_int;
        by SYS_clone; Both, "without CLONE_VM a fork; else words that the kernel writes";
    Process process::_exit [_Exit] [] (status: c_int) -> !;
        not "only counted"; Run, "`--verbose`'s summary is said";
    Process process::execve [] []
        (path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        by SYS_execve(0 1 2); Run, "keeps us preloaded where the program makes an environment";
    Process process::execv [] [];
        -; Run, "as execve";
    Process process::execvp [] [];
        -; Run, "as execve";
    Process process::execvpe [] []
        (file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        -; Run, "as execve";
    Process process::execl [] [];
        -; Run, "as execve";
    Process process::execlp [] [];
        -; Run, "as execve";
    Process process::execle [] [];
        -; Run, "as execve";
    Process process::execveat [] []
        (dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char,
            flags: c_int) -> c_int;
        by SYS_execveat(0 1 2 3 4); Run, "as execve";
    Process process::fexecve [] []
        (fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        -; Run, "as execve";
    Process process::posix_spawn [] []
        (pid: *mut c_int, path: *const c_char, acts: *const c_void, attr: *const c_void,
            argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        -; Run, "as execve";
    Process process::posix_spawnp [] []
        (pid: *mut c_int, file: *const c_char, acts: *const c_void, attr: *const c_void,
            argv: *const *const c_char, envp: *const *const c_char) -> c_int;
        -; Run, "as execve";
    Process process::posix_spawn_file_actions_adddup2 [] []
        (acts: *mut c_void, old: c_int, new: c_int) -> c_int;
        -; Run, "a connection that a child is to have is Linux's from then on (`--tcp`)";
    Process cancelling::pthread_cancel [] [] (thread: libc::pthread_t) -> c_int;
        -; Run, "who waits for a ring is woken, and ends (`--tcp`)";
    Process process::pthread_mutex_init [__pthread_mutex_init] []
        (mutex: *mut libc::pthread_mutex_t, attr: *const libc::pthread_mutexattr_t) -> c_int;
        -; Run, "robust and PI locks are written by the kernel, which waits for no fault";
    Process syscall::syscall [] []
        (n: isize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize;
        -; Both, "calls by number";

    Rights rights::setuid [] [] (user: uid_t) -> c_int;
        by SYS_setuid; Run, "our threads follow";
    Rights rights::seteuid [] [] (user: uid_t) -> c_int;
        -; Run, "our threads follow";
    Rights rights::setreuid [] [] (real: uid_t, effective: uid_t) -> c_int;
        by SYS_setreuid; Run, "our threads follow";
    Rights rights::setresuid [] [] (real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
        by SYS_setresuid; Run, "our threads follow";
    Rights rights::setgid [] [] (group: gid_t) -> c_int;
        by SYS_setgid; Run, "our threads follow";
    Rights rights::setegid [] [] (group: gid_t) -> c_int;
        -; Run, "our threads follow";
    Rights rights::setregid [] [] (real: gid_t, effective: gid_t) -> c_int;
        by SYS_setregid; Run, "our threads follow";
    Rights rights::setresgid [] [] (real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
        by SYS_setresgid; Run, "our threads follow";
    Rights rights::setgroups [] [] (count: size_t, groups: *const gid_t) -> c_int;
        by SYS_setgroups; Run, "our threads follow";
    Rights rights::initgroups [] [] (user: *const c_char, group: gid_t) -> c_int;
        -; Run, "our threads follow";
    Rights rights::capset [] [] (header: *mut c_void, data: *const c_void) -> c_int;
        by SYS_capset; Run, "our threads follow";
    Rights rights::chroot [] [] (path: *const c_char) -> c_int;
        by SYS_chroot; Run, "our threads follow";
    Rights rights::pivot_root [] [] (new: *const c_char, old: *const c_char) -> c_int;
        by SYS_pivot_root; Run, "our threads follow";
    Rights rights::unshare [] [] (flags: c_int) -> c_int;
        by SYS_unshare(0); Run, "our threads follow, or are not there meanwhile";
    Rights rights::setns [] [] (fd: c_int, kind: c_int) -> c_int;
        by SYS_setns(0 1); Run, "as unshare";
    Rights rights::prctl [] [] (op: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
        by SYS_prctl(0 1 2 3 4); Run, "sandboxes, capabilities that are dropped";

    Signals signals::sigaction [] [__sigaction]
        (signal: c_int, new: *const Sigaction, old: *mut Sigaction) -> c_int;
        by SYS_rt_sigaction; Run, "handlers are wrapped: put off while their thread holds our lock";
    Signals signals::signal [] [bsd_signal ssignal] (signal: c_int, handler: size_t) -> size_t;
        -; Run, "as sigaction";
    Signals signals::sysv_signal [] [__sysv_signal] (signal: c_int, handler: size_t) -> size_t;
        -; Run, "as sigaction";
    Signals signals::sigset [] [] (signal: c_int, handler: size_t) -> size_t;
        -; Run, "as sigaction";
    Signals signals::sigignore [] [] (signal: c_int) -> c_int;
        -; Run, "as sigaction";
    Signals signals::siginterrupt [] [] (signal: c_int, interrupt: c_int) -> c_int;
        -; Run, "what signal installs later, and sigaction says";
    Signals signals::sigaltstack [] [] (new: *const stack_t, old: *mut stack_t) -> c_int;
        by SYS_sigaltstack(0 1); Run, "the kernel writes frames there: it stays resident";

    Descriptors descriptors::close [__close] [] (fd: c_int) -> c_int;
        by SYS_close(0); Run, "spares ours";
    Descriptors descriptors::close_range [] [] (first: c_uint, last: c_uint, flags: c_int) -> c_int;
        by SYS_close_range(0 1 2); Run, "spares ours";
    Descriptors descriptors::closefrom [] [] (first: c_int) -> ();
        -; Run, "spares ours";
    Descriptors descriptors::dup [] [] (old: c_int) -> c_int;
        by SYS_dup(0); Run, "a connection within this host has several numbers";
    Descriptors descriptors::pidfd_getfd [] [];
        by SYS_pidfd_getfd(0 1 2); Run, "as dup, of this process' own";
    Descriptors descriptors::fcntl [__fcntl] [fcntl64]
        (fd: c_int, command: c_int, argument: usize) -> c_int;
        by SYS_fcntl(0 1 2); Run, "as dup; whether calls wait";
    Descriptors descriptors::dup2 [__dup2] [] (old: c_int, new: c_int) -> c_int;
        by SYS_dup2(0 1); Run, "ours make way";
    Descriptors files::open [] [open64 __open_2 __open64_2 __open __open64]
        (path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
        by SYS_open(0 1 2) if log; Run, "files whose appends may be held (`--log`)";
    Descriptors files::openat [] [openat64 __openat_2 __openat64_2]
        (dir: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
        by SYS_openat(0 1 2 3) if log; Run, "as open";
    Descriptors files::creat [] [creat64] (path: *const c_char, mode: c_uint) -> c_int;
        by SYS_creat(0 1) if log; Run, "as open";
    Descriptors files::fstat [] [fstat64 __fxstat __fxstat64]
        (fd: c_int, to: *mut libc::stat) -> c_int;
        by SYS_fstat(0 1) if log; Run, "a held file is longer than the kernel knows";
    Descriptors files::fstatat [] [fstatat64 __fxstatat __fxstatat64]
        (dir: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) -> c_int;
        by SYS_newfstatat(0 1 2 3) if log; Run, "as fstat, with AT_EMPTY_PATH";
    Descriptors files::statx [] []
        (dir: c_int, path: *const c_char, flags: c_int, mask: c_uint,
            to: *mut libc::statx) -> c_int;
        by SYS_statx(0 1 2 3 4) if log; Run, "as fstatat";
    Descriptors files::rename [] [] (old: *const c_char, new: *const c_char) -> c_int;
        by SYS_rename(0 1) if log; Run, "recovery finds a held file by its name";
    Descriptors files::renameat [] []
        (from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int;
        by SYS_renameat(0 1 2 3) if log; Run, "as rename";
    Descriptors files::renameat2 [] []
        (from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint) -> c_int;
        by SYS_renameat2(0 1 2 3 4) if log; Run, "as rename";
    Descriptors descriptors::dup3 [] [] (old: c_int, new: c_int, flags: c_int) -> c_int;
        by SYS_dup3(0 1 2); Run, "ours make way";

    Connections sockets::connect [__connect] []
        (fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
        by SYS_connect(0 1 2); Run,
        "over loopback: not paced, where output goes by reference; within this host: a ring";
    Connections sockets::listen [] [] (fd: c_int, backlog: c_int) -> c_int;
        by SYS_listen(0 1); Run, "as connect, not paced";
    Connections sockets::accept [] []
        (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
        by SYS_accept(0 1 2); Run, "as connect";
    Connections sockets::accept4 [] []
        (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
        by SYS_accept4(0 1 2 3); Run, "as connect";
    Connections sockets::shutdown [] [] (fd: c_int, how: c_int) -> c_int;
        by SYS_shutdown(0 1); Run, "the end of a stream comes after what is in its ring";
    Connections sockets::getpeername [] []
        (fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
        by SYS_getpeername(0 1 2); Run,
        "a peer that was killed with bytes unread in its ring is gone";
    Connections sockets::getsockopt [] []
        (fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
        by SYS_getsockopt(0 1 2 3 4); Run,
        "TCP_INFO of a connection to another host (`--tcp`): Linux knows its stand-in only";
    Connections sockets::setsockopt [] []
        (fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
        by SYS_setsockopt(0 1 2 3 4); Run, "how long calls wait for a ring";
    Connections stdio::fdopen [_IO_fdopen] [] (fd: c_int, mode: *const c_char) -> *mut c_void;
        -; Run, "stdio reads and writes inside libc: the connection is Linux's";
    Connections stdio::fclose [_IO_fclose] [] (stream: *mut c_void) -> c_int;
        -; Run, "stdio closes numbers inside libc";
    Connections stdio::freopen [] [freopen64]
        (path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
        -; Run, "as fclose";
    Connections stdio::dprintf [] [__dprintf_chk];
        -; Run, "stdio writes inside libc: by Linux";
    Connections stdio::vdprintf [] [__vdprintf_chk]
        (fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
        -; Run, "as dprintf";
    Connections stdio::aio_read [] [aio_read64] (request: *mut c_void) -> c_int;
        -; Run, "libc's own threads read and write inside it: the connection is Linux's";
    Connections stdio::aio_write [] [aio_write64] (request: *mut c_void) -> c_int;
        -; Run, "as aio_read";
    Connections stdio::aio_fsync [] [aio_fsync64] (operation: c_int, request: *mut c_void) -> c_int;
        -; Run, "as aio_read";
    Connections stdio::lio_listio [] [lio_listio64]
        (mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int;
        -; Run, "as aio_read";
    Connections waiting::poll [__poll] [__poll_chk]
        (fds: *mut pollfd, count: c_ulong, timeout: c_int) -> c_int;
        by SYS_poll(0 1 2); Run, "rings that have news";
    Connections waiting::ppoll [] [__ppoll_chk]
        (fds: *mut pollfd, count: c_ulong, timeout: *const timespec,
            mask: *const sigset_t) -> c_int;
        by SYS_ppoll(0 1 2 3); Run, "as poll";
    Connections waiting::select [__select] []
        (n: c_int, r: *mut fd_set, w: *mut fd_set, x: *mut fd_set,
            timeout: *mut timeval) -> c_int;
        by SYS_select(0 1 2 3 4); Run, "as poll";
    Connections waiting::pselect [] []
        (n: c_int, r: *mut fd_set, w: *mut fd_set, x: *mut fd_set, timeout: *const timespec,
            mask: *const sigset_t) -> c_int;
        by SYS_pselect6; Run, "as poll";
    Connections waiting::epoll_create [] [] (size: c_int) -> c_int;
        by SYS_epoll_create(0); Run, "as poll";
    Connections waiting::epoll_create1 [] [] (flags: c_int) -> c_int;
        by SYS_epoll_create1(0); Run, "as poll";
    Connections waiting::epoll_ctl [] []
        (set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
        by SYS_epoll_ctl(0 1 2 3); Run, "as poll";
    Connections waiting::epoll_wait [] []
        (set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
        by SYS_epoll_wait(0 1 2 3); Run, "as poll";
    Connections waiting::epoll_pwait [] []
        (set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int,
            mask: *const sigset_t) -> c_int;
        by SYS_epoll_pwait(0 1 2 3 4); Run, "as poll";
    Connections waiting::epoll_pwait2 [] []
        (set: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec,
            mask: *const sigset_t) -> c_int;
        by SYS_epoll_pwait2(0 1 2 3 4); Run, "as poll";
    Connections ioctl::sockatmark [] [];
        -; Run, "what a ring has comes before Linux' mark (`--tcp`)";

    Allocator allocate::malloc [] [] (n: size_t) -> *mut c_void, else before_allocators(n);
        -; Run, "large blocks are the twin allocator's";
    Allocator allocate::calloc [] []
        (n: size_t, each: size_t) -> *mut c_void, else before_allocators(n.saturating_mul(each));
        -; Run, "as malloc";
    Allocator allocate::memalign [] []
        (align: size_t, n: size_t) -> *mut c_void, else core::ptr::null_mut();
        -; Run, "as malloc";
    Allocator allocate::aligned_alloc [] []
        (align: size_t, n: size_t) -> *mut c_void, else core::ptr::null_mut();
        -; Run, "as malloc";
    Allocator allocate::posix_memalign [] []
        (to: *mut *mut c_void, align: size_t, n: size_t) -> c_int, else libc::ENOMEM;
        -; Run, "as malloc";
    Allocator allocate::realloc [] []
        (p: *mut c_void, n: size_t) -> *mut c_void, else core::ptr::null_mut();
        -; Both, "blocks grow by views";
    Allocator allocate::reallocarray [] []
        (p: *mut c_void, n: size_t, each: size_t) -> *mut c_void, else core::ptr::null_mut();
        -; Both, "as realloc";
    Allocator allocate::free [cfree] [] (p: *mut c_void) -> (), else Default::default();
        -; Both, "ends the views of a block";
    Allocator allocate::free_sized [] [free_aligned_sized];
        -; Run, "as free (C23)";
    Allocator allocate::__libc_free [] [] (p: *mut c_void) -> ();
        -; Run, "a wrapper's free, of what our malloc gave";
    Allocator allocate::__libc_realloc [] [] (p: *mut c_void, n: size_t) -> *mut c_void;
        -; Run, "a wrapper's realloc, of what our malloc gave";
    Allocator allocate::malloc_usable_size [] [] (p: *mut c_void) -> size_t, else 0;
        -; Run, "the twin's blocks are its own";
    } };
}
