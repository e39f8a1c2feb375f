//! Changes to the program's memory that the books must know of, and what is carried out for them.
//!
//! unsafe: copies of bytes that the tracker planned are carried out here, on the program's memory
//! and the pool's.

use crate::gate::{IDLE, OFF};
use crate::pages::CopyBytes;
use crate::prefault::touch;
use crate::space::{Books, Space};
use core::sync::atomic::Ordering;
use uncopy_core::excluded::Why;
use uncopy_core::memory::FillError;
use uncopy_core::plan::{Copies, Pins};
use uncopy_core::tracker::Detached;
use uncopy_decide::Operation;
use uncopy_kernel::critical;
use uncopy_ranges::span::{PAGE, Span};

/// Pages materialized under one hold of the lock when a cap was met.
const EVICT_PAGES: usize = 256;
/// How long who changes the memory map stands aside for faults that wait, and how often at most:
/// they may wait for memory instead.
const GIVE_WAY: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 50_000 };
const GIVE_WAY_TRIES: usize = 20;

impl Space {
    /// Unpins extents.
    #[inline]
    pub fn unpin(&'static self, pins: &mut Pins) {
        if !pins.is_empty() {
            self.with_after_fork(|b| b.unpin(pins));
        }
    }

    /// After a limit was met: materializes least-recently-used views, a few at a time.
    pub fn evict_if_wanted(&'static self) {
        while self.with(|b| b.wants_eviction()) == Some(true) {
            match self.with(|b| b.evict(EVICT_PAGES)) {
                Some(Ok(true)) => {}
                Some(Err(FillError::Again)) => rustix::thread::sched_yield(),
                _ => return,
            }
        }
    }

    /// Gives every unmapped page of `span` its content. Waits for a fork that is under way.
    pub fn materialize(&'static self, span: Span) {
        self.insist(span, |b| {
            b.did(Operation::MadeResident(span));
            b.materialize(span)
        });
    }

    /// Materializes and untracks `span`. Waits for a fork that is under way.
    pub fn make_ordinary(&'static self, span: Span) {
        self.insist(span, |b| {
            b.did(Operation::MadeOrdinary(span));
            b.make_ordinary(span)
        });
    }

    /// Does `f`, which fills pages, until it is done, or refused. Waits for a fork that is under
    /// way.
    fn persist(
        &'static self,
        f: impl Fn(&mut Books) -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        loop {
            match self.with_after_fork(&f) {
                Some(Err(FillError::Again)) => rustix::thread::sched_yield(),
                done => return done.unwrap_or(Ok(())),
            }
        }
    }

    /// Does `f`, which materializes `span`, until it is done; where the kernel takes no such calls
    /// any more, by touching it.
    fn insist(&'static self, span: Span, f: impl Fn(&mut Books) -> Result<(), FillError>) {
        if self.persist(f).is_ok() {
            return;
        }
        // The program has closed our descriptors past us; the monitor has its own.
        self.off(&self.counters().off_descriptors);
        self.with_inner_after_fork(|inner| self.forget_descriptors_if_gone(inner));
        let all = self
            .with_after_fork(|b| {
                self.gate.stand_down();
                b.unmapped_in(span)
            })
            .unwrap_or_default();
        all.into_iter().for_each(touch);
    }

    /// Materializes `span`, if that can be done now: else the faults of who touches it do.
    pub fn materialize_if_possible(&'static self, span: Span) {
        while self.with(|b| b.materialize(span)) == Some(Err(FillError::Again)) {
            rustix::thread::sched_yield();
        }
    }

    /// Which of the pages from `start` on would be resident if nothing were elided, as far as they
    /// are unmapped now. (Also while a fork is under way: the books are only looked at.)
    pub fn resident_views<const PAGES: usize>(&'static self, start: usize) -> [bool; PAGES] {
        let mut hold = self.hold();
        let Some(books) = hold.books() else { return [false; PAGES] };
        core::array::from_fn(|i| books.stands_for_resident(start.saturating_add(i * PAGE)))
    }

    /// The program frees pages that the kernel takes when it needs them (`MADV_FREE`), unless they
    /// are written to before.
    pub fn frees_lazily(&self) {
        self.lazily_freed.store(true, Ordering::Relaxed);
    }

