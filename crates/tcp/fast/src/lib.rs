//! Flows among several threads: some run lanes of the fast path, one the slow path (TAS, 3.2.1,
//! 3.2.2, 3.2.4).
//!
//! The protocol is [`uncopy_tcp_proto`]'s, which knows no threads. Here is what its
//! [`Flows`](uncopy_tcp_proto::flows::Flows) wants of somebody who has: a lock for each flow, and a
//! way to say that a flow has something to send.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`spin`] | a lock that is held for some ten nanoseconds |
//! | [`inbox`] | what others ask a lane to send |
//! | [`shared_flows`] | all flows, and the views of them that threads have |
//! | [`applications`] | what the threads want of those who have the connections |
//! | [`service`] | the threads, and what they share |
//! | `lanes`, `slow` | what a lane's thread does, and the slow path's |
//! | `wires` | which lane serves which wire |
//! | `work` | what waits for the slow path |
//! | `park` | what a lane sleeps in |
//! | [`idle`] | whether a lane looks again, or sleeps |
//! | [`parker`] | how a thread sleeps and is woken |
//! | [`proportion`] | how many lanes run |
//! | `sync` | atomics, or loom's |

pub mod applications;
pub mod idle;
pub mod inbox;
mod lanes;
mod park;
pub mod parker;
pub mod proportion;
pub mod service;
pub mod shared_flows;
mod slow;
pub mod spin;
mod sync;
mod wires;
mod work;

pub use applications::Applications;
pub use idle::Wait;
pub use service::Service;
pub use shared_flows::{SharedFlows, View};
