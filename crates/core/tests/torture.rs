//! The scripts of the torture program (`crates/torture`) on the bare tracker: the same operations,
//! over a simulated address space, beside memory that simply copies. Every byte that is read or
//! sent must agree. Operations that need a kernel are left out of the scripts ([`Profile::bare`]).
//!
//! `UNCOPY_TORTURE_SEEDS=n` runs n seeds, `UNCOPY_TORTURE_SEED=s` runs one.

mod machine;

use machine::{BASE, Machine, POOL, Random, page_of};
use std::ops::Range;
use uncopy_core::plan::{Copies, CopyPlan, InputPlan, OutputPlan, Went};
use uncopy_core::tracker::{Fault, Limits, PoolShape, Tracker};
use uncopy_counters::Counters;
use uncopy_decide::{Control, Costs, Policy};
use uncopy_ranges::filter::Filter;
use uncopy_ranges::span::{PAGE, Span};
use uncopy_torture::bytes;
use uncopy_torture::defined::Defined;
use uncopy_torture::generate::{Profile, generate};
use uncopy_torture::op::{Advice, CopyBy, Heap, InputBy, Op, OutputBy, Slot, WriteBy};
use uncopy_torture::pieces::pieces;
use uncopy_torture::script::{Script, Storage};

/// Size of the larger buffers.
const LARGE: usize = 40 * PAGE;
/// Pages between dynamic buffers: room for the largest, and a page that is nobody's.
const AREA: usize = 2 * LARGE / PAGE + 2;
/// Pages for all buffers of one array.
const ARRAY: usize = 8 * LARGE / PAGE;
const POOL_PAGES: usize = 4096;

/// A buffer, and beside it what must be in it.
#[derive(Default)]
struct Buf {
    at: usize,
    right: Vec<u8>,
    defined: Defined,
    dynamic: bool,
    mapped: bool,
}

impl Buf {
    fn cut(&self, at: usize, len: usize) -> Range<usize> {
        let at = at.min(self.right.len());
        at..at + len.min(self.right.len() - at)
    }

    fn span(&self, r: &Range<usize>) -> Span {
        Span::new(self.at + r.start, self.at + r.end)
    }

    fn pages(&self, page: usize, pages: usize) -> Range<usize> {
        let core = Span::sized(self.at, self.right.len()).core();
        if core.is_empty() {
            return 0..0;
        }
        let page = page.min(core.pages());
        let start = core.start - self.at + page * PAGE;
        start..start + pages.min(core.pages() - page) * PAGE
    }
}

struct World {
    tracker: Tracker<Machine>,
    slots: Vec<Buf>,
    /// For each dynamic buffer, which of its two areas it lies in.
    turn: Vec<usize>,
    random: Random,
    counters: &'static Counters,
    /// How late it is.
    seconds: i64,
}

impl World {
    fn new(script: &Script, seed: u64, refusals: bool, tiny: bool) -> Self {
        let count = script.slots.len();
        let pages = count * 2 * AREA + 2 * ARRAY;
        let machine = Machine::new(pages, POOL_PAGES, !seed, refusals);
        let limits = if tiny {
            Limits { extent_bytes: 96 * PAGE, ranges: 4, views: 60 }
        } else {
            Limits { extent_bytes: POOL_PAGES / 2 * PAGE, ranges: 1000, views: 10_000 }
        };
        let counters: &'static Counters = Box::leak(Box::new(Counters::new()));
        let costs = Costs { lend: 0, ..Costs::REFERENCE };
        let policy = Policy::new(refusals, costs, Box::leak(Box::default())).without_experiments();
        let tracker = Tracker::new(
            machine,
            PoolShape { boundary: POOL_PAGES / 2, pages: POOL_PAGES },
            limits,
            Control::new(policy, 8 << 10),
            Box::leak(Box::new(Filter::new())),
            counters,
        );
        let arrays = BASE + count * 2 * AREA * PAGE;
        let slots = script.slots.iter().map(|b| {
            let at = match b.place {
                Storage::Dynamic => return Buf { dynamic: true, ..Buf::default() },
                Storage::Bss => arrays + b.start,
                _ => arrays + ARRAY * PAGE + b.start,
            };
            Buf { at, right: vec![0; b.len], defined: Defined::all(b.len), ..Buf::default() }
        });
        let slots = slots.collect();
        Self { tracker, slots, turn: vec![0; count], random: Random(seed), counters, seconds: 0 }
    }

