//! Doors: the eventfds that sleepers listen at.

use rustix::io::Errno;
use uncopy_kernel::descriptors::{Kept, OwnFd};

/// Knocks at a door of ours, or of another program's.
pub(crate) fn knock_at(door: &Kept) {
    let one = 1u64.to_ne_bytes();
    if rustix::io::write(door, &one) == Err(Errno::AGAIN) {
        // Doors are never read, so that no sleeper takes another's knock. Somebody filled it: empty
        // it, and knock.
        let _ = rustix::io::read(door, &mut [0; 8]);
        let _ = rustix::io::write(door, &one);
    }
}

/// A door of one connection's own: its eventfd, here or on the other side.
#[derive(Debug)]
pub(crate) struct OwnDoor(pub Kept);

impl OwnDoor {
    /// `door` is one. EMFILE: there are as many descriptors of ours as there may be.
    pub fn new(door: impl Into<OwnFd>) -> Result<Self, Errno> {
        Kept::if_room(|| Ok(door)).map(Self)
    }
}
