//! epoll_ctl: added, changed, removed. The kernel is told what it must know: programs change their
//! minds with every message.

use super::Set;
use super::entry::{Entries, Entry};
use super::events::{EVENTS, Event, OUT, borrowed, flags};
use crate::flow::Flow;
use crate::lock::lock;
use libc::EPOLLEXCLUSIVE;
use rustix::event::epoll;
use rustix::io::Errno;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// The kernel is told and the note of it is made together, with the lock of the entries: other
/// threads of the set hear of it as soon as the kernel knows. (Linux does the same, one change at a
/// time.) A connection's watchers are never asked for with that lock, nor is the service's answer
/// taken, of which they are told: they may want it.
impl Set {
    /// EPOLL_CTL_ADD of a connection, as far as it is one.
    pub fn add(
        &self,
        fd: RawFd,
        flow: Option<Arc<Flow>>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let key = epoll::EventData::new_u64(data);
        let add = || epoll::add(self.kernel(), borrowed(fd), key, flags(events));
        let Some(flow) = flow else {
            self.others_have(data);
            return add();
        };
        if let Some(again) = self.add_again(fd, &flow, events, data) {
            return again;
        }
        self.knows(fd, flow, events, data, add)
    }

    /// Something that is no connection is about to be in the set with these data.
    fn others_have(&self, data: u64) {
        let same = lock(&self.entries).of_data(data);
        same.as_slice().iter().for_each(|entry| entry.shares.store(true, Release));
    }

    /// The program has removed it before, and the kernel does not know that yet. None: it is to be
    /// added there.
    fn add_again(
        &self,
        fd: RawFd,
        flow: &Arc<Flow>,
        events: u32,
        data: u64,
    ) -> Option<Result<(), Errno>> {
        let mut entries = lock(&self.entries);
        let entry = entries.of_number(fd).filter(|entry| entry.parked.load(Acquire))?;
        // (Nothing can be changed to be exclusive.)
        if Arc::ptr_eq(flow, &entry.flow) && events & EPOLLEXCLUSIVE as u32 == 0 {
            let changed = self.change(&mut entries, &entry, events, data);
            if changed.is_ok() {
                entry.parked.store(false, Release);
                entry.removed.store(false, Release);
                entry.off.store(false, Release);
                drop(entries);
                self.looks_at(&entry);
            }
            return Some(changed);
        }
        drop(entries);
        self.unpark(&entry);
        None
    }

    /// The kernel's set has it already: it was added before it connected. An error: it has not, any
    /// more.
    pub fn adopt(&self, fd: RawFd, flow: &Arc<Flow>, event: Event) -> Result<(), Errno> {
        let Event { events, data } = event;
        let key = epoll::EventData::new_u64(data);
        let modify = || epoll::modify(self.kernel(), borrowed(fd), key, flags(events));
        self.knows(fd, flow.clone(), events, data, modify)
    }

