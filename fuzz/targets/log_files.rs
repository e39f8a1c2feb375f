//! Log files, of records that were written and then damaged: a scan ends, and finds records in
//! order.
//!
//! Records that are not damaged are found whole. (A fuzzer that sees compares can make a checksum
//! right: what it forges is a record.)
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncopy_log_record::{BLOCK, Cursor, Flush, HEAD, Purpose, Range, Scan, ScanItem, Superblock};

const SEGMENTS: usize = 3;
const BLOCKS: usize = 4;

/// A log, and how many records were written to it at all.
fn written(flushes: &[Vec<(u8, u8)>]) -> (Superblock, Vec<u8>, u64) {
    let superblock = Superblock {
        uuid: [7; 16],
        host: [1; 16],
        filesystem: [2; 16],
        boot: [3; 16],
        epoch: 1,
        turn: 0,
        heartbeat: 5,
        size: (HEAD + SEGMENTS * BLOCKS * BLOCK) as u64,
        segment: (BLOCKS * BLOCK) as u32,
    };
    let log = superblock.log();
    let mut file = vec![0; superblock.size as usize];
    let at = superblock.place() as usize;
    superblock.encode(file[at..].first_chunk_mut().expect("room for a block"));
    let (mut cursor, mut records) = (Cursor::START, 0);
    for flush_of in flushes.iter().filter(|records| !records.is_empty()) {
        if cursor.left(&log) < BLOCK {
            let Ok(next) = cursor.next_segment(&log, None, Purpose::Data) else { break };
            cursor = next;
        }
        let mut buffer = vec![0; log.segment as usize];
        let mut flush = Flush::begin(&log, cursor, &mut buffer);
        for &(kind, length) in flush_of {
            let range = [Range { offset: u64::from(kind), length: u64::from(length) }];
            let bytes = vec![kind; length.into()];
            let added = if kind % 2 == 0 {
                flush.data(kind.into(), length.into(), &range, &[&bytes[..]])
            } else {
                flush.home(kind.into(), length.into(), records)
            };
            records += u64::from(added.is_ok());
        }
        let Some(written) = flush.finish() else { continue };
        file[written.offset as usize..][..written.length]
            .copy_from_slice(&buffer[..written.length]);
        cursor = written.after;
    }
    (superblock, file, records)
}

fuzz_target!(|input: (Vec<Vec<(u8, u8)>>, Vec<(u16, u8)>)| {
    let (flushes, damage) = input;
    let (_, mut file, records) = written(&flushes);
    for &(at, byte) in &damage {
        let at = usize::from(at) % file.len();
        file[at] ^= byte;
    }
    let Ok(superblock) = Superblock::find(&file) else {
        assert!(!damage.is_empty());
        return;
    };
    let Ok(mut scan) = Scan::new(&superblock.log(), &file) else { return };
    let mut last = 0;
    for found in scan.by_ref() {
        if let ScanItem::Record(record) = found {
            assert!(record.sequence > last, "{} after {last}", record.sequence);
            last = record.sequence;
        }
    }
    assert!(scan.end().is_some());
    if damage.is_empty() {
        assert_eq!(last, records);
    }
});
