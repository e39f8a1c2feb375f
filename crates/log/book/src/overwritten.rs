//! A file that is overwritten in place, and synced often: its writes stay the kernel's, what a sync
//! has to make durable is read back into the log.

use crate::inode::{Inode, State};
use crate::timing::Timing;

impl Inode {
    /// The service has a lease for a file of `size` bytes that is not appended to only: it is
    /// sync-logged from the start. `timing`: what its syncs took before.
    pub fn granted_to_overwrite(&mut self, size: u64, timing: Timing) {
        self.begin_anew(State::Synced, size);
        self.timing = timing;
        self.timing.must_gain();
    }

    /// The program wrote, and nobody knows where: the next sync is the file's own.
    pub fn wrote_somewhere(&mut self) {
        if self.state != State::Plain {
            self.noted.add_unknown();
            self.loose.add_unknown();
        }
    }

    /// Mode, owner or links are others than they were: the next fsync is the file's own.
    pub fn was_changed(&mut self) {
        self.changed = true;
    }

    /// Somebody else made the file's own sync, and it failed: the kernel says so once, and may have
    /// forgotten what it was about.
    pub fn failed_elsewhere(&mut self) {
        self.sync_failed();
    }

    /// It grew for long, and does so no more: a sync costs something else.
    pub fn stopped_growing(&mut self) {
        self.timing.measures_anew();
    }

    /// How its syncs are to be made gains nothing: see [`Timing::loses`].
    #[must_use]
    pub fn gains_nothing(&self) -> bool {
        self.loses()
    }
}
