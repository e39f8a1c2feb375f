//! Knocks at doors of somebody who may mean harm. A write to an eventfd waits where its owner has
//! filled it, and has taken O_NONBLOCK away. Linux' own knock at an eventfd, when an asynchronous
//! request is done, waits for nobody: so a read of nothing is asked for, of which the door is told.
//!
//! unsafe: system calls that rustix does not know, and the memory that they share with us.

use crate::lock::{Guarded, lock};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Requests at a time. (There is one.)
const MOST: usize = 4;

/// linux/aio_abi.h.
const PREAD: u16 = 0;
const TELLS: u32 = 1;

#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: u64,
    reserved: u64,
    flags: u32,
    told: u32,
}

/// fs/aio.c: how what was done lies in memory, so that it can be taken without a call.
#[repr(C)]
struct Ring {
    id: u32,
    room: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Signals {
    /// A pipe without bytes.
    nothing: OwnedFd,
    /// Where the ring lies, which names the context.
    ring: Guarded<usize>,
}

fn checked(result: libc::c_long) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

impl Signals {
    /// Signals of one process.
    pub fn new() -> Result<Self, Errno> {
        let nothing = rustix::fs::memfd_create("uncopy-tcp-nothing", MemfdFlags::CLOEXEC)?;
        let mut ring = 0usize;
        // SAFETY: writes one word.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, MOST, &raw mut ring) })?;
        Ok(Self { nothing, ring: Guarded::new(ring) })
    }

    /// Knocks at this eventfd.
    pub fn at(&self, door: impl AsFd) -> Result<(), Errno> {
        let ring = lock(&self.ring);
        let request = Request {
            opcode: PREAD,
            file: self.nothing.as_raw_fd().cast_unsigned(),
            flags: TELLS,
            told: door.as_fd().as_raw_fd().cast_unsigned(),
            ..Request::default()
        };
        let requests = [&raw const request];
        // SAFETY: it is done when the call returns, and wrote to no memory but the ring.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, *ring, 1, requests.as_ptr()) })?;
        // SAFETY: the kernel's memory, there as long as the context.
        let done = unsafe { &*(*ring as *const Ring) };
        done.head.store(done.tail.load(Acquire), Release);
        Ok(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: ours, and nobody uses it.
        unsafe { libc::syscall(libc::SYS_io_destroy, *lock(&self.ring)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, epoll, eventfd};
    use std::time::{Duration, Instant};

    #[test]
    fn a_door_that_somebody_has_filled_and_made_to_wait_wakes_and_keeps_nobody() {
        let signals = Signals::new().unwrap();
        let door = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let data = epoll::EventData::new_u64(0);
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &door, data, edges).unwrap();
        let knocks = || {
            let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data }; 2];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&set, &mut events, Some(&now)).unwrap()
        };
        assert_eq!(knocks(), 0);
        rustix::io::write(&door, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert_eq!((knocks(), knocks()), (1, 0));
        let begun = Instant::now();
        for _ in 0..100 * MOST {
            assert_eq!(signals.at(&door), Ok(()));
            assert_eq!((knocks(), knocks()), (1, 0));
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "it waited");
    }
}
