//! The pure heart of uncopy: extents, views, the tracker and its policy.
//!
//! Nothing here makes a system call or touches the program's memory. What must happen to pages is
//! asked of a [`memory::Memory`]; what must be copied is handed back to the caller as
//! [`plan::Copy`] lists, to be carried out after the tracker's lock is dropped. So the whole
//! logic runs against a simulated address space in `tests/model.rs`.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`span`] | half-open byte ranges and page arithmetic |
//! | [`extents`] | immutable, reference-counted runs of bytes |
//! | [`regions`] | memory that extents lie in, and whose it is |
//! | [`views`] | which program bytes are which extent bytes |
//! | [`sorted`] | the map under it |
//! | [`tracker`] | input, copy, output, touch, free: what each does to views |
//! | [`policy`] | whether a call site's copies are worth eliding |
//! | [`window`] | whether what a site saves is worth having |
//! | [`trial`] | whether a program gains if all sites elide, or none does, where each for itself does not |
//! | [`shared`] | the statistics, laid out for readers in other processes |
//! | [`costs`] | the text form of its prices |
//! | [`arena`] | the twin allocator's book of blocks |
//! | [`excluded`] | what has to stay resident |
//! | [`growth`] | how far its blocks grow |
//! | [`shelf`] | files that are kept: which, since when, who uses them |
//! | [`inject`] | which calls a test can make fail, and how it says so |
//! | [`prices`] | what copies and our own calls cost in this very program |
//! | [`repeats`] | which large ranges are sent again and again |
//! | [`filter`] | the lock-free "surely untracked" test in front of it all |
//! | [`flow`] | follows I/O data through a program that copies it |
//! | [`sync`] | its atomics, which the tests exchange for loom's |
#![forbid(unsafe_code)]

pub mod arena;
pub mod costs;
pub mod counters;
pub mod excluded;
pub mod extents;
pub mod filter;
pub mod flow;
pub mod growth;
pub mod inject;
pub mod memory;
pub mod options;
pub mod plan;
pub mod policy;
pub mod prices;
pub mod ranges;
pub mod regions;
pub mod repeats;
pub mod runs;
pub mod shared;
pub mod shelf;
pub mod sorted;
pub mod span;
pub mod sync;
pub mod tracker;
pub mod trial;
pub mod views;
pub mod window;
