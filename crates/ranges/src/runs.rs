//! Free runs of pages: neighbours are one run. The lowest of exactly the length that is asked for
//! is taken, else the beginning of the lowest that is long enough.
//!
//! So what is in use stays together, what is freed beside other free pages is of use for longer
//! runs at once, and what is left over lies at the end, where it can be given back. (Exact lengths
//! first: with lengths by chance a sixth of the pages are new that are if only the lowest are
//! taken.)
//!
//! The runs lie in order in chunks of some dozens. Of each chunk the first page, the longest run
//! and which lengths there may be are known: so a look at the runs of most programs is one at a few
//! cache lines. (A tree with the longest run below each node was tried: its nodes are all over the
//! memory, and an allocation beside 1,000 or more others took up to twice as long.)

use crate::span::Span;
use arrayvec::ArrayVec;

/// Runs of one chunk, at most.
const CHUNK: usize = 64;
/// Chunks in which a run of exactly the length is looked for, at most: beside thousands of others
/// the look would cost more than it is worth.
const LOOKS: usize = 16;

/// Some runs, in order: never none.
#[derive(Debug)]
struct Chunk {
    /// A bit for each of the lengths that may be there.
    lengths: u64,
    /// Its first page.
    first: u32,
    /// The length of its longest run.
    longest: u32,
    /// [`FreeRuns::find_before`] found nothing there since something changed.
    passed: bool,
    // (What lies behind a new chunk is moved.)
    runs: Box<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    starts: ArrayVec<u32, CHUNK>,
    lens: ArrayVec<u32, CHUNK>,
}

/// Where a run is: its chunk, and its number there.
type At = (usize, usize);

/// A set of free page runs, by page number (below 2^32).
#[derive(Debug, Default)]
pub struct FreeRuns {
    chunks: Vec<Chunk>,
    pages: usize,
}

