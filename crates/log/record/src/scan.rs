//! The records of an epoch in order, and exactly where and why they end.
//!
//! The newest segment is the one with the highest number; each names the one before it. Within a
//! segment a record is behind its predecessor, or begins the next block (another flush). Sequences
//! have no gaps. Where the next one is not, the log ends: unless a later flush is there. A flush is
//! written when the one before is durable, so then something that was durable is damaged: a
//! [`Gap`]. In the segment that is the next to be written over nothing is damage: that may have
//! begun.

use crate::fields::zeros;
use crate::log::{BLOCK, Log, NO_SEGMENT, NoSegment, Segment};
use crate::record::{Record, Unsound};
use crate::superblock::Unusable;
use std::fmt;

/// Why the log ends where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No flush of this epoch is there.
    Nothing,
    /// The segment is used up.
    Full,
    /// Nothing was ever written there.
    Unwritten,
    /// An earlier lap's record stands there, with this sequence.
    EarlierLap {
        /// That sequence.
        sequence: u64,
    },
    /// An earlier epoch's record stands there.
    EarlierEpoch {
        /// That epoch.
        epoch: u64,
    },
    /// The bytes that stand there began as the next record, and are not whole: their flush was not
    /// completed.
    Torn,
    /// The bytes that stand there are the middle of something older.
    Remains,
    /// The record that should follow is sound, and says what cannot be.
    Malformed,
}

/// Where the log ends, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Offset in the file, in bytes: behind the last record.
    pub offset: u64,
    /// Sequence that the next record would have had.
    pub sequence: u64,
    /// Why.
    pub why: Why,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let End { offset, sequence, why } = self;
        write!(f, "the log ends at byte {offset}, before record {sequence}: ")?;
        match why {
            Why::Nothing => f.write_str("it has no record of this epoch"),
            Why::Full => f.write_str("the segment is used up"),
            Why::Unwritten => f.write_str("nothing was written there"),
            Why::EarlierLap { sequence } => {
                write!(f, "record {sequence} of an earlier lap is there")
            }
            Why::EarlierEpoch { epoch } => write!(f, "a record of epoch {epoch} is there"),
            Why::Torn => f.write_str("that record's flush was not completed"),
            Why::Remains => f.write_str("the middle of something older is there"),
            Why::Malformed => f.write_str("that record is sound, and says what cannot be"),
        }
    }
}

/// Records that were durable and can't be read any more: damage, not an end. (Where the first
/// segments are missing, some of theirs may have been dead.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where in the file the last record before them ends, or the segment of the first begins, in
    /// bytes.
    pub offset: u64,
    /// Sequence of the first that is missing.
    pub from: u64,
    /// Sequence of the next one that is there.
    pub to: u64,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { offset, from, to } = self;
        write!(f, "the log is damaged at byte {offset}: records {from} to before {to} are missing")
    }
}

/// A finding of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanItem<'a> {
    /// The next record.
    Record(Record<'a>),
    /// Some are missing here. The next record that can be read follows.
    Gap(Gap),
}

/// Goes through the records of an epoch.
#[derive(Clone, Debug)]
pub struct Scan<'a> {
    log: Log,
    file: &'a [u8],
    /// The last segment of the chain.
    newest: Option<Segment>,
    /// The segment that is read; `None` once there is no further one.
    now: Option<Segment>,
    /// The one behind it.
    behind: Option<Segment>,
    /// Where in `now` the next record is looked for, in bytes.
    at: usize,
    /// Sequence that is expected.
    expected: u64,
    end: Option<End>,
}

