//! All that a process has of ours.
//!
//! It is zeros at first, so that it is no part of the library's file and costs memory where it is
//! used only.

use crate::calls::Calls;
use uncopy_copies::Copies;
use uncopy_kept::files::Files;
use uncopy_lend::send::Lending;
use uncopy_log_files::Log;
use uncopy_ranges::span::Span;
use uncopy_space::space::Space;
use uncopy_stats::family::Part;
use uncopy_tcp_calls::Tcp;
use uncopy_twin::{Blocks, Twin};

/// See the module. (The space comes first, and in it the statistics: see there.)
#[repr(C)]
#[derive(Debug)]
pub struct Process {
    /// The books of tracked memory.
    pub space: Space,
    /// Files that are kept.
    pub files: Files,
    /// Sending by reference.
    pub lending: Lending,
    /// The state that is remembered of calls.
    pub calls: Calls,
    /// The routine that makes copies that stay.
    pub copies: Copies,
    /// Its part of what a program and all that it started did.
    pub family: Part,
    /// Its TCP connections within this host.
    pub tcp: Tcp,
    /// Its files whose appends may be held.
    pub log: Log,
    blocks: Blocks,
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

impl Process {
    /// Where in it the twin allocator's blocks are.
    pub const BLOCKS: usize = core::mem::offset_of!(Self, blocks);

    /// Nothing is tracked.
    pub const fn new() -> Self {
        Self {
            space: Space::new(),
            files: Files::new(),
            lending: Lending::new(),
            calls: Calls::new(),
            copies: Copies::new(),
            family: Part::new(),
            tcp: Tcp::new(),
            log: Log::new(),
            blocks: Blocks::new(),
        }
    }

    /// The twin allocator.
    #[inline(always)]
    pub fn twin(&'static self) -> Twin {
        Twin::of(&self.blocks, &self.space)
    }

    /// The parts of `span`, a part of the program's address space, that are ours, in order: what
    /// the program says of all its mappings is not meant for them. (Of ours only what is large: a
    /// program that locks its mappings one by one would have all of it filled.)
    pub fn ours_in(&'static self, span: Span) -> Vec<Span> {
        let mut ours = self.twin().ours_in(span);
        let others = [self.space.pool_in(span), self.files.region_in(span)];
        ours.extend(others.into_iter().filter(|s| !s.is_empty()));
        ours.sort_unstable();
        ours
    }

    /// The program wants the descriptor `fd` for itself (dup2, which closes what is there): ours
    /// makes way.
    pub fn make_way(&'static self, fd: i32) {
        self.space.make_way(fd);
        // (A child of vfork has a table of its own, but our memory.)
        if self.space.own.in_own_process() {
            self.lending.make_way(fd);
        }
    }
}
