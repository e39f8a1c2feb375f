//! How a process uses the service.

use crate::blocks::Blocks;
use crate::spinning::Waiting;
use uncopy_counters::Counters;
use uncopy_tcp_service::Rendezvous;

/// See the module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which service.
    pub service: Rendezvous,
    /// How blocking calls and sets wait.
    pub waiting: Waiting,
    /// Starts a service where none answers. It need not be there at once.
    pub start: Option<fn()>,
    /// Calls after which a connection is registered, where a test says it.
    pub after: Option<u32>,
    /// The calling thread is to stop waiting: its call says EINTR. The thread that makes that so
    /// wakes it ([`wake_sleepers`](crate::Context::wake_sleepers)).
    pub interrupted: fn() -> bool,
    /// Where what became of connections is counted.
    pub counters: &'static Counters,
    /// The other sides are of other users, and may mean harm: none of them is waited for.
    pub wary: bool,
    /// Whether calls ask Linux now and then if the peer lives. A program that is told of it by a
    /// set that it looks at all the time need not.
    pub asks: bool,
    /// Whether it may be waited for what other programs do: an end of a stream for Linux' room for
    /// what goes before it, a look for a death for the rest of it. A server of many may not: then
    /// these are taken up later ([`Flow::shutdown`](crate::Flow::shutdown) says EAGAIN).
    pub may_wait: bool,
    /// Which messages go in blocks of memory that the receiver maps, where it would view them.
    pub blocks: Blocks,
    /// Whether blocks may take so many bytes of memory.
    pub may_hold: fn(u64) -> bool,
}

/// A static: for those who do not look.
static NOBODYS: Counters = Counters::new();

impl Settings {
    /// Of this service, or the one of this name.
    pub fn new(service: impl Into<Rendezvous>) -> Self {
        Self {
            service: service.into(),
            waiting: Waiting::Adaptive,
            start: None,
            after: None,
            interrupted: || false,
            counters: &NOBODYS,
            wary: false,
            asks: true,
            may_wait: true,
            blocks: Blocks::NONE,
            may_hold: |_| true,
        }
    }
}
