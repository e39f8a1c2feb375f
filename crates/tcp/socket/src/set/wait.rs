//! epoll_wait: what the rings say, else what the kernel says, until one of them says something.

use super::{Event, Set};
use crate::lock::lock;
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

/// While rings have news, the kernel is asked once in so many calls (0.3 us each).
const KERNEL: u32 = 16;
/// While it spins over rings, likewise.
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

    /// A knock wakes one of the threads that sleep in the set. So whoever leaves with a part of what there is wakes another one for the rest, as Linux does.
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
            // (What is queued still has ended, but for what was added just now.)
            let count = self.rings(events);
            if count > 0 {
                return Ok(count);
            }
            self.settle();
            return self.wait_by_linux(events, timeout, mask);
        }
        let mut deadline = None;
        let calls = self.calls.fetch_add(1, Relaxed);
        loop {
            let count = self.rings(events);
            if count > 0 {
                // (A nested set's door has to be found shut afterwards.)
                let asks = calls.is_multiple_of(KERNEL) || self.is_nested();
                if asks && count < events.len() {
                    // (Where it refuses, what the rings have said is not lost: the next call hears the refusal.)
                    let asked = self.ask_kernel(events, count, Some(Duration::ZERO), mask);
                    return Ok(asked.unwrap_or(count));
                }
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
                // (Whoever spun may have heard the knock that comes with an interruption.)
                let left = if self.has_news()
                    || self.context.spinning.only_looks()
                    || (self.context.settings.interrupted)()
                {
                    Some(Duration::ZERO)
                } else {
                    end.map(|end| end.saturating_duration_since(Instant::now()))
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
                return Ok(self.rings(events));
            }
        }
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
            let left = end.map(|end| end.saturating_duration_since(Instant::now())).or(timeout);
            // (Nobody tells this set of what is queued: as soon as there is a connection, its door is knocked at.)
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
        self.context.has_notices(self.door) || !lock(&self.queue.entries).is_empty()
    }
}
