//! Events of descriptors in a set, and how one is in it.
//!
//! unsafe: descriptors by their numbers.

use libc::{EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLWRNORM};
use rustix::event::epoll;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

pub(super) const OUT: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
/// A program that asks for one of these is told of the end.
pub(super) const HEARS: u32 = OUT | (EPOLLIN | EPOLLRDHUP) as u32;
pub(super) const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;
/// Events proper: the other bits say how they are told.
pub(super) const EVENTS: u32 = 0x3fff;
/// The data by which the kernel tells of a door. It is no program's own: it is where something of
/// ours lies.
pub fn door() -> u64 {
    static HERE: u8 = 0;
    &raw const HERE as u64
}

/// An event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The bits of epoll that are set.
    pub events: u32,
    /// The data that the program gave.
    pub data: u64,
}

impl Event {
    /// The event that the kernel says.
    pub fn said(by_kernel: &epoll::Event) -> Self {
        let epoll::Event { flags, data } = *by_kernel;
        Self { events: flags.bits(), data: data.u64() }
    }
}

/// How a descriptor is in a set, by one of its numbers: for another file that is to be there in its
/// place.
#[derive(Debug)]
pub struct Added {
    pub(super) kernel: Arc<AtomicI32>,
    pub(super) number: RawFd,
    pub(super) event: Event,
}

impl Added {
    /// The number by which the set has it.
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Takes the file that has this number out of the set. False: it is not there.
    pub fn take_out(&self) -> bool {
        let (set, file) = (borrowed(self.kernel.load(Relaxed)), borrowed(self.number));
        epoll::delete(set, file).is_ok()
    }

    /// Adds the file that has it now. (One that cannot be there, for want of memory, is not: the
    /// program hears of it when it changes it.)
    pub fn put(&self) {
        let Event { events, data } = self.event;
        let (set, file) = (borrowed(self.kernel.load(Relaxed)), borrowed(self.number));
        let _ = epoll::add(set, file, epoll::EventData::new_u64(data), flags(events));
    }
}

/// A descriptor, for the kernel.
pub(super) fn borrowed<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: a number for the kernel, which checks it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The flags that the kernel takes.
pub(super) fn flags(events: u32) -> epoll::EventFlags {
    epoll::EventFlags::from_bits_retain(events)
}
