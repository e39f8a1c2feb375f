//! One record: what it says, and whether its bytes are sound.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | magic |
//! | 4..8 | CRC32C of all `length` bytes, these four taken as zeros |
//! | 8..12 | `length` of all of it, in bytes; the next record begins at the next multiple of 8 |
//! | 12..14 | kind |
//! | 14..16 | number of ranges |
//! | 16..24 | sequence: one more than that of the record before |
//! | 24..32 | sequence of the first record of its flush |
//! | 32..40 | epoch |
//! | 40..44 | index of the inode's entry |
//! | 44..48 | zeros |
//! | 48..56 | the file's size in bytes, as of this record |
//! | 56.. | the body: by kind |
//!
//! Bodies: `NAME` has device, inode, generation, kind and length of the handle, length of the path
//! (8, 8, 8, 4, 2, 2 bytes), handle, path. `DATA` has its ranges (offset, length: 8, 8 bytes), then
//! their bytes one after the other. `HOME` has a sequence (8 bytes).

use crate::fields::{Fields, Writer, crc};
use crate::log::Log;

/// Where records begin: at multiples of this, in bytes.
pub const ALIGN: usize = 8;
/// Most bytes of a file's handle (`MAX_HANDLE_SZ`).
pub const HANDLE_MAX: usize = 128;
/// Most bytes of a path (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;
/// Bytes of a record in front of its body.
pub const HEADER: usize = 56;
/// Bytes of a range.
pub const RANGE: usize = 16;

const MAGIC: u32 = u32::from_le_bytes(*b"ucRC");
const CRC_AT: usize = 4;
const NAME: u16 = 1;
const DATA: u16 = 2;
const HOME: u16 = 3;
const NAME_FIXED: usize = 32;

/// Bytes of a file: where, and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first one's place in the file.
    pub offset: u64,
    /// So many.
    pub length: u64,
}

impl Range {
    /// Where it ends: the place of the byte behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Which file an inode's index means, from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Device as `stat` says.
    pub device: u64,
    /// Inode as `stat` says.
    pub inode: u64,
    /// Generation of the inode (`FS_IOC_GETVERSION`), 0 where there is none: another one is another
    /// file.
    pub generation: u64,
    /// Kind of the handle, as `name_to_handle_at` says.
    pub handle_kind: i32,
    /// The handle; empty where the file system has none. At most [`HANDLE_MAX`] bytes.
    pub handle: &'a [u8],
    /// A path that led to it, for people and where handles do not help. At most [`PATH_MAX`] bytes.
    pub path: &'a [u8],
}

/// Bytes of a file that are to be in it, whatever the disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    ranges: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Data<'a> {
    /// Its ranges with their bytes, in the order in which they were written: a later one counts
    /// where they overlap.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let mut rest = self.bytes;
        self.ranges().map_while(move |range| {
            let (piece, behind) = rest.split_at_checked(usize::try_from(range.length).ok()?)?;
            rest = behind;
            Some((range.offset, piece))
        })
    }

    /// Its ranges.
    pub fn ranges(&self) -> impl Iterator<Item = Range> + use<'a> {
        let mut from = Fields(self.ranges);
        std::iter::from_fn(move || Some(Range { offset: from.u64()?, length: from.u64()? }))
    }

    /// The bytes of all ranges, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// This index is that file.
    Name(Name<'a>),
    /// These bytes are to be in the file.
    Data(Data<'a>),
    /// All `DATA` of this index up to sequence `upto` is durable in the file, or must not come into
    /// it any more.
    Home {
        /// That sequence; `DATA` that has it is included.
        upto: u64,
    },
}

/// A record that is sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number in the epoch; without gaps.
    pub sequence: u64,
    /// Sequence of the first record of its flush.
    pub flush: u64,
    /// Index of the inode's entry.
    pub index: u32,
    /// Size of the file in bytes, as of this record.
    pub size: u64,
    /// The rest.
    pub body: Body<'a>,
    /// Length in bytes, without what fills it up to a multiple of [`ALIGN`].
    pub length: usize,
}

/// Why bytes are no record of a log and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// They do not begin as records do.
    NoRecord,
    /// It has another epoch's number: it is older.
    OtherEpoch {
        /// That epoch.
        epoch: u64,
    },
    /// It ends behind the bytes that there are.
    Cut {
        /// So long it says it is.
        length: usize,
    },
    /// The checksum is another.
    Damaged {
        /// The sequence that it says it has.
        sequence: u64,
    },
    /// The checksum is right, and what it says cannot be: its writer was wrong.
    Malformed {
        /// Its sequence.
        sequence: u64,
    },
}

