//! epoll_wait: what the rings say, else what the kernel says, until one of them says something.

use super::Set;
use super::events::Event;
use super::look::Looked;
use crate::lock::lock;
use crate::wait::until;
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::ticks::{TEN_MICROSECONDS, ticks};

/// While rings bring one thing after another, the kernel is asked after so long: it costs as much
/// as a small message.
const KERNEL: u64 = TEN_MICROSECONDS;
/// While it spins over rings, once in so many looks.
const ROUNDS: u32 = 64;

impl Set {
    /// As epoll_wait(2). None waits without end.
    pub fn wait(&self, events: &mut [Event], timeout: Option<Duration>) -> Result<usize, Errno> {
        self.wait_with(events, timeout, None)
    }

    /// As epoll_pwait(2).
    pub fn wait_with(
        &self,
        events: &mut [Event],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let waited = self.wait_for_events(events, timeout, mask);
        self.leave_the_rest();
        self.settle();
        waited
    }

    /// A knock wakes one of the threads that sleep in the set. So a thread that leaves with a part
    /// of what there is wakes another one for the rest, as Linux does.
    #[inline]
    fn leave_the_rest(&self) {
        fence(SeqCst);
        if self.queue.sleeping.load(Relaxed) > 0
            && self.has_connections()
            && (self.queue.by_linux.load(Relaxed) > 0 || self.has_news())
        {
            self.wake();
        }
    }

    fn wait_for_events(
        &self,
        events: &mut [Event],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        if !self.has_connections() {
            // (The entries that are still queued have ended, but for those that were added just
            // now.)
            let Looked { count, .. } = self.rings(events, 0);
            if count > 0 {
                return Ok(count);
            }
            self.settle();
            return self.wait_by_linux(events, timeout, mask);
        }
        let mut deadline = None;
        loop {
            let count = self.look_by_turns(events, mask)?;
            if count > 0 {
                return Ok(count);
            }
            if timeout == Some(Duration::ZERO) {
                return self.ask_kernel(events, 0, timeout, mask);
            }
            if (self.context.settings.interrupted)() {
                return Err(Errno::INTR);
            }
            let end = *deadline.get_or_insert_with(|| {
                timeout.and_then(|timeout| Instant::now().checked_add(timeout))
            });
            let mut round = 0u32;
            let mut from_kernel = Ok(0);
            let spun = self.at_ring.load(Relaxed)
                && self.context.spinning.spin(|| {
                    round += 1;
                    if round.is_multiple_of(ROUNDS) {
                        from_kernel = self.ask_kernel(events, 0, Some(Duration::ZERO), mask);
                    }
                    from_kernel != Ok(0) || self.has_news()
                });
            if from_kernel != Ok(0) {
                return from_kernel;
            }
            if !spun {
                self.queue.sleeping.fetch_add(1, Relaxed);
                self.context.falls_asleep(self.door);
                fence(SeqCst);
                // (A thread that spun may have heard the knock that comes with an interruption.)
                let left = if self.has_news()
                    || self.context.spinning.only_looks()
                    || (self.context.settings.interrupted)()
                {
                    Some(Duration::ZERO)
                } else {
                    self.context.deaths.wake(until(end))
                };
                let count = self.ask_kernel(events, 0, left, mask);
                let others = self.queue.sleeping.load(Relaxed) > 1;
                self.context.is_awake(self.door, others);
                self.context.serve_asked();
                self.queue.sleeping.fetch_sub(1, Relaxed);
                if count != Ok(0) {
                    return count;
                }
                // (Or the bell rings for what somebody else has taken.)
                self.settle();
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return self.look_by_turns(events, mask);
            }
        }
    }

