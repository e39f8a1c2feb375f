//! How late it is.

/// How late it is, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Processor time that all threads of this process have used.
    pub cpu: u64,
    /// Time that has passed anywhere.
    pub wall: u64,
}
