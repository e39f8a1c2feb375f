//! What the program does to its memory that the books must know of, and what is carried out for it.
//!
//! unsafe: copies of bytes that the tracker planned are carried out here, on the program's memory and the pool's.

use super::descriptors::OURS;
use super::ground::touch;
use super::hold::{Hold, note, with, with_after_fork};
use super::life::{off, stand_down};
use super::{Books, COUNTERS, GATE, wanted};
use crate::clock::{Lap, Sampler};
use crate::critical;
use crate::gate::{IDLE, OFF};
use crate::pages::CopyBytes;
use core::sync::atomic::Ordering;
use uncopy_core::memory::FillError;
use uncopy_core::plan::{Copies, Pins};
use uncopy_core::prices::Charged;
use uncopy_core::span::Span;
use uncopy_core::tracker::Detached;

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

/// Leaves `span` resident from now on, for good; also if nothing is tracked yet.
pub fn exclude(span: Span) {
    if with_after_fork(|b| b.exclude(span)).is_none()
        && let Some(space) = Hold::take().space()
        && !space.excluded.iter().any(|e| e.intersect(span) == span)
    {
        space.excluded.push(span);
    }
}

/// Puts `span` in place and leaves it so, as long as it is mapped.
pub fn keep_resident(span: Span) {
    if !span.is_empty() {
        // (In this order: what is excluded gets no new views.)
        exclude(span);
        materialize(span, true);
    }
}

/// [`keep_resident`] ends for `span`. (Once anything is tracked it ends with the mapping.)
pub fn no_longer_kept(span: Span) {
    if let Some(space) = Hold::take().space() {
        space.excluded.retain(|e| *e != span);
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
            b.drop_detached(detached);
        } else {
            b.reattach(detached);
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
/// pool (which would be filled and locked whole) goes away if no extent is left in it.
pub fn before_lock_all() {
    if wanted() {
        stand_down();
    }
    let mut hold = Hold::take();
    if let Some(books) = hold.books()
        && COUNTERS.extents.load(Ordering::Relaxed) == 0
    {
        books.memory.abandon_pool();
    }
}

/// Waits until every report of the kernel about changes to the memory map has been heeded.
pub fn settle() {
    let changing = |b: &mut Books| b.memory.own().and_then(|fds| fds.program.map_changing());
    while with_after_fork(changing).flatten() == Some(true) {
        rustix::thread::sched_yield();
    }
}
