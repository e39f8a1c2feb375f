//! The carrier of the connections of uncopy's side.

use uncopy_measure::Failure;

use super::choices::Wire;
use super::over::network::Network;
use super::wired::Wired;

/// See the module.
pub enum Carried {
    /// Rings in shared memory, of this service.
    Shared(Wired),
    /// A wire between two network namespaces.
    Over(Network),
}

impl Carried {
    /// The service or the network that `wire` needs.
    pub fn new(wire: Wire) -> Result<Self, Failure> {
        Ok(match wire {
            Wire::Shared => Self::Shared(Wired::new()?),
            Wire::Xdp | Wire::Tap => Self::Over(Network::new(wire, 1)?),
        })
    }

    /// Processor time of what is no part of the two programs, but works for uncopy's side alone.
    pub fn cpu_ns(&self) -> Result<u64, Failure> {
        match self {
            Self::Shared(wired) => wired.cpu_ns(),
            // (Lanes run in the programs.)
            Self::Over(_) => Ok(0),
        }
    }
}
