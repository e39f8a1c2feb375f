//! What the logs have, looked at and left as it is; and logs that are not wanted any more.

use crate::place::{LOGS, NoPlace, Place};
use crate::recover::look;
use core::fmt::Write;
use rustix::fs::{AtFlags, unlinkat};
use std::collections::BTreeSet;
use uncopy_log_record::{Body, Found, Scan};
use uncopy_log_store::{Kind, open};

/// What there is to say of all logs in `place`, and whether all are sound.
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
        let said = match open(file, kind).map_err(|why| why.to_string()).and_then(|s| look(&*s)) {
            Err(why) => Err(why),
            Ok((superblock, bytes)) => Scan::new(&superblock.log(), &bytes)
                .map_err(|why| why.to_string())
                .map(|mut scan| {
                    let (mut records, mut data, mut gaps) = (0u64, 0u64, Vec::new());
                    let mut files = BTreeSet::new();
                    for found in &mut scan {
                        match found {
                            Found::Record(record) => {
                                records += 1;
                                if let Body::Data(of) = record.body {
                                    data += of.bytes().len() as u64;
                                    files.insert(record.index);
                                }
                            }
                            Found::Gap(gap) => gaps.push(gap.to_string()),
                        }
                    }
                    let end = scan.end().map(|end| end.to_string()).unwrap_or_default();
                    (superblock.epoch, records, files.len(), data, gaps, end)
                }),
        };
        let name = Place::log_name(number);
        match said {
            Ok((epoch, records, files, data, gaps, end)) => {
                let _ = writeln!(
                    text,
                    "{name}: epoch {epoch}, {records} records, {data} bytes of {files} files; {end}"
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
