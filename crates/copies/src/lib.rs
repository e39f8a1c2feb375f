//! Copies that stay: a routine of our own for where libc's is slow, and the choice of it.
//!
//! Some processors (AMD since Zen 3) take 15 to 40 times as long for `rep movsb` where the
//! destination begins 1 to 31 bytes ahead of the source within the page (glibc's bug 30994), and
//! glibc's `memcpy` is `rep movsb` there from 2 or 4 KB up to the size of the second-level cache. A
//! buffer that begins a page, copied to behind a header of 16 bytes in a block that begins a page,
//! is such a copy.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`near`] | which copies these are |
//! | [`routine`] | the routine, for each kind of vectors |
//! | [`choice`] | who makes these copies: a pure function of what was asked for and measured |
//! | [`features`] | what the processor has |
//! | [`measure`] | libc's routine and ours, on one such copy |

#![cfg(target_arch = "x86_64")]

pub mod choice;
pub mod features;
pub mod measure;
pub mod near;
pub mod routine;

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use crate::routine::{Routine, Vectors};

/// The process's choice of a routine for near copies. Zeros: libc.
#[derive(Debug, Default)]
pub struct Copies {
    /// How far ahead a destination counts as near; 0: nothing is.
    reach: AtomicU32,
    routine: AtomicPtr<()>,
}

impl Copies {
    /// libc makes all of them.
    pub const fn new() -> Self {
        Self { reach: AtomicU32::new(0), routine: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Where its reach lies, for an entry in assembly.
    pub const REACH: usize = core::mem::offset_of!(Self, reach);

    /// From now on our routine makes near copies; at most called before a second thread copies.
    pub fn take(&self, vectors: Vectors) {
        self.routine.store(routine::of(vectors) as *mut (), Relaxed);
        self.reach.store(near::REACH as u32, Relaxed);
    }

    /// Our routine, if this copy is one for it.
    #[inline(always)]
    pub fn ours(&self, to: usize, from: usize, n: usize) -> Option<Routine> {
        if !near::is_near(to, from, self.reach.load(Relaxed) as usize) || !near::SIZES.contains(&n)
        {
            return None;
        }
        self.routine()
    }

    /// Our routine, if it was taken.
    #[inline(always)]
    pub fn routine(&self) -> Option<Routine> {
        // SAFETY: null, or stored by `take`.
        unsafe { core::mem::transmute(self.routine.load(Relaxed)) }
    }
}
