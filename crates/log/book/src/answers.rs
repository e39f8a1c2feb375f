//! Syncs that return before they are durable, and what must not leave the process before they are.
//!
//! Each such sync has a [`Number`]. Every output of the process is bound to the last number that
//! was given before it: it may follow from any sync that has returned, whichever thread made it.
//! Bytes for a stream wait in a queue; all else waits in its call.
//!
//! 1. *A byte leaves a queue only when its number is durable*, and behind all bytes before it.
//! 2. *Where a queue has bytes, later ones go behind them*, even if nothing is to become durable.
//! 3. *A flush answers for the numbers that were given before it began.*
//! 4. *When a flush has failed nothing leaves any more*: the program was told what is not so, and
//!    cannot be told otherwise. It ends, as by a crash.

use std::collections::VecDeque;

/// Which sync it was: they are counted as they return.
pub type Number = u64;

/// The fate of something that is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It may.
    Now,
    /// Its bytes are in the queue; the call has been made, for the program.
    Queued,
    /// Its call waits until this number is durable and its queue is empty. Then it is asked again.
    Waits(Number),
    /// Never: a flush has failed.
    Never,
}

/// Bytes of one call.
#[derive(Clone, Debug)]
struct Piece {
    number: Number,
    bytes: Vec<u8>,
    taken: usize,
}

/// Bytes for one stream.
#[derive(Clone, Debug)]
struct Queue {
    stream: u32,
    pieces: VecDeque<Piece>,
}

/// The book of one process. See the module.
#[derive(Clone, Debug)]
pub struct Answers {
    given: Number,
    durable: Number,
    failed: bool,
    /// Files whose bytes are to become durable, each with its last number.
    files: Vec<(u32, Number)>,
    queues: Vec<Queue>,
    bytes: usize,
    most: usize,
}

impl Answers {
    /// Nothing waits. Queues have at most `most` bytes, all together.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let (files, queues) = (Vec::new(), Vec::new());
        Self { given: 0, durable: 0, failed: false, files, queues, bytes: 0, most }
    }

    /// A sync of `file` is about to return: its number. (All that it answers for was published
    /// before.) `None`: a flush has failed, and it must not return.
    pub fn give(&mut self, file: u32) -> Option<Number> {
        if self.failed {
            return None;
        }
        self.given += 1;
        self.files.retain(|(other, _)| *other != file);
        self.files.push((file, self.given));
        Some(self.given)
    }

    /// The number that whatever leaves now is bound to, if that is not durable.
    #[must_use]
    pub fn waits(&self) -> Option<Number> {
        (self.durable < self.given).then_some(self.given)
    }

    /// The last number that was given.
    #[must_use]
    pub fn given(&self) -> Number {
        self.given
    }

    /// Something is to become durable, or to leave.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.waits().is_some() || !self.queues.is_empty()
    }

    /// All that a call waits for that was made when `number` was the last one that was given: it is
    /// durable, and what was queued before has left.
    #[must_use]
    pub fn has_left(&self, number: Number) -> bool {
        let is_before = |queue: &Queue| queue.pieces.front().is_some_and(|p| p.number <= number);
        !self.failed && self.durable >= number && !self.queues.iter().any(is_before)
    }

    /// Whether this file is to become durable.
    #[must_use]
    pub fn waits_for(&self, file: u32) -> bool {
        self.files.iter().any(|(other, _)| *other == file)
    }

    /// Whether another file than this one is to become durable.
    #[must_use]
    pub fn waits_for_another(&self, file: u32) -> bool {
        self.files.iter().any(|(other, _)| *other != file)
    }

    /// Bytes that the queue of `stream` has.
    #[must_use]
    pub fn queued(&self, stream: u32) -> usize {
        let of = self.queues.iter().filter(|queue| queue.stream == stream);
        of.flat_map(|queue| &queue.pieces).map(|piece| piece.bytes.len() - piece.taken).sum()
    }

    /// Bytes of `pieces` are about to leave by a stream.
    pub fn sends(&mut self, stream: u32, pieces: &[&[u8]]) -> Leaves {
        if self.failed {
            return Leaves::Never;
        }
        let at = self.queues.iter().position(|queue| queue.stream == stream);
        if self.waits().is_none() && at.is_none() {
            return Leaves::Now;
        }
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.most.saturating_sub(self.bytes) < length {
            return Leaves::Waits(self.given);
        }
        if length > 0 {
            self.bytes += length;
            let piece = Piece { number: self.given, bytes: pieces.concat(), taken: 0 };
            match at {
                Some(at) => self.queues[at].pieces.push_back(piece),
                None => self.queues.push(Queue { stream, pieces: [piece].into() }),
            }
        }
        Leaves::Queued
    }

    /// Something else is about to leave; `stream`: behind what the queue of this one has.
    #[must_use]
    pub fn leaves(&self, stream: Option<u32>) -> Leaves {
        let has_bytes = |stream| self.queues.iter().any(|queue| queue.stream == stream);
        match self.waits() {
            _ if self.failed => Leaves::Never,
            Some(number) => Leaves::Waits(number),
            None if stream.is_some_and(has_bytes) => Leaves::Waits(self.given),
            None => Leaves::Now,
        }
    }

    /// A flush begins: the number that it answers for, and the files whose bytes it brings.
    #[must_use]
    pub fn begin(&self) -> (Number, Vec<u32>) {
        (self.given, self.files.iter().map(|(file, _)| *file).collect())
    }

    /// The flush that began at `number` has made all of it durable.
    pub fn flushed(&mut self, number: Number) {
        self.durable = self.durable.max(number.min(self.given));
        self.files.retain(|(_, last)| *last > number);
    }

    /// A flush has failed, for good.
    pub fn fails(&mut self) {
        self.failed = true;
    }

    /// The first bytes that may leave by some stream.
    #[must_use]
    pub fn next(&self) -> Option<(u32, &[u8])> {
        let mut streams = self.queues.iter().map(|queue| queue.stream);
        streams.find_map(|stream| Some((stream, self.next_of(stream)?)))
    }

    /// The first bytes that may leave by this stream.
    #[must_use]
    pub fn next_of(&self, stream: u32) -> Option<&[u8]> {
        let queue = self.queues.iter().find(|queue| queue.stream == stream)?;
        let piece = queue.pieces.front()?;
        let may = !self.failed && piece.number <= self.durable;
        may.then(|| &piece.bytes[piece.taken..])
    }

    /// So many of these bytes have left.
    pub fn left(&mut self, stream: u32, bytes: usize) {
        let Some(at) = self.queues.iter().position(|queue| queue.stream == stream) else { return };
        let pieces = &mut self.queues[at].pieces;
        let Some(piece) = pieces.front_mut() else { return };
        let bytes = bytes.min(piece.bytes.len() - piece.taken);
        piece.taken += bytes;
        self.bytes -= bytes;
        if piece.taken == piece.bytes.len() {
            pieces.pop_front();
        }
        if self.queues[at].pieces.is_empty() {
            self.queues.remove(at);
        }
    }

    /// The other side is gone: nothing is sent there any more.
    pub fn gone(&mut self, stream: u32) {
        let lost = |queue: &Queue| queue.pieces.iter().map(|p| p.bytes.len() - p.taken).sum();
        let of = self.queues.iter().position(|queue| queue.stream == stream);
        if let Some(queue) = of.map(|at| self.queues.remove(at)) {
            let bytes: usize = lost(&queue);
            self.bytes -= bytes;
        }
    }
}
