//! Large messages in blocks: what this process has given of its own arena, and what it has been
//! given of its peers'. See `uncopy_tcp_shared::runs` for how they come, and
//! `uncopy_tcp_shared::returns` for how they go back.
//!
//! A process has one arena, which it fills and which its peers map read-only. It is given to a peer
//! when a receiver there would take blocks; only where both could trace each other.
//!
//! What becomes of blocks of which somebody died: the arena's memory lives as long as somebody maps
//! it. Whoever has mapped an arena holds a lock of it that ends with the last process that has what
//! was opened then, and no earlier: until that is free nothing that the peer has not given back is
//! used again.
//!
//! unsafe: a system call; what was handed over names its peer by an address.

use crate::lock::{Guarded, lock};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use uncopy_kernel::apart;
use uncopy_kernel::call::syscall4;
use uncopy_kernel::descriptors::{Kept, OwnFd};
use uncopy_tcp_blocks::out::Out;
use uncopy_tcp_blocks::pages::{Block, Pages};
use uncopy_tcp_shared::arena::{ARENA, Arena};
use uncopy_tcp_shared::layout::PAGE;
use uncopy_tcp_shared::region::Region;
use uncopy_tcp_shared::returns::Returns;
use uncopy_tcp_shared::runs::Run;

/// Which messages go in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// From so many bytes on.
    pub from: usize,
    /// Whether the receiver would take them or not, for tests.
    pub always: bool,
}

impl Blocks {
    /// None.
    pub const NONE: Self = Self { from: usize::MAX, always: false };
    /// Those that it pays for: up to 128 KB a view takes both ends as long as the copy, or longer.
    pub const LARGE: Self = Self { from: 256 << 10, always: false };
}

const PAGES: u32 = (ARENA / PAGE) as u32;

/// This process' arena.
#[derive(Debug)]
pub(crate) struct Own {
    pub memory: Arena,
    fd: Kept,
    pages: Guarded<Pages>,
    /// Pages that never come back.
    lost: AtomicUsize,
    /// See [`Settings`](crate::Settings).
    may_hold: fn(u64) -> bool,
}

/// By which runs name it: a peer is given one.
pub(crate) const NUMBER: u16 = 0;

/// Of one region: what this side has given to the other, and what it was given.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Whose the books are; 0: a parent process', which a forked child leaves alone.
    process: AtomicU32,
    /// Our own arena, once the other side was offered it.
    own: OnceLock<Arc<Own>>,
    out: Guarded<Out<Block>>,
    /// The other side's, once it has come.
    peer: OnceLock<Box<Peer>>,
    /// It was offered, or cannot be.
    offered: AtomicBool,
}

/// A place in a block, to be filled.
pub(crate) struct Place<'a> {
    pub own: &'a Own,
    pub at: u32,
    pub handle: u16,
}

impl Exchange {
    /// Of this process.
    pub fn new(process: u32) -> Self {
        Self {
            process: AtomicU32::new(process),
            own: OnceLock::new(),
            out: Guarded::default(),
            peer: OnceLock::new(),
            offered: AtomicBool::new(false),
        }
    }

