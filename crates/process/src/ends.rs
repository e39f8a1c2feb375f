//! The program forbids itself what we need, limits its memory, or ends with a core.

use crate::process::Process;
use uncopy_kernel::critical;

impl Process {
    /// Stops tracking anything new, for good: the program enters a sandbox, or locks its memory.
    /// Tracked memory is made ordinary, and our threads end; memory for which that cannot be stays
    /// served.
    pub fn stand_down(&'static self) {
        self.space.off(&self.space.counters().off_sandbox);
        self.lending.close();
        self.files.stop();
        self.space.stand_down();
    }

    /// [`Process::stand_down`] before a call that the kernel refuses to, or makes otherwise in, a
    /// process of several threads, if the second one is ours.
    pub fn stand_down_if_alone(&'static self) {
        let ours = self.space.has_monitor() && self.space.own.in_own_process();
        if ours && self.space.alone_with_program(self.files.threads()) {
            self.stand_down();
        }
    }

    /// Before the program locks all its memory, present and future: nothing more is tracked, and
    /// the pool goes away, but for what calls under way have of it.
    pub fn before_lock_all(&'static self) {
        if self.space.wanted() {
            self.stand_down();
        }
        self.files.leave_region();
        self.space.shed_pool();
    }

    /// Before this process executes another program: nobody views what it views of others' memory
    /// any more, and they have it again. (A child of vfork has its parent's views.)
    pub fn before_exec(&'static self) {
        self.tcp.before_exec();
        if self.tcp.is_own() && self.space.has_regions() {
            self.space.recall(None);
        }
    }

    /// `limit`, which limits the program's address space to less: before it as
    /// [`Process::before_lock_all`], if there is a pool already.
    /// (Else it will be as small as the limit wants it: no other thread makes one before that can
    /// be seen.)
    pub fn limiting<R>(&'static self, limit: impl FnOnce() -> R) -> R {
        self.files.stop();
        // No handler of the program runs on this thread meanwhile: it might fork, which waits for
        // starts.
        let mask = critical::block_signals();
        let claimed = self.space.claim_start();
        if !claimed && self.space.with_after_fork(|_| ()).is_some() {
            self.before_lock_all();
        }
        let result = limit();
        if claimed {
            self.space.cancel_start();
        }
        critical::restore_signals(mask);
        result
    }

    /// The kernel is about to end this process by a signal that dumps core.
    pub fn before_core_dump(&'static self) {
        if self.space.before_core_dump() {
            uncopy_heap::leave_out_of_dumps();
            self.twin().leave_out_of_dumps();
        }
    }
}
