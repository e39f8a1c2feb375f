//! The content of the logs, looked at and left as it is; and logs that are not wanted any more.

use crate::homes::whole;
use crate::place::{LOGS, NoPlace, Place};
use core::fmt::{self, Write};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, unlinkat};
use std::collections::BTreeSet;
use uncopy_log_record::{Body, Gap, Scan, ScanItem};
use uncopy_log_share::writer::NoLog;
use uncopy_log_store::{Failed, Kind, open};

/// The report on all logs in `place`, and whether all are sound.
pub fn verify(place: &Place, kind: Kind) -> (String, bool) {
    let (mut text, mut sound) = (String::new(), true);
    for number in 0..LOGS {
        let file = match place.log(number) {
            Ok(None) => continue,
            Ok(Some(file)) => file,
            Err(why) => {
                sound = false;
                let _ = writeln!(text, "{}: {why}", Place::log_name(number));
                continue;
            }
        };
        let name = Place::log_name(number);
        match Seen::of(file, kind) {
            Ok(seen) => {
                let Seen { epoch, records, files, bytes, gaps, end } = seen;
                let _ = writeln!(
                    text,
                    "{name}: epoch {epoch}, {records} records, {bytes} bytes of {files} files; \
                     {end}"
                );
                for gap in gaps {
                    sound = false;
                    let _ = writeln!(text, "{name}: {gap}");
                }
            }
            Err(why) => {
                sound = false;
                let _ = writeln!(text, "{name}: {why}");
            }
        }
    }
    (text, sound)
}

/// The contents of one log.
struct Seen {
    epoch: u64,
    records: u64,
    files: usize,
    bytes: u64,
    gaps: Vec<Gap>,
    end: String,
}

/// Why a log cannot be looked at.
#[derive(Debug)]
enum Unseen {
    Store(Failed),
    Log(NoLog),
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(why) => why.fmt(f),
            Self::Log(why) => why.fmt(f),
        }
    }
}

impl Seen {
    fn of(file: OwnedFd, kind: Kind) -> Result<Self, Unseen> {
        let store = open(file, kind).map_err(Unseen::Store)?;
        let (superblock, bytes) = whole(&*store).map_err(Unseen::Log)?;
        let unusable = |why| Unseen::Log(NoLog::Unusable(why));
        let mut scan = Scan::new(&superblock.log(), &bytes).map_err(unusable)?;
        let (mut records, mut data, mut gaps) = (0, 0, Vec::new());
        let mut files = BTreeSet::new();
        for found in &mut scan {
            match found {
                ScanItem::Record(record) => {
                    records += 1;
                    if let Body::Data(of) = record.body {
                        data += of.bytes().len() as u64;
                        files.insert(record.index);
                    }
                }
                ScanItem::Gap(gap) => gaps.push(gap),
            }
        }
        let end = scan.end().map(|end| end.to_string()).unwrap_or_default();
        let epoch = superblock.epoch;
        Ok(Self { epoch, records, files: files.len(), bytes: data, gaps, end })
    }
}

/// Removes all logs of `place`, after what they have was recovered. Returns how many there were.
///
/// # Errors
/// Somebody serves there.
pub fn drop_logs(place: &Place) -> Result<usize, NoPlace> {
    let _lock = place.lock()?;
    let mut dropped = 0;
    for number in 0..LOGS {
        match unlinkat(place, Place::log_name(number), AtFlags::empty()) {
            Ok(()) => dropped += 1,
            Err(rustix::io::Errno::NOENT) => {}
            Err(why) => {
                return Err(NoPlace::Kernel(place.path().join(Place::log_name(number)), why));
            }
        }
    }
    Ok(dropped)
}
