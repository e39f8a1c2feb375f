//! The lock-free test in front of the tracker: "surely nothing tracked here".
//!
//! It only ever errs towards "perhaps": a wrong "perhaps" costs a lookup under the lock. A wrong
//! "surely not" about tracked pages must not happen: a copy would only be slow (it touches unmapped
//! pages, and the fault path answers), but an unmapping would leave views in the books whose
//! addresses somebody else may get.

use crate::span::Span;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// loom looks at every atomic in every order: there must be few.
const MODEL: bool = cfg!(all(loom, test));
/// Tracked addresses are told apart in granules of 64 KB, as far as 16 GB of them: where all bits
/// are set, every stack seems to be tracked.
const GRANULE_SHIFT: u32 = 16;
const GRANULES: usize = if MODEL { 4 } else { 1 << 18 };
const WORDS: usize = GRANULES.div_ceil(64);
/// Origins in granules of 16 KB, so that every one of 32 KB or more has a granule to itself.
const ORIGIN_SHIFT: u32 = 14;
const ORIGINS: usize = if MODEL { 4 } else { 1 << 16 };
/// Beyond this many granules a range is not walked: "perhaps".
const WALK_MAX: usize = 512;

/// Granules that hold registered pages, and ranges that input calls filled (*origins*).
#[derive(Debug)]
#[repr(C)]
pub struct Filter {
    /// Whether any bit of `tracked` may be set: where nothing was registered since they were last
    /// made anew, all questions end here. (Apart from what inputs write.)
    any: AtomicBool,
    tracked: [AtomicU64; WORDS],
    /// The parts that stay tracked, while `tracked` is made anew.
    stays: [AtomicU64; WORDS],
    origins: [Origin; ORIGINS],
}

/// Where a range that input calls filled begins and ends: both in one line of the cache, for a
/// question finds neither there.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Origin {
    start: AtomicUsize,
    end: AtomicUsize,
}

impl Origin {
    #[inline]
    fn get(&self) -> Span {
        let (start, end) = (self.start.load(Relaxed), self.end.load(Relaxed));
        Span { start, end }
    }

