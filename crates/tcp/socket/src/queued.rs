//! How much waits: SIOCINQ and SIOCOUTQ.

use crate::flow::{Attached, Flow};
use crate::kernel;
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::RING;

impl Attached {
    /// Bytes in the ring that we read from.
    pub fn unread(&self) -> usize {
        let inward = self.inward();
        let tail = inward.produced.tail.load(Acquire);
        // What the other side wrote may be anything.
        tail.wrapping_sub(inward.consumed.head.load(Relaxed)).min(RING) as usize
    }
}

impl Flow {
    /// As ioctl(SIOCINQ), also known as FIONREAD: bytes that can be received now.
    pub fn unread(&self) -> Result<usize, Errno> {
        let by_linux = kernel::unread(self.fd())?;
        let Some(attached) = self.attached() else { return Ok(by_linux) };
        Ok(match attached.inward().switch.phase.at() {
            // What lies in the ring then is the sender's.
            Ok(At::Linux | At::Returned) | Err(_) => by_linux,
            Ok(At::Offered | At::Ring | At::Leaving) => by_linux + attached.unread(),
        })
    }

    /// As ioctl(SIOCOUTQ): bytes that were sent and are not in the other end's queue. What is in the ring is.
    pub fn unsent(&self) -> Result<usize, Errno> {
        let by_linux = kernel::unsent(self.fd())?;
        let Some(attached) = self.attached() else { return Ok(by_linux) };
        let own = attached.mapped.ends.sending(attached.slot, self.context.process());
        Ok(by_linux
            + own.withdrawn.map_or(0, |done| own.writer.used().saturating_sub(done) as usize))
    }
}
