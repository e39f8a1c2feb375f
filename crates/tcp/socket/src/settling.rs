//! Values that are sent again and again settle in this process' arena: they are copied there once,
//! and every receiver that has the arena is given them where they lie.
//!
//! A block that has settled is as good as a peer's that is given on: whoever views its bytes in
//! this process keeps it, and so does each receiver until it gives them back. When nobody does the
//! block is free. A message's own block comes back with the message.
//!
//! unsafe: a block is filled from memory that the caller names.

use crate::attached::Attached;
use crate::blocks::{Blocks, Own};
use crate::context::Context;
use crate::flow::Flow;
use crate::lock::lock;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use uncopy_tcp_blocks::pages::Block;
use uncopy_tcp_shared::copy::Fault;
use uncopy_tcp_shared::layout::PAGE;
use uncopy_tcp_shared::ring::TAKES_BLOCKS;

/// A block that is to be filled. It is free again when this is dropped, unless it has
/// [settled](Self::is_settled).
#[derive(Debug)]
pub struct Settling {
    own: Arc<Own>,
    block: Block,
    bytes: usize,
    settled: Cell<bool>,
}

impl Settling {
    pub(crate) fn new(own: Arc<Own>, bytes: usize) -> Option<Self> {
        let block = own.settle(bytes)?;
        Some(Self { own, block, bytes, settled: Cell::new(false) })
    }

    /// The arena that it lies in.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// Where its bytes lie, and how many they are.
    pub fn range(&self) -> (usize, usize) {
        (self.own.range().0 + self.block.page as usize * PAGE, self.bytes)
    }

    /// Copies its bytes into it.
    ///
    /// # Errors
    /// They are not there, or there is no memory for the block.
    ///
    /// # Safety
    /// `from` is the program's, or an extent: nothing of ours.
    pub unsafe fn fill(&self, from: *const u8) -> Result<(), Fault> {
        let at = (self.block.page as usize * PAGE) as u32;
        // SAFETY: the caller's promise; nobody has been given the block.
        unsafe { self.own.memory.put(at, from, self.bytes as u32) }
    }

    /// Its bytes are viewed: it comes back by [`Own::released`].
    pub fn is_settled(self) {
        self.settled.set(true);
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        if !self.settled.get() {
            self.own.released(self.range().0);
        }
    }
}

impl Flow {
    /// From how many bytes on a message that is sent again may settle: its receiver views large
    /// ones, and has our arena. (`usize::MAX`: none may.)
    pub fn settles_from(&self) -> usize {
        self.attached().and_then(|attached| self.settles_for(attached)).unwrap_or(usize::MAX)
    }

    fn settles_for(&self, attached: &Attached) -> Option<usize> {
        let Blocks { from, always } = attached.mapped.blocks;
        let wanted = always || attached.out().consumed.flags.load(Relaxed) & TAKES_BLOCKS != 0;
        let may = from != Blocks::NONE.from && !self.context.gives_nothing.load(Relaxed);
        (may && wanted && self.gives_blocks(attached)).then_some(from)
    }

    /// A block for so many bytes that settle. `None`: there is no room.
    pub fn settling(&self, bytes: usize) -> Option<Settling> {
        let block = self.attached()?.mapped.exchange.settling(bytes)?;
        self.context.keeps_arena(&block.own);
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
        // (What a parent has is none of ours. Nothing of it is dropped with the lock held.)
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
