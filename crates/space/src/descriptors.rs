//! Our descriptors: where they live, that the program's `close` spares them, and that they make way
//! where it wants their numbers.

use crate::space::{Inner, Space};
use core::sync::atomic::Ordering;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use uncopy_kernel::descriptors::{are_few, duplicate, floor};
use uncopy_kernel::uffd::{Fds, Maker, Refusal};

/// Userfaultfds for a program that can spare their numbers.
pub(crate) fn made_by(maker: &Maker) -> Result<Fds, Refusal> {
    if are_few() {
        return Err(Refusal::Other(Errno::MFILE));
    }
    let mut fds = Fds::make(maker)?;
    let _ = fds.lift(floor());
    Ok(fds)
}

impl Inner {
    /// The userfaultfds, as the program's table has them.
    pub(crate) fn fds(&self) -> &Option<Fds> {
        self.books.as_ref().map_or(&self.fds, |b| &b.memory.fds)
    }

    /// The same.
    pub(crate) fn fds_mut(&mut self) -> &mut Option<Fds> {
        match &mut self.books {
            Some(b) => &mut b.memory.fds,
            None => &mut self.fds,
        }
    }
}

impl Space {
    /// Our descriptors: `close` and its kin leave them alone.
    pub fn descriptors(&self) -> [i32; 3] {
        self.ours.get()
    }

    /// Those of the two userfaultfds, if the program's table has them. Also while a fork is under
    /// way.
    pub(crate) fn program_descriptors(&self) -> Option<[i32; 2]> {
        self.gate.lock();
        let [program, pool, _] = self.descriptors();
        self.gate.unlock();
        (program >= 0 && pool >= 0).then_some([program, pool])
    }

    pub(crate) fn publish_descriptors(&self, fds: Option<&Fds>, maker: &Maker) {
        self.own.note_pid();
        self.ours.set(fds, maker);
    }

    /// Forgets the userfaultfds that `inner` has if their numbers have become the program's past
    /// us: those are not to be closed, or used. Returns whether they have.
    pub(crate) fn forget_descriptors_if_gone(&self, inner: &mut Inner) -> bool {
        let fds = inner.fds_mut();
        let gone = fds.as_ref().is_some_and(Fds::are_gone);
        if gone {
            core::mem::forget(fds.take());
            self.ours.set(None, &inner.maker);
        }
        gone
    }

    /// Where nothing is tracked and nobody answers: closing them ends all registrations, also those
    /// that could not be ended one by one and that of the pool. A touch of such memory would wait
    /// for ever.
    pub(crate) fn close_userfaultfds(&self, inner: &mut Inner) {
        // (A thread that is being made has them still to take.)
        if self.monitor.runs() || self.starts.load(Ordering::SeqCst) > 0 {
            return;
        }
        self.forget_descriptors_if_gone(inner);
        self.publish_descriptors(None, &inner.maker);
        *inner.fds_mut() = None;
    }

    /// Userfaultfds of this process's own, in place of others' or of none. Returns whether there
    /// are any, and the pool is registered.
    pub(crate) fn make_userfaultfds(&self, inner: &mut Inner) -> bool {
        let made = made_by(&inner.maker);
        if let Err(why) = made {
            self.off_because(why);
        }
        let fds = made.ok();
        self.publish_descriptors(fds.as_ref(), &inner.maker);
        *inner.fds_mut() = fds;
        match &inner.books {
            None => inner.fds.is_some(),
            Some(books) => books.memory.fds.is_some() && books.memory.register_pool().is_ok(),
        }
    }

    /// The program wants the number `fd` for itself (dup2): ours moves elsewhere.
    pub fn make_way(&'static self, fd: i32) {
        // A child of vfork has a table of its own, but our memory: there they may go.
        if !self.descriptors().contains(&fd) || !self.own.in_own_process() {
            return;
        }
        let mut hold = self.hold();
        let Some(s) = hold.inner() else { return };
        if let Maker::Device(d) = &mut s.maker
            && d.as_raw_fd() == fd
        {
            match duplicate(&*d, fd + 1).or_else(|_| duplicate(&*d, 0)) {
                Ok(other) => *d = other,
                // The number is the program's: not ours to close, or to use.
                Err(_) => {
                    core::mem::forget(core::mem::replace(&mut s.maker, Maker::SystemCall));
                }
            }
        }
        let fds = s.fds_mut();
        if let Some(f) = fds
            && f.numbers().contains(&fd)
            && f.lift(fd + 1).or_else(|_| f.lift(0)).is_err()
        {
            // The monitor has its own: what is tracked is served.
            core::mem::forget(fds.take());
            self.off(&self.counters().off_descriptors);
            self.gate.stand_down();
        }
        self.publish_descriptors(s.fds().as_ref(), &s.maker);
    }
}
