//! The wires of a service, and which lane serves which. A wire of a lane that does not run is
//! served by one that does: so nothing that arrives waits for a lane that sleeps.

use rustix::fd::OwnedFd;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use uncopy_tcp_wire::Wire;

/// See the module.
pub(crate) struct Wires<W> {
    /// Each is locked by the lane that serves it, all the time; by another while that changes.
    wires: Box<[Mutex<W>]>,
    descriptors: Box<[OwnedFd]>,
}

/// The wires that a lane serves where so many run.
fn served(lane: usize, active: usize, wires: usize) -> impl Iterator<Item = usize> {
    let first = if lane < active { lane } else { wires };
    (first..wires).step_by(active)
}

impl<W: Wire> Wires<W> {
    /// One for each lane.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(wires: Vec<W>) -> io::Result<Self> {
        let descriptors = wires.iter().map(|wire| wire.descriptor().try_clone_to_owned());
        Ok(Self {
            descriptors: descriptors.collect::<io::Result<_>>()?,
            wires: wires.into_iter().map(Mutex::new).collect(),
        })
    }

    /// The wire on which a lane sends.
    pub fn own(&self, lane: usize) -> MutexGuard<'_, W> {
        self.wires[lane].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those on which it receives, but for one that the lane that served it before has not left
    /// yet.
    pub fn served(&self, lane: usize, active: usize) -> impl Iterator<Item = MutexGuard<'_, W>> {
        served(lane, active, self.wires.len()).filter_map(|wire| self.wires[wire].try_lock().ok())
    }
}

impl<W> Wires<W> {
    /// The descriptors that become readable when a frame arrives for this lane.
    pub fn descriptors(&self, lane: usize, active: usize) -> impl Iterator<Item = &OwnedFd> {
        served(lane, active, self.descriptors.len()).map(|wire| &self.descriptors[wire])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wire_is_served_by_one_lane_that_runs() {
        for wires in 1..9 {
            for active in 1..=wires {
                let mut all: Vec<usize> =
                    (0..wires).flat_map(|lane| served(lane, active, wires)).collect();
                all.sort_unstable();
                assert_eq!(all, (0..wires).collect::<Vec<_>>(), "{active} of {wires}");
                assert!((active..wires).all(|lane| served(lane, active, wires).next().is_none()));
                assert!((0..active).all(|lane| served(lane, active, wires).next() == Some(lane)));
            }
        }
    }
}