    // -------------------------------------------------- memory, as the program sees it

    /// Touches the page at `addr`: what the monitor does on a fault.
    fn touch(&mut self, addr: usize) -> &mut [u8; PAGE] {
        let page = page_of(addr);
        let mut tries = 0;
        while self.tracker.memory.program[page].is_none() {
            tries += 1;
            assert!(tries < 1000, "fault at {addr:#x} is never answered");
            let registered = self.tracker.memory.registered.touches(Span::sized(addr, 1));
            if !registered || self.tracker.fault(addr) == Fault::Unknown {
                self.tracker.memory.program[page] = Some(Box::new([0; PAGE]));
            }
        }
        self.tracker.memory.program[page].as_mut().unwrap()
    }

    /// The bytes at `addr`, page by page: the program's memory or the pool's.
    fn load(&mut self, addr: usize, to: &mut [u8]) {
        let mut at = addr;
        let mut rest = to;
        while !rest.is_empty() {
            let n = (PAGE - at % PAGE).min(rest.len());
            let (head, tail) = rest.split_at_mut(n);
            if at >= POOL {
                head.iter_mut()
                    .enumerate()
                    .for_each(|(i, b)| *b = *self.tracker.memory.pool_byte(at + i));
            } else {
                head.copy_from_slice(&self.touch(at)[at % PAGE..at % PAGE + n]);
            }
            rest = tail;
            at += n;
        }
    }

    fn store(&mut self, addr: usize, from: &[u8]) {
        let mut at = addr;
        let mut rest = from;
        while !rest.is_empty() {
            let n = (PAGE - at % PAGE).min(rest.len());
            if at >= POOL {
                rest[..n]
                    .iter()
                    .enumerate()
                    .for_each(|(i, b)| *self.tracker.memory.pool_byte(at + i) = *b);
            } else {
                self.touch(at)[at % PAGE..at % PAGE + n].copy_from_slice(&rest[..n]);
            }
            rest = &rest[n..];
            at += n;
        }
    }

    fn move_bytes(&mut self, to: usize, from: usize, len: usize) {
        let mut bytes = vec![0; len];
        self.load(from, &mut bytes);
        self.store(to, &bytes);
    }

    fn execute(&mut self, copies: &Copies) {
        copies.iter().for_each(|c| self.move_bytes(c.to, c.from, c.len));
    }

    /// Some byte of some buffer is read, as by another thread; and time passes.
    fn stray_touch(&mut self) {
        self.seconds += 1;
        self.tracker.drop_idle(self.seconds);
        if self.random.one_in(4) {
            let slot = self.random.below(self.slots.len());
            let b = &self.slots[slot];
            if !b.right.is_empty() {
                let addr = b.at + self.random.below(b.right.len());
                self.touch(addr);
            }
        }
    }

    /// Checks that the bytes known of `range` are there.
    fn expect(&mut self, slot: Slot, range: Range<usize>, what: &str) {
        for part in self.slots[slot].defined.within(range) {
            let mut bytes = vec![0; part.len()];
            self.load(self.slots[slot].at + part.start, &mut bytes);
            self.compare(slot, part.start, &bytes, what);
        }
    }

    fn compare(&self, slot: Slot, at: usize, bytes: &[u8], what: &str) {
        let right = &self.slots[slot].right[at..at + bytes.len()];
        if let Some(i) = (0..bytes.len()).find(|i| bytes[*i] != right[*i]) {
            panic!("{what}: byte {} of slot {slot} is wrong ({} of {})", at + i, i, bytes.len());
        }
    }

    // -------------------------------------------------- operations

