//! How to serve.

use crate::rendezvous;
use std::time::Duration;

/// The limits of one program; where a service serves all users, what all of a user's may have
/// together, and half of what there is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections.
    pub flows: usize,
    /// Bytes of memory that its connections really use.
    pub bytes: u64,
}

impl Default for Limits {
    /// All the ports there are, and a quarter of the machine's memory.
    fn default() -> Self {
        let info = total_memory();
        Self { flows: 65_536, bytes: info / 4 }
    }
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rendezvous' name.
    pub name: String,
    /// Limits.
    pub limits: Limits,
    /// End when the last program has gone, or none came, this long ago.
    pub ends_idle: Option<Duration>,
}

impl Options {
    /// This user's service.
    pub fn of_this_user() -> Self {
        Self::of_user(rustix::process::geteuid().as_raw())
    }

    /// The service of the user of this number.
    pub fn of_user(uid: u32) -> Self {
        Self {
            name: rendezvous::of_user(uid),
            limits: Limits::default(),
            ends_idle: Some(Duration::from_secs(1)),
        }
    }
}

fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}
