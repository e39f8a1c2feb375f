//! Follows every input through copies to outputs, and credits what arrived there.

mod watch;

use crate::inputs::{Inputs, STRIDE, WORD};
use crate::layout::{Kind, NODES, ROWS, Step, Tables, class, header, node, row};
use crate::tags::{Edge, Piece, Tag, Tags};
use std::collections::BTreeMap;
use uncopy_ranges::span::Span;

/// Data that lies for so long between two steps is said to have rested: a store is told from a
/// relay.
pub const REST_MS: u32 = 500;
/// Longest sequence of steps that is told apart.
const DEPTH: u8 = 40;

/// Reads the program's memory.
pub trait ProgramMemory {
    /// The 8 bytes at `addr`, which the program may read at this moment.
    fn word(&self, addr: usize) -> u64;
}

/// Bounds on what the follower keeps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Inputs, outputs and copies of fewer bytes are not followed.
    pub least: usize,
    /// Most runs of tagged bytes.
    pub pieces: usize,
    /// Most fingerprints (8 bytes each).
    pub words: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Follower<'a> {
    book: Tables<'a>,
    bounds: Bounds,
    tags: Tags,
    inputs: Inputs,
    edges: BTreeMap<Edge, u32>,
    roots: BTreeMap<(u32, Kind, Step), u32>,
    rows: BTreeMap<(u32, u32, Kind), u32>,
    depths: Vec<u8>,
    watched: Option<u32>,
    /// The present, in ms.
    pub now: u32,
}

impl<'a> Follower<'a> {
    /// Follows nothing yet.
    pub fn new(book: Tables<'a>, bounds: Bounds) -> Self {
        if book.used(NODES) == 0 {
            book.open(NODES);
        }
        Self {
            book,
            bounds,
            tags: Tags::default(),
            inputs: Inputs::default(),
            edges: BTreeMap::new(),
            roots: BTreeMap::new(),
            rows: BTreeMap::new(),
            depths: vec![0],
            watched: None,
            now: 0,
        }
    }

