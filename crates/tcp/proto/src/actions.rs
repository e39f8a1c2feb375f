//! The endpoint's output: segments to send, places for payload, events; and errors for commands.

use crate::flow::Place;
use crate::segment::Outgoing;
use core::fmt;

/// Names a connection. A name of one that has ended is refused, also when its slot belongs to
/// another one by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct FlowId {
    /// The slot: less than [`Config::flows`](crate::Config::flows). The caller's tables may be
    /// indexed by it.
    pub slot: u32,
    /// Which connection of that slot.
    pub generation: u32,
}

/// Names a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ListenerId(pub u32);

/// Why a connection ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResetReason {
    /// Nobody listens there.
    Refused,
    /// The peer sent RST.
    ByPeer,
    /// No answer.
    TimedOut,
    /// The peer sent data after the application had closed, or closed with data unread.
    Unread,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A connection came in and waits to be accepted. Its buffers are needed from now on.
    Incoming {
        /// The listener.
        listener: ListenerId,
    },
    /// A connection that was asked for is there. Its buffers are needed from now on.
    Connected,
    /// So many more bytes can be read.
    Readable(u32),
    /// So many more bytes can be written.
    Acked(u32),
    /// The peer sends no more.
    PeerClosed,
    /// Ended by both sides, everything was acknowledged. The name is gone, the buffers are the
    /// caller's.
    Closed,
    /// Ended otherwise. The name is gone, the buffers are the caller's.
    Reset(ResetReason),
}

/// The caller's part that carries it out. Everything is told in the order in which it has to be
/// done.
pub trait Actions {
    /// Send this; its payload lies in the send buffer of `flow` (where it has one).
    fn send(&mut self, flow: Option<FlowId>, segment: &Outgoing);
    /// Copy the payload of the segment that is being handled into the receive buffer of `flow`. How
    /// many of its bytes were taken: those behind them have not come, and come again.
    fn place(&mut self, flow: FlowId, place: Place) -> u32;
    /// Tell the application.
    fn event(&mut self, flow: FlowId, event: Event);
}

/// Why a command was refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// That connection has ended, or never was.
    NoSuchFlow,
    /// The connection is not in a state for this.
    WrongState,
    /// More bytes than there are, or than there is room for.
    TooMany,
    /// There is a listener, or a connection between these ends, already.
    InUse,
    /// All ports are in use.
    NoPort,
    /// The application's limit.
    Limit,
    /// No slot is free.
    Full,
    /// A buffer size, address or port that cannot be.
    Invalid,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoSuchFlow => "that connection has ended",
            Refusal::WrongState => "the connection is not in a state for this",
            Refusal::TooMany => "more bytes than the buffer holds",
            Refusal::InUse => "the address and port are in use",
            Refusal::NoPort => "all ports for outgoing connections are in use",
            Refusal::Limit => "the application's limit is reached",
            Refusal::Full => "there is no room for another connection",
            Refusal::Invalid => "such a buffer size, address or port cannot be",
        })
    }
}

impl core::error::Error for Refusal {}
