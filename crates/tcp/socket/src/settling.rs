//! Values that are sent again and again settle in this process' arena: they are copied there once,
//! and every receiver that has the arena is given them where they lie.
//!
//! A block that has settled is as good as a peer's that is given on: each view of its bytes in this
//! process keeps it, and so does each receiver until it gives them back. When nobody does the block
//! is free. A message's own block comes back with the message.

use crate::attached::Attached;
use crate::blocks::Blocks;
use crate::context::Context;
use crate::flow::Flow;
use crate::lock::lock;
use crate::own::{Own, Settling};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Flow {
    /// From how many bytes on a message that is sent again may settle: its receiver views large
    /// ones, and has our arena. (`usize::MAX`: none may.)
    pub fn settles_from(&self) -> usize {
        self.attached().and_then(|attached| self.settles_for(attached)).unwrap_or(usize::MAX)
    }

    fn settles_for(&self, attached: &Attached) -> Option<usize> {
        let from = attached.mapped.blocks.from;
        let may = from != Blocks::NONE.from && !self.context.gives_nothing.load(Relaxed);
        let goes = may
            && Self::takes_blocks(attached)
            && self.sends_by_ring()
            && self.gives_blocks(attached);
        goes.then_some(from)
    }

    /// Whether so many bytes more may settle.
    pub fn may_settle(&self, bytes: usize) -> bool {
        let own = self.attached().and_then(|attached| attached.mapped.exchange.own());
        own.is_some_and(|own| own.may_settle(bytes))
    }

    /// A block for so many bytes that settle. `None`: there is no room.
    pub fn settling(&self, bytes: usize) -> Option<Settling> {
        let block = self.attached()?.mapped.exchange.settling(bytes)?;
        self.context.keeps_arena(block.own());
        Some(block)
    }
}

impl Context {
    /// This process' arena stays as long as something has settled in it, whoever else has it.
    fn keeps_arena(&self, own: &Arc<Own>) {
        let mut kept = lock(&self.settled);
        if !kept.iter().any(|known| Arc::ptr_eq(known, own)) {
            kept.push(own.clone());
        }
        drop(kept);
        self.has_settled.store(true, Relaxed);
        self.lets_go_of_settled();
    }

    /// Arenas go in which nothing has settled any more. Not with a lock held.
    pub(crate) fn lets_go_of_settled(&self) {
        if !self.has_settled() {
            return;
        }
        let mut kept = lock(&self.settled);
        // (A parent's is none of ours. Nothing of it is dropped with the lock held.)
        kept.iter().for_each(|own| own.forgets_gone());
        let over: Vec<_> = kept.extract_if(.., |own| !own.has_settled()).collect();
        self.has_settled.store(!kept.is_empty(), Relaxed);
        drop(kept);
        drop(over);
    }

    /// Something has settled in an arena of this process'.
    pub(crate) fn has_settled(&self) -> bool {
        self.has_settled.load(Relaxed)
    }

    /// The arena in which these bytes have settled.
    pub(crate) fn settled_with(&self, at: usize, bytes: usize) -> Option<Arc<Own>> {
        if !self.has_settled() {
            return None;
        }
        let inside = |own: &&Arc<Own>| {
            let (base, len) = own.range();
            own.has_settled() && at >= base && at.saturating_add(bytes) <= base + len
        };
        lock(&self.settled).iter().find(inside).cloned()
    }
}
