//! Our pipes: one for each call under way.
//!
//! unsafe: system calls on our own descriptors and on memory that the caller's plan names.

use crate::left;
use crate::pieces::{List, Pieces};
use crate::slot::Slot;
use core::sync::atomic::{AtomicU32, Ordering};
use uncopy_inject::{Call, Error};
use uncopy_kernel::call::syscall4;
use uncopy_kernel::inject;

/// Pipes at once: one for each call under way.
pub const PIPES: usize = 8;
/// After a pipe was refused, so many calls go plainly.
const REST: u32 = 1024;

/// All of them.
#[derive(Debug)]
pub(crate) struct Pipes {
    slots: [Slot; PIPES],
    /// Calls that go plainly still.
    resting: AtomicU32,
}

impl Pipes {
    /// None is made.
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot::new() }; PIPES], resting: AtomicU32::new(0) }
    }

    /// Their numbers; -1: none.
    pub(crate) fn descriptors(&self) -> [i32; PIPES] {
        core::array::from_fn(|i| self.slots[i].fd.get())
    }

    /// The program takes the number `fd` for itself (dup2, which closes what is there).
    pub(crate) fn make_way(&self, fd: i32) {
        self.slots.iter().for_each(|slot| slot.fd.forget(fd));
    }

    /// In a forked child: the pipes are the parent's, with what is in them.
    pub(crate) fn after_fork_child(&self) {
        for slot in &self.slots {
            slot.close();
            slot.busy.store(false, Ordering::Relaxed);
        }
    }

    /// No pipe of ours stays open, but those in use.
    pub(crate) fn close(&self) {
        for slot in &self.slots {
            if !slot.busy.swap(true, Ordering::Acquire) {
                slot.close();
                slot.busy.store(false, Ordering::Release);
            }
        }
    }

    /// One for a call; `None`: it goes plainly.
    pub(crate) fn claim(&'static self) -> Option<Pipe> {
        let resting = self.resting.load(Ordering::Relaxed);
        if resting > 0 {
            self.resting.store(resting - 1, Ordering::Relaxed);
            return None;
        }
        let slot = self.slots.iter().find(|s| s.claim())?;
        if !slot.ours() {
            slot.fd.set(-1);
            if slot.open().is_err() {
                slot.busy.store(false, Ordering::Release);
                self.resting.store(REST, Ordering::Relaxed);
                return None;
            }
        }
        left::Sending::holds(Some(slot));
        Some(Pipe { slot, fd: slot.fd.get(), used: false })
    }
}

/// A pipe in use by this call.
pub(crate) struct Pipe {
    pub(crate) slot: &'static Slot,
    pub(crate) fd: i32,
    /// Something may be left in it.
    pub(crate) used: bool,
}

impl Pipe {
    /// Puts bytes in, from `at` on, as many as there is room for (or those of one sort). Returns
    /// how many; 0: refused.
    pub(crate) fn load(&mut self, pieces: &Pieces<'_>, at: usize, one_sort: bool) -> usize {
        let mut loaded = 0;
        self.used = true;
        while let Some((run, lent)) = pieces.run(at + loaded) {
            let n = put(self.fd, &run, lent).max(0) as usize;
            loaded += n;
            if one_sort || n < run.bytes() {
                break;
            }
        }
        loaded
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        left::Sending::holds(None);
        if self.used {
            self.slot.close();
        }
        self.slot.busy.store(false, Ordering::Release);
    }
}

/// Puts pieces of one sort into our pipe: by reference, or copied by the kernel.
fn put(pipe: i32, run: &List, lent: bool) -> isize {
    let run = run.get();
    let most = match inject::draw(Call::Vmsplice, run.len() == 1) {
        None => run.len(),
        Some(Error::Short) => run.len() / 2,
        Some(error) => return -(error.errno() as isize),
    };
    let (call, flags) = if lent {
        (libc::SYS_vmsplice, libc::SPLICE_F_NONBLOCK as usize)
    } else {
        (libc::SYS_writev, 0)
    };
    // SAFETY: into a pipe of ours, from pinned pool pages or from what the program named.
    unsafe { syscall4(call as usize, pipe as usize, run.as_ptr() as usize, most, flags) }
}
