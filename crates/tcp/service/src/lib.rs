//! The rendezvous of programs on one host that talk TCP to each other. Each shows its sockets; where both ends of one connection were shown, both
//! get a slot of a region that only the two of them share (`uncopy-tcp-shared`). No byte of theirs passes through here, and what is
//! connected goes on when the service ends.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`protocol`] | the messages |
//! | [`client`] | a program's side of them |
//! | [`server`] | the loop: programs come, show, and go |
//! | [`command`] | where the command lies that programs start to serve them |
//! | `program` | a program as the service knows it, and what it is told |
//! | [`matching`] | ends that wait for their other end |
//! | `linger` | sockets whose close takes its time |
//! | [`regions`] | which slots of which regions are whose |
//! | [`ends`] | what a shown socket proves |
//! | [`relay`] | the last resort of a program that executes another one over a ring that nobody takes back |
//! | [`wired`] | what is told of a connection over the wire |
//! | [`state`] | what is told of it all to who looks from outside |

pub mod client;
pub mod command;
pub mod ends;
mod linger;
pub mod matching;
mod program;
pub mod protocol;
pub mod regions;
pub mod relay;
pub mod server;
pub mod state;
pub mod wired;

pub use client::{Client, Tracing, tell, trace};
pub use command::commands;
pub use server::{Limits, Listening, Options, Service, ServiceError};
pub use wired::{Wired, Wires};