impl<'a> Scan<'a> {
    /// Begins at the oldest record of the epoch. `file` is all of the log file.
    ///
    /// # Errors
    /// The file is shorter than the log.
    pub fn new(log: &Log, file: &'a [u8]) -> Result<Scan<'a>, Unusable> {
        let should = log.offset(0) + u64::from(log.segments) * u64::from(log.segment);
        if (file.len() as u64) < should {
            return Err(Unusable::Truncated { is: file.len() as u64, should });
        }
        let headers =
            (0..u64::from(log.segments)).filter_map(|place| header(log, file, place).ok());
        let newest = headers.max_by_key(|segment| segment.number);
        let mut scan = Scan {
            log: *log,
            file,
            newest,
            now: None,
            behind: None,
            at: BLOCK,
            expected: 1,
            end: None,
        };
        let mut oldest = newest;
        while let Some(before) = oldest.and_then(|segment| before(log, file, &segment)) {
            oldest = Some(before);
        }
        if let (Some(oldest), Some(newest)) = (oldest, newest) {
            // A segment that was overwritten is dead. (So is one that was about to be: of its
            // header the disk may have left anything.) If it was not, the header of the one before
            // is damaged.
            let next = newest.number.saturating_add(1);
            let overwritten = oldest.before != NO_SEGMENT
                && oldest.before.saturating_add(log.segments.into()) <= next;
            if overwritten {
                scan.expected = oldest.first;
            }
            scan.enter(Some(oldest), BLOCK);
        }
        Ok(scan)
    }

    /// Where the log ends. `None` until all has been read.
    #[must_use]
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Goes on in this segment, from `at` on.
    fn enter(&mut self, segment: Option<Segment>, at: usize) {
        (self.now, self.at, self.behind) = (segment, at, None);
        let Some(segment) = segment else { return };
        // The chain leads backwards. (One that names the same predecessor may have failed.)
        let mut behind = self.newest;
        while let Some(found) = behind.filter(|found| found.before != segment.number) {
            behind = before(&self.log, self.file, &found);
        }
        self.behind = behind;
    }

    /// The segment is the next one to be written over: all in it is dead, and a flush that was not
    /// completed may have left anything there, without a header of its own.
    fn is_next(&self, segment: &Segment) -> bool {
        let newest = self.newest.map_or(0, |newest| newest.number);
        segment.number.saturating_add(self.log.segments.into()) <= newest.saturating_add(1)
    }

    /// A segment behind the chain whose header is damaged, and the first record in it that proves
    /// that it was whole once: one of its second flush, or a later one.
    fn beheaded(&self) -> Option<(Segment, usize, Record<'a>)> {
        let (log, segments) = (&self.log, u64::from(self.log.segments));
        let after = self.newest.map_or(0, |newest| newest.number.saturating_add(1));
        let mut numbers = after..after.saturating_add(segments);
        numbers.find_map(|number| {
            let damaged = matches!(
                header(log, self.file, number),
                Err(NoSegment::Damaged | NoSegment::OtherLog)
            );
            if !damaged {
                return None;
            }
            let bytes = log.segment_of(self.file, number)?;
            let blocks = sound(log, bytes, BLOCK);
            let (at, record) = { blocks }.find(|(_, found)| found.flush > self.expected)?;
            let before = self.newest.map_or(NO_SEGMENT, |newest| newest.number);
            Some((Segment { number, first: record.sequence, before }, at, record))
        })
    }

    /// Records from the expected one to before `to` are missing.
    fn gap(&mut self, offset: u64, to: u64) -> Option<ScanItem<'a>> {
        let from = std::mem::replace(&mut self.expected, to);
        Some(ScanItem::Gap(Gap { offset, from, to }))
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = ScanItem<'a>;

    fn next(&mut self) -> Option<ScanItem<'a>> {
        while self.end.is_none() {
            let (mut offset, mut why) = (self.log.offset(0), Why::Nothing);
            if let Some(segment) = self.now {
                let start = self.log.offset(segment.number);
                if self.expected < segment.first {
                    // The records before the oldest segment that can be read are missing.
                    return self.gap(start, segment.first);
                }
                let bound = self.behind.map_or(u64::MAX, |behind| behind.first);
                if self.expected >= bound {
                    // Records from `bound` on are of a flush that failed.
                    self.enter(self.behind, BLOCK);
                    continue;
                }
                let bytes = self.log.segment_of(self.file, segment.number).unwrap_or_default();
                offset = start + self.at as u64;
                why = match next_in(&self.log, bytes, self.at, self.expected) {
                    Ok((at, record)) => {
                        self.at = at + record.pace();
                        self.expected += 1;
                        return Some(ScanItem::Record(record));
                    }
                    Err(why) => why,
                };
                if let Some(behind) = self.behind.filter(|_| self.is_next(&segment)) {
                    self.expected = behind.first;
                    self.enter(Some(behind), BLOCK);
                    continue;
                }
                // A later flush that is there was written once this one was durable.
                let from = self.at.next_multiple_of(BLOCK);
                let later = sound(&self.log, bytes, from)
                    .find(|(_, found)| found.flush > self.expected && found.sequence < bound);
                if let Some((at, record)) = later {
                    self.at = at;
                    return self.gap(offset, record.sequence);
                }
                if let Some(behind) = self.behind {
                    self.enter(Some(behind), BLOCK);
                    return self.gap(offset, behind.first);
                }
            }
            if let Some((segment, at, record)) = self.beheaded() {
                offset = self.log.offset(segment.number);
                self.newest = Some(segment);
                self.enter(Some(segment), at);
                return self.gap(offset, record.sequence);
            }
            self.end = Some(End { offset, sequence: self.expected, why });
        }
        None
    }
}

