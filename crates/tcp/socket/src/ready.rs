//! The readiness of a connection, as poll says it: the ring's part here, the rest the kernel's
//! connection. And poll(2) itself over both.

use crate::context::Context;
use crate::flow::Flow;
use crate::kernel;
use crate::sleepers::Sleeper;
use crate::wait::a_moment;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::ring::FINISHED;
use uncopy_tcp_shared::wanted::Doors;

/// The ring's answer, and the events that are left to ask the kernel for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// POLLIN, POLLOUT, as far as the rings know.
    pub now: PollFlags,
    /// The events that only the kernel knows: POLLOUT is none of them while sending goes through
    /// the ring.
    pub ask: PollFlags,
    /// The other side says that the kernel has news of the end.
    pub hint: bool,
}

impl Flow {
    /// The events that are ready now. No system call.
    #[inline]
    pub fn ready(&self) -> Ready {
        let mut ready = Ready { now: PollFlags::empty(), ask: PollFlags::all(), hint: false };
        let Some(attached) = self.attached() else { return ready };
        if attached.has_bytes_behind(self.lent.load(Relaxed)) {
            ready.now |= PollFlags::IN | PollFlags::RDNORM;
        }
        if attached.room_is_of_ring() {
            ready.ask -= PollFlags::OUT | PollFlags::WRNORM;
            if attached.has_room() {
                ready.now |= PollFlags::OUT | PollFlags::WRNORM;
            }
        }
        ready.hint = attached.inward().produced.flags.load(Relaxed) & FINISHED != 0;
        ready
    }

    /// How many bytes have ever come by the ring, come round.
    pub(crate) fn come(&self) -> u32 {
        self.attached().map_or(0, |attached| attached.inward().produced.tail.load(Relaxed))
    }

    /// The program looks for bytes: the other side may offer its ring.
    pub fn receives(&self) {
        if let Some(attached) = self.attached() {
            attached.receives();
        }
    }

    /// Wants to be told of what is missing. Look once more after it.
    pub fn arm(&self, events: PollFlags, doors: Doors) {
        let Some(attached) = self.attached() else { return };
        if events.intersects(PollFlags::IN | PollFlags::RDNORM) {
            attached.receives();
            attached.inward().consumed.data.arm(doors);
        }
        if events.intersects(PollFlags::OUT | PollFlags::WRNORM) {
            attached.out().produced.room.arm(doors);
        }
    }
}

/// One of what [`Context::poll`] waits for.
#[derive(Debug)]
pub struct Item<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Its connection, if it is one that was registered.
    pub flow: Option<&'a Flow>,
    /// The events that are asked for.
    pub events: PollFlags,
    /// The events that are ready.
    pub revents: PollFlags,
}

const ROOM: PollFlags = PollFlags::OUT.union(PollFlags::WRNORM);
const ALWAYS: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

/// The sets that a poll sleeps in: of each context of its connections one, taken from the first of
/// them. Where there is no descriptor for one: those connections go by Linux from now on, and as
/// long as not all of them do a poll looks again after a moment.
struct Doorkeepers<'a>(Vec<(&'a Flow, Sleeper)>, Vec<&'a Flow>);

impl<'a> Doorkeepers<'a> {
    /// For the connections that are at rings, or may get there; none where nothing is.
    fn of(items: &[Item<'a>]) -> Result<Self, Errno> {
        let mut all = Self(vec![], vec![]);
        for flow in items.iter().filter_map(|item| item.flow.filter(|f| !f.is_linux())) {
            // The thread that attaches it knocks.
            flow.waiting.fetch_add(1, Relaxed);
            all.1.push(flow);
        }
        // (One connection's own is not for others' news.)
        let alone = all.1.len() == 1;
        for flow in &all.1 {
            if !all.0.iter().any(|(other, _)| Arc::ptr_eq(&other.context, &flow.context)) {
                let sleeper = if alone { flow.take_sleeper(false) } else { flow.context.sleeper() };
                match sleeper {
                    Err(Errno::MFILE | Errno::NFILE) => _ = flow.gives_way(),
                    sleeper => all.0.push((flow, sleeper?)),
                }
            }
        }
        Ok(all)
    }

    /// Some connection is not Linux's, and knocks nowhere.
    fn miss_one(&self) -> bool {
        self.1.iter().any(|flow| self.door_of(flow).is_none() && !flow.gives_way())
    }

    fn door_of(&self, flow: &Flow) -> Option<Doors> {
        let found = self.0.iter().find(|(of, _)| Arc::ptr_eq(&of.context, &flow.context));
        found.map(|(_, sleeper)| sleeper.doors())
    }
}

impl Drop for Doorkeepers<'_> {
    fn drop(&mut self) {
        for (flow, sleeper) in self.0.drain(..) {
            flow.give_back_sleeper(sleeper);
        }
        self.1.iter().for_each(|flow| _ = flow.waiting.fetch_sub(1, Relaxed));
    }
}

impl Context {
    /// As poll(2), over connections and everything else. None waits without end.
    pub fn poll(
        self: &Arc<Self>,
        items: &mut [Item],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        self.poll_with(items, timeout, None)
    }

