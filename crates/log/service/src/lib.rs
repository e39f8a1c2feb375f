//! The log's service: one for a directory, and so for a user and a file system.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`protocol`] | the messages between a program and the service |
//! | [`plain_reason`] | why a file is not held |
//! | [`client`] | a program's end of it |
//! | [`place`] | the log's directory: what lies where |
//! | `identity` | which file a description is, and the same file found again |
//! | `lease` | the kernel's leases |
//! | `homes` | the service's own log: whose bytes are home |
//! | `logs` | the logs that programs write |
//! | `held` | a held file, from the service's side, and its end |
//! | [`keeper`] | what a dead service leaves comes home at once |
//! | `refused` | why bytes do not go into their file |
//! | `report` | what a recovery did, and where that is written |
//! | [`server`] | the loop |
//! | [`mod@recover`] | what a crash left comes home |
//! | [`verify`] | what the logs have, looked at only |

pub mod client;
mod held;
mod homes;
mod identity;
pub mod keeper;
mod lease;
mod logs;
pub mod place;
pub mod plain_reason;
pub mod protocol;
pub mod recover;
mod refused;
mod report;
pub mod server;
pub mod verify;

pub use client::Client;
pub use held::take_over;
pub use place::Place;
pub use plain_reason::PlainReason;
pub use recover::recover;
pub use report::Report;
pub use rustix::io::Errno;
pub use server::{Options, Service, ServiceError};
