//! A region that a process shares with another, as one of its sides, and the connections in it, to
//! which it routes what the service and the other side say.

use crate::blocks::{Blocks, Exchange};
use crate::ends::Ends;
use crate::knocks::Knocks;
use crate::lock::{Guarded, lock};
use crate::order::{ByLinux, Knocked};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use uncopy_kernel::descriptors::{Kept, OwnFd};
use uncopy_tcp_service::diag::Diag;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_shared::notice::SLOTS;
use uncopy_tcp_shared::region::SharedRegion;
use uncopy_tcp_shared::stores::Prices;
use uncopy_tcp_shared::ticks::ticks;

/// A connection, as far as a process routes to it what the service and the other side say.
pub(crate) trait Registered: Send + Sync {
    /// The socket.
    fn fd(&self) -> BorrowedFd<'_>;
    /// It is registered by this name.
    fn is_named(&self, token: u64);
    /// Linux's for good.
    fn stays(&self, reason: StayReason);
    /// There is no service now; later there may be.
    fn not_yet(&self);
    /// The service has given it a slot.
    fn attach(self: Arc<Self>, mapped: Arc<Mapped>, slot: usize, generation: u32);
    /// The sets that it is in look at it: also those in which a thread of another set sleeps, if
    /// so.
    fn tell_sets(&self, asleep_too: bool);
    /// The other side has asked for what lies unread in the ring.
    fn is_asked_for(&self);
    /// The other side has a door of its own for it.
    fn take_door(&self, generation: u32, door: OwnFd);
    /// Knocks at that.
    fn knock(&self);
    /// The program has closed it.
    fn has_ended(&self) -> bool;
    /// Nothing is received by the ring any more.
    fn has_left(&self) -> bool;
    /// The other program has ended, or a process of it: Linux is to be asked. False: it may tell
    /// more soon.
    fn may_have_ended(&self, diag: &mut Option<Diag>) -> bool;
}

/// A region, as one of its sides.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub id: u64,
    pub process: u32,
    pub side: usize,
    /// The blocks that the sides have given each other.
    pub exchange: Exchange,
    /// Which messages do.
    pub blocks: Blocks,
    pub region: Arc<SharedRegion>,
    pub doors: Arc<[Kept]>,
    pub ends: Ends,
    /// The costs of large copies that we make for the other side.
    pub prices: Prices,
    /// This process'.
    pub knocks: Arc<Knocks>,
    /// This process'.
    pub by_linux: Arc<ByLinux>,
    /// At the other side's doors.
    pub knocked: Knocked,
    /// The other program has left the service. Its children may still hold connections.
    pub gone: AtomicBool,
    pub flows: Guarded<[Option<Weak<dyn Registered>>; SLOTS]>,
}

impl Mapped {
    pub fn flow(&self, slot: usize) -> Option<Arc<dyn Registered>> {
        lock(&self.flows)[slot].as_ref()?.upgrade()
    }

    /// All connections that are in it.
    pub fn flows(&self) -> Vec<Arc<dyn Registered>> {
        lock(&self.flows).iter().flatten().filter_map(Weak::upgrade).collect()
    }

    pub fn set_flow(&self, slot: usize, flow: Option<Weak<dyn Registered>>) {
        lock(&self.flows)[slot] = flow;
    }

    /// The other program has gone, and no connection is in it.
    pub fn is_left(&self) -> bool {
        let ended = |flow: Arc<dyn Registered>| flow.has_ended();
        self.gone.load(Ordering::Relaxed)
            && lock(&self.flows).iter().flatten().all(|flow| flow.upgrade().is_none_or(ended))
    }

    /// Nobody will look at it again.
    pub fn is_over(&self) -> bool {
        self.is_left() && self.exchange.is_over(self.region.returns(self.side), self.id)
    }

    /// Nobody here will look at this slot.
    pub fn closed(&self, slot: usize, generation: u32) {
        self.region.slot(slot).header.ends[self.side].closed.store(generation, Ordering::Release);
    }

    /// One of the other side's doors is about to be knocked at, whatever there is news of.
    pub fn wakes(&self, door: usize) {
        self.region.notice(1 - self.side, door).wakes(ticks());
    }

    /// Knocks at one of the other side's doors.
    pub fn knock(&self, door: usize) {
        self.knocks.knock_one(&self.doors, door);
    }
}
