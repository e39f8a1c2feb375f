//! The numbers of our descriptors in the program's table, for looks without the lock.

use rustix::fd::AsRawFd;
use uncopy_kernel::descriptors::AtomicFd;
use uncopy_kernel::uffd::{Fds, Maker};

/// The two userfaultfds', and that of what makes them.
#[derive(Debug)]
pub(crate) struct OwnFds([AtomicFd; 3]);

impl OwnFds {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicFd::none() }; 3])
    }

    pub(crate) fn get(&self) -> [i32; 3] {
        [0, 1, 2].map(|i| self.0[i].get())
    }

    pub(crate) fn set(&self, fds: Option<&Fds>, maker: &Maker) {
        let device = match maker {
            Maker::Device(fd) => fd.as_raw_fd(),
            Maker::SystemCall => -1,
        };
        let [program, pool] = fds.map_or([-1; 2], Fds::numbers);
        for (to, fd) in self.0.iter().zip([program, pool, device]) {
            to.set(fd);
        }
    }
}
