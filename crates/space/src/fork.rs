//! Fork: the books do not change meanwhile, and the child has its own userfaultfds, its own monitor
//! and the same views; or, where it cannot have these, every view written out.
//!
//! unsafe: reaches the tracker where only this thread can, and writes viewed bytes to pages of a
//! child that nobody else serves.

use crate::freeze::Noted;
use crate::gate::{IDLE, INHERITED, OFF, SERVING};
use crate::pages::CopyBytes;
use crate::space::{Inner, Space};
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use rustix::mm::Advice;
use uncopy_core::plan::Copy;
use uncopy_kernel::critical;
use uncopy_kernel::remote_mem::{poke, populate, present};
use uncopy_kernel::uffd::Event;
use uncopy_ranges::span::PAGE;

impl Space {
    /// Before fork: the books do not change until [`Space::after_fork_parent`].
    ///
    /// No handler of the program runs on this thread until then: the child's would read zeros where
    /// its views are not served yet.
    pub fn before_fork(&'static self) {
        // (A program in a sandbox that has its reasons to forbid these calls has been left alone.)
        if self.gate.state() != OFF {
            critical::block_for_fork();
            self.freeze_books();
        }
    }

    /// The books do not change until [`Space::thaw`].
    pub fn freeze_books(&'static self) {
        loop {
            self.prefault_stack();
            critical::within(|| {
                self.gate.freeze(|| self.list.clear(), rustix::thread::sched_yield);
            });
            // Views of others' memory do not come along: its owner goes on using it.
            let abroad =
                self.has_regions() && self.hold().books().is_some_and(|books| books.views_abroad());
            if !abroad {
                return;
            }
            self.thaw();
            self.recall(None);
        }
    }

    /// After fork, in the parent.
    pub fn after_fork_parent(&'static self) {
        if critical::forking() {
            self.thaw();
            critical::unblock_after_fork();
        }
    }

    /// As [`Space::freeze_books`], and no page of the program is missing meanwhile.
    pub fn freeze_with_everything_ordinary(&'static self) {
        loop {
            while self.make_all_ordinary() {}
            self.freeze_books();
            // Another thread may have tracked something in between.
            if self.hold().books().is_none_or(|b| b.everything().is_none()) {
                return;
            }
            self.thaw();
        }
    }

    /// Ends [`Space::freeze_books`]: catches up with what happened meanwhile.
    pub fn thaw(&'static self) {
        self.prefault_stack();
        critical::within(|| {
            self.gate.thaw(|| {
                // SAFETY: the lock is held.
                let inner = unsafe { self.inner.get() };
                if let Some(inner) = inner {
                    if let Some(books) = &mut inner.books {
                        for line in self.list.lines() {
                            match line {
                                // (With the lock held nothing is half done.)
                                Noted::Filled(addr) | Noted::Filling(addr) => {
                                    books.filled_meanwhile(addr);
                                }
                                Noted::Report(event) => self.report(books, event),
                            }
                        }
                    }
                    self.take_over_exclusions(inner);
                }
                self.list.clear();
            });
        });
        if self.has_regions() {
            self.carry_out_releases();
        }
    }

    /// A child has no regions: what is in use of its parent's, by a call that a handler of the
    /// program's forked in, ends without a word.
    fn forget_regions(&'static self) {
        if self.has_regions()
            && let Some(books) = self.hold().books()
        {
            books.forget_regions();
        }
    }

    /// After fork, in the child: its own userfaultfds, its own monitor, the same views. `first`
    /// puts right what else it has of its parent's, once its statistics are its own and before
    /// anything of the program runs.
    pub fn after_fork_child(&'static self, first: impl FnOnce()) {
        if critical::forking() {
            self.renew_child(first);
            critical::unblock_after_fork();
        } else {
            // (Nothing was tracked; but another thread's fork may have frozen the books. And what
            // was counted and is looked at is the parent's.)
            if self.statistics.published() {
                self.statistics.keep_private();
                self.counters().reset();
            }
            self.gate.reset();
            self.own.is_here();
        }
    }

