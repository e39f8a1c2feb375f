//! Records of one write to the disk, encoded into a buffer of the caller's.

use crate::log::{BLOCK, Cursor, Log, SEGMENT_HEADER, Segment};
use crate::record::{
    ALIGN, HANDLE_MAX, HEADER, HOME_LENGTH, Header, Name, PATH_MAX, RANGE, Range, data_length,
    encode_data, encode_home, encode_name, name_length,
};
use std::fmt;

/// Most ranges of one `DATA` record.
pub const RANGES_MAX: usize = 1024;

/// A record does not fit behind those that are there: into the buffer, or into the segment.
///
/// If the flush is empty and began the segment it never will; else finish it, write it, and go on
/// in the next segment ([`Cursor::next_segment`]), or in a part of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Bytes of the record.
    pub need: usize,
    /// Bytes that there are.
    pub room: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a record of {} bytes does not fit into {}", self.need, self.room)
    }
}

impl std::error::Error for Full {}

/// Why [`Flush::data_by`] made no record. The flush is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoData<E> {
    /// It does not fit.
    Full(Full),
    /// The function that was to bring the bytes could not.
    Bytes(E),
}

/// The bytes that are to be written to the disk, in one piece, and waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where in the file, in bytes; a multiple of [`BLOCK`].
    pub offset: u64,
    /// So many bytes of the buffer, from its first; a multiple of [`BLOCK`].
    pub length: usize,
    /// Number of the segment: live `DATA` of this flush keeps it.
    pub segment: u64,
    /// Sequence of the first record.
    pub first: u64,
    /// Sequence of the last record.
    pub last: u64,
    /// Where the next flush goes *once this one is durable*. If it failed, or nobody knows:
    /// [`Cursor::next_segment`] of the cursor that this flush began with.
    pub after: Cursor,
}

/// A flush that is being encoded.
#[derive(Debug)]
pub struct Flush<'b> {
    log: Log,
    from: Cursor,
    buffer: &'b mut [u8],
    /// Bytes of the buffer that are taken.
    at: usize,
    sequence: u64,
}

