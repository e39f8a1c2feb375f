//! The bytes of a log that are brought to its files, in which order, and those that are refused.

use uncopy_log_book::recovery::{Recovery, Refusal, Refused, Task};
use uncopy_log_book::*;
use uncopy_log_record::superblock::GRACE;
use uncopy_log_record::{BLOCK, Cursor, Flush, HEAD, Here, Name, Purpose, Range, Superblock};

const THERE: Here = Here { host: [1; 16], filesystem: [2; 16], boot: [3; 16] };
const HERE: Here = Here { boot: [4; 16], ..THERE };
const BEAT: u64 = 100_000_000_000;
const BOOTED: u64 = 200_000_000_000;
const NOW: u64 = 230_000_000_000;

struct Log {
    superblock: Superblock,
    cursor: Cursor,
    file: Vec<u8>,
}

impl Log {
    fn new() -> Log {
        let size = HEAD + 4 * 8 * BLOCK;
        let superblock = Superblock {
            uuid: [9; 16],
            host: THERE.host,
            filesystem: THERE.filesystem,
            boot: THERE.boot,
            epoch: 7,
            turn: 40,
            heartbeat: BEAT,
            size: size as u64,
            segment: 8 * BLOCK as u32,
            recovering: false,
        };
        Log { superblock, cursor: Cursor::START, file: vec![0; size] }
    }

    fn flush(&mut self, fill: impl FnOnce(&mut Flush<'_>)) -> usize {
        let log = self.superblock.log();
        if self.cursor.left(&log) < BLOCK {
            self.cursor = self.cursor.next_segment(&log, None, Purpose::Data).unwrap();
        }
        let mut buffer = vec![0; 8 * BLOCK];
        let mut flush = Flush::begin(&log, self.cursor, &mut buffer);
        fill(&mut flush);
        let written = flush.finish().unwrap();
        let at = written.offset as usize;
        self.file[at..at + written.length].copy_from_slice(&buffer[..written.length]);
        self.cursor = written.after;
        at
    }

    fn name(&mut self, index: u32, inode: u64) -> usize {
        self.flush(|flush| {
            let name = Name {
                device: 1,
                inode,
                generation: 0,
                handle_kind: 1,
                handle: b"handle",
                path: b"/a",
            };
            flush.name(index, 0, &name).unwrap();
        })
    }

    fn data(&mut self, index: u32, offset: u64, bytes: &[u8]) -> usize {
        let range = Range { offset, length: bytes.len() as u64 };
        self.flush(|flush| {
            flush.data(index, range.end(), &[range], &[bytes]).unwrap();
        })
    }

    fn home(&mut self, index: u32, upto: u64) {
        self.flush(|flush| {
            flush.home(index, 0, upto).unwrap();
        });
    }

    fn plan(&self) -> Plan<'_> {
        Plan::new(&self.superblock, &self.file).unwrap()
    }

    /// All tasks of a recovery that finds this of each file.
    fn tasks(&self, found: &[OnDisk]) -> Vec<Task> {
        let plan = self.plan();
        let mut recovery = Recovery::begin(&self.superblock, &plan, &HERE, BOOTED, NOW).unwrap();
        let mut tasks = Vec::new();
        loop {
            let task = recovery.task();
            tasks.push(task);
            match task {
                Task::Look(at) => {
                    recovery.looked(found[at]);
                }
                Task::Done => return tasks,
                _ => {}
            }
        }
    }

    fn verdict(&self, found: OnDisk) -> Verdict {
        let plan = self.plan();
        assert_eq!(plan.files.len(), 1);
        let mut recovery = Recovery::begin(&self.superblock, &plan, &HERE, BOOTED, NOW).unwrap();
        assert_eq!(recovery.task(), Task::Look(0));
        recovery.looked(found)
    }
}

fn pieces<'a>(file: &File<'a>) -> Vec<(u64, &'a [u8])> {
    file.pieces.iter().map(|piece| (piece.offset, piece.bytes)).collect()
}

#[test]
fn what_is_live_is_to_be_replayed_and_home_ends_what_is_older() {
    let mut log = Log::new();
    log.name(1, 11); // 1
    log.name(2, 22); // 2
    log.data(1, 0, b"old"); // 3
    log.data(2, 5, b"other"); // 4
    log.data(1, 3, b"kept"); // 5
    log.home(1, 3);
    let plan = log.plan();
    assert!(plan.gaps.is_empty());
    assert_eq!(plan.files.len(), 2);
    assert_eq!(pieces(&plan.files[0]), [(3, &b"kept"[..])]);
    assert_eq!(plan.files[0].size, 7);
    assert_eq!(plan.files[0].owner.as_ref().unwrap().inode, 11);
    assert_eq!(pieces(&plan.files[1]), [(5, &b"other"[..])]);
    log.home(1, 6);
    log.home(2, 6);
    assert!(log.plan().files.is_empty());
}

