//! The fd table: which of a program's descriptors is what. A call looks its descriptor up without a
//! lock: one load where it is nothing of ours, two exchanges of one word where it is.
//!
//! A word holds an address, and in its upper bits how many calls use what is there. The call that
//! takes it out of the table takes that count with it, into the value itself; the last one frees
//! it.
//!
//! unsafe: the table's memory; values are reached by the addresses in it.

use crate::critical;
use crate::lock::Lock;
use crate::placement;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::os::fd::RawFd;

/// As many descriptors as a process has at most (`fs.nr_open` as it comes); what lies beyond is the
/// kernel's.
const NUMBERS: u32 = 1 << 20;
/// Addresses of programs have 47 bits.
const ADDRESS: u64 = (1 << 48) - 1;
const ONE: u64 = 1 << 48;
/// More than there are users: as long as it is in the table it is not free.
const IN_TABLE: i64 = 1 << 40;

#[derive(Debug)]
struct Value<E> {
    users: AtomicI64,
    entry: E,
}

/// See the module. Zeros: nothing is looked up.
#[derive(Debug)]
pub struct FdTable<E> {
    table: AtomicPtr<AtomicU64>,
    length: AtomicU32,
    /// One more than the highest number that was ever in it.
    end: AtomicU32,
    changing: Lock,
    entries: PhantomData<E>,
}

impl<E: Clone> Default for FdTable<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Clone> FdTable<E> {
    /// Where in it a word of 32 bits lies that is 0 as long as nothing was ever in it.
    pub const ANY: usize = core::mem::offset_of!(Self, end);

    /// Nothing is looked up.
    pub const fn new() -> Self {
        Self {
            table: AtomicPtr::new(core::ptr::null_mut()),
            length: AtomicU32::new(0),
            end: AtomicU32::new(0),
            changing: Lock::new(),
            entries: PhantomData,
        }
    }

    /// From now on descriptors are looked up. False: no memory.
    pub fn begin(&self) -> bool {
        let bytes = NUMBERS as usize * size_of::<AtomicU64>();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let at = placement::SMALL.next(bytes) as *mut _;
        // SAFETY: a new mapping.
        let made = unsafe { mmap_anonymous(at, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let Ok(table) = made else { return false };
        self.table.store(table.cast(), Release);
        self.length.store(NUMBERS, Release);
        true
    }

    /// Descriptors are looked up.
    #[inline]
    pub fn begun(&self) -> bool {
        self.length.load(Relaxed) != 0
    }

    /// Nothing was ever in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end.load(Relaxed) == 0
    }

    #[inline]
    fn word(&self, fd: RawFd) -> Option<&AtomicU64> {
        // (Negative ones are huge.)
        if fd as u32 >= self.length.load(Relaxed) {
            return None;
        }
        // SAFETY: within the table, which is there once its length is known, and stays.
        Some(unsafe { &*self.table.load(Relaxed).add(fd as usize) })
    }

    /// The entry of `fd`.
    #[inline]
    pub fn find(&self, fd: RawFd) -> Option<FdGuard<'_, E>> {
        let word = self.word(fd)?;
        if word.load(Relaxed) == 0 {
            return None;
        }
        FdGuard::take(word)
    }

    /// The table says from now on that something may be in it.
    pub fn attend(&self) {
        self.end.fetch_max(1, Relaxed);
    }

    /// `fd` is this from now on. The entry that it was before was closed past us.
    pub fn put(&self, fd: RawFd, entry: E) -> Option<E> {
        let word = self.word(fd)?;
        let value = Box::into_raw(Box::new(Value { users: AtomicI64::new(IN_TABLE), entry }));
        let older = self.change(|| {
            self.end.fetch_max(fd as u32 + 1, Relaxed);
            word.swap(value as u64, AcqRel)
        });
        Self::out(older)
    }

    /// `fd` is nothing any more. Returns what it was.
    pub fn remove(&self, fd: RawFd) -> Option<E> {
        let word = self.word(fd)?;
        if word.load(Relaxed) == 0 {
            return None;
        }
        Self::out(self.change(|| word.swap(0, AcqRel)))
    }

    fn change<R>(&self, f: impl FnOnce() -> R) -> R {
        critical::within(|| {
            self.changing.lock();
            let result = f();
            self.changing.unlock();
            result
        })
    }

    /// The entry that a word held, which is not in the table any more.
    fn out(word: u64) -> Option<E> {
        let value = (word & ADDRESS) as *mut Value<E>;
        if value.is_null() {
            return None;
        }
        // SAFETY: it lives as long as its count says: the table's part is given up here only.
        let entry = unsafe { (*value).entry.clone() };
        // SAFETY: as above; the calls that were counted in the word.
        unsafe { less(value, IN_TABLE - (word >> 48) as i64) };
        Some(entry)
    }

    /// All that is in it, of `first` to `last`.
    pub fn all(&self, first: u32, last: u32) -> Vec<(RawFd, E)> {
        let end = self.end.load(Relaxed).min(last.saturating_add(1));
        (first..end).filter_map(|fd| Some((fd as RawFd, self.find(fd as RawFd)?.clone()))).collect()
    }

    /// Nothing is looked up any more.
    pub fn reset(&self) {
        self.length.store(0, Release);
        self.end.store(0, Relaxed);
    }

    /// Before fork: nothing changes until [`FdTable::let_go`].
    pub fn hold(&self) {
        self.changing.lock();
    }

    /// After fork, in the parent and in the child.
    pub fn let_go(&self) {
        self.changing.unlock();
    }
}

/// `n` users less of a value; the last one frees it.
unsafe fn less<E>(value: *mut Value<E>, n: i64) {
    // SAFETY: the caller has its part of the count.
    unsafe {
        if (*value).users.fetch_sub(n, AcqRel) == n {
            drop(Box::from_raw(value));
        }
    }
}

/// An entry that was found, as long as it is used.
#[derive(Debug)]
pub struct FdGuard<'a, E> {
    word: &'a AtomicU64,
    value: *mut Value<E>,
}

impl<'a, E> FdGuard<'a, E> {
    #[inline]
    fn take(word: &'a AtomicU64) -> Option<Self> {
        let mut seen = word.load(Relaxed);
        loop {
            if seen & ADDRESS == 0 {
                return None;
            }
            match word.compare_exchange_weak(seen, seen.wrapping_add(ONE), Acquire, Relaxed) {
                Ok(_) => return Some(Self { word, value: (seen & ADDRESS) as *mut Value<E> }),
                Err(now) => seen = now,
            }
        }
    }
}

impl<E> Deref for FdGuard<'_, E> {
    type Target = E;
    #[inline]
    fn deref(&self) -> &E {
        // SAFETY: counted as used.
        unsafe { &(*self.value).entry }
    }
}

impl<E> Drop for FdGuard<'_, E> {
    #[inline]
    fn drop(&mut self) {
        let mut seen = self.word.load(Relaxed);
        while seen & ADDRESS == self.value as u64 {
            match self.word.compare_exchange_weak(seen, seen.wrapping_sub(ONE), Release, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
        // It was taken out of the table meanwhile, with our use of it.
        // SAFETY: that use is given up here.
        unsafe { less(self.value, 1) };
    }
}
