//! Pages: userfaultfd, the page pool, the thread that answers faults, and the lock around the
//! tracker.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`uffd`] | the kernel interface |
//! | [`pages`] | the tracker's `Memory` over it |
//! | [`lock`] | a futex lock that a forked child can reset |
//! | [`gate`] | who may use the books, and when |
//! | [`sync`] | atomics and futexes, which the tests exchange for loom's |
//! | [`critical`] | no signal handler of the program runs while the lock is held |
//! | [`reading`] | the program's pointers, which may lead nowhere |
//! | [`space`] | the one tracker of this process, and its life: start, fork, stop |
//! | [`twin`] | the twin allocator's memory |
//! | [`thread`] | threads of our own, which libc does not know |
//! | [`monitor`] | the fault-handling thread |
//! | [`place`] | on which core it waits |
//! | [`lend`] | sending pool pages by reference |
//! | [`sigpipe`] | calls that must not raise SIGPIPE |
//! | [`files`], [`leases`] | files that are kept, and what holds their changes off |
//! | [`inject`] | the calls of all these fail where a test says so |
//! | [`clock`] | which calls are timed, and how long they take |
//! | [`work`] | how much the program copies |
//! | `own_fd` | descriptors that are closed past libc |
//! | `procfs` | what the kernel says of this process |
//! | [`stats`] | the counters, and the file by which others see them |
//! | [`family`] | its part of what a program and all that it started did |
//! | [`heap`] | our libraries' own allocator |
//! | [`early`] | copies before libc's routines are known |
//! | [`freeze`] | what happened to pages while the books were being duplicated by fork |

#[cfg(not(all(loom, test)))]
pub mod clock;
pub mod critical;
pub mod early;
#[cfg(not(all(loom, test)))]
pub mod family;
#[cfg(not(all(loom, test)))]
pub mod files;
pub mod freeze;
pub mod gate;
#[cfg(not(all(loom, test)))]
pub mod heap;
pub mod inject;
#[cfg(not(all(loom, test)))]
pub mod leases;
#[cfg(not(all(loom, test)))]
pub mod lend;
#[cfg(not(all(loom, test)))]
pub mod limits;
pub mod lock;
#[cfg(not(all(loom, test)))]
pub mod monitor;
mod own_fd;
#[cfg(not(all(loom, test)))]
pub mod pages;
#[cfg(not(all(loom, test)))]
pub mod place;
#[cfg(not(all(loom, test)))]
mod procfs;
pub mod reading;
#[cfg(not(all(loom, test)))]
pub mod sigpipe;
#[cfg(not(all(loom, test)))]
pub mod space;
pub mod stats;
pub mod sync;
#[cfg_attr(all(loom, test), allow(dead_code, reason = "no thread is made there"))]
pub mod thread;
#[cfg(not(all(loom, test)))]
pub mod twin;
pub mod uffd;
#[cfg(not(all(loom, test)))]
pub mod work;
