//! epoll over connections and everything else. The kernel's set stays what it is, and knows every descriptor; connections whose bytes go through
//! rings are looked at here, and only those that have news. One door wakes the kernel's set.

use crate::context::Context;
use crate::flow::{Flow, Watcher};
use crate::lock::lock;
use crate::wait::timespec;
use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, EPOLLWRNORM};
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uncopy_tcp_shared::wanted::Doors;

const OUT: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;
const DOOR: u64 = u64::MAX;
/// While rings have news, the kernel is asked once in so many calls (0.3 us each).
const KERNEL: u32 = 16;
/// While it spins over rings, likewise.
const ROUNDS: u32 = 64;

#[derive(Debug, Default)]
struct Queue(Mutex<VecDeque<Arc<Entry>>>);

/// A descriptor in a set.
#[derive(Debug)]
pub struct Entry {
    fd: RawFd,
    flow: Option<Arc<Flow>>,
    data: AtomicU64,
    events: AtomicU32,
    /// In the queue.
    queued: AtomicBool,
    /// Removed, or disarmed by EPOLLONESHOT.
    off: AtomicBool,
    /// The kernel is asked for less than the program asks for.
    masked: AtomicBool,
    queue: Arc<Queue>,
}

impl Entry {
    /// To be looked at.
    #[inline]
    fn queue(self: &Arc<Self>) {
        if !self.queued.swap(true, AcqRel) {
            lock(&self.queue.0).push_back(self.clone());
        }
    }
}

impl Watcher for Entry {
    fn news(self: Arc<Self>) {
        self.queue();
    }
}

/// An event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What is so.
    pub events: u32,
    /// What the program gave.
    pub data: u64,
}

/// See above.
#[derive(Debug)]
pub struct Set {
    context: Arc<Context>,
    kernel: OwnedFd,
    door: usize,
    entries: Mutex<HashMap<RawFd, Arc<Entry>>>,
    queue: Arc<Queue>,
    /// Connections that a parent process attached: notices of their region are the parent's. They are looked at one by one.
    swept: Mutex<Vec<Arc<Entry>>>,
    calls: AtomicU32,
}

