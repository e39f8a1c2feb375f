//! A process has one arena of blocks; a peer is given it when a receiver there would take them. So
//! are those that the process was given itself, when it sends on what lies there.

use crate::blocks::{Exchange, NUMBER, OWN, Peer, is_dumpable};
use crate::context::Context;
use crate::lock::lock;
use crate::mapped::Mapped;
use crate::own::Own;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uncopy_tcp_service::protocol::GIVERS;

impl Context {
    /// Gives the other side of a region our arena, once. (Where it cannot now, later.)
    pub(crate) fn offers_arena(&self, exchange: &Exchange, which: (u64, usize)) {
        if !exchange.is_to_be_offered() {
            return;
        }
        match (self.known_client(), self.own_arena()) {
            (Some(client), Ok(own))
                if client.arena(which, (NUMBER, OWN), own.memory(), [0; GIVERS]).is_ok() =>
            {
                exchange.was_offered(own);
            }
            _ => exchange.was_not_offered(),
        }
    }

    /// Gives it one that we were given, once.
    pub(crate) fn offers_onward(&self, mapped: &Mapped, peer: &Arc<Peer>) {
        if !is_dumpable() {
            return;
        }
        if let Some(client) = self.known_client()
            && let Some((memory, by)) = peer.introduces()
            && let Some((number, generation)) = mapped.exchange.new_number(peer)
        {
            self.gives_on.store(true, Ordering::Relaxed);
            let which = (mapped.id, mapped.side);
            if client.arena(which, (number, generation), memory, by).is_err() {
                mapped.exchange.no_number((number, generation));
            }
        }
    }

    fn own_arena(&self) -> Result<Arc<Own>, Errno> {
        let mut arena = lock(&self.arena);
        if let Some(own) = arena.upgrade().filter(|own| !own.is_worn()) {
            return Ok(own);
        }
        let own = Arc::new(Own::new(self.settings.may_hold)?);
        *arena = Arc::downgrade(&own);
        Ok(own)
    }
}
