//! Random calls of two processes on TCP connections between them: scripts, their text form, their
//! shrinking, and the model that says what each call may return.
//!
//! Pure logic: no system call, no unsafe, nothing of uncopy. The program (`src/main.rs`) carries
//! scripts out.
//!
//! | module | job |
//! | --- | --- |
//! | [`op`] | the operations and their text form |
//! | [`script`] | connections and a list of operations; its file format |
//! | [`generate`] | a script out of a seed |
//! | [`stream`] | what the bytes of a connection are |
//! | [`model`] | what TCP over loopback promises |
//! | [`vocabulary`] | what is left out of scripts |
//! | [`shrink`] | the shortest part of a script that still fails |
#![forbid(unsafe_code)]

pub mod generate;
pub mod model;
pub mod op;
pub mod script;
pub mod shrink;
pub mod stream;
pub mod vocabulary;
