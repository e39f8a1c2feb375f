//! epoll over connections and everything else. The kernel's set stays what it is, and knows every descriptor with the program's own data;
//! connections whose bytes go through rings are looked at here, and only those that have news. One door wakes the kernel's set.
//!
//! unsafe: descriptors by their numbers.

use crate::context::Context;
use crate::flow::{Flow, Watcher};
use crate::kernel;
use crate::lock::{Guarded, lock};
use crate::wait::timespec;
use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP, EPOLLWRNORM};
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};
use uncopy_tcp_service::protocol::Reason;
use uncopy_tcp_shared::wanted::Doors;

const OUT: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;
/// Events proper: the other bits say how they are told.
const EVENTS: u32 = 0x3fff;
/// What the kernel says of a door. No program's own: it is where something of ours lies.
pub fn door() -> u64 {
    static HERE: u8 = 0;
    &raw const HERE as u64
}

/// While rings have news, the kernel is asked once in so many calls (0.3 us each).
const KERNEL: u32 = 16;
/// While it spins over rings, likewise.
const ROUNDS: u32 = 64;

#[derive(Debug)]
struct Queue {
    entries: Guarded<VecDeque<Arc<Entry>>>,
    /// The kernel is to be told when there is news, because the set is itself waited for: by another set, or by poll.
    nested: AtomicBool,
    /// Threads that sleep in the set,
    sleeping: AtomicU32,
    /// and of these, those that did so before it had a connection: nobody tells them what is queued.
    by_linux: AtomicU32,
    context: Arc<Context>,
    door: usize,
}

impl Queue {
    /// Who sleeps looks at what was queued. (Either it sees that before it sleeps, or it is seen here.)
    fn wake_sleepers(&self) {
        fence(SeqCst);
        if self.sleeping.load(Relaxed) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        let _ = rustix::io::write(self.context.doors[self.door].as_fd(), &1u64.to_ne_bytes());
    }
}

/// A descriptor in a set.
#[derive(Debug)]
pub struct Entry {
    fd: RawFd,
    flow: Arc<Flow>,
    data: AtomicU64,
    events: AtomicU32,
    /// In the queue.
    queued: AtomicBool,
    /// Removed, or disarmed by EPOLLONESHOT.
    off: AtomicBool,
    /// What the kernel was told: events, data.
    kernel_events: AtomicU32,
    kernel_data: AtomicU64,
    /// The program has removed it, and the kernel does not know yet.
    parked: AtomicBool,
    /// The descriptor was closed: the kernel does not know it any more.
    closed: AtomicBool,
    /// It was once at the ring.
    at_ring: AtomicBool,
    queue: Arc<Queue>,
    /// The kernel's set.
    kernel: Arc<AtomicI32>,
}

impl Entry {
    /// To be looked at.
    #[inline]
    fn queue(self: &Arc<Self>) {
        if !self.queued.swap(true, AcqRel) {
            lock(&self.queue.entries).push_back(self.clone());
        }
    }
}

impl Watcher for Entry {
    fn news(self: Arc<Self>, asleep_too: bool) {
        self.queue();
        if asleep_too {
            self.queue.wake_sleepers();
        }
    }

