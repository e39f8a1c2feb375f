//! Input and output calls over extents, for IO stacks that move bytes through `iovec`s.
//!
//! A stack is told a call in two forms: *as it is*, and with a list of pieces in place of the program's buffers. Which form is used, and what
//! becomes a view, is decided here; what a call means (flags, addresses, ancillary data) is the stack's. Linux's own sockets, pipes and files
//! are the first; another implements the same trait.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`stack`] | what an IO stack is to us |
//! | [`input`] | receive into extents where the buffer is already a view; take over what lies in memory already |
//! | [`output`] | gather from extents where the bytes are views |
//! | [`copy`] | carry out a planned copy |
//! | [`buffers`] | what a call names: its list of buffers, the program's structures |
//! | [`linux`] | Linux's own sockets, pipes and files |

pub mod buffers;
pub mod copy;
pub mod input;
pub mod linux;
pub mod output;
pub mod stack;
