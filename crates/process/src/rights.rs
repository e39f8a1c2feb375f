//! Our threads never have more rights than the program's: where it changes its user, groups,
//! namespaces or root, the monitor is made anew by the thread that did; where it gives up
//! capabilities, or what it may do to files, the thread that keeps leases ends.

use crate::process::Process;

impl Process {
    /// The calling thread has changed its users or groups.
    pub fn ids_changed(&'static self) {
        self.tcp.user_changes();
        if self.space.has_other_ids() {
            self.rights_changed();
        }
    }

    /// The calling thread has given up capabilities, or what it may do to files. The monitor has
    /// none of that from the first; the thread that keeps leases ends.
    pub fn rights_lessened(&'static self) {
        if self.space.may_replace_threads() {
            self.files.end_lease_thread();
        }
    }

    /// The calling thread has another user or groups, or moved to other namespaces or another root:
    /// our threads follow.
    pub fn rights_changed(&'static self) {
        if !self.space.may_replace_threads() {
            return;
        }
        self.files.end_lease_thread();
        if !self.space.replace_monitor() {
            self.stand_down();
        }
    }

    /// Runs `call`, which the kernel refuses to a process of several threads, while the process has
    /// none of ours, if the program has one only. `call` reads none of the program's memory.
    pub fn without_our_threads<R>(&'static self, call: impl FnOnce() -> R) -> R {
        if !self.space.may_replace_threads() || !self.space.alone_with_program(self.files.threads())
        {
            return call();
        }
        self.files.end_lease_thread();
        self.space.without_monitor(call).unwrap_or_else(|call| {
            self.stand_down();
            call()
        })
    }
}
