//! Events on pages while fork was duplicating the books.
//!
//! Between fork's beginning and its end the tracker must not change (the child gets a copy of it)
//! and the lock must not be held (a thread may wait for a fault, or for a report to be read, while
//! it holds malloc's lock, which fork waits for). So the monitor goes on answering, leaves the
//! books alone, and writes down here what they do not say yet: first the line, then the change,
//! then that it is done. Parent and child each catch up from their own copy of this list.
//!
//! A report is read before its line can be written, and from then on the reported call may return.
//! A thread that made it through a shim of ours waits for the line
//! ([`crate::gate::Gate::await_line`]).

use uncopy_kernel::sync::atomic::{
    AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use uncopy_kernel::uffd::Event;
use uncopy_ranges::span::Span;

const LINES: usize = if cfg!(loom) { 4 } else { 1 << 14 };
const NOTHING: usize = 0;
/// A page is about to be filled; the last word says whether it was.
const FILL: usize = 1;
const REMAP: usize = 2;
const REMOVE: usize = 3;
const UNMAP: usize = 4;

#[derive(Debug)]
struct Line([AtomicUsize; 4]);

/// The list. One thread writes it (the monitor, or who has frozen the books, with the lock held).
#[derive(Debug)]
pub struct List {
    lines: [Line; LINES],
    used: AtomicUsize,
}

/// The fate of the page at `addr` since the books were frozen, by the kernel's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Nothing.
    Same,
    /// It was dropped or unmapped: what is there now begins as zeros.
    Gone,
    /// It was moved here or away.
    Moved,
}

#[cfg(not(loom))]
impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

/// A line, as parent and child find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The page at this address was filled. A child in which it is missing has seen it go again,
    /// even if the list does not say so.
    Filled(usize),
    /// The page at this address was to be filled, and may have been. (Only the last line says
    /// that.)
    Filling(usize),
    /// The memory map changed.
    Report(Event),
}

impl List {
    /// An empty one.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            lines: [const { Line([const { AtomicUsize::new(0) }; 4]) }; LINES],
            used: AtomicUsize::new(0),
        }
    }

    /// Begins an empty list.
    pub fn clear(&self) {
        self.used.store(0, Release);
    }

    /// Whether `n` more lines fit.
    pub fn has_room(&self, n: usize) -> bool {
        self.used.load(Relaxed) + n <= LINES
    }

    /// Adds a line; a fault's line is the intention to fill its page.
    pub fn push(&self, event: Event) -> usize {
        let i = self.used.load(Relaxed);
        let words = match event {
            Event::Fault(addr) => [FILL, addr, 0, 0],
            Event::Remap(from, to, len) => [REMAP, from, to, len],
            Event::Remove(s) => [REMOVE, s.start, s.end, 0],
            Event::Unmap(s) => [UNMAP, s.start, s.end, 0],
            Event::Other(_) => [NOTHING; 4],
        };
        for (to, from) in self.lines[i].0.iter().zip(words) {
            to.store(from, Relaxed);
        }
        self.used.store(i + 1, Release);
        i
    }

    /// The page of line `i` was filled. (Before anything behind it is read: what drops the page
    /// again is read later.)
    pub fn filled(&self, i: usize) {
        self.lines[i].0[3].store(1, Release);
    }

    /// The intention of line `i`, the last one, came to nothing.
    pub fn cancel(&self, i: usize) {
        self.lines[i].0[0].store(NOTHING, Relaxed);
        if self.used.load(Relaxed) == i + 1 {
            self.used.store(i, Release);
        }
    }

    /// See [`Since`].
    pub fn since(&self, addr: usize) -> Since {
        self.lines().fold(Since::Same, |known, event| match event {
            Noted::Report(Event::Remove(s) | Event::Unmap(s))
                if s.contains(addr) && known != Since::Moved =>
            {
                Since::Gone
            }
            Noted::Report(Event::Remap(from, to, len))
                if Span::sized(from, len).contains(addr) || Span::sized(to, len).contains(addr) =>
            {
                Since::Moved
            }
            _ => known,
        })
    }

    /// All lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = Noted> {
        self.lines[..self.used.load(Acquire)].iter().map(|l| {
            let [kind, a, b] = [0, 1, 2].map(|i| l.0[i].load(Relaxed));
            let c = l.0[3].load(Acquire);
            match kind {
                FILL if c != 0 => Noted::Filled(a),
                FILL => Noted::Filling(a),
                REMAP => Noted::Report(Event::Remap(a, b, c)),
                REMOVE => Noted::Report(Event::Remove(Span::new(a, b))),
                UNMAP => Noted::Report(Event::Unmap(Span::new(a, b))),
                _ => Noted::Report(Event::Other(0)),
            }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn list(events: &[Event]) -> &'static List {
        let list = Box::leak(Box::new(List::new()));
        for event in events {
            list.push(*event);
        }
        list
    }

    #[test]
    fn a_page_is_as_it_was_until_a_report_names_it() {
        let page = |n: usize| Span::sized(n * PAGE, PAGE);
        let list = list(&[Event::Remove(page(1)), Event::Remap(8 * PAGE, 16 * PAGE, PAGE)]);
        assert_eq!(list.since(2 * PAGE), Since::Same);
        assert_eq!(list.since(PAGE), Since::Gone);
        assert_eq!(list.since(8 * PAGE), Since::Moved);
        assert_eq!(list.since(16 * PAGE), Since::Moved);
        // The content of a page that was moved here and then dropped is not known.
        list.push(Event::Unmap(page(16)));
        assert_eq!(list.since(16 * PAGE), Since::Moved);
    }

    #[test]
    fn an_intention_that_came_to_nothing_leaves_no_line() {
        let list = list(&[Event::Fault(PAGE)]);
        let line = list.push(Event::Fault(2 * PAGE));
        list.cancel(line);
        assert_eq!(list.lines().collect::<Vec<_>>(), [Noted::Filling(PAGE)]);
    }

    #[test]
    fn a_page_counts_as_filled_once_that_is_done() {
        let list = list(&[]);
        let line = list.push(Event::Fault(PAGE));
        assert_eq!(list.lines().last(), Some(Noted::Filling(PAGE)));
        list.filled(line);
        assert_eq!(list.lines().last(), Some(Noted::Filled(PAGE)));
        // A line that takes the place of one that came to nothing says nothing of that.
        let line = list.push(Event::Fault(2 * PAGE));
        list.filled(line);
        list.cancel(line);
        list.push(Event::Fault(3 * PAGE));
        assert_eq!(list.lines().last(), Some(Noted::Filling(3 * PAGE)));
        list.clear();
        assert!(list.has_room(LINES) && !list.has_room(LINES + 1));
    }
}

