//! The senders.

use uncopy_tcp_proto::Algorithm;
use uncopy_tcp_proto::time::Nanos;

/// The congestion control of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The core's, set after each of these intervals; two round trips of each flow if none is
    /// given.
    Core {
        /// Which.
        algorithm: Algorithm,
        /// The interval in nanoseconds.
        interval: Option<Nanos>,
    },
    /// DCTCP by window, set on each acknowledgement.
    Vanilla,
}

impl Sender {
    /// The core's DCTCP, by rate, as the service has it.
    pub const CORE: Sender = Sender::Core { algorithm: Algorithm::Dctcp, interval: None };
}