impl FreeRuns {
    /// No free run.
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), pages: 0 }
    }

    /// Free pages in all.
    pub const fn pages(&self) -> usize {
        self.pages
    }

    /// Takes `len` consecutive pages: the lowest run of that length, else of the lowest that has as
    /// many. Returns the first.
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let at = self.exact(len).or_else(|| self.lowest(len))?;
        let (start, have) = self.run(at);
        self.set(at, start + len, have - len);
        self.pages -= len;
        Some(start)
    }

    fn lowest(&self, len: usize) -> Option<At> {
        let c = self.chunks.iter().position(|chunk| chunk.longest as usize >= len)?;
        let lens = &self.chunks[c].runs.lens;
        lens.iter().position(|&have| have as usize >= len).map(|i| (c, i))
    }

    /// (Of the first chunks where it may be.)
    fn exact(&mut self, len: usize) -> Option<At> {
        let bit = bit(len);
        let with_bit = |(_, chunk): &(usize, &mut Chunk)| chunk.lengths & bit != 0;
        for (c, chunk) in self.chunks.iter_mut().enumerate().filter(with_bit).take(LOOKS) {
            let lens = &chunk.runs.lens;
            // (All are compared: the compiler makes that a few instructions.)
            let is = |any, &have: &u32| any | (have as usize == len);
            if lens.iter().fold(false, is) {
                return lens.iter().position(|&have| have as usize == len).map(|i| (c, i));
            }
            let same_bit = |any, &have: &u32| any | (have as usize % BITS == len % BITS);
            if !lens.iter().fold(false, same_bit) {
                chunk.lengths &= !bit;
            }
        }
        None
    }

    /// Takes the `len` pages from `start`, if all of them are free.
    pub fn take_at(&mut self, start: usize, len: usize) -> bool {
        if len == 0 {
            return true;
        }
        let Some(at) = self.before(self.from(start + 1)) else { return false };
        let (first, have) = self.run(at);
        let (end, behind) = (start + len, first + have);
        if behind < end {
            return false;
        }
        if start == first {
            self.set(at, end, behind - end);
        } else {
            self.set(at, first, start - first);
            if end < behind {
                self.insert((at.0, at.1 + 1), end, behind - end);
            }
        }
        self.pages -= len;
        true
    }

    /// Takes the last pages of the last run, at most `most`; returns the first and their number.
    pub fn take_last(&mut self, most: usize) -> Option<(usize, usize)> {
        let at = self.before((self.chunks.len(), 0))?;
        let (first, have) = self.run(at);
        let len = have.min(most);
        self.set(at, first, have - len);
        self.pages -= len;
        Some((first + have - len, len))
    }

    /// What `of` says of the last run that begins before `page` and of which it says something,
    /// told first pages and lengths. Of runs of which it said nothing it is not asked again as long
    /// as nothing changes beside them: what it says must be the same then.
    pub fn find_before<T>(
        &mut self,
        page: usize,
        mut of: impl FnMut(usize, usize) -> Option<T>,
    ) -> Option<T> {
        let (last, before) = self.from(page);
        let chunks = self.chunks.iter_mut().enumerate().take(last + 1).rev();
        for (c, chunk) in chunks.filter(|(_, chunk)| !chunk.passed) {
            // (A run that `page` lies in may be told of in part.)
            let whole = c < last;
            let Runs { starts, lens } = &*chunk.runs;
            let n = if whole { starts.len() } else { before };
            let runs = starts[..n].iter().zip(&lens[..n]).rev();
            let found = runs.map(|(s, l)| (*s as usize, *l as usize)).find_map(|(s, l)| of(s, l));
            if found.is_some() {
                return found;
            }
            chunk.passed = whole;
        }
        None
    }

    /// The runs that `pages` overlaps: first pages and lengths, in order.
    pub fn iter_in(&self, pages: Span) -> impl Iterator<Item = (usize, usize)> + '_ {
        let from = self.from(pages.start);
        let (mut c, mut i) = self.before(from).unwrap_or(from);
        let runs = core::iter::from_fn(move || {
            if self.chunks.get(c).is_some_and(|chunk| i == chunk.runs.starts.len()) {
                (c, i) = (c + 1, 0);
            }
            let run = (c < self.chunks.len()).then(|| self.run((c, i)));
            i += 1;
            run
        });
        runs.skip_while(move |&(start, len)| start + len <= pages.start)
            .take_while(move |&(start, _)| start < pages.end)
    }

    /// Gives `len` pages from `start` back.
    pub fn give(&mut self, start: usize, len: usize) {
        if len == 0 {
            return;
        }
        let end = start + len;
        let at = self.from(start);
        let behind = self.at_or_next(at).map(|at| (at, self.run(at)));
        debug_assert!(behind.is_none_or(|(_, (s, _))| s >= end), "page run given twice");
        let behind = behind.filter(|&(_, (s, _))| s == end);
        let before = self.before(at).map(|at| (at, self.run(at)));
        debug_assert!(before.is_none_or(|(_, (s, l))| s + l <= start), "page run given twice");
        let before = before.filter(|&(_, (s, l))| s + l == start);
        match (before, behind) {
            (None, None) => self.insert(at, start, len),
            (Some((at, (s, l))), None) => self.set(at, s, l + len),
            (None, Some((at, (_, l)))) => self.set(at, start, len + l),
            (Some((at, (s, l))), Some((next, (_, more)))) => {
                // (In this order: the end of one moves those behind it.)
                self.set(at, s, l + len + more);
                self.remove(next);
            }
        }
        self.pages += len;
    }

    #[inline]
    fn run(&self, (c, i): At) -> (usize, usize) {
        let runs = &self.chunks[c].runs;
        (runs.starts[i] as usize, runs.lens[i] as usize)
    }

    /// Where a run belongs that begins at `page`: behind all that begin before.
    #[inline]
    fn from(&self, page: usize) -> At {
        let before = |chunk: &Chunk| (chunk.first as usize) < page;
        let c = self.chunks.partition_point(before).saturating_sub(1);
        let starts = self.chunks.get(c).map(|chunk| &chunk.runs.starts);
        (c, starts.map_or(0, |starts| starts.partition_point(|&start| (start as usize) < page)))
    }

    /// The run before that place.
    #[inline]
    fn before(&self, (c, i): At) -> Option<At> {
        match i.checked_sub(1) {
            Some(i) => Some((c, i)),
            None => c.checked_sub(1).map(|c| (c, self.chunks[c].runs.starts.len() - 1)),
        }
    }

    /// The run at that place, or the next.
    #[inline]
    fn at_or_next(&self, (c, i): At) -> Option<At> {
        let at = if self.chunks.get(c)?.runs.starts.len() > i { (c, i) } else { (c + 1, 0) };
        (at.0 < self.chunks.len()).then_some(at)
    }

    /// The run there becomes another between the same neighbours; it ends where that has no pages.
    fn set(&mut self, (c, i): At, start: usize, len: usize) {
        if len == 0 {
            return self.remove((c, i));
        }
        let chunk = &mut self.chunks[c];
        let before = core::mem::replace(&mut chunk.runs.lens[i], len as u32);
        chunk.runs.starts[i] = start as u32;
        if i == 0 {
            chunk.first = start as u32;
        }
        chunk.lengths |= bit(len);
        chunk.passed = false;
        if len as u32 >= chunk.longest {
            chunk.longest = len as u32;
        } else if before == chunk.longest {
            chunk.find_longest();
        }
    }

    fn remove(&mut self, (c, i): At) {
        let next = self.chunks.get(c + 1).map_or(CHUNK, |next| next.runs.starts.len());
        let chunk = &mut self.chunks[c];
        chunk.runs.starts.remove(i);
        let len = chunk.runs.lens.remove(i);
        let left = chunk.runs.starts.len();
        // (Chunks of few runs become one.)
        if left + next <= CHUNK / 2 {
            let Runs { starts, lens } = *self.chunks.remove(c + 1).runs;
            let chunk = &mut self.chunks[c];
            chunk.runs.starts.extend(starts);
            chunk.runs.lens.extend(lens);
            chunk.renew();
        } else if left == 0 {
            self.chunks.remove(c);
        } else {
            chunk.first = chunk.runs.starts[0];
            if len == chunk.longest {
                chunk.find_longest();
            }
        }
    }

    /// A run that touches no other is put there.
    fn insert(&mut self, (mut c, mut i): At, start: usize, len: usize) {
        if self.chunks.is_empty() {
            self.chunks.push(Chunk::new(Runs::default()));
        } else if self.chunks[c].runs.starts.is_full() {
            let Runs { starts, lens } = &mut *self.chunks[c].runs;
            let half = Runs {
                starts: starts.drain(CHUNK / 2..).collect(),
                lens: lens.drain(CHUNK / 2..).collect(),
            };
            self.chunks[c].renew();
            self.chunks.insert(c + 1, Chunk::new(half));
            if i > CHUNK / 2 {
                (c, i) = (c + 1, i - CHUNK / 2);
            }
        }
        let chunk = &mut self.chunks[c];
        chunk.runs.starts.insert(i, start as u32);
        chunk.runs.lens.insert(i, len as u32);
        chunk.first = chunk.runs.starts[0];
        chunk.longest = chunk.longest.max(len as u32);
        chunk.lengths |= bit(len);
        chunk.passed = false;
    }
}

