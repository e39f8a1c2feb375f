//! A log in memory: what is written is found, in order, and the end is told by name.

mod common;

use common::{LogFile, kinds, sequences};
use uncopy_log_record::log::NO_SEGMENT;
use uncopy_log_record::record::HOME_LENGTH;
use uncopy_log_record::*;

#[test]
fn what_was_flushed_is_found_in_order() {
    let mut log = LogFile::new(4, 8);
    log.flush(|flush| {
        flush.name(7, 0, &LogFile::name(7)).unwrap();
        let ranges = [Range { offset: 10, length: 3 }, Range { offset: 100, length: 2 }];
        flush.data(7, 102, &ranges, &[b"ab", b"cde"]).unwrap();
    });
    log.flush(|flush| {
        flush.home(7, 102, 2).unwrap();
    });
    let (found, end) = log.scan();
    assert_eq!(kinds(&found), "NDH");
    let ScanItem::Record(Record {
        sequence: 2, index: 7, size: 102, body: Body::Data(data), ..
    }) = found[1]
    else {
        panic!("{:?}", found[1])
    };
    let pieces: Vec<_> = data.pieces().collect();
    assert_eq!(pieces, [(10, &b"abc"[..]), (100, b"de")]);
    let ScanItem::Record(Record { body: Body::Name(name), .. }) = found[0] else { panic!() };
    assert_eq!(name, LogFile::name(7));
    let ScanItem::Record(Record { body: Body::Home { upto: 2 }, flush: 3, .. }) = found[2] else {
        panic!("{:?}", found[2])
    };
    assert_eq!(end.why, Why::Unwritten);
    assert_eq!(end.sequence, 4);
}

#[test]
fn an_empty_log_ends_at_its_beginning() {
    let log = LogFile::new(4, 8);
    let (found, end) = log.scan();
    assert!(found.is_empty());
    assert_eq!(end, End { offset: HEAD as u64, sequence: 1, why: Why::Nothing });
}

#[test]
fn each_flush_begins_a_block_and_rewrites_none() {
    let mut log = LogFile::new(3, 8);
    let mut last = 0;
    for i in 0..4u32 {
        let written = log.flush(|flush| {
            flush.home(i, 0, 0).unwrap();
        });
        assert!(written.offset.is_multiple_of(BLOCK as u64));
        assert!(written.offset >= last, "{} lies within the flush before", written.offset);
        last = written.offset + written.length as u64;
    }
}

#[test]
fn a_log_of_several_laps_has_what_was_not_overwritten() {
    let mut log = LogFile::new(3, 2);
    for i in 1..=10 {
        log.home_in_a_segment_of_its_own(i);
    }
    let (found, end) = log.scan();
    assert_eq!(sequences(&found), [8, 9, 10]);
    assert_eq!(end.why, Why::Full);
}

#[test]
fn a_record_of_an_earlier_lap_is_told_as_such() {
    let mut log = LogFile::new(2, 3);
    for _ in 0..5 {
        log.home(1);
    }
    // Two blocks of records to a segment: the fifth begins the second lap, the second one's place
    // still has record 2.
    let (found, end) = log.scan();
    assert_eq!(sequences(&found), [3, 4, 5]);
    assert_eq!(end.why, Why::EarlierLap { sequence: 2 });
    assert!(end.to_string().contains("record 2 of an earlier lap"), "{end}");
}

#[test]
fn an_earlier_epoch_counts_no_more_and_is_told_as_such() {
    let mut log = LogFile::new(2, 4);
    log.home(1);
    log.home(1);
    log.home(1);
    log.next_epoch();
    assert_eq!(log.scan().1.why, Why::Nothing);
    log.home(1);
    let (found, end) = log.scan();
    assert_eq!(sequences(&found), [1]);
    assert_eq!(end.why, Why::EarlierEpoch { epoch: 1 });
}

#[test]
fn another_logs_segments_are_none_of_this_one() {
    let mut log = LogFile::new(2, 4);
    log.home(1);
    let mut other = log.log;
    other.uuid[3] ^= 1;
    let mut scan = Scan::new(&other, &log.file).unwrap();
    assert_eq!(scan.next(), None);
    assert_eq!(scan.end().unwrap().why, Why::Nothing);
    let header = &log.file[HEAD..];
    assert_eq!(Segment::decode(&other, header), Err(NoSegment::OtherLog));
}

