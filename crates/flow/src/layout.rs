//! The words that a followed process leaves for `uncopy profile`: one flat run of 64-bit words in a
//! file that both map or read, so that a process which is killed has still said everything.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Begins every part.
pub const MAGIC: u64 = 0x3154_4c46_5950_434e;
/// Number of this layout; readers of another one keep off.
pub const LAYOUT: u64 = 3;

/// Size classes: powers of two from 256 B to 8 MB, the last one open.
pub const CLASSES: usize = 16;
const FIRST_CLASS: u32 = 8;

/// The class of a size in bytes.
pub fn class(len: usize) -> usize {
    (len.max(1).ilog2().max(FIRST_CLASS) - FIRST_CLASS).min(CLASSES as u32 - 1) as usize
}

/// The smallest size of a class, in bytes.
pub fn class_start(class: usize) -> u64 {
    1 << (class as u32 + FIRST_CLASS)
}

/// A table of records in the run.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Where it begins, in words.
    start: usize,
    /// Words of a record.
    stride: usize,
    /// How many records it has room for.
    pub room: usize,
    /// The word that says how many are in use.
    used: usize,
}

impl Table {
    const fn after(before: Self, stride: usize, room: usize, used: usize) -> Self {
        Self { start: before.start + before.stride * before.room, stride, room, used }
    }

    const fn word(self, record: usize, field: usize) -> usize {
        self.start + record * self.stride + field
    }
}

