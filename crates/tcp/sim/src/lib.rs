//! Congestion control at scale, simulated: links, switches that mark, thousands of hosts, flows by
//! the ten thousand; every number is determined by a seed.
//!
//! The product's own code is the TCP of all hosts: [`uncopy_tcp_proto`], byte for byte what the
//! service runs: handshakes, segments, the fast path, selective acknowledgement, retransmission,
//! ends of connections, and the slow path's rate-based DCTCP. Code for the comparison alone:
//! vanilla DCTCP ([`vanilla`]) sets its window on each acknowledgement. It drives the same fast
//! path, so that the two differ in congestion control alone. No payload is carried, and no bytes of
//! headers: segments go as numbers, their lengths count.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`port`] | a link's end: rate, delay, a queue that marks from a threshold on |
//! | [`topology`] | one link between two switches; a fat tree |
//! | `events` | what happens next |
//! | `network` | packets on their way |
//! | [`vanilla`] | DCTCP by window |
//! | [`traffic`] | who sends how much to whom, and when |
//! | `hosts` | the endpoints and their applications |
//! | [`simulation`] | all of it, until it ends |
//! | [`results`] | completion times and queues, summed up |
//! | [`figures`] | the dissertation's two figures: what it says, and what we chose |
#![forbid(unsafe_code)]

mod events;
pub mod figures;
mod hosts;
mod network;
pub mod port;
pub mod results;
mod sender;
pub mod simulation;
pub mod topology;
pub mod traffic;
pub mod vanilla;

pub use results::Series;
pub use sender::Sender;
pub use simulation::{Impossible, Setup, run};
