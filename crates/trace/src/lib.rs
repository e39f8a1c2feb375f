//! Recordings: what a program did, what its controller was told, and when; as bytes, bounded in
//! size and the same on every machine.
//!
//! A file begins with [`Head`], which is followed by the text of [`Start`] and by entries. Entries
//! are written by [`Writer`] and read by [`Trace::read`], which takes any bytes: what it does not
//! understand is an error with the place where it is.
//!
//! | module | one idea |
//! | --- | --- |
//! | `head` | the first bytes of the file |
//! | `start` | what was in force when the recording began |
//! | `words` | numbers as bytes: short where they were met before |
//! | `form` | which words an entry consists of |
//! | `writer`, `reader` | entries to bytes, bytes to entries |
#![forbid(unsafe_code)]

mod form;
mod head;
mod reader;
mod start;
mod words;
mod writer;

pub use self::head::{HEAD, Head, is_recording};
pub use self::reader::{Bad, Entry, EntryKind, Trace};
pub use self::start::Start;
pub use self::writer::{ENTRY_MAX, Writer};
