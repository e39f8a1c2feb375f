//! A thread that has other things to wait for besides, as a lane of the TCP service has: it waits for the kernel's set to be readable.

use super::{Event, Set};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

impl Set {
    /// The kernel's set: while nobody waits in [`wait`](Self::wait), who has other things to wait for waits for it to be readable, between
    /// [`falls_asleep`](Self::falls_asleep) and [`is_awake`](Self::is_awake).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.kernel()
    }

    /// A thread is about to sleep until [`descriptor`](Self::descriptor) is readable. False: there is something now.
    pub fn falls_asleep(&self) -> bool {
        self.queue.sleeping.fetch_add(1, Relaxed);
        self.context.falls_asleep(self.door);
        fence(SeqCst);
        self.context.pump();
        !self.has_news()
    }

    /// It does not sleep any more.
    pub fn is_awake(&self) {
        let others = self.queue.sleeping.load(Relaxed) > 1;
        self.context.is_awake(self.door, others);
        self.context.serve_asked();
        self.queue.sleeping.fetch_sub(1, Relaxed);
    }

    /// Whoever sleeps over it looks; nothing where nobody does.
    pub fn call(&self) {
        self.queue.wake_sleepers();
    }

    /// What is ready now, without waiting. `kernel`: the kernel is asked too, by a system call; else only rings are looked at.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn look_now(&self, events: &mut [Event], kernel: bool) -> Result<usize, Errno> {
        let count = if self.has_connections() { self.rings(events) } else { 0 };
        if kernel && count < events.len() {
            let asked = self.ask_kernel(events, count, Some(Duration::ZERO), None);
            return if count > 0 { Ok(asked.unwrap_or(count)) } else { asked };
        }
        Ok(count)
    }
}