    /// In a child that was made without fork's handlers, after all memory was made ordinary: it
    /// goes on without us.
    pub fn after_bare_fork_child(&'static self) {
        self.statistics.keep_private();
        self.monitor.is_gone();
        self.gate.reset();
        self.forget_regions();
        self.gate.set_state(OFF);
    }

    fn renew_child(&'static self, first: impl FnOnce()) {
        self.statistics.keep_private();
        let state = self.gate.reset();
        self.starts.store(0, Ordering::SeqCst);
        self.copied.store(0, Ordering::Relaxed);
        self.monitor.is_gone();
        self.counters().reset();
        first();
        self.own.is_here();
        self.forget_regions();
        if state == OFF {
            return;
        }
        self.gate.set_state(OFF);
        let mut hold = self.hold();
        let Some(inner) = hold.inner() else { return };
        // (The recording is its parent's.)
        self.recording.store(false, Ordering::Relaxed);
        inner.books.iter_mut().for_each(|b| b.observed_by(None));
        if inner.books.as_ref().is_none_or(|b| b.everything().is_none()) {
            self.list.clear();
            self.take_over_exclusions(inner);
            // The inherited ones act on the parent's memory. Its own are made when it has something
            // to elide.
            self.close_userfaultfds(inner);
            if state != SERVING {
                self.gate.set_state(IDLE);
            }
            return;
        }
        let renewed = self.renew(inner);
        self.take_over_exclusions(inner);
        if !renewed {
            return;
        }
        drop(hold);
        if self.monitor.spawn_in_child(self) {
            self.gate.set_state(if state == SERVING { SERVING } else { INHERITED });
        } else if let Some(inner) = self.hold().inner() {
            // Nobody would answer a fault: every view is written out, now.
            self.off(&self.counters().off_thread);
            self.serve_without_monitor(inner);
        }
    }

    /// In the child: userfaultfds for its own memory map. Returns whether eliding can go on.
    fn renew(&'static self, inner: &mut Inner) -> bool {
        // The inherited ones would act on the parent's memory: never used here, only closed.
        let made = self.make_userfaultfds(inner);
        let Some(books) = &mut inner.books else { return made };
        let mut ready = made && books.register_all_again().is_ok();
        if ready {
            let mut moved = false;
            for line in self.list.lines() {
                match line {
                    // Where it is missing here it was dropped again: it has to be.
                    Noted::Filled(addr) => books.filled_meanwhile(addr),
                    Noted::Filling(addr) => books.materialize_page(addr),
                    Noted::Report(event) => {
                        moved |= matches!(event, Event::Remap(..));
                        self.report(books, event);
                    }
                }
            }
            self.list.clear();
            // (Pages that the kernel moves it registers with the parent's userfaultfd.)
            ready = !moved || books.register_all_again().is_ok();
        }
        if !ready {
            self.off(&self.counters().off_resources);
            self.serve_without_monitor(inner);
        }
        ready
    }

    /// In a child that cannot have a userfaultfd or a thread: missing pages are ordinary there, so
    /// the views are simply written out.
    pub(crate) fn serve_without_monitor(&'static self, inner: &mut Inner) {
        let Some(books) = &mut inner.books else { return };
        // Closing them ends all registrations: what we touch now must not wait for anybody. (Not
        // ours any more first: our own `close` spares ours.)
        self.publish_descriptors(None, &inner.maker);
        books.memory.fds = None;
        for line in self.list.lines() {
            match line {
                Noted::Filled(addr) => books.filled_meanwhile(addr),
                Noted::Filling(addr) if present(addr) => books.filled_meanwhile(addr),
                Noted::Filling(_) => {}
                Noted::Report(event) => self.report(books, event),
            }
        }
        self.list.clear();
        let copy_bytes = inner.settings.copy_bytes;
        books.write_all_out(|c| write_out(c, copy_bytes));
    }
}

/// Writes viewed bytes to their (missing, unregistered) pages in a child. Through the kernel: a
/// mapping that went away meanwhile answers EFAULT there.
fn write_out(c: Copy, copy_bytes: CopyBytes) {
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
                    // SAFETY: the page was there a moment ago, and this process has no other
                    // thread; from the pool.
                    unsafe { copy_bytes(to as *mut u8, (c.from + done) as *const u8, in_page) };
                }
                in_page
            }
        };
    }
}
