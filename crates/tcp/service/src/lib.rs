//! The rendezvous of programs on one host that talk TCP to each other. Each registers its sockets;
//! where both ends of one connection were registered, both get a slot of a region that only the two
//! of them share (`uncopy-tcp-shared`). No byte of theirs passes through here, and what is
//! connected goes on when the service ends.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`protocol`] | the messages |
//! | [`client`] | a program's side of them |
//! | [`server`] | the service: programs come, and are heard |
//! | `requests` | what they say, and what their descriptors are |
//! | `registry` | what is known of them all |
//! | [`options`] | how to serve |
//! | [`owner`] | whose programs are, and which owners meet |
//! | `users`, `share` | what one user may have |
//! | [`listening`] | what a wire to other hosts does for programs |
//! | [`rendezvous`] | which service a program uses |
//! | [`command`] | where the command lies that programs start to serve them |
//! | `program` | a program as the service knows it, and what it is told |
//! | [`matching`] | ends that wait for their other end |
//! | [`linger`] | sockets whose close takes its time |
//! | `regions` | which slots of which regions are whose |
//! | [`ends`] | ends of connections, by name; what sockets say of themselves |
//! | `proof` | what proves that a program has a socket |
//! | [`diag`] | what Linux says of a socket that is not here |
//! | [`relay`] | the last resort of a program that executes another one over a ring |
//! | [`wired`] | what is told of a connection over the wire |
//! | [`state`] | what is told of it all to who looks from outside |

pub mod client;
pub mod command;
pub mod diag;
pub mod ends;
pub mod linger;
pub mod listening;
pub mod matching;
pub mod options;
pub mod owner;
mod program;
mod proof;
pub mod protocol;
mod regions;
mod registry;
pub mod relay;
pub mod rendezvous;
mod requests;
pub mod server;
mod share;
pub mod state;
pub mod stay_reason;
mod users;
pub mod wired;

pub use client::{Client, Tracing, tell, trace};
pub use command::commands;
pub use linger::Lent;
pub use listening::Listening;
pub use options::{Limits, Options};
pub use owner::{Owner, Serves};
pub use rendezvous::Rendezvous;
pub use server::{Service, ServiceError};
pub use wired::{Wired, Wires};
