//! What has to stay resident: told by the program's calls, at any time. Before anything is tracked it is kept here for the books to
//! come, and while a fork is under way, when the books must not change, in a list that [`take_over`] empties. Nobody waits for
//! a fork here: who gives pages to the kernel may hold a lock that another library's fork handler wants.

use super::hold::Hold;
use super::{GATE, Space};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use uncopy_core::excluded::{Excluded, Parts, Why};
use uncopy_ranges::span::Span;

/// From the first excluded page to the last, for who looks without the lock: he may find more, but not less than what was
/// excluded before he looked.
static HULL: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// So many fit into the list; then the last one grows, over what lies between.
const LINES: usize = 64;

/// What was excluded since a fork began. Written with the lock held; a child may get less of it than its parent has, as it may
/// have been made before.
struct Meanwhile {
    lines: [(AtomicUsize, AtomicUsize, AtomicU8); LINES],
    count: AtomicUsize,
}

static MEANWHILE: Meanwhile = Meanwhile {
    lines: [const { (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU8::new(0)) }; LINES],
    count: AtomicUsize::new(0),
};

const GIVEN: u8 = 1;
const WHILE_MAPPED: u8 = 2;

impl Meanwhile {
    fn push(&self, span: Span, why: Why) {
        let kind = if why == Why::Given { GIVEN } else { WHILE_MAPPED };
        let count = self.count.load(Relaxed);
        let (start, end, kinds) = &self.lines[count.min(LINES - 1)];
        if count < LINES {
            start.store(span.start, Relaxed);
            end.store(span.end, Relaxed);
            kinds.store(kind, Relaxed);
            self.count.store(count + 1, Relaxed);
        } else {
            start.fetch_min(span.start, Relaxed);
            end.fetch_max(span.end, Relaxed);
            kinds.fetch_or(kind, Relaxed);
        }
    }

    fn take(&self, mut each: impl FnMut(Span, Why)) {
        let count = self.count.swap(0, Relaxed);
        for (start, end, kinds) in &self.lines[..count] {
            let span = Span::new(start.load(Relaxed), end.load(Relaxed));
            for (kind, why) in [(GIVEN, Why::Given), (WHILE_MAPPED, Why::WhileMapped)] {
                if kinds.load(Relaxed) & kind != 0 {
                    each(span, why);
                }
            }
        }
    }
}

impl Space {
    fn excluded(&mut self) -> &mut Excluded {
        match &mut self.books {
            Some(books) => books.excluded(),
            None => &mut self.excluded,
        }
    }

    /// What was excluded while a fork was under way; with the lock held, and the fork done.
    pub(super) fn take_over_exclusions(&mut self) {
        let excluded = self.excluded();
        MEANWHILE.take(|span, why| excluded.insert(span, why));
        publish(excluded);
    }
}

/// Exclusions have changed; with the lock held.
pub(crate) fn publish(excluded: &Excluded) {
    let hull = excluded.hull();
    HULL[0].store(hull.start, Relaxed);
    HULL[1].store(hull.end, Relaxed);
}

/// Whether any of `span` may be excluded.
#[inline]
pub fn perhaps_excluded(span: Span) -> bool {
    // (Not between the two words, but each of them at its time, held what was excluded.)
    span.start < HULL[1].load(Relaxed) && HULL[0].load(Relaxed) < span.end
}

/// Changes exclusions, or looks at them if a fork is under way: `f` is told whether it may.
fn with_excluded<R>(f: impl FnOnce(&mut Excluded, bool) -> R) -> Option<R> {
    let mut hold = Hold::take();
    let may = !GATE.frozen();
    let excluded = hold.space()?.excluded();
    let result = f(excluded, may);
    if may {
        publish(excluded);
    }
    Some(result)
}

fn insert(excluded: &mut Excluded, may: bool, span: Span, why: Why) {
    if may {
        return excluded.insert(span, why);
    }
    let empty = HULL[1].load(Relaxed) == 0;
    MEANWHILE.push(span.hull(), why);
    let start =
        if empty { span.hull().start } else { HULL[0].load(Relaxed).min(span.hull().start) };
    HULL[0].store(start, Relaxed);
    HULL[1].fetch_max(span.hull().end, Relaxed);
}

/// The pages of `span` stay resident from now on; also if nothing is tracked yet.
pub fn exclude(span: Span, why: Why) {
    with_excluded(|e, may| insert(e, may, span, why));
}

/// `span` is about to be unmapped: it may be somebody else's before the call returns. Returns what [`put_exclusions`] needs
/// if the call fails.
pub fn unmapping(span: Span) -> Option<Parts> {
    take_out(span, Excluded::unmapped)
}

/// The pages of `span` are about to be dropped: the same.
pub fn dropping(span: Span) -> Option<Parts> {
    take_out(span.core(), Excluded::dropped)
}

fn take_out(span: Span, end: impl FnOnce(&mut Excluded, Span)) -> Option<Parts> {
    if !perhaps_excluded(span) {
        return None;
    }
    // (While a fork is under way they stay, for nothing: what is there later is copied.)
    with_excluded(|e, may| {
        let parts = e.parts(span);
        if may {
            end(e, span);
        }
        parts
    })
    .filter(|parts| !parts.is_empty())
}

/// What is excluded of `span`, of which pages, or the mapping, are about to be moved.
pub fn exclusions(span: Span) -> Option<Parts> {
    take_out(span, |_, _| {})
}

/// Excludes `parts` (again).
pub fn put_exclusions(parts: &Parts) {
    with_excluded(|e, may| parts.iter().for_each(|(span, why)| insert(e, may, span, why)));
}

/// `span` was mapped anew.
pub fn mapped_anew(span: Span) {
    let _ = unmapping(span.hull());
}