#[test]
fn a_flush_of_which_sectors_are_missing_is_torn_or_whole() {
    let mut log = LogFile::new(2, 8);
    log.home(1);
    log.home(1);
    let old = log.file.clone();
    let written = log.flush(|flush| {
        flush.data(1, 0, &[Range { offset: 0, length: 5000 }], &[&[0xab; 5000]]).unwrap();
        flush.home(1, 0, 3).unwrap();
    });
    let new = log.file.clone();
    let at = written.offset as usize;
    let sectors = written.length / SECTOR;
    for mask in 0..1u32 << sectors {
        log.file.copy_from_slice(&old);
        for sector in (0..sectors).filter(|sector| mask >> sector & 1 == 1) {
            let span = at + sector * SECTOR..at + (sector + 1) * SECTOR;
            log.file[span.clone()].copy_from_slice(&new[span]);
        }
        let (found, end) = log.scan();
        let found = sequences(&found);
        assert!([2, 3, 4].contains(&found.len()), "{found:?}");
        let whole = (0..sectors).all(|sector| {
            let span = at + sector * SECTOR..at + (sector + 1) * SECTOR;
            log.file[span.clone()] == new[span]
        });
        assert!(!whole || found.len() == 4, "a whole flush is missing");
        if found.len() < 4 && mask & 1 == 1 {
            assert_eq!(end.why, Why::Torn, "sectors {mask:b}");
        }
    }
}

#[test]
fn a_flush_that_failed_counts_no_more_once_the_next_is_there() {
    let mut log = LogFile::new(4, 8);
    log.home(1);
    let before = log.cursor;
    // It is on the disk, whole, but somebody was told that it failed.
    log.home(99);
    log.cursor = before.next_segment(&log.log, None, Purpose::Home).unwrap();
    log.home(2);
    let (found, end) = log.scan();
    assert_eq!(sequences(&found), [1, 2]);
    let ScanItem::Record(second) = found[1] else { panic!() };
    assert_eq!(second.index, 2);
    assert_eq!(end.sequence, 3);
}

#[test]
fn a_segment_whose_first_flush_failed_is_passed_over() {
    for lands in [false, true] {
        let mut log = LogFile::new(4, 2);
        log.home_in_a_segment_of_its_own(1);
        let before = log.cursor.next_segment(&log.log, None, Purpose::Home).unwrap();
        let old = log.file.clone();
        log.cursor = before;
        log.home(99);
        if !lands {
            log.file = old;
        }
        log.cursor = before.next_segment(&log.log, None, Purpose::Home).unwrap();
        assert_eq!(log.cursor.before, 0);
        log.home(2);
        log.home_in_a_segment_of_its_own(3);
        let (found, _) = log.scan();
        assert_eq!(sequences(&found), [1, 2, 3], "landed: {lands}");
        let ScanItem::Record(second) = found[1] else { panic!() };
        assert_eq!(second.index, 2);
    }
}

#[test]
fn what_was_durable_and_is_damaged_is_a_gap_and_no_end() {
    let mut log = LogFile::new(2, 8);
    let written: Vec<_> = (0..4).map(|_| log.home(1)).collect();
    log.file[written[1].offset as usize + 20] ^= 1;
    let (found, _) = log.scan();
    assert_eq!(sequences(&found), [1, 3, 4]);
    let behind_the_first = written[0].offset + (BLOCK + HOME_LENGTH) as u64;
    assert_eq!(found[1], ScanItem::Gap(Gap { offset: behind_the_first, from: 2, to: 3 }));
}

#[test]
fn a_segment_that_was_about_to_be_overwritten_is_no_gap() {
    let mut log = LogFile::new(2, 4);
    for _ in 0..3 {
        log.home(1);
    }
    log.home_in_a_segment_of_its_own(2);
    let old = log.file.clone();
    log.cursor = log.cursor.next_segment(&log.log, None, Purpose::Home).unwrap();
    let written = log.home(3);
    assert_eq!(written.offset, HEAD as u64);
    // Power was lost over that: its record is there, the header of its segment is not.
    let header = HEAD..HEAD + SECTOR;
    log.file[header.clone()].copy_from_slice(&old[header]);
    let (found, end) = log.scan();
    assert_eq!(sequences(&found), [4], "{found:?}");
    assert_eq!(end.sequence, 5);
}