impl Set {
    /// Around a set of the kernel's, which is still empty. It is the program's descriptor; this one is a duplicate or the only one.
    pub fn new(context: Arc<Context>, kernel: OwnedFd) -> Result<Self, Errno> {
        let door = context.next_door();
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&kernel, context.doors[door].as_fd(), epoll::EventData::new_u64(DOOR), flags)?;
        let queue = Arc::default();
        let (entries, calls) = (Mutex::default(), AtomicU32::new(0));
        let swept = Mutex::default();
        Ok(Self { context, kernel, door, entries, queue, swept, calls })
    }

    fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
        // SAFETY: a number for the kernel, which checks it.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn flags(events: u32) -> epoll::EventFlags {
        epoll::EventFlags::from_bits_retain(events)
    }

    /// EPOLL_CTL_ADD.
    pub fn add(
        &self,
        fd: RawFd,
        flow: Option<Arc<Flow>>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let key = epoll::EventData::new_u64(fd as u64);
        epoll::add(&self.kernel, Self::borrowed(fd), key, Self::flags(events))?;
        let entry = Arc::new(Entry {
            fd,
            flow,
            data: AtomicU64::new(data),
            events: AtomicU32::new(events),
            queued: AtomicBool::new(false),
            off: AtomicBool::new(false),
            masked: AtomicBool::new(false),
            queue: self.queue.clone(),
        });
        if let Some(flow) = &entry.flow {
            flow.watch(entry.clone());
            entry.queue();
        }
        // A number that was closed without being removed is another's now.
        let older = lock(&self.entries).insert(fd, entry);
        if let Some(older) = older {
            Self::end(&older);
        }
        Ok(())
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
        let key = epoll::EventData::new_u64(fd as u64);
        epoll::modify(&self.kernel, Self::borrowed(fd), key, Self::flags(events))?;
        let Some(entry) = lock(&self.entries).get(&fd).cloned() else { return Err(Errno::NOENT) };
        entry.data.store(data, Relaxed);
        entry.events.store(events, Relaxed);
        entry.masked.store(false, Relaxed);
        entry.off.store(false, Release);
        if entry.flow.is_some() {
            entry.queue();
            self.wake();
        }
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: RawFd) -> Result<(), Errno> {
        epoll::delete(&self.kernel, Self::borrowed(fd))?;
        let removed = lock(&self.entries).remove(&fd);
        if let Some(entry) = removed {
            Self::end(&entry);
            lock(&self.swept).retain(|other| !Arc::ptr_eq(other, &entry));
        }
        Ok(())
    }

    fn end(entry: &Arc<Entry>) {
        entry.off.store(true, Release);
        if let Some(flow) = &entry.flow {
            flow.unwatch(entry);
        }
    }

    /// Another thread may sleep in it.
    fn wake(&self) {
        let _ = rustix::io::write(self.context.doors[self.door].as_fd(), &1u64.to_ne_bytes());
    }

    /// As epoll_wait(2). None waits without end.
    pub fn wait(&self, events: &mut [Event], timeout: Option<Duration>) -> Result<usize, Errno> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let calls = self.calls.fetch_add(1, Relaxed);
        loop {
            let count = self.rings(events);
            if count > 0 {
                if calls.is_multiple_of(KERNEL) && count < events.len() {
                    return self.kernel(events, count, Some(Duration::ZERO));
                }
                return Ok(count);
            }
            if timeout == Some(Duration::ZERO) {
                return self.kernel(events, 0, timeout);
            }
            let mut round = 0u32;
            let mut from_kernel = Ok(0);
            let spun = self.context.spinning.spin(|| {
                round += 1;
                if round.is_multiple_of(ROUNDS) {
                    from_kernel = self.kernel(events, 0, Some(Duration::ZERO));
                }
                from_kernel != Ok(0) || self.has_news()
            });
            if from_kernel != Ok(0) {
                return from_kernel;
            }
            if !spun {
                self.context.falls_asleep(self.door);
                let left = if self.has_news() || self.context.spinning.only_looks() {
                    Some(Duration::ZERO)
                } else {
                    deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
                };
                let count = self.kernel(events, 0, left);
                self.context.is_awake(self.door);
                self.context.serve_asked();
                if count != Ok(0) {
                    return count;
                }
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                let count = self.rings(events);
                return Ok(count);
            }
        }
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.context.has_notices(self.door) || !lock(&self.queue.0).is_empty()
    }

    /// What the rings say.
    fn rings(&self, events: &mut [Event]) -> usize {
        self.context.pump();
        self.context.collect(self.door);
        let swept = lock(&self.swept).clone();
        for entry in swept {
            entry.queue();
        }
        // What is queued again meanwhile waits for the next call.
        let mut left = lock(&self.queue.0).len();
        let mut count = 0;
        while left > 0 && count < events.len() {
            left -= 1;
            let Some(entry) = lock(&self.queue.0).pop_front() else { break };
            entry.queued.store(false, Release);
            if let Some(event) = self.look(&entry) {
                events[count] = event;
                count += 1;
            }
        }
        count
    }

    /// What is so of one, of what is asked. Where nothing is, it is told when something will be.
    fn look(&self, entry: &Arc<Entry>) -> Option<Event> {
        let flow = entry.flow.as_ref()?;
        if entry.off.load(Acquire) || !flow.is_attached() {
            return None;
        }
        let asked = entry.events.load(Relaxed);
        let edge = asked & EPOLLET as u32 != 0;
        let inherited = flow.is_inherited();
        let doors = if inherited { Doors::wake(self.door) } else { Doors::notice(self.door) };
        if inherited {
            let mut swept = lock(&self.swept);
            if !swept.iter().any(|other| Arc::ptr_eq(other, entry)) {
                swept.push(entry.clone());
            }
        }
        let mut now = Self::now(flow, asked);
        if edge || now == 0 {
            let missing = if edge { asked & !(now & OUT) } else { asked };
            flow.arm(PollFlags::from_bits_retain(missing as u16), doors);
            now = Self::now(flow, asked);
        }
        self.mask(entry, flow, asked);
        if now == 0 {
            return None;
        }
        if asked & EPOLLONESHOT as u32 != 0 {
            entry.off.store(true, Release);
            let key = epoll::EventData::new_u64(entry.fd as u64);
            let _ = epoll::modify(&self.kernel, Self::borrowed(entry.fd), key, Self::flags(0));
        } else if !edge {
            // Level: it is looked at again next time.
            entry.queue();
        }
        Some(Event { events: now, data: entry.data.load(Relaxed) })
    }

    fn now(flow: &Flow, asked: u32) -> u32 {
        let ready = flow.ready();
        let mut now = u32::from(ready.now.bits());
        if ready.hint {
            let events = PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            now |= u32::from(flow.kernel_poll(events).bits());
            flow.ask.store(true, Relaxed);
        }
        now & (asked | ALWAYS)
    }

    /// The kernel always has room for a connection whose bytes go elsewhere: it is not asked.
    fn mask(&self, entry: &Entry, flow: &Flow, asked: u32) {
        let by_ring = !flow.ready().ask.contains(PollFlags::OUT);
        if asked & OUT == 0 || asked & EPOLLET as u32 != 0 || entry.masked.load(Relaxed) == by_ring
        {
            return;
        }
        let events = if by_ring { asked & !OUT } else { asked };
        let key = epoll::EventData::new_u64(entry.fd as u64);
        if epoll::modify(&self.kernel, Self::borrowed(entry.fd), key, Self::flags(events)).is_ok() {
            entry.masked.store(by_ring, Relaxed);
        }
    }

    /// What the kernel says, after what is there already.
    fn kernel(
        &self,
        events: &mut [Event],
        already: usize,
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut got = [nothing; 64];
        let room = (events.len() - already).min(got.len());
        let number = epoll::wait(&self.kernel, &mut got[..room], timeout.map(timespec).as_ref())?;
        let mut count = already;
        for event in &got[..number] {
            let key = event.data;
            let key = key.u64();
            if key == DOOR {
                continue;
            }
            let Some(entry) = lock(&self.entries).get(&(key as RawFd)).cloned() else { continue };
            let flags = event.flags;
            let mut flags = flags.bits();
            if let Some(flow) = &entry.flow {
                let ready = flow.ready();
                if flags & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) as u32 != 0 {
                    flow.ask.store(true, Relaxed);
                }
                if !ready.ask.contains(PollFlags::OUT) && flags & OUT != 0 {
                    flags &= !OUT;
                    flags |= u32::from(ready.now.bits()) & OUT & entry.events.load(Relaxed);
                    self.mask(&entry, flow, entry.events.load(Relaxed));
                }
                let asked = entry.events.load(Relaxed);
                if asked & EPOLLONESHOT as u32 != 0 {
                    if flags == 0 {
                        // The kernel has disarmed it for nothing.
                        let key = epoll::EventData::new_u64(entry.fd as u64);
                        let fd = Self::borrowed(entry.fd);
                        let _ = epoll::modify(&self.kernel, fd, key, Self::flags(asked & !OUT));
                    } else {
                        entry.off.store(true, Release);
                    }
                }
            }
            if flags == 0 {
                continue;
            }
            let data = entry.data.load(Relaxed);
            // One event for each descriptor.
            if entry.flow.is_some()
                && let Some(same) = events[..already].iter_mut().find(|event| event.data == data)
            {
                same.events |= flags;
                continue;
            }
            events[count] = Event { events: flags, data };
            count += 1;
        }
        Ok(count)
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        for entry in lock(&self.entries).values() {
            Self::end(entry);
        }
    }
}