    /// `tells` tells the kernel.
    fn knows(
        &self,
        fd: RawFd,
        flow: Arc<Flow>,
        events: u32,
        data: u64,
        tells: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
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
            // Until it is there.
            off: AtomicBool::new(true),
            removed: AtomicBool::new(false),
            arming: AtomicU32::new(1),
            told: AtomicU32::new(0),
            kernel_events: AtomicU32::new(events),
            kernel_data: AtomicU64::new(data),
            parked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            known_by: AtomicI32::new(fd),
            shares: AtomicBool::new(false),
            at_ring: AtomicBool::new(false),
            leaves: AtomicU64::new(flow.leaves()),
            had: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            process: self.context.process(),
            queue: self.queue.clone(),
            entries: Arc::downgrade(&self.entries),
            kernel: self.kernel.clone(),
        });
        flow.watch(entry.clone());
        let mut entries = lock(&self.entries);
        let told = tells();
        // (Where another thread closed it meanwhile its number may be another's.)
        let is_there = told.is_ok() && !flow.is_closed();
        let over = if is_there { entries.insert(entry.clone()) } else { Some(entry.clone()) };
        entry.off.store(!is_there, Release);
        drop(entries);
        // A number that is not the connection's any more, which has others, is another's now.
        if let Some(over) = over {
            Self::end(&over);
        }
        if is_there {
            self.looks_at(&entry);
        }
        told
    }

    fn looks_at(&self, entry: &Arc<Entry>) {
        entry.queue();
        self.queue.wake_sleepers();
        if self.is_nested() {
            entry.flow.in_nested_set();
            self.settle();
        }
    }

    /// EPOLL_CTL_MOD.
    pub fn modify(&self, fd: RawFd, events: u32, data: u64) -> Result<(), Errno> {
        let mut entries = lock(&self.entries);
        match entries.of_number(fd) {
            Some(entry) if entry.removed.load(Acquire) => Err(Errno::NOENT),
            Some(entry) => {
                self.change(&mut entries, &entry, events, data)?;
                drop(entries);
                self.looks_at(&entry);
                Ok(())
            }
            None => {
                drop(entries);
                self.others_have(data);
                let key = epoll::EventData::new_u64(data);
                epoll::modify(self.kernel(), borrowed(fd), key, flags(events))
            }
        }
    }

    /// The program wants this of it. The kernel is told where what it was told does not do:
    /// programs change their minds with every message.
    fn change(
        &self,
        entries: &mut Entries,
        entry: &Arc<Entry>,
        events: u32,
        data: u64,
    ) -> Result<(), Errno> {
        let told = entry.kernel_events.load(Relaxed);
        let sends_by_ring = entry.sends_by_ring();
        let needed = Self::for_kernel(entry, events, sends_by_ring);
        let plain = (events | told) & !EVENTS == 0;
        let (older_events, older_data) = (entry.events.load(Relaxed), entry.data.load(Relaxed));
        let (older_key, was_told) = (entry.kernel_data.load(Relaxed), !entry.is_armed());
        // First here: another thread may hear of it as soon as the kernel knows.
        entry.becomes(entries, events, data);
        if !plain || needed & !told != 0 || older_key != data {
            let key = epoll::EventData::new_u64(data);
            entry.kernel_data.store(data, Relaxed);
            let fd = borrowed(entry.fd);
            if let Err(error) = epoll::modify(self.kernel(), fd, key, flags(events)) {
                entry.kernel_data.store(older_key, Relaxed);
                entry.becomes(entries, older_events, older_data);
                if was_told {
                    entry.told.store(entry.arming.load(Relaxed), Release);
                }
                return Err(error);
            }
            entry.kernel_events.store(events, Relaxed);
        }
        Ok(())
    }

    /// EPOLL_CTL_DEL.
    pub fn remove(&self, fd: RawFd) -> Result<(), Errno> {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.of_number(fd) else {
            drop(entries);
            return epoll::delete(self.kernel(), borrowed(fd));
        };
        if entry.removed.load(Acquire) {
            return Err(Errno::NOENT);
        }
        // Perhaps it comes back. Until the kernel has something to say of it, it need not know.
        let told = entry.kernel_events.load(Relaxed);
        let parks = entry.sends_by_ring() && told & !(EVENTS & !OUT) == 0;
        if parks {
            entry.removed.store(true, Release);
            entry.off.store(true, Release);
            entry.parked.store(true, Release);
        } else {
            epoll::delete(self.kernel(), borrowed(fd))?;
            entries.forget(&entry);
        }
        drop(entries);
        if !parks {
            Self::end(&entry);
        }
        self.settle();
        Ok(())
    }

    /// The kernel learns that the program has removed it. False: another thread has seen to it, or
    /// the program has added it again.
    pub(super) fn unpark(&self, entry: &Arc<Entry>) -> bool {
        {
            let mut entries = lock(&self.entries);
            if !entry.parked.swap(false, AcqRel) {
                return false;
            }
            if !entry.closed.load(Acquire) {
                let _ = epoll::delete(self.kernel(), borrowed(entry.fd));
            }
            entries.forget(entry);
        }
        Self::end(entry);
        true
    }

    /// It is not in the set any more.
    pub(super) fn end(entry: &Arc<Entry>) {
        entry.off.store(true, Release);
        entry.flow.unwatch(entry);
    }
}
