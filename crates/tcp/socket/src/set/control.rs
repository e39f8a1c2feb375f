//! epoll_ctl: added, changed, removed. The kernel is told what it must know: programs change their minds with every message.

use super::entry::Entry;
use super::{EVENTS, Event, OUT, Set};
use crate::flow::Flow;
use crate::lock::lock;
use libc::EPOLLEXCLUSIVE;
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

impl Set {
    /// EPOLL_CTL_ADD of a connection, as far as it is one.
    pub fn add(
        &self,
        fd: RawFd,
        flow: Option<Arc<Flow>>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        if let (Some(flow), Some(entry)) = (&flow, self.entry(fd)) {
            // (Where the kernel has just told of it another thread takes it out there.)
            while entry.off.load(Acquire) && lock(&self.entries).has(&entry) {
                // (Nothing can be changed to be exclusive.)
                let same = Arc::ptr_eq(flow, &entry.flow) && events & EPOLLEXCLUSIVE as u32 == 0;
                if same && entry.parked.swap(false, AcqRel) {
                    return self.change(&entry, events, data);
                }
                if !self.unpark(&entry) {
                    std::thread::yield_now();
                }
            }
        }
        let key = epoll::EventData::new_u64(data);
        epoll::add(self.kernel(), Self::borrowed(fd), key, Self::flags(events))?;
        let Some(flow) = flow else { return Ok(()) };
        self.knows(fd, flow, events, data)
    }

    /// The kernel's set has it already: it was added before it connected. An error: it has not, any more.
    pub fn adopt(&self, fd: RawFd, flow: &Arc<Flow>, event: Event) -> Result<(), Errno> {
        let Event { events, data } = event;
        let key = epoll::EventData::new_u64(data);
        epoll::modify(self.kernel(), Self::borrowed(fd), key, Self::flags(events))?;
        self.knows(fd, flow.clone(), events, data)
    }

    fn knows(&self, fd: RawFd, flow: Arc<Flow>, events: u32, data: u64) -> Result<(), Errno> {
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
            arming: AtomicU32::new(1),
            told: AtomicU32::new(0),
            kernel_events: AtomicU32::new(events),
            kernel_data: AtomicU64::new(data),
            parked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            at_ring: AtomicBool::new(false),
            sends_by_ring: AtomicBool::new(false),
            process: self.context.process(),
            queue: self.queue.clone(),
            entries: Arc::downgrade(&self.entries),
            kernel: self.kernel.clone(),
        });
        flow.watch(entry.clone());
        let older = {
            let mut entries = lock(&self.entries);
            if flow.is_closed() {
                // (Another thread closed it meanwhile: its number may be another's.)
                drop(entries);
                Self::end(&entry);
                return Ok(());
            }
            entries.insert(entry.clone())
        };
        // A number that is not the connection's any more, which has others, is another's now.
        if let Some(older) = older {
            Self::end(&older);
        }
        self.looks_at(&entry);
        Ok(())
    }

    fn looks_at(&self, entry: &Arc<Entry>) {
        entry.queue();
        self.queue.wake_sleepers();
        if self.is_nested() {
            entry.flow.in_nested_set();
            self.settle();
        }
    }

    /// The connection of this number, as it was added.
    fn entry(&self, fd: RawFd) -> Option<Arc<Entry>> {
        lock(&self.entries).by_fd.get(&fd).filter(|entry| entry.has_its_number()).cloned()
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
        match self.entry(fd) {
            Some(entry) if entry.off.load(Acquire) => Err(Errno::NOENT),
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
        let needed = Self::for_kernel(events, sends_by_ring);
        let plain = (events | told) & !EVENTS == 0;
        let older = (entry.events.load(Relaxed), entry.data.load(Relaxed));
        let (was_removed, was_off) = (entry.off.load(Acquire), entry.is_off());
        // First here: another thread may hear of it as soon as the kernel knows.
        self.becomes(entry, events, data);
        entry.off.store(false, Release);
        if !plain || needed & !told != 0 || entry.kernel_data.load(Relaxed) != data {
            let key = epoll::EventData::new_u64(data);
            let older_key = entry.kernel_data.swap(data, Relaxed);
            let fd = Self::borrowed(entry.fd);
            if let Err(error) = epoll::modify(self.kernel(), fd, key, Self::flags(events)) {
                let (events, data) = older;
                entry.kernel_data.store(older_key, Relaxed);
                self.becomes(entry, events, data);
                if was_removed {
                    entry.off.store(true, Release);
                    entry.parked.store(true, Release);
                } else if was_off {
                    entry.takes_its_turn();
                }
                return Err(error);
            }
            entry.kernel_events.store(events, Relaxed);
        }
        self.looks_at(entry);
        Ok(())
    }

    /// The program wants this of it from now on.
    fn becomes(&self, entry: &Arc<Entry>, events: u32, data: u64) {
        lock(&self.entries).change_data(entry, data);
        entry.events.store(events, Relaxed);
        entry.arming.fetch_add(1, AcqRel);
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: RawFd) -> Result<(), Errno> {
        let Some(entry) = self.entry(fd) else {
            return epoll::delete(self.kernel(), Self::borrowed(fd));
        };
        if entry.off.load(Acquire) {
            return Err(Errno::NOENT);
        }
        // Perhaps it comes back. Until the kernel has something to say of it, it need not know.
        let told = entry.kernel_events.load(Relaxed);
        let by_ring = !entry.flow.ready().ask.contains(PollFlags::OUT);
        if by_ring && told & !(EVENTS & !OUT) == 0 {
            entry.off.store(true, Release);
            entry.parked.store(true, Release);
            self.settle();
            return Ok(());
        }
        epoll::delete(self.kernel(), Self::borrowed(fd))?;
        lock(&self.entries).remove(fd);
        Self::end(&entry);
        self.settle();
        Ok(())
    }

    /// The kernel learns that the program has removed it. False: another thread has seen to it, or the program has added it again.
    pub(super) fn unpark(&self, entry: &Arc<Entry>) -> bool {
        if !entry.parked.swap(false, AcqRel) {
            return false;
        }
        if !entry.closed.load(Acquire) {
            let _ = epoll::delete(self.kernel(), Self::borrowed(entry.fd));
        }
        lock(&self.entries).forget(entry);
        Self::end(entry);
        true
    }

    /// It is not in the set any more.
    pub(super) fn end(entry: &Arc<Entry>) {
        entry.off.store(true, Release);
        entry.flow.unwatch(entry);
    }
}
