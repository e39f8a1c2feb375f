//! What a program's calls on its descriptors mean for its TCP connections within this host: which
//! number is which connection, and what each of libc's functions does with one. Everything that is
//! no such connection is the caller's to make as it is.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`tcp`] | the one value of a process: its fd table, its context |
//! | [`begin`] | connections begin: connect, accept |
//! | [`listening`] | sockets that listen, for a service with a wire |
//! | `early` | sockets in sets before they connect |
//! | [`end`] | numbers are closed and duplicated |
//! | [`data`] | bytes: send, receive, and their kin |
//! | [`wait`] | poll and select |
//! | [`sets`] | epoll |
//! | [`options`] | options that rings do not have |
//! | [`info`] | what Linux cannot tell of connections to other hosts (TCP_INFO) |
//! | [`outward`] | sockets that connect to other hosts |
//! | [`share`] | fork, exec |

pub mod begin;
pub mod data;
mod early;
pub mod end;
pub mod info;
pub mod listening;
pub mod options;
pub mod outward;
pub mod sets;
pub mod share;
pub mod tcp;
pub mod wait;

pub use tcp::{Entry, Settings, Tcp};
pub use uncopy_tcp_socket::{Blocks, Waiting};
