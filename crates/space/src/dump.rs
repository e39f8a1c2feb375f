//! A core dump: the kernel does not wait for faults while it writes one, so everything is
//! materialized before. Memory of ours is not in it.
//!
//! unsafe: system calls about this process.

use crate::space::Space;
use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};
use uncopy_core::memory::FillError;
use uncopy_kernel::{critical, procfs};

/// How often a fork under way, or a lack of memory, is waited for: a core that lacks something is
/// better than none.
const TRIES: usize = 1000;

impl Space {
    /// The kernel is about to end this process by a signal that dumps core: everything is put in
    /// place, as far as it can be. Returns whether there will be a core that needs it. (Inside a
    /// critical section nothing can be done.)
    pub fn before_core_dump(&'static self) -> bool {
        let ours = self.own.in_own_process() && self.own.alive();
        if !self.serving() || critical::inside() || !ours || !dumps() {
            return false;
        }
        let _ = (0..TRIES).any(|_| {
            let done = self.materialize_everything();
            if !done {
                rustix::thread::sched_yield();
            }
            done
        });
        true
    }

    /// Returns whether that is done, as far as it can be.
    fn materialize_everything(&'static self) -> bool {
        self.prefault_stack();
        critical::within(|| {
            // (Not after a fork: it may be this thread's.)
            if self.gate.enter_after_fork().is_err() {
                return false;
            }
            // Other threads track nothing more.
            self.gate.stand_down();
            // SAFETY: the lock is held.
            let books = unsafe { self.inner.get() }.and_then(|inner| inner.books.as_mut());
            let done = books.is_none_or(|b| {
                let all = b.everything();
                all.is_none_or(|all| b.materialize(all) != Err(FillError::Again))
            });
            self.gate.unlock();
            done
        })
    }
}

/// Whether the kernel will write a core.
fn dumps() -> bool {
    if dumpable_behavior() == Ok(DumpableBehavior::NotDumpable) {
        return false;
    }
    // (A program that takes cores from a pipe has no limit.)
    let mut room = [0; 8];
    getrlimit(Resource::Core).current != Some(0)
        || procfs::read(c"/proc/sys/kernel/core_pattern", &mut room)
            .is_none_or(|pattern| pattern.first() == Some(&b'|'))
}
