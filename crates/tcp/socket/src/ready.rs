//! What poll says of a connection: the ring's part here, the rest the kernel's connection. And poll(2) itself over both.

use crate::context::Context;
use crate::flow::Flow;
use crate::wait::{For, timespec};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::FINISHED;
use uncopy_tcp_shared::wanted::Doors;

/// What the ring says, and what the kernel is not to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// POLLIN, POLLOUT, as far as the rings know.
    pub now: PollFlags,
    /// What only the kernel knows: POLLOUT is not, while sending goes through the ring.
    pub ask: PollFlags,
    /// The other side says that the kernel has news of the end.
    pub hint: bool,
}

impl Flow {
    /// What is ready now. No system call.
    #[inline]
    pub fn ready(&self) -> Ready {
        let mut ready = Ready { now: PollFlags::empty(), ask: PollFlags::all(), hint: false };
        let Some(attached) = self.attached() else { return ready };
        if self.has_news(For::Data) {
            ready.now |= PollFlags::IN | PollFlags::RDNORM;
        }
        if !matches!(attached.out().switch.phase.at(), Ok(At::Linux | At::Leaving | At::Returned)) {
            ready.ask -= PollFlags::OUT | PollFlags::WRNORM;
            if attached.has_room() {
                ready.now |= PollFlags::OUT | PollFlags::WRNORM;
            }
        }
        ready.hint = attached.inward().produced.flags.load(Relaxed) & FINISHED != 0;
        ready
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
    /// Its connection, if it is one that was shown.
    pub flow: Option<&'a Flow>,
    /// What is asked.
    pub events: PollFlags,
    /// What is so.
    pub revents: PollFlags,
}

const ALWAYS: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

impl Context {
    /// As poll(2), over connections and everything else. None waits without end.
    pub fn poll(
        self: &Arc<Self>,
        items: &mut [Item],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        // The door's edges since now, in a set of this call's own.
        let mut edges = None;
        loop {
            self.pump();
            if let Some(flow) = items.iter().find_map(|item| item.flow.filter(|f| f.is_attached()))
                && edges.is_none()
                && timeout != Some(Duration::ZERO)
                && !flow.ready().now.intersects(PollFlags::IN)
            {
                edges = Some(self.edges()?);
            }
            let door = Doors::wake(0);
            let mut any = false;
            for item in items.iter_mut() {
                if let Some(flow) = item.flow {
                    if edges.is_some() {
                        flow.arm(item.events, door);
                    } else if item.events.contains(PollFlags::IN) {
                        flow.receives();
                    }
                }
                item.revents =
                    item.flow.map_or(PollFlags::empty(), |f| f.ready().now & item.events);
                any |= !item.revents.is_empty();
            }
            let mut fds: Vec<PollFd> = items
                .iter()
                .map(|item| {
                    let ask = item.flow.map_or(PollFlags::all(), |flow| flow.ready().ask);
                    PollFd::from_borrowed_fd(item.fd, item.events & ask)
                })
                .collect();
            if let Some(edges) = &edges {
                fds.push(PollFd::new(edges, PollFlags::IN));
            }
            let left = if any {
                Some(Duration::ZERO)
            } else {
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
            };
            poll(&mut fds, left.map(timespec).as_ref())?;
            if edges.is_some() {
                self.serve_asked();
            }
            let answers: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            for (item, answer) in items.iter_mut().zip(answers) {
                item.revents |= answer & (item.events | ALWAYS);
            }
            let count = items.iter().filter(|item| !item.revents.is_empty()).count();
            if count > 0 || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(count);
            }
            if let Some(edges) = &edges {
                let nothing = epoll::Event {
                    flags: epoll::EventFlags::empty(),
                    data: epoll::EventData::new_u64(0),
                };
                let now = timespec(Duration::ZERO);
                let _ = epoll::wait(edges, &mut [nothing], Some(&now));
            }
        }
    }

    fn edges(&self) -> Result<std::os::fd::OwnedFd, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, self.doors[0].as_fd(), epoll::EventData::new_u64(0), flags)?;
        Ok(set)
    }
}