#[test]
fn an_index_that_was_given_to_another_file_leaves_the_first_ones_bytes_alone() {
    let mut log = Log::new();
    log.name(1, 11);
    log.data(1, 0, b"first");
    log.name(1, 12);
    log.data(1, 0, b"second");
    let plan = log.plan();
    let inodes: Vec<_> = plan.files.iter().map(|file| file.owner.as_ref().unwrap().inode).collect();
    assert_eq!(inodes, [11, 12]);
    assert_eq!(pieces(&plan.files[1]), [(0, &b"second"[..])]);
}

#[test]
fn all_is_judged_and_what_is_refused_saved_before_anything_is_written() {
    let mut log = Log::new();
    for index in 0..4 {
        log.name(index, index.into());
        log.data(index, 0, b"bytes");
    }
    let there = OnDisk::There { modified: BEAT };
    let changed = OnDisk::There { modified: BEAT + GRACE + 1 };
    let tasks = log.tasks(&[there, changed, OnDisk::Gone, there]);
    let refusal = Refusal::Changed { modified: BEAT + GRACE + 1, limit: BEAT + GRACE };
    let adopted = log.superblock.adopt(&HERE, NOW);
    let expected = [
        Task::Look(0),
        Task::Look(1),
        Task::Look(2),
        Task::Look(3),
        Task::Save(1, refusal),
        Task::Write(adopted),
        Task::Replay(0),
        Task::Replay(3),
        Task::Sync(0),
        Task::Sync(3),
        Task::Write(adopted.succeed(&HERE, NOW)),
        Task::Done,
    ];
    assert_eq!(tasks, expected);
    assert_eq!(adopted.succeed(&HERE, NOW).epoch, 8);
}

#[test]
fn a_recovery_that_was_interrupted_takes_its_own_writes_for_its_own() {
    let mut log = Log::new();
    log.name(1, 11);
    log.data(1, 0, b"bytes");
    let replayed = OnDisk::There { modified: NOW + 1 };
    assert!(matches!(log.verdict(replayed), Verdict::Refuse(Refusal::Changed { .. })));
    log.superblock = log.superblock.adopt(&HERE, NOW);
    assert_eq!(log.verdict(replayed), Verdict::Replay);
    // Bytes that it had refused before that stay refused.
    assert_eq!(log.verdict(OnDisk::Saved), Verdict::Refuse(Refusal::Before));
}

#[test]
fn a_change_in_this_boot_is_a_strangers_however_soon_it_came() {
    let mut log = Log::new();
    log.name(1, 11);
    log.data(1, 0, b"bytes");
    let plan = log.plan();
    let booted = BEAT + 2_000_000_000;
    let begin = |booted| Recovery::begin(&log.superblock, &plan, &HERE, booted, NOW).unwrap();
    let changed = OnDisk::There { modified: booted + 1 };
    assert!(matches!(begin(booted).looked(changed), Verdict::Refuse(Refusal::Changed { .. })));
    // A clock that was set back says nothing about when this boot began.
    assert_eq!(begin(BEAT - 1).looked(changed), Verdict::Replay);
}

#[test]
fn nothing_is_guessed_from_a_damaged_log() {
    let mut log = Log::new();
    log.name(1, 11);
    let damaged = log.data(1, 0, b"bytes");
    log.data(1, 0, b"newer");
    log.file[damaged + 30] ^= 1;
    let there = OnDisk::There { modified: BEAT };
    assert_eq!(log.verdict(there), Verdict::Refuse(Refusal::Damaged));
}

#[test]
fn what_has_no_name_and_what_cannot_be_opened_is_refused() {
    let mut log = Log::new();
    log.data(1, 0, b"bytes");
    let there = OnDisk::There { modified: BEAT };
    assert_eq!(log.verdict(there), Verdict::Refuse(Refusal::Nameless));
    let mut log = Log::new();
    log.name(1, 11);
    log.data(1, 0, b"bytes");
    assert_eq!(log.verdict(OnDisk::Unknown), Verdict::Refuse(Refusal::Unknown));
    assert_eq!(log.verdict(OnDisk::Gone), Verdict::Gone);
}

#[test]
fn a_log_from_elsewhere_is_refused_by_name() {
    let log = Log::new();
    let plan = log.plan();
    let begin = |here: Here| Recovery::begin(&log.superblock, &plan, &here, BOOTED, NOW).err();
    assert_eq!(begin(Here { host: [8; 16], ..HERE }), Some(Refused::OtherHost));
    assert_eq!(begin(Here { filesystem: [8; 16], ..HERE }), Some(Refused::OtherFileSystem));
    assert_eq!(begin(THERE), Some(Refused::ThisBoot));
    assert!(Refused::OtherHost.to_string().contains("another host"));
}
