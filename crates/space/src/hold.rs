//! The lock, and who may pass it when.
//!
//! unsafe: hands out what the lock guards.

use crate::gate::INHERITED;
use crate::space::{Books, Inner, Space};
use uncopy_kernel::critical;
use uncopy_kernel::uffd::Fds;

/// Holds the lock.
pub(crate) struct Hold(&'static Space);

impl Hold {
    /// Of a lock that the caller has taken, in a critical section.
    pub(crate) fn of(space: &'static Space) -> Self {
        Self(space)
    }

    pub(crate) fn inner(&mut self) -> Option<&mut Inner> {
        // SAFETY: the lock is held as long as `self` lives, and `self` is borrowed.
        unsafe { self.0.inner.get() }
    }

    pub(crate) fn books(&mut self) -> Option<&mut Books> {
        self.inner()?.books.as_mut()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.gate.unlock();
        critical::leave();
    }
}

impl Space {
    /// Takes the lock, whatever the state.
    #[inline]
    pub(crate) fn hold(&'static self) -> Hold {
        self.own.detect_unknown_fork();
        self.prefault_stack();
        critical::enter();
        self.gate.lock();
        Hold(self)
    }

    /// Runs `f` on the books. `None`: nothing is tracked, or a fork is under way: the call goes on
    /// without us (the fault path serves what it touches).
    #[inline]
    pub fn with<R>(&'static self, f: impl FnOnce(&mut Books) -> R) -> Option<R> {
        // (Seen once here, and once more with the lock.)
        let state = self.gate.state();
        if state < INHERITED || critical::inside() {
            return None;
        }
        self.own.detect_unknown_fork();
        if state == INHERITED {
            self.begin_in_child();
        }
        self.prefault_stack();
        self.monitor.whereabouts.used_here();
        critical::enter();
        if !self.gate.enter() {
            critical::leave();
            return None;
        }
        let mut hold = Hold(self);
        let result = hold.books().map(|b| done(b, f));
        drop(hold);
        self.tell_owners(result)
    }

    #[inline]
    fn tell_owners<R>(&'static self, result: Option<(R, bool)>) -> Option<R> {
        let (result, released) = result?;
        if released {
            self.carry_out_releases();
        }
        Some(result)
    }

    /// Others see the statistics of a child only from here on: most children execute something, or
    /// end.
    #[cold]
    fn begin_in_child(&'static self) {
        if self.own.in_own_process() && self.gate.begin_in_child() {
            self.statistics.publish();
        }
    }

    /// Runs `f` on the books, after a fork that is under way: for what must not be left out (an
    /// input that went into an extent, a pin).
    #[inline]
    pub fn with_after_fork<R>(&'static self, f: impl FnOnce(&mut Books) -> R) -> Option<R> {
        let result = self.with_inner_after_fork(|i| i.books.as_mut().map(|b| done(b, f))).flatten();
        self.tell_owners(result)
    }

    #[inline]
    pub(crate) fn with_inner_after_fork<R>(
        &'static self,
        f: impl FnOnce(&mut Inner) -> R,
    ) -> Option<R> {
        loop {
            self.own.detect_unknown_fork();
            self.prefault_stack();
            critical::enter();
            match self.gate.enter_after_fork() {
                Ok(()) => return Hold(self).inner().map(f),
                Err(forks) => {
                    critical::leave();
                    self.gate.await_thaw(forks);
                }
            }
        }
    }

    /// As [`Space::with_after_fork`], for a thread with a descriptor table of its own, in which our
    /// descriptors are `fds`.
    pub fn with_fds<R>(
        &'static self,
        fds: &mut Option<Fds>,
        f: impl FnOnce(&mut Books) -> R,
    ) -> Option<R> {
        self.with_after_fork(|b| swapped(b, fds, f))
    }
}

/// Runs `f`, and says whether owners of regions are to be told of something.
#[inline]
pub(crate) fn done<R>(b: &mut Books, f: impl FnOnce(&mut Books) -> R) -> (R, bool) {
    let result = f(b);
    (result, b.releases_wait())
}

pub(crate) fn swapped<R>(
    b: &mut Books,
    fds: &mut Option<Fds>,
    f: impl FnOnce(&mut Books) -> R,
) -> R {
    core::mem::swap(&mut b.memory.fds, fds);
    let result = f(b);
    core::mem::swap(&mut b.memory.fds, fds);
    result
}
