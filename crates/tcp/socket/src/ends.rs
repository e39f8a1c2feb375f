//! A process' own state of its ends: what it decides by, out of its peers' reach. The children that it forks share it, as they share sockets: it
//! is mapped shared, without a name.
//!
//! unsafe: the mapping, and references into it: each part by whoever holds its lock.

use crate::batch::Writing;
use crate::lock::{Lock, Section};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use uncopy_kernel::apart;
use uncopy_tcp_shared::layout::home;
use uncopy_tcp_shared::notice::SLOTS;
use uncopy_tcp_shared::ring::{RING, Reader, Writer};

/// What sending decides by.
#[derive(Debug)]
pub struct Sending {
    /// The ring.
    pub writer: Writer<RING>,
    /// Calls, so that the kernel is asked for a dead peer now and then.
    pub calls: u32,
    /// Bytes of a withdrawn offer that Linux has still to be given: so many of the ring's unread bytes are done.
    pub withdrawn: Option<u32>,
    /// It has sent by Linux since it left the ring: what is unread there is not its own any more.
    pub too_late: bool,
    /// Linux's for good.
    pub stays: bool,
    /// The stream was ended.
    pub finished: bool,
    /// The other side wrote nonsense.
    pub poisoned: bool,
    /// What its large copies belong to.
    pub batch: Writing,
}

/// What receiving decides by.
#[derive(Debug)]
pub struct Receiving {
    /// The ring.
    pub reader: Reader<RING>,
    /// Calls that found nothing, likewise.
    pub empty: u32,
    /// The other side knows that we look for bytes.
    pub receives: bool,
    /// An error of the kernel's connection, met while the ring still held bytes.
    pub error: Option<i32>,
    /// The kernel's stream has ended.
    pub ended: bool,
    /// The other side wrote nonsense.
    pub poisoned: bool,
}

#[repr(C, align(64))]
struct Guarded<T> {
    lock: Lock,
    data: UnsafeCell<T>,
}

#[repr(C)]
struct End {
    sending: Guarded<Sending>,
    receiving: Guarded<Receiving>,
    processes: AtomicU32,
}

/// The ends of one region.
#[derive(Debug)]
pub struct Ends(NonNull<End>);

// SAFETY: what is in it is behind locks, or atomic.
unsafe impl Send for Ends {}
// SAFETY: as above.
unsafe impl Sync for Ends {}

const BYTES: usize = SLOTS * size_of::<End>();

impl Ends {
    /// Memory for a region's.
    pub fn new() -> Result<Self, Errno> {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let at = apart::SMALL.next(BYTES) as *mut _;
        // SAFETY: a new mapping.
        let at = unsafe { mmap_anonymous(at, BYTES, flags, MapFlags::SHARED) }?;
        NonNull::new(at.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    fn at(&self, slot: usize) -> *mut End {
        assert!(slot < SLOTS);
        // SAFETY: within the mapping.
        unsafe { self.0.add(slot) }.as_ptr()
    }

    /// A slot is a new connection's. Only before anybody else knows it.
    pub fn begin(&self, slot: usize, side: usize) {
        let at = self.at(slot);
        // SAFETY: within the mapping; nobody refers to it. Zero is a free lock.
        unsafe {
            at.write_bytes(0, 1);
            (&raw mut (*at).sending.data).write(UnsafeCell::new(Sending {
                writer: Writer::new(home(side)),
                calls: 0,
                withdrawn: None,
                too_late: false,
                stays: false,
                finished: false,
                poisoned: false,
                batch: Writing::default(),
            }));
            (&raw mut (*at).receiving.data).write(UnsafeCell::new(Receiving {
                reader: Reader::new(),
                empty: 0,
                receives: false,
                error: None,
                ended: false,
                poisoned: false,
            }));
            (*at).processes.store(1, Ordering::Relaxed);
        }
    }

    /// How many processes hold this end.
    pub fn processes(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).processes }
    }

    /// To send.
    #[inline]
    pub fn sending(&self, slot: usize, process: u32) -> Held<'_, Sending> {
        // SAFETY: within the mapping, begun.
        Held::of(unsafe { &(*self.at(slot)).sending }, process)
    }

    /// To receive.
    #[inline]
    pub fn receiving(&self, slot: usize, process: u32) -> Held<'_, Receiving> {
        // SAFETY: within the mapping, begun.
        Held::of(unsafe { &(*self.at(slot)).receiving }, process)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: ours.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// With the lock.
pub struct Held<'a, T>(&'a Guarded<T>, #[expect(dead_code, reason = "ends last")] Section);

impl<'a, T> Held<'a, T> {
    #[inline]
    fn of(guarded: &'a Guarded<T>, process: u32) -> Self {
        let section = Section::begin();
        guarded.lock.lock(process);
        Self(guarded, section)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

impl<T> std::fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Held")
    }
}
