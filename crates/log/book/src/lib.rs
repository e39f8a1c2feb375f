//! The book of the log: what each call, and each thing that happens, means for a file.
//!
//! Nothing here makes a system call, and the time is handed in (ns, of any clock that only goes
//! forward). An [`Inode`] is plain data and may lie in memory that programs share.
//!
//! A caller that has something to do begins a [`Job`]: [`Inode::begin`]. It says which [`Step`] is
//! to be carried out; what came of it goes back in ([`Inode::next`]), until the answer is there.
//! One inode has one job at a time. Meanwhile other threads may append ([`Inode::append`],
//! [`Inode::appended`]).
//!
//! A process that dies over a job leaves an inode from which the next one can begin any job: a
//! step's effect is entered only once it is known, a record that may be durable before it is
//! written.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`inode`] | what is held, at home, durable, logged |
//! | [`job`] | events in, steps out: the table of calls |
//! | [`timing`] | plain against log: the cheaper one |
//! | [`answers`] | syncs that return early, and what waits for them |
//! | [`as_ever`] | why syncs do not return early |
//! | [`recovery`] | what of a log is brought to its files, and what is refused |
//!
//! # The rules
//!
//! 1. *An acknowledged sync is durable in the file, or in live `DATA`.* `HOME` is written only
//!    after the file's own sync; a plain sync of an inode with live records answers only after
//!    `HOME` is durable.
//! 2. *Live records exist only under the lease*, and not for long: it is given up only when none is
//!    left, and what is live goes home by itself ([`LIVE_AGE`]).
//! 3. *Bytes stay in memory until they are durable*, unless there are too many of them.
//! 4. *After a failure a sync says so*, until the bytes were written to the file again and its own
//!    sync succeeded.
#![forbid(unsafe_code)]

pub mod answers;
pub mod as_ever;
pub mod inode;
pub mod job;
pub mod recovery;
pub mod timing;

pub use inode::{Inode, Limits, State};
pub use job::{Answer, At, Errno, Event, Job, Outcome, Step};
pub use recovery::{File, OnDisk, Owner, Plan, Verdict};

/// Held bytes that were never synced go home after so long, in ns.
pub const HELD_AGE: u64 = 5_000_000_000;
/// Live records begin to go home after so long, in ns. They are not to be older than twice that.
pub const LIVE_AGE: u64 = 5_000_000_000;
/// A lease that was broken is tried again after so long, in ns; then ever more rarely.
pub const RETRY: u64 = 1_000_000_000;
/// Longest pause between two tries, in ns.
pub const RETRY_MAX: u64 = 600_000_000_000;
