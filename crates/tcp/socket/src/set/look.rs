//! The rings' part of the events that are asked for; and the events that the kernel is asked for
//! besides.

use super::Set;
use super::entry::Entry;
use super::events::{ALWAYS, Event, HEARS, OUT};
use crate::flow::Flow;
use crate::lock::lock;
use libc::{EPOLLET, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};
use rustix::event::PollFlags;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The result of a look at the rings.
pub(super) struct Looked {
    /// So many events are there.
    pub count: usize,
    /// The rings have had their turn.
    pub is_over: bool,
    /// The program has left one of this round's as it was when it was told of it before.
    pub is_left: bool,
    /// The round had begun before.
    pub had_begun: bool,
}

impl Set {
    /// The rings' events, after those that are there already.
    pub(super) fn rings(&self, events: &mut [Event], already: usize) -> Looked {
        self.look_for_news();
        self.queued(events, already)
    }

    /// Connections that there is news of are queued.
    pub(super) fn look_for_news(&self) {
        self.context.pump();
        self.collect();
        self.queue_swept();
    }

    /// The same, after the kernel has said that the door was knocked at: what was sent before that
    /// it has told of.
    pub(super) fn look_behind_door(&self) {
        self.context.pump();
        self.collect_since(true);
        self.queue_swept();
    }

    /// The notices.
    pub(super) fn collect(&self) {
        self.collect_since(false);
    }

    fn collect_since(&self, door: bool) {
        let news = self.context.news(self.door);
        if news.is_empty() {
            return;
        }
        self.marks.collected(&news);
        let before_door = self.marks.before_door(self.context.woken(self.door));
        let mut asked = self.asked.load(Relaxed);
        if door {
            asked = asked.max(before_door);
        }
        let shared = self.context.is_shared(self.door);
        let linux = || lock(&self.queue.turns).linux_follows();
        let rest = || lock(&self.queue.turns).rest_follows();
        news.tell(asked, before_door, linux, rest, |flow| flow.tell_sets(shared));
    }

    /// The events of queued connections, after those that are there already.
    pub(super) fn queued(&self, events: &mut [Event], already: usize) -> Looked {
        // A connection that is queued again meanwhile waits for the next round.
        let (had_begun, (mut left, mut is_left)) = {
            let mut turns = lock(&self.queue.turns);
            (turns.has_begun(), turns.left())
        };
        let mut count = already;
        while left > 0 && count < events.len() {
            left -= 1;
            let Some(entry) = lock(&self.queue.turns).next() else { break };
            entry.queued.swap(false, AcqRel);
            let Some((event, was_left)) = self.look(&entry) else { continue };
            is_left |= was_left;
            // One event for each descriptor.
            let same = |told: &&mut Event| told.data == event.data;
            match events[..already].iter_mut().find(same) {
                Some(same) => same.events |= event.events,
                None => {
                    events[count] = event;
                    count += 1;
                }
            }
        }
        let is_over = left == 0;
        if is_left && !is_over {
            lock(&self.queue.turns).one_is_left();
        }
        Looked { count, is_over, is_left, had_begun }
    }

    /// Those of which nobody tells it are looked at.
    pub(super) fn queue_swept(&self) {
        let swept = lock(&self.entries).swept.clone();
        swept.iter().for_each(Entry::queue);
    }

    /// The events of one connection, of those that are asked for, and whether it was left as it
    /// was. Where nothing is so, it is told when something will be.
    fn look(&self, entry: &Arc<Entry>) -> Option<(Event, bool)> {
        let flow = &entry.flow;
        if entry.is_off() || entry.closed.load(Acquire) || !flow.is_attached() {
            return None;
        }
        let arming = entry.arming.load(Acquire);
        let leaves = flow.leaves();
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
        entry.mask(sends_by_ring, asked, arming);
        now |= entry.room_of_linux(sends_by_ring, asked, leaves);
        entry.leaves.store(leaves, Relaxed);
        if now == 0 {
            entry.had.store(0, Relaxed);
            return None;
        }
        let once = asked & EPOLLONESHOT as u32 != 0;
        if asked & EPOLLPRI as u32 != 0 && (once || !edge) {
            // (One event says all that is so: another may come too late, or not at all.)
            now |= u32::from(flow.kernel_poll(PollFlags::PRI).bits()) & EPOLLPRI as u32;
        }
        let mut left = false;
        if once {
            if !entry.takes_its_turn(arming) {
                return None;
            }
            // (Without it the kernel would go on telling of the peer's death, to which nobody
            // listens now.)
            entry.asks_kernel(EPOLLONESHOT as u32, arming);
        } else if !edge {
            // Level: it is looked at again next time.
            left = entry.is_left(now);
            entry.queue();
        }
        Some((Event { events: now, data: entry.data.load(Relaxed) }, left))
    }

    /// The events of `asked` that are ready, and whether sending goes by the ring.
    pub(super) fn now(flow: &Flow, asked: u32) -> (u32, bool) {
        let ready = flow.ready();
        let mut now = u32::from(ready.now.bits());
        if ready.hint {
            let ended = PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            // (One event says all that is so.)
            let events = ended | ready.ask & (PollFlags::OUT | PollFlags::WRNORM);
            now |= u32::from(flow.kernel_poll(events).bits());
            flow.ask.store(true, Relaxed);
        }
        (now & (asked | ALWAYS), !ready.ask.contains(PollFlags::OUT))
    }

    /// The events of `asked` that the kernel is asked for. It always has room for a connection
    /// whose bytes go elsewhere: so it is not asked for that, but whether the other side has died,
    /// for then nobody makes room in the ring. A program that asks for neither bytes nor room nor
    /// the end is told of a death all the same: Linux would have reset the connection.
    pub(super) fn for_kernel(entry: &Entry, asked: u32, sends_by_ring: bool) -> u32 {
        // (And for room where Linux has still to take what was given back.)
        let owed = if !sends_by_ring && entry.flow.owes() { EPOLLOUT as u32 } else { 0 };
        if sends_by_ring && asked & OUT != 0 {
            asked & !OUT | EPOLLRDHUP as u32
        } else if asked & HEARS == 0 && entry.flow.has_slot() && !entry.ended.load(Relaxed) {
            asked | EPOLLRDHUP as u32 | owed
        } else {
            asked | owed
        }
    }
}
