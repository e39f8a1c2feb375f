//! Answers to the monitor thread: with which page a fault is answered, and what a report of the
//! kernel's changes.
//!
//! While a fork is under way the books must not change: then it is written down first, in a list.
//!
//! unsafe: hands out what the lock guards.

use crate::freeze::Since;
use crate::hold::swapped;
use crate::holding::Sources;
use crate::pages::WAKE_TRIES;
use crate::space::{Books, Space};
use core::sync::atomic::AtomicU64;
use uncopy_core::tracker::Fault;
use uncopy_kernel::uffd::{Event, Fds, Msg};
use uncopy_monitor::Monitor;
use uncopy_monitor::serve::{LockedServer, READ_AT_ONCE, Server, Side};
use uncopy_ranges::span::{PAGE, Span};

impl Server for Space {
    type Sources = Sources;

    fn serve(&self, own: &mut Option<Fds>, f: &mut dyn FnMut(&mut dyn LockedServer)) {
        let mut released = false;
        self.locked(|books| {
            swapped(books, own, |books| {
                f(&mut Answers { space: self, books, frozen: self.gate.frozen() });
                released = books.releases_wait();
            });
        });
        if !released {
            return;
        }
        // Owners of regions are told without the lock; while the books are frozen, by who thaws
        // them.
        loop {
            let mut release = None;
            self.locked(|books| {
                if !self.gate.frozen() {
                    release = books.take_release();
                }
            });
            let Some(release) = release else { return };
            release.carry_out();
        }
    }

    fn descriptors(&self) -> Option<[i32; 2]> {
        self.program_descriptors()
    }

    fn runs(&self) -> bool {
        self.running()
    }

    fn monitor(&'static self) -> &'static Monitor {
        &self.monitor
    }

    fn sources(&self) -> Sources {
        self.open_sources()
    }

    fn tend(&self, own: &mut Option<Fds>, sources: &mut Sources) -> u64 {
        self.tend_idle(own, sources)
    }

    fn bindings(&'static self) -> &'static AtomicU64 {
        &self.counters().handler_bindings
    }
}

impl Space {
    /// Runs `f` on the books, whatever the state. On the monitor, which takes no part in critical
    /// sections.
    pub(crate) fn locked(&self, f: impl FnOnce(&mut Books)) {
        self.gate.lock();
        // SAFETY: the lock is held.
        let books = unsafe { self.inner.get() }.and_then(|inner| inner.books.as_mut());
        books.map(f);
        self.gate.unlock();
    }
}

/// The books with their lock held.
struct Answers<'a> {
    space: &'a Space,
    books: &'a mut Books,
    frozen: bool,
}

impl LockedServer for Answers<'_> {
    fn read(&mut self, side: Side, events: &mut [Event; READ_AT_ONCE]) -> usize {
        let Some(own) = &self.books.memory.fds else { return 0 };
        let uffd = if side == Side::Pool { &own.pool } else { &own.program };
        let mut messages = [Msg::default(); READ_AT_ONCE];
        let read = uffd.read(&mut messages);
        events.iter_mut().zip(read).for_each(|(to, from)| *to = from.event());
        read.len()
    }

    fn answer(&mut self, address: usize) -> bool {
        if self.books.memory.is_pool(address) {
            return self.books.memory.provide_zero(address);
        }
        let outcome =
            if self.frozen { self.while_frozen(address) } else { self.books.fault(address) };
        match outcome {
            Fault::Resolved => true,
            Fault::Unknown => self.books.memory.provide_zero(address),
            Fault::Again => false,
        }
    }

    fn let_fault_again(&mut self, address: usize) {
        if let Some(fds) = &self.books.memory.fds {
            let page = Span::sized(address & !(PAGE - 1), PAGE);
            let _ = (0..WAKE_TRIES).any(|_| fds.program.wake(page));
        }
    }

    fn report(&mut self, event: Event) {
        if self.frozen {
            self.space.list.push(event);
        } else {
            self.space.report(self.books, event);
        }
    }

    fn has_room(&self) -> bool {
        !self.frozen || self.space.list.has_room(READ_AT_ONCE)
    }

    fn near(&mut self, near: bool) {
        self.books.answers_near(near);
    }
}

impl Answers<'_> {
    /// First the line, then the change, then that it is done.
    fn while_frozen(&mut self, address: usize) -> Fault {
        let list = &self.space.list;
        match list.since(address) {
            Since::Moved => Fault::Again,
            _ if !list.has_room(1) => Fault::Again,
            since => {
                let line = list.push(Event::Fault(address));
                let outcome = match since {
                    Since::Gone if self.books.memory.provide_zero(address) => Fault::Resolved,
                    Since::Same => self.books.fault_while_frozen(address),
                    _ => Fault::Again,
                };
                if outcome == Fault::Resolved {
                    list.filled(line);
                } else {
                    list.cancel(line);
                }
                outcome
            }
        }
    }
}

impl Space {
    /// Heeds a report; with the lock held.
    pub(crate) fn report(&self, books: &mut Books, event: Event) {
        match event {
            Event::Unmap(span) => books.munmapped(span),
            Event::Remove(span) => books.removed(span),
            Event::Remap(from, to, len) => books.remapped(from, to, len),
            Event::Fault(_) | Event::Other(_) => return,
        }
        self.excluded_bounds.publish(books.excluded());
    }
}
