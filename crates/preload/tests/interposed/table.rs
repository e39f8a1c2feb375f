//! Every libc function that uncopy's libraries export in its place: the one list of them. To
//! interpose another one, add its row here, run the test (it says what else is missing: second
//! names, numbers), then `UPDATE=1` it, which writes docs/interposed.md.

/// What a function is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Group {
    Copy,
    Input,
    Output,
    Memory,
    Process,
    Rights,
    Signals,
    Descriptors,
    Connections,
    Allocator,
}
use Group::*;

/// Whether a call of the function by its number, through `syscall(2)`, reaches libuncopy's shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// It is no system call.
    None,
    /// By this name (`SYS_...`).
    By(&'static str),
    /// It is not, for this reason.
    Not(&'static str),
}
use Number::{By, Not};

/// In which of the libraries a function is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// In both.
    Both,
    /// In `libuncopy.so`.
    Run,
    /// In `libuncopy_profile.so`.
    Profile,
}
use Where::{Both, Profile, Run};

impl Where {
    /// Whether libuncopy.so (`profile`: libuncopy_profile.so) has it.
    pub fn is_in(self, profile: bool) -> bool {
        self == Both || (self == Profile) == profile
    }
}

/// A function, and its other names: `*64`, `__*_chk`, aliases.
pub struct Row {
    pub group: Group,
    pub name: &'static str,
    pub others: &'static [&'static str],
    pub number: Number,
    pub place: Where,
    pub why: &'static str,
}

const fn row(
    group: Group,
    name: &'static str,
    others: &'static [&'static str],
    number: Number,
    place: Where,
    why: &'static str,
) -> Row {
    Row { group, name, others, number, place, why }
}

const IS_COUNTED: &str = "only counted";

