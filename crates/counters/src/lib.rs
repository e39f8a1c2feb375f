//! Counters of uncopy's work: any thread adds to them, and other processes read them in the layout
//! given here.
//!
//! The library writes them, `uncopy stat`, `top` and `try` read them.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`connections`] | what became of connections, and why they stayed with Linux |
//! | [`counters`] | the counters, their names and meanings |
//! | [`family`] | what a program and all that it started did together, laid out likewise |
//! | [`summary`] | what was done, in words |
//! | [`formatting`] | numbers as people read them |
//! | [`stats_page`] | what readers find: who it is, counters, what was decided for each call site |
#![forbid(unsafe_code)]

pub mod connections;
pub mod counters;
pub mod family;
pub mod formatting;
pub mod stats_page;
pub mod summary;

pub use self::counters::{Counters, NAMES, Snapshot, add, is_gauge};
