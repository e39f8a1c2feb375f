//! Requests to the kernel, and to a thread. Nothing here knows of extents, views or a tracker.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`call`] | system calls that leave `errno` alone |
//! | [`inject`] | the calls of all these fail where a test says so |
//! | [`uffd`] | userfaultfd |
//! | [`mapping`], [`placement`] | mappings of our own; where large ones lie |
//! | [`descriptors`] | descriptors of our own |
//! | [`fd_table`] | which of the program's descriptors is what |
//! | `own_memory` | this process' memory by its number |
//! | [`remote_mem`] | the program's memory, reached as another process' would be |
//! | [`user_access`] | reads and writes through the program's pointers, which may lead nowhere |
//! | [`critical`] | no signal handler of the program runs while a lock of ours is held |
//! | [`sigpipe`] | calls that must not raise SIGPIPE |
//! | [`sync`], [`lock`] | atomics and futexes (or loom's); a lock that a forked child can reset |
//! | [`thread`] | threads of our own, which libc does not know |
//! | [`threads`] | how many threads the process has |
//! | [`own_process`] | whether this is the process that our state was made for |
//! | [`ids`] | whose rights a thread has |
//! | [`once`] | a value that is made once |
//! | [`clock`] | how late it is |
//! | [`survey`] | what a filter of system calls lets through |
//! | [`limits`], [`procfs`] | what the program's limits leave; what the kernel says in `/proc` |
//! | [`imports`] | what we call of libc is libc's own |
//! | [`early`] | copies before libc's routines are known |

pub mod call;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod critical;
pub mod descriptors;
pub mod early;
#[cfg(not(loom))]
pub mod fd_table;
#[cfg(not(loom))]
pub mod ids;
#[cfg(not(loom))]
pub mod imports;
pub mod inject;
#[cfg(not(loom))]
pub mod limits;
pub mod lock;
#[cfg(not(loom))]
pub mod mapping;
pub mod once;
mod own_memory;
#[cfg(not(loom))]
pub mod own_process;
#[cfg(not(loom))]
pub mod placement;
#[cfg(not(loom))]
pub mod procfs;
#[cfg(not(loom))]
pub mod remote_mem;
#[cfg(not(loom))]
pub mod sigpipe;
#[cfg(not(loom))]
pub mod sleeping;
#[cfg(not(loom))]
pub mod survey;
pub mod sync;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod threads;
pub mod uffd;
pub mod user_access;
