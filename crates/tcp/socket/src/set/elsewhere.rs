//! A thread that has other things to wait for besides, as a lane of the TCP service has: it puts
//! them into the kernel's set, and waits there itself.

use super::Set;
use super::events::Event;
use crate::lock::lock;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

impl Set {
    /// The kernel's set: while nobody waits in [`wait`](Self::wait), who has other things to wait
    /// for adds them, by the name [`door`](super::door), and waits in it between
    /// [`falls_asleep`](Self::falls_asleep) and [`is_awake`](Self::is_awake).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.kernel()
    }

    /// A thread is about to sleep in [`descriptor`](Self::descriptor). False: there is something
    /// now.
    pub fn falls_asleep(&self) -> bool {
        self.queue.sleeping.fetch_add(1, Relaxed);
        self.context.falls_asleep(self.door);
        fence(SeqCst);
        self.context.pump();
        !self.has_news() && !self.context.deaths.are_due()
    }

    /// It does not sleep any more.
    pub fn is_awake(&self) {
        let others = self.queue.sleeping.load(Relaxed) > 1;
        self.context.is_awake(self.door, others);
        self.context.serve_asked();
        self.queue.sleeping.fetch_sub(1, Relaxed);
    }

    /// Threads that sleep over it look; nothing happens where none does.
    pub fn call(&self) {
        self.queue.wake_sleepers();
    }

    /// The events that are ready now, without waiting: those that rings say, those that the kernel
    /// has `said` already, and, if it is to be `asked`, those that it says now, by a system call.
    /// The rings' events wait for nothing of Linux', whichever was sent first.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn look_now(
        &self,
        events: &mut [Event],
        said: &[Event],
        asked: bool,
    ) -> Result<usize, Errno> {
        // (It is the thread that asks the kernel: nothing here waits for the kernel's turn.)
        self.look_for_news();
        lock(&self.queue.turns).linux_has_no_turn();
        let mut count = self.queued(events, 0).count;
        // (Events that there is no room for are said again.)
        let room = (events.len() - count).min(said.len());
        (count, _) = self.take_said(said[..room].iter().copied(), events, count);
        if asked && count < events.len() {
            let asked = self.ask_kernel(events, count, Some(Duration::ZERO), None);
            return if count > 0 { Ok(asked.unwrap_or(count)) } else { asked };
        }
        Ok(count)
    }
}
