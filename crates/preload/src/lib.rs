//! `libuncopy.so`: the libc functions that uncopy interposes, each a thin shim.
//!
//! unsafe, everywhere in this crate: these functions *are* the C ABI. Their callers promise what
//! the man page of each function demands, and the shims pass it on; a file's own reasons stand at
//! its head.
//!
//! The state of a process is in [`process::PROCESS`]. The few other statics are what the dynamic
//! linker, an entry in assembly, or code that runs before everything finds by its address; each
//! file says why it has any.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`service`] | starts the service of connections within this host |
//! | [`mod@process`] | the one value that has this process's state |
//! | [`start`] | constructor, options, end |
//! | [`facts`] | what the constructor found out |
//! | [`summary`] | what is said at the start and at the end |
//! | [`hooks::copy`] | memcpy and its kin |
//! | [`hooks::fill`] | memset |
//! | [`hooks::entries`] | the way in of calls that come with every request |
//! | [`hooks::rows`], [`hooks::own`] | these calls, a row each; their names within the library |
//! | [`hooks::input`], [`hooks::output`] | read, recv, ...; write, send, ... |
//! | [`hooks::allocate`] | malloc, free, realloc and their kin |
//! | [`hooks::mapping`] | mmap, munmap, shmat |
//! | [`hooks::advice`] | madvise, mincore |
//! | [`hooks::protection`] | mprotect, mlock |
//! | [`hooks::limits`] | mlockall, setrlimit |
//! | [`hooks::ioctl`] | a userfaultfd of the program's own; what a connection is asked |
//! | [`hooks::memory_common`] | what the shims of memory calls have in common |
//! | [`hooks::unwaited`] | memory that the kernel reads or writes without waiting for a fault |
//! | [`hooks::uring`] | io_uring, which goes past us |
//! | [`hooks::remap`] | mremap |
//! | [`hooks::process`] | fork, clone, exec, _exit |
//! | [`hooks::executed`] | whether we can be loaded into what is executed |
//! | [`hooks::rights`] | setuid, capset, unshare, prctl and their kin: our threads follow |
//! | [`hooks::descriptors`] | close and its kin spare our descriptors |
//! | [`hooks::files`] | open, fsync and their kin: files whose appends may be held |
//! | [`hooks::sockets`] | connect, accept, shutdown and their kin |
//! | [`hooks::stdio`] | stdio and asynchronous requests over connections |
//! | [`hooks::waiting`] | poll, select, epoll |
//! | [`hooks::cancelling`] | threads that are cancelled while they wait for a ring |
//! | [`hooks::signals`] | wrappers around the program's handlers |
//! | [`hooks::other_names`] | what libc exports under a second name |
//! | [`hooks::syscall`] | `syscall(2)`, sent to the shims above |

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

pub mod facts;
pub mod process;
pub mod service;
pub mod start;
pub mod summary;

use uncopy_heap::Heap;
use uncopy_real as real;

/// Behind every `Box` and `Vec` of this library: the program's allocator is not ours to call.
#[global_allocator]
pub static HEAP: Heap = Heap::new();

/// The interposed functions.
pub mod hooks {
    pub mod advice;
    pub mod allocate;
    pub mod cancelling;
    pub mod copy;
    pub mod descriptors;
    pub mod entries;
    pub mod executed;
    pub mod files;
    pub mod fill;
    pub mod input;
    pub mod ioctl;
    pub mod limits;
    pub mod mapping;
    pub mod memory_common;
    pub mod other_names;
    pub mod output;
    pub mod own;
    pub mod process;
    pub mod protection;
    pub mod remap;
    pub mod rights;
    pub mod rows;
    pub mod signals;
    pub mod sockets;
    pub mod stdio;
    pub mod syscall;
    pub mod unwaited;
    pub mod uring;
    pub mod waiting;
}
