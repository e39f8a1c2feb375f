//! Which way a peer is, as Linux has it: the device, our address, and the hardware addresses. Linux
//! keeps its routes, neighbours and addresses; they are read once, and kept up to date by its
//! notifications (rtnetlink). A neighbour that it does not know it is asked to look for.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`messages`] | netlink's bytes: what has changed; what is asked. Pure |
//! | [`table`] | all that is known: from a peer's address to its next hop. Pure |
//! | [`hops`] | next hops by number, with hardware addresses: any thread reads without a lock |
//! | [`kernel`] | the socket |
//! | [`watch`] | the three together: a thread that keeps them |
//! | [`detour`] | what has another mark goes by a device of ours: a rule and a route |
//! | [`loopback`] | what has a mark comes back to this host: a rule and a route |
//!
//! IPv4, Ethernet, the main table: rules that choose others, and next hops of several that are not
//! the first, are not heeded.
#![forbid(unsafe_code)]

pub mod detour;
pub mod hops;
pub mod kernel;
pub mod loopback;
pub mod messages;
pub mod table;
pub mod watch;

pub use hops::Hops;
pub use watch::Routes;
