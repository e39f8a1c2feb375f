//! Where segments lie, and where the next flush goes.

use crate::fields::{Fields, Writer, crc};
use std::fmt;

/// A block in bytes: each flush begins one, each is written as a whole.
pub const BLOCK: usize = 4096;
/// The bytes that a disk writes as a whole or not at all.
pub const SECTOR: usize = 512;
/// Length of a segment in bytes, of logs that are made today.
pub const SEGMENT: usize = 1 << 20;
/// Bytes in front of the first segment: the superblocks.
pub const HEAD: usize = 64 << 10;

/// Length of a segment's header; it has a block to itself.
pub(crate) const SEGMENT_HEADER: usize = 80;
const MAGIC: u32 = u32::from_le_bytes(*b"ucSG");
const CRC_AT: usize = 4;

/// The facts of a log that encoding and scanning need: [`Superblock::log`](crate::Superblock::log).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The superblock's UUID.
    pub uuid: [u8; 16],
    /// The superblock's epoch.
    pub epoch: u64,
    /// Length of a segment in bytes.
    pub segment: u32,
    /// How many there are.
    pub segments: u32,
}

impl Log {
    /// Where in the file segment `number` lies, in bytes. (Numbers run on; places recur with each
    /// lap.)
    #[must_use]
    pub fn offset(&self, number: u64) -> u64 {
        HEAD as u64 + self.place(number) * u64::from(self.segment)
    }

    /// Which segment of the file it is.
    #[must_use]
    pub fn place(&self, number: u64) -> u64 {
        number % u64::from(self.segments.max(1))
    }

    /// Which time round the file it is.
    #[must_use]
    pub fn lap(&self, number: u64) -> u64 {
        number / u64::from(self.segments.max(1))
    }

    /// The value that checksums begin with: so a record of another log, or another epoch, is none
    /// of this one.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.uuid), &self.epoch.to_le_bytes())
    }

    /// The largest record that fits into a segment, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        (self.segment as usize).saturating_sub(BLOCK)
    }

    /// The bytes of segment `number` in a whole file's.
    pub(crate) fn segment_of<'a>(&self, file: &'a [u8], number: u64) -> Option<&'a [u8]> {
        let start = usize::try_from(self.offset(number)).ok()?;
        file.get(start..start.checked_add(self.segment as usize)?)
    }
}

/// The content of the first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its running number: lap and place in one.
    pub number: u64,
    /// Sequence of its first record. In an earlier segment records from this sequence on do not
    /// count: their flush failed.
    pub first: u64,
    /// Number of the segment before it, [`NO_SEGMENT`] for the first: one that was entered, and
    /// failed, is passed over.
    pub before: u64,
}

/// No segment's number.
pub const NO_SEGMENT: u64 = u64::MAX;

impl Segment {
    pub(crate) fn encode(&self, log: &Log, block: &mut [u8]) {
        let Some(header) = block.first_chunk_mut::<SEGMENT_HEADER>() else { return };
        header.fill(0);
        let mut to = Writer::new(header);
        to.u32(MAGIC).u32(0).put(&log.uuid).u64(log.epoch).u64(log.lap(self.number));
        to.u64(self.number).u64(self.first).u64(self.before);
        let sum = crc(log.seed(), header, CRC_AT);
        header[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the header from a segment's first bytes.
    ///
    /// # Errors
    /// They are no header of this log and epoch.
    pub fn decode(log: &Log, bytes: &[u8]) -> Result<Segment, NoSegment> {
        Self::fields(log, bytes).unwrap_or(Err(NoSegment::Damaged))
    }

    fn fields(log: &Log, bytes: &[u8]) -> Option<Result<Segment, NoSegment>> {
        let header = bytes.first_chunk::<SEGMENT_HEADER>()?;
        if crate::fields::zeros(header) {
            return Some(Err(NoSegment::Unwritten));
        }
        let mut from = Fields(header);
        let (magic, sum) = (from.u32()?, from.u32()?);
        let (uuid, epoch, lap) = (from.array()?, from.u64()?, from.u64()?);
        let found = Segment { number: from.u64()?, first: from.u64()?, before: from.u64()? };
        let own = Log { uuid, epoch, ..*log };
        if magic != MAGIC || sum != crc(own.seed(), header, CRC_AT) {
            return Some(Err(NoSegment::Damaged));
        }
        if uuid != log.uuid {
            return Some(Err(NoSegment::OtherLog));
        }
        if epoch != log.epoch {
            return Some(Err(NoSegment::OtherEpoch { epoch }));
        }
        let sound = lap == log.lap(found.number)
            && (found.before == NO_SEGMENT || found.before < found.number);
        Some(if sound { Ok(found) } else { Err(NoSegment::Damaged) })
    }
}

/// Why bytes are no segment's header of a log and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSegment {
    /// Zeros.
    Unwritten,
    /// The checksum is another.
    Damaged,
    /// Sound, and of another log: somebody wrote into this one.
    OtherLog,
    /// Sound, and of another epoch.
    OtherEpoch {
        /// That epoch.
        epoch: u64,
    },
}

/// Where the next flush goes. It is four numbers, so that programs can share it; what an epoch
/// begins with is [`Cursor::START`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Sequence of the next record.
    pub sequence: u64,
    /// Number of the segment.
    pub number: u64,
    /// Bytes of it that are taken, whole blocks. 0: not even its header is written.
    pub used: u32,
    /// Number of the segment before it that has records.
    pub before: u64,
}

/// The purpose of a flush, when room is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Bytes: they leave a segment free, in which `HOME` can be written.
    Data,
    /// Making room: `HOME` alone.
    Home,
}

/// The next segment still has live records, or is the last free one. The oldest must come home
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The segment that is in the way.
    pub oldest: u64,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log is full: segment {} still has live records", self.oldest)
    }
}

impl std::error::Error for NoRoom {}

impl Cursor {
    /// The beginning of an epoch.
    pub const START: Cursor = Cursor { sequence: 1, number: 0, used: 0, before: NO_SEGMENT };

    /// Bytes that a flush can still have in this segment, header of the segment included.
    #[must_use]
    pub fn left(&self, log: &Log) -> usize {
        log.segment.saturating_sub(self.used) as usize
    }

    /// Whether a flush may be begun here: behind bytes a segment must be free, in which `HOME` can
    /// be written. `oldest` is the oldest segment with live records.
    ///
    /// # Errors
    /// It is not. The live bytes of the oldest segment must come home.
    pub fn admits(&self, log: &Log, oldest: Option<u64>, purpose: Purpose) -> Result<(), NoRoom> {
        let keep = u64::from(purpose == Purpose::Data);
        match oldest {
            Some(oldest) if self.number + keep >= oldest.saturating_add(log.segments.into()) => {
                Err(NoRoom { oldest })
            }
            _ => Ok(()),
        }
    }

    /// Goes on to the next segment: because a record no longer fits; and after a flush that failed,
    /// or whose process died over it, so that nobody can say what it left on the disk.
    /// `oldest` is the oldest segment with live records.
    ///
    /// # Errors
    /// That segment would be overwritten. Nothing has changed then.
    pub fn next_segment(
        self,
        log: &Log,
        oldest: Option<u64>,
        purpose: Purpose,
    ) -> Result<Cursor, NoRoom> {
        // (Of one that was not begun, or whose first flush failed, nothing counts.)
        let before = if self.used == 0 { self.before } else { self.number };
        let next = Cursor { sequence: self.sequence, number: self.number + 1, used: 0, before };
        next.admits(log, oldest, purpose).map(|()| next)
    }
}