/// The header at the place of `number`, whatever number it says.
fn header(log: &Log, file: &[u8], number: u64) -> Result<Segment, NoSegment> {
    let found = Segment::decode(log, log.segment_of(file, number).unwrap_or_default())?;
    if log.place(found.number) == log.place(number) { Ok(found) } else { Err(NoSegment::Damaged) }
}

/// The segment before, if it is still there.
fn before(log: &Log, file: &[u8], segment: &Segment) -> Option<Segment> {
    let number = Some(segment.before).filter(|&number| number != NO_SEGMENT)?;
    header(log, file, number).ok().filter(|found| found.number == number)
}

/// The record with this sequence, at `at` or at the next block.
fn next_in<'a>(
    log: &Log,
    bytes: &'a [u8],
    at: usize,
    expected: u64,
) -> Result<(usize, Record<'a>), Why> {
    let mut why = Why::Full;
    for at in [at, at.next_multiple_of(BLOCK)] {
        let rest = bytes.get(at..).unwrap_or_default();
        why = match Record::decode(log, rest) {
            Ok(record) if record.sequence == expected => return Ok((at, record)),
            Ok(record) if record.sequence > expected => Why::Torn,
            Ok(record) => Why::EarlierLap { sequence: record.sequence },
            Err(Unsound::OtherEpoch { epoch }) => Why::EarlierEpoch { epoch },
            Err(Unsound::Damaged { sequence }) if sequence < expected => {
                Why::EarlierLap { sequence }
            }
            Err(Unsound::Damaged { .. } | Unsound::Cut { .. }) => Why::Torn,
            Err(Unsound::Malformed { sequence }) if sequence == expected => Why::Malformed,
            Err(Unsound::Malformed { sequence }) => Why::EarlierLap { sequence },
            Err(Unsound::NoRecord) if rest.is_empty() => Why::Full,
            Err(Unsound::NoRecord) if zeros(&rest[..rest.len().min(BLOCK)]) => Why::Unwritten,
            Err(Unsound::NoRecord) => Why::Remains,
        };
        // (Behind the last record of a flush are zeros up to the next block.)
        if why == Why::Torn {
            break;
        }
    }
    Err(why)
}

/// The sound records that begin a block, from `from` on.
fn sound<'a>(
    log: &Log,
    bytes: &'a [u8],
    from: usize,
) -> impl Iterator<Item = (usize, Record<'a>)> + use<'a> {
    let log = *log;
    let blocks = (from..bytes.len()).step_by(BLOCK);
    blocks.filter_map(move |at| Some((at, Record::decode(&log, bytes.get(at..)?).ok()?)))
}
