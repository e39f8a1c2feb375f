//! The follower beside a model that knows of every byte where it came from.

use std::sync::atomic::AtomicU64;
use uncopy_flow::layout::{Kind, NODES, ROWS, Step, Tables, WORDS, header, node, row};
use uncopy_flow::{Bounds, Follower, ProgramMemory, REST_MS};
use uncopy_ranges::span::Span;

const ROOM: usize = 64 << 10;
const BOUNDS: Bounds = Bounds { least: 512, pieces: 1 << 20, words: 1 << 20 };

struct Bytes(Vec<u8>);

impl ProgramMemory for Bytes {
    fn word(&self, addr: usize) -> u64 {
        u64::from_le_bytes(self.0[addr..addr + 8].try_into().unwrap())
    }
}

fn words() -> Vec<AtomicU64> {
    (0..WORDS).map(|_| AtomicU64::new(0)).collect()
}

struct Machine<'a> {
    memory: Bytes,
    follower: Follower<'a>,
    random: u64,
}

impl<'a> Machine<'a> {
    fn new(words: &'a [AtomicU64], bounds: Bounds) -> Self {
        let follower = Follower::new(Tables::new(words), bounds);
        Self { memory: Bytes(vec![0; ROOM]), follower, random: 1 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize % n
    }

    fn fill(&mut self, at: usize, len: usize) {
        for i in at..at + len {
            self.memory.0[i] = self.below(256) as u8;
        }
    }

    fn input(&mut self, at: usize, len: usize, site: u32) {
        self.fill(at, len);
        let spans = [(at, len)];
        self.follower.input(spans.into_iter(), len, site, Kind::Socket, &self.memory);
    }

    fn copy(&mut self, dst: usize, src: usize, len: usize, site: u32) {
        self.follower.copied(dst, src, len, site, &self.memory);
        self.memory.0.copy_within(src..src + len, dst);
    }

    fn output(&mut self, at: usize, len: usize, site: u32) {
        self.follower.output([(at, len)].into_iter(), len, site, Kind::File, &self.memory);
    }

    /// Rows as (sequence of sites, output site, calls, bytes).
    fn rows(&self) -> Vec<(Vec<u64>, u64, u64, u64)> {
        let book = self.follower.book();
        (0..book.used(ROWS))
            .map(|i| {
                let mut at = book.get(ROWS, i, row::NODE) as usize;
                let mut sites = Vec::new();
                while at != 0 {
                    let rests = Step::of(book.get(NODES, at, node::STEP)) == Step::Rest;
                    sites.push(if rests { 999 } else { book.get(NODES, at, node::SITE) });
                    let parent = book.get(NODES, at, node::PARENT) as usize;
                    at = if parent == at { 0 } else { parent };
                }
                sites.reverse();
                let get = |field| book.get(ROWS, i, field);
                (sites, get(row::SITE), get(row::OPS), get(row::BYTES))
            })
            .collect()
    }

    fn inputs(&self, field: usize) -> u64 {
        let book = self.follower.book();
        (1..book.used(NODES)).map(|i| book.get(NODES, i, field)).sum()
    }
}

#[test]
fn a_message_that_is_copied_three_times_is_one_path_of_all_its_bytes() {
    let words = words();
    let mut m = Machine::new(&words, BOUNDS);
    for _ in 0..5 {
        m.input(0, 8000, 1);
        m.copy(10_000, 0, 8000, 2);
        m.copy(20_000, 10_000, 8000, 3);
        m.copy(30_000, 20_000, 8000, 2);
        m.output(30_000, 8000, 4);
    }
    assert_eq!(m.rows(), [(vec![1, 2, 3, 2], 4, 5, 40_000)]);
    assert_eq!(m.inputs(node::FORWARDED), 40_000);
    assert_eq!(m.inputs(node::CONSUMED), 0);
}

#[test]
fn bytes_that_the_program_writes_itself_are_not_credited_to_the_input_that_was_there() {
    let words = words();
    let mut m = Machine::new(&words, BOUNDS);
    m.input(0, 8192, 1);
    m.fill(2048, 4096);
    m.output(0, 8192, 2);
    assert_eq!(m.rows(), [(vec![], 2, 1, 4096), (vec![1], 2, 1, 4096)]);
    assert_eq!(m.follower.book().head(header::REWRITTEN), 4096);
}

#[test]
fn data_that_lay_for_long_is_told_from_data_that_went_through() {
    let words = words();
    let mut m = Machine::new(&words, BOUNDS);
    m.input(0, 4096, 1);
    m.copy(8192, 0, 4096, 2);
    m.output(8192, 4096, 3);
    m.follower.now += REST_MS;
    m.copy(16_384, 8192, 4096, 4);
    m.output(16_384, 4096, 3);
    assert_eq!(m.rows(), [(vec![1, 2], 3, 1, 4096), (vec![1, 2, 999, 4], 3, 1, 4096)]);
    // Bytes that leave twice have been forwarded once.
    assert_eq!(m.inputs(node::FORWARDED), 4096);
}

#[test]
fn overlapping_moves_and_ends_leave_what_remains() {
    let words = words();
    let mut m = Machine::new(&words, BOUNDS);
    m.input(0, 4096, 1);
    m.copy(1024, 0, 4096, 2);
    m.follower.ended(Span::new(3072, 4096));
    let known = m.follower.known(Span::new(0, 8192));
    let shape: Vec<_> = known.iter().map(|p| (p.span.start, p.span.end, p.tag.offset)).collect();
    assert_eq!(shape, [(0, 1024, 0), (1024, 3072, 0), (4096, 5120, 3072)]);
    m.follower.moved(Span::new(0, 8192), 32_768);
    let known = m.follower.known(Span::new(32_768, 40_960));
    assert_eq!((known.len(), known[2].span.start), (3, 36_864));
    m.follower.ended(Span::new(0, ROOM));
    assert_eq!((m.inputs(node::CONSUMED), m.follower.pieces()), (4096, 0));
}

#[test]
fn bytes_that_are_forgotten_for_want_of_room_are_counted() {
    let words = words();
    let mut m = Machine::new(&words, Bounds { pieces: 8, ..BOUNDS });
    for i in 0..16 {
        m.input(i * 2000, 1000, 1);
    }
    assert!(m.follower.pieces() <= 8);
    assert!(m.follower.book().head(header::EVICTIONS) > 0);
    let lost = m.inputs(node::LOST);
    assert!(lost >= 8000);
    m.follower.ended(Span::new(0, ROOM));
    assert_eq!(m.inputs(node::LOST) + m.inputs(node::CONSUMED), 16_000);
}

#[test]
fn touches_of_a_watched_input_are_counted_by_its_bytes() {
    let words = words();
    let mut m = Machine::new(&words, BOUNDS);
    m.fill(4096, 16_384);
    let id = m.follower.input([(4096, 16_384)].into_iter(), 16_384, 1, Kind::Pipe, &m.memory);
    m.follower.watch(id.unwrap());
    assert_eq!(m.follower.watchable(Span::new(0, ROOM)), [Span::new(4096, 20_480)]);
    m.follower.shows(Span::new(4096, 20_480));
    m.follower.touched(8192 + 17);
    m.copy(32_768, 4096, 16_384, 2);
    // A copy is the same bytes: they are touched once.
    m.follower.touched(32_768 + 4096);
    m.output(32_768, 16_384, 3);
    let book = m.follower.book();
    assert_eq!((book.get(ROWS, 0, row::WATCHED), book.get(ROWS, 0, row::TOUCHED)), (16_384, 4096));
    assert_eq!((m.inputs(node::WATCHED), m.inputs(node::TOUCHED)), (16_384, 4096));
    assert_eq!(m.inputs(node::FAULTS), 2);
}

#[test]
fn touches_are_those_of_the_place_that_was_touched_and_of_no_other() {
    let words = words();
    let mut m = Machine::new(&words, BOUNDS);
    m.fill(4096, 16_384);
    let id = m.follower.input([(4096, 16_384)].into_iter(), 16_384, 1, Kind::Pipe, &m.memory);
    m.follower.watch(id.unwrap());
    m.follower.shows(Span::new(4096, 20_480));
    // The program looks at the first copy, not at what arrived nor at the copy of the copy.
    m.copy(24_576, 4096, 16_384, 2);
    m.follower.shows(Span::new(24_576, 40_960));
    (0..4).for_each(|page| m.follower.touched(24_576 + page * 4096));
    m.copy(45_056, 24_576, 16_384, 3);
    m.follower.shows(Span::new(45_056, 61_440));
    let book = m.follower.book();
    let of = |site: u64| {
        let node = (0..book.used(NODES)).find(|i| book.get(NODES, *i, node::SITE) == site);
        [node::SHOWN, node::TOUCHED_HERE].map(|field| book.get(NODES, node.unwrap(), field))
    };
    assert_eq!([of(1), of(2), of(3)], [[16_384, 0], [16_384, 16_384], [16_384, 0]]);
}

/// Where a byte came from, by the model: the input and the offset in it.
type Origin = Option<(u32, usize)>;

#[test]
fn tags_are_where_a_model_of_every_byte_has_them() {
    for seed in 1..60 {
        let words = words();
        let mut m = Machine::new(&words, Bounds { least: 1, ..BOUNDS });
        m.random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed);
        let mut model: Vec<Origin> = vec![None; ROOM];
        let mut arrived = 0;
        let (mut left, mut known_left) = (0, 0);
        for step in 0..200 {
            let len = 1 + m.below(6000);
            let (a, b) = (m.below(ROOM - len), m.below(ROOM - len));
            match m.below(6) {
                0 | 1 => {
                    m.input(a, len, 1 + step % 3);
                    arrived += 1;
                    model[a..a + len]
                        .iter_mut()
                        .enumerate()
                        .for_each(|(i, o)| *o = Some((arrived, i)));
                }
                2 | 3 => {
                    m.copy(b, a, len, 10 + step % 3);
                    if a != b {
                        model.copy_within(a..a + len, b);
                    }
                }
                4 => {
                    m.follower.ended(Span::sized(a, len));
                    model[a..a + len].fill(None);
                }
                _ => {
                    m.output(a, len, 20);
                    left += len as u64;
                    known_left += model[a..a + len].iter().flatten().count() as u64;
                }
            }
            let mut got: Vec<Option<usize>> = vec![None; ROOM];
            for p in m.follower.known(Span::new(0, ROOM)) {
                for (i, addr) in (p.span.start..p.span.end).enumerate() {
                    assert!(got[addr].replace(p.tag.offset + i).is_none());
                }
            }
            let want: Vec<Option<usize>> = model.iter().map(|o| o.map(|(_, at)| at)).collect();
            assert!(got == want, "seed {seed}, step {step}");
        }
        let rows = m.rows();
        let known: u64 = rows.iter().filter(|r| !r.0.is_empty()).map(|r| r.3).sum();
        assert_eq!(known, known_left, "seed {seed}");
        assert_eq!(rows.iter().map(|r| r.3).sum::<u64>(), left);
        // All that arrived is accounted for once everything has ended.
        m.follower.ended(Span::new(0, ROOM));
        let sum = m.inputs(node::FORWARDED) + m.inputs(node::CONSUMED) + m.inputs(node::LOST);
        assert_eq!(sum, m.follower.book().head(header::IN_BYTES), "seed {seed}");
    }
}