impl Chunk {
    fn new(runs: Runs) -> Self {
        let mut chunk =
            Self { lengths: 0, first: 0, longest: 0, passed: false, runs: Box::new(runs) };
        chunk.renew();
        chunk
    }

    /// Reckons anew what is known of its runs.
    fn renew(&mut self) {
        self.passed = false;
        self.first = self.runs.starts.first().copied().unwrap_or_default();
        self.lengths = self.runs.lens.iter().fold(0, |bits, &len| bits | bit(len as usize));
        self.find_longest();
    }

    fn find_longest(&mut self) {
        self.longest = self.runs.lens.iter().fold(0, |longest, &len| longest.max(len));
    }
}

const BITS: usize = u64::BITS as usize;

/// The bit of a length, which it shares with others.
fn bit(len: usize) -> u64 {
    1 << (len % BITS)
}

/// Lengths that are remembered at once.
const LENGTHS: usize = 16;
/// Runs of one length that are remembered.
const OF_A_LENGTH: usize = 32;

/// Runs freed last, by length, last in first out: a server's messages have few lengths, and
/// what was just freed is still in the cache. Not merged with neighbours.
#[derive(Debug, Default)]
pub struct RecentRuns {
    lengths: [usize; LENGTHS],
    /// When a run of that length was asked for or freed last.
    used: [u64; LENGTHS],
    runs: [ArrayVec<usize, OF_A_LENGTH>; LENGTHS],
    clock: u64,
    pages: usize,
}

impl RecentRuns {
    /// Pages in all.
    pub const fn pages(&self) -> usize {
        self.pages
    }

    #[inline]
    fn place(&mut self, len: usize) -> Option<usize> {
        let place = self.lengths.iter().position(|l| *l == len)?;
        self.clock += 1;
        self.used[place] = self.clock;
        Some(place)
    }

    fn pop(&mut self, place: usize) -> Option<usize> {
        let start = self.runs[place].pop()?;
        self.pages -= self.lengths[place];
        Some(start)
    }

