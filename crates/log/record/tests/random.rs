//! Random logs, random damage. Each test prints its seed, and takes one from `LOG_SEED`.

mod common;

use common::{LogFile, scan, sequences};
use fastrand::Rng;
use uncopy_log_record::*;

fn rng() -> Rng {
    let seed = std::env::var("LOG_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("LOG_SEED={seed}");
    Rng::with_seed(seed)
}

/// A record as it was written.
#[derive(Clone, Debug, PartialEq)]
enum Wrote {
    Name(u32),
    Data(u32, u64, Vec<(u64, Vec<u8>)>),
    Home(u32, u64),
}

fn wrote(record: &Record<'_>) -> Wrote {
    match record.body {
        Body::Name(name) => {
            assert_eq!(name, LogFile::name(record.index));
            Wrote::Name(record.index)
        }
        Body::Data(data) => {
            let pieces = data.pieces().map(|(at, bytes)| (at, bytes.to_vec())).collect();
            Wrote::Data(record.index, record.size, pieces)
        }
        Body::Home { upto } => Wrote::Home(record.index, upto),
    }
}

struct Random {
    log: LogFile,
    /// The records by their sequences, from 1 on.
    wrote: Vec<Wrote>,
    flushes: Vec<Written>,
}

/// A log after so many flushes, none of which failed.
fn random_log(rng: &mut Rng, flushes: usize) -> Random {
    let mut log = LogFile::new(rng.usize(2..5), rng.usize(2..7));
    if rng.bool() {
        // The records that an earlier life left.
        for _ in 0..rng.usize(0..20) {
            log.home(rng.u32(0..3));
        }
        log.next_epoch();
    }
    let (mut all, mut written) = (Vec::new(), Vec::new());
    for _ in 0..flushes {
        if rng.u8(0..8) == 0 {
            log.cursor = log.cursor.next_segment(&log.log, None, Purpose::Data).unwrap();
        }
        written.push(log.flush(|flush| {
            for i in 0..rng.usize(1..5) {
                let index = rng.u32(0..4);
                let record = match rng.u8(0..4) {
                    _ if i > 0 && flush.room() < 300 => break,
                    0 => {
                        flush.name(index, 0, &LogFile::name(index)).unwrap();
                        Wrote::Name(index)
                    }
                    1 => {
                        let upto = rng.u64(..);
                        flush.home(index, 0, upto).unwrap();
                        Wrote::Home(index, upto)
                    }
                    _ => {
                        let count = rng.usize(0..4);
                        let most = flush.room_for_data(count) / count.max(1);
                        let pieces: Vec<(u64, Vec<u8>)> = (0..count)
                            .map(|_| {
                                let length = rng.usize(0..=most.min(9000));
                                (rng.u64(..1 << 40), bytes(rng, length))
                            })
                            .collect();
                        let ranges: Vec<Range> = pieces
                            .iter()
                            .map(|(offset, b)| Range { offset: *offset, length: b.len() as u64 })
                            .collect();
                        let slices: Vec<&[u8]> = pieces.iter().map(|(_, b)| &b[..]).collect();
                        let size = rng.u64(..);
                        flush.data(index, size, &ranges, &slices).unwrap();
                        Wrote::Data(index, size, pieces)
                    }
                };
                all.push(record);
            }
        }));
    }
    Random { log, wrote: all, flushes: written }
}

/// Bytes that sometimes look like a log's own.
fn bytes(rng: &mut Rng, length: usize) -> Vec<u8> {
    match rng.u8(0..4) {
        0 => vec![0; length],
        1 => b"ucRC\0\0\0\0".iter().copied().cycle().take(length).collect(),
        _ => (0..length).map(|_| rng.u8(..)).collect(),
    }
}

/// Every record that is found is one that was written, with its own sequence, in order.
fn assert_true(random: &Random, found: &[ScanItem<'_>]) {
    let mut last = 0;
    for found in found {
        let ScanItem::Record(record) = found else { continue };
        assert!(record.sequence > last);
        last = record.sequence;
        assert_eq!(Some(&wrote(record)), random.wrote.get(record.sequence as usize - 1));
    }
}

#[test]
fn random_logs_are_found_as_they_were_written() {
    let mut rng = rng();
    for _ in 0..300 {
        let flushes = rng.usize(1..40);
        let random = random_log(&mut rng, flushes);
        let (found, end) = random.log.scan();
        assert_true(&random, &found);
        let found = sequences(&found);
        let last = random.wrote.len() as u64;
        assert_eq!(found.last(), Some(&last), "{end}");
        assert_eq!(end.sequence, last + 1);
        // As many laps as the log has segments hold what was written last, without a gap.
        assert_eq!(found.len() as u64, last - found[0] + 1);
        let newest = random.flushes.last().unwrap().segment;
        let kept = newest.saturating_sub(u64::from(random.log.log.segments) - 1);
        let oldest = random.flushes.iter().find(|flush| flush.segment >= kept).unwrap();
        assert_eq!(found[0], oldest.first);
    }
}

#[test]
fn any_damaged_byte_of_a_record_is_noticed() {
    let mut rng = rng();
    let mut gaps = 0;
    for _ in 0..300 {
        let flushes = rng.usize(1..12);
        let mut random = random_log(&mut rng, flushes);
        let (whole, _) = random.log.scan();
        let records: Vec<(u64, u64)> = whole
            .iter()
            .filter_map(|found| match found {
                ScanItem::Record(record) => Some((record.sequence, record.flush)),
                ScanItem::Gap(_) => None,
            })
            .collect();
        // Where each record lies: decoded from the beginning of its flush on.
        let (sequence, flush) = records[rng.usize(0..records.len())];
        let written = *random.flushes.iter().find(|written| written.first == flush).unwrap();
        let header =
            if written.offset == random.log.log.offset(written.segment) { BLOCK } else { 0 };
        let mut at = written.offset as usize + header;
        let length = loop {
            let record = Record::decode(&random.log.log, &random.log.file[at..]).unwrap();
            if record.sequence == sequence {
                break record.length;
            }
            at += record.pace();
        };
        let byte = at + rng.usize(0..length);
        let newest = random.flushes.last().unwrap().first;
        random.log.file[byte] ^= 1 << rng.u8(0..8);
        let (found, end) = random.log.scan();
        assert_true(&random, &found);
        assert!(!sequences(&found).contains(&sequence), "record {sequence} passes");
        let gap = found.iter().any(|found| matches!(found, ScanItem::Gap(_)));
        gaps += usize::from(gap);
        // Damage in the newest flush can't be told from a flush that was not completed; nor can
        // damage in the segment that was about to be overwritten.
        let last = random.flushes.last().unwrap().segment;
        let next = written.segment + u64::from(random.log.log.segments) == last + 1;
        assert_eq!(gap, flush < newest && !next, "record {sequence} of flush {flush}: {end}");
    }
    assert!(gaps > 10, "only {gaps} gaps");
}

#[test]
fn any_damaged_byte_of_a_segments_header_is_noticed() {
    let mut rng = rng();
    for _ in 0..300 {
        let flushes = rng.usize(1..12);
        let mut random = random_log(&mut rng, flushes);
        let newest = random.flushes.last().unwrap().segment;
        let kept = newest.saturating_sub(u64::from(random.log.log.segments) - 1);
        let segments: Vec<u64> = random
            .flushes
            .iter()
            .map(|flush| flush.segment)
            .filter(|&segment| segment >= kept)
            .collect();
        let segment = segments[rng.usize(0..segments.len())];
        let at = random.log.log.offset(segment) as usize + rng.usize(0..80);
        random.log.file[at] ^= 1 << rng.u8(0..8);
        let (found, _) = random.log.scan();
        assert_true(&random, &found);
        // Damage in the newest flush can't be told from a flush that was not completed; nor can
        // damage in the header of a segment that was about to be overwritten.
        let of_newest =
            segment == newest && random.flushes.iter().filter(|f| f.segment == newest).count() == 1;
        let next = segment + u64::from(random.log.log.segments) == newest + 1;
        let gap = found.iter().any(|found| matches!(found, ScanItem::Gap(_)));
        assert!(gap || of_newest || next, "segment {segment}");
    }
}

#[test]
fn nothing_panics_over_arbitrary_bytes() {
    let mut rng = rng();
    for _ in 0..2000 {
        let flushes = rng.usize(1..8);
        let mut random = random_log(&mut rng, flushes);
        for _ in 0..rng.usize(1..6) {
            let start = rng.usize(0..random.log.file.len());
            let end = (start + rng.usize(1..600)).min(random.log.file.len());
            match rng.u8(0..3) {
                0 => rng.fill(&mut random.log.file[start..end]),
                1 => random.log.file[start..end].fill(0),
                _ => {
                    let from = rng.usize(0..=random.log.file.len() - (end - start));
                    random.log.file.copy_within(from..from + end - start, start);
                }
            }
        }
        let _ = Superblock::find(&random.log.file);
        let mut scan = Scan::new(&random.log.log, &random.log.file).unwrap();
        let found: Vec<_> = scan.by_ref().collect();
        assert_true(&random, &found);
        assert!(scan.end().is_some());
    }
}

#[test]
fn forged_fields_with_true_checksums_do_not_panic() {
    let mut rng = rng();
    for _ in 0..3000 {
        let mut log = LogFile::new(2, 4);
        let written = log.flush(|flush| {
            flush.name(1, 0, &LogFile::name(1)).unwrap();
            flush.data(1, 9, &[Range { offset: 1, length: 4 }], &[b"abcd"]).unwrap();
        });
        let at = written.offset as usize + BLOCK;
        let length = Record::decode(&log.log, &log.file[at..]).unwrap().length;
        let field = at + 8 + rng.usize(0..length - 8);
        log.file[field] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap();
        // The checksum of what is there now, as a program with a fault would write it.
        let says = u32::from_le_bytes(*log.file[at + 8..].first_chunk().unwrap()) as usize;
        let Some(all) = log.file.get(at..at.saturating_add(says)) else { continue };
        let mut all = all.to_vec();
        if all.len() < 8 {
            continue;
        }
        all[4..8].fill(0);
        let seed =
            crc32c::crc32c_append(crc32c::crc32c(&log.log.uuid), &log.log.epoch.to_le_bytes());
        let sum = crc32c::crc32c_append(seed, &all);
        log.file[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        let (found, _) = scan(&log.log, &log.file);
        for found in found {
            if let ScanItem::Record(Record { body: Body::Data(data), .. }) = found {
                let bytes: usize = data.pieces().map(|(_, piece)| piece.len()).sum();
                assert_eq!(bytes, data.bytes().len());
            }
        }
    }
}
