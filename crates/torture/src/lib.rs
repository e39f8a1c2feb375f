//! The generator of the torture program: scripts of random operations on memory, their text form,
//! the bytes that inputs deliver, and the shrinking of a script that fails.
//!
//! Pure logic: no system call, no unsafe, nothing of uncopy. The program (`src/main.rs`) carries
//! scripts out on a real process, `crates/core/tests/torture.rs` on the bare tracker.
//!
//! | module | job |
//! | --- | --- |
//! | [`random`] | numbers out of a seed, the same with every version |
//! | [`text`] | words and operations, as text |
//! | [`op`] | the operations and their text form |
//! | [`script`] | a list of operations with what they need; its file format; who waits for whom |
//! | [`generate`] | a script out of a seed |
//! | [`bytes`] | content out of a key; digests |
//! | [`defined`] | which bytes of a buffer have a known content |
//! | [`pieces`] | how vectored calls cut their buffer |
//! | [`shrink`] | the shortest part of a script that still fails |

pub mod bytes;
pub mod defined;
pub mod generate;
pub mod op;
pub mod pieces;
pub mod random;
pub mod script;
pub mod shrink;
pub mod text;