    fn set(&self, start: usize, end: usize) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn is_set(bits: &[AtomicU64; WORDS], i: usize) -> bool {
    bits[i / 64].load(Relaxed) >> (i % 64) & 1 != 0
}

/// (Not at the same time as another change.)
fn set(bits: &[AtomicU64; WORDS], i: usize) {
    let word = &bits[i / 64];
    word.store(word.load(Relaxed) | 1 << (i % 64), Relaxed);
}

#[inline]
fn slot(granule: usize, slots: usize) -> usize {
    (granule ^ (granule >> slots.ilog2())) & (slots - 1)
}

impl Filter {
    /// Nothing tracked.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            tracked: [const { AtomicU64::new(0) }; WORDS],
            stays: [const { AtomicU64::new(0) }; WORDS],
            origins: [const { Origin { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } };
                ORIGINS],
        }
    }

    /// Nothing tracked. (loom's atomics are made at run time.)
    #[cfg(all(loom, test))]
    pub fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            tracked: core::array::from_fn(|_| AtomicU64::new(0)),
            stays: core::array::from_fn(|_| AtomicU64::new(0)),
            origins: core::array::from_fn(|_| Origin::default()),
        }
    }

    /// Nothing tracked, and no input, any more: for a user of it for one program after the other.
    pub fn clear(&self) {
        self.track_only(core::iter::empty());
        self.origins.iter().for_each(|origin| origin.set(0, 0));
    }

    /// Whether `addr..addr+len` may hold tracked pages. `len` must not be 0.
    #[inline(always)]
    pub fn perhaps_tracked(&self, addr: usize, len: usize) -> bool {
        let first = addr >> GRANULE_SHIFT;
        let last = addr.wrapping_add(len - 1) >> GRANULE_SHIFT;
        self.any.load(Relaxed)
            && (self.tracked_granule(first) || last != first && self.walk(first, last))
    }

    /// The granules that hold `span`: what lies in them is told apart by nobody.
    pub fn neighbourhood(span: Span) -> Span {
        const GRANULE: usize = 1 << GRANULE_SHIFT;
        let end = span.end.checked_next_multiple_of(GRANULE).unwrap_or(usize::MAX);
        Span::new(span.start & !(GRANULE - 1), end)
    }

    #[inline(always)]
    fn tracked_granule(&self, granule: usize) -> bool {
        is_set(&self.tracked, slot(granule, GRANULES))
    }

    #[cold]
    #[inline(never)]
    fn walk(&self, first: usize, last: usize) -> bool {
        last.wrapping_sub(first) > WALK_MAX || (first + 1..=last).any(|g| self.tracked_granule(g))
    }

    /// `span` holds tracked pages from now on. One caller at a time (the tracker has a lock), as
    /// for [`Filter::track_only`].
    pub fn track(&self, span: Span) {
        if span.is_empty() {
            return;
        }
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        for g in (span.start >> GRANULE_SHIFT)..=((span.end - 1) >> GRANULE_SHIFT) {
            set(&self.tracked, slot(g, GRANULES));
        }
    }

    /// Only `spans` hold tracked pages from now on. Others ask meanwhile: what stays tracked is
    /// never denied.
    pub fn track_only(&self, spans: impl Iterator<Item = Span>) {
        self.stays.iter().for_each(|word| word.store(0, Relaxed));
        let mut any = false;
        for span in spans.filter(|s| !s.is_empty()) {
            for g in (span.start >> GRANULE_SHIFT)..=((span.end - 1) >> GRANULE_SHIFT) {
                set(&self.stays, slot(g, GRANULES));
            }
            any = true;
        }
        for (word, stays) in self.tracked.iter().zip(&self.stays) {
            let (before, after) = (word.load(Relaxed), word.load(Relaxed) & stays.load(Relaxed));
            if before != after {
                word.store(after, Relaxed);
            }
        }
        self.any.store(any, Relaxed);
    }

    /// Remembers that an input call filled `len` bytes at `addr`. Forgets what shared its place.
    pub fn input(&self, addr: usize, len: usize) {
        let span = Span::sized(addr, len);
        if span.is_empty() {
            return;
        }
        let (first, last) = (span.start >> ORIGIN_SHIFT, (span.end - 1) >> ORIGIN_SHIFT);
        for g in first..=last.min(first + ORIGINS) {
            let origin = &self.origins[slot(g, ORIGINS)];
            let Span { start, end } = origin.get();
            // A message arrives in pieces: what follows on joins what is there.
            let joined = if start <= span.start && span.start <= end && end < span.end {
                (start, span.end)
            } else if start <= span.start && span.end <= end {
                continue;
            } else {
                (span.start, span.end)
            };
            origin.set(joined.0, joined.1);
        }
    }

    /// Whether the `len` bytes at `addr` came from input calls, as far as is remembered: their
    /// middle is looked up, because the ends may share a granule with something else.
    #[inline]
    pub fn is_input(&self, addr: usize, len: usize) -> bool {
        let middle = addr.wrapping_add(len / 2);
        let Span { start, end } = self.origins[slot(middle >> ORIGIN_SHIFT, ORIGINS)].get();
        start <= middle && middle < end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tracked_granules_are_never_denied() {
        let f = Box::leak(Box::new(Filter::new()));
        assert!(!f.perhaps_tracked(0x7f00_0000_0000, 1 << 20));
        f.track(Span::sized(0x7f00_0008_0000, 4096));
        assert!(f.perhaps_tracked(0x7f00_0000_0000, 1 << 20));
        assert!(f.perhaps_tracked(0x7f00_0008_0fff, 1));
        assert!(!f.perhaps_tracked(0x7f00_0009_0000, 1));
        let near = Filter::neighbourhood(Span::sized(0x7f00_0008_1234, 1));
        assert_eq!(near, Span::new(0x7f00_0008_0000, 0x7f00_0009_0000));
        assert!(f.perhaps_tracked(0, usize::MAX));
        f.track_only([Span::sized(0x7f00_0010_0000, 4096)].into_iter());
        assert!(!f.perhaps_tracked(0x7f00_0008_0000, 1));
    }

    #[test]
    fn where_nothing_stays_tracked_no_question_looks_further() {
        let f = Box::leak(Box::new(Filter::new()));
        f.track(Span::sized(0x7f00_0008_0000, 4096));
        assert!(f.any.load(Relaxed));
        f.track_only(core::iter::empty());
        assert!(!f.any.load(Relaxed) && !f.perhaps_tracked(0x7f00_0008_0000, 4096));
    }

    #[test]
    fn neighbours_do_not_hide_one_another() {
        let f = Box::leak(Box::new(Filter::new()));
        let value = |i: usize| 0x7f00_0000_0000 + i * 81_920 + 64 * i;
        (0..500).for_each(|i| f.input(value(i), 65_536));
        assert!((0..500).all(|i| f.is_input(value(i), 65_536)));
    }

    #[test]
    fn an_input_that_arrives_in_pieces_is_one_origin() {
        let f = Box::leak(Box::new(Filter::new()));
        for piece in 0..32 {
            f.input(0x7f00_0000_0010 + piece * 10_000, 10_000);
        }
        assert!((0..320_000).step_by(999).all(|i| f.is_input(0x7f00_0000_0010 + i, 1)));
        assert!(!f.is_input(0x7f00_0000_000f, 1));
        assert!(!f.is_input(0x7f00_0000_0010 + 320_000, 1));
    }
}

/// Every order of two threads' steps (`make loom`). Each test says what it was seen to catch.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const HERE: Span = Span { start: 0x10_0000, end: 0x10_1000 };
    const THERE: Span = Span { start: 0x11_0000, end: 0x11_1000 };

    /// Caught: `track_only` that clears everything first and then tells what stays.
    #[test]
    fn a_range_that_stays_tracked_is_never_denied_while_the_filter_is_made_anew() {
        loom::model(|| {
            let filter = Arc::new(Filter::new());
            filter.track(HERE);
            filter.track(THERE);
            let other = filter.clone();
            let renewal = thread::spawn(move || other.track_only([HERE].into_iter()));
            assert!(filter.perhaps_tracked(HERE.start, HERE.len()));
            renewal.join().unwrap();
            assert!(filter.perhaps_tracked(HERE.start, HERE.len()));
            assert!(!filter.perhaps_tracked(THERE.start, THERE.len()));
        });
    }

    /// Caught: `input` that puts the new piece in place of the old one instead of joining it.
    #[test]
    fn an_origin_that_grows_is_not_lost_meanwhile() {
        loom::model(|| {
            let filter = Arc::new(Filter::new());
            filter.input(0x10_0000, 4096);
            let other = filter.clone();
            // (The reader is the second thread: loom 0.7 overlooks that a thread which loads, then
            // stores, could have stored before another's load.)
            let reader = thread::spawn(move || assert!(other.is_input(0x10_0000, 4096)));
            filter.input(0x10_1000, 4096);
            reader.join().unwrap();
            assert!(filter.is_input(0x10_0000, 8192));
        });
    }
}