/// The functions.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    row(Copy, "memcpy", &["__memcpy_chk"], Number::None, Both, "a copy of input makes views instead"),
    row(Copy, "memmove", &["__memmove_chk"], Number::None, Both, "as memcpy"),
    row(Copy, "mempcpy", &["__mempcpy_chk", "__mempcpy"], Number::None, Both, "as memcpy"),
    row(Copy, "bcopy", &[], Number::None, Both, "as memmove"),
    row(Copy, "memset", &["__memset_chk"], Number::None, Both, "zeros that fill pages of views take their place; what is set is no input any more"),

    row(Input, "read", &["__read_chk", "__read"], By("read"), Both, "what arrives is input: received into extents, or remembered"),
    row(Input, "readv", &[], By("readv"), Both, "input"),
    row(Input, "pread", &["pread64", "__pread_chk", "__pread64_chk", "__pread64"], By("pread64"), Both, "input; /proc/self/mem"),
    row(Input, "preadv", &["preadv64"], By("preadv"), Both, "input; /proc/self/mem"),
    row(Input, "preadv2", &["preadv64v2"], By("preadv2"), Both, "input; /proc/self/mem"),
    row(Input, "recv", &["__recv_chk"], Number::None, Both, "input (its number is recvfrom's)"),
    row(Input, "recvfrom", &["__recvfrom_chk"], By("recvfrom"), Both, "input"),
    row(Input, "recvmsg", &[], By("recvmsg"), Both, "input"),
    row(Input, "recvmmsg", &[], By("recvmmsg"), Both, "input, remembered"),
    row(Input, "fread", &["__fread_chk", "_IO_fread"], Number::None, Profile, "input, seen from outside of stdio"),
    row(Input, "fread_unlocked", &["__fread_unlocked_chk"], Number::None, Profile, "as fread"),

    row(Output, "write", &["__write"], By("write"), Both, "views are gathered from extents, or sent by reference"),
    row(Output, "writev", &[], By("writev"), Both, "as write"),
    row(Output, "pwrite", &["pwrite64", "__pwrite64"], By("pwrite64"), Both, "as write; /proc/self/mem"),
    row(Output, "pwritev", &["pwritev64"], By("pwritev"), Both, "as write; /proc/self/mem"),
    row(Output, "pwritev2", &["pwritev64v2"], By("pwritev2"), Both, "as write; /proc/self/mem"),
    row(Output, "send", &["__send"], Number::None, Both, "as write (its number is sendto's)"),
    row(Output, "sendto", &[], By("sendto"), Both, "as write; MSG_ZEROCOPY gives pages to the kernel"),
    row(Output, "sendmsg", &[], By("sendmsg"), Both, "as sendto"),
    row(Output, "sendmmsg", &[], By("sendmmsg"), Both, "as sendto"),
    row(Output, "vmsplice", &[], By("vmsplice"), Both, "gives pages to a pipe: they stay where they are"),
    row(Output, "fwrite", &["_IO_fwrite"], Number::None, Profile, "output, seen from outside of stdio"),
    row(Output, "fwrite_unlocked", &[], Number::None, Profile, "as fwrite"),
    row(Output, "sendfile", &["sendfile64"], By("sendfile"), Both, "data that the kernel moves; over a connection within this host by Linux"),
    row(Output, "splice", &[], By("splice"), Both, "as sendfile"),
    row(Output, "tee", &[], Not(IS_COUNTED), Profile, "data that the kernel moves"),
    row(Output, "copy_file_range", &[], By("copy_file_range"), Both, "data that the kernel moves; of a file whose appends are held all comes home first (`--log`)"),
    row(Output, "fsync", &[], By("fsync"), Run, "what is held of a file becomes durable (`--log`)"),
    row(Output, "fdatasync", &[], By("fdatasync"), Run, "as fsync"),
    row(Output, "sync", &[], By("sync"), Run, "what is held comes home first"),
    row(Output, "syncfs", &[], By("syncfs"), Run, "as sync"),
    row(Output, "sync_file_range", &[], By("sync_file_range"), Run, "as copy_file_range"),
    row(Output, "ftruncate", &["ftruncate64"], By("ftruncate"), Run, "as copy_file_range"),
    row(Output, "fallocate", &["fallocate64"], By("fallocate"), Run, "as copy_file_range"),
    row(Output, "posix_fallocate", &["posix_fallocate64"], Number::None, Run, "as copy_file_range"),
    row(Output, "fchmod", &[], By("fchmod"), Run, "as copy_file_range; the next fsync is the kernel's"),
    row(Output, "fchown", &[], By("fchown"), Run, "as fchmod"),
    row(Output, "futimens", &[], Number::None, Run, "as fchmod"),
    row(Output, "futimes", &[], Number::None, Run, "as fchmod"),
    row(Output, "fsetxattr", &[], By("fsetxattr"), Run, "as fchmod"),
    row(Output, "fremovexattr", &[], By("fremovexattr"), Run, "as fchmod"),
    row(Output, "utimensat", &[], By("utimensat"), Run, "as fchmod, without a path"),
    row(Output, "lseek", &["lseek64", "__lseek"], By("lseek"), Run, "a held file's position and end are not the kernel's"),

    row(Memory, "mmap", &["mmap64"], By("mmap"), Both, "addresses that come back before their unmapping was reported"),
    row(Memory, "munmap", &[], By("munmap"), Both, "leaves the books before another thread can have the addresses"),
    row(Memory, "mremap", &[], By("mremap"), Both, "the kernel refuses ranges of several mappings"),
    row(Memory, "madvise", &[], By("madvise"), Both, "what children see, how pages are made"),
    row(Memory, "process_madvise", &[], By("process_madvise"), Run, "as madvise, of this process"),
    row(Memory, "mincore", &[], By("mincore"), Run, "pages that only elision made missing are there"),
    row(Memory, "mprotect", &[], By("mprotect"), Both, "memory that must not be reached is not ours to serve"),
    row(Memory, "pkey_mprotect", &[], By("pkey_mprotect"), Both, "as mprotect"),
    row(Memory, "mlock", &[], By("mlock"), Run, "ends what was known of a block; our own mappings are left out"),
    row(Memory, "mlock2", &[], By("mlock2"), Run, "as mlock"),
    row(Memory, "mlockall", &[], By("mlockall"), Both, "the pool must not be locked; eliding ends"),
    row(Memory, "setrlimit", &["setrlimit64"], By("setrlimit"), Run, "our address space must not count against a limit"),
    row(Memory, "prlimit", &["prlimit64"], By("prlimit64"), Run, "as setrlimit"),
    row(Memory, "shmat", &[], By("shmat"), Run, "SHM_REMAP unmaps without a report"),
    row(Memory, "ioctl", &[], By("ioctl"), Run, "memory registered with the program's own userfaultfd"),

    row(Process, "_Fork", &[], Not("no system call of this name: SYS_fork and SYS_clone without CLONE_VM do the same"), Both, "fork without its handlers: all memory is made ordinary"),
    row(Process, "clone", &["__clone"], By("clone"), Both, "without CLONE_VM a fork; else words that the kernel writes"),
    row(Process, "_exit", &["_Exit"], Not("a program that ends by its number says no summary"), Run, "`--verbose`'s summary is said"),
    row(Process, "execve", &[], By("execve"), Run, "keeps us preloaded where the program makes an environment"),
    row(Process, "execv", &[], Number::None, Run, "as execve"),
    row(Process, "execvp", &[], Number::None, Run, "as execve"),
    row(Process, "execvpe", &[], Number::None, Run, "as execve"),
    row(Process, "execl", &[], Number::None, Run, "as execve"),
    row(Process, "execlp", &[], Number::None, Run, "as execve"),
    row(Process, "execle", &[], Number::None, Run, "as execve"),
    row(Process, "execveat", &[], By("execveat"), Run, "as execve"),
    row(Process, "fexecve", &[], Number::None, Run, "as execve"),
    row(Process, "posix_spawn", &[], Number::None, Run, "as execve"),
    row(Process, "posix_spawnp", &[], Number::None, Run, "as execve"),
    row(Process, "posix_spawn_file_actions_adddup2", &[], Number::None, Run, "a connection that a child is to have is Linux's from then on (`--tcp`)"),
    row(Process, "pthread_cancel", &[], Number::None, Run, "who waits for a ring is woken, and ends (`--tcp`)"),
    row(Process, "pthread_mutex_init", &["__pthread_mutex_init"], Number::None, Run, "robust and PI locks are written by the kernel, which waits for no fault"),
    row(Process, "syscall", &[], Number::None, Both, "calls by number"),

    row(Rights, "setuid", &[], By("setuid"), Run, "our threads follow"),
    row(Rights, "seteuid", &[], Number::None, Run, "our threads follow"),
    row(Rights, "setreuid", &[], By("setreuid"), Run, "our threads follow"),
    row(Rights, "setresuid", &[], By("setresuid"), Run, "our threads follow"),
    row(Rights, "setgid", &[], By("setgid"), Run, "our threads follow"),
    row(Rights, "setegid", &[], Number::None, Run, "our threads follow"),
    row(Rights, "setregid", &[], By("setregid"), Run, "our threads follow"),
    row(Rights, "setresgid", &[], By("setresgid"), Run, "our threads follow"),
    row(Rights, "setgroups", &[], By("setgroups"), Run, "our threads follow"),
    row(Rights, "initgroups", &[], Number::None, Run, "our threads follow"),
    row(Rights, "capset", &[], By("capset"), Run, "our threads follow"),
    row(Rights, "chroot", &[], By("chroot"), Run, "our threads follow"),
    row(Rights, "pivot_root", &[], By("pivot_root"), Run, "our threads follow"),
    row(Rights, "unshare", &[], By("unshare"), Run, "our threads follow, or are not there meanwhile"),
    row(Rights, "setns", &[], By("setns"), Run, "as unshare"),
    row(Rights, "prctl", &[], By("prctl"), Run, "sandboxes, capabilities that are dropped"),

    row(Signals, "sigaction", &["__sigaction"], By("rt_sigaction"), Run, "handlers are wrapped: put off while their thread holds our lock"),
    row(Signals, "signal", &["bsd_signal", "ssignal"], Number::None, Run, "as sigaction"),
    row(Signals, "sysv_signal", &["__sysv_signal"], Number::None, Run, "as sigaction"),
    row(Signals, "sigset", &[], Number::None, Run, "as sigaction"),
    row(Signals, "sigignore", &[], Number::None, Run, "as sigaction"),
    row(Signals, "siginterrupt", &[], Number::None, Run, "what signal installs later, and sigaction says"),
    row(Signals, "sigaltstack", &[], By("sigaltstack"), Run, "the kernel writes frames there: it stays resident"),

    row(Descriptors, "close", &["__close"], By("close"), Run, "spares ours"),
    row(Descriptors, "close_range", &[], By("close_range"), Run, "spares ours"),
    row(Descriptors, "closefrom", &[], Number::None, Run, "spares ours"),
    row(Descriptors, "dup", &[], By("dup"), Run, "a connection within this host has several numbers"),
    row(Descriptors, "pidfd_getfd", &[], By("pidfd_getfd"), Run, "as dup, of this process' own"),
    row(Descriptors, "fcntl", &["fcntl64", "__fcntl"], By("fcntl"), Run, "as dup; whether calls wait"),
    row(Descriptors, "dup2", &["__dup2"], By("dup2"), Run, "ours make way"),
    row(Descriptors, "open", &["open64", "__open_2", "__open64_2", "__open", "__open64"], By("open"), Run, "files whose appends may be held (`--log`)"),
    row(Descriptors, "openat", &["openat64", "__openat_2", "__openat64_2"], By("openat"), Run, "as open"),
    row(Descriptors, "creat", &["creat64"], By("creat"), Run, "as open"),
    row(Descriptors, "fstat", &["fstat64", "__fxstat", "__fxstat64"], By("fstat"), Run, "a held file is longer than the kernel knows"),
    row(Descriptors, "fstatat", &["fstatat64", "__fxstatat", "__fxstatat64"], By("newfstatat"), Run, "as fstat, with AT_EMPTY_PATH"),
    row(Descriptors, "statx", &[], By("statx"), Run, "as fstatat"),
    row(Descriptors, "rename", &[], By("rename"), Run, "recovery finds a held file by its name"),
    row(Descriptors, "renameat", &[], By("renameat"), Run, "as rename"),
    row(Descriptors, "renameat2", &[], By("renameat2"), Run, "as rename"),
    row(Descriptors, "dup3", &[], By("dup3"), Run, "ours make way"),

    row(Connections, "connect", &["__connect"], By("connect"), Run, "over the loopback device: not paced, where output goes by reference; within this host: a ring (`--tcp`)"),
    row(Connections, "listen", &[], By("listen"), Run, "as connect, not paced"),
    row(Connections, "accept", &[], By("accept"), Run, "as connect"),
    row(Connections, "accept4", &[], By("accept4"), Run, "as connect"),
    row(Connections, "shutdown", &[], By("shutdown"), Run, "the end of a stream comes after what is in its ring"),
    row(Connections, "getpeername", &[], By("getpeername"), Run, "a peer that was killed with bytes unread in its ring is gone"),
    row(Connections, "getsockopt", &[], By("getsockopt"), Run, "TCP_INFO of a connection to another host (`--tcp`): Linux knows its stand-in only"),
    row(Connections, "setsockopt", &[], By("setsockopt"), Run, "how long calls wait for a ring"),
    row(Connections, "fdopen", &["_IO_fdopen"], Number::None, Run, "stdio reads and writes inside libc: the connection is Linux's"),
    row(Connections, "fclose", &["_IO_fclose"], Number::None, Run, "stdio closes numbers inside libc"),
    row(Connections, "freopen", &["freopen64"], Number::None, Run, "as fclose"),
    row(Connections, "dprintf", &["__dprintf_chk"], Number::None, Run, "stdio writes inside libc: by Linux"),
    row(Connections, "vdprintf", &["__vdprintf_chk"], Number::None, Run, "as dprintf"),
    row(Connections, "aio_read", &["aio_read64"], Number::None, Run, "libc's own threads read and write inside it: the connection is Linux's"),
    row(Connections, "aio_write", &["aio_write64"], Number::None, Run, "as aio_read"),
    row(Connections, "aio_fsync", &["aio_fsync64"], Number::None, Run, "as aio_read"),
    row(Connections, "lio_listio", &["lio_listio64"], Number::None, Run, "as aio_read"),
    row(Connections, "poll", &["__poll", "__poll_chk"], By("poll"), Run, "rings that have news"),
    row(Connections, "ppoll", &["__ppoll_chk"], By("ppoll"), Run, "as poll"),
    row(Connections, "select", &["__select"], By("select"), Run, "as poll"),
    row(Connections, "pselect", &[], By("pselect6"), Run, "as poll"),
    row(Connections, "epoll_create", &[], By("epoll_create"), Run, "as poll"),
    row(Connections, "epoll_create1", &[], By("epoll_create1"), Run, "as poll"),
    row(Connections, "epoll_ctl", &[], By("epoll_ctl"), Run, "as poll"),
    row(Connections, "epoll_wait", &[], By("epoll_wait"), Run, "as poll"),
    row(Connections, "epoll_pwait", &[], By("epoll_pwait"), Run, "as poll"),
    row(Connections, "epoll_pwait2", &[], By("epoll_pwait2"), Run, "as poll"),
    row(Connections, "sockatmark", &[], Number::None, Run, "what a ring has comes before Linux' mark (`--tcp`)"),

    row(Allocator, "malloc", &[], Number::None, Run, "large blocks are the twin allocator's"),
    row(Allocator, "calloc", &[], Number::None, Run, "as malloc"),
    row(Allocator, "memalign", &[], Number::None, Run, "as malloc"),
    row(Allocator, "aligned_alloc", &[], Number::None, Run, "as malloc"),
    row(Allocator, "posix_memalign", &[], Number::None, Run, "as malloc"),
    row(Allocator, "realloc", &[], Number::None, Both, "blocks grow by views"),
    row(Allocator, "reallocarray", &[], Number::None, Both, "as realloc"),
    row(Allocator, "free", &["cfree"], Number::None, Both, "ends the views of a block"),
    row(Allocator, "free_sized", &["free_aligned_sized"], Number::None, Run, "as free (C23)"),
    row(Allocator, "__libc_free", &[], Number::None, Run, "a wrapper's free, of what our malloc gave"),
    row(Allocator, "__libc_realloc", &[], Number::None, Run, "a wrapper's realloc, of what our malloc gave"),
    row(Allocator, "malloc_usable_size", &[], Number::None, Run, "the twin's blocks are its own"),
];

