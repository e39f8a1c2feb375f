//! Fork: the books do not change meanwhile, and the child has its own userfaultfds, its own monitor and the same views; or, where it cannot
//! have these, everything in place.
//!
//! unsafe: reaches the tracker where only this thread can, and writes viewed bytes to pages of a child that nobody else serves.

use super::alive::alive_here;
use super::descriptors::{descriptor_floor, publish_descriptors};
use super::ground::ground_stack;
use super::hold::Hold;
use super::life::{STARTS, off, off_because};
use super::reach::{poke, populate, present};
use super::regions::{self, carry_out_releases, recall};
use super::{COUNTERS, GATE, GLOBAL, PAUSES, Space, materialize_all};
use crate::gate::{IDLE, INHERITED, OFF, SERVING};
use crate::pages::{CopyBytes, Fds};
use crate::uffd::Event;
use crate::{critical, files, freeze::LIST, lend, monitor, stats};
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use rustix::mm::Advice;
use uncopy_decide::Regime;
use uncopy_ranges::span::PAGE;

/// Before fork: the books do not change until [`after_fork_parent`].
///
/// No handler of the program runs on this thread until then: the child's would read zeros where
/// its views are not served yet.
pub fn before_fork() {
    // (A program in a sandbox that has its reasons to forbid these calls has been left alone.)
    if GATE.state() != OFF {
        critical::block_for_fork();
        freeze_books();
    }
}

/// The books do not change until [`thaw`].
pub fn freeze_books() {
    loop {
        ground_stack();
        critical::within(|| GATE.freeze(|| LIST.clear(), rustix::thread::sched_yield));
        // Views of others' memory do not come along: its owner goes on using it.
        let abroad =
            regions::any() && Hold::take().books().is_some_and(|books| books.views_abroad());
        if !abroad {
            return;
        }
        thaw();
        recall(None);
    }
}

/// After fork, in the parent.
pub fn after_fork_parent() {
    if critical::forking() {
        thaw();
        critical::unblock_after_fork();
    }
}

/// As [`freeze_books`], and no page of the program is missing meanwhile.
pub fn freeze_with_everything_in_place() {
    files::let_go();
    loop {
        while materialize_all() {}
        freeze_books();
        // Another thread may have tracked something in between.
        if Hold::take().books().is_none_or(|b| b.everything().is_none()) {
            return;
        }
        thaw();
    }
}

/// Ends [`freeze_books`]: catches up with what happened meanwhile.
pub fn thaw() {
    ground_stack();
    critical::within(|| {
        GATE.thaw(|| {
            // SAFETY: the lock is held.
            let space = unsafe { &mut *GLOBAL.0.get() }.as_mut();
            if let Some(space) = space {
                if let Some(books) = &mut space.books {
                    for event in LIST.lines() {
                        match event {
                            Event::Fault(addr) => books.filled_meanwhile(addr),
                            other => monitor::report(books, other),
                        }
                    }
                }
                space.take_over_exclusions();
            }
            LIST.clear();
        });
    });
    if regions::any() {
        carry_out_releases();
    }
}

/// A child has no regions: what is in use of its parent's, by a call that a handler of the program's forked in, ends without a word.
fn forget_regions() {
    if regions::any()
        && let Some(books) = Hold::take().books()
    {
        books.forget_regions();
    }
}

/// After fork, in the child: its own userfaultfds, its own monitor, the same views.
pub fn after_fork_child() {
    if critical::forking() {
        renew_child();
        critical::unblock_after_fork();
    } else {
        // (Nothing was tracked; but another thread's fork may have frozen the books.)
        GATE.reset();
        alive_here();
    }
}

/// In a child that was made without fork's handlers, after everything was put in place: it goes on
/// without us.
pub fn after_bare_fork_child() {
    stats::keep_private();
    monitor::is_gone();
    files::after_bare_fork_child();
    GATE.reset();
    forget_regions();
    GATE.set_state(OFF);
}

fn renew_child() {
    stats::keep_private();
    let state = GATE.reset();
    STARTS.store(0, Ordering::SeqCst);
    monitor::is_gone();
    COUNTERS.reset();
    lend::after_fork_child();
    alive_here();
    forget_regions();
    if state == OFF {
        return;
    }
    GATE.set_state(OFF);
    let mut hold = Hold::take();
    let Some(space) = hold.space() else { return };
    if space.books.as_ref().is_none_or(|b| b.everything().is_none()) {
        LIST.clear();
        space.take_over_exclusions();
        // The inherited ones act on the parent's memory. Its own are made when it has something to elide.
        space.close_userfaultfds();
        if state != SERVING {
            // (While no call site elides, nothing would ever begin anew.)
            PAUSES.regime.store(Regime::Accounts as u32, Ordering::Relaxed);
            GATE.set_state(IDLE);
        }
        return;
    }
    let renewed = space.renew();
    space.take_over_exclusions();
    if !renewed {
        return;
    }
    drop(hold);
    if monitor::spawn_in_child() {
        GATE.set_state(if state == SERVING { SERVING } else { INHERITED });
    } else if let Some(space) = Hold::take().space() {
        // Nobody would answer a fault: everything in place, now.
        off(&COUNTERS.off_thread);
        space.serve_without_monitor();
    }
}