#[test]
fn damaged_headers_of_segments_are_gaps() {
    for damaged in 0..3u64 {
        let mut log = LogFile::new(4, 3);
        for i in 1..=3 {
            log.home_in_a_segment_of_its_own(i);
            log.home(i);
        }
        let at = log.log.offset(damaged) as usize;
        log.file[at + 9] ^= 0x40;
        let (found, _) = log.scan();
        let gaps = found.iter().filter(|found| matches!(found, ScanItem::Gap(_))).count();
        assert_eq!(gaps, 1, "segment {damaged}: {found:?}");
    }
}

#[test]
fn a_truncated_file_is_told_as_such() {
    let log = LogFile::new(2, 8);
    let should = log.file.len() as u64;
    let short = &log.file[..log.file.len() - 1];
    let expected = Unusable::Truncated { is: should - 1, should };
    assert_eq!(Superblock::find(short), Err(expected));
    assert_eq!(Scan::new(&log.log, short).err(), Some(expected));
    assert!(expected.to_string().contains("truncated"));
}

#[test]
fn a_segment_with_live_records_is_not_entered() {
    let log = LogFile::new(3, 2).log;
    let cursor = Cursor { sequence: 9, number: 3, used: 8192, before: 2 };
    // Segments 2 and 3 are live; 4 is free, and would be the last one.
    let oldest = Some(2);
    assert_eq!(cursor.next_segment(&log, oldest, Purpose::Data), Err(NoRoom { oldest: 2 }));
    let next = cursor.next_segment(&log, oldest, Purpose::Home).unwrap();
    assert_eq!(next, Cursor { sequence: 9, number: 4, used: 0, before: 3 });
    assert_eq!(next.admits(&log, oldest, Purpose::Data), Err(NoRoom { oldest: 2 }));
    assert_eq!(next.admits(&log, Some(3), Purpose::Data), Ok(()));
    let full = Cursor { used: 8192, ..next };
    assert_eq!(full.next_segment(&log, oldest, Purpose::Home), Err(NoRoom { oldest: 2 }));
    assert!(full.next_segment(&log, None, Purpose::Data).is_ok());
}

#[test]
fn what_does_not_fit_leaves_the_flush_as_it_was() {
    let log = LogFile::new(2, 2);
    let mut buffer = vec![0xff; 2 * BLOCK];
    let mut flush = Flush::begin(&log.log, Cursor::START, &mut buffer);
    let room = flush.room();
    assert_eq!(room, BLOCK);
    let most = flush.room_for_data(1) as u64;
    let too_long = [Range { offset: 0, length: most + 1 }];
    let bytes = vec![1; most as usize + 1];
    let full = flush.data(0, 0, &too_long, &[&bytes]).unwrap_err();
    assert_eq!((full.need, full.room), (BLOCK + 1, BLOCK));
    let failed = flush.data_by(0, 0, &[Range { offset: 0, length: 9 }], |_| Err("pread failed"));
    assert!(failed.is_err());
    assert_eq!((flush.room(), flush.sequence()), (room, 1));
    flush.data(0, 0, &[Range { offset: 0, length: most }], &[&bytes[1..]]).unwrap();
    assert_eq!(flush.room(), 0);
    let written = flush.finish().unwrap();
    assert_eq!((written.first, written.last, written.length), (1, 1, 2 * BLOCK));
    assert_eq!(written.after.left(&log.log), 0);
}

#[test]
fn a_flush_without_records_writes_nothing() {
    let log = LogFile::new(2, 2);
    let mut buffer = vec![0; 2 * BLOCK];
    assert_eq!(Flush::begin(&log.log, Cursor::START, &mut buffer).finish(), None);
    let mut no_room = [0; 100];
    let mut flush = Flush::begin(&log.log, Cursor::START, &mut no_room);
    assert_eq!(flush.home(1, 0, 0), Err(Full { need: HOME_LENGTH, room: 0 }));
    assert_eq!(flush.finish(), None);
}

#[test]
fn the_first_segment_of_an_epoch_has_none_before() {
    let mut log = LogFile::new(2, 2);
    log.home(1);
    let header = Segment::decode(&log.log, &log.file[HEAD..]).unwrap();
    assert_eq!(header, Segment { number: 0, first: 1, before: NO_SEGMENT });
}

#[test]
fn checksums_are_crc32c() {
    // The check value that RFC 3720 and others name.
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}