    fn gone(&self, number: RawFd) {
        // The service may have a copy of the socket on its way: so long the kernel would go on telling of it, by a number that is another's.
        if self.fd == number {
            let _ = epoll::delete(Set::borrowed(self.kernel.load(Relaxed)), Set::borrowed(number));
        }
        self.off.store(true, Release);
        self.closed.store(true, Release);
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

/// Entries by descriptor, and by the program's data: that is all the kernel says.
#[derive(Debug, Default)]
struct Entries {
    by_fd: HashMap<RawFd, Arc<Entry>>,
    by_data: HashMap<u64, Vec<Arc<Entry>>>,
}

impl Entries {
    fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let older = self.remove(entry.fd);
        self.by_data.entry(entry.data.load(Relaxed)).or_default().push(entry.clone());
        self.by_fd.insert(entry.fd, entry);
        older
    }

    fn remove(&mut self, fd: RawFd) -> Option<Arc<Entry>> {
        let entry = self.by_fd.remove(&fd)?;
        self.forget_data(&entry);
        Some(entry)
    }

    fn of_data(&self, data: u64) -> Same {
        match self.by_data.get(&data).map(Vec::as_slice) {
            None => Same::None,
            Some([one]) => Same::One([one.clone()]),
            Some(several) => Same::Several(several.to_vec()),
        }
    }

    fn forget_data(&mut self, entry: &Arc<Entry>) {
        let data = entry.data.load(Relaxed);
        if let Some(same) = self.by_data.get_mut(&data) {
            same.retain(|other| !Arc::ptr_eq(other, entry));
            if same.is_empty() {
                self.by_data.remove(&data);
            }
        }
    }

    fn change_data(&mut self, entry: &Arc<Entry>, data: u64) {
        if entry.data.load(Relaxed) != data {
            self.forget_data(entry);
            entry.data.store(data, Relaxed);
            self.by_data.entry(data).or_default().push(entry.clone());
        }
    }
}

/// Entries with the same data.
enum Same {
    None,
    One([Arc<Entry>; 1]),
    Several(Vec<Arc<Entry>>),
}

impl Same {
    fn as_slice(&self) -> &[Arc<Entry>] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

/// See above.
#[derive(Debug)]
pub struct Set {
    context: Arc<Context>,
    kernel: Arc<AtomicI32>,
    owned: Option<OwnedFd>,
    door: usize,
    entries: Guarded<Entries>,
    queue: Arc<Queue>,
    /// Connections of which every wait looks: those that a parent process attached, for notices of their region are the parent's; all, where the
    /// set is nested.
    swept: Guarded<Vec<Arc<Entry>>>,
    /// One of its connections was at the ring.
    at_ring: AtomicBool,
    calls: AtomicU32,
}

impl Set {
    /// Around a set of the kernel's. It is the program's descriptor; this one is a duplicate or the only one.
    pub fn new(context: Arc<Context>, kernel: OwnedFd) -> Result<Self, Errno> {
        use std::os::fd::AsRawFd;
        let mut set = Self::around(context, kernel.as_raw_fd())?;
        set.owned = Some(kernel);
        Ok(set)
    }

    /// Around a set of the kernel's that the program keeps open.
    pub fn around(context: Arc<Context>, kernel: RawFd) -> Result<Self, Errno> {
        let door = context.next_door();
        let set = Self {
            context: context.clone(),
            kernel: Arc::new(AtomicI32::new(kernel)),
            owned: None,
            door,
            entries: Guarded::default(),
            queue: Arc::new(Queue {
                entries: Guarded::default(),
                nested: AtomicBool::new(false),
                sleeping: AtomicU32::new(0),
                by_linux: AtomicU32::new(0),
                context: context.clone(),
                door,
            }),
            swept: Guarded::default(),
            at_ring: AtomicBool::new(false),
            calls: AtomicU32::new(0),
        };
        set.watch_door(&context, door)?;
        Ok(set)
    }

    fn watch_door(&self, context: &Context, number: usize) -> Result<(), Errno> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(door());
        match epoll::add(self.kernel(), context.doors[number].as_fd(), data, flags) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    fn kernel<'a>(&self) -> BorrowedFd<'a> {
        Self::borrowed(self.kernel.load(Relaxed))
    }

    /// The same set of the kernel's has another number, which stays open.
    pub fn set_number(&self, fd: RawFd) {
        self.kernel.store(fd, Relaxed);
    }

    fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
        // SAFETY: a number for the kernel, which checks it.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    fn flags(events: u32) -> epoll::EventFlags {
        epoll::EventFlags::from_bits_retain(events)
    }

