//! Operations of a program that concern the tracker, with the time that they took, as far as they
//! can be recorded and done again.

use crate::reasons::Refusal;
use uncopy_ranges::span::Span;

/// One thing that the program did: a call of the tracker's, but for what the tracker made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It copied.
    Copy {
        /// Destination.
        to: usize,
        /// Source.
        from: usize,
        /// Bytes.
        len: usize,
        /// Where the call returns to.
        caller: usize,
        /// Whether the source was believed to be input.
        input: bool,
    },
    /// An input call began: one of its buffers. Those of one call have the same number.
    Receive {
        /// The number of the call.
        call: u32,
        /// The buffer.
        addr: usize,
        /// Room in it.
        len: usize,
    },
    /// It ended.
    Received {
        /// The number of the call.
        call: u32,
        /// Bytes that came.
        bytes: usize,
    },
    /// An output call began: one of its buffers.
    Send {
        /// The number of the call.
        call: u32,
        /// The buffer.
        addr: usize,
        /// Bytes in it.
        len: usize,
    },
    /// It ended.
    Sent {
        /// The number of the call.
        call: u32,
        /// Bytes that went.
        bytes: usize,
    },
    /// It freed memory, or dropped its content.
    Freed(Span),
    /// A mapping went away.
    Unmapped(Span),
    /// A mapping moved.
    Remapped {
        /// From this address
        from: usize,
        /// to this one.
        to: usize,
        /// Bytes.
        len: usize,
    },
    /// Nobody needs what is there any more, and it is not to be tracked.
    Untracked(Span),
    /// The span has to be ordinary memory (for a call that would not get along with anything else).
    MadeOrdinary(Span),
    /// The span has to be resident.
    MadeResident(Span),
    /// It touched a page that was unmapped.
    Touch {
        /// Address.
        addr: usize,
    },
    /// The span was not registered, or not moved.
    Refused {
        /// Which memory.
        span: Span,
        /// Why.
        why: Refusal,
    },
}

/// Sees all that passes between the program, the tracker and the controller.
pub trait Observer: Send {
    /// The program did something.
    fn did(&mut self, operation: Operation);
    /// The controller is told this.
    fn told(&mut self, site: crate::SiteId, event: crate::Event);
}
