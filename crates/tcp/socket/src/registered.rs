//! A connection is registered, and becomes Linux's for good or gets a slot.

use crate::attached::Attached;
use crate::context::Context;
use crate::counts::stayed;
use crate::door::{OwnDoor, knock_at};
use crate::flow::Flow;
use crate::kernel;
use crate::lock::lock;
use crate::mapped::{Mapped, Registered};
use rustix::net::sockopt::socket_cookie;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, OnceLock, Weak};
use uncopy_counters::add;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_tcp_service::diag::Diag;
use uncopy_tcp_service::ends::is_stand_in;
use uncopy_tcp_service::protocol::StayReason;
use uncopy_tcp_shared::ring::FINISHED;

impl Registered for Flow {
    fn fd(&self) -> BorrowedFd<'_> {
        Flow::fd(self)
    }

    fn is_named(&self, token: u64) {
        self.token.store(token, Ordering::Relaxed);
    }

    fn stays(&self, reason: StayReason) {
        if self.attached.set(None).is_ok() && self.reason.set(reason).is_ok() {
            add(stayed(self.context.settings.counters, reason), 1);
        }
    }

    fn not_yet(&self) {
        self.calls.store(0, Ordering::Relaxed);
        self.registered.store(false, Ordering::SeqCst);
    }

    fn attach(self: Arc<Self>, mapped: Arc<Mapped>, slot: usize, generation: u32) {
        let other_door = OnceLock::new();
        let cookie = socket_cookie(self.fd()).unwrap_or(0);
        let attached = Attached { mapped: mapped.clone(), slot, generation, other_door, cookie };
        // Registered long ago, perhaps: attach only what is connected still. Then its other end is
        // the one that the service matched: names of ends that live are unique.
        if !self.is_undecided() || !uncopy_tcp_service::ends::is_connected(self.fd()) {
            attached.detach();
            self.stays(StayReason::NotConnected);
            return;
        }
        self.refresh_timeouts();
        mapped.ends.begin(slot, mapped.side, self.context.process());
        let itself: Weak<Self> = Arc::downgrade(&self);
        mapped.set_flow(slot, Some(itself));
        if let Err(Some(attached)) = self.attached.set(Some(attached)) {
            // It was closed meanwhile.
            attached.detach();
            return;
        }
        let Some(Some(attached)) = self.attached.get() else { return };
        // Nobody has announced an end of the stream from before it had a slot. (Either `shutdown`
        // sees the slot, or this sees that.)
        fence(Ordering::SeqCst);
        if self.finishes.load(Ordering::SeqCst) || kernel::has_finished(self.fd()) {
            attached.out().produced.flags.fetch_or(FINISHED, Ordering::Release);
        }
        if self.shut.load(Ordering::SeqCst) || self.was_shut_elsewhere() {
            mapped.ends.shut(slot).store(true, Ordering::Relaxed);
        }
        attached.slot_header().ends[mapped.side].attached.store(generation, Ordering::Release);
        // From here on the peer's answers may come by the ring.
        self.push();
        add(&self.context.settings.counters.tcp_connections, 1);
        // A thread that fell asleep over Linux' socket alone must know of the ring.
        self.tell_sets(true);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.context.wake_sleepers();
        }
    }

    fn is_asked_for(&self) {
        let _ = self.serve();
    }

    fn take_door(&self, generation: u32, door: OwnFd) {
        let Some(Some(attached)) = self.attached.get() else { return };
        // Another process that has this end too would not have the door.
        if generation == attached.generation
            && attached.is_sole()
            && self.context.is_door(&door)
            && let Ok(door) = OwnDoor::new(door)
            && attached.other_door.set(door).is_ok()
        {
            let ends = &attached.slot_header().ends;
            ends[attached.mapped.side].knocks.store(generation, Ordering::Release);
        }
    }

    fn knock(&self) {
        if let Some(Some(attached)) = self.attached.get()
            && let Some(own) = attached.other_door.get()
        {
            knock_at(&own.0);
        }
    }

    fn has_ended(&self) -> bool {
        self.is_closed()
    }

    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    fn may_have_ended(&self, diag: &mut Option<Diag>) -> bool {
        self.ask.store(true, Ordering::Relaxed);
        let Some(Some(attached @ Attached { mapped, slot, .. })) = self.attached.get() else {
            return true;
        };
        // (Until it is let go nobody closes the socket.)
        let _own = mapped.ends.receiving(*slot, self.context.process());
        self.is_closed() || self.peer_may_be_gone(attached, diag)
    }

    #[inline]
    fn tell_sets(&self, asleep_too: bool) {
        for watcher in lock(&self.watchers).iter() {
            watcher.clone().news(asleep_too);
        }
    }
}

impl Context {
    /// A socket that was just connected or accepted, or is about to be. It is registered when it
    /// has been used a few times ([`Flow::way`]).
    pub fn flow(self: &Arc<Self>, fd: RawFd, nonblocking: bool) -> Arc<Flow> {
        add(&self.settings.counters.tcp_begun, 1);
        Flow::new(self.clone(), fd, nonblocking, false)
    }

    /// As [`Context::flow`], of one that a parent process opened or accepted.
    pub(crate) fn inherited(self: &Arc<Self>, fd: RawFd, nonblocking: bool) -> Arc<Flow> {
        Flow::new(self.clone(), fd, nonblocking, true)
    }

    /// A socket that was just connected or accepted. It is Linux's until the service says that its
    /// other end was registered too. One short message; none for a peer on another host.
    pub fn register(self: &Arc<Self>, fd: RawFd, nonblocking: bool) -> Arc<Flow> {
        let flow = self.flow(fd, nonblocking);
        flow.registered.store(true, Ordering::Relaxed);
        match uncopy_tcp_service::ends::name(flow.fd()) {
            Ok(name) if name.is_local() || is_stand_in(flow.fd()) => {
                self.register_with_service(flow.clone(), name);
            }
            Ok(_) => flow.stays(StayReason::Remote),
            Err(reason) => flow.stays(reason),
        }
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uncopy_counters::connections;

    #[test]
    fn every_reason_that_is_counted_is_the_services_and_documented_with_what_to_do() {
        let page = include_str!("../../../../docs/inside/tcp.md");
        for stays in connections::STAYS {
            let reason = StayReason::ALL.into_iter().find(|reason| reason.name() == stays.name);
            assert_eq!(reason.map(StayReason::text), Some(stays.text), "{}", stays.name);
            let row = format!("| `{}` | {} | {} |", stays.name, stays.text, stays.next);
            assert!(page.contains(&row), "docs/inside/tcp.md lacks: {row}");
        }
        // The others are a direction's.
        let of_directions = [
            StayReason::NotAwaited,
            StayReason::NotOffered,
            StayReason::GivenBack,
            StayReason::Ended,
            StayReason::Left,
        ];
        let others = StayReason::ALL.into_iter().filter(|r| connections::stays(r.name()).is_none());
        assert_eq!(others.collect::<Vec<_>>(), of_directions);
    }
}