    /// EPOLL_CTL_ADD of a connection, as far as it is one.
    pub fn add(
        &self,
        fd: RawFd,
        flow: Option<Arc<Flow>>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        if let (Some(flow), Some(entry)) = (&flow, self.entry(fd))
            && entry.parked.load(Acquire)
        {
            if Arc::ptr_eq(flow, &entry.flow) {
                return self.change(&entry, events, data);
            }
            self.unpark(&entry);
        }
        let key = epoll::EventData::new_u64(data);
        epoll::add(self.kernel(), Self::borrowed(fd), key, Self::flags(events))?;
        let Some(flow) = flow else { return Ok(()) };
        if !Arc::ptr_eq(&flow.context, &self.context) {
            // A parent process attached it: it is told at the parent's doors.
            for door in 0..flow.context.doors.len() {
                self.watch_door(&flow.context, door)?;
            }
        }
        let entry = Arc::new(Entry {
            fd,
            flow: flow.clone(),
            data: AtomicU64::new(data),
            events: AtomicU32::new(events),
            queued: AtomicBool::new(false),
            off: AtomicBool::new(false),
            kernel_events: AtomicU32::new(events),
            kernel_data: AtomicU64::new(data),
            parked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            at_ring: AtomicBool::new(false),
            queue: self.queue.clone(),
            kernel: self.kernel.clone(),
        });
        flow.watch(entry.clone());
        // A number that was closed without being removed is another's now.
        let older = lock(&self.entries).insert(entry.clone());
        if let Some(older) = older {
            self.end(&older);
        }
        entry.queue();
        self.queue.wake_sleepers();
        Ok(())
    }

    /// The connection of this number, as it was added.
    fn entry(&self, fd: RawFd) -> Option<Arc<Entry>> {
        lock(&self.entries).by_fd.get(&fd).filter(|entry| !entry.closed.load(Acquire)).cloned()
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
        match self.entry(fd) {
            Some(entry) if entry.parked.load(Acquire) => Err(Errno::NOENT),
            Some(entry) => self.change(&entry, events, data),
            None => {
                let key = epoll::EventData::new_u64(data);
                epoll::modify(self.kernel(), Self::borrowed(fd), key, Self::flags(events))
            }
        }
    }

    /// The program wants this of it. The kernel is told where what it was told does not do: programs change their minds with every message.
    fn change(&self, entry: &Arc<Entry>, events: u32, data: u64) -> Result<(), Errno> {
        let told = entry.kernel_events.load(Relaxed);
        let sends_by_ring = !entry.flow.ready().ask.contains(PollFlags::OUT);
        let needed = if sends_by_ring { events & !OUT } else { events };
        let plain = (events | told) & !EVENTS == 0;
        if !plain || needed & !told != 0 || entry.kernel_data.load(Relaxed) != data {
            let key = epoll::EventData::new_u64(data);
            epoll::modify(self.kernel(), Self::borrowed(entry.fd), key, Self::flags(events))?;
            entry.kernel_events.store(events, Relaxed);
            entry.kernel_data.store(data, Relaxed);
        }
        lock(&self.entries).change_data(entry, data);
        entry.events.store(events, Relaxed);
        entry.parked.store(false, Relaxed);
        entry.off.store(false, Release);
        entry.queue();
        self.queue.wake_sleepers();
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: RawFd) -> Result<(), Errno> {
        let Some(entry) = self.entry(fd) else {
            return epoll::delete(self.kernel(), Self::borrowed(fd));
        };
        if entry.parked.load(Acquire) {
            return Err(Errno::NOENT);
        }
        // Perhaps it comes back. Until the kernel has something to say of it, it need not know.
        let told = entry.kernel_events.load(Relaxed);
        let by_ring = !entry.flow.ready().ask.contains(PollFlags::OUT);
        if by_ring && told & !(EVENTS & !OUT) == 0 {
            entry.off.store(true, Release);
            entry.parked.store(true, Release);
            return Ok(());
        }
        epoll::delete(self.kernel(), Self::borrowed(fd))?;
        lock(&self.entries).remove(fd);
        self.end(&entry);
        Ok(())
    }

