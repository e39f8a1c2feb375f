//! Our threads never have more rights than the program's: where it changes its user, groups, namespaces or root, the monitor is made
//! anew by the thread that did; where it gives up capabilities, or what it may do to files, the thread that keeps leases ends.
//!
//! What the monitor could still do with a right that it was not taken from is little: it gives all up when it begins
//! ([`crate::thread`]). What it cannot give up by itself are the user and the namespaces of whoever made it.
//!
//! unsafe: asks the kernel for the ids of the calling thread.

use super::descriptors::in_own_process;
use super::hold::{Hold, with_after_fork};
use super::life::{off, stand_down};
use super::{COUNTERS, GATE, running};
use crate::gate::OFF;
use crate::{critical, files, monitor};
use core::sync::atomic::{AtomicU32, Ordering};

/// Real and saved user and group as they were when our threads were made.
static IDS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// Real and saved user and group of the calling thread: what it can come back to does not count as given up.
fn ids() -> [u32; 4] {
    let ask = |call: i64| {
        let mut three = [0u32; 3];
        let [real, effective, saved] = &mut three;
        let at = |id: &mut u32| core::ptr::from_mut(id) as usize;
        // SAFETY: writes three numbers of ours.
        unsafe { critical::syscall4(call as usize, at(real), at(effective), at(saved), 0) };
        [three[0], three[2]]
    };
    let ([user, saved_user], [group, saved_group]) =
        (ask(libc::SYS_getresuid), ask(libc::SYS_getresgid));
    [user, saved_user, group, saved_group]
}

/// Our threads are made by the calling one.
pub(super) fn note_ids() {
    for (word, id) in IDS.iter().zip(ids()) {
        word.store(id, Ordering::Relaxed);
    }
}

/// Whether our threads are of the caller's process, and it may replace them. (A child of vfork, or one that shares memory otherwise,
/// gives up its own rights, not its parent's; a thread that it made would end with it, and nobody would answer its parent's faults.)
fn concern_our_threads() -> bool {
    monitor::runs() && !critical::inside() && in_own_process()
}

/// The calling thread has changed its users or groups.
pub fn ids_changed() {
    if monitor::runs() && IDS.iter().zip(ids()).any(|(word, id)| word.load(Ordering::Relaxed) != id)
    {
        rights_changed();
    }
}

/// The calling thread has given up capabilities, or what it may do to files. The monitor has none of that from the first; the thread
/// that keeps leases ends.
pub fn rights_lessened() {
    if concern_our_threads() {
        files::let_go_of_thread();
    }
}

/// The page that wakes the monitor, if another one could take its place: where the program has closed our descriptors past us, only the
/// monitor has them still.
fn page_to_replace_by() -> Option<usize> {
    with_after_fork(|b| {
        b.memory.fds.as_ref().filter(|fds| !fds.are_gone()).map(|_| b.memory.wake_page())
    })
    .flatten()
}

/// The calling thread has another user or groups, or moved to other namespaces or another root: our threads follow.
pub fn rights_changed() {
    if !concern_our_threads() {
        return;
    }
    files::let_go_of_thread();
    note_ids();
    if !page_to_replace_by().is_some_and(monitor::renew) {
        stand_down();
    }
}

/// Runs `call`, which the kernel refuses to a process of several threads, while the process has none of ours, if the program has
/// one only. `call` reads none of the program's memory.
pub fn without_our_threads<R>(call: impl FnOnce() -> R) -> R {
    if !concern_our_threads() || !monitor::alone_with_program() {
        return call();
    }
    files::let_go_of_thread();
    let Some(page) = page_to_replace_by().filter(|_| running()) else {
        stand_down();
        return call();
    };
    // No handler of the program runs on this thread while nobody answers it.
    let mask = critical::block_signals();
    super::ground::ground_stack();
    let (result, served) = monitor::without(page, call);
    if served {
        note_ids();
    } else if let Some(space) = Hold::take().space() {
        off(&COUNTERS.off_thread);
        GATE.set_state(OFF);
        space.serve_without_monitor();
    }
    critical::restore_signals(mask);
    result
}
