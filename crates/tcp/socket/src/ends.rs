//! A process' own state of its ends: what it decides by, out of its peers' reach. The children that
//! it forks share it, as they share sockets: it is mapped shared, without a name.
//!
//! unsafe: the mapping, and references into it: each part by whoever holds its lock.

use crate::asks::Asks;
use crate::batch::Writing;
use crate::kept_error::KeptError;
use crate::lock::{Lock, Section, has_ended};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use uncopy_kernel::placement;
use uncopy_tcp_shared::Poisoned;
use uncopy_tcp_shared::layout::home;
use uncopy_tcp_shared::notice::SLOTS;
use uncopy_tcp_shared::ring::{Consumed, Produced, RING, Reader, Writer};
use uncopy_tcp_shared::runs::{Incoming, Outgoing};

/// The state by which sending decides.
#[repr(C)]
#[derive(Debug)]
pub struct Sending {
    /// The ring.
    pub writer: Writer<RING>,
    /// When the kernel is asked for a dead peer.
    pub asks: Asks,
    /// Bytes of a withdrawn offer that Linux has still to be given: so many of the ring's unread
    /// bytes are done.
    pub withdrawn: Option<u32>,
    /// It has sent by Linux since it left the ring: what is unread there is not its own any more.
    pub too_late: bool,
    /// Linux's for good.
    pub stays: bool,
    /// The stream was ended.
    pub finished: bool,
    /// The other side wrote nonsense.
    pub poisoned: bool,
    /// The batch that its large copies belong to.
    pub batch: Writing,
    /// Bytes that went in blocks, that were given on, and that no block was free, which the totals
    /// do not know yet.
    pub in_blocks: u64,
    /// See above.
    pub given_on: u64,
    /// See above.
    pub short_of_blocks: bool,
    /// Which of the ring's bytes lie in blocks.
    pub runs: Outgoing,
}

/// The state by which receiving decides.
#[derive(Debug)]
pub struct Receiving {
    /// The ring.
    pub reader: Reader<RING>,
    /// Which of its bytes lie in blocks.
    pub runs: Incoming,
    /// When the kernel is asked, of calls that found nothing.
    pub asks: Asks,
    /// The other side knows that we look for bytes.
    pub receives: bool,
    /// The kernel's stream has ended.
    pub ended: bool,
    /// The other side wrote nonsense.
    pub poisoned: bool,
    /// So many bytes come by Linux before the mark of an urgent byte that the program has received
    /// (MSG_OOB); 0: there is none. Linux does not tell of it until it is reached.
    pub before_mark: usize,
    /// The ring was entered by a call that only looked, at Linux' mark, and nothing was received
    /// since then: what the ring has comes behind that mark.
    pub stands_at_mark: bool,
    /// The ring was entered while so many bytes were unread at Linux that come before it. (It says
    /// something where the receiver is at the ring.)
    pub before_ring: usize,
    /// So long calls have waited for what the other side was taking back, all of them together.
    pub awaited: Duration,
    /// How often it was tried in vain to take a block without copying it, lately.
    pub refused: u32,
    /// So many large messages are taken from the ring before the next is wanted in a block,
    pub rests: u32,
    /// and so many bytes of the first of them were.
    pub rested: u64,
    /// So many calls in a row have received little.
    pub small: u32,
    /// So many calls have received of much while the other side's arena was not there.
    pub much: u32,
}

impl Receiving {
    /// Looks how far the other side is.
    #[inline]
    pub fn look(&mut self, produced: &Produced) -> Result<(), Poisoned> {
        self.reader.look(produced)?;
        self.runs.look(produced);
        Ok(())
    }

    /// It was waited in vain: no call of this connection does so again.
    pub fn waits_no_more(&mut self) {
        self.awaited = Duration::MAX;
    }
}

#[repr(C, align(64))]
struct Guarded<T> {
    lock: Lock,
    /// Of the sending half: the end's. It lies here because each call that sends looks at it.
    error: KeptError,
    /// How far the half is in its ring: the next byte to be sent, or to be received. A mirror of
    /// what the lock guards, for a look without it: what lies in the region the other side can
    /// write.
    at: AtomicU32,
    data: UnsafeCell<T>,
}

#[repr(C)]
struct End {
    sending: Guarded<Sending>,
    receiving: Guarded<Receiving>,
    /// See [`Ends::shut`].
    shut: AtomicBool,
    /// See [`Ends::leaves`].
    leaves: AtomicU64,
    processes: AtomicU32,
    /// Which they are, as far as there is room: a process that has died cannot say that it holds it
    /// no more.
    names: [AtomicU32; NAMES],
}

