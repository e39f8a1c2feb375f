//! The meaning of a program's calls on its descriptors for files whose appends are held: which
//! number is which file, and what each of libc's functions does with one. Everything else is the
//! caller's to make as it is.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`mod@log`] | the one value of a process: its fd table, its connection to the service |
//! | [`mod@file`] | an open file: plain, about to be held, held |
//! | `known` | what the kernel knows of a number |
//! | `guarded` | a value and its lock |
//! | `session` | what a process has of a service |
//! | `begin` | a file begins to be held |
//! | `leave` | a file becomes plain |
//! | [`answering`] | syncs that return before they are durable, and who waits for them |
//! | `early` | files whose syncs have returned early |
//! | `append` | bytes are appended |
//! | `sync` | bytes become durable |
//! | `descriptors` | descriptors are opened, closed and duplicated |
//! | `share` | fork, exec |

pub mod answering;
mod append;
mod begin;
mod descriptors;
mod early;
pub mod file;
mod guarded;
mod known;
mod leave;
pub mod log;
mod session;
mod share;
mod sync;

pub use append::Appended;
pub use file::{File, Plain};
pub use log::{Log, Settings};
