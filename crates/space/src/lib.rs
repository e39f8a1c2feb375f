//! The books of a process, and what they hold true: idle until the first copy worth eliding,
//! running with a monitor thread, frozen during fork, off.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`space`] | the value that has all of it |
//! | [`gate`] | who may use the books, and when |
//! | [`hold`] | its lock, and who may pass |
//! | [`life`] | made, started, stood down |
//! | [`pages`] | the tracker's `Memory`, over userfaultfd |
//! | [`answers`] | what the monitor thread asks |
//! | [`events`] | what the program does to its memory, and what is carried out for it |
//! | [`pool`] | what of the pool, and of the ranges, is given back where the kernel has no more |
//! | `held` | what is held now |
//! | [`holding`] | how much is held beyond what the program has asked for, and may be |
//! | [`excluded`], `bounds` | what has to stay resident |
//! | [`fork`] | frozen meanwhile, made anew in the child |
//! | [`freeze`] | what happened to pages while the books were being duplicated by fork |
//! | [`descriptors`], `own_fds` | our descriptors, which are not the program's |
//! | [`dump`] | everything is materialized before a core is dumped |
//! | [`regions`] | memory of others that extents lie in |
//! | [`rights`] | the monitor has no more rights than the program's threads |
//! | `prefault` | the stack under the lock is there |
//! | [`work`] | how much the program copies |

#[cfg(not(loom))]
pub mod answers;
#[cfg(not(loom))]
mod bounds;
#[cfg(not(loom))]
pub mod descriptors;
#[cfg(not(loom))]
pub mod dump;
#[cfg(not(loom))]
pub mod events;
#[cfg(not(loom))]
pub mod excluded;
#[cfg(not(loom))]
pub mod fork;
pub mod freeze;
pub mod gate;
#[cfg(not(loom))]
mod held;
#[cfg(not(loom))]
pub mod hold;
#[cfg(not(loom))]
pub mod holding;
#[cfg(not(loom))]
pub mod life;
#[cfg(not(loom))]
mod own_fds;
#[cfg(not(loom))]
pub mod pages;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
mod prefault;
#[cfg(not(loom))]
pub mod record;
#[cfg(not(loom))]
pub mod regions;
#[cfg(not(loom))]
pub mod rights;
#[cfg(not(loom))]
pub mod space;
#[cfg(not(loom))]
pub mod work;