    fn carry_out(&mut self, op: Op) {
        match op {
            Op::Alloc { slot, size, by } if self.slots[slot].dynamic => {
                self.free(slot);
                self.place(slot, 0, size, by == Heap::Calloc);
                if by == Heap::Calloc {
                    // A recycled block is cleared by hand, as an allocator does.
                    self.store(self.slots[slot].at, &vec![0; size]);
                }
            }
            Op::Map { slot, pages, skew, .. } if self.slots[slot].dynamic => {
                self.free(slot);
                let base = self.area(slot);
                self.map_anew(Span::sized(base, pages * PAGE));
                let skew = skew.min(pages * PAGE);
                self.place(slot, skew, pages * PAGE - skew, true);
                self.slots[slot].mapped = true;
            }
            Op::Free { slot } if self.slots[slot].dynamic => self.free(slot),
            Op::Realloc { slot, size } if self.slots[slot].dynamic && !self.slots[slot].mapped => {
                self.reallocate(slot, size);
            }
            Op::Remap { slot, pages } if self.slots[slot].mapped => self.remap(slot, pages),
            Op::MapOver { slot, page, pages } if self.slots[slot].mapped => {
                let range = self.slots[slot].pages(page, pages);
                self.map_anew(self.slots[slot].span(&range));
                self.slots[slot].right[range.clone()].fill(0);
                self.slots[slot].defined.insert(range);
            }
            Op::Advise { slot, page, pages, how: Advice::DontNeed } => {
                let range = self.slots[slot].pages(page, pages);
                let span = self.slots[slot].span(&range);
                self.tracker.removed(span);
                self.drop_pages(span);
                self.slots[slot].right[range.clone()].fill(0);
                self.slots[slot].defined.insert(range);
            }
            Op::Input { slot, at, len, by, give, pieces, key, .. } => {
                let range = self.slots[slot].cut(at, len);
                let vectored = matches!(by, InputBy::Readv | InputBy::Preadv | InputBy::Recvmsg);
                self.input(slot, range, give, if vectored { pieces } else { 1 }, key);
            }
            Op::Output { slot, at, len, by, pieces, key, .. } => {
                let range = self.slots[slot].cut(at, len);
                let vectored = matches!(by, OutputBy::Writev | OutputBy::Sendmsg);
                self.output(slot, range, if vectored { pieces } else { 1 }, key);
            }
            Op::Copy { dst, to, src, from, len, by, site } => {
                let (d, s) = (self.slots[dst].cut(to, len), self.slots[src].cut(from, len));
                let n = d.len().min(s.len());
                let inline = matches!(by, CopyBy::Inline | CopyBy::Kernel);
                self.copy(dst, d.start, src, s.start, n, site * 64 + 64, inline);
            }
            Op::Write { slot, at, len, by, key } => {
                let range = self.slots[slot].cut(at, len);
                let mut content = vec![key as u8; range.len()];
                if by == WriteBy::Stores {
                    bytes::fill(key, 0, &mut content);
                }
                self.store(self.slots[slot].at + range.start, &content);
                self.now(slot, range.start, &content);
            }
            Op::Read { slot, at, len } => {
                let range = self.slots[slot].cut(at, len);
                self.expect(slot, range, "read");
            }
            Op::Compare { one, at, other, with, len } => {
                for (slot, at) in [(one, at), (other, with)] {
                    let range = self.slots[slot].cut(at, len);
                    self.expect(slot, range, "compare");
                }
            }
            Op::Fork { .. } => self.fork(),
            _ => {}
        }
        while self.tracker.wants_eviction() && self.tracker.evict(8) != Ok(false) {}
        self.tracker.check().unwrap();
    }

    /// `content` is what is right from now on.
    fn now(&mut self, slot: Slot, at: usize, content: &[u8]) {
        let b = &mut self.slots[slot];
        b.right[at..at + content.len()].copy_from_slice(content);
        b.defined.insert(at..at + content.len());
    }

    fn area(&self, slot: Slot) -> usize {
        BASE + (slot * 2 + self.turn[slot]) * AREA * PAGE
    }

    fn place(&mut self, slot: Slot, skew: usize, size: usize, zeros: bool) {
        let defined = if zeros { Defined::all(size) } else { Defined::default() };
        let at = self.area(slot) + skew;
        self.slots[slot] = Buf { at, right: vec![0; size], defined, dynamic: true, mapped: false };
    }

    fn free(&mut self, slot: Slot) {
        let (at, len) = (self.slots[slot].at, self.slots[slot].right.len());
        if self.slots[slot].mapped {
            self.map_anew(Span::sized(at, len).covering_pages());
        } else if len > 0 {
            self.tracker.freed(at, len);
        }
        self.slots[slot] = Buf { dynamic: true, ..Buf::default() };
    }

    fn drop_pages(&mut self, span: Span) {
        for addr in (span.start..span.end).step_by(PAGE) {
            self.tracker.memory.program[page_of(addr)] = None;
        }
    }

    /// munmap (one that fails before, now and then) and mmap of the same addresses.
    fn map_anew(&mut self, span: Span) {
        let detached = self.tracker.detach(span);
        if self.random.one_in(4) {
            self.tracker.reattach(&detached);
        } else {
            self.tracker.drop_detached(&detached);
        }
        self.drop_pages(span);
        self.tracker.memory.registered.remove(span);
        self.tracker.munmapped(span);
    }