/// Names that libuncopy.so has and the profile's library leaves to libc.
pub const NOT_IN_PROFILE: &[(&str, &str)] = &[
    ("cfree", "old programs' own; what a block that it frees held counts until it is filled anew"),
    ("__libc_free", "wrappers' own; as cfree"),
    ("__libc_realloc", "wrappers' own; as cfree"),
];

/// Names of the table that this libc may be too old to have.
pub const NEWER: &[&str] = &["free_sized", "free_aligned_sized"];

/// Numbers of `syscall(2)` that are looked at though no function of libc's has their name.
pub const NUMBERS: &[(&str, &str)] = &[
    ("mbind", "libnuma's: memory policy is for what is resident"),
    ("futex", "operations that change a word: the kernel waits for no fault there"),
    ("set_tid_address", "a word that the kernel writes when the thread ends"),
    ("set_robust_list", "likewise"),
    ("exit", "the thread alone: if it was the last, our threads must not keep the process"),
    ("fork", "as _Fork"),
    ("clone3", "as clone"),
    ("seccomp", "a sandbox: we stand aside"),
    ("set_mempolicy_home_node", "as mbind"),
    ("mseal", "what is sealed cannot be put back as it was when its block is freed"),
    (
        "io_uring_setup",
        "what it does with descriptors nobody sees: no connection is upgraded; \
         libuv's for epoll_ctl is refused",
    ),
    ("io_setup", "asynchronous requests go past us: no file is held from then on (`--log`)"),
    ("landlock_restrict_self", "our threads follow"),
];

