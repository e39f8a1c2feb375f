//! The meaning of a program's calls on its descriptors for its TCP connections within this host:
//! which number is which connection, and what each of libc's functions does with one. Everything
//! that is no such connection is the caller's to make as it is.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`tcp`] | the one value of a process: its fd table, its context |
//! | `entry`, `connection`, `epoll` | what a number of the program's is |
//! | [`begin`] | connections begin: connect, accept |
//! | [`listening`], `listeners` | sockets that listen, for a service with a wire |
//! | `early`, `said` | sockets in sets before they connect |
//! | [`end`] | descriptors are closed and duplicated |
//! | [`data`] | bytes: send, receive, and their kin |
//! | [`wait`] | poll and select |
//! | [`sets`] | epoll |
//! | [`options`] | options that rings do not have |
//! | [`info`] | what Linux cannot tell of connections to other hosts (TCP_INFO) |
//! | [`active_open`] | sockets that connect to other hosts |
//! | [`share`], `over_fork` | fork, exec |
//! | `seldom` | what is not done again soon |

pub mod active_open;
pub mod begin;
mod connection;
pub mod data;
mod early;
pub mod end;
mod entry;
mod epoll;
pub mod info;
mod listeners;
pub mod listening;
pub mod options;
mod over_fork;
mod said;
mod seldom;
pub mod sets;
pub mod share;
pub mod tcp;
pub mod wait;

pub use connection::Connection;
pub use entry::Entry;
pub use epoll::Epoll;
pub use tcp::{Settings, Tcp};
pub use uncopy_tcp_socket::{Blocks, Waiting};
