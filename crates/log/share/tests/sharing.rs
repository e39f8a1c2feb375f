//! Bytes that a program appends come home, go into its log, and are found there again.

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::path::Path;
use uncopy_log_record::{Body, HEAD, Scan, ScanItem, Superblock};
use uncopy_log_share::claims::{Claim, Claims};
use uncopy_log_share::homing::{Ending, NotHome, Which, bring, finish, sync};
use uncopy_log_share::layout::Named;
use uncopy_log_share::memory::Memory;
use uncopy_log_share::writer::{Job, Writer, write_superblock};
use uncopy_log_share::{RING, State};
use uncopy_log_store::{HeldMemory, Kind, Store, create};

const SEGMENT: u64 = 1 << 20;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn memory(directory: &Path) -> Memory<HeldMemory> {
    Memory::create(&directory.join("memory")).unwrap()
}

fn log(directory: &Path, segments: u64) -> Box<dyn Store> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let at = open(directory, flags, Mode::empty()).unwrap();
    let size = HEAD as u64 + segments * SEGMENT;
    let mut store = create(at, "log", size, Kind::Memory).unwrap();
    let id = [7; 16];
    let superblock = Superblock {
        uuid: id,
        host: id,
        filesystem: id,
        boot: id,
        epoch: 1,
        turn: 0,
        heartbeat: 0,
        size,
        segment: SEGMENT as u32,
        recovering: false,
    };
    write_superblock(&mut *store, &superblock).unwrap();
    store
}

/// Appends as a program does. False: appending has ended.
fn append(memory: &Memory<HeldMemory>, slot: usize, bytes: &[u8]) -> bool {
    let words = &memory.entry(slot).words;
    let at = words.end().at();
    memory.back(slot, at, bytes.len()).unwrap();
    let mut rest = bytes;
    for (to, n) in memory.runs(slot, at, bytes.len()) {
        // SAFETY: within the ring, of which nobody else uses these bytes: there is room.
        unsafe { to.copy_from_nonoverlapping(rest.as_ptr(), n) };
        rest = &rest[n..];
    }
    words.publish(at, at + bytes.len() as u64)
}

fn copy(memory: &Memory<HeldMemory>) -> impl FnMut(&Job, &mut [u8]) -> bool {
    |job, place| {
        memory.copy_out(job.slot, job.from, place);
        true
    }
}

#[test]
fn appends_of_any_length_come_home_in_their_order_over_many_laps_of_the_ring() {
    let directory = directory();
    let memory = memory(directory.path());
    let path = directory.path().join("file");
    std::fs::write(&path, [9; 100]).unwrap();
    let file = open(&path, OFlags::WRONLY | OFlags::APPEND, Mode::empty()).unwrap();
    let entry = memory.entry(3);
    entry.hold(1, 1, 100, &Named::default());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut expected = vec![9; 100];
    while expected.len() < 3 * RING as usize {
        let most = if random.bool() { 300 } else { 700_000 };
        let n = random.usize(1..most);
        let bytes: Vec<u8> = (0..n).map(|_| random.u8(..)).collect();
        if entry.words.end().at() + n as u64 - entry.words.home() > RING {
            let which = if random.bool() { Which::Blocks } else { Which::All };
            bring(&memory, 3, file.as_fd(), which, random.bool()).unwrap();
        }
        assert!(append(&memory, 3, &bytes));
        expected.extend(bytes);
    }
    let end = entry.words.close();
    assert!(!append(&memory, 3, b"more"), "appending has ended");
    assert_eq!(bring(&memory, 3, file.as_fd(), Which::All, true), Ok(end));
    sync(&memory, 3, file.as_fd()).unwrap();
    assert_eq!(entry.words.durable(), expected.len() as u64);
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn what_a_dead_one_had_brought_home_and_not_said_is_not_written_twice() {
    let directory = directory();
    let memory = memory(directory.path());
    let path = directory.path().join("file");
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).unwrap();
    memory.entry(0).hold(1, 1, 0, &Named::default());
    assert!(append(&memory, 0, b"first second"));
    std::fs::write(&path, b"first").unwrap();
    bring(&memory, 0, file.as_fd(), Which::All, true).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"first second");
}