    /// The kernel learns that the program has removed it.
    fn unpark(&self, entry: &Arc<Entry>) {
        if !entry.closed.load(Acquire) {
            let _ = epoll::delete(self.kernel(), Self::borrowed(entry.fd));
        }
        let mut entries = lock(&self.entries);
        if entries.by_fd.get(&entry.fd).is_some_and(|other| Arc::ptr_eq(other, entry)) {
            entries.remove(entry.fd);
        }
        drop(entries);
        self.end(entry);
    }

    fn end(&self, entry: &Arc<Entry>) {
        entry.off.store(true, Release);
        entry.flow.unwatch(entry);
        lock(&self.swept).retain(|other| !Arc::ptr_eq(other, entry));
    }

    /// Whoever sleeps in it looks.
    pub fn wake(&self) {
        self.queue.wake();
    }

    /// It is itself waited for, by another set or by poll: from now on the kernel's set is ready when a ring has news.
    pub fn nest(&self) {
        if !self.queue.nested.swap(true, AcqRel) {
            let all: Vec<_> = lock(&self.entries).by_fd.values().cloned().collect();
            all.iter().for_each(|entry| self.sweep(entry));
        }
        self.tell_kernel();
    }

    fn sweep(&self, entry: &Arc<Entry>) {
        let mut swept = lock(&self.swept);
        if !swept.iter().any(|other| Arc::ptr_eq(other, entry)) {
            swept.push(entry.clone());
        }
    }

    /// Where it is nested: makes the kernel's set ready if something is there; else whoever brings something knocks.
    fn tell_kernel(&self) {
        let swept = lock(&self.swept).clone();
        for entry in swept {
            if entry.off.load(Acquire) || !entry.flow.is_attached() {
                continue;
            }
            let asked = entry.events.load(Relaxed);
            entry.flow.arm(PollFlags::from_bits_retain(asked as u16), Doors::wake(self.door));
            if Self::now(&entry.flow, asked).0 != 0 && asked & EPOLLET as u32 == 0 {
                self.wake();
            }
        }
    }

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
        self.context.is_awake(self.door);
        self.context.serve_asked();
        self.queue.sleeping.fetch_sub(1, Relaxed);
    }

    /// Whoever sleeps over it looks; nothing where nobody does.
    pub fn call(&self) {
        self.queue.wake_sleepers();
    }