/// Names that libc has for functions of the table, and that are left to it on purpose.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("__libc_malloc", "gives glibc's own block, which every `free` here knows"),
    ("__libc_calloc", "as __libc_malloc"),
    ("__libc_memalign", "as __libc_malloc"),
    ("exit", "not another name of _exit: it runs our destructor"),
];

/// Functions of libc's that do what an interposed one does, and are left to it on purpose.
pub const CONSIDERED: &[(&str, &str)] = &[
    (
        "fread, fwrite, fgets, getline, ... (libuncopy)",
        "stdio's inner copies are not seen: faults serve",
    ),
    (
        "getdents64, getrandom, readlink, msgrcv, mq_receive, process_vm_readv, ...",
        "the kernel reads and writes views through faults; what arrives is too little to elide",
    ),
    ("wmemcpy, memccpy, strcpy, stpcpy, ...", "text: copied as always, faults serve"),
    ("tee (libuncopy)", "no memory of the program's is involved"),
    (
        "valloc, pvalloc, strdup, getline, obstack, ...",
        "blocks that libc's inner malloc gives are glibc's own, which our free and realloc know",
    ),
    (
        "fork, vfork, forkpty, daemon",
        "fork handlers (pthread_atfork) run in all but vfork, which shares the memory and its monitor",
    ),
    (
        "system, popen, wordexp",
        "libc's inner posix_spawn takes the environment as it is, with our LD_PRELOAD in it; a connection at one of the numbers 0 to 2 is Linux's",
    ),
    (
        "brk, sbrk, munlock, munlockall, remap_file_pages, shmdt",
        "the kernel reports what is unmapped; the rest changes nothing of ours",
    ),
    (
        "msync, posix_madvise",
        "nothing for private memory (POSIX_MADV_DONTNEED does nothing in glibc)",
    ),
    (
        "pthread_create, thrd_create, mtx_init",
        "stacks are touched by their threads; C11's locks are neither robust nor PI",
    ),
    (
        "sigprocmask, pthread_sigmask, sigpause, sighold, sigrelse",
        "masks are the program's; our lock puts handlers off by itself",
    ),
    (
        "sigvec, sigstack",
        "sigvec cannot be linked since 2014 (a handler installed by it is not wrapped); sigstack names no size, so that no handler can run there",
    ),
    ("setfsuid, setfsgid", "our threads open no files"),
    (
        "vlimit, ulimit",
        "ulimit sets no limit of memory; vlimit, which 4.2BSD had, is not looked at",
    ),
    ("personality, ptrace, arch_prctl", "of the calling thread, or of another process"),
];