    /// Makes `span` ordinary and leaves it so, as long as it is mapped: the kernel writes there
    /// without waiting for a fault.
    pub fn keep_resident(&'static self, span: Span) {
        if !span.is_empty() {
            // (In this order: what is excluded gets no new views.)
            self.exclude(span, Why::WhileMapped);
            self.make_ordinary(span);
        }
    }

    /// The program frees `span`, in which there may be views.
    pub fn freed(&'static self, span: Span) {
        self.with(|b| b.freed(span.start, span.len()));
    }

    /// Takes `span`, which is about to be unmapped, out of the books.
    pub fn detach(&'static self, span: Span) -> Option<Detached> {
        self.with_after_fork(|b| b.detach(span))
    }

    /// Whether anything of `span` is tracked. Waits for a fork that is under way.
    pub fn tracks(&'static self, span: Span) -> bool {
        self.with_after_fork(|b| b.tracks(span)) == Some(true)
    }

    /// Untracks `span`, whose content nobody needs. Waits for a fork that is under way.
    pub fn untrack(&'static self, span: Span) {
        self.with_after_fork(|b| b.untrack(span));
    }

    /// Ends the views of `span`, whose content nobody needs, and returns what of it is unmapped and
    /// so reads as zeros. Waits for a fork that is under way.
    pub fn emptied(&'static self, span: Span) -> Vec<Span> {
        self.with_after_fork(|b| {
            // (In this order: what nobody wants any more is ordinary after it, and missing all the
            // same.)
            let unmapped = b.unmapped_in(span);
            b.freed(span.start, span.len());
            unmapped
        })
        .unwrap_or_default()
    }

    /// After [`Space::detach`]: the mapping is gone, or not.
    pub fn after_unmapping(&'static self, detached: Detached, gone: bool) {
        if gone {
            self.with_after_fork(|b| b.drop_detached(&detached));
            return;
        }
        if self.persist(|b| b.write_back(&detached)).is_err() {
            self.with_after_fork(|b| b.reattach(&detached));
        }
    }

    /// Makes all memory ordinary. Returns whether there was anything to do.
    pub fn make_all_ordinary(&'static self) -> bool {
        if matches!(self.gate.state(), OFF | IDLE) || critical::inside() {
            return false;
        }
        match self.with_after_fork(|b| b.everything()).flatten() {
            Some(all) => {
                self.make_ordinary(all);
                true
            }
            None => false,
        }
    }

    /// `span` was mapped anew: nothing is known of it, and nothing that was said of it holds.
    pub fn renewed(&'static self, span: Span) {
        self.with_after_fork(|b| b.munmapped(span));
        let _ = self.unmapping(span);
    }

    /// After a call that dropped, unmapped or moved memory: what the kernel reported of it is known
    /// to a child that is forked from here on.
    /// (Does not wait for a fork that is under way: see [`crate::gate::Gate::await_line`].)
    #[inline]
    pub fn await_line(&'static self) {
        if self.gate.frozen() {
            self.own.detect_unknown_fork();
            self.prefault_stack();
            critical::within(|| self.gate.await_line());
        }
    }

    /// A thread that has just unmapped or dropped tracked memory lets faults be answered that wait
    /// for it to stay as it is: the kernel fills no page while a change is under way, and a thread
    /// that makes one after the other would keep all others from what they touch.
    pub fn give_way(&'static self) {
        for _ in 0..GIVE_WAY_TRIES {
            if !self.monitor.faults_wait() {
                return;
            }
            self.own.detect_unknown_fork();
            let _ = rustix::thread::nanosleep(&GIVE_WAY);
        }
    }

    /// Waits until every report of the kernel about changes to the memory map has been handled.
    pub fn settle(&'static self) {
        let changing =
            |b: &mut Books| b.memory.fds.as_ref().and_then(|fds| fds.program.map_changing());
        while self.with_after_fork(changing).flatten() == Some(true) {
            rustix::thread::sched_yield();
        }
    }
}

/// Carries copies out.
///
/// # Safety
/// They come from a plan whose pins are still held, or from a plain copy's own arguments.
pub unsafe fn execute(copies: &Copies, copy_bytes: CopyBytes) {
    for c in copies.iter() {
        // SAFETY: the program asked for these bytes to be copied, or they are pool memory that is
        // pinned; pages that are unmapped by now are served by the monitor.
        unsafe { copy_bytes(c.to as *mut u8, c.from as *const u8, c.len) };
    }
}
