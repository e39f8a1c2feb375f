//! The bytes that a log has of a file that was overwritten, brought to it after a loss of power:
//! those that come last, in their order, and nothing that a stranger has changed since.

use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, futimens, open};
use rustix::io::pwrite;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use uncopy_log_service::{Client, Options, Place, Report, Service, recover};
use uncopy_log_share::overwritten::{Overwritten, Range};
use uncopy_log_share::writer::{Writer, superblock, write_superblock};
use uncopy_log_store::Kind;

/// The acts of a program: bytes at a place, and a sync by the log; or the file's own, and `HOME`.
enum Does<'a> {
    Writes(u64, &'a [u8]),
    Ends,
}

struct Lost {
    directory: tempfile::TempDir,
}

impl Lost {
    /// A program has done so, and the machine went down. Its file is `left` then.
    fn after(first: &[u8], does: &[Does<'_>], left: &[u8], another_boot: bool) -> Self {
        let lost = Self { directory: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() };
        std::fs::write(lost.file(), first).unwrap();
        let log = lost.log();
        let thread = std::thread::spawn(move || {
            let until_idle = Some(Duration::from_millis(200));
            let options = Options { log_size: 8 << 20, kind: Kind::Direct, until_idle };
            Service::begin(Place::make(&log).unwrap(), options).unwrap().0.run().unwrap();
        });
        let begun = Instant::now();
        while !Client::is_served(&lost.log()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "no service");
            std::thread::sleep(Duration::from_millis(5));
        }
        let (client, memory) = Client::open(&lost.log()).unwrap();
        let file = open(lost.file(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let (slot, index) = client.hold_overwritten(file.as_fd()).unwrap();
        let mut writer = loop {
            if let Some((file, kind)) = client.log().unwrap() {
                break Writer::new(uncopy_log_store::open(file, kind).unwrap()).unwrap();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no log");
            std::thread::sleep(Duration::from_millis(5));
        };
        for one in does {
            match one {
                Does::Writes(at, bytes) => {
                    pwrite(&file, bytes, *at).unwrap();
                    let ranges = [Range { offset: *at, length: bytes.len() as u64 }];
                    let flush = memory.entry(slot).logs().unwrap();
                    let of = Overwritten { slot, index, size: 8, flush, ranges: &ranges };
                    let fill = |_: &[Range], place: &mut [u8]| {
                        place.copy_from_slice(bytes);
                        true
                    };
                    assert_eq!(writer.overwrites(&memory, &of, |_| (), fill), Ok(()));
                }
                Does::Ends => {
                    assert_eq!(writer.home_until_now(&memory, index, 8), Ok(()));
                    memory.entry(slot).logs_nothing();
                }
            }
        }
        let saved = ["log.0", "log.1"].map(|name| std::fs::read(lost.log().join(name)).unwrap());
        drop((writer, client, memory, file));
        thread.join().unwrap();
        for (name, bytes) in ["log.0", "log.1"].iter().zip(saved) {
            std::fs::write(lost.log().join(name), bytes).unwrap();
        }
        std::fs::write(lost.file(), left).unwrap();
        if another_boot {
            lost.is_of_another_boot();
        }
        lost
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    fn is_of_another_boot(&self) {
        let file = std::fs::File::options().read(true).write(true).open(self.log().join("log.1"));
        let mut store = uncopy_log_store::open(file.unwrap().into(), Kind::Direct).unwrap();
        let mut known = superblock(&*store).unwrap();
        known.boot = [9; 16];
        known.turn += 1;
        write_superblock(&mut *store, &known).unwrap();
    }

    /// Somebody changes it later than any of ours can have.
    fn is_changed_later(&self) {
        let file = open(self.file(), OFlags::WRONLY, Mode::empty()).unwrap();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let at = Timespec { tv_sec: since.as_secs() as i64 + 60, tv_nsec: 0 };
        futimens(file, &Timestamps { last_access: at, last_modification: at }).unwrap();
    }

    fn recovered(&self) -> (Report, Vec<u8>) {
        let report = recover(&Place::open(&self.log()).unwrap(), Kind::Direct).unwrap();
        (report, std::fs::read(self.file()).unwrap())
    }
}

fn kept(log: &Path) -> Vec<String> {
    let all = std::fs::read_dir(log.join("lost")).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const DONE: &[Does<'static>] = &[
    Does::Writes(2, b"bb"),
    Does::Ends,
    Does::Writes(4, b"ccc"),
    Does::Writes(0, b"d"),
    Does::Writes(5, b"ee"),
];

#[test]
fn what_was_written_last_is_in_the_file_and_what_had_ended_is_not_brought_back() {
    let lost = Lost::after(b"aaaaaaaa", DONE, b"a.XX....", true);
    let (report, there) = lost.recovered();
    assert_eq!(there, b"d.XXcee.", "{report:?}");
    assert!(report.kept.is_none() && !report.lost, "{report:?}");
    assert!(report.said.iter().any(|said| said.contains("came from the log")), "{report:?}");
    let (again, there) = lost.recovered();
    assert_eq!((again.said.len(), &there[..]), (0, &b"d.XXcee."[..]), "nothing counts any more");
}

#[test]
fn what_a_stranger_has_changed_later_stays_and_the_logs_bytes_are_put_aside() {
    let lost = Lost::after(b"aaaaaaaa", DONE, b"stranger", true);
    lost.is_changed_later();
    let (report, there) = lost.recovered();
    assert_eq!(there, b"stranger");
    assert!(report.lost, "{report:?}");
    assert_eq!(kept(&lost.log()).len(), 2, "{report:?}");
}

#[test]
fn a_file_that_has_it_all_is_no_strangers_whenever_it_was_changed() {
    let lost = Lost::after(b"aaaaaaaa", DONE, b"d...cee.", true);
    lost.is_changed_later();
    let (report, there) = lost.recovered();
    assert_eq!((&there[..], report.lost, report.said.len()), (&b"d...cee."[..], false, 0));
}

#[test]
fn in_the_boot_of_the_log_the_kernel_has_what_is_newer() {
    let lost = Lost::after(b"aaaaaaaa", DONE, b"newer...", false);
    let (report, there) = lost.recovered();
    assert_eq!((&there[..], report.lost), (&b"newer..."[..], false), "{report:?}");
}
