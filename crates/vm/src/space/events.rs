//! What the program does to its memory that the books must know of, and what is carried out for it.
//!
//! unsafe: copies of bytes that the tracker planned are carried out here, on the program's memory and the pool's.

use super::alive::heed_unknown_fork;
use super::descriptors::OURS;
use super::ground::touch;
use super::hold::{Hold, note, with, with_after_fork};
use super::life::{off, stand_down};
use super::{Books, COUNTERS, GATE, serving, wanted};
use crate::clock::{Lap, Sampler};
use crate::gate::{IDLE, OFF, STARTING};
use crate::pages::{CopyBytes, pool_in};
use crate::{critical, files, twin};
use core::sync::atomic::Ordering;
use uncopy_core::excluded::Why;
use uncopy_core::memory::FillError;
use uncopy_core::plan::{Copies, Pins};
use uncopy_core::tracker::Detached;
use uncopy_decide::Charged;
use uncopy_ranges::span::{PAGE, Span};

/// Pages materialized under one hold of the lock when a cap was met.
const EVICT_PAGES: usize = 256;

/// Lets go of extents.
#[inline]
pub fn release(pins: &mut Pins) {
    if !pins.is_empty() {
        with_after_fork(|b| b.release(pins));
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

/// After a limit was met: materializes least-recently-used views, a few at a time.
pub fn evict_if_wanted() {
    while with(|b| b.wants_eviction()) == Some(true) {
        match with(|b| b.evict(EVICT_PAGES)) {
            Some(Ok(true)) => {}
            Some(Err(FillError::Again)) => rustix::thread::sched_yield(),
            _ => return,
        }
    }
}

/// Fills every unmapped page of `span`; with `forget`, its registration ends too. Waits for a fork
/// that is under way.
pub fn materialize(span: Span, forget: bool) {
    loop {
        match with_after_fork(|b| b.materialize(span, forget)) {
            Some(Err(FillError::Again)) => rustix::thread::sched_yield(),
            Some(Err(FillError::Refused)) => {
                // The program has closed our descriptors past us; the monitor has its own.
                off(&COUNTERS.off_descriptors);
                let gone = with_after_fork(|b| b.memory.forget_descriptors_if_gone());
                if gone == Some(true) {
                    OURS[..2].iter().for_each(|fd| fd.store(-1, Ordering::Relaxed));
                }
                let all = with_after_fork(|b| {
                    GATE.stand_down();
                    b.unmapped_in(span)
                })
                .unwrap_or_default();
                all.into_iter().for_each(touch);
                return;
            }
            Some(Ok(())) | None => return,
        }
    }
}

/// Fills every unmapped page of `span`, if that can be done now: else the faults of who touches them do.
pub fn put_in_place(span: Span) {
    while with(|b| b.materialize(span, false)) == Some(Err(FillError::Again)) {
        rustix::thread::sched_yield();
    }
}

/// Which of the pages from `start` on would be resident if nothing were elided, as far as they are unmapped now. (Also while a fork is
/// under way: the books are only looked at.)
pub fn resident_views<const PAGES: usize>(start: usize) -> [bool; PAGES] {
    let mut hold = Hold::take();
    let Some(books) = hold.books() else { return [false; PAGES] };
    core::array::from_fn(|i| books.stands_for_resident(start.saturating_add(i * PAGE)))
}

/// Puts `span` in place and leaves it so, as long as it is mapped: the kernel writes there without waiting for a fault.
pub fn keep_resident(span: Span) {
    if !span.is_empty() {
        // (In this order: what is excluded gets no new views.)
        super::exclude(span, Why::WhileMapped);
        materialize(span, true);
    }
}

/// The program frees `span`, in which there may be views.
pub fn freed(span: Span) {
    static FREES: Sampler = Sampler::new();
    let lap = Lap::begin(&FREES).map(|lap| (lap, Charged::default()));
    with(|b| note(b, lap, |b| b.freed(span.start, span.len())));
}

/// Takes `span`, which is about to be unmapped, out of the books.
pub fn detach(span: Span) -> Option<Detached> {
    with_after_fork(|b| b.detach(span))
}

/// Whether anything of `span` is tracked. Waits for a fork that is under way.
pub fn tracks(span: Span) -> bool {
    with_after_fork(|b| b.tracks(span)) == Some(true)
}

/// Ends all tracking of `span`, whose content nobody needs. Waits for a fork that is under way.
pub fn relinquish(span: Span) {
    with_after_fork(|b| b.relinquish(span));
}

/// Ends the views of `span`, whose content nobody needs, and returns what of it is unmapped and so
/// reads as zeros. Waits for a fork that is under way.
pub fn emptied(span: Span) -> Vec<Span> {
    with_after_fork(|b| {
        b.freed(span.start, span.len());
        b.unmapped_in(span)
    })
    .unwrap_or_default()
}

/// After [`detach`]: the mapping is gone, or not.
pub fn after_unmapping(detached: Detached, gone: bool) {
    with_after_fork(|b| {
        if gone {
            b.drop_detached(&detached);
        } else {
            b.reattach(&detached);
        }
    });
}

/// Fills every unmapped page there is. Returns whether there was anything to do.
pub fn materialize_all() -> bool {
    if matches!(GATE.state(), OFF | IDLE) || critical::inside() {
        return false;
    }
    match with_after_fork(|b| b.everything()).flatten() {
        Some(all) => {
            materialize(all, true);
            true
        }
        None => false,
    }
}

/// Before the program locks all its memory, present and future: nothing more is tracked, and the
/// pool (which would be filled and locked whole) goes away, but for what calls under way have of it.
pub fn before_lock_all() {
    if wanted() {
        stand_down();
    }
    files::leave_region();
    with_after_fork(|b| {
        if COUNTERS.extents.load(Ordering::Relaxed) == 0 {
            b.memory.abandon_pool();
        } else {
            b.shed_pool(|memory, page, pages| memory.abandon_slots(page, pages));
        }
    });
}

/// `limit`, which limits the program's address space to less: before it as [`before_lock_all`], if there is a pool already. (Else it
/// will be as small as the limit wants it: no other thread makes one before that can be seen.)
pub fn limiting<R>(limit: impl FnOnce() -> R) -> R {
    files::stop();
    // No handler of the program runs on this thread meanwhile: it might fork, which waits for starts.
    let mask = critical::block_signals();
    let held = loop {
        heed_unknown_fork();
        critical::enter();
        if GATE.begin_start() {
            // (Which gives the lock up.)
            let none = Hold.space().is_some_and(|s| s.books.is_none());
            if !none {
                GATE.cancel_start();
            }
            break none;
        }
        critical::leave();
        if !matches!(GATE.state(), IDLE | STARTING) {
            break false;
        }
        rustix::thread::sched_yield();
    };
    // (While it is held a fork waits for it, so nothing here may wait for a fork.)
    if !held && with_after_fork(|_| ()).is_some() {
        before_lock_all();
    }
    let result = limit();
    if held {
        GATE.cancel_start();
    }
    critical::restore_signals(mask);
    result
}

/// `span` was mapped anew: nothing is known of it, and nothing that was said of it holds.
pub(crate) fn renewed(span: Span) {
    with_after_fork(|b| b.unmapped(span));
    let _ = super::unmapping(span);
}

/// What of `span`, a part of the program's address space, is ours, in order: what the program says of all its mappings is not
/// meant for that. (Of ours only what is large: a program that locks its mappings one by one would have all of it filled.)
pub fn ours_in(span: Span) -> Vec<Span> {
    let mut ours = twin::ours_in(span);
    ours.extend([pool_in(span), files::region_in(span)].into_iter().filter(|s| !s.is_empty()));
    ours.sort_unstable();
    ours
}

/// The kernel refused the program memory. Returns whether it is to be asked again: there were too many mappings, and half of those that
/// registering makes were given back. (So many are never made again.)
pub fn make_room_for_mappings() -> bool {
    if !serving() || critical::inside() {
        return false;
    }
    let half = with_after_fork(|b| b.memory.mappings_used_up().then(|| b.halve_ranges()).flatten());
    half.flatten().map(|span| materialize(span, true)).is_some()
}

/// Waits until every report of the kernel about changes to the memory map has been heeded.
pub fn settle() {
    let changing = |b: &mut Books| b.memory.fds.as_ref().and_then(|fds| fds.program.map_changing());
    while with_after_fork(changing).flatten() == Some(true) {
        rustix::thread::sched_yield();
    }
}