#[test]
fn a_file_that_somebody_else_has_changed_gets_nothing() {
    let directory = directory();
    let memory = memory(directory.path());
    let path = directory.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let file = open(&path, OFlags::WRONLY, Mode::empty()).unwrap();
    memory.entry(0).hold(1, 1, 10, &Named::default());
    assert!(append(&memory, 0, b"held"));
    std::fs::write(&path, b"01234").unwrap();
    let is = bring(&memory, 0, file.as_fd(), Which::All, true);
    assert_eq!(is, Err(NotHome::Changed { is: 5, should: 10 }));
    // (As many as are held, and others.)
    std::fs::write(&path, b"0123456789else").unwrap();
    let is = bring(&memory, 0, file.as_fd(), Which::All, true);
    assert_eq!(is, Err(NotHome::Changed { is: 14, should: 10 }));
    std::fs::write(&path, [1; 100]).unwrap();
    let is = bring(&memory, 0, file.as_fd(), Which::All, true);
    assert_eq!(is, Err(NotHome::Changed { is: 100, should: 10 }));
    assert_eq!(std::fs::read(&path).unwrap(), [1; 100]);
}

/// The kernel says once that it has dropped something.
#[test]
fn after_a_sync_that_failed_what_the_ring_has_is_written_once_more() {
    for flags in [OFlags::WRONLY | OFlags::APPEND, OFlags::RDWR] {
        let directory = directory();
        let memory = memory(directory.path());
        let path = directory.path().join("file");
        std::fs::write(&path, b"base").unwrap();
        let file = open(&path, flags, Mode::empty()).unwrap();
        let file = file.as_fd();
        let entry = memory.entry(0);
        entry.hold(1, 1, 4, &Named::default());
        assert!(append(&memory, 0, b" durable"));
        bring(&memory, 0, file, Which::All, false).unwrap();
        assert_eq!(sync(&memory, 0, file), Ok(true));
        assert!(append(&memory, 0, b" dropped"));
        bring(&memory, 0, file, Which::All, false).unwrap();
        entry.logged.store(20, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(entry.synced(|| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(entry.synced(|| Ok(())), Err(Errno::IO), "the next one tells nothing");
        assert_eq!(entry.words.durable(), 12);
        // (The disk has this then.)
        std::fs::write(&path, b"base durable\0\0\0\0\0\0\0\0").unwrap();
        entry.words.close();
        let ending = Ending { logged: true, alone: false, open: false };
        let open = Ending { open: true, ..ending };
        let changed = NotHome::Changed { is: 20, should: 20 };
        assert_eq!(finish(&memory, 0, file, open), Err(changed), "it may be somebody's");
        assert_eq!(finish(&memory, 0, file, ending), Ok(true));
        assert_eq!(std::fs::read(&path).unwrap(), b"base durable dropped");
        assert_eq!(entry.words.durable(), 20);
        assert_eq!(rustix::fs::fcntl_getfl(file).unwrap() & OFlags::APPEND, flags & OFlags::APPEND);
        assert_eq!(entry.synced(|| Ok(())), Ok(true));
    }
}

#[test]
fn what_is_not_in_the_ring_any_more_is_not_called_durable() {
    let directory = directory();
    let memory = memory(directory.path());
    let path = directory.path().join("file");
    std::fs::write(&path, b"").unwrap();
    let file = open(&path, OFlags::WRONLY | OFlags::APPEND, Mode::empty()).unwrap();
    let entry = memory.entry(0);
    entry.hold(1, 1, 0, &Named::default());
    for _ in 0..5 {
        assert!(append(&memory, 0, &vec![1; RING as usize / 4]));
        bring(&memory, 0, file.as_fd(), Which::All, true).unwrap();
    }
    entry.logged.store(entry.words.close(), std::sync::atomic::Ordering::SeqCst);
    assert!(entry.synced(|| Err(Errno::IO)).is_err());
    let ending = Ending { logged: true, alone: false, open: false };
    assert_eq!(finish(&memory, 0, file.as_fd(), ending), Ok(false));
    assert_eq!(entry.words.durable(), 0);
}

/// Of two syncs only one is told of an error.
#[test]
fn a_sync_during_another_one_says_nothing() {
    let directory = directory();
    let memory = memory(directory.path());
    let entry = memory.entry(0);
    entry.hold(1, 1, 0, &Named::default());
    assert!(append(&memory, 0, b"held"));
    entry.words.homed(4);
    let outer = entry.synced(|| {
        assert_eq!(entry.synced(|| Ok(())), Ok(false));
        Ok(())
    });
    assert_eq!((outer, entry.words.durable()), (Ok(true), 4));
    let outer = entry.synced(|| {
        assert_eq!(entry.synced(|| Err(Errno::IO)), Err(Errno::IO));
        Ok(())
    });
    assert_eq!(outer, Err(Errno::IO));
}

#[test]
fn what_was_logged_of_several_files_is_found_again_with_their_names() {
    let directory = directory();
    let memory = memory(directory.path());
    let mut writer = Writer::new(log(directory.path(), 4)).unwrap();
    let named = |n: u64| Named { inode: n, path: format!("/file{n}").into(), ..Named::default() };
    for slot in 0..3 {
        memory.entry(slot).hold(1, 10 + slot as u32, 0, &named(slot as u64));
        assert!(append(&memory, slot, format!("bytes of {slot}").as_bytes()));
    }
    let jobs: Vec<Job> =
        (0..3).map(|slot| Job { slot, index: 10 + slot as u32, from: 0, to: 10 }).collect();
    assert_eq!(writer.flush(&memory, &jobs, copy(&memory)), Ok(3));
    writer.home(&memory, 11, 10).unwrap();
    let file = std::fs::read(directory.path().join("log")).unwrap();
    let log = Superblock::find(&file).unwrap().log();
    let found: Vec<String> = Scan::new(&log, &file)
        .unwrap()
        .map(|found| match found {
            ScanItem::Record(record) => match record.body {
                Body::Name(name) => format!("{} {}", record.index, name.path.escape_ascii()),
                Body::Data(data) => format!("{} {}", record.index, data.bytes().escape_ascii()),
                Body::Home { .. } => format!("{} home", record.index),
            },
            ScanItem::Gap(gap) => panic!("{gap}"),
        })
        .collect();
    let expected = [
        "10 /file0",
        "10 bytes of 0",
        "11 /file1",
        "11 bytes of 1",
        "12 /file2",
        "12 bytes of 2",
        "11 home",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_log_is_written_round_and_round_as_long_as_bytes_come_home_and_full_when_not() {
    let directory = directory();
    let memory = memory(directory.path());
    let mut writer = Writer::new(log(directory.path(), 4)).unwrap();
    let path = directory.path().join("file");
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).unwrap();
    memory.entry(5).hold(1, 1, 0, &Named::default());
    let piece = vec![5; 200_000];
    let mut log = |home: bool| {
        let from = memory.entry(5).words.end().at();
        assert!(append(&memory, 5, &piece));
        if home {
            bring(&memory, 5, file.as_fd(), Which::All, false).unwrap();
            sync(&memory, 5, file.as_fd()).unwrap();
        }
        let job = Job { slot: 5, index: 1, from, to: from + piece.len() as u64 };
        writer.flush(&memory, &[job], copy(&memory)).is_ok()
    };
    assert!((0..100).all(|_| log(true)), "20 MB through 4 MB");
    let flushed = (0..40).take_while(|_| log(false)).count();
    assert!((8..20).contains(&flushed), "{flushed} of 200 KB in 4 MB");
    assert!(log(true), "and again, once they are home");
}

#[test]
fn a_claim_is_one_processs_and_ends_with_it() {
    let directory = directory();
    let memory = memory(directory.path());
    let (one, other) = (Claims::of(memory.file()).unwrap(), Claims::of(memory.file()).unwrap());
    assert!(one.claim(Claim::Entry(3)) && one.claim(Claim::Client(3)));
    assert!(!other.claim(Claim::Entry(3)) && other.claim(Claim::Entry(4)));
    assert!(other.is_others(Claim::Client(3)) && !other.is_others(Claim::Client(4)));
    drop(one);
    assert!(!other.is_others(Claim::Client(3)) && other.claim(Claim::Entry(3)));
}

#[test]
fn memory_of_another_version_or_length_is_refused() {
    let directory = directory();
    drop(memory(directory.path()));
    let path = directory.path().join("memory");
    let again = Memory::open(&path).unwrap();
    assert_eq!(again.entry(0).state(), State::Free);
    std::fs::write(&path, [0; 4096]).unwrap();
    assert!(Memory::open(&path).is_err());
}
