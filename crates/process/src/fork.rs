//! The work before and after a fork, in all rooms.

use crate::process::Process;

impl Process {
    /// Before fork; `ours` takes the locks that are held over it and are not the process's, which
    /// have to come last: the holder of the twin allocator's lock may be waiting for the heap's.
    pub fn before_fork(&'static self, ours: impl FnOnce()) {
        self.space.before_fork();
        self.tcp.before_fork();
        self.log.before_fork();
        self.files.before_fork();
        self.twin().before_fork();
        ours();
    }

    /// After fork, in the parent; `ours` as above, first.
    pub fn after_fork_parent(&'static self, ours: impl FnOnce()) {
        ours();
        self.twin().after_fork_parent();
        self.files.after_fork_parent();
        self.log.after_fork_parent();
        self.tcp.after_fork_parent();
        self.space.after_fork_parent();
    }

    /// After fork, in the child.
    pub fn after_fork_child(&'static self, ours: impl FnOnce()) {
        ours();
        self.twin().after_fork_child();
        self.files.disown();
        self.log.after_fork_child();
        self.tcp.after_fork_child();
        self.space.after_fork_child(|| self.lending.after_fork_child());
        self.files.after_fork_child();
        self.family.in_child(self.space.counters());
    }

    /// Freezes the books for a child that is made without fork's handlers; no page of the program
    /// is missing meanwhile.
    pub fn freeze_with_everything_ordinary(&'static self) {
        self.files.give_up_leases();
        self.space.freeze_with_everything_ordinary();
    }

    /// In a child that was made without fork's handlers, after all memory was made ordinary: it
    /// goes on without us.
    pub fn after_bare_fork_child(&'static self) {
        self.files.after_bare_fork_child();
        self.space.after_bare_fork_child();
        self.tcp.after_bare_fork_child();
        self.log.after_bare_fork_child();
    }

    /// In a child that was made behind our back, where no other thread exists: the same, with locks
    /// that threads of its parent held.
    pub fn alone(&'static self, ours: impl FnOnce()) {
        ours();
        self.twin().after_fork_child();
        self.after_bare_fork_child();
    }
}
