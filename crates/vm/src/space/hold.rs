//! The lock, and who may pass it when.
//!
//! unsafe: hands out what the lock guards.

use super::alive::heed_unknown_fork;
use super::descriptors::in_own_process;
use super::ground::ground_stack;
use super::regions::{carry_out, carry_out_releases};
use super::{Books, GATE, GLOBAL, Space, running};
use crate::clock::Lap;
use crate::gate::INHERITED;
use crate::pages::Fds;
use crate::{critical, place, stats};
use uncopy_decide::Charged;

/// Holds the lock.
pub(super) struct Hold;

impl Hold {
    #[inline]
    pub(super) fn take() -> Self {
        heed_unknown_fork();
        ground_stack();
        critical::enter();
        GATE.lock();
        Self
    }

    pub(super) fn space(&mut self) -> Option<&mut Space> {
        // SAFETY: the lock is held as long as `self` lives, and `self` is borrowed.
        unsafe { &mut *GLOBAL.0.get() }.as_mut()
    }

    pub(super) fn books(&mut self) -> Option<&mut Books> {
        self.space()?.books.as_mut()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        GATE.unlock();
        critical::leave();
    }
}

/// Runs `f` on the books. `None`: nothing is tracked, or a fork is under way: the call goes on
/// without us (the fault path serves what it touches).
#[inline]
pub fn with<R>(f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    if !running() || critical::inside() {
        return None;
    }
    heed_unknown_fork();
    if GATE.state() == INHERITED {
        begin_in_child();
    }
    ground_stack();
    place::used_here();
    critical::enter();
    if !GATE.enter() {
        critical::leave();
        return None;
    }
    let mut hold = Hold;
    let result = hold.books().map(|b| done(b, f));
    drop(hold);
    tell_owners(result)
}

/// Runs `f`, and says whether owners of regions are to be told of something.
#[inline]
fn done<R>(b: &mut Books, f: impl FnOnce(&mut Books) -> R) -> (R, bool) {
    let result = f(b);
    (result, b.releases_wait())
}

#[inline]
fn tell_owners<R>(result: Option<(R, bool)>) -> Option<R> {
    let (result, released) = result?;
    if released {
        carry_out_releases();
    }
    Some(result)
}

/// Others see the statistics of a child only from here on: most children execute something, or end.
#[cold]
fn begin_in_child() {
    if in_own_process() && GATE.begin_in_child() {
        stats::publish();
    }
}

/// Runs `f` on the books, after a fork that is under way: for what must not be left out (an input
/// that went into an extent, a pin).
#[inline]
pub fn with_after_fork<R>(f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    tell_owners(with_space_after_fork(|s| s.books.as_mut().map(|b| done(b, f))).flatten())
}

#[inline]
pub(super) fn with_space_after_fork<R>(f: impl FnOnce(&mut Space) -> R) -> Option<R> {
    loop {
        heed_unknown_fork();
        ground_stack();
        critical::enter();
        match GATE.enter_after_fork() {
            Ok(()) => return Hold.space().map(f),
            Err(forks) => {
                critical::leave();
                GATE.await_thaw(forks);
            }
        }
    }
}

/// As [`with_after_fork`], for a thread with a descriptor table of its own, in which our descriptors
/// are `fds`.
pub(crate) fn with_fds<R>(fds: &mut Option<Fds>, f: impl FnOnce(&mut Books) -> R) -> Option<R> {
    with_after_fork(|b| swapped(b, fds, f))
}

/// Runs `f` on the books for the monitor, whose own descriptors `fds` are, and which is told whether the books are frozen.
pub(crate) fn for_monitor<R>(
    fds: &mut Option<Fds>,
    f: impl FnOnce(&mut Books, bool) -> R,
) -> Option<R> {
    let locked = |f: &mut dyn FnMut(&mut Books)| {
        GATE.lock();
        // SAFETY: the lock is held.
        let books = unsafe { &mut *GLOBAL.0.get() }.as_mut().and_then(|s| s.books.as_mut());
        books.map(f);
        GATE.unlock();
    };
    let (mut f, mut result) = (Some(f), None);
    locked(&mut |b| {
        let Some(f) = f.take() else { return };
        result = Some(swapped(b, fds, |b| done(b, |b| f(b, GATE.frozen()))));
    });
    let (result, released) = result?;
    if released {
        carry_out(|| {
            let mut release = None;
            locked(&mut |b| release = if GATE.frozen() { None } else { b.take_release() });
            release
        });
    }
    Some(result)
}

fn swapped<R>(b: &mut Books, fds: &mut Option<Fds>, f: impl FnOnce(&mut Books) -> R) -> R {
    core::mem::swap(&mut b.memory.fds, fds);
    let result = f(b);
    core::mem::swap(&mut b.memory.fds, fds);
    result
}

/// Runs `f`, and returns what that was charged.
#[inline]
pub fn charging(b: &mut Books, f: impl FnOnce(&mut Books)) -> Charged {
    b.charged(); // (by others)
    f(b);
    b.charged()
}

/// Runs `f`, which notes what a call did. If our part of the call is timed, for whose beginning so much was charged, prices
/// learn from it.
#[inline]
pub fn note(b: &mut Books, timed: Option<(Lap, Charged)>, f: impl FnOnce(&mut Books)) {
    let charged = charging(b, f);
    if let Some((lap, before)) = timed {
        b.took(0, before.and(charged), lap.taken(), 0);
    }
}
