//! The server of the thread's questions, as the thread sees it, and the faults that have to wait
//! for an answer.

use crate::Monitor;
use core::sync::atomic::AtomicU64;
use uncopy_kernel::uffd::{Event, Fds};

/// Reports read at once.
pub const READ_AT_ONCE: usize = 32;

/// Faults that wait for the memory map to settle. The kernel hands out all faults before the report
/// that they wait for, so there must be room for those of all threads; beyond it threads fault
/// again and again.
const WAITING_MAX: usize = 4096;

/// One of the two userfaultfds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That of the program's pages.
    Program,
    /// That of the pool's.
    Pool,
}

/// Knows what the missing pages consist of.
pub trait Server: Sync + 'static {
    /// See [`Server::sources`].
    type Sources;
    /// Runs `f` with the server's lock held, if there is anything to be served; `own` are the
    /// userfaultfds as the thread's own table has them. Reports are read with the lock held: once
    /// the kernel lets the reported call return, nobody sees the books without it.
    fn serve(&self, own: &mut Option<Fds>, f: &mut dyn FnMut(&mut dyn LockedServer));
    /// The numbers of the userfaultfds in the program's table, if it has them.
    fn descriptors(&self) -> Option<[i32; 2]>;
    /// Whether it may come to have more to serve than it has.
    fn runs(&self) -> bool;
    /// Its thread.
    fn monitor(&'static self) -> &'static Monitor;
    /// The files that the thread has to look at now and then, in its own table of descriptors.
    /// Asked on the thread, before it gives up its rights.
    fn sources(&self) -> Self::Sources;
    /// Looks after what lies idle; asked on the thread, without the server's lock. `own` as above.
    /// Returns in how many ms it wants to be asked again.
    fn tend(&self, own: &mut Option<Fds>, sources: &mut Self::Sources) -> u64;
    /// Where it counts how often the thread was bound to a core, or let go.
    fn bindings(&'static self) -> &'static AtomicU64;
}

/// A server whose lock is held.
pub trait LockedServer {
    /// Takes what the kernel reports, without waiting; returns how many it were.
    fn read(&mut self, side: Side, events: &mut [Event; READ_AT_ONCE]) -> usize;
    /// Puts a page where somebody waits for one. Returns false where that has to be tried again.
    fn answer(&mut self, address: usize) -> bool;
    /// A thread that waits for the page at `address` faults again.
    fn let_fault_again(&mut self, address: usize);
    /// The memory map has changed.
    fn report(&mut self, event: Event);
    /// Whether so many reports can be taken now as are read at once.
    fn has_room(&self) -> bool;
    /// Whether faults are answered on the core that they were taken on.
    fn near(&mut self, near: bool);
}

/// The faults that cannot be answered while the memory map is changing.
pub(crate) struct Watch {
    waiting: [usize; WAITING_MAX],
    count: usize,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { waiting: [0; WAITING_MAX], count: 0 }
    }

    /// Whether any waits.
    pub(crate) fn waits(&self) -> bool {
        self.count > 0
    }

    /// Answers what waits for the pool's pages.
    pub(crate) fn serve_pool(&mut self, locked: &mut dyn LockedServer) {
        let mut events = [Event::Other(0); READ_AT_ONCE];
        let count = locked.read(Side::Pool, &mut events);
        for event in &events[..count] {
            if let Event::Fault(address) = *event {
                self.answer(locked, address);
            }
        }
    }

    /// Answers what waits for the program's pages, and hands on how the memory map has changed.
    /// Returns whether there were faults.
    ///
    /// Of what is read at once, reports come first. The kernel hands out faults before them, but a
    /// report that has been read lets its call go on: what the books say of that memory is no
    /// longer so, and an answer (which may fill neighbouring pages, too) would bring back what
    /// `madvise` has dropped, or give zeros where `mremap` has moved something.
    pub(crate) fn serve_program(&mut self, locked: &mut dyn LockedServer) -> bool {
        self.try_again(locked);
        let mut faults = false;
        let mut events = [Event::Other(0); READ_AT_ONCE];
        while locked.has_room() {
            let count = locked.read(Side::Program, &mut events);
            let read = &events[..count];
            let is_fault = |event: &&Event| matches!(event, Event::Fault(_));
            read.iter().filter(|e| !is_fault(e)).for_each(|report| locked.report(*report));
            for event in read {
                if let Event::Fault(address) = *event {
                    faults = true;
                    self.answer(locked, address);
                }
            }
            if count < READ_AT_ONCE {
                break;
            }
        }
        faults
    }

    /// Threads that still wait fault again, for somebody else to answer.
    pub(crate) fn leave(&mut self, locked: &mut dyn LockedServer) {
        for address in &self.waiting[..core::mem::take(&mut self.count)] {
            locked.let_fault_again(*address);
        }
    }

    fn answer(&mut self, locked: &mut dyn LockedServer, address: usize) {
        if locked.answer(address) {
            return;
        }
        if self.count < WAITING_MAX {
            self.waiting[self.count] = address;
            self.count += 1;
        } else {
            // Too many to remember: the thread faults again. Never stop reading, for what the
            // others wait for may be a report behind these faults.
            locked.let_fault_again(address);
        }
    }

    fn try_again(&mut self, locked: &mut dyn LockedServer) {
        let count = core::mem::take(&mut self.count);
        for i in 0..count {
            // (Never ahead of what is still to be read: at most `i` were put back.)
            let address = self.waiting[i];
            self.answer(locked, address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A server of which each answer is as the test says.
    #[derive(Default)]
    struct Fake {
        program: VecDeque<Event>,
        pool: VecDeque<Event>,
        /// Addresses that cannot be answered until a report has come.
        changing: Vec<usize>,
        answered: Vec<usize>,
        reports: Vec<Event>,
        /// Reports, and faults that were answered.
        order: Vec<Event>,
        fault_again: Vec<usize>,
        room: usize,
    }

    impl LockedServer for Fake {
        fn read(&mut self, side: Side, events: &mut [Event; READ_AT_ONCE]) -> usize {
            let queue = if side == Side::Pool { &mut self.pool } else { &mut self.program };
            let count = queue.len().min(READ_AT_ONCE);
            events.iter_mut().zip(queue.drain(..count)).for_each(|(to, from)| *to = from);
            count
        }

        fn answer(&mut self, address: usize) -> bool {
            let now = !self.changing.contains(&address);
            if now {
                self.answered.push(address);
                self.order.push(Event::Fault(address));
            }
            now
        }

        fn let_fault_again(&mut self, address: usize) {
            self.fault_again.push(address);
        }

        fn report(&mut self, event: Event) {
            self.room -= 1;
            self.reports.push(event);
            self.order.push(event);
            self.changing.clear();
        }

        fn has_room(&self) -> bool {
            self.room >= READ_AT_ONCE
        }

        fn near(&mut self, _: bool) {}
    }

    fn fake(program: impl IntoIterator<Item = Event>) -> Fake {
        Fake { program: program.into_iter().collect(), room: 10_000, ..Fake::default() }
    }

    #[test]
    fn reports_are_handled_before_the_faults_that_are_read_with_them() {
        let [gone, moved] = [7, 8].map(Event::Other);
        let mut locked = fake([Event::Fault(1), gone, Event::Fault(2), moved]);
        assert!(Watch::new().serve_program(&mut locked));
        assert_eq!(locked.order, [gone, moved, Event::Fault(1), Event::Fault(2)]);
    }

    #[test]
    fn a_fault_that_waits_for_a_report_is_answered_after_it() {
        let mut locked = fake([Event::Fault(1), Event::Fault(2)]);
        locked.changing = vec![1];
        let mut watch = Watch::new();
        watch.serve_program(&mut locked);
        assert!(watch.waits());
        assert_eq!(locked.answered, [2]);
        locked.program.push_back(Event::Other(7));
        assert!(!watch.serve_program(&mut locked), "no new fault");
        assert!(watch.waits(), "tried before the report was read");
        assert!(!watch.serve_program(&mut locked), "no new fault");
        assert!(!watch.waits());
        assert_eq!(locked.answered, [2, 1]);
    }

    #[test]
    fn reading_stops_where_reports_have_no_room_and_faults_that_wait_are_still_tried() {
        let mut locked = fake((0..40).map(|_| Event::Other(7)));
        locked.room = READ_AT_ONCE + 1;
        let mut watch = Watch::new();
        watch.serve_program(&mut locked);
        assert_eq!((locked.reports.len(), locked.program.len()), (32, 8));
        watch.waiting[0] = 5;
        watch.count = 1;
        watch.serve_program(&mut locked);
        assert_eq!((locked.reports.len(), &locked.answered[..]), (32, &[5][..]));
    }

    #[test]
    fn more_faults_than_can_wait_are_faulted_again_and_reading_goes_on() {
        let many = WAITING_MAX + 3;
        let mut locked = fake((0..many).map(Event::Fault));
        locked.changing = (0..many).collect();
        let mut watch = Watch::new();
        watch.serve_program(&mut locked);
        assert_eq!(locked.fault_again, [WAITING_MAX, WAITING_MAX + 1, WAITING_MAX + 2]);
        watch.leave(&mut locked);
        assert_eq!(locked.fault_again.len(), many);
        assert!(!watch.waits() && locked.answered.is_empty());
    }

    #[test]
    fn of_the_pool_only_faults_are_answered() {
        let mut locked = fake([]);
        locked.pool = [Event::Other(1), Event::Fault(9)].into();
        Watch::new().serve_pool(&mut locked);
        assert_eq!((locked.answered, locked.reports), (vec![9], vec![]));
    }
}
