//! The words of one process, understood: for the reader.

use super::layout::{
    CALLS, Kind, LAYOUT, MAGIC, MODULES, NODES, ROWS, SITES, Sizes, Step, Table, Tables, WORDS,
    header, node, row, site,
};
use core::sync::atomic::AtomicU64;

/// Where a call is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The call.
    pub call: &'static str,
    /// Where it returns to: in the file's own addresses, or of the process, where it is in no file.
    pub address: u64,
    /// The file's path; empty: no file.
    pub module: String,
}

/// See [`super::layout::node`].
#[derive(Clone, Debug)]
pub struct Node {
    /// Number of the node before; its own: none.
    pub parent: usize,
    /// Number of the site.
    pub site: usize,
    /// The step that it adds.
    pub step: Step,
    /// The kind of the input's descriptor.
    pub kind: Kind,
    /// Calls.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that left at least once.
    pub forwarded: u64,
    /// Bytes that ended without having left.
    pub consumed: u64,
    /// Bytes that were too few, or forgotten.
    pub lost: u64,
    /// Bytes watched.
    pub watched: u64,
    /// Bytes of touched pages.
    pub touched: u64,
    /// Touches.
    pub faults: u64,
    /// Inputs watched.
    pub probes: u64,
    /// Bytes watched where this node has them.
    pub shown: u64,
    /// Bytes of pages touched there.
    pub touched_here: u64,
    /// Calls by size class.
    pub sizes: Sizes,
}

/// See [`super::layout::row`].
#[derive(Clone, Debug)]
pub struct Row {
    /// Number of the node.
    pub node: usize,
    /// Number of the output site.
    pub site: usize,
    /// The kind of its descriptor.
    pub kind: Kind,
    /// Calls.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes watched.
    pub watched: u64,
    /// Bytes of touched pages.
    pub touched: u64,
    /// Calls by size class.
    pub sizes: Sizes,
}

/// The tables that one process left.
#[derive(Clone, Debug)]
pub struct Part {
    /// Path of the program.
    pub program: String,
    /// Words of the header.
    head: Vec<u64>,
    /// Places of calls.
    pub sites: Vec<Site>,
    /// The tree of sequences.
    pub nodes: Vec<Node>,
    /// The bytes that left.
    pub rows: Vec<Row>,
}

/// Counts by size class, from the word `first` of entry `i` on.
fn sizes(book: &Tables, table: Table, i: usize, first: usize) -> Sizes {
    core::array::from_fn(|class| book.get(table, i, first + class))
}

impl Site {
    fn read(book: &Tables, i: usize, modules: &[String]) -> Self {
        let get = |field| book.get(SITES, i, field);
        let module = (get(site::MODULE) as usize).checked_sub(1).and_then(|m| modules.get(m));
        Self {
            call: CALLS.get(get(site::CALL) as usize).copied().unwrap_or("?"),
            address: get(if module.is_some() { site::IN_FILE } else { site::ADDRESS }),
            module: module.cloned().unwrap_or_default(),
        }
    }
}

impl Node {
    fn read(book: &Tables, i: usize) -> Self {
        let get = |field| book.get(NODES, i, field);
        Self {
            // (A part that is being written may be damaged; it must not lead round in circles.)
            parent: (get(node::PARENT) as usize).min(i),
            site: get(node::SITE) as usize,
            step: Step::of(get(node::STEP)),
            kind: Kind::of(get(node::KIND)),
            ops: get(node::OPS),
            bytes: get(node::BYTES),
            forwarded: get(node::FORWARDED),
            consumed: get(node::CONSUMED),
            lost: get(node::LOST),
            watched: get(node::WATCHED),
            touched: get(node::TOUCHED),
            faults: get(node::FAULTS),
            probes: get(node::PROBES),
            shown: get(node::SHOWN),
            touched_here: get(node::TOUCHED_HERE),
            sizes: sizes(book, NODES, i, node::CLASS),
        }
    }
}

impl Row {
    /// `nodes`: how many there are.
    fn read(book: &Tables, i: usize, nodes: usize) -> Self {
        let get = |field| book.get(ROWS, i, field);
        Self {
            node: (get(row::NODE) as usize).min(nodes - 1),
            site: get(row::SITE) as usize,
            kind: Kind::of(get(row::KIND)),
            ops: get(row::OPS),
            bytes: get(row::BYTES),
            watched: get(row::WATCHED),
            touched: get(row::TOUCHED),
            sizes: sizes(book, ROWS, i, row::CLASS),
        }
    }
}

impl Part {
    /// Reads a file's content; `None`: it is not one, or of another version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let words: Vec<AtomicU64> = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|w| AtomicU64::new(u64::from_le_bytes(*w)))
            .collect();
        if words.len() != WORDS {
            return None;
        }
        let book = Tables::new(&words);
        if book.head(header::MAGIC) != MAGIC || book.head(header::LAYOUT) != LAYOUT {
            return None;
        }
        let modules: Vec<String> = (0..book.used(MODULES)).map(|i| book.path(Some(i))).collect();
        let sites = (0..book.used(SITES)).map(|i| Site::read(&book, i, &modules));
        let nodes: Vec<Node> = (0..book.used(NODES)).map(|i| Node::read(&book, i)).collect();
        if nodes.is_empty() {
            return None;
        }
        let rows = (0..book.used(ROWS)).map(|i| Row::read(&book, i, nodes.len()));
        Some(Self {
            program: book.path(None),
            head: (0..header::PATH).map(|i| book.head(i)).collect(),
            sites: sites.collect(),
            rows: rows.collect(),
            nodes,
        })
    }

    /// A word of the header ([`header`]).
    pub fn head(&self, word: usize) -> u64 {
        self.head.get(word).copied().unwrap_or(0)
    }

    /// The nodes from the input to `node`, which is the last.
    pub fn chain(&self, node: usize) -> Vec<usize> {
        let mut chain = vec![node];
        let mut at = node;
        while at < self.nodes.len() && self.nodes[at].parent != at {
            at = self.nodes[at].parent;
            chain.push(at);
        }
        chain.reverse();
        chain
    }
}
