//! Each store keeps what it was given, and bytes come home as they were held.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fcntl_getfl, open as open_path};
use rustix::io::Errno;
use uncopy_log_store::{Kind, Store, create, home, open};

const BYTES: u64 = 4 << 20;

fn directory() -> (tempfile::TempDir, OwnedFd) {
    // (Not /tmp: where that is tmpfs, O_DIRECT may not be had.)
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = open_path(directory.path(), flags, Mode::empty()).unwrap();
    (directory, fd)
}

fn reopened(store: &dyn Store, directory: &tempfile::TempDir) -> Box<dyn Store> {
    let file = open_path(directory.path().join("log"), OFlags::RDWR, Mode::empty()).unwrap();
    open(file, store.kind()).unwrap()
}

#[test]
fn what_was_flushed_is_read_again_by_who_opens_the_log_later() {
    for kind in [Kind::Direct, Kind::Memory] {
        let (directory, fd) = directory();
        let mut store = create(&fd, "log", BYTES, kind).unwrap();
        let mut all = vec![1; BYTES as usize];
        store.read(0, &mut all).unwrap();
        assert!(all.iter().all(|b| *b == 0), "{kind:?}: a new log is zeros");
        for (at, byte) in [(0u64, 7u8), (8192, 8), (BYTES - 4096, 9)] {
            store.memory()[..4096].fill(byte);
            store.flush(at, 4096).unwrap();
        }
        drop(store);
        let store = create(&fd, "other", 4096, kind).unwrap();
        let store = reopened(&*store, &directory);
        assert_eq!(store.bytes(), BYTES);
        let mut at = [0; 3];
        for (i, place) in [100, 8200, BYTES - 1].into_iter().enumerate() {
            store.read(place, &mut at[i..=i]).unwrap();
        }
        assert_eq!(at, [7, 8, 9], "{kind:?}");
        let mut behind = [1; 10];
        store.read(BYTES - 5, &mut behind).unwrap();
        assert_eq!(behind, [9, 9, 9, 9, 9, 0, 0, 0, 0, 0], "{kind:?}: zeros behind the end");
    }
}

#[test]
fn a_new_direct_log_has_all_its_blocks() {
    let (_directory, fd) = directory();
    let store = create(&fd, "log", BYTES, Kind::Direct).unwrap();
    let stat = rustix::fs::fstat(store.file()).unwrap();
    assert!(stat.st_blocks as u64 * 512 >= BYTES, "{} blocks", stat.st_blocks);
}

#[test]
fn dax_is_refused_by_name_where_memory_is_not_persistent() {
    let (_directory, fd) = directory();
    let why = match create(&fd, "log", BYTES, Kind::Dax) {
        // (On a machine that has such memory there is nothing to refuse.)
        Ok(store) => return assert_eq!(store.kind(), Kind::Dax),
        Err(why) => why.to_string(),
    };
    assert!(why.contains("MAP_SYNC") && why.contains("--log-store=direct"), "{why}");
}

#[test]
fn a_directory_that_is_not_there_or_read_only_is_said_with_what_to_do() {
    let (directory, fd) = directory();
    drop(directory);
    let why = create(&fd, "log", BYTES, Kind::Direct).unwrap_err();
    assert_eq!(why.why, Errno::NOENT);
    assert!(why.to_string().contains("--log=DIR"), "{why}");
}

/// Bytes at every distance from the beginning of a block, some of whole blocks and some not.
#[test]
fn bytes_come_home_to_where_the_file_ends_whatever_their_place_in_a_block() {
    let (directory, _fd) = directory();
    let held: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 3) as u8 ^ (i >> 9) as u8).collect();
    let base = held.as_ptr().align_offset(4096);
    for append in [OFlags::empty(), OFlags::APPEND] {
        for (before, len) in
            [(0, 1), (0, 4096), (1, 5000), (4095, 2), (100, 2 << 20), (4096, 12288), (7, 4088)]
        {
            let path = directory.path().join("file");
            let all: Vec<u8> = std::iter::repeat_n(0xAA, before).collect();
            std::fs::write(&path, &all).unwrap();
            let file = open_path(&path, OFlags::WRONLY | append, Mode::empty()).unwrap();
            let flags = fcntl_getfl(&file).unwrap();
            let from = base + before % 4096;
            let homed = home(file.as_fd(), before as u64, &held[from..from + len], true);
            assert_eq!((homed.bytes, homed.error), (len, None));
            assert_eq!(fcntl_getfl(&file).unwrap(), flags, "the program's flags are as they were");
            let now = std::fs::read(&path).unwrap();
            assert_eq!(now.len(), before + len);
            assert!(now[..before].iter().all(|b| *b == 0xAA));
            assert!(now[before..] == held[from..from + len], "{before} and {len}");
        }
    }
}

#[test]
fn bytes_that_do_not_come_home_are_told_with_how_many_did() {
    let (directory, _fd) = directory();
    let path = directory.path().join("file");
    std::fs::write(&path, b"").unwrap();
    let file = open_path(&path, OFlags::RDONLY, Mode::empty()).unwrap();
    for direct in [false, true] {
        let homed = home(file.as_fd(), 0, &[1; 8192], direct);
        assert_eq!((homed.bytes, homed.error), (0, Some(Errno::BADF)));
    }
}