/// Words of the header: what the part is of, totals, and the path of the program.
pub mod header {
    macro_rules! words {
        ($( $(#[doc = $doc:literal])* $name:ident )*) => { words!(@ 0; $( $(#[doc = $doc])* $name )*); };
        (@ $at:expr; $(#[doc = $doc:literal])* $name:ident $($rest:tt)*) => {
            $(#[doc = $doc])* pub const $name: usize = $at;
            words!(@ $at + 1; $($rest)*);
        };
        (@ $at:expr;) => { const USED: usize = $at; };
    }
    words! {
        /// [`super::MAGIC`].
        MAGIC
        /// [`super::LAYOUT`].
        LAYOUT
        /// The number of the process.
        PID
        /// The number of its parent.
        PARENT
        /// When it was first seen, CLOCK_MONOTONIC, ns.
        BEGAN
        /// When something was last followed, the same clock.
        SEEN
        /// Sites in use.
        SITES
        /// Nodes in use.
        NODES
        /// Rows in use.
        ROWS
        /// Modules in use.
        MODULES
        /// Bytes that arrived by input calls.
        IN_BYTES
        /// Bytes that left by output calls.
        OUT_BYTES
        /// Copies in which tagged bytes were.
        COPIES
        /// Those bytes.
        COPIED_BYTES
        /// Tagged bytes that were found to be rewritten.
        REWRITTEN
        /// How often the oldest were forgotten because a bound was met.
        EVICTIONS
        /// Times that a table was full.
        FULL
        /// Time spent in following, ns.
        FOLLOW_NS
        /// The process's CPU time so far in user mode, ns (as last noted).
        USER_NS
        /// In kernel mode, ns.
        SYSTEM_NS
        /// Inputs that were watched for touches.
        PROBES
        /// Bytes that could not be watched: the kernel refused, or they are on a stack.
        UNWATCHED
        /// 1: touches cannot be watched here.
        NO_WATCH
        /// Page faults without reading from a disk since it was first seen (as last noted).
        FRESH
        /// How many of them there had been then.
        FRESH_BEFORE
    }
    /// Where the program's path begins.
    pub const PATH: usize = 32;
    /// Words of a path (bytes in order, ended by a zero).
    pub const PATH_WORDS: usize = 32;
    /// Words of the header.
    pub const WORDS: usize = PATH + PATH_WORDS;
    const _: () = assert!(USED <= PATH);
}

const HEADER: Table = Table { start: 0, stride: header::WORDS, room: 1, used: 0 };
/// Places in the program where calls are made.
pub const SITES: Table = Table::after(HEADER, site::WORDS, 1024, header::SITES);
/// Sequences of copies, as a tree: a node is an input site, or its parent's sequence and one copy
/// site more.
pub const NODES: Table = Table::after(SITES, node::WORDS, 4096, header::NODES);
/// Bytes that left by a node's sequence and an output site.
pub const ROWS: Table = Table::after(NODES, row::WORDS, 4096, header::ROWS);
/// Paths of the files that sites lie in.
pub const MODULES: Table = Table::after(ROWS, header::PATH_WORDS, 256, header::MODULES);
/// Words of a part.
pub const WORDS: usize = MODULES.start + MODULES.stride * MODULES.room;

/// Words of a site.
pub mod site {
    /// Which call, as an index of [`super::CALLS`].
    pub const CALL: usize = 0;
    /// Where it returns to.
    pub const ADDRESS: usize = 1;
    /// The same, as an address of the file's own.
    pub const IN_FILE: usize = 2;
    /// Number of the file's module, from 1 on; 0: no file.
    pub const MODULE: usize = 3;
    /// Words of a site.
    pub const WORDS: usize = 4;
}

/// Words of a node.
pub mod node {
    /// Number of the node before it; its own: an input.
    pub const PARENT: usize = 0;
    /// Number of the site.
    pub const SITE: usize = 1;
    /// A [`super::Step`].
    pub const STEP: usize = 2;
    /// Of an input: the [`super::Kind`] of its descriptor.
    pub const KIND: usize = 3;
    /// Calls.
    pub const OPS: usize = 4;
    /// Bytes of them that are followed.
    pub const BYTES: usize = 5;
    /// Of an input: bytes that left at least once.
    pub const FORWARDED: usize = 6;
    /// Bytes that ended without having left.
    pub const CONSUMED: usize = 7;
    /// Bytes that were not followed, being too few, or forgotten before they ended.
    pub const LOST: usize = 8;
    /// Of an input: bytes that were watched for touches, wherever they were.
    pub const WATCHED: usize = 9;
    /// Bytes of pages of them that were touched, wherever they were.
    pub const TOUCHED: usize = 10;
    /// Touches.
    pub const FAULTS: usize = 11;
    /// Inputs watched.
    pub const PROBES: usize = 12;
    /// Bytes that were watched where this node has them: where the input, or the copy, put them.
    pub const SHOWN: usize = 13;
    /// Bytes of pages that were touched there.
    pub const TOUCHED_HERE: usize = 14;
    /// Calls by class of size.
    pub const CLASS: usize = 15;
    /// Words of a node.
    pub const WORDS: usize = CLASS + super::CLASSES;
}

/// Words of a row.
pub mod row {
    /// Number of the node; 0: what the program made itself, or nobody knows whence.
    pub const NODE: usize = 0;
    /// Number of the output site.
    pub const SITE: usize = 1;
    /// The [`super::Kind`] of its descriptor.
    pub const KIND: usize = 2;
    /// Calls.
    pub const OPS: usize = 3;
    /// Bytes.
    pub const BYTES: usize = 4;
    /// Bytes of watched inputs among them that were watched.
    pub const WATCHED: usize = 5;
    /// Bytes of pages of those that had been touched.
    pub const TOUCHED: usize = 6;
    /// Calls by class of size.
    pub const CLASS: usize = 7;
    /// Words of a row.
    pub const WORDS: usize = CLASS + super::CLASSES;
}

/// The step that a node adds to the sequence before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Step {
    /// Nothing: the program itself (node 0 only).
    Program = 0,
    /// An input call.
    Input = 1,
    /// A copy.
    Copy = 2,
    /// The bytes lay for at least [`super::REST_MS`] before the next step.
    Rest = 3,
    /// The kernel passed them on without the program seeing them.
    Pass = 4,
}

impl Step {
    /// The step of a word.
    pub fn of(word: u64) -> Self {
        match word {
            1 => Self::Input,
            2 => Self::Copy,
            3 => Self::Rest,
            4 => Self::Pass,
            _ => Self::Program,
        }
    }
}

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Something else.
    Other = 0,
    /// A socket.
    Socket = 1,
    /// A regular file.
    File = 2,
    /// A pipe.
    Pipe = 3,
    /// A terminal or another device.
    Device = 4,
}

impl Kind {
    /// The kind of a word.
    pub fn of(word: u64) -> Self {
        match word {
            1 => Self::Socket,
            2 => Self::File,
            3 => Self::Pipe,
            4 => Self::Device,
            _ => Self::Other,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Socket => "socket",
            Self::File => "file",
            Self::Pipe => "pipe",
            Self::Device => "device",
        }
    }
}

macro_rules! calls {
    ($($name:ident)*) => {
        /// The calls that are followed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(non_camel_case_types, missing_docs)]
        pub enum Call { $($name),* }
        /// Their names, by number.
        pub const CALLS: &[&str] = &[$(stringify!($name)),*];
    };
}

calls! {
    read readv pread preadv preadv2 recv recvfrom recvmsg recvmmsg fread
    write writev pwrite pwritev pwritev2 send sendto sendmsg sendmmsg vmsplice fwrite
    memcpy memmove mempcpy realloc sendfile splice tee copy_file_range
}

/// The words of one process.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a>(&'a [AtomicU64]);

impl<'a> Tables<'a> {
    /// Those in `words`, which are [`WORDS`] many.
    ///
    /// # Panics
    /// If they are not.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), WORDS);
        Self(words)
    }

    /// A word of the header.
    pub fn head(self, word: usize) -> u64 {
        self.0[word].load(Relaxed)
    }

    /// Sets a word of the header.
    pub fn set_head(self, word: usize, value: u64) {
        self.0[word].store(value, Relaxed);
    }

    /// Adds to a word of the header.
    pub fn add_head(self, word: usize, value: u64) {
        self.set_head(word, self.head(word).wrapping_add(value));
    }

    /// A field of a record.
    pub fn get(self, table: Table, record: usize, field: usize) -> u64 {
        self.0[table.word(record, field)].load(Relaxed)
    }

    /// Sets a field of a record.
    pub fn set(self, table: Table, record: usize, field: usize, value: u64) {
        self.0[table.word(record, field)].store(value, Relaxed);
    }

    /// Adds to a field of a record.
    pub fn add(self, table: Table, record: usize, field: usize, value: u64) {
        self.set(table, record, field, self.get(table, record, field).wrapping_add(value));
    }

    /// How many records are in use.
    pub fn used(self, table: Table) -> usize {
        (self.head(table.used) as usize).min(table.room)
    }

    /// A record more; `None`: there is no room, which is counted. The caller fills it; readers look
    /// at it only once that is done, or see zeros.
    pub fn open(self, table: Table) -> Option<usize> {
        let used = self.used(table);
        if used == table.room {
            self.add_head(header::FULL, 1);
            return None;
        }
        self.set_head(table.used, used as u64 + 1);
        Some(used)
    }

    /// Writes a path, as much of its end as there is room for.
    pub fn set_path(self, module: Option<usize>, path: &[u8]) {
        let most = header::PATH_WORDS * 8 - 1;
        let path = &path[path.len().saturating_sub(most)..];
        for i in 0..header::PATH_WORDS {
            let mut bytes = [0; 8];
            let rest = path.get(i * 8..).unwrap_or_default();
            let n = rest.len().min(8);
            bytes[..n].copy_from_slice(&rest[..n]);
            let word = u64::from_le_bytes(bytes);
            match module {
                Some(module) => self.set(MODULES, module, i, word),
                None => self.set_head(header::PATH + i, word),
            }
        }
    }

    /// The path of a module, or of the program.
    pub fn path(self, module: Option<usize>) -> String {
        let words = (0..header::PATH_WORDS).map(|i| match module {
            Some(module) => self.get(MODULES, module, i),
            None => self.head(header::PATH + i),
        });
        let bytes: Vec<u8> =
            words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// How often each size occurred.
pub type Sizes = [u64; CLASSES];
