//! The service, asked by a program that this test plays: files are held, come home, and are found
//! again after whoever dies.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uncopy_log_service::protocol::Message;
use uncopy_log_service::{Client, Options, Place, PlainReason, Report, Service, recover};
use uncopy_log_share::State;
use uncopy_log_share::claims::{Claim, Claims};
use uncopy_log_share::memory::Memory;
use uncopy_log_share::writer::{Job, Writer};
use uncopy_log_store::Kind;

fn copy_logs(from: &Path, to: &Path) {
    for name in ["log.0", "log.1"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

struct Here {
    directory: tempfile::TempDir,
    service: Option<JoinHandle<Report>>,
}

impl Here {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut here = Self { directory, service: None };
        here.serve();
        here
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies of the logs as they are, which the service's end does not change.
    fn saved_logs(&self) -> PathBuf {
        let saved = self.file("saved");
        std::fs::create_dir(&saved).unwrap();
        copy_logs(&self.log(), &saved);
        saved
    }

    /// The report of a recovery that is made now.
    fn recovered(&self) -> Report {
        recover(&Place::open(&self.log()).unwrap(), Kind::Direct).unwrap()
    }

    /// As if the machine had gone down when the copies were made.
    fn bring_back(&self, saved: &Path) {
        copy_logs(saved, &self.log());
    }

    fn serve(&mut self) {
        let log = self.log();
        let thread = std::thread::spawn(move || {
            let options = Options {
                log_size: 8 << 20,
                kind: Kind::Direct,
                until_idle: Some(Duration::from_millis(300)),
            };
            let (service, report) = Service::begin(Place::make(&log).unwrap(), options).unwrap();
            service.run().unwrap();
            report
        });
        self.service = Some(thread);
        let begun = Instant::now();
        while !Client::is_served(&self.log()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "no service");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The service has ended, since nobody was there any more: what it said at its beginning.
    fn ended(&mut self) -> Report {
        self.service.take().unwrap().join().unwrap()
    }
}

impl Drop for Here {
    /// A service that did not end, in a test that fails, leaves its memory.
    fn drop(&mut self) {
        if let Ok(place) = Place::open(&self.log()) {
            let _ = std::fs::remove_file(place.memory());
        }
    }
}

/// A program that appends.
struct Program {
    client: Client,
    memory: Memory<OwnedFd>,
    _lives: Claims,
}

impl Program {
    fn of(here: &Here) -> Self {
        let (client, memory) = Client::open(&here.log()).unwrap();
        let lives = Claims::of(memory.file()).unwrap();
        assert!(lives.claim(Claim::Client(client.number)));
        Self { client, memory, _lives: lives }
    }

    fn append(&self, slot: usize, bytes: &[u8]) -> bool {
        let words = &self.memory.entry(slot).words;
        let at = words.end().at();
        self.memory.back(slot, at, bytes.len()).unwrap();
        let mut rest = bytes;
        for (to, n) in self.memory.runs(slot, at, bytes.len()) {
            // SAFETY: within the ring, and nobody else uses these bytes: there is room.
            unsafe { to.copy_from_nonoverlapping(rest.as_ptr(), n) };
            rest = &rest[n..];
        }
        words.publish(at, at + bytes.len() as u64)
    }

    fn writer(&self) -> Writer {
        let begun = Instant::now();
        loop {
            if let Some((file, kind)) = self.client.log().unwrap() {
                return Writer::new(uncopy_log_store::open(file, kind).unwrap()).unwrap();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no log");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn sync(&self, writer: &mut Writer, slot: usize, index: u32) {
        use std::sync::atomic::Ordering::SeqCst;
        let entry = self.memory.entry(slot);
        let from = entry.words.durable().max(entry.logged.load(SeqCst));
        let from = from.max(entry.base.load(SeqCst));
        let job = Job { slot, index, from, to: entry.words.end().at() };
        entry.logged.store(job.to, SeqCst);
        let fill = |job: &Job, place: &mut [u8]| {
            self.memory.copy_out(job.slot, job.from, place);
            true
        };
        assert_eq!(writer.flush(&self.memory, &[job], fill), Ok(1));
    }

    fn waits_for(&self, slot: usize, state: State) {
        let begin = std::time::Instant::now();
        while self.memory.entry(slot).state() != state {
            assert!(begin.elapsed() < std::time::Duration::from_secs(5), "it is not {state:?}");
            std::thread::yield_now();
        }
    }
}

fn opened(path: &Path, flags: OFlags) -> OwnedFd {
    open(path, flags | OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).unwrap()
}

fn appended(path: &Path) -> OwnedFd {
    opened(path, OFlags::WRONLY | OFlags::APPEND)
}

/// A program that has a log, and a file at `path` that is held: its slot, and its index.
fn logging(here: &Here, path: &Path) -> (Program, OwnedFd, Writer, (usize, u32)) {
    let program = Program::of(here);
    let file = appended(path);
    let writer = program.writer();
    let held = program.client.hold(file.as_fd()).unwrap();
    (program, file, writer, held)
}

#[test]
fn who_opens_a_held_file_waits_until_all_of_it_is_home() {
    let mut here = Here::new();
    let path = here.file("file");
    let program = Program::of(&here);
    let file = appended(&path);
    let (slot, index) = program.client.hold(file.as_fd()).unwrap();
    assert!(program.append(slot, b"held") && program.append(slot, b" back"));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing is home yet");
    assert_eq!(std::fs::read(&path).unwrap(), b"held back");
    // (A process that opens it goes on once the lease is given up; the state is said after that.)
    assert!(!program.append(slot, b"more"), "it is home");
    program.waits_for(slot, State::Plain);
    rustix::io::write(&file, b", and on").unwrap();
    program.client.tell(Message::Knows { slot: slot as u64, index: index.into() });
    assert_eq!(std::fs::read(&path).unwrap(), b"held back, and on");
    let again = program.client.hold(file.as_fd()).unwrap();
    assert_ne!(again.1, index, "each holding has a number of its own");
    assert!(program.append(again.0, b"."));
    assert!(Client::status(&here.log()).unwrap().contains("opened-later"));
    drop(program);
    assert_eq!(std::fs::read(&path).unwrap(), b"held back, and on.");
    drop(file);
    here.ended();
}

/// Logs name it where it was, and without root's rights recovery looks nowhere else.
#[test]
fn a_held_file_is_plain_once_it_was_moved_into_another_directory() {
    let mut here = Here::new();
    let (path, other) = (here.file("file"), here.file("other"));
    std::fs::create_dir(&other).unwrap();
    let (program, file, mut writer, (slot, index)) = logging(&here, &path);
    assert!(program.append(slot, b"logged "));
    program.sync(&mut writer, slot, index);
    std::fs::rename(&path, here.file("beside")).unwrap();
    program.client.tell(Message::Renamed);
    assert!(program.append(slot, b"and more"), "it is held: the directory is the same");
    std::fs::rename(here.file("beside"), other.join("file")).unwrap();
    program.client.tell(Message::Renamed);
    program.waits_for(slot, State::Plain);
    let saved = here.saved_logs();
    drop((program, writer, file));
    here.ended();
    // The log has nothing of it any more.
    here.bring_back(&saved);
    assert_eq!(std::fs::read(other.join("file")).unwrap(), b"logged and more");
    let report = here.recovered();
    assert!(report.said.is_empty(), "{report:?}");
}

/// A program that has not yet looked keeps its entry, whatever services come after.
#[test]
fn an_entry_is_not_given_away_while_its_program_lives() {
    let mut here = Here::new();
    let path = here.file("file");
    let Program { client, memory, _lives: lives } = Program::of(&here);
    let (number, file) = (client.number, appended(&path));
    let (slot, index) = client.hold(file.as_fd()).unwrap();
    // Its socket ends, it does not. (And the memory stays, as a service leaves it that is told to
    // end.)
    let shared = Place::open(&here.log()).unwrap().memory();
    let kept = shared.with_extension("kept");
    std::fs::hard_link(&shared, &kept).unwrap();
    drop(client);
    here.ended();
    let entry = memory.entry(slot);
    assert_eq!(entry.state(), State::Plain);
    std::fs::rename(&kept, &shared).unwrap();
    here.serve();
    let other = Program::of(&here);
    assert_ne!(other.client.number, number);
    let others = appended(&here.file("other"));
    assert_ne!(other.client.hold(others.as_fd()).unwrap().0, slot);
    drop((other, others));
    here.ended();
    assert_eq!(entry.state(), State::Plain);
    assert_eq!(entry.index.load(std::sync::atomic::Ordering::SeqCst), index);
    drop((lives, file));
}

#[test]
fn what_a_program_held_comes_home_when_it_dies() {
    let mut here = Here::new();
    let path = here.file("file");
    let program = Program::of(&here);
    let file = appended(&path);
    let (slot, _) = program.client.hold(file.as_fd()).unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    assert!(program.append(slot, &bytes));
    drop((program, file));
    assert!(std::fs::read(&path).unwrap() == bytes);
    here.ended();
    let log = Place::open(&here.log()).unwrap();
    assert!(!log.memory().exists(), "its memory goes when it ends");
}

/// A program appends, says that its sync has returned if `promises`, and dies. How far the file is
/// durable once somebody else has read it.
fn durable_when_others_see_it(promises: bool) -> (u64, usize) {
    use std::sync::atomic::Ordering::SeqCst;
    let mut here = Here::new();
    let path = here.file("file");
    // (It has the same memory.)
    let looker = Program::of(&here);
    let program = Program::of(&here);
    let file = appended(&path);
    let (slot, _) = program.client.hold(file.as_fd()).unwrap();
    assert!(program.append(slot, b"what an answer is about"));
    if promises {
        let entry = program.memory.entry(slot);
        entry.logged.store(entry.words.end().at(), SeqCst);
    }
    drop((program, file));
    let read = std::fs::read(&path).unwrap();
    let durable = looker.memory.entry(slot).words.durable();
    drop(looker);
    here.ended();
    (durable, read.len())
}

#[test]
fn what_a_sync_has_promised_is_durable_before_others_see_it_though_its_program_has_died() {
    assert_eq!(durable_when_others_see_it(true), (23, 23));
    // (Bytes that nobody was promised are read without a sync.)
    assert_eq!(durable_when_others_see_it(false), (0, 23));
}

#[test]
fn whether_answers_wait_and_why_not_is_told() {
    use uncopy_log_service::protocol::{ANSWERS_WAIT, Message};
    let mut here = Here::new();
    let (one, other, third) = (Program::of(&here), Program::of(&here), Program::of(&here));
    let is_told = |wanted: &str| {
        let status = Client::status(&here.log()).unwrap();
        assert!(status.contains(wanted), "{wanted} in: {status}");
    };
    assert!(!Client::status(&here.log()).unwrap().contains("answers"));
    let says = |program: &Program, word: u32| {
        assert!(program.client.tell(Message::Answers { word: word.into() }));
    };
    says(&one, ANSWERS_WAIT);
    says(&other, ANSWERS_WAIT);
    says(&third, 2);
    is_told("answers wait for syncs: 2 programs\n");
    is_told("syncs are as ever: 1 programs: answers-mapped: ");
    says(&other, 1);
    is_told("answers wait for syncs: 1 programs\n");
    is_told("syncs are as ever: 1 programs: answers-past-us: ");
    drop((one, other, third));
    here.ended();
}

#[test]
fn files_that_cannot_be_held_say_why() {
    let mut here = Here::new();
    let program = Program::of(&here);
    let hold = |file: &OwnedFd| program.client.hold(file.as_fd()).map(|_| ());
    let path = here.file("file");
    let one = appended(&path);
    let other = appended(&path);
    assert_eq!(hold(&one), Err(PlainReason::OpenElsewhere));
    drop(other);
    assert_eq!(hold(&one), Ok(()));
    assert_eq!(hold(&opened(&here.file("b"), OFlags::RDONLY)), Err(PlainReason::Mode));
    let synced = OFlags::WRONLY | OFlags::DSYNC;
    assert_eq!(hold(&opened(&here.file("c"), synced)), Err(PlainReason::Mode));
    let elsewhere = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(hold(&elsewhere), Err(PlainReason::OtherFileSystem));
    let (pipe, _write) = rustix::pipe::pipe().unwrap();
    assert_eq!(hold(&pipe), Err(PlainReason::NotRegular));
    let status = Client::status(&here.log()).unwrap();
    for name in ["open-elsewhere", "mode", "other-file-system", "not-regular"] {
        assert!(status.contains(name), "{name} in: {status}");
    }
    drop((program, one));
    here.ended();
}

#[test]
fn a_file_that_its_program_leaves_plain_has_a_line_with_the_reason() {
    let mut here = Here::new();
    let program = Program::of(&here);
    let path = here.file("file");
    let file = appended(&path);
    for _ in 0..2 {
        program.client.leaves_plain(file.as_fd(), PlainReason::Busy);
    }
    // (Messages are heard in order.)
    assert!(program.client.hold(file.as_fd()).is_ok());
    let status = Client::status(&here.log()).unwrap();
    let line = format!("plain {}: busy (2): ", path.display());
    assert!(status.contains(&line), "{line} in: {status}");
    drop((program, file));
    here.ended();
}

#[test]
fn a_file_that_another_process_uses_becomes_plain_and_stays_so() {
    let mut here = Here::new();
    let path = here.file("file");
    let (program, child) = (Program::of(&here), Program::of(&here));
    let file = appended(&path);
    let (slot, _) = program.client.hold(file.as_fd()).unwrap();
    assert!(program.append(slot, b"parent"));
    let stat = rustix::fs::fstat(&file).unwrap();
    child.client.share(stat.st_dev, stat.st_ino).unwrap();
    rustix::io::write(&file, b" child").unwrap();
    assert_eq!(program.client.hold(file.as_fd()), Err(PlainReason::Shared));
    assert_eq!(std::fs::read(&path).unwrap(), b"parent child");
    drop((program, child, file));
    here.ended();
}

/// The machine goes on, and the memory is still there; the file is what its disk had.
#[test]
fn what_was_home_and_not_durable_comes_again_after_its_device_was_gone() {
    let mut here = Here::new();
    let path = here.file("file");
    let (program, file, mut writer, (slot, index)) = logging(&here, &path);
    assert!(program.append(slot, b"first "));
    program.sync(&mut writer, slot, index);
    let (memory, saved) = (Place::open(&here.log()).unwrap().memory(), here.file("memory"));
    program.memory.entry(slot).words.homed(6);
    std::fs::copy(&memory, &saved).unwrap();
    let logs = here.saved_logs();
    program.memory.entry(slot).words.homed(0);
    drop((program, writer, file));
    assert_eq!(std::fs::read(&path).unwrap(), b"first ");
    here.ended();
    let recovers = |another_mount: bool, left: &[u8]| {
        here.bring_back(&logs);
        std::fs::copy(&saved, &memory).unwrap();
        let held = Memory::open(&memory).unwrap();
        let mount = held.header().mount.load(Ordering::Acquire);
        assert_ne!(mount, 0);
        held.header().mount.store(mount + u64::from(another_mount), Ordering::Release);
        drop(held);
        std::fs::write(&path, left).unwrap();
        let report = here.recovered();
        (std::fs::read(&path).unwrap(), report)
    };
    // Nobody but a stranger has shortened it, or written over it.
    for (another_mount, left) in [(false, &b"fi"[..]), (false, b""), (true, b"Fi")] {
        let (is, report) = recovers(another_mount, left);
        assert_eq!(is, left, "{report:?}");
        assert_eq!(report.lost, another_mount, "{report:?}");
    }
    for left in [&b"fi"[..], b""] {
        let (is, report) = recovers(true, left);
        assert_eq!(is, b"first ", "{report:?}");
        assert!(!report.lost && report.said.len() == 1, "{report:?}");
    }
}

/// The files as a power loss would leave them, but for the memory, which is taken away.
#[test]
fn what_was_logged_is_in_its_file_after_the_memory_is_lost() {
    let mut here = Here::new();
    let path = here.file("file");
    let moved = here.file("moved");
    let (program, file, mut writer, (slot, index)) = logging(&here, &path);
    assert!(program.append(slot, b"first "));
    program.sync(&mut writer, slot, index);
    assert!(program.append(slot, b"second "));
    program.sync(&mut writer, slot, index);
    assert!(program.append(slot, b"never synced"));
    std::fs::rename(&path, &moved).unwrap();
    // The logs as they are now, beside a file as it is on the disk.
    let saved = here.saved_logs();
    drop((program, writer, file));
    assert_eq!(std::fs::read(&moved).unwrap(), b"first second never synced");
    here.ended();
    here.bring_back(&saved);
    rustix::fs::ftruncate(appended(&moved), 0).unwrap();
    let place = Place::open(&here.log()).unwrap();
    let report = recover(&place, Kind::Direct).unwrap();
    assert_eq!(std::fs::read(&moved).unwrap(), b"first second ", "{report:?}");
    assert!(!report.lost && report.said.len() == 1, "{report:?}");
    // Once more: nothing counts any more.
    rustix::fs::ftruncate(appended(&moved), 0).unwrap();
    let report = recover(&place, Kind::Direct).unwrap();
    assert_eq!(std::fs::read(&moved).unwrap(), b"", "{report:?}");
}

#[test]
fn what_came_home_is_not_brought_there_again() {
    let mut here = Here::new();
    let path = here.file("file");
    let (program, file, mut writer, (slot, index)) = logging(&here, &path);
    assert!(program.append(slot, b"logged"));
    program.sync(&mut writer, slot, index);
    // Somebody else opens it: it is home, and that is known, before he goes on.
    std::fs::write(&path, b"").unwrap();
    let saved = here.saved_logs();
    drop((program, writer, file));
    here.ended();
    here.bring_back(&saved);
    let report = here.recovered();
    assert_eq!(std::fs::read(&path).unwrap(), b"", "{report:?}");
    assert!(report.said.is_empty(), "{report:?}");
}

#[test]
fn bytes_whose_file_somebody_else_has_changed_are_put_aside_and_said() {
    let mut here = Here::new();
    let path = here.file("file");
    let (program, file, mut writer, (slot, index)) = logging(&here, &path);
    assert!(program.append(slot, b"logged"));
    program.sync(&mut writer, slot, index);
    let saved = std::fs::read(here.log().join("log.1")).unwrap();
    drop((program, writer, file));
    here.ended();
    std::fs::write(here.log().join("log.1"), saved).unwrap();
    std::fs::remove_file(here.log().join("log.0")).unwrap();
    std::fs::write(&path, b"others").unwrap();
    let report = here.recovered();
    assert!(report.lost && report.said[0].contains("somebody else changed"), "{report:?}");
    assert_eq!(std::fs::read(&path).unwrap(), b"others");
    assert_eq!(std::fs::read(here.log().join("lost/file.0-6")).unwrap(), b"logged");
}

#[test]
fn a_log_that_is_truncated_or_none_is_put_aside_by_name() {
    let mut here = Here::new();
    drop(Program::of(&here).writer());
    here.ended();
    let log = here.log().join("log.1");
    let whole = std::fs::read(&log).unwrap();
    std::fs::write(&log, &whole[..1 << 20]).unwrap();
    std::fs::write(here.log().join("log.2"), b"something else, of no log").unwrap();
    let report = here.recovered();
    assert!(report.lost && report.said.len() == 2, "{report:?}");
    assert!(report.said[0].contains("log.1") && report.said[1].contains("log.2"), "{report:?}");
    assert!(!log.exists());
    here.serve();
    drop(Program::of(&here).writer());
    assert!(!here.ended().lost);
}

#[test]
fn two_do_not_serve_one_directory_and_one_that_others_may_write_to_is_refused() {
    let mut here = Here::new();
    let program = Program::of(&here);
    let place = Place::open(&here.log()).unwrap();
    let why = recover(&place, Kind::Direct).unwrap_err().to_string();
    assert!(why.contains("at work there"), "{why}");
    drop(program);
    here.ended();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(here.log(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let why = Place::open(&here.log()).unwrap_err().to_string();
    assert!(why.contains("chmod 700"), "{why}");
    std::fs::set_permissions(here.log(), std::fs::Permissions::from_mode(0o700)).unwrap();
    // (Only root can give it away.)
    if std::os::unix::fs::chown(here.log(), Some(65534), None).is_ok() {
        let why = Place::open(&here.log()).unwrap_err().to_string();
        assert!(why.contains("chown"), "{why}");
    }
}

#[test]
fn memory_that_cannot_be_opened_for_now_stays_where_it_is() {
    let mut here = Here::new();
    here.ended();
    let place = Place::open(&here.log()).unwrap();
    std::fs::create_dir(place.memory()).unwrap();
    let report = recover(&place, Kind::Direct).unwrap();
    assert!(report.kept.is_some() && place.memory().exists(), "{report:?}");
    std::fs::remove_dir(place.memory()).unwrap();
}

#[test]
fn nothing_is_written_where_a_link_leads() {
    let mut here = Here::new();
    here.ended();
    std::os::unix::fs::symlink(here.directory.path(), here.log().join("lost")).unwrap();
    let place = Place::open(&here.log()).unwrap();
    assert!(place.lose("file", b"bytes").is_err());
    assert!(!here.file("file").exists());
}

#[test]
fn a_service_that_others_only_ask_ends_when_no_program_is_there() {
    let mut here = Here::new();
    let begun = Instant::now();
    while Client::is_served(&here.log()) {
        let _ = Client::status(&here.log());
        assert!(begun.elapsed() < Duration::from_secs(20), "it is kept by those who ask");
        std::thread::sleep(Duration::from_millis(20));
    }
    here.ended();
}
