//! What uncopy did: counters that any thread adds to, and the layout in which other processes read them.
//!
//! The library writes them, `uncopy stat`, `top` and `try` read them.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`counters`] | the counters, their names and meanings |
//! | [`shared`] | all that a reader finds: who it is, the counters, what was decided about each call site |
#![forbid(unsafe_code)]

pub mod counters;
pub mod shared;

pub use self::counters::{Counters, NAMES, Snapshot, add, is_gauge};
