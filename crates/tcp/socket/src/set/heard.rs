//! The kernel's events, of connections and of everything else.

use super::Set;
use super::entry::Entry;
use super::events::{ALWAYS, Event, HEARS, OUT, door};
use crate::flow::Flow;
use crate::kernel;
use crate::lock::lock;
use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP};
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;
use uncopy_tcp_shared::ticks::ticks;

const RDHUP: u32 = EPOLLRDHUP as u32;

/// An answer of the kernel's.
pub(super) struct Said {
    /// So many events are there now.
    pub count: usize,
    /// It has said all that it has.
    pub all: bool,
    /// The door was knocked at: before the event of this index, as the kernel has it.
    pub door: Option<usize>,
}

impl Set {
    /// The kernel's turn: what it says now, after what is there already. How much is there then;
    /// and behind how much of it belong the notices that waited for this.
    pub(super) fn kernels_turn(
        &self,
        events: &mut [Event],
        already: usize,
        mask: Option<u64>,
    ) -> Result<(usize, usize), Errno> {
        let now = ticks();
        self.asked.store(now, Relaxed);
        self.heard.store(now, Relaxed);
        let Said { count, door, .. } =
            self.ask(events, already, Some(Duration::ZERO), mask, |said, all| {
                lock(&self.queue.turns).kernel_said(said.iter().map(|event| event.data.u64()), all);
            })?;
        self.linux_answered(ticks());
        Ok((count, door.unwrap_or(count)))
    }

    /// Linux had answered then, and told all. (A knock from before it is taken now: it would hide
    /// the ones that follow.)
    fn linux_answered(&self, answered: u64) {
        self.marks.asked(answered);
        self.marks.was_woken(self.context.take_woken(self.door, answered));
    }

    /// The kernel's events, after those that are there already.
    pub(super) fn ask_kernel(
        &self,
        events: &mut [Event],
        already: usize,
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let before = ticks();
        let said = self.ask(events, already, timeout, mask, |_, _| ());
        let answered = ticks();
        self.heard.store(answered, Relaxed);
        let Said { count, all, door } = said?;
        let count = if already == 0 { self.rings_first(events, count, door) } else { count };
        // (It may have told of news that came while it slept, or not: that it slept longer is not
        // known.)
        if all {
            self.asked.store(before, Relaxed);
            self.linux_answered(answered);
        }
        Ok(count)
    }

    /// As above; `heard` is told what the kernel says, and whether that is all.
    fn ask(
        &self,
        events: &mut [Event],
        already: usize,
        mut timeout: Option<Duration>,
        mask: Option<u64>,
        heard: impl Fn(&[epoll::Event], bool),
    ) -> Result<Said, Errno> {
        // Events of ours (a door, the bell, one that a connection does not want any more) may take
        // all the room, and those for the program come behind them.
        let mut door = None;
        for _ in 0..3 {
            let said = self.ask_once(events, already, timeout, mask, &heard)?;
            door = door.or(said.door);
            if said.count > already || said.all {
                return Ok(Said { door, ..said });
            }
            timeout = Some(Duration::ZERO);
        }
        Ok(Said { count: already, all: false, door })
    }

