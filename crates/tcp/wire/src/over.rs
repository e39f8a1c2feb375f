//! All queues of a device, by one way or the other.

use crate::steer::Steer;
use crate::tap::Tap;
use crate::xsk::Xsk;
use crate::{Offload, PIECES, Piece, Wire, beside, device, queues};
use rustix::fd::BorrowedFd;
use std::io;
use xdp::nic::XdpZeroCopy;

/// How a device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By AF_XDP ([`queues`]).
    Xdp,
    /// By a TAP beside it ([`beside`]).
    Tap,
}

impl Access {
    /// The better one for the device `name`: AF_XDP where the device can put frames into our memory
    /// by itself. Where it cannot, frames are copied both ways, and by a TAP segments at least stay
    /// joined on the way: 64 KB cost a third, and a small segment as much.
    ///
    /// # Errors
    /// No such device.
    pub fn best(name: &str) -> io::Result<Self> {
        let device = device(name)?;
        // (A kernel before 6.3 does not say.)
        let alone = device
            .query_capabilities()
            .is_ok_and(|device| !matches!(device.zero_copy, XdpZeroCopy::Unavailable));
        Ok(if alone { Self::Xdp } else { Self::Tap })
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Xdp => Self::Tap,
            Self::Tap => Self::Xdp,
        }
    }

    /// The name of the way.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "AF_XDP",
            Self::Tap => "a TAP device",
        }
    }
}

/// A wire of one queue.
pub enum Over {
    /// See [`Access::Xdp`].
    Xdp(Box<Xsk>),
    /// See [`Access::Tap`].
    Tap(Tap),
}

/// Opens all queues of the device `name`, with room for `flows` flows and `listeners` listeners.
///
/// # Errors
/// Those of [`queues::open`], or [`beside::open`].
pub fn open(name: &str, way: Access, flows: u32, listeners: u32) -> io::Result<(Steer, Vec<Over>)> {
    match way {
        Access::Xdp => {
            let (steer, wires) = queues::open(name, flows, listeners)?;
            Ok((steer, wires.into_iter().map(|wire| Over::Xdp(Box::new(wire))).collect()))
        }
        Access::Tap => {
            let (steer, wires) = beside::open(name, flows, listeners)?;
            Ok((steer, wires.into_iter().map(Over::Tap).collect()))
        }
    }
}

/// Does it with either.
macro_rules! with {
    ($over:expr, $wire:ident => $what:expr) => {
        match $over {
            Over::Xdp($wire) => $what,
            Over::Tap($wire) => $what,
        }
    };
}

impl Wire for Over {
    fn frame_max(&self) -> usize {
        with!(self, wire => wire.frame_max())
    }

    fn offers(&self) -> Offload {
        with!(self, wire => wire.offers())
    }

    fn receive(&mut self, max: usize, each: impl FnMut(&[u8], Offload)) -> io::Result<usize> {
        with!(self, wire => wire.receive(max, each))
    }

    fn send(
        &mut self,
        length: usize,
        offload: Offload,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> io::Result<bool> {
        with!(self, wire => wire.send(length, offload, fill))
    }

    fn gathers(&self) -> bool {
        with!(self, wire => wire.gathers())
    }

    fn gather(
        &mut self,
        headers: usize,
        payload: &[Piece<'_>; PIECES],
        offload: Offload,
        fill: impl FnOnce(&mut [u8]),
    ) -> io::Result<bool> {
        with!(self, wire => wire.gather(headers, payload, offload, fill))
    }

    fn flush(&mut self) -> io::Result<()> {
        with!(self, wire => wire.flush())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        with!(self, wire => wire.descriptor())
    }
}