    /// The events that there are now, by turns ([`turns`](super::turns)). Where rings have nothing,
    /// the kernel is still to be asked.
    fn look_by_turns(&self, events: &mut [Event], mask: Option<u64>) -> Result<usize, Errno> {
        self.look_for_news();
        let (linux_begins, kernel_begins) = {
            let mut turns = lock(&self.queue.turns);
            (turns.is_linux_next(), turns.is_kernels())
        };
        if linux_begins {
            return self.linux_first(events, 0, mask);
        }
        let told = if kernel_begins { self.kernels_turn(events, 0, mask)?.0 } else { 0 };
        if told == events.len() {
            return Ok(told);
        }
        let mut looked = self.queued(events, told);
        if looked.count == told && looked.had_begun {
            // (The rest of a round had nothing: what was told of before waits for the next one.)
            looked = self.queued(events, told);
        }
        let Looked { count, is_over, is_left, .. } = looked;
        events[..count].rotate_left(told);
        if lock(&self.queue.turns).is_linux_next() && count < events.len() {
            // (Where it refuses, what the rings have said is not lost.)
            return Ok(self.linux_first(events, count, mask).unwrap_or(count));
        }
        if count == told || kernel_begins || !is_over {
            return Ok(count);
        }
        // The program may go on leaving what it has left: then the kernel is asked in each round.
        // (A nested set's door has to be found shut afterwards.)
        let is_due = || ticks().wrapping_sub(self.heard.load(Relaxed)) >= KERNEL;
        if !(is_left || self.is_nested() || is_due()) {
            return Ok(count);
        }
        lock(&self.queue.turns).kernel_is_next();
        if count == events.len() {
            return Ok(count);
        }
        // (Where it refuses, what the rings have said is not lost: the next call hears of it.)
        Ok(self.kernels_turn(events, count, mask).map_or(count, |(told, _)| told))
    }

    /// Of what is queued the next comes after something of Linux'. Linux' events, and those of
    /// queued connections, after those that are there already.
    fn linux_first(
        &self,
        events: &mut [Event],
        already: usize,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let (told, place) = self.kernels_turn(events, already, mask)?;
        lock(&self.queue.turns).linux_has_said(place < told);
        if told == events.len() {
            return Ok(told);
        }
        let mut looked = self.queued(events, told);
        events[place..looked.count].rotate_left(told - place);
        lock(&self.queue.turns).linux_has_no_turn();
        if looked.count == told && looked.had_begun || place < told {
            looked = self.queued(events, looked.count);
        }
        Ok(looked.count)
    }

    /// The kernel has told of so many, and before it was asked nothing was queued. Events that
    /// rings have come to say meanwhile are put before that, as far as there is room, and if the
    /// `door` was knocked at, where it stands; but for those that say that they come after
    /// something of Linux'.
    pub(super) fn rings_first(
        &self,
        events: &mut [Event],
        count: usize,
        door: Option<usize>,
    ) -> usize {
        if count == events.len() || door.is_none() && (count == 0 || !self.has_news()) {
            return count;
        }
        match door {
            Some(_) => self.look_behind_door(),
            None => self.look_for_news(),
        }
        let place = door.unwrap_or(0);
        let all = self.queued(events, count).count;
        events[place..all].rotate_left(count - place);
        all
    }

    /// Some of its descriptors are connections that are not Linux's for good.
    pub(super) fn has_connections(&self) -> bool {
        !lock(&self.entries).by_fd.is_empty()
    }

    fn wait_by_linux(
        &self,
        events: &mut [Event],
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if (self.context.settings.interrupted)() {
                return Err(Errno::INTR);
            }
            let left = until(end).or(timeout);
            // (Nobody tells this set of what is queued: as soon as there is a connection, its door
            // is knocked at.)
            self.queue.by_linux.fetch_add(1, Relaxed);
            self.queue.sleeping.fetch_add(1, Relaxed);
            fence(SeqCst);
            let now = if self.has_connections() { Some(Duration::ZERO) } else { left };
            let count = self.ask_kernel(events, 0, now, mask);
            self.queue.sleeping.fetch_sub(1, Relaxed);
            self.queue.by_linux.fetch_sub(1, Relaxed);
            if count != Ok(0) {
                return count;
            }
            if self.has_connections() {
                self.leave_the_rest();
                return self.wait_for_events(events, left, mask);
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(0);
            }
        }
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.context.has_notices(self.door) || !lock(&self.queue.turns).entries.is_empty()
    }
}
