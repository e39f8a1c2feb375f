//! The memory that programs and the log's service share: for each held file an entry, and a ring of
//! memory for its bytes; and what a program has for itself: the log that its syncs go to.
//!
//! No lock is held by two processes. The program that holds a file appends to it, the service
//! brings its bytes home, and the words between them ([`words`]) say how far each is. So a process
//! that dies, or is stopped, leaves nothing that another waits for.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`words`] | how far: appended, home, durable; the bit that ends appending |
//! | [`layout`] | where entries and rings lie |
//! | [`memory`] | the mapping of all that |
//! | [`claims`] | who lives, and who takes an entry over: locks that end with their holder |
//! | [`homing`] | bytes of a ring go to their file |
//! | [`writer`] | records go to a program's log, of several files in one flush |

#[cfg(not(loom))]
pub mod claims;
#[cfg(not(loom))]
pub mod homing;
#[cfg(not(loom))]
pub mod layout;
#[cfg(not(loom))]
pub mod memory;
mod sync;
pub mod words;
#[cfg(not(loom))]
pub mod writer;

#[cfg(not(loom))]
pub use layout::{Entry, RING, SLOTS, State};
#[cfg(not(loom))]
pub use memory::Memory;
pub use words::{End, Words};