    /// Where it writes.
    pub fn book(&self) -> Tables<'a> {
        self.book
    }

    /// Runs of tagged bytes.
    pub fn pieces(&self) -> usize {
        self.tags.len()
    }

    /// All runs.
    pub fn all(&self) -> impl Iterator<Item = Piece> + '_ {
        self.tags.iter()
    }

    /// The known pieces of `span`.
    pub fn known(&self, span: Span) -> Vec<Piece> {
        self.tags.within(span).collect()
    }

    fn node(&mut self, parent: u32, site: u32, step: Step, kind: Kind) -> Option<u32> {
        let id = self.book.open(NODES)? as u32;
        let parent = if matches!(step, Step::Input | Step::Pass) { id } else { parent };
        let values = [
            (node::PARENT, parent.into()),
            (node::SITE, site.into()),
            (node::STEP, step as u64),
            (node::KIND, kind as u64),
        ];
        for (field, value) in values {
            self.book.set(NODES, id as usize, field, value);
        }
        let depth = if parent == id { 0 } else { self.depths[parent as usize] };
        self.depths.push(depth.saturating_add(1));
        Some(id)
    }

    fn root(&mut self, site: u32, kind: Kind, step: Step) -> Option<u32> {
        if let Some(id) = self.roots.get(&(site, kind, step)) {
            return Some(*id);
        }
        let id = self.node(0, site, step, kind)?;
        self.roots.insert((site, kind, step), id);
        Some(id)
    }

    /// The node behind `parent`; the same, where sequences are no longer told apart.
    fn child(&mut self, parent: u32, site: u32, step: Step) -> u32 {
        if let Some(id) = self.edges.get(&(parent, site, step)) {
            return *id;
        }
        if self.depths[parent as usize] >= DEPTH {
            return parent;
        }
        let Some(id) = self.node(parent, site, step, Kind::Other) else { return parent };
        self.edges.insert((parent, site, step), id);
        id
    }

    /// Where a run of bytes is when its next step comes.
    fn rested(&mut self, tag: Tag) -> u32 {
        if self.now.wrapping_sub(tag.time) < REST_MS {
            return tag.node;
        }
        self.child(tag.node, 0, Step::Rest)
    }

    /// A call of `len` bytes moved `bytes` that are followed. (Controllers go by the call's size.)
    fn count(&self, id: u32, bytes: usize, len: usize) {
        let id = id as usize;
        self.book.add(NODES, id, node::OPS, 1);
        self.book.add(NODES, id, node::BYTES, bytes as u64);
        self.book.add(NODES, id, node::CLASS + class(len), 1);
    }

    /// `bytes` have arrived in `spans`, in this order. Returns the number of the input, if it is
    /// followed.
    pub fn input(
        &mut self,
        spans: impl Iterator<Item = (usize, usize)> + Clone,
        bytes: usize,
        site: u32,
        kind: Kind,
        memory: &impl ProgramMemory,
    ) -> Option<u32> {
        if bytes == 0 {
            return None;
        }
        self.book.add_head(header::IN_BYTES, bytes as u64);
        let mut offset = 0;
        let filled = spans
            .map(move |(addr, len)| {
                let len = len.min(bytes - offset);
                offset += len;
                (Span::sized(addr, len), offset - len)
            })
            .filter(|(span, _)| !span.is_empty());
        for (span, _) in filled.clone() {
            self.ended(span);
        }
        let root = self.root(site, kind, Step::Input)?;
        self.count(root, bytes, bytes);
        if bytes < self.bounds.least {
            self.book.add(NODES, root as usize, node::LOST, bytes as u64);
            return None;
        }
        let id = self.inputs.add(root, bytes);
        for (span, offset) in filled {
            let tag = Tag { input: id, offset, node: root, time: self.now };
            self.put(Piece { span, tag });
            let Some(input) = self.inputs.get(id) else { continue };
            for at in marks(offset, span.len()) {
                input.fingerprint(at, memory.word(span.start + (at - offset)));
            }
        }
        self.keep_bounds();
        Some(id)
    }

    fn put(&mut self, piece: Piece) {
        if let Some(input) = self.inputs.get(piece.tag.input) {
            input.live += piece.span.len();
            self.tags.put(piece);
        }
    }

    /// Fewer bytes of the input are tagged; ends it with the last.
    fn less(&mut self, id: u32, bytes: usize) {
        let Some(input) = self.inputs.get(id) else { return };
        input.live -= bytes;
        if input.live == 0 {
            self.close(id, node::CONSUMED);
        }
    }

    fn close(&mut self, id: u32, rest: usize) {
        let Some(input) = self.inputs.remove(id) else { return };
        if self.watched == Some(id) {
            self.watched = None;
        }
        let never_left = input.len - input.left.total();
        self.book.add(NODES, input.root as usize, rest, never_left as u64);
    }

    /// Other bytes are in `span` now, or none.
    pub fn ended(&mut self, span: Span) {
        for piece in self.tags.take(span) {
            self.less(piece.tag.input, piece.span.len());
        }
    }

    /// The same bytes, by the same page-table entries, are elsewhere now (`mremap`).
    pub fn moved(&mut self, from: Span, to: usize) {
        let lifted = self.lift(from);
        self.put_down(lifted, from.start, Span::sized(to, from.len()), None);
    }

    /// Takes up what is known of `span` before a call that resizes it, perhaps elsewhere.
    pub fn lift(&mut self, span: Span) -> Vec<Piece> {
        self.tags.take(span)
    }

    /// Puts down what was lifted: what began at `from` begins at `to.start` now, as far as `to`
    /// goes. With a `site` it was copied there.
    pub fn put_down(&mut self, lifted: Vec<Piece>, from: usize, to: Span, site: Option<u32>) {
        for piece in self.tags.take(to) {
            self.less(piece.tag.input, piece.span.len());
        }
        let mut by_node: BTreeMap<u32, usize> = BTreeMap::new();
        for p in lifted {
            let span = Span::sized(to.start + (p.span.start - from), p.span.len());
            let fits = span.intersect(to);
            let mut tag = p.tag;
            if let Some(site) = site {
                let before = self.rested(p.tag);
                tag = Tag { node: self.child(before, site, Step::Copy), time: self.now, ..tag };
                *by_node.entry(tag.node).or_default() += fits.len();
            }
            if !fits.is_empty() {
                self.tags.put(Piece { span: fits, tag });
            }
            if fits.len() < span.len() {
                self.less(p.tag.input, span.len() - fits.len());
            }
        }
        for (node, bytes) in by_node {
            self.count(node, bytes, to.len());
        }
    }

    /// The parts of `span` that still are what arrived. Parts that were rewritten lose their tags.
    fn genuine(&mut self, span: Span, memory: &impl ProgramMemory) -> Vec<Piece> {
        let mut good: Vec<Piece> = Vec::new();
        let mut bad = Vec::new();
        for piece in self.tags.within(span).collect::<Vec<_>>() {
            let Some(input) = self.inputs.get(piece.tag.input) else { continue };
            // Runs end where another fingerprint begins.
            let mut from = piece.span.start;
            let mut fine = true;
            let mut seen = false;
            for at in marks(piece.tag.offset, piece.span.len()) {
                let addr = piece.span.start + (at - piece.tag.offset);
                let same = input.unchanged(at, memory.word(addr));
                if seen && same != fine {
                    let run = piece.within(Span::new(from, addr));
                    if fine {
                        good.push(run)
                    } else {
                        bad.push(run)
                    }
                    from = addr;
                }
                (fine, seen) = (same, true);
            }
            let run = piece.within(Span::new(from, piece.span.end));
            if fine { good.push(run) } else { bad.push(run) }
        }
        for run in bad {
            self.book.add_head(header::REWRITTEN, run.span.len() as u64);
            self.ended(run.span);
        }
        good
    }

    /// `len` bytes were copied, or are about to be (the source must still hold them).
    pub fn copied(
        &mut self,
        dst: usize,
        src: usize,
        len: usize,
        site: u32,
        memory: &impl ProgramMemory,
    ) {
        if dst == src {
            return;
        }
        let pieces = self.genuine(Span::sized(src, len), memory);
        // So that an input whose last bytes are overwritten by their own copy stays.
        for p in &pieces {
            if let Some(input) = self.inputs.get(p.tag.input) {
                input.live += p.span.len();
            }
        }
        self.ended(Span::sized(dst, len));
        let mut by_node: BTreeMap<u32, usize> = BTreeMap::new();
        for p in pieces {
            let before = self.rested(p.tag);
            let node = self.child(before, site, Step::Copy);
            *by_node.entry(node).or_default() += p.span.len();
            let span = Span::sized(dst + (p.span.start - src), p.span.len());
            self.put(Piece { span, tag: Tag { node, time: self.now, ..p.tag } });
            self.less(p.tag.input, p.span.len());
        }
        self.book.add_head(header::COPIES, u64::from(!by_node.is_empty()));
        for (node, bytes) in by_node {
            self.book.add_head(header::COPIED_BYTES, bytes as u64);
            self.count(node, bytes, len);
        }
        self.keep_bounds();
    }

    /// `bytes` have left from `spans`, in this order.
    pub fn output(
        &mut self,
        spans: impl Iterator<Item = (usize, usize)>,
        bytes: usize,
        site: u32,
        kind: Kind,
        memory: &impl ProgramMemory,
    ) {
        if bytes == 0 {
            return;
        }
        self.book.add_head(header::OUT_BYTES, bytes as u64);
        /// Bytes, watched ones and touched ones.
        type Sums = [usize; 3];
        let mut by_node: BTreeMap<u32, Sums> = BTreeMap::new();
        let mut rest = bytes;
        let mut unknown = bytes;
        for (addr, len) in spans {
            let span = Span::sized(addr, len.min(rest));
            rest -= span.len();
            for p in self.genuine(span, memory) {
                let node = self.rested(p.tag);
                unknown -= p.span.len();
                let sums = by_node.entry(node).or_default();
                sums[0] += p.span.len();
                let Some(input) = self.inputs.get(p.tag.input) else { continue };
                let (start, end) = (p.tag.offset, p.tag.offset + p.span.len());
                let new = input.left.add(start, end);
                if let Some(watch) = &input.watch {
                    sums[1] += watch.watched.count(start, end);
                    sums[2] += watch.touched.count(start, end);
                }
                let root = input.root as usize;
                self.book.add(NODES, root, node::FORWARDED, new as u64);
            }
        }
        if unknown > 0 {
            by_node.insert(0, [unknown, 0, 0]);
        }
        for (node, sums) in by_node {
            self.row(node, site, kind, sums);
        }
    }

    fn row(&mut self, node: u32, site: u32, kind: Kind, [bytes, watched, touched]: [usize; 3]) {
        let id = match self.rows.get(&(node, site, kind)) {
            Some(id) => *id as usize,
            None => {
                let Some(id) = self.book.open(ROWS) else { return };
                self.book.set(ROWS, id, row::NODE, node.into());
                self.book.set(ROWS, id, row::SITE, site.into());
                self.book.set(ROWS, id, row::KIND, kind as u64);
                self.rows.insert((node, site, kind), id as u32);
                id
            }
        };
        self.book.add(ROWS, id, row::OPS, 1);
        self.book.add(ROWS, id, row::BYTES, bytes as u64);
        self.book.add(ROWS, id, row::WATCHED, watched as u64);
        self.book.add(ROWS, id, row::TOUCHED, touched as u64);
        self.book.add(ROWS, id, row::CLASS + class(bytes), 1);
    }

    /// The kernel passed `bytes` on by itself (`sendfile`, `splice`, ...).
    pub fn passed(&mut self, bytes: usize, site: u32, from: Kind, to: Kind) {
        if bytes == 0 {
            return;
        }
        self.book.add_head(header::IN_BYTES, bytes as u64);
        self.book.add_head(header::OUT_BYTES, bytes as u64);
        let Some(root) = self.root(site, from, Step::Pass) else { return };
        self.count(root, bytes, bytes);
        self.book.add(NODES, root as usize, node::FORWARDED, bytes as u64);
        self.row(root, site, to, [bytes, 0, 0]);
    }

    /// Forgets the oldest quarter of the inputs while a bound is exceeded.
    fn keep_bounds(&mut self) {
        while self.tags.len() > self.bounds.pieces || self.inputs.words() > self.bounds.words {
            let youngest = self.inputs.first_quarter();
            let inputs = &mut self.inputs;
            let mut old = std::collections::BTreeSet::new();
            self.tags.retain(|p| {
                let keep = inputs.get(p.tag.input).is_some_and(|i| i.born > youngest);
                if !keep {
                    old.insert(p.tag.input);
                }
                keep
            });
            self.book.add_head(header::EVICTIONS, 1);
            if old.is_empty() {
                break;
            }
            for id in old {
                self.close(id, node::LOST);
            }
        }
    }
}

/// Offsets at which fingerprints are taken in `len` bytes from `offset` on.
fn marks(offset: usize, len: usize) -> impl Iterator<Item = usize> {
    (offset.next_multiple_of(STRIDE)..(offset + len + 1).saturating_sub(WORD)).step_by(STRIDE)
}
