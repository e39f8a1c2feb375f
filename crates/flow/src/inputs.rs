//! The inputs of which bytes are somewhere in memory still.

use super::tags::Offsets;
use std::collections::BTreeMap;

/// One fingerprint in so many bytes.
pub const STRIDE: usize = 256;
/// Bytes of a fingerprint.
pub const WORD: usize = 8;
/// Stands for a fingerprint that could not be taken.
const NO_WORD: u64 = u64::MAX;

/// The observations of a watched input.
#[derive(Debug, Default)]
pub struct Watch {
    /// Bytes whose pages were taken away, so that touches show.
    pub watched: Offsets,
    /// Bytes of pages that were touched.
    pub touched: Offsets,
    /// The same by node: where they were watched, and where they were touched.
    pub here: BTreeMap<u32, Here>,
}

/// The observations of a watched input where one node has it.
#[derive(Debug, Default)]
pub struct Here {
    /// Bytes of which a touch would have shown.
    pub shown: Offsets,
    /// Bytes of pages that were touched.
    pub touched: Offsets,
}

/// The data of one input call.
#[derive(Debug)]
pub struct Input {
    /// The node of its site.
    pub root: u32,
    /// Bytes.
    pub len: usize,
    /// Ascends from input to input.
    pub born: u64,
    /// Tagged bytes, in all places together.
    pub live: usize,
    /// Bytes that left.
    pub left: Offsets,
    /// The words at every [`STRIDE`].
    words: Vec<u64>,
    /// The observations of a watched input.
    pub watch: Option<Box<Watch>>,
}

impl Input {
    /// Whether the bytes that now lie in memory as those from `offset` on still are what arrived,
    /// judged by the fingerprint at `offset`.
    pub fn unchanged(&self, offset: usize, word: u64) -> bool {
        let was = self.words.get(offset / STRIDE).copied().unwrap_or(NO_WORD);
        was == NO_WORD || was == word
    }

    /// Writes a fingerprint down.
    pub fn fingerprint(&mut self, offset: usize, word: u64) {
        let at = offset / STRIDE;
        if self.words.len() <= at {
            self.words.resize(at + 1, NO_WORD);
        }
        self.words[at] = word;
    }
}

/// All of them, by number.
#[derive(Debug, Default)]
pub struct Inputs {
    all: Vec<Option<Input>>,
    free: Vec<u32>,
    born: u64,
    words: usize,
}

impl Inputs {
    /// One more, of which nothing is tagged yet.
    pub fn add(&mut self, root: u32, len: usize) -> u32 {
        self.born += 1;
        self.words += len / STRIDE + 1;
        let input = Input {
            root,
            len,
            born: self.born,
            live: 0,
            left: Offsets::default(),
            words: Vec::with_capacity(len / STRIDE + 1),
            watch: None,
        };
        match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = Some(input);
                id
            }
            None => {
                self.all.push(Some(input));
                (self.all.len() - 1) as u32
            }
        }
    }

    /// The one with this number.
    pub fn get(&mut self, id: u32) -> Option<&mut Input> {
        self.all.get_mut(id as usize)?.as_mut()
    }

    /// Takes it out; its number may be given to another.
    pub fn remove(&mut self, id: u32) -> Option<Input> {
        let input = self.all.get_mut(id as usize)?.take()?;
        self.words -= input.len / STRIDE + 1;
        self.free.push(id);
        Some(input)
    }

    /// Fingerprints kept.
    pub fn words(&self) -> usize {
        self.words
    }

    /// How many inputs there are.
    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the younger three quarters of them began.
    pub fn first_quarter(&self) -> u64 {
        let mut births: Vec<u64> = self.all.iter().flatten().map(|i| i.born).collect();
        births.sort_unstable();
        births.get(births.len() / 4).copied().unwrap_or(0)
    }
}
