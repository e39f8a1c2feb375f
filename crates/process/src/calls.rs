//! State that is remembered from one call of the program to the next.

use core::sync::atomic::AtomicU64;

/// File systems that are remembered.
pub const FILE_SYSTEMS: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Calls {
    /// Facts of file systems, by their devices' numbers: see `uncopy_stack::on`.
    pub file_systems: [AtomicU64; FILE_SYSTEMS],
}

impl Default for Calls {
    fn default() -> Self {
        Self::new()
    }
}

impl Calls {
    /// None was made.
    pub const fn new() -> Self {
        Self { file_systems: [const { AtomicU64::new(0) }; FILE_SYSTEMS] }
    }
}
