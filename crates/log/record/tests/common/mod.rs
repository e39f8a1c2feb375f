//! A log file in memory.

#![allow(dead_code)]

use uncopy_log_record::*;

/// A log whose flushes land at once.
pub struct LogFile {
    pub file: Vec<u8>,
    pub log: Log,
    pub superblock: Superblock,
    pub cursor: Cursor,
}

impl LogFile {
    /// With so many segments of so many blocks, nothing written.
    pub fn new(segments: usize, blocks: usize) -> LogFile {
        let superblock = Superblock {
            uuid: *b"the log's number",
            host: [1; 16],
            filesystem: [2; 16],
            boot: [3; 16],
            epoch: 1,
            turn: 0,
            heartbeat: 5,
            size: (HEAD + segments * blocks * BLOCK) as u64,
            segment: (blocks * BLOCK) as u32,
            recovering: false,
        };
        let mut found = LogFile {
            file: vec![0; superblock.size as usize],
            log: superblock.log(),
            superblock,
            cursor: Cursor::START,
        };
        found.write_superblock();
        found
    }

    pub fn write_superblock(&mut self) {
        let at = self.superblock.place() as usize;
        self.superblock.encode(self.file[at..].first_chunk_mut().unwrap());
    }

    pub fn next_epoch(&mut self) {
        let here = Here { host: [1; 16], filesystem: [2; 16], boot: [4; 16] };
        self.superblock = self.superblock.succeed(&here, 6);
        self.write_superblock();
        self.log = self.superblock.log();
        self.cursor = Cursor::START;
    }

    pub fn name(index: u32) -> Name<'static> {
        Name {
            device: 0xfd00,
            inode: u64::from(index) + 1000,
            generation: 3,
            handle_kind: -1,
            handle: &[9; 12],
            path: b"/var/lib/redis/appendonly.aof",
        }
    }

    /// A flush with what `fill` adds; in the next segment if this one has no block left.
    pub fn flush(&mut self, fill: impl FnOnce(&mut Flush<'_>)) -> Written {
        if self.cursor.left(&self.log) < BLOCK {
            self.cursor = self.cursor.next_segment(&self.log, None, Purpose::Data).unwrap();
        }
        let mut buffer = vec![0xee; self.log.segment as usize];
        let mut flush = Flush::begin(&self.log, self.cursor, &mut buffer);
        fill(&mut flush);
        let written = flush.finish().expect("a flush without records");
        self.file[written.offset as usize..][..written.length]
            .copy_from_slice(&buffer[..written.length]);
        self.cursor = written.after;
        written
    }

    pub fn home(&mut self, index: u32) -> Written {
        self.flush(|flush| {
            flush.home(index, 0, 0).unwrap();
        })
    }

    pub fn home_in_a_segment_of_its_own(&mut self, index: u32) {
        if self.cursor.used > 0 {
            self.cursor = self.cursor.next_segment(&self.log, None, Purpose::Data).unwrap();
        }
        self.home(index);
    }

    pub fn scan(&self) -> (Vec<ScanItem<'_>>, End) {
        scan(&self.log, &self.file)
    }
}

/// All that a scan finds, and where it ends.
pub fn scan<'a>(log: &Log, file: &'a [u8]) -> (Vec<ScanItem<'a>>, End) {
    let mut scan = Scan::new(log, file).unwrap();
    let found = scan.by_ref().collect();
    (found, scan.end().expect("a scan that is through has an end"))
}

/// The kinds of what was found, a letter each.
pub fn kinds(found: &[ScanItem<'_>]) -> String {
    let letter = |found: &ScanItem<'_>| match found {
        ScanItem::Gap(_) => '-',
        ScanItem::Record(record) => match record.body {
            Body::Name(_) => 'N',
            Body::Data(_) => 'D',
            Body::Home { .. } => 'H',
        },
    };
    found.iter().map(letter).collect()
}

/// The sequences of the records that were found.
pub fn sequences(found: &[ScanItem<'_>]) -> Vec<u64> {
    let sequence = |found: &ScanItem<'_>| match found {
        ScanItem::Gap(_) => None,
        ScanItem::Record(record) => Some(record.sequence),
    };
    found.iter().filter_map(sequence).collect()
}
