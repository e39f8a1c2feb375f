//! A core dump: the kernel does not wait for faults while it writes one, so everything is put in place before. What is ours is
//! not in it.
//!
//! unsafe: system calls about this process.

use super::descriptors::in_own_process;
use super::{GATE, GLOBAL, alive, serving};
use crate::{critical, heap, procfs, twin};
use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};
use uncopy_core::memory::FillError;

/// How often a fork under way, or a lack of memory, is waited for: a core that lacks something is better than none.
const TRIES: usize = 1000;

/// The kernel is about to end this process by a signal that dumps core. (Inside a critical section nothing can be done.)
pub fn before_core_dump() {
    if !serving() || critical::inside() || !in_own_process() || !alive() || !dumps() {
        return;
    }
    let _ = (0..TRIES).any(|_| {
        let done = put_in_place();
        if !done {
            rustix::thread::sched_yield();
        }
        done
    });
    heap::leave_out_of_dumps();
    twin::leave_out_of_dumps();
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

/// Returns whether that is done, as far as it can be.
fn put_in_place() -> bool {
    super::ground::ground_stack();
    critical::within(|| {
        // (Not after a fork: it may be this thread's.)
        if GATE.enter_after_fork().is_err() {
            return false;
        }
        // Other threads track nothing more.
        GATE.stand_down();
        // SAFETY: the lock is held.
        let books = unsafe { &mut *GLOBAL.0.get() }.as_mut().and_then(|s| s.books.as_mut());
        let done = books.is_none_or(|b| {
            let all = b.everything();
            all.is_none_or(|all| b.materialize(all, false) != Err(FillError::Again))
        });
        GATE.unlock();
        done
    })
}