    /// In a forked child.
    pub fn is_inherited(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    /// It is this process's own. (A child of vfork has its memory, and is another.)
    fn is_own(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// Our own arena, if the other side was offered it.
    pub fn own(&self) -> Option<&Own> {
        self.own.get().map(|own| &**own)
    }

    /// The other side's, if it has come.
    #[inline]
    pub fn peer(&self, number: u16) -> Option<&Peer> {
        self.peer.get().filter(|_| number == NUMBER).map(|peer| &**peer)
    }

    /// Room for so many bytes to the connection of this slot. `None`: they are to be copied.
    pub fn room(&self, returns: &Returns, slot: usize, bytes: u32) -> Option<Place<'_>> {
        let own = self.own()?;
        let mut out = lock(&self.out);
        let mut pages = lock(&own.pages);
        take_back(&mut out, &mut pages, returns);
        // Who keeps much leaves as much for others.
        let free = (pages.free() * PAGE) as u64;
        let slot = u8::try_from(slot).ok()?;
        if !out.may(slot, bytes) || out.bytes() + u64::from(bytes) > free {
            return None;
        }
        let may = |touched: usize| (own.may_hold)((touched * PAGE) as u64);
        let block = pages.take(bytes.div_ceil(PAGE as u32), may)?;
        match out.give(slot, bytes, block) {
            Ok(handle) => {
                returns.begin(handle);
                Some(Place { own, at: block.page * PAGE as u32, handle })
            }
            Err(block) => {
                pages.give_back(block);
                None
            }
        }
    }

    /// Nothing of the other side's is viewed here, and nothing of ours is out to it; or nobody is
    /// left who could look at that: then it is ours again. `id` names the region.
    pub fn is_over(&self, returns: &Returns, id: u64) -> bool {
        let viewed = self.peer(NUMBER).map_or(0, |peer| peer.viewed.load(Ordering::Acquire));
        self.process.load(Ordering::Relaxed) == 0
            || self.is_own() && viewed == 0 && self.is_back(returns, id)
    }

    /// What is viewed here of the other side's is called back. Not with a lock held.
    pub fn recalls(&self) {
        if self.is_own()
            && let Some(peer) = self.peer(NUMBER)
        {
            peer.recalls();
        }
    }

    fn is_back(&self, returns: &Returns, id: u64) -> bool {
        let Some(own) = self.own() else { return true };
        let mut out = lock(&self.out);
        let mut pages = lock(&own.pages);
        take_back(&mut out, &mut pages, returns);
        let over = out.is_empty() || is_held(own.fd.as_fd(), id) == Ok(false);
        if over {
            out.take_all().for_each(|block| pages.give_back(block));
        }
        over
    }
}

fn take_back(out: &mut Out<Block>, pages: &mut Pages, returns: &Returns) {
    returns.collect(|handle, done| {
        if let Some(block) = out.done(handle, done) {
            pages.give_back(block);
        }
    });
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.is_own()
            && let Some(own) = self.own.get()
        {
            let lost: usize = lock(&self.out).take_all().map(|block| block.pages as usize).sum();
            own.lost.fetch_add(lost, Ordering::Relaxed);
        }
    }
}

/// A peer's arena, of which this process is given blocks.
#[derive(Debug)]
pub struct Peer {
    memory: Arena,
    /// What holds the lock that says so.
    _held: Kept,
    /// The region by which it comes, and the side of it that we are.
    region: *const Region,
    side: usize,
    /// Ranges that were handed over, and are not released.
    viewed: AtomicUsize,
    /// By which handle they are given back: by the page in which they begin, one more than it.
    handles: OnceLock<Box<[AtomicU64]>>,
    /// What the owner of views knows it by.
    known: OnceLock<Box<dyn Views>>,
}

/// What knows a peer's arena as a region that views lie in.
pub trait Views: Any + Send + Sync {
    /// What is viewed of it becomes memory of this process' own, as far as no call is reading it.
    /// Not with a lock held.
    fn recall(&self);
}

impl std::fmt::Debug for dyn Views {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Views")
    }
}

// SAFETY: what the address leads to is shared, and lives as long (see `Mapped`).
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

impl Peer {
    /// Where a part of a run lies. `None`: nowhere in it.
    #[inline]
    pub(crate) fn address(&self, run: Run) -> Option<*const u8> {
        self.memory.address(run.at, run.bytes).map(<*mut u8>::cast_const)
    }

    /// Where it lies, and how long it is.
    pub fn memory(&self) -> (usize, usize) {
        (self.memory.base(), ARENA)
    }

    /// What the owner of views knows it by; made once, dropped before its memory goes. `None`: it
    /// could not be made.
    pub fn known<T: Views>(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        if self.known.get().is_none() {
            let made: Box<dyn Views> = Box::new(make()?);
            // (Another thread may have made one: this one ends.)
            let _ = self.known.set(made);
        }
        let known: &dyn Any = &**self.known.get()?;
        known.downcast_ref()
    }

    /// What is viewed of it here is called back.
    fn recalls(&self) {
        if self.viewed.load(Ordering::Acquire) > 0
            && let Some(known) = self.known.get()
        {
            known.recall();
        }
    }