    /// Into the other area: a new block, a copy, and the old one freed.
    fn reallocate(&mut self, slot: Slot, size: usize) {
        let old = std::mem::take(&mut self.slots[slot]);
        if old.right.is_empty() {
            self.slots[slot] = old;
            return;
        }
        self.turn[slot] ^= 1;
        self.place(slot, 0, size, false);
        let n = size.min(old.right.len());
        let at = self.slots[slot].at;
        self.copy_memory(at, old.at, n, 7);
        self.tracker.freed(old.at, old.right.len());
        let b = &mut self.slots[slot];
        b.right[..n].copy_from_slice(&old.right[..n]);
        b.defined.copy(0, &old.defined, 0..n);
    }

    /// The kernel moves a mapping with its missing pages and its registration, then reports it.
    fn remap(&mut self, slot: Slot, pages: usize) {
        let b = &self.slots[slot];
        let old = Span::sized(b.at, b.right.len()).covering_pages();
        let skew = b.at - old.start;
        let new = (pages.max(1) * PAGE).max(skew + 1).next_multiple_of(PAGE);
        self.turn[slot] ^= 1;
        let to = self.area(slot);
        let kept = old.len().min(new);
        self.map_anew(Span::sized(to, new));
        self.map_anew(Span::new(old.start + kept, old.end));
        for i in 0..kept / PAGE {
            let page = self.tracker.memory.program[page_of(old.start) + i].take();
            self.tracker.memory.program[page_of(to) + i] = page;
        }
        let registered: Vec<Span> = self.tracker.memory.registered.iter().collect();
        for r in registered.iter().map(|r| r.intersect(Span::sized(old.start, kept))) {
            if !r.is_empty() {
                self.tracker.memory.registered.remove(r);
                let there = Span::sized(r.start - old.start + to, r.len());
                self.tracker.memory.registered.insert(there);
            }
        }
        self.tracker.remapped(old.start, to, kept);
        let b = &mut self.slots[slot];
        let len = b.right.len();
        b.at = to + skew;
        b.right.resize(new - skew, 0);
        b.defined.remove(new - skew..len.max(new - skew));
        b.defined.insert(len.min(new - skew)..new - skew);
    }

    fn input(&mut self, slot: Slot, range: Range<usize>, give: usize, count: usize, key: u64) {
        let start = self.slots[slot].at + range.start;
        let parts = pieces(range.len(), count, key);
        let received = give.min(range.len());
        let mut data = vec![0; received];
        bytes::fill(key, 0, &mut data);
        let mut plan = InputPlan::default();
        let buffers: Vec<(usize, usize)> = parts.iter().map(|&(at, n)| (start + at, n)).collect();
        self.tracker.input_begin(&buffers, &mut plan);
        let targets: Vec<(usize, usize)> = if plan.bypass {
            buffers
        } else {
            plan.targets.iter().map(|t| (t.at, t.len)).collect()
        };
        self.stray_touch();
        let mut left = &data[..];
        for (at, len) in targets {
            let n = len.min(left.len());
            self.store(at, &left[..n]);
            left = &left[n..];
        }
        if !plan.bypass {
            self.stray_touch();
            self.tracker.input_commit(&mut plan, received);
            self.stray_touch();
            self.execute(&plan.copies);
            self.tracker.unpin(&mut plan.pins);
        }
        let mut left = &data[..];
        for (at, len) in parts {
            let n = len.min(left.len());
            self.now(slot, range.start + at, &left[..n]);
            left = &left[n..];
        }
    }

