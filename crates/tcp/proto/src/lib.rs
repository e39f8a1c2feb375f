//! The TCP of uncopy's service: segments and time go in, segments and events come out.
//!
//! Nothing here does input or output, reads a clock, starts a thread, or touches payload: segments
//! name ranges of circular buffers, and the caller copies ([`Actions`]). All memory is taken when
//! an [`Endpoint`] is made; handling segments, timers and commands of established connections
//! allocates nothing. So the same code runs in the service, on a test wire that loses and reorders,
//! and in a simulator.
//!
//! The model is TAS (Stamler's dissertation, 3.2): a *fast path* that handles what happens to every
//! segment, on little state, in constant time; a *slow path* for everything else, which looks at
//! each flow every two round trips and tells the fast path how fast it may send.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`seq`] | numbers that wrap |
//! | [`time`] | moments, as the caller's clock has them |
//! | [`segment`] | a segment as numbers and flags |
//! | [`wire`] | its bytes: Ethernet, IPv4, TCP, options, checksums |
//! | [`intervals`] | a few runs of numbers: what came out of order |
//! | [`flow`] | **the fast path**: a connection in two cache lines, receive and transmit |
//! | [`flows`] | where flows are kept: for one thread, or for several |
//! | [`lane`] | a core's part of the fast path: finds the flow of a segment, drains what is ready |
//! | [`endpoint`] | the top: a lane and the slow path |
//! | [`slow`] | **the slow path**: handshakes, ends, resets, timers, path MTU, commands |
//! | [`congestion`] | DCTCP and TIMELY by rate, Reno and CUBIC by window |
//! | [`conn`] | what only the slow path knows of a connection; the states |
//! | `listeners`, `cookie` | who listens; SYN floods |
//! | [`apps`] | what each application may use |
//! | [`table`] | from four numbers to a slot |
//! | [`wheel`] | timers |
//! | [`config`], [`actions`] | what goes in beside segments, what comes out |
#![forbid(unsafe_code)]

pub mod actions;
pub mod apps;
pub mod config;
pub mod congestion;
pub mod conn;
mod cookie;
pub mod endpoint;
pub mod flow;
pub mod flows;
pub mod intervals;
pub mod lane;
mod listeners;
pub mod segment;
pub mod seq;
pub mod slow;
pub mod table;
pub mod time;
pub mod wheel;
pub mod wire;

pub use actions::{Actions, Event, FlowId, ListenerId, Refusal, ResetReason};
pub use config::{Config, Connect, FlowOptions, KeepAlive, Limits, Listen};
pub use congestion::Algorithm;
pub use conn::State;
pub use endpoint::{Counters, Endpoint, Info};
pub use lane::{Lane, Left};
pub use segment::{Outgoing, Segment};
pub use seq::Seq;
pub use time::Time;
