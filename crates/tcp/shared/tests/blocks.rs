//! Blocks beside a stream of bytes: a sender and a receiver on one ring and one arena, whose every
//! step is chosen by a seed (printed): small sends in the ring, large ones in blocks, receives of
//! any size that copy or view, touches that end views, offers that are taken back, releases in any
//! order, receivers that die. The bytes that are received and viewed must be those that were sent,
//! whatever became of the blocks of others meanwhile; and in the end every block is back.
//!
//! `UNCOPY_BLOCKS_SEEDS=n` runs n seeds, `UNCOPY_BLOCKS_SEED=s` runs one.

use std::collections::VecDeque;
use uncopy_tcp_blocks::out::Out;
use uncopy_tcp_blocks::pages::{Block, Pages};
use uncopy_tcp_shared::returns::Returns;
use uncopy_tcp_shared::ring::{Consumed, Produced, RING, Reader, Writer};
use uncopy_tcp_shared::runs::{Incoming, Outgoing, Piece, Queue, Run};

const PAGE: u32 = 64;
const PAGES: u32 = 200;
/// Runs that the sender of this test has at most unread, so that the queue comes round often.
const MESSAGE: usize = 3000;

fn zeroed<T>() -> Box<T> {
    // SAFETY: used for atomics of integers alone; zero is a value of each.
    unsafe { Box::new(core::mem::zeroed()) }
}

/// The memory that both see.
struct Fixture {
    produced: Box<Produced>,
    consumed: Box<Consumed>,
    queue: Box<Queue>,
    returns: Box<Returns>,
    ring: Vec<u8>,
    arena: Vec<u8>,
}

/// A range that the receiver views, and what must be in it.
struct View {
    run: Run,
    right: Vec<u8>,
}

