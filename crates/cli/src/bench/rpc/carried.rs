//! What carries the connections of uncopy's side.

use super::args::Wire;
use super::over::network::Network;
use super::wired::Wired;
use crate::Outcome;

/// See the module.
pub enum Carried {
    /// Rings in shared memory, of this service.
    Shared(Wired),
    /// A wire between two network namespaces.
    Over(Network),
}

impl Carried {
    /// What `wire` needs.
    pub fn new(wire: Wire) -> Outcome<Self> {
        Ok(match wire {
            Wire::Shared => Self::Shared(Wired::new()?),
            Wire::Xdp | Wire::Tap => Self::Over(Network::new(wire, 1)?),
        })
    }
}
