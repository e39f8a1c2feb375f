//! Input and output calls over extents, for an IO stack that moves bytes through `iovec`s (the
//! kernel's sockets, pipes and files).
//!
//! A stack is told a call in two forms: *as it is*, and with a list of pieces in place of the
//! program's buffers. Which form is used, and what becomes a view, is decided here; what a call
//! means (flags, addresses, ancillary data) stays with the caller.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`input`] | receive into extents where the buffer is already a view |
//! | [`output`] | gather from extents where the bytes are views |
//! | [`mod@file`] | reads that are answered from kept files |
//! | [`copy`] | carry out a planned copy |
//! | [`buffers`] | what a call names: its list of buffers, the program's structures |
//! | [`on`] | what a call is made on |

pub mod buffers;
pub mod copy;
pub mod file;
pub mod input;
pub mod on;
pub mod output;