/// More forked children than these hold a connection as long as they do not close it.
const NAMES: usize = 8;

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
        let at = placement::SMALL.next(BYTES) as *mut _;
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
    pub fn begin(&self, slot: usize, side: usize, process: u32) {
        let at = self.at(slot);
        // SAFETY: within the mapping; nobody refers to it. Zero is a free lock.
        unsafe {
            at.write_bytes(0, 1);
            (&raw mut (*at).sending.data).write(UnsafeCell::new(Sending {
                writer: Writer::new(home(side)),
                asks: Asks::default(),
                withdrawn: None,
                too_late: false,
                stays: false,
                finished: false,
                poisoned: false,
                batch: Writing::default(),
                in_blocks: 0,
                given_on: 0,
                short_of_blocks: false,
                runs: Outgoing::new(),
            }));
            (&raw mut (*at).receiving.data).write(UnsafeCell::new(Receiving {
                reader: Reader::new(),
                runs: Incoming::new(),
                asks: Asks::default(),
                receives: false,
                ended: false,
                poisoned: false,
                before_mark: 0,
                stands_at_mark: false,
                before_ring: 0,
                awaited: Duration::ZERO,
                refused: 0,
                rests: 0,
                rested: 0,
                small: 0,
                much: 0,
            }));
            (*at).processes.store(1, Ordering::Relaxed);
            (*at).names[0].store(process, Ordering::Relaxed);
        }
    }

    /// The error that the program has still to be told.
    #[inline]
    pub fn error(&self, slot: usize) -> &KeptError {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).sending.error }
    }

    /// The position of the next byte to be sent. It is not behind what the other side has taken, as
    /// far as that was looked at before (by an acquiring load).
    #[inline]
    pub fn tail(&self, slot: usize) -> u32 {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).sending.at }.load(Ordering::Relaxed)
    }

    /// The position of the next byte to be received.
    #[inline]
    pub fn head(&self, slot: usize) -> u32 {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).receiving.at }.load(Ordering::Relaxed)
    }

    /// The program receives no more: some process that holds this end has shut that down.
    pub fn shut(&self, slot: usize) -> &AtomicBool {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).shut }
    }

    /// How often sending has left the ring, by whichever process: sets look whether it has since.
    pub fn leaves(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).leaves }
    }

    /// How many processes hold this end.
    pub fn processes(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: within the mapping; an atomic.
        unsafe { &(*self.at(slot)).processes }
    }

    /// A forked child, for which its parent has counted it: its name.
    pub fn is_held_by(&self, slot: usize, process: u32) {
        self.forget_the_dead(slot);
        let free = |name: &&AtomicU32| {
            name.compare_exchange(0, process, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let _ = self.names(slot).iter().find(free);
    }

    /// A process holds it no more; `names`: it knows the others by their names. True: nobody holds
    /// it.
    pub fn is_let_go_by(&self, slot: usize, process: u32, names: bool) -> bool {
        let own = |name: &&AtomicU32| name.load(Ordering::Relaxed) == process;
        if names && let Some(own) = self.names(slot).iter().find(own) {
            own.store(0, Ordering::Release);
        }
        self.one_less(slot) || names && self.forget_the_dead(slot)
    }

    /// True: that was the last one.
    fn one_less(&self, slot: usize) -> bool {
        self.processes(slot).fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// True: nobody is left.
    fn forget_the_dead(&self, slot: usize) -> bool {
        self.names(slot).iter().any(|name| {
            let process = name.load(Ordering::Acquire);
            let forgets = |process| {
                name.compare_exchange(process, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            process != 0 && has_ended(process) && forgets(process) && self.one_less(slot)
        })
    }

    fn names(&self, slot: usize) -> &[AtomicU32; NAMES] {
        // SAFETY: within the mapping; atomics.
        unsafe { &(*self.at(slot)).names }
    }

    /// Locks the state for sending.
    #[inline]
    pub fn sending(&self, slot: usize, process: u32) -> Locked<'_, Sending> {
        // SAFETY: within the mapping, begun.
        Locked::of(unsafe { &(*self.at(slot)).sending }, process)
    }

    /// Locks the state for receiving.
    #[inline]
    pub fn receiving(&self, slot: usize, process: u32) -> Locked<'_, Receiving> {
        // SAFETY: within the mapping, begun.
        Locked::of(unsafe { &(*self.at(slot)).receiving }, process)
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: ours.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// Access to one side of an end, with its lock.
pub struct Locked<'a, T>(&'a Guarded<T>, #[expect(dead_code, reason = "ends last")] Section);

impl<'a, T> Locked<'a, T> {
    #[inline]
    fn of(guarded: &'a Guarded<T>, process: u32) -> Self {
        let section = Section::begin();
        guarded.lock.lock(process);
        Self(guarded, section)
    }
}

impl Locked<'_, Sending> {
    /// The next `bytes` are in place. (The mirror says so first: else the other side may have taken
    /// what it does not have yet, and a look without the lock would find a ring that is full, or
    /// bytes that are unread.)
    #[inline]
    pub fn commit(&mut self, produced: &Produced, bytes: u32) {
        self.0.at.store(self.writer.tail().wrapping_add(bytes), Ordering::Release);
        self.writer.commit(produced, bytes);
    }

    /// Takes back everything that the other side has not taken.
    pub fn take_back(&mut self, produced: &Produced) {
        self.writer.take_back(produced);
        self.0.at.store(self.writer.tail(), Ordering::Release);
    }
}

impl Locked<'_, Receiving> {
    /// The next `bytes` are read.
    #[inline]
    pub fn release(&mut self, consumed: &Consumed, bytes: u32) {
        self.reader.release(consumed, bytes);
        self.0.at.store(self.reader.head(), Ordering::Release);
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

impl<T> std::fmt::Debug for Locked<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn an_end_knows_of_what_it_has_sent_before_the_other_side_does() {
        let ends = Ends::new().unwrap();
        let process = std::process::id();
        ends.begin(0, 0, process);
        // SAFETY: atomics, which zero suits.
        let (produced, consumed): (Produced, Consumed) = unsafe { std::mem::zeroed() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let taken = produced.tail.load(Ordering::Acquire);
                    let unread = ends.tail(0).wrapping_sub(taken);
                    assert!(unread < RING, "{} bytes were taken too early", unread.wrapping_neg());
                }
            });
            for _ in 0..1_000_000 {
                let mut own = ends.sending(0, process);
                consumed.head.store(own.writer.tail(), Ordering::Relaxed);
                own.writer.look(&consumed).unwrap();
                own.writer.reserve(1);
                own.commit(&produced, 1);
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