impl<'b> Flush<'b> {
    /// Begins one at `cursor`, in `buffer`: what of it is whole blocks, and no more than the
    /// segment still has, is used.
    #[must_use]
    pub fn begin(log: &Log, cursor: Cursor, buffer: &'b mut [u8]) -> Flush<'b> {
        let room = buffer.len().min(cursor.left(log)) / BLOCK * BLOCK;
        let buffer = &mut buffer[..room];
        let mut at = 0;
        if cursor.used == 0 && room > 0 {
            buffer[SEGMENT_HEADER..BLOCK].fill(0);
            let Cursor { sequence, number, before, .. } = cursor;
            Segment { number, first: sequence, before }.encode(log, buffer);
            at = BLOCK;
        }
        Flush { log: *log, from: cursor, buffer, at, sequence: cursor.sequence }
    }

    /// The segment that it goes to.
    #[must_use]
    pub fn segment(&self) -> u64 {
        self.from.number
    }

    /// Bytes that further records may have.
    #[must_use]
    pub fn room(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// Bytes that one further `DATA` record of so many ranges may carry.
    #[must_use]
    pub fn room_for_data(&self, ranges: usize) -> usize {
        self.room().saturating_sub(data_length(ranges, 0))
    }

    /// Sequence of the next record.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Names an inode. Each segment must name those whose data it has, before that.
    /// Returns the record's sequence. A handle that is too long is left out, a path is cut.
    ///
    /// # Errors
    /// It does not fit.
    pub fn name(&mut self, index: u32, size: u64, name: &Name<'_>) -> Result<u64, Full> {
        let handle = if name.handle.len() > HANDLE_MAX { &[] } else { name.handle };
        let path = name.path.get(..PATH_MAX).unwrap_or(name.path);
        let name = Name { handle, path, ..*name };
        let length = name_length(&name);
        let (log, header) = (self.log, self.header(index, size));
        encode_name(&log, header, &name, self.claim(length)?);
        Ok(self.take(length))
    }

    /// Bytes of a file, of which `pieces` holds as many as the ranges say, in that order.
    /// Returns the record's sequence.
    ///
    /// # Errors
    /// It does not fit.
    ///
    /// # Panics
    /// Pieces and ranges have not the same number of bytes, or there are more ranges than
    /// [`RANGES_MAX`]: a fault of the caller's that must not reach the disk.
    pub fn data(
        &mut self,
        index: u32,
        size: u64,
        ranges: &[Range],
        pieces: &[&[u8]],
    ) -> Result<u64, Full> {
        let there: usize = pieces.iter().map(|piece| piece.len()).sum();
        let fill = |mut place: &mut [u8]| {
            assert_eq!(place.len(), there, "ranges and pieces have not the same length");
            for piece in pieces {
                let (here, rest) = place.split_at_mut(piece.len());
                here.copy_from_slice(piece);
                place = rest;
            }
            Ok::<(), std::convert::Infallible>(())
        };
        self.data_by(index, size, ranges, fill).map_err(|e| match e {
            NoData::Full(full) => full,
            NoData::Bytes(never) => match never {},
        })
    }

    /// As [`data`](Self::data): `fill` brings the bytes to where they are written from, for example
    /// by `pread`.
    ///
    /// # Errors
    /// It does not fit, or `fill` failed. The flush is as it was.
    ///
    /// # Panics
    /// There are more ranges than [`RANGES_MAX`].
    pub fn data_by<E>(
        &mut self,
        index: u32,
        size: u64,
        ranges: &[Range],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<u64, NoData<E>> {
        assert!(ranges.len() <= RANGES_MAX, "too many ranges for one record");
        let sum = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.length));
        let bytes = usize::try_from(sum).unwrap_or(usize::MAX);
        let length = data_length(ranges.len(), 0).saturating_add(bytes);
        let (log, header) = (self.log, self.header(index, size));
        let record = self.claim(length).map_err(NoData::Full)?;
        fill(&mut record[HEADER + ranges.len() * RANGE..]).map_err(NoData::Bytes)?;
        encode_data(&log, header, ranges, record);
        Ok(self.take(length))
    }

    /// Says that all `DATA` of this index up to sequence `upto` is durable in the file, or that it
    /// must not come into it any more. Returns the record's sequence.
    ///
    /// # Errors
    /// It does not fit.
    pub fn home(&mut self, index: u32, size: u64, upto: u64) -> Result<u64, Full> {
        let (log, header) = (self.log, self.header(index, size));
        encode_home(&log, header, upto, self.claim(HOME_LENGTH)?);
        Ok(self.take(HOME_LENGTH))
    }

    /// Ends it: what is to be written. `None` if it has no record.
    #[must_use]
    pub fn finish(self) -> Option<Written> {
        if self.sequence == self.from.sequence {
            return None;
        }
        let length = self.at.next_multiple_of(BLOCK);
        self.buffer[self.at..length].fill(0);
        let used = self.from.used + length as u32;
        Some(Written {
            offset: self.log.offset(self.from.number) + u64::from(self.from.used),
            length,
            segment: self.from.number,
            first: self.from.sequence,
            last: self.sequence - 1,
            after: Cursor { sequence: self.sequence, used, ..self.from },
        })
    }

    fn header(&self, index: u32, size: u64) -> Header {
        Header { sequence: self.sequence, flush: self.from.sequence, index, size }
    }

    /// The next `length` bytes of the buffer, if it has them.
    fn claim(&mut self, length: usize) -> Result<&mut [u8], Full> {
        let room = self.room();
        let full = Full { need: length, room };
        self.buffer[self.at..].get_mut(..length).ok_or(full)
    }

    /// A record of `length` bytes is there: its sequence.
    fn take(&mut self, length: usize) -> u64 {
        let end = self.at + length;
        // (The room is whole blocks, so what fills it up is there.)
        self.at = end.next_multiple_of(ALIGN);
        self.buffer[end..self.at].fill(0);
        self.sequence += 1;
        self.sequence - 1
    }
}
