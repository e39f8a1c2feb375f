//! What an earlier version has left in a log of files that were overwritten (`--log-overwrites`) is
//! put aside, and that is said: nothing of it is written to its file, and nothing is lost.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use uncopy_log_record::{HEAD, Superblock};
use uncopy_log_service::{Place, Report, recover};
use uncopy_log_share::layout::Named;
use uncopy_log_share::memory::Memory;
use uncopy_log_share::writer::write_superblock;
use uncopy_log_share::{SLOTS, State};
use uncopy_log_store::Kind;

const SEGMENT: usize = 1 << 20;
/// The index in these records: of the fifth holding, with the bit of an overwritten file.
const INDEX: u32 = 1 << 31 | 5;
/// Blocks of the first segment as an earlier version has written them (epoch 1, uuid of sevens),
/// up to their zeros: the segment's header; `NAME` (/srv/pages) and `DATA` ("bb" at 2); `HOME` up
/// to there; `DATA` ("d" at 0, "ccc" at 4); `DATA` ("ee" at 5).
const BLOCKS: [&str; 5] = [
    "756353479a59ab76070707070707070707070707070707070100000000000000000000000000000000000000\
     000000000100000000000000ffffffffffffffff",
    "75635243feb1ec98620000000100000001000000000000000100000000000000010000000000000005000080\
     0000000008000000000000000100000000000000020000000000000000000000000000000000000000000a00\
     2f7372762f70616765730000000000007563524336fabb224a00000002000100020000000000000001000000\
     0000000001000000000000000500008000000000080000000000000002000000000000000200000000000000\
     6262",
    "75635243916c4cc7400000000300000003000000000000000300000000000000010000000000000005000080\
     00000000080000000000000002",
    "7563524302b74cb75c0000000200020004000000000000000400000000000000010000000000000005000080\
     0000000008000000000000000000000000000000010000000000000004000000000000000300000000000000\
     64636363",
    "75635243a198b92d4a0000000200010005000000000000000500000000000000010000000000000005000080\
     000000000800000000000000050000000000000002000000000000006565",
];

struct Left {
    _directory: tempfile::TempDir,
    place: Place,
}

impl Left {
    /// A log with [`BLOCKS`], of this boot or of another.
    fn new(another_boot: bool) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let place = Place::make(&directory.path().join("log")).unwrap();
        let mut bytes = vec![0; HEAD + 4 * SEGMENT];
        for (block, text) in BLOCKS.iter().enumerate() {
            for (i, digits) in text.as_bytes().chunks(2).enumerate() {
                let digits = std::str::from_utf8(digits).unwrap();
                bytes[HEAD + block * 4096 + i] = u8::from_str_radix(digits, 16).unwrap();
            }
        }
        let path = place.path().join("log.1");
        std::fs::write(&path, &bytes).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mut store = uncopy_log_store::open(file.into(), Kind::Direct).unwrap();
        let here = place.here();
        let superblock = Superblock {
            uuid: [7; 16],
            host: here.host,
            filesystem: here.filesystem,
            boot: if another_boot { [9; 16] } else { here.boot },
            epoch: 1,
            turn: 0,
            heartbeat: 0,
            size: bytes.len() as u64,
            segment: SEGMENT as u32,
            recovering: false,
        };
        write_superblock(&mut *store, &superblock).unwrap();
        Self { _directory: directory, place }
    }

    fn recovered(&self) -> Report {
        recover(&self.place, Kind::Direct).unwrap()
    }

    /// Names and contents of what was put aside.
    fn aside(&self) -> Vec<(String, Vec<u8>)> {
        let lost: PathBuf = self.place.path().join("lost");
        let files = std::fs::read_dir(lost).into_iter().flatten().flatten();
        let mut all: Vec<_> = files
            .map(|file| {
                let name = file.file_name().to_string_lossy().into_owned();
                (name, std::fs::read(file.path()).unwrap())
            })
            .collect();
        all.sort();
        all
    }

    fn has_put_aside_what_was_synced_last(&self, report: &Report) {
        let expected =
            [("pages.0-1".to_owned(), b"d".to_vec()), ("pages.4-7".to_owned(), b"cee".to_vec())];
        assert_eq!(self.aside(), expected, "{report:?}");
        assert!(report.lost && report.kept.is_none(), "{report:?}");
        let said = report.said.join("\n");
        assert!(said.contains("/srv/pages: an earlier version logged it"), "{said}");
        assert!(said.contains("its bytes 4 to 7 are in "), "{said}");
        assert!(said.contains("lost/pages.4-7"), "{said}");
    }
}

#[test]
fn bytes_of_an_overwritten_file_are_put_aside_after_a_loss_of_power() {
    let left = Left::new(true);
    let report = left.recovered();
    left.has_put_aside_what_was_synced_last(&report);
    let again = left.recovered();
    assert_eq!((again.said.len(), again.lost), (0, false), "{again:?}");
    assert_eq!(left.aside().len(), 2, "nothing of it counts any more");
}

#[test]
fn an_overwritten_file_that_died_in_this_boot_is_held_no_more_and_its_bytes_are_put_aside() {
    let left = Left::new(false);
    let memory = Memory::create(&left.place.memory()).unwrap();
    let named = Named { path: b"/srv/pages".to_vec(), ..Named::default() };
    memory.entry(0).hold(1, INDEX, 0, &named);
    memory.entry(0).logged.store(3, Ordering::SeqCst);
    let report = left.recovered();
    left.has_put_aside_what_was_synced_last(&report);
    assert!((0..SLOTS).all(|slot| memory.entry(slot).state() == State::Free));
    assert!(!left.place.memory().exists(), "a service begins with memory of its own");
}