    fn output(&mut self, slot: Slot, range: Range<usize>, count: usize, key: u64) {
        let range = self.slots[slot].defined.first_in(range);
        let start = self.slots[slot].at + range.start;
        let parts = pieces(range.len(), count, key);
        let mut plan = OutputPlan::default();
        let buffers: Vec<(usize, usize)> = parts.iter().map(|&(at, n)| (start + at, n)).collect();
        self.tracker.output_begin(&buffers, &mut plan);
        if plan.bypass {
            return self.expect(slot, range, "output as it is");
        }
        self.stray_touch();
        let mut sent = Vec::new();
        for (at, len) in plan.pieces.clone() {
            let from = sent.len();
            sent.resize(from + len, 0);
            self.load(at, &mut sent[from..]);
        }
        assert_eq!(sent.len(), range.len(), "the pieces are not the buffers");
        let mut at = 0;
        for (offset, len) in parts {
            self.compare(slot, range.start + offset, &sent[at..at + len], "output");
            at += len;
        }
        self.tracker.lend(&mut plan, 6400);
        for (i, &(at, len)) in plan.pieces.iter().enumerate() {
            if plan.lent >> i & 1 != 0 {
                self.tracker.memory.lend(at, len);
            }
        }
        let lent = plan.lent != 0;
        self.tracker.output_done(
            &mut plan,
            range.len(),
            if lent { Went::Lent } else { Went::Copied },
        );
        self.tracker.memory.check_lent();
    }

    #[allow(clippy::too_many_arguments)]
    fn copy(
        &mut self,
        dst: Slot,
        to: usize,
        src: Slot,
        from: usize,
        n: usize,
        site: usize,
        inline: bool,
    ) {
        let (d, s) = (self.slots[dst].at + to, self.slots[src].at + from);
        if inline {
            self.move_bytes(d, s, n);
        } else {
            self.copy_memory(d, s, n, site);
        }
        let content = self.slots[src].right[from..from + n].to_vec();
        let known = self.slots[src].defined.clone();
        let b = &mut self.slots[dst];
        b.right[to..to + n].copy_from_slice(&content);
        b.defined.copy(to, &known, from..from + n);
    }

    fn copy_memory(&mut self, to: usize, from: usize, len: usize, site: usize) {
        let mut plan = CopyPlan::default();
        let input = self.random.one_in(2);
        self.tracker.copy_begin(to, from, len, site, input, &mut plan);
        if plan.bypass {
            return self.move_bytes(to, from, len);
        }
        if !plan.staged.is_empty() {
            self.stray_touch();
            let staged = std::mem::take(&mut plan.staged);
            self.execute(&staged);
            plan.staged = staged;
            self.stray_touch();
            self.tracker.copy_commit(&mut plan);
        }
        self.stray_touch();
        self.execute(&plan.copies);
        self.tracker.unpin(&mut plan.pins);
    }

    /// In the child: the same pages, nothing registered.
    fn fork(&mut self) {
        self.tracker.memory.registered.clear();
        if self.random.one_in(2) && self.tracker.register_all_again().is_ok() {
            return;
        }
        self.tracker.memory.registered.clear();
        let mut copies = Vec::new();
        self.tracker.write_all_out(|c| copies.push(c));
        copies.into_iter().for_each(|c| self.move_bytes(c.to, c.from, c.len));
    }
}

/// Runs the script of `seed`; returns how many copies were elided.
fn run(seed: u64, refusals: bool, tiny: bool) -> u64 {
    let profile =
        Profile { large: LARGE, bare: true, forks: seed.is_multiple_of(3), ..Profile::default() };
    let script = generate(seed, &profile);
    let mut world = World::new(&script, seed, refusals, tiny);
    for line in script.lines.iter() {
        world.carry_out(line.op);
    }
    for slot in 0..world.slots.len() {
        world.expect(slot, 0..world.slots[slot].right.len(), "at the end");
    }
    world.counters.snapshot().elided_copies
}

fn run_seeds(refusals: bool, tiny: bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let one = number("UNCOPY_TORTURE_SEED");
    let seeds = match one {
        Some(s) => s..s + 1,
        None => 0..number("UNCOPY_TORTURE_SEEDS").unwrap_or(60),
    };
    let mut elided = 0;
    for seed in seeds {
        match std::panic::catch_unwind(|| run(seed, refusals, tiny)) {
            Ok(n) => elided += n,
            Err(e) => {
                eprintln!("repeat with UNCOPY_TORTURE_SEED={seed}");
                std::panic::resume_unwind(e);
            }
        }
    }
    assert!(one.is_some() || elided > 100, "only {elided} copies were elided: nothing was tested");
}

#[test]
fn every_byte_of_a_torture_script_agrees() {
    run_seeds(false, false);
}

#[test]
fn every_byte_agrees_when_the_kernel_refuses_at_random() {
    run_seeds(true, false);
}

#[test]
fn every_byte_agrees_when_limits_are_tiny() {
    run_seeds(false, true);
}

#[test]
fn every_byte_agrees_when_limits_are_tiny_and_the_kernel_refuses() {
    run_seeds(true, true);
}
