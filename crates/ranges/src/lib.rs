//! Ranges of addresses: what every other room reckons with.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`span`] | half-open byte ranges and page arithmetic |
//! | [`ranges`] | a set of addresses, as disjoint ranges |
//! | [`runs`] | free runs of pages: the lowest that is long enough |
//! | [`allowance`] | how much may be held beyond what the program has asked for |
//! | [`keeping`] | how many free pages are worth keeping with their memory |
//! | [`filter`] | the lock-free "surely untracked" test in front of the tracker |
//! | [`repeats`] | which large ranges are sent again and again, lock-free too |
//! | `sync` | their atomics, which the tests exchange for loom's |
#![forbid(unsafe_code)]

pub mod allowance;
pub mod filter;
pub mod keeping;
pub mod ranges;
pub mod repeats;
pub mod runs;
pub mod span;
mod sync;