impl<'a> Record<'a> {
    /// Reads the record that begins at the first of `bytes`.
    ///
    /// # Errors
    /// There is none, and why.
    pub fn decode(log: &Log, bytes: &'a [u8]) -> Result<Record<'a>, Unsound> {
        Self::fields(log, bytes).unwrap_or(Err(Unsound::NoRecord))
    }

    fn fields(log: &Log, bytes: &'a [u8]) -> Option<Result<Record<'a>, Unsound>> {
        let mut from = Fields(bytes.first_chunk::<HEADER>()?);
        if from.u32()? != MAGIC {
            return None;
        }
        let sum = from.u32()?;
        let length = from.u32()? as usize;
        let (kind, ranges) = (from.u16()?, from.u16()?);
        let (sequence, flush, epoch) = (from.u64()?, from.u64()?, from.u64()?);
        let (index, _zeros, size) = (from.u32()?, from.u32()?, from.u64()?);
        if epoch != log.epoch {
            return Some(Err(Unsound::OtherEpoch { epoch }));
        }
        if length < HEADER {
            return Some(Err(Unsound::Damaged { sequence }));
        }
        let Some(all) = bytes.get(..length) else {
            return Some(Err(Unsound::Cut { length }));
        };
        if sum != crc(log.seed(), all, CRC_AT) {
            return Some(Err(Unsound::Damaged { sequence }));
        }
        let body = all.get(HEADER..)?;
        let Some(body) = Self::body(kind, ranges, body).filter(|_| flush <= sequence) else {
            return Some(Err(Unsound::Malformed { sequence }));
        };
        Some(Ok(Record { sequence, flush, index, size, body, length }))
    }

    fn body(kind: u16, ranges: u16, body: &'a [u8]) -> Option<Body<'a>> {
        let mut from = Fields(body);
        let found = match kind {
            NAME => {
                let (device, inode, generation) = (from.u64()?, from.u64()?, from.u64()?);
                let handle_kind = from.u32()?.cast_signed();
                let (handle, path) = (usize::from(from.u16()?), usize::from(from.u16()?));
                let (handle, path) = (from.bytes(handle)?, from.bytes(path)?);
                if !from.0.is_empty() || handle.len() > HANDLE_MAX || path.len() > PATH_MAX {
                    return None;
                }
                Body::Name(Name { device, inode, generation, handle_kind, handle, path })
            }
            DATA => {
                let found =
                    Data { ranges: from.bytes(usize::from(ranges) * RANGE)?, bytes: from.0 };
                let mut sum = 0u64;
                for range in found.ranges() {
                    range.offset.checked_add(range.length)?;
                    sum = sum.checked_add(range.length)?;
                }
                if sum != found.bytes.len() as u64 {
                    return None;
                }
                Body::Data(found)
            }
            HOME => {
                let upto = from.u64()?;
                if !from.0.is_empty() {
                    return None;
                }
                Body::Home { upto }
            }
            _ => return None,
        };
        Some(found)
    }

    /// Where the next record of the same flush begins, from the beginning of this one, in bytes.
    #[must_use]
    pub fn pace(&self) -> usize {
        self.length.next_multiple_of(ALIGN)
    }
}

/// The fields that all kinds have, to be encoded.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) flush: u64,
    pub(crate) index: u32,
    pub(crate) size: u64,
}

/// Bytes of a `NAME` record.
#[must_use]
pub fn name_length(name: &Name<'_>) -> usize {
    HEADER + NAME_FIXED + name.handle.len() + name.path.len()
}

/// Bytes of a `DATA` record with so many ranges and bytes.
#[must_use]
pub fn data_length(ranges: usize, bytes: usize) -> usize {
    HEADER + ranges * RANGE + bytes
}

/// Bytes of a `HOME` record.
pub const HOME_LENGTH: usize = HEADER + 8;

fn seal(log: &Log, header: Header, kind: u16, ranges: u16, record: &mut [u8]) {
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    let mut to = Writer::new(record);
    to.u32(MAGIC).u32(0).u32(length).u16(kind).u16(ranges);
    to.u64(header.sequence).u64(header.flush).u64(log.epoch);
    to.u32(header.index).u32(0).u64(header.size);
    let sum = crc(log.seed(), record, CRC_AT);
    Writer::new(&mut record[CRC_AT..]).u32(sum);
}

/// Encodes into `record`, which is [`name_length`] long.
pub(crate) fn encode_name(log: &Log, header: Header, name: &Name<'_>, record: &mut [u8]) {
    let mut to = Writer::new(&mut record[HEADER..]);
    to.u64(name.device).u64(name.inode).u64(name.generation);
    to.u32(name.handle_kind.cast_unsigned());
    to.u16(name.handle.len() as u16).u16(name.path.len() as u16).put(name.handle).put(name.path);
    seal(log, header, NAME, 0, record);
}

/// Encodes into `record`, which is [`data_length`] long and has the bytes already.
pub(crate) fn encode_data(log: &Log, header: Header, ranges: &[Range], record: &mut [u8]) {
    let mut to = Writer::new(&mut record[HEADER..]);
    for range in ranges {
        to.u64(range.offset).u64(range.length);
    }
    seal(log, header, DATA, ranges.len() as u16, record);
}

/// Encodes into `record`, which is [`HOME_LENGTH`] long.
pub(crate) fn encode_home(log: &Log, header: Header, upto: u64, record: &mut [u8]) {
    Writer::new(&mut record[HEADER..]).u64(upto);
    seal(log, header, HOME, 0, record);
}