    /// What is ready now, without waiting. `kernel`: the kernel is asked too, by a system call; else only rings are looked at.
    pub fn look_now(&self, events: &mut [Event], kernel: bool) -> Result<usize, Errno> {
        let count = if self.has_connections() { self.rings(events) } else { 0 };
        if kernel && count < events.len() {
            return self.ask_kernel(events, count, Some(Duration::ZERO), None);
        }
        Ok(count)
    }

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
        if self.queue.nested.load(Relaxed) {
            self.tell_kernel();
        }
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
            return self.wait_by_linux(events, timeout, mask);
        }
        let mut deadline = None;
        let calls = self.calls.fetch_add(1, Relaxed);
        loop {
            let count = self.rings(events);
            if count > 0 {
                if calls.is_multiple_of(KERNEL) && count < events.len() {
                    return self.ask_kernel(events, count, Some(Duration::ZERO), mask);
                }
                return Ok(count);
            }
            if timeout == Some(Duration::ZERO) {
                return self.ask_kernel(events, 0, timeout, mask);
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
                let left = if self.has_news() || self.context.spinning.only_looks() {
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
            }
            if end.is_some_and(|end| end <= Instant::now()) {
                return Ok(self.rings(events));
            }
        }
    }

    /// Some of its descriptors are connections that are not Linux's for good.
    fn has_connections(&self) -> bool {
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
    fn has_news(&self) -> bool {
        self.context.has_notices(self.door) || !lock(&self.queue.entries).is_empty()
    }

    /// What the rings say.
    fn rings(&self, events: &mut [Event]) -> usize {
        self.context.pump();
        self.context.collect(self.door);
        let swept = lock(&self.swept).clone();
        swept.iter().for_each(Entry::queue);
        // What is queued again meanwhile waits for the next call.
        let mut left = lock(&self.queue.entries).len();
        let mut count = 0;
        while left > 0 && count < events.len() {
            left -= 1;
            let Some(entry) = lock(&self.queue.entries).pop_front() else { break };
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
        let flow = &entry.flow;
        if entry.off.load(Acquire) || !flow.is_attached() {
            return None;
        }
        if !entry.at_ring.swap(true, Relaxed) {
            self.at_ring.store(true, Relaxed);
        }
        let asked = entry.events.load(Relaxed);
        let edge = asked & EPOLLET as u32 != 0;
        let swept = flow.is_inherited() || self.queue.nested.load(Relaxed);
        let doors = if swept { Doors::wake(self.door) } else { Doors::notice(self.door) };
        if swept {
            self.sweep(entry);
        }
        let (mut now, mut sends_by_ring) = Self::now(flow, asked);
        if edge || now == 0 {
            let missing = if edge { asked & !(now & OUT) } else { asked };
            flow.arm(PollFlags::from_bits_retain(missing as u16), doors);
            (now, sends_by_ring) = Self::now(flow, asked);
        }
        self.mask(entry, sends_by_ring, asked);
        if now == 0 {
            return None;
        }
        if asked & EPOLLONESHOT as u32 != 0 {
            if entry.off.swap(true, AcqRel) {
                return None;
            }
            self.kernel_events(entry, 0);
        } else if !edge {
            // Level: it is looked at again next time.
            entry.queue();
        }
        Some(Event { events: now, data: entry.data.load(Relaxed) })
    }

    /// The kernel is asked for these.
    fn kernel_events(&self, entry: &Entry, events: u32) {
        let key = epoll::EventData::new_u64(entry.kernel_data.load(Relaxed));
        let fd = Self::borrowed(entry.fd);
        if !entry.closed.load(Acquire)
            && epoll::modify(self.kernel(), fd, key, Self::flags(events)).is_ok()
        {
            entry.kernel_events.store(events, Relaxed);
        }
    }

    /// What is so of what is asked, and whether sending goes by the ring.
    fn now(flow: &Flow, asked: u32) -> (u32, bool) {
        let ready = flow.ready();
        let mut now = u32::from(ready.now.bits());
        if ready.hint {
            let events = PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            now |= u32::from(flow.kernel_poll(events).bits());
            flow.ask.store(true, Relaxed);
        }
        (now & (asked | ALWAYS), !ready.ask.contains(PollFlags::OUT))
    }

    /// The kernel always has room for a connection whose bytes go elsewhere: it is not asked.
    fn mask(&self, entry: &Entry, sends_by_ring: bool, asked: u32) {
        if asked & (EPOLLET | EPOLLONESHOT) as u32 != 0 {
            if asked & EPOLLET as u32 == 0 && asked & OUT != 0 {
                let wanted = if sends_by_ring { asked & !OUT } else { asked };
                if entry.kernel_events.load(Relaxed) & OUT != wanted & OUT {
                    self.kernel_events(entry, wanted);
                }
            }
            return;
        }
        let told = entry.kernel_events.load(Relaxed);
        if sends_by_ring {
            if told & OUT != 0 {
                self.kernel_events(entry, asked & !OUT);
            }
        } else if asked & !told != 0 {
            self.kernel_events(entry, asked);
        }
    }

    /// What the kernel says, after what is there already.
    fn ask_kernel(
        &self,
        events: &mut [Event],
        already: usize,
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<usize, Errno> {
        let (count, said_all) = self.ask_kernel_once(events, already, timeout, mask)?;
        if count > already || said_all {
            return Ok(count);
        }
        // It spent all the room on what is ours: a door, what a connection does not want any more.
        Ok(self.ask_kernel_once(events, already, Some(Duration::ZERO), mask)?.0)
    }

    /// The same; and whether it has said all.
    fn ask_kernel_once(
        &self,
        events: &mut [Event],
        already: usize,
        timeout: Option<Duration>,
        mask: Option<u64>,
    ) -> Result<(usize, bool), Errno> {
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut got = [nothing; 64];
        let room = (events.len() - already).min(got.len());
        let number = match mask {
            None => epoll::wait(self.kernel(), &mut got[..room], timeout.map(timespec).as_ref())?,
            Some(mask) => kernel::epoll_pwait(self.kernel(), &mut got[..room], timeout, mask)?,
        };
        let mut count = already;
        for event in &got[..number] {
            let data = event.data;
            let data = data.u64();
            if data == door() {
                continue;
            }
            let flags = event.flags;
            let mut flags = flags.bits();
            let same = lock(&self.entries).of_data(data);
            let same = same.as_slice();
            for entry in same {
                if entry.parked.load(Acquire) {
                    self.unpark(entry);
                    if same.len() == 1 {
                        flags = 0;
                    }
                } else {
                    flags = self.heard(entry, flags, same.len() == 1);
                }
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
        Ok((count, number < room))
    }

    /// The kernel says this of a connection, or of another one whose data is the same: what is told of it.
    fn heard(&self, entry: &Arc<Entry>, flags: u32, only: bool) -> u32 {
        let flow = &entry.flow;
        let mut flags = flags;
        if entry.closed.load(Acquire) {
            return flags;
        }
        if self.needs_no_more(entry) {
            let mut entries = lock(&self.entries);
            if entries.by_fd.get(&entry.fd).is_some_and(|other| Arc::ptr_eq(other, entry)) {
                entries.remove(entry.fd);
            }
            drop(entries);
            self.end(entry);
            return flags;
        }
        if flags & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) as u32 != 0 {
            flow.ask.store(true, Relaxed);
        }
        if !only {
            return flags;
        }
        let asked = entry.events.load(Relaxed);
        if flags & (asked | ALWAYS) == 0 {
            // The program has changed its mind, and the kernel did not know.
            self.kernel_events(entry, asked);
            return 0;
        }
        flags &= asked | ALWAYS;
        let ready = flow.ready();
        if !ready.ask.contains(PollFlags::OUT) && flags & OUT != 0 {
            flags &= !OUT;
            flags |= u32::from(ready.now.bits()) & OUT & asked;
            self.mask(entry, true, asked);
        }
        if asked & EPOLLONESHOT as u32 != 0 {
            if flags == 0 {
                // The kernel has disarmed it for nothing.
                self.kernel_events(entry, asked & !OUT);
            } else if entry.off.swap(true, AcqRel) {
                // The ring was first.
                return 0;
            }
        }
        flags
    }

    /// It is Linux's for good, and the kernel was told what the program wants: it knows all of it. (But the service may still have a copy on its way
    /// where nobody waited for its answer: see `gone`.)
    fn needs_no_more(&self, entry: &Entry) -> bool {
        entry.flow.is_linux()
            && entry.flow.reason().is_some_and(|reason| reason != Reason::Forked)
            && entry.kernel_events.load(Relaxed) == entry.events.load(Relaxed)
            && entry.kernel_data.load(Relaxed) == entry.data.load(Relaxed)
            && !entry.off.load(Acquire)
    }

    pub(crate) fn hold(&self) {
        self.entries.hold();
        self.swept.hold();
    }

    pub(crate) fn hold_queue(&self) {
        self.queue.entries.hold();
    }

    pub(crate) fn let_go(&self) {
        self.queue.entries.let_go();
        self.swept.let_go();
        self.entries.let_go();
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let all: Vec<_> = lock(&self.entries).by_fd.values().cloned().collect();
        all.iter().for_each(|entry| self.end(entry));
        self.context.no_set(self.door);
    }
}
