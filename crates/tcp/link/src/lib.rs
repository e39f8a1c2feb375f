//! A link in real time between some hosts that send and one that receives. Its rate is what the
//! hosts share; it loses frames by a seed, delays them, marks them where a queue is long, and drops
//! what the queue does not hold. A host is Linux, in a network namespace of its own behind a TAP
//! device; or it is uncopy's TCP (`uncopy-tcp-proto`), in this process. Both are on the same link,
//! and send the same bytes, of which the receiver compares each.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`direction`] | one direction of the link |
//! | [`stream`] | the bytes of a flow |
//! | [`frame`] | addresses, the mark of a frame, what a handshake offers |
//! | [`facts`] | what the connections of a side are, to be compared |
//! | [`linux`] | a host that is Linux |
//! | [`core`] | a host that is uncopy's TCP |
//! | [`mod@run`] | all of it for some seconds, and what each flow got |

pub mod core;
pub mod direction;
pub mod facts;
pub mod frame;
pub mod linux;
pub mod run;
pub mod stream;

pub use facts::Facts;
pub use run::{Plan, Report, Tcp, run};
