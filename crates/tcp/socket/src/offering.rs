//! A process has one arena of blocks; a peer is given it when a receiver there would take them.

use crate::blocks::{Exchange, NUMBER, Own};
use crate::context::Context;
use crate::lock::lock;
use rustix::io::Errno;
use std::sync::Arc;

impl Context {
    /// Gives the other side of a region our arena, once.
    pub(crate) fn offers_arena(&self, exchange: &Exchange, which: (u64, usize)) {
        if exchange.is_to_be_offered()
            && let (Some(client), Ok(own)) = (self.known_client(), self.own_arena())
            && client.arena(which, NUMBER.into(), own.memory()).is_ok()
        {
            exchange.was_offered(own);
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