struct World {
    rng: fastrand::Rng,
    shared: Fixture,
    writer: Writer<RING>,
    runs: Outgoing,
    pages: Pages,
    out: Out<Block>,
    reader: Reader<RING>,
    incoming: Incoming,
    views: Vec<View>,
    /// Sent and not received.
    right: VecDeque<u8>,
    next: u8,
    in_blocks: usize,
    viewed: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let shared = Fixture {
            produced: zeroed(),
            consumed: zeroed(),
            queue: zeroed(),
            returns: zeroed(),
            ring: vec![0; RING as usize],
            arena: vec![0; (PAGES * PAGE) as usize],
        };
        Self {
            rng: fastrand::Rng::with_seed(seed),
            shared,
            writer: Writer::new(RING - 1000),
            runs: Outgoing::new(),
            pages: Pages::new(PAGES),
            out: Out::default(),
            reader: Reader::new(),
            incoming: Incoming::new(),
            views: vec![],
            right: VecDeque::new(),
            next: 0,
            in_blocks: 0,
            viewed: 0,
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.next = self.next.wrapping_mul(5).wrapping_add(17);
                self.next
            })
            .collect()
    }

    fn collect(&mut self) {
        let Self { shared, out, pages, .. } = self;
        shared.returns.collect(|handle, done| {
            if let Some(block) = out.done(handle, done) {
                pages.give_back(block);
            }
        });
    }

    fn send(&mut self) {
        self.writer.look(&self.shared.consumed).expect("an honest receiver");
        let bytes = self.rng.usize(1..MESSAGE);
        let bytes = self.bytes(bytes);
        let sent = if self.rng.bool() { self.send_block(&bytes) } else { false };
        if !sent {
            self.send_inline(&bytes);
        }
        self.right.extend(bytes);
    }

    fn send_block(&mut self, bytes: &[u8]) -> bool {
        self.collect();
        self.runs.look(self.writer.head());
        let (count, place) = (bytes.len() as u32, self.rng.u8(..3));
        if !self.runs.has_room() || !self.out.may(place, count) {
            return false;
        }
        let Some(block) = self.pages.take(count.div_ceil(PAGE), |_| true) else { return false };
        let handle = self.out.give(place, count, block).expect("it may be given");
        self.shared.returns.begin(handle);
        let at = block.page * PAGE;
        self.shared.arena[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        let position = self.writer.tail();
        let run = Run { position, bytes: count, at, arena: 0, handle };
        self.runs.push(&self.shared.queue, &self.shared.produced, run);
        self.writer.commit(&self.shared.produced, count);
        self.in_blocks += 1;
        true
    }

    fn send_inline(&mut self, bytes: &[u8]) {
        let spans = self.writer.reserve(bytes.len());
        assert_eq!(spans.bytes() as usize, bytes.len(), "so much is never unread");
        let (first, second) = bytes.split_at(spans.first as usize);
        let place = spans.place as usize;
        self.shared.ring[place..place + first.len()].copy_from_slice(first);
        self.shared.ring[..second.len()].copy_from_slice(second);
        self.writer.commit(&self.shared.produced, spans.bytes());
    }

    /// Receives at most so much: what lies in blocks is viewed, or copied.
    fn receive(&mut self) {
        self.reader.look(&self.shared.produced).expect("an honest sender");
        self.incoming.look(&self.shared.produced);
        let most = self.rng.u32(0..2 * MESSAGE as u32).min(self.reader.filled());
        let views = self.rng.bool();
        let (head, mut got) = (self.reader.head(), 0);
        let mut viewed = vec![];
        while got < most {
            let piece = self.incoming.piece(&self.shared.queue, head, got, most - got);
            got += match piece.expect("an honest sender") {
                Piece::Ring(bytes) => {
                    let spans = self.reader.peek(got, bytes as usize);
                    let place = spans.place as usize;
                    let first = &self.shared.ring[place..place + spans.first as usize];
                    let second = &self.shared.ring[..spans.second as usize];
                    let read = first.iter().chain(second).copied();
                    let right = self.right.drain(..bytes as usize);
                    assert!(read.eq(right), "bytes of the ring");
                    bytes
                }
                Piece::Block(run) => {
                    let right: Vec<u8> = self.right.drain(..run.bytes as usize).collect();
                    assert_eq!(self.read(run), right, "bytes of a block");
                    if views {
                        viewed.push(run);
                        self.views.push(View { run, right });
                    }
                    run.bytes
                }
            };
        }
        let returns = &self.shared.returns;
        self.incoming.consume(&self.shared.queue, head, got, |run| {
            if !views {
                returns.done(run.handle, run.bytes);
            } else {
                assert!(viewed.contains(&run), "what was found is taken");
            }
        });
        self.viewed += viewed.len();
        self.reader.release(&self.shared.consumed, got);
    }

    fn read(&self, run: Run) -> Vec<u8> {
        self.shared.arena[run.at as usize..(run.at + run.bytes) as usize].to_vec()
    }

    /// A view ends, or a part of it.
    fn touch(&mut self) {
        if self.views.is_empty() {
            return;
        }
        let view = self.views.swap_remove(self.rng.usize(..self.views.len()));
        assert_eq!(self.read(view.run), view.right, "bytes of a view");
        self.shared.returns.done(view.run.handle, view.run.bytes);
    }

    /// The sender takes back all that is unread, and sends it by the ring. (The receiver is at
    /// Linux' queue meanwhile.)
    fn take_back(&mut self) {
        self.writer.look(&self.shared.consumed).expect("an honest receiver");
        let (head, left) = (self.writer.head(), self.writer.used());
        let mut unread = vec![];
        while (unread.len() as u32) < left {
            let skip = unread.len() as u32;
            match self.runs.piece(head, skip, left - skip) {
                Piece::Ring(bytes) => {
                    let spans = self.writer.unread(skip).part(0, bytes);
                    let place = spans.place as usize;
                    unread.extend(&self.shared.ring[place..place + spans.first as usize]);
                    unread.extend(&self.shared.ring[..spans.second as usize]);
                }
                Piece::Block(run) => unread.extend(self.read(run)),
            }
        }
        assert!(self.right.iter().copied().eq(unread.iter().copied()), "what is taken back");
        let returns = &self.shared.returns;
        self.runs.take_back(&self.shared.queue, head, |run| returns.done(run.handle, run.bytes));
        self.writer.take_back(&self.shared.produced);
        self.reader.forget();
        // It went by Linux.
        self.right.clear();
    }

    /// The receiver dies, and another one is at the ring's other end: all that was out is back.
    fn dies(&mut self) {
        self.views.clear();
        let Self { out, pages, .. } = self;
        out.take_all().for_each(|block| pages.give_back(block));
        assert!(self.pages.is_unused(), "a block is lost");
        let mut anew = Self::new(self.rng.u64(..));
        (anew.in_blocks, anew.viewed) = (self.in_blocks, self.viewed);
        *self = anew;
    }

    fn check(&self) {
        for view in &self.views {
            assert_eq!(self.read(view.run), view.right, "bytes of a view that lives");
        }
    }

    fn step(&mut self) {
        match self.rng.u32(0..100) {
            0..35 if self.right.len() < 100_000 => self.send(),
            0..65 => self.receive(),
            65..95 => self.touch(),
            95..98 => self.check(),
            98 => self.take_back(),
            _ if self.rng.u32(0..20) == 0 => self.dies(),
            _ => {}
        }
    }

    fn end(&mut self) {
        while !self.right.is_empty() {
            self.receive();
        }
        while !self.views.is_empty() {
            self.touch();
        }
        self.collect();
        assert!(self.out.is_empty() && self.pages.is_unused(), "something never came back");
    }
}

#[test]
fn blocks_bring_what_a_stream_of_bytes_would_and_all_of_them_come_back() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("UNCOPY_BLOCKS_SEED") {
        Some(seed) => vec![seed],
        None => {
            (0..number("UNCOPY_BLOCKS_SEEDS").unwrap_or(40)).map(|_| fastrand::u64(..)).collect()
        }
    };
    let (mut in_blocks, mut viewed) = (0, 0);
    for seed in seeds {
        println!("UNCOPY_BLOCKS_SEED={seed}");
        let mut world = World::new(seed);
        (0..4000).for_each(|_| world.step());
        world.end();
        in_blocks += world.in_blocks;
        viewed += world.viewed;
    }
    assert!(in_blocks > 1000 && viewed > 300, "{in_blocks} went in blocks, {viewed} were viewed");
}
