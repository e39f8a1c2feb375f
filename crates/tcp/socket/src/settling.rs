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

/// Of large parts of kept files so many go by the ring to a receiver that takes no blocks, of which
/// none was given where it lies: the receiver asks for the arena only once it has received much by
/// the ring, and a file may find no room there. The others go by Linux, which sends a file's pages
/// as they are;
const TRIED: u32 = 8;
/// and one in so many is tried.
const PROBE: u32 = 64;

impl Flow {
    /// From how many bytes on a message that is sent again may settle: its receiver has our arena,
    /// whether it views what lies there or copies it. (`usize::MAX`: none may.)
    pub fn settles_from(&self) -> usize {
        self.attached().and_then(|attached| self.settles_for(attached)).unwrap_or(usize::MAX)
    }

    fn settles_for(&self, attached: &Attached) -> Option<usize> {
        let from = self.blocks_from(attached)?;
        (self.sends_by_ring() && self.gives_what_settled(attached)).then_some(from)
    }

    fn gives_what_settled(&self, attached: &Attached) -> bool {
        Self::is_read_in_arenas(attached) && self.gives_blocks(attached)
    }

    /// From how many bytes on a message may go in blocks.
    fn blocks_from(&self, attached: &Attached) -> Option<usize> {
        let from = attached.mapped.blocks.from;
        let may = from != Blocks::NONE.from && !self.context.gives_nothing.load(Relaxed);
        may.then_some(from)
    }

    /// From how many bytes on a part of a kept file may go by the ring, from where it is kept.
    /// (`usize::MAX`: none may.)
    pub fn files_from(&self) -> usize {
        self.attached().and_then(|attached| self.blocks_from(attached)).unwrap_or(usize::MAX)
    }

    /// Whether one that is kept goes so now: the receiver takes blocks, or it is tried.
    pub fn takes_file(&self) -> bool {
        self.attached().is_some_and(|attached| {
            (self.takes_files_in_blocks(attached) || self.is_to_be_tried())
                && (self.sends_by_ring() || self.may_go_by_ring(attached))
        })
    }

    /// (The arena is offered also where the receiver would only read there.)
    fn takes_files_in_blocks(&self, attached: &Attached) -> bool {
        self.gives_what_settled(attached) && Self::takes_blocks(attached)
    }

    fn is_to_be_tried(&self) -> bool {
        self.files.load(Relaxed) < TRIED || self.files.fetch_add(1, Relaxed).is_multiple_of(PROBE)
    }

    /// A part of a file goes so.
    pub fn sends_file(&self) {
        if self.attached().is_some_and(|attached| self.takes_files_in_blocks(attached)) {
            self.files.store(0, Relaxed);
        } else if self.files.load(Relaxed) < TRIED {
            self.files.fetch_add(1, Relaxed);
        }
    }

    /// Some of a file was given where it lies: the next ones go so, too.
    pub fn gives_file(&self) {
        self.files.store(0, Relaxed);
    }

    /// There was no block for what is to settle. Where that lies which has settled, and which
    /// nobody was given for long: it is to be called back. `None`: all was given lately, or the
    /// receiver takes no blocks. (It would save one copy of each message, and costs two.)
    pub fn unused(&self) -> Option<(usize, usize)> {
        let attached = self.attached().filter(|attached| Self::takes_blocks(attached))?;
        attached.mapped.exchange.own()?.unused()
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
