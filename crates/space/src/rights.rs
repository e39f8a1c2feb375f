//! The monitor never has more rights than the program's threads: where the program changes its
//! user, groups, namespaces or root, it is made anew by the thread that did.
//!
//! The monitor could do little with a right that was not taken from it: it gives all up when it
//! begins ([`uncopy_kernel::thread`]). By itself it cannot give up the user and the namespaces of
//! the thread that made it.

use crate::gate::OFF;
use crate::space::Space;
use uncopy_kernel::critical;

impl Space {
    /// Whether our threads are of the caller's process, and it may replace them. (A child of vfork,
    /// or one that shares memory otherwise, gives up its own rights, not its parent's; a thread
    /// that it made would end with it, and nobody would answer its parent's faults.)
    pub fn may_replace_threads(&self) -> bool {
        self.monitor.runs() && !critical::inside() && self.own.in_own_process()
    }

    /// Whether the calling thread has other users or groups than our threads were made with.
    pub fn has_other_ids(&self) -> bool {
        self.monitor.runs() && self.ids.are_others()
    }

    /// Whether the program has no thread but the calling one, where `others` threads of ours run
    /// beside the monitor.
    pub fn alone_with_program(&self, others: usize) -> bool {
        match uncopy_kernel::threads::listed() {
            Some(n) => n == 1 + usize::from(self.monitor.runs()) + others,
            // In a chroot without /proc.
            None => self.monitor.whereabouts.threads.is_one(),
        }
    }

    /// Whether the monitor runs: it is one thread more than the program knows of.
    pub fn has_monitor(&self) -> bool {
        self.monitor.runs()
    }

    /// The page that wakes the monitor, if another one could take its place: where the program has
    /// closed our descriptors past us, only the monitor has them still.
    fn page_to_replace_by(&'static self) -> Option<usize> {
        self.with_after_fork(|b| {
            b.memory.fds.as_ref().filter(|fds| !fds.are_gone()).map(|_| b.memory.wake_page())
        })
        .flatten()
    }

    /// The monitor gets the calling thread's users, groups, namespaces and root. Returns false
    /// where that cannot be.
    pub fn replace_monitor(&'static self) -> bool {
        self.ids.note();
        self.page_to_replace_by().is_some_and(|page| self.monitor.renew(self, page))
    }

    /// Runs `call`, which reads none of the program's memory, while there is no monitor. `Err`: it
    /// was not run, because there cannot be another monitor afterwards.
    ///
    /// # Errors
    /// `call`.
    pub fn without_monitor<R, F: FnOnce() -> R>(&'static self, call: F) -> Result<R, F> {
        let Some(page) = self.page_to_replace_by().filter(|_| self.running()) else {
            return Err(call);
        };
        // No handler of the program runs on this thread while nobody answers it.
        let mask = critical::block_signals();
        self.prefault_stack();
        let (result, served) = self.monitor.without(self, page, call);
        if served {
            self.ids.note();
        } else if let Some(inner) = self.hold().inner() {
            self.off(&self.counters().off_thread);
            self.gate.set_state(OFF);
            self.serve_without_monitor(inner);
        }
        critical::restore_signals(mask);
        Ok(result)
    }
}