    /// A run of exactly `len` pages, if one was freed lately.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<usize> {
        let place = self.place(len)?;
        self.pop(place)
    }

    /// Any run: its first page and length.
    pub fn take_any(&mut self) -> Option<(usize, usize)> {
        let place = self.runs.iter().position(|r| !r.is_empty())?;
        self.pop(place).map(|start| (start, self.lengths[place]))
    }

    /// Remembers a run. `elsewhere` is told (first page and length) of those that are not
    /// remembered any more, or not at all.
    #[inline]
    pub fn give(&mut self, start: usize, len: usize, mut elsewhere: impl FnMut(usize, usize)) {
        if len == 0 {
            return;
        }
        let place = self.place(len).unwrap_or_else(|| self.forget_oldest(len, &mut elsewhere));
        if self.runs[place].is_full() {
            elsewhere(start, len);
        } else {
            self.runs[place].push(start);
            self.pages += len;
        }
    }

    /// The place of the length that was of no use for longest becomes that of `len`.
    #[cold]
    fn forget_oldest(&mut self, len: usize, elsewhere: &mut impl FnMut(usize, usize)) -> usize {
        let place = (0..LENGTHS).min_by_key(|&i| self.used[i]).unwrap_or(0);
        while let Some(start) = self.pop(place) {
            elsewhere(start, self.lengths[place]);
        }
        self.lengths[place] = len;
        self.clock += 1;
        self.used[place] = self.clock;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(start: usize, len: usize) {
        panic!("the run of {len} pages at {start} was not remembered");
    }

    #[test]
    fn the_run_given_back_last_is_taken_first() {
        let mut r = RecentRuns::default();
        for (start, len) in [(10, 3), (20, 3), (30, 1)] {
            r.give(start, len, none);
        }
        assert_eq!((r.take(3), r.pages()), (Some(20), 4));
        assert_eq!((r.take(2), r.take(1), r.take(3), r.take(3)), (None, Some(30), Some(10), None));
        for i in 0..OF_A_LENGTH {
            r.give(i * 9, 9, none);
        }
        let mut others = Vec::new();
        r.give(7000, 9, |start, len| others.push((start, len)));
        assert_eq!(others, [(7000, 9)]);
        assert_eq!((r.take_any(), r.pages()), (Some((31 * 9, 9)), 31 * 9));
    }

    #[test]
    fn a_new_length_takes_the_place_of_the_one_that_nobody_has_asked_for_longest() {
        let mut r = RecentRuns::default();
        for len in 1..=LENGTHS {
            r.give(100 * len, len, none);
            r.give(100 * len + 50, len, none);
        }
        assert_eq!(r.take(1), Some(150));
        let mut others = Vec::new();
        r.give(5000, 77, |start, len| others.push((start, len)));
        assert_eq!(others, [(250, 2), (200, 2)]);
        assert_eq!((r.take(77), r.take(2), r.take(1)), (Some(5000), None, Some(100)));
    }

    #[test]
    fn a_run_of_exactly_the_length_is_taken_before_lower_ones() {
        let mut r = FreeRuns::new();
        [(0, 20), (30, 8), (50, 9), (70, 8), (90, 72)].iter().for_each(|&(s, l)| r.give(s, l));
        assert_eq!([8, 8, 8, 9, 72].map(|len| r.take(len)), [30, 70, 0, 50, 90].map(Some));
        assert_eq!(r.iter_in(Span::new(0, 1000)).collect::<Vec<_>>(), [(8, 12)]);
    }

    #[test]
    fn the_lowest_sufficient_run_is_taken_and_runs_merge_again() {
        let mut r = FreeRuns::new();
        r.give(0, 100);
        r.give(200, 10);
        assert_eq!((r.take(8), r.take(93), r.take(8)), (Some(0), None, Some(8)));
        assert_eq!(r.take(90), None);
        r.give(0, 16);
        assert_eq!((r.pages(), r.take(100)), (110, Some(0)));
        assert_eq!(
            (r.take_last(3), r.take_last(9), r.take_last(1)),
            (Some((207, 3)), Some((200, 7)), None)
        );
    }

    #[test]
    fn pages_are_taken_where_they_lie_only_if_all_of_them_are_free() {
        let mut r = FreeRuns::new();
        r.give(10, 10);
        assert!(!r.take_at(9, 2) && !r.take_at(15, 6) && !r.take_at(30, 1));
        assert!(r.take_at(12, 3));
        assert_eq!(r.iter_in(Span::new(0, 100)).collect::<Vec<_>>(), [(10, 2), (15, 5)]);
        assert_eq!(r.iter_in(Span::new(12, 16)).collect::<Vec<_>>(), [(15, 5)]);
        let mut last = |page| r.find_before(page, |start, len| Some((start, len)));
        assert_eq!((last(15), last(10)), (Some((10, 2)), None));
        assert!(!r.take_at(14, 2) && r.take_at(15, 5) && r.take_at(10, 2));
        assert_eq!((r.pages(), r.take(1)), (0, None));
    }

    #[test]
    fn it_agrees_with_a_list_of_pages() {
        const PAGES: usize = 600;
        let seed = 0x5eed_u64;
        let mut state = seed;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        let mut r = FreeRuns::new();
        let mut free = [false; PAGES];
        // Some pages are marked while they are not free.
        let mut marked = [false; PAGES];
        for step in 0..40_000 {
            let (page, len) = (random(PAGES - 20), 1 + random(20));
            let all = |free: &[bool; PAGES], is| free[page..page + len].iter().all(|f| *f == is);
            match random(5) {
                0 | 1 if all(&free, false) => {
                    marked[page..page + len].fill(step % 8 == 0);
                    r.give(page, len);
                    free[page..page + len].fill(true);
                }
                2 => {
                    let is = |at: usize| free.get(at).is_some_and(|f| *f);
                    let fits = |at: usize| (at..at + len).all(is);
                    let alone = |at: usize| (at == 0 || !is(at - 1)) && !is(at + len);
                    let exact = (0..PAGES).find(|&at| fits(at) && alone(at));
                    let lowest = exact.or_else(|| (0..PAGES).find(|&at| fits(at)));
                    assert_eq!(r.take(len), lowest, "seed {seed:#x} step {step}");
                    if let Some(at) = lowest {
                        free[at..at + len].fill(false);
                    }
                }
                3 => {
                    let is = all(&free, true);
                    assert_eq!(r.take_at(page, len), is, "seed {seed:#x} step {step}");
                    if is {
                        free[page..page + len].fill(false);
                    }
                }
                4 => {
                    let end = free.iter().rposition(|f| *f).map(|last| last + 1);
                    let last = end.map(|end| {
                        let first = free[..end].iter().rposition(|f| !*f).map_or(0, |p| p + 1);
                        let n = len.min(end - first);
                        (end - n, n)
                    });
                    assert_eq!(r.take_last(len), last, "seed {seed:#x} step {step}");
                    if let Some((at, n)) = last {
                        free[at..at + n].fill(false);
                    }
                }
                _ => {}
            }
            assert_eq!(r.pages(), free.iter().filter(|f| **f).count());
            let mark = |at: usize, n: usize| (at..at + n).rev().find(|&at| marked[at]);
            let before = if step % 2 == 0 { PAGES } else { page };
            let found = r.find_before(before, |at, n| mark(at, n.min(before - at)));
            let last = (0..before).rev().find(|&at| free[at] && marked[at]);
            assert_eq!(found, last, "seed {seed:#x} step {step}");
            let runs = r.iter_in(Span::new(0, PAGES)).collect::<Vec<_>>();
            let mut listed = [false; PAGES];
            runs.iter().for_each(|&(at, n)| listed[at..at + n].fill(true));
            assert_eq!(listed, free, "seed {seed:#x} step {step}");
            let apart = runs.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0);
            assert!(apart, "seed {seed:#x} step {step}: neighbours are one run");
        }
    }

    #[test]
    fn of_many_runs_chunks_are_neither_too_long_nor_many() {
        let mut r = FreeRuns::new();
        (0..10_000).for_each(|i| r.give(3 * (i * 7919 % 10_000), 1));
        assert!(r.chunks.len() <= 10_000 / (CHUNK / 2), "{}", r.chunks.len());
        r.give(1, 1);
        assert_eq!((r.take(2), r.take(2), r.take_last(5)), (Some(0), None, Some((29_997, 1))));
        (1..9_990).for_each(|i| assert!(r.take_at(3 * i, 1)));
        assert_eq!((r.pages(), r.chunks.len()), (9, 1));
        (1..10_000).for_each(|i| r.give(3 * i + 1, 2));
        assert!(r.take_at(29_970, 27));
        assert_eq!(r.take(28), None);
        assert_eq!(r.find_before(40_000, |s, len| Some((s, len))), Some((29_998, 2)));
        // (No more than a chunk is looked at again.)
        let mut asked = 0;
        for _ in 0..100 {
            assert_eq!(
                r.find_before(40_000, |_, _| -> Option<()> {
                    asked += 1;
                    None
                }),
                None
            );
        }
        assert!((9_900..10_000 + 100 * CHUNK).contains(&asked), "{asked}");
    }
}