impl Space {
    /// Where nothing is tracked and nobody answers: closing them ends all registrations, also those that could not be
    /// ended one by one and that of the pool. A touch of such memory would wait for ever.
    pub(super) fn close_userfaultfds(&mut self) {
        // (A thread that is being made has them still to take.)
        if monitor::runs() || STARTS.load(Ordering::SeqCst) > 0 {
            return;
        }
        publish_descriptors(None, &self.maker);
        let fds = match &mut self.books {
            Some(books) => &mut books.memory.fds,
            None => &mut self.fds,
        };
        if fds.as_ref().is_some_and(Fds::are_gone) {
            // The numbers are the program's.
            core::mem::forget(fds.take());
        }
        *fds = None;
    }

    /// Userfaultfds of this process's own, in place of others' or of none. Returns whether there are any, and the pool is
    /// registered.
    pub(super) fn make_userfaultfds(&mut self) -> bool {
        let made = Fds::make(&self.maker).map(|mut f| {
            let _ = f.lift(descriptor_floor());
            f
        });
        if let Err(why) = made {
            off_because(why);
        }
        let fds = made.ok();
        publish_descriptors(fds.as_ref(), &self.maker);
        let Some(books) = &mut self.books else {
            self.fds = fds;
            return self.fds.is_some();
        };
        books.memory.fds = fds;
        books.memory.fds.is_some() && books.memory.register_pool().is_ok()
    }

    /// In the child: userfaultfds for its own memory map. Returns whether eliding can go on.
    fn renew(&mut self) -> bool {
        // The inherited ones would act on the parent's memory: never used here, only closed.
        let made = self.make_userfaultfds();
        let Some(books) = &mut self.books else { return made };
        let ready = made && books.register_all_again() || {
            off(&COUNTERS.off_resources);
            false
        };
        if !ready {
            self.serve_without_monitor();
            return false;
        }
        for (line, event) in LIST.lines().enumerate() {
            match event {
                // Filled, then dropped: it is missing here because it has to be.
                Event::Fault(addr) if LIST.gone_after(line, addr) => {
                    books.filled_meanwhile(addr);
                }
                Event::Fault(addr) => books.refill(addr),
                other => monitor::report(books, other),
            }
        }
        LIST.clear();
        true
    }

    /// In a child that cannot have a userfaultfd or a thread: missing pages are ordinary there, so the
    /// views are simply written out.
    pub(super) fn serve_without_monitor(&mut self) {
        let Some(books) = &mut self.books else { return };
        // Closing them ends all registrations: what we touch now must not wait for anybody. (Not ours
        // any more first: our own `close` spares ours.)
        publish_descriptors(None, &self.maker);
        books.memory.fds = None;
        let lines = LIST.lines().count();
        for (i, event) in LIST.lines().enumerate() {
            match event {
                // First the line, then the deed: of the last one fork may have seen the line only.
                Event::Fault(addr)
                    if i + 1 < lines || LIST.gone_after(i, addr) || present(addr) =>
                {
                    books.filled_meanwhile(addr);
                }
                Event::Fault(_) => {}
                other => monitor::report(books, other),
            }
        }
        LIST.clear();
        let copy_bytes = self.settings.copy_bytes;
        books.give_up(|c| write_out(c, copy_bytes));
    }
}

/// Writes viewed bytes to their (missing, unregistered) pages in a child. Through the kernel: a
/// mapping that went away meanwhile answers EFAULT there.
fn write_out(c: uncopy_core::plan::Copy, copy_bytes: CopyBytes) {
    let mut done = 0;
    while done < c.len {
        let to = c.to + done;
        let in_page = (PAGE - to % PAGE).min(c.len - done);
        done += match poke(to, c.from + done, c.len - done) {
            Ok(n) if n > 0 => n,
            Ok(_) | Err(Errno::FAULT) => in_page,
            // A sandbox forbids that, or there is no memory: then by hand, where there is a page.
            Err(_) => {
                if populate(to, Advice::LinuxPopulateWrite).is_ok() {
                    // SAFETY: the page was there a moment ago, and this process has no other thread;
                    // from the pool.
                    unsafe { copy_bytes(to as *mut u8, (c.from + done) as *const u8, in_page) };
                }
                in_page
            }
        };
    }
}
