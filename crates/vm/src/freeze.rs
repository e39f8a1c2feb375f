//! What happened to pages while fork was duplicating the books.
//!
//! Between fork's beginning and its end the tracker must not change (the child gets a copy of it)
//! and the lock must not be held (a thread may wait for a fault, or for a report to be read, while
//! it holds malloc's lock, which fork waits for). So the monitor goes on answering, leaves the
//! books alone, and writes down here what they do not say yet: first the line, then the deed.
//! Parent and child each catch up from their own copy of this list.

use crate::uffd::Event;
use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use uncopy_core::span::Span;

const LINES: usize = 1 << 14;
const NOTHING: usize = 0;
const FILLED: usize = 1;
const REMAP: usize = 2;
const REMOVE: usize = 3;
const UNMAP: usize = 4;

struct Line([AtomicUsize; 4]);

static LIST: [Line; LINES] = [const { Line([const { AtomicUsize::new(0) }; 4]) }; LINES];
static USED: AtomicUsize = AtomicUsize::new(0);

/// Begins an empty list.
pub fn clear() {
    USED.store(0, Release);
}

/// Whether `n` more lines fit.
pub fn has_room(n: usize) -> bool {
    USED.load(Relaxed) + n <= LINES
}

/// Adds a line (only the monitor does); a fault's line is the intention to fill its page.
pub fn push(event: Event) -> usize {
    let i = USED.load(Relaxed);
    let words = match event {
        Event::Fault(addr) => [FILLED, addr, 0, 0],
        Event::Remap(from, to, len) => [REMAP, from, to, len],
        Event::Remove(s) => [REMOVE, s.start, s.end, 0],
        Event::Unmap(s) => [UNMAP, s.start, s.end, 0],
        Event::Other(_) => [NOTHING; 4],
    };
    for (to, from) in LIST[i].0.iter().zip(words) {
        to.store(from, Relaxed);
    }
    USED.store(i + 1, Release);
    i
}

/// The intention of line `i`, the last one, came to nothing.
pub fn cancel(i: usize) {
    LIST[i].0[0].store(NOTHING, Relaxed);
    if USED.load(Relaxed) == i + 1 {
        USED.store(i, Release);
    }
}

/// What became of the page at `addr` since the books were frozen, by the kernel's reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Nothing.
    Same,
    /// It was dropped or unmapped: what is there now begins as zeros.
    Gone,
    /// It was moved here or away.
    Moved,
}

/// See [`Since`].
pub fn since(addr: usize) -> Since {
    lines().fold(Since::Same, |known, event| match event {
        Event::Remove(s) | Event::Unmap(s) if s.contains(addr) && known != Since::Moved => {
            Since::Gone
        }
        Event::Remap(from, to, len)
            if Span::sized(from, len).contains(addr) || Span::sized(to, len).contains(addr) =>
        {
            Since::Moved
        }
        _ => known,
    })
}

/// Whether a line behind line `i` says that the page at `addr` was dropped, unmapped or moved away.
pub fn gone_after(i: usize, addr: usize) -> bool {
    lines().skip(i + 1).any(|event| match event {
        Event::Remove(s) | Event::Unmap(s) => s.contains(addr),
        Event::Remap(from, _, len) => Span::sized(from, len).contains(addr),
        _ => false,
    })
}

/// All lines, in order.
pub fn lines() -> impl Iterator<Item = Event> {
    LIST[..USED.load(Acquire)].iter().map(|l| {
        let [kind, a, b, c] = [0, 1, 2, 3].map(|i| l.0[i].load(Relaxed));
        match kind {
            FILLED => Event::Fault(a),
            REMAP => Event::Remap(a, b, c),
            REMOVE => Event::Remove(Span::new(a, b)),
            UNMAP => Event::Unmap(Span::new(a, b)),
            _ => Event::Other(0),
        }
    })
}