    /// Notes that a range is handed over. False: one that begins in the same page is still out.
    pub(crate) fn hands_over(&self, run: Run) -> bool {
        let new = || (0..PAGES).map(|_| AtomicU64::new(0)).collect();
        let handle = &self.handles.get_or_init(new)[run.at as usize / PAGE];
        let noted = u64::from(run.handle) + 1;
        let free = handle.compare_exchange(0, noted, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if free {
            self.viewed.fetch_add(1, Ordering::AcqRel);
        }
        free
    }

    /// It was not handed over after all.
    pub(crate) fn keeps(&self, run: Run) {
        let Some(handles) = self.handles.get() else { return };
        handles[run.at as usize / PAGE].store(0, Ordering::Release);
        self.viewed.fetch_sub(1, Ordering::AcqRel);
    }

    /// A range that was handed over, of so many bytes from this address on, is not used any more.
    /// Any thread may say so.
    pub fn released(&self, at: usize, bytes: usize) {
        let Some(handles) = self.handles.get() else { return };
        let Some(handle) = handles.get(at.wrapping_sub(self.memory.base()) / PAGE) else { return };
        let handle = handle.swap(0, Ordering::AcqRel);
        // SAFETY: the region is mapped as long as ranges are out.
        let region = unsafe { &*self.region };
        if handle != 0 {
            region.returns(1 - self.side).done((handle - 1) as u16, bytes as u32);
            // Last: from here on the region may go.
            self.viewed.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Before its memory.
        drop(self.known.take());
    }
}

impl Own {
    /// A new one.
    pub fn new(may_hold: fn(u64) -> bool) -> Result<Self, Errno> {
        let mut memory = None;
        let fd = Kept::if_room(|| {
            let (mapped, fd) = Arena::create(apart::SHARED.next(ARENA))?;
            memory = Some(mapped);
            Ok(fd)
        })?;
        let memory = memory.ok_or(Errno::NOMEM)?;
        let pages = Guarded::new(Pages::new(PAGES));
        Ok(Self { memory, fd, pages, lost: AtomicUsize::new(0), may_hold })
    }

    /// Half of it never comes back.
    pub fn is_worn(&self) -> bool {
        self.lost.load(Ordering::Relaxed) > PAGES as usize / 2
    }

    /// What others map it by.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Exchange {
    /// It is to be offered now: the first time it is asked.
    pub fn is_to_be_offered(&self) -> bool {
        !self.offered.swap(true, Ordering::AcqRel) && is_dumpable()
    }

    /// The other side was given our arena.
    pub fn was_offered(&self, own: Arc<Own>) {
        let _ = self.own.set(own);
    }

    /// The other side's arena has come.
    pub(crate) fn takes(
        &self,
        fd: OwnFd,
        number: u64,
        region: &Region,
        (id, side): (u64, usize),
    ) -> Result<(), Errno> {
        if number != NUMBER.into() || self.peer.get().is_some() || !is_dumpable() {
            return Err(Errno::INVAL);
        }
        let memory = Arena::of_peer(apart::SHARED.next(ARENA), &fd)?;
        // (Opened anew: locks are of what was opened.)
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let held = Kept::if_room(|| rustix::fs::open(path, flags, Mode::empty()))?;
        hold(held.as_fd(), id)?;
        let peer = Peer {
            memory,
            _held: held,
            region,
            side,
            viewed: AtomicUsize::new(0),
            handles: OnceLock::new(),
            known: OnceLock::new(),
        };
        self.peer.set(Box::new(peer)).map_err(|_| Errno::EXIST)
    }
}

/// Others of its user's may look at its memory: else none of its bytes are to be seen by all who
/// have its arena, and it is not to believe theirs.
fn is_dumpable() -> bool {
    rustix::process::dumpable_behavior() == Ok(rustix::process::DumpableBehavior::Dumpable)
}

/// One byte of the arena's file for each region.
fn byte(id: u64, kind: i32) -> libc::flock {
    // SAFETY: plain data.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_start = (id & i64::MAX as u64) as i64;
    lock.l_len = 1;
    lock
}

/// Says that this process, and whoever it forks, has what it is given by this region.
fn hold(fd: BorrowedFd, id: u64) -> Result<(), Errno> {
    locks(fd, libc::F_OFD_SETLK, &mut byte(id, libc::F_RDLCK))
}

/// Whether any process does.
fn is_held(fd: BorrowedFd, id: u64) -> Result<bool, Errno> {
    let mut lock = byte(id, libc::F_WRLCK);
    locks(fd, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn locks(fd: BorrowedFd, what: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    let (fd, lock) = (fd.as_raw_fd() as usize, std::ptr::from_mut(lock) as usize);
    // SAFETY: reads and writes the lock's description.
    let done = unsafe { syscall4(libc::SYS_fcntl as usize, fd, what as usize, lock, 0) };
    if done < 0 { Err(Errno::from_raw_os_error(-done as i32)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd() -> std::os::fd::OwnedFd {
        rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_region_is_held_until_what_was_opened_is_closed_everywhere() {
        let fd = memfd();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let opened = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let id = i64::MAX as u64 - 4;
        assert_eq!(is_held(fd.as_fd(), id), Ok(false));
        hold(opened.as_fd(), id).unwrap();
        let copy = opened.try_clone().unwrap();
        assert_eq!((is_held(fd.as_fd(), id), is_held(fd.as_fd(), id - 2)), (Ok(true), Ok(false)));
        drop(opened);
        assert_eq!(is_held(fd.as_fd(), id), Ok(true), "a copy is open, as in a forked child");
        drop(copy);
        assert_eq!(is_held(fd.as_fd(), id), Ok(false));
    }
}