/// Every order of two threads' steps (`make loom`). Each test's comment says which change it was
/// seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use uncopy_kernel::sync::atomic::AtomicBool;

    impl List {
        fn new() -> Self {
            Self {
                lines: core::array::from_fn(|_| {
                    Line(core::array::from_fn(|_| AtomicUsize::new(0)))
                }),
                used: AtomicUsize::new(0),
            }
        }
    }

    /// fork copies a buffer's pages before the list (they lie lower): a page that it found filled
    /// must be in the list that it finds later, and the line must be whole. The page-table lock
    /// orders the monitor's filling and fork's copying.
    ///
    /// Caught: the line written after the change; `used` stored relaxed.
    #[test]
    fn a_page_that_fork_finds_filled_is_in_the_list_that_it_copies() {
        loom::model(|| {
            let list = Arc::new(List::new());
            let page = Arc::new(AtomicBool::new(false));
            let (l, p) = (list.clone(), page.clone());
            let monitor = thread::spawn(move || {
                l.push(Event::Remove(Span::new(4096, 8192)));
                let line = l.push(Event::Fault(0x5000));
                p.store(true, Release);
                l.filled(line);
            });
            let filled = page.load(Acquire);
            let lines: Vec<_> = list.lines().collect();
            let known = [Noted::Filled(0x5000), Noted::Filling(0x5000)];
            assert!(!filled || lines.iter().any(|line| known.contains(line)));
            for line in lines {
                let removed = Noted::Report(Event::Remove(Span::new(4096, 8192)));
                assert!(line == removed || known.contains(&line), "half a line: {line:?}");
            }
            monitor.join().unwrap();
        });
    }

    /// A program's thread touches a page, and drops it when it was filled, by a call that no shim
    /// sees: fork may copy the memory before the report has its line. A page that is missing then
    /// must not be filled with what it was before. (The page's bytes are copied before the list,
    /// and nobody fills or drops a page meanwhile: the kernel holds the memory map's lock. So a
    /// list that says "filled" of a page that is missing speaks of one that was there.)
    ///
    /// Caught: `filled` after the next report was read.
    #[test]
    fn a_page_that_was_filled_and_dropped_is_not_about_to_be_filled() {
        loom::model(|| {
            let list = Arc::new(List::new());
            let (page, dropped) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (l, p, d) = (list.clone(), page.clone(), dropped.clone());
            let monitor = thread::spawn(move || {
                let line = l.push(Event::Fault(0x5000));
                p.store(true, Release);
                l.filled(line);
                // The report is read; the call goes on, and its line is still to come.
                d.store(true, Release);
                l.push(Event::Remove(Span::sized(0x5000, 4096)));
            });
            if dropped.load(Acquire) {
                assert_eq!(list.lines().next(), Some(Noted::Filled(0x5000)));
            }
            monitor.join().unwrap();
        });
    }
}
