//! Input and output calls over extents, for IO stacks that move bytes through `iovec`s.
//!
//! A shim makes a value of the program's call, and asks once what its descriptor is. That
//! endpoint's stack makes the call in one of two forms: *as it is*, and with a list of pieces in
//! place of the program's buffers. Which form is used, and what becomes a view, is decided here;
//! what a call means (flags, addresses, ancillary data) is the stack's. There are two: Linux's own
//! sockets, pipes and files, and rings.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`calls`] | the program's calls as values |
//! | [`endpoint`] | what a call's descriptor is: asked once |
//! | [`stack`] | what an IO stack is to us |
//! | [`input`] | receive into extents where the buffer is a view; take over what lies in memory |
//! | [`output`] | gather from extents where the bytes are views |
//! | [`copy`] | carry out a planned copy |
//! | [`buffers`] | what a call names: its list of buffers, the program's structures |
//! | [`linux`] | Linux's own sockets, pipes and files |
//! | [`ring`] | TCP connections within this host |
//! | [`sendfile`] | files that are kept, over such connections |
//! | [`log`] | files whose appends may be held |

pub mod buffers;
pub mod calls;
pub mod copy;
pub mod endpoint;
pub mod input;
pub mod linux;
pub mod log;
pub mod output;
pub mod ring;
pub mod sendfile;
pub mod stack;
