//! What is remembered of the program's calls from one to the next.

use core::sync::atomic::AtomicU64;
use uncopy_kernel::clock::Sampler;

/// File systems that are remembered.
pub const FILE_SYSTEMS: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Calls {
    /// Chooses the copies that are timed.
    pub copies: Sampler,
    /// The same of inputs.
    pub inputs: Sampler,
    /// The same of outputs.
    pub outputs: Sampler,
    /// What is known of file systems, by their devices' numbers: see `uncopy_stack::on`.
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
        Self {
            copies: Sampler::new(),
            inputs: Sampler::new(),
            outputs: Sampler::new(),
            file_systems: [const { AtomicU64::new(0) }; FILE_SYSTEMS],
        }
    }
}
