//! The log's records and book over a simulated disk: every crash, everywhere.
//!
//! Two parts are the product's own code: [`uncopy_log_record`] puts records together and finds them
//! again, [`uncopy_log_book`] says what each call means, and what recovery replays. The rest is
//! simulated: the disk, the file system, memory that outlives programs, and those who carry steps
//! out.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`platter`] | a volatile cache, sectors that are there or not |
//! | [`files`] | a page cache, a journal that commits in order |
//! | [`world`] | programs and service over all that: steps carried out |
//! | [`oracle`] | what a file may hold after a crash |
//! | [`answers`] | syncs that return early: what has left the process |
//! | [`promises`] | what such syncs have told, and what waits for them |
//! | [`crash`] | power lost, programs killed, at a point; recovery; judged |
//! | [`scripts`] | what programs do: all short scripts, random long ones |
//!
//! *The oracle*: of each byte of a file there are versions, by programs and by strangers. After a
//! power loss and recovery it is one that is no older than the last that a sync acknowledged. After
//! programs and service were killed it is no older than the last that a write has returned.
#![forbid(unsafe_code)]

pub mod answers;
pub mod crash;
pub mod files;
pub mod oracle;
pub mod platter;
pub mod promises;
pub mod scripts;
pub mod world;

pub use crash::Crashes;
pub use scripts::{Op, Start};
pub use world::{Mutation, World};