    /// The same.
    fn ask_once(
        &self,
        events: &mut [Event],
        already: usize,
        timeout: Option<Duration>,
        mask: Option<u64>,
        heard: &impl Fn(&[epoll::Event], bool),
    ) -> Result<Said, Errno> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut got = [nothing; 64];
        let room = (events.len() - already).min(got.len());
        let got = &mut got[..room];
        let number = kernel::epoll_wait(self.kernel(), got, timeout, mask)?;
        heard(&got[..number], number < room);
        let said = got[..number].iter().map(Event::said);
        let (count, door) = self.take_said(said, events, already);
        Ok(Said { count, all: number < room, door })
    }

    /// The events that the kernel has said, after those that are there already; there is room for
    /// them. How much is there then; and how much was, when it came to the door.
    pub(super) fn take_said(
        &self,
        said: impl Iterator<Item = Event>,
        events: &mut [Event],
        already: usize,
    ) -> (usize, Option<usize>) {
        let mut count = already;
        let mut knocked = None;
        for Event { events: mut flags, data } in said {
            if data == door() {
                knocked = knocked.or(Some(count));
                continue;
            }
            let same = lock(&self.entries).of_data(data);
            let same = same.as_slice();
            let owed = flags & OUT != 0 && same.iter().any(|entry| entry.is_owed_room());
            for entry in same {
                let _ = entry.parked.load(Acquire) && self.unpark(entry);
                if entry.removed.load(Acquire) && !entry.closed.load(Acquire) {
                    if same.len() == 1 {
                        flags = 0;
                    }
                } else {
                    flags = self.heard(entry, flags, same.len() == 1);
                }
            }
            if same.len() > 1 && flags & RDHUP != 0 && !same.iter().any(|entry| entry.asks(RDHUP)) {
                // (Nobody asked for it but we.)
                flags &= !RDHUP;
            }
            if owed && !same.iter().any(|entry| entry.asks(OUT)) {
                flags &= !OUT;
            }
            if flags == 0 {
                continue;
            }
            // One event for each descriptor.
            if !same.is_empty()
                && let Some(same) = events[..already].iter_mut().find(|event| event.data == data)
            {
                same.events |= flags;
                continue;
            }
            events[count] = Event { events: flags, data };
            count += 1;
        }
        // (Where it is nested it may be the bell.)
        (count, knocked.filter(|_| !self.is_nested()))
    }

    /// The kernel says this of a connection, or of another one whose data is the same: what is told
    /// of it.
    fn heard(&self, entry: &Arc<Entry>, flags: u32, only: bool) -> u32 {
        let flow = &entry.flow;
        let dead = flow.sees_death();
        let kept = (dead || flags & EPOLLHUP as u32 != 0) && flow.has_error();
        let mut flags = if kept { flags | EPOLLERR as u32 } else { flags };
        if dead {
            flags |= EPOLLHUP as u32;
        }
        if entry.closed.load(Acquire) {
            return flags;
        }
        if entry.lost.load(Acquire) && entry.shares.load(Acquire) {
            // (Or of the file that has its number, and its data, now.)
            flow.ask.store(true, Relaxed);
            return flags;
        }
        if self.needs_no_more(entry) {
            lock(&self.entries).forget(entry);
            Self::end(entry);
            return flags;
        }
        if flags & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) as u32 != 0 {
            flow.ask.store(true, Relaxed);
        }
        if flags & OUT != 0 && flow.owes() {
            // (An error: the next send hears of it.)
            let _ = flow.serve();
        }
        let arming = entry.arming.load(Acquire);
        let asked = entry.events.load(Relaxed);
        let by_ring = |flow: &Flow| !flow.ready().ask.contains(PollFlags::OUT);
        if !only && entry.is_owed_room() && !flow.owes() {
            // It has what it was asked for. (Else the kernel would go on telling of room.)
            entry.asks_kernel(Self::for_kernel(entry, asked, by_ring(flow)), arming);
        }
        if flags & RDHUP != 0
            && asked & HEARS == 0
            && flow.kernel_poll(PollFlags::RDHUP).contains(PollFlags::RDHUP)
        {
            // Once: the kernel would go on telling of it.
            entry.ended.store(true, Relaxed);
            entry.asks_kernel(asked, arming);
        }
        let ended = asked & OUT != 0
            && by_ring(flow)
            && (flags & (RDHUP | (EPOLLHUP | EPOLLERR) as u32) != 0
                || flags & OUT != 0 && !flow.ready().now.contains(PollFlags::OUT))
            && flow.room_is_linuxs();
        if ended {
            let room = PollFlags::from_bits_retain((asked & OUT) as u16);
            flags |= u32::from(flow.kernel_poll(room).bits()) & OUT & asked;
            entry.mask(by_ring(flow), asked, arming);
        }
        if !only {
            return flags;
        }
        if flags & (asked | ALWAYS) == 0 {
            // The program has changed its mind, and the kernel did not know; or it is asked for
            // room for what was given back, and perhaps needs not be any more.
            let owed = if flow.owes() { EPOLLOUT as u32 } else { 0 };
            entry.asks_kernel(asked | owed, arming);
            return 0;
        }
        flags &= asked | ALWAYS;
        let ready = flow.ready();
        if !ended && !ready.ask.contains(PollFlags::OUT) && flags & OUT != 0 {
            flags &= !OUT;
            flags |= u32::from(ready.now.bits()) & OUT & asked;
            entry.mask(true, asked, arming);
            if asked & EPOLLET as u32 == 0 {
                // From now on the ring tells of it, and it may not be in the queue.
                entry.queue();
            }
        }
        if flags != 0 {
            // One event says all that is so.
            flags |= u32::from(ready.now.bits()) & asked;
        }
        if asked & EPOLLONESHOT as u32 != 0 {
            if flags == 0 {
                // The kernel has disarmed it for nothing.
                entry.asks_kernel(Self::for_kernel(entry, asked, by_ring(flow)), arming);
            } else if !entry.takes_its_turn(arming) {
                // The ring was first.
                return 0;
            }
        }
        flags
    }

    /// It is Linux's for good, and the kernel was told what the program wants: it knows all of it.
    /// (But the service may still have a copy on its way where nobody waited for its answer: see
    /// `gone`.)
    fn needs_no_more(&self, entry: &Entry) -> bool {
        entry.flow.is_linux()
            && entry.flow.reason().is_some_and(|reason| !reason.is_programs_own())
            && entry.kernel_events.load(Relaxed) == entry.events.load(Relaxed)
            && entry.kernel_data.load(Relaxed) == entry.data.load(Relaxed)
            && !entry.is_off()
    }
}
