//! How much waits: SIOCINQ and SIOCOUTQ.

use crate::attached::Attached;
use crate::flow::Flow;
use crate::kernel;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::sync::atomic::Ordering::Acquire;
use uncopy_tcp_shared::phase::At;
use uncopy_tcp_shared::ring::RING;

impl Attached {
    /// Bytes in the ring that we read from.
    pub fn unread(&self) -> u32 {
        let inward = self.inward();
        let tail = inward.produced.tail.load(Acquire);
        // The other side may have written anything.
        tail.wrapping_sub(self.head()).min(RING)
    }
}

impl Flow {
    /// The bytes that SIOCINQ (FIONREAD) and SIOCOUTQ leave out: those that the inward ring holds
    /// for us, and those that were withdrawn from the outward one and that Linux has not taken yet.
    /// (Bytes in the outward ring have arrived, as those in the other end's queue have.)
    pub fn queued(&self) -> (u32, u32) {
        let Some(attached) = self.attached() else { return (0, 0) };
        let unread = match attached.inward().switch.phase.at() {
            // The bytes that lie in the ring then are the sender's.
            Ok(At::Linux | At::Returned) | Err(_) => 0,
            Ok(_) if self.is_counted_to_mark(attached) => 0,
            Ok(_) => attached.unread(),
        };
        let own = attached.mapped.ends.sending(attached.slot, self.context.process());
        let unsent = own.withdrawn.map_or(0, |done| own.writer.used().saturating_sub(done));
        (unread, unsent)
    }

    /// The ring's bytes come behind an urgent byte of Linux', up to which alone SIOCINQ counts,
    /// also where that was received (MSG_OOB).
    fn is_counted_to_mark(&self, attached: &Attached) -> bool {
        let own = attached.mapped.ends.receiving(attached.slot, self.context.process());
        let is_behind = match attached.inward().switch.phase.at() {
            Ok(At::Offered) => own.before_mark > 0 || kernel::has_mark(self.fd()),
            _ => own.stands_at_mark && kernel::is_at_mark(self.fd()),
        };
        is_behind && sockopt::socket_oobinline(self.fd()) != Ok(true)
    }

    /// As ioctl(SIOCINQ), also known as FIONREAD: bytes that can be received now.
    pub fn unread(&self) -> Result<usize, Errno> {
        Ok(kernel::unread(self.fd())? + self.queued().0 as usize)
    }

    /// As ioctl(SIOCOUTQ): bytes that were sent and are not in the other end's queue.
    pub fn unsent(&self) -> Result<usize, Errno> {
        Ok(kernel::unsent(self.fd())? + self.queued().1 as usize)
    }
}
