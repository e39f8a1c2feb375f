//! The rows of [`uncopy_real::with_table`], as data; and what is left to libc, and why. To
//! interpose another function, add its row there, run the test (it says what else is missing:
//! second names, numbers), then `UPDATE=1` it, which writes docs/interposed.md.

use uncopy_real::with_table;

/// The subject of a function.
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
    /// Both libraries have it.
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

/// `SYS_read`: `read`.
const fn named(number: &'static str) -> &'static str {
    number.split_at("SYS_".len()).1
}

/// Makes a list of the rows of [`uncopy_real::with_table`].
macro_rules! listed {
    ({} $( $group:ident $module:ident::$name:ident [$($same:ident)*] [$($other:ident)*]
        $( ($($arg:ident: $type:ty),*) -> $result:ty $(, else $early:expr)? )?;
        $(by $number:ident $( ($($word:literal)*) $(if $guard:ident)? )?)?
        $(not $not:literal)? $(-)?;
        $place:ident, $why:literal;
    )*) => {
        /// The functions.
        pub const TABLE: &[Row] = &[$(
            Row {
                group: $group,
                name: stringify!($name),
                others: &[$(stringify!($same),)* $(stringify!($other),)*],
                number: [
                    $( By(named(stringify!($number))), )? $( Not($not), )? Number::None
                ][0],
                place: $place,
                why: $why,
            },
        )*];

        /// Numbers whose call the row makes.
        pub const MADE_BY_ROWS: &[&str] = &[$( $( $(
            { const _: &[usize] = &[$($word),*]; named(stringify!($number)) },
        )? )? )*];
    };
}

with_table!(listed {});

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
