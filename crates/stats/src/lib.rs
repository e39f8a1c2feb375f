//! The work that was done and its cost, and the files by which others see it.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`statistics`] | those of a process, and its file |
//! | [`family`] | its part of what a program and all that it started did |
//! | [`directory`] | where such files lie |
//! | `header` | who a process is, as they say it |

// (`make loom` tries what `uncopy-space` has beside it.)
#![cfg(not(loom))]

pub mod directory;
pub mod family;
mod header;
pub mod statistics;