    /// As ppoll(2).
    pub fn poll_with(
        self: &Arc<Self>,
        items: &mut [Item],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let looks_only = timeout == Some(Duration::ZERO);
        // The doors' edges since now.
        let mut keepers = Doorkeepers(vec![], vec![]);
        let mut spins = true;
        // Some stream's end was heard of that nobody asked for.
        let mut ended = false;
        loop {
            self.pump();
            let mut any = Self::look(items);
            if !any && !looks_only {
                if (self.settings.interrupted)() {
                    return Err(Errno::INTR);
                }
                if spins && Self::may_spin(items) {
                    let look = || items.iter().any(|item| !item.of_ring().is_empty());
                    any = self.spinning.spin(look) && Self::look(items);
                }
                spins = false;
                if !any {
                    if keepers.1.is_empty() {
                        keepers = Doorkeepers::of(items)?;
                        fence(SeqCst);
                    }
                    for item in items.iter() {
                        if let Some(flow) = item.flow
                            && let Some(door) = keepers.door_of(flow)
                        {
                            flow.arm(item.events, door);
                        }
                    }
                    any = Self::look(items);
                }
            }
            let mut fds: Vec<PollFd> = Vec::with_capacity(items.len() + 1);
            // For room in the ring the kernel is not asked. (Whether it is, and for how long, from
            // one look: another thread may leave the ring at any moment.)
            let waits_for_ring =
                |item: &Item| item.flow.filter(|_| item.events.intersects(ROOM))?.waits_for_ring();
            let by_ring: Vec<Option<Duration>> = items.iter().map(waits_for_ring).collect();
            fds.extend(items.iter().zip(&by_ring).map(|(item, by_ring)| {
                let owes = item.flow.is_some_and(Flow::owes);
                let asked = match by_ring {
                    // A dead peer makes no room.
                    Some(_) => (item.events - ROOM) | PollFlags::RDHUP,
                    // Of one that was killed with bytes unread in its ring Linux knows no more than
                    // this.
                    None if !ended && item.flow.is_some_and(Flow::has_slot) => {
                        item.events | PollFlags::RDHUP
                    }
                    None => item.events,
                };
                let asked = if owes { asked | PollFlags::OUT } else { asked };
                PollFd::from_borrowed_fd(item.fd, asked)
            }));
            fds.extend(keepers.0.iter().map(|(_, keeper)| PollFd::new(&keeper.set, PollFlags::IN)));
            let left = if any || self.spinning.only_looks() {
                Some(Duration::ZERO)
            } else {
                deadline.map_or(timeout, |deadline| {
                    Some(deadline.saturating_duration_since(Instant::now()))
                })
            };
            let most = by_ring.iter().flatten().min().copied();
            let left = most.map(|most| left.map_or(most, |left| left.min(most))).or(left);
            let left = self.deaths.wake(left);
            let left = match left {
                _ if !keepers.miss_one() => left,
                left => Some(a_moment(left)),
            };
            // Where rings have said something that is told: what the mask lets in stays pending.
            let polled = kernel::ppoll(&mut fds, left, mask.filter(|_| !any));
            if polled != Err(Errno::INTR) || !any {
                polled?;
            }
            if !keepers.0.is_empty() {
                self.serve_asked();
            }
            // (A connection may have several numbers here: what one of them finds is so for all.)
            let mut died = false;
            for (item, fd) in items.iter().zip(&fds) {
                died |= !fd.revents().is_empty() && item.flow.is_some_and(Flow::sees_death);
                ended |= fd.revents().contains(PollFlags::RDHUP);
                if let Some(flow) = item.flow.filter(|flow| flow.owes())
                    && fd.revents().contains(PollFlags::OUT)
                {
                    // (An error: the next send hears of it.)
                    let _ = flow.serve();
                }
            }
            for (item, fd) in items.iter_mut().zip(&fds) {
                let said = fd.revents();
                let said = match item.flow {
                    Some(flow) if died => flow.kernel_poll(item.events),
                    Some(flow) => flow.with_error(said),
                    None => said,
                };
                let answer = said & (item.events | ALWAYS);
                item.revents |= answer;
                let Some(flow) = item.flow.filter(|_| !fd.revents().is_empty()) else { continue };
                flow.ask.store(true, Relaxed);
                if fd.revents().contains(PollFlags::RDHUP)
                    && item.events.intersects(ROOM)
                    && flow.room_is_linuxs()
                {
                    item.revents |= flow.kernel_poll(item.events & ROOM) & item.events;
                }
            }
            let count = items.iter().filter(|item| !item.revents.is_empty()).count();
            if count > 0 || looks_only || deadline.is_some_and(|end| end <= Instant::now()) {
                return Ok(count);
            }
            for (_, keeper) in &keepers.0 {
                keeper.knocked();
            }
        }
    }

    fn look(items: &mut [Item]) -> bool {
        let mut any = false;
        for item in items {
            if let Some(flow) = item.flow.filter(|_| item.events.contains(PollFlags::IN)) {
                flow.receives();
            }
            item.revents = item.of_ring();
            any |= !item.revents.is_empty();
        }
        any
    }

    /// Nothing but connections at rings.
    fn may_spin(items: &[Item]) -> bool {
        !items.is_empty() && items.iter().all(|item| item.flow.is_some_and(Flow::is_attached))
    }
}

impl Item<'_> {
    fn of_ring(&self) -> PollFlags {
        self.flow.map_or(PollFlags::empty(), |flow| flow.ready().now & self.events)
    }
}
