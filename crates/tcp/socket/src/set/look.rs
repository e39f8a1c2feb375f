//! What the rings say, of what is asked; and what the kernel is asked for besides.

use super::entry::Entry;
use super::{ALWAYS, Event, OUT, Set};
use crate::flow::Flow;
use crate::lock::lock;
use libc::{EPOLLET, EPOLLONESHOT, EPOLLRDHUP};
use rustix::event::{PollFlags, epoll};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

impl Set {
    /// What the rings say.
    pub(super) fn rings(&self, events: &mut [Event]) -> usize {
        self.context.pump();
        self.context.collect(self.door);
        self.queue_swept();
        // What is queued again meanwhile waits for the next call.
        let mut left = lock(&self.queue.entries).len();
        let mut count = 0;
        while left > 0 && count < events.len() {
            left -= 1;
            let Some(entry) = lock(&self.queue.entries).pop_front() else { break };
            entry.queued.swap(false, AcqRel);
            if let Some(event) = self.look(&entry) {
                events[count] = event;
                count += 1;
            }
        }
        count
    }

    /// Those of which nobody tells it are looked at.
    pub(super) fn queue_swept(&self) {
        let swept = lock(&self.entries).swept.clone();
        swept.iter().for_each(Entry::queue);
    }

    /// What is so of one, of what is asked. Where nothing is, it is told when something will be.
    fn look(&self, entry: &Arc<Entry>) -> Option<Event> {
        let flow = &entry.flow;
        if entry.is_off() || entry.closed.load(Acquire) || !flow.is_attached() {
            return None;
        }
        let arming = entry.arming.load(Acquire);
        let leaves = flow.counts.leaves.load(Acquire);
        if !entry.at_ring.swap(true, Relaxed) {
            self.at_ring.store(true, Relaxed);
        }
        let asked = entry.events.load(Relaxed);
        let edge = asked & EPOLLET as u32 != 0;
        if flow.is_inherited() {
            lock(&self.entries).sweep(entry);
        }
        let (mut now, mut sends_by_ring) = Self::now(flow, asked);
        if edge || now == 0 {
            let missing = if edge { asked & !(now & OUT) } else { asked };
            flow.arm(PollFlags::from_bits_retain(missing as u16), entry.doors());
            (now, sends_by_ring) = Self::now(flow, asked);
        }
        self.mask(entry, sends_by_ring, asked, arming);
        now |= entry.room_of_linux(sends_by_ring, asked, leaves);
        entry.leaves.store(leaves, Relaxed);
        if now == 0 {
            return None;
        }
        if asked & EPOLLONESHOT as u32 != 0 {
            if !entry.takes_its_turn(arming) {
                return None;
            }
            // (Without it the kernel would go on telling of the peer's death, to which nobody listens now.)
            self.kernel_events(entry, EPOLLONESHOT as u32, arming);
        } else if !edge {
            // Level: it is looked at again next time.
            entry.queue();
        }
        Some(Event { events: now, data: entry.data.load(Relaxed) })
    }

    /// The kernel is asked for these, which follow from what the program wanted when it had changed it for the `arming`th time.
    pub(super) fn kernel_events(&self, entry: &Entry, events: u32, arming: u32) {
        let entries = lock(&self.entries);
        // What another thread has changed meanwhile the kernel knows.
        if !entries.has(entry) || !entry.has_its_number() || entry.arming.load(Acquire) != arming {
            return;
        }
        let key = epoll::EventData::new_u64(entry.kernel_data.load(Relaxed));
        let fd = Self::borrowed(entry.fd);
        if epoll::modify(self.kernel(), fd, key, Self::flags(events)).is_ok() {
            entry.kernel_events.store(events, Relaxed);
        }
    }

    /// What is so of what is asked, and whether sending goes by the ring.
    pub(super) fn now(flow: &Flow, asked: u32) -> (u32, bool) {
        let ready = flow.ready();
        let mut now = u32::from(ready.now.bits());
        if ready.hint {
            let events = PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            now |= u32::from(flow.kernel_poll(events).bits());
            flow.ask.store(true, Relaxed);
        }
        (now & (asked | ALWAYS), !ready.ask.contains(PollFlags::OUT))
    }

    /// What of this the kernel is asked for. It always has room for a connection whose bytes go elsewhere: so it is not asked for that, but whether the other side has died,
    /// for then nobody makes room in the ring.
    pub(super) fn for_kernel(asked: u32, sends_by_ring: bool) -> u32 {
        if sends_by_ring && asked & OUT != 0 { asked & !OUT | EPOLLRDHUP as u32 } else { asked }
    }

    /// The kernel is told so.
    pub(super) fn mask(&self, entry: &Entry, sends_by_ring: bool, asked: u32, arming: u32) {
        let wanted = Self::for_kernel(asked, sends_by_ring);
        let told = entry.kernel_events.load(Relaxed);
        if asked & (EPOLLET | EPOLLONESHOT) as u32 != 0 {
            if asked & EPOLLET as u32 == 0 && asked & OUT != 0 && told & OUT != wanted & OUT {
                self.kernel_events(entry, wanted, arming);
            }
            return;
        }
        if sends_by_ring {
            if told & OUT != 0 {
                self.kernel_events(entry, wanted, arming);
            }
        } else if asked & !told != 0 {
            self.kernel_events(entry, asked, arming);
        }
    }
}
