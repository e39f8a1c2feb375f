//! The table of calls: what each means for a file that is held.

use uncopy_log_book::*;
use uncopy_log_record::BLOCK;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const SECOND: u64 = 1_000_000_000;

/// An inode whose steps are carried out by letting them succeed, or fail if a test says so.
struct Driver {
    inode: Inode,
    now: u64,
    segment: u64,
    /// The time that each step took; ns.
    takes: fn(Step) -> u64,
    /// Which steps fail.
    fails: fn(Step) -> Option<i32>,
}

impl Driver {
    fn plain() -> Driver {
        Driver { inode: Inode::new(0), now: 0, segment: 0, takes: |_| 1, fails: |_| None }
    }

    /// A file of `size` bytes that was just granted a lease.
    fn new_held(size: u64) -> Driver {
        let mut driver = Self::plain();
        assert_eq!(driver.does(Event::Tick), "lease");
        driver.inode.granted(size);
        driver
    }

    /// The same, and its first sync is over.
    fn held() -> Driver {
        let mut driver = Self::new_held(0);
        driver.append(100);
        driver.does(Event::Sync { data_only: false });
        driver
    }

    fn append(&mut self, length: u64) -> String {
        self.does(Event::Write { at: At::End, length })
    }

    fn write_at(&mut self, offset: u64, length: u64) -> String {
        self.does(Event::Write { at: At::Offset(offset), length })
    }

    /// Carries an event out: its steps and its answer in words.
    fn does(&mut self, event: Event) -> String {
        let mut job = self.inode.begin(event, self.now);
        let (mut outcome, mut words) = (Outcome::Done, Vec::new());
        for _ in 0..30 {
            let step = self.inode.next(&mut job, outcome, self.now);
            self.now += (self.takes)(step);
            let failed = (self.fails)(step);
            outcome = failed.map_or(Outcome::Done, Outcome::Failed);
            words.push(match step {
                Step::Hold { offset, length } => format!("hold {offset}+{length}"),
                Step::Reserve { .. } => "reserve".into(),
                Step::Home { from, to } => format!("home {from}..{to}"),
                Step::Rewrite => format!("rewrite {}", self.range()),
                Step::SyncFile { data_only: true } => "fdatasync".into(),
                Step::SyncFile { data_only: false } => "fsync".into(),
                Step::Log { home } => {
                    self.inode.entering(self.segment, self.now);
                    let home = if home { " HOME" } else { "" };
                    format!("DATA {}{home}", self.range())
                }
                Step::LogHome => "HOME".into(),
                Step::LogName => "NAME".into(),
                Step::GiveUpLease => "give up".into(),
                Step::Call => "call".into(),
                Step::Answer(Answer::TryLease) => "lease".into(),
                Step::Answer(Answer::Failed(errno)) => format!("error {errno}"),
                Step::Answer(Answer::Done | Answer::AsCalled) => return words.join(", "),
            });
            if matches!(step, Step::Answer(_)) {
                return words.join(", ");
            }
        }
        panic!("{event:?} does not end: {words:?}");
    }

    fn range(&self) -> String {
        let range = self.inode.range();
        format!("{}..{}", range.offset, range.end())
    }
}

#[test]
fn a_plain_file_is_the_kernels() {
    let mut file = Driver::plain();
    for event in [
        Event::Write { at: At::End, length: 5 },
        Event::Read,
        Event::Sync { data_only: false },
        Event::Rename,
        Event::Truncate,
        Event::MapShared,
    ] {
        assert_eq!(file.does(event), "call");
    }
    assert_eq!(file.does(Event::Close), "");
}

#[test]
fn appends_are_held_and_room_is_asked_for_ahead() {
    let mut file = Driver::new_held(100);
    assert_eq!(file.inode.append(10), None);
    assert_eq!(file.append(10), "reserve, hold 100+10");
    assert_eq!(file.append(10), "hold 110+10");
    assert_eq!(file.write_at(120, 5), "hold 120+5");
    assert_eq!(file.inode.append(10), Some(125));
    assert_eq!(file.inode.end(), 125);
}

#[test]
fn the_first_sync_of_a_new_file_is_its_own() {
    let mut file = Driver::new_held(0);
    file.append(5000);
    assert_eq!(file.does(Event::Sync { data_only: true }), "home 0..5000, fsync");
}

#[test]
fn a_sync_of_few_held_bytes_goes_to_the_log() {
    let mut file = Driver::held();
    file.append(50);
    assert_eq!(file.does(Event::Sync { data_only: false }), "DATA 100..150");
    file.append(7);
    assert_eq!(file.does(Event::Sync { data_only: true }), "DATA 150..157");
    assert_eq!(file.does(Event::Sync { data_only: true }), "");
    assert!(file.inode.live().is_some());
}

#[test]
fn a_sync_of_many_held_bytes_goes_home_and_the_rest_to_the_log() {
    let mut file = Driver::held();
    file.append(300_000);
    let blocks = 300_100 / BLOCK as u64 * BLOCK as u64;
    let sync = Event::Sync { data_only: true };
    assert_eq!(file.does(sync), format!("home 100..{blocks}, fdatasync, DATA {blocks}..300100"));
    file.segment = 3;
    file.append(300_000);
    let next = 600_100 / BLOCK as u64 * BLOCK as u64;
    assert_eq!(
        file.does(sync),
        format!("home {blocks}..{next}, fdatasync, DATA {next}..600100 HOME")
    );
    assert_eq!(file.inode.live().unwrap().segment, 3, "what was live before is dead");
}

#[test]
fn many_held_bytes_of_whole_blocks_need_no_record_but_home() {
    let mut file = Driver::held();
    let sync = Event::Sync { data_only: true };
    file.append(28);
    file.does(sync);
    file.append(300 * 1024 - 128);
    assert_eq!(file.does(sync), "home 100..307200, fdatasync, HOME");
    file.append(300 * 1024);
    assert_eq!(file.does(sync), "home 307200..614400, fdatasync");
}

#[test]
fn what_is_no_append_makes_a_held_file_plain() {
    let elsewhere = Event::Write { at: At::Offset(0), length: 10 };
    for event in [elsewhere, Event::Read, Event::Truncate, Event::MapShared] {
        let mut file = Driver::held();
        file.append(50);
        assert_eq!(file.does(event), "home 100..150, give up, call");
        assert_eq!(file.inode.state(), State::Plain);
        assert_eq!(file.does(Event::Sync { data_only: true }), "call");
        let mut file = Driver::held();
        file.append(50);
        file.does(Event::Sync { data_only: true });
        assert_eq!(file.does(event), "home 100..150, fdatasync, HOME, give up, call");
    }
}

#[test]
fn an_fsync_behind_a_change_of_mode_is_the_files_own() {
    let mut file = Driver::held();
    file.append(50);
    assert_eq!(file.does(Event::Change), "call");
    assert_eq!(file.does(Event::Sync { data_only: true }), "DATA 100..150");
    file.append(50);
    assert_eq!(file.does(Event::Sync { data_only: false }), "home 100..200, fsync, HOME");
    file.append(50);
    assert_eq!(file.does(Event::Sync { data_only: false }), "DATA 200..250");
}

#[test]
fn an_fsync_with_nothing_pending_is_the_files_own() {
    let mut file = Driver::held();
    assert_eq!(file.does(Event::Sync { data_only: false }), "fsync");
    assert_eq!(file.does(Event::Sync { data_only: true }), "");
}

#[test]
fn a_rename_comes_home_and_is_named_if_something_is_live() {
    let mut file = Driver::held();
    file.append(50);
    assert_eq!(file.does(Event::Rename), "home 100..150, call");
    file.does(Event::Sync { data_only: true });
    assert_eq!(file.does(Event::Rename), "call, NAME");
}

#[test]
fn what_is_unlinked_and_was_never_synced_is_never_written() {
    let mut file = Driver::new_held(0);
    file.append(50);
    assert_eq!(file.does(Event::Unlink { last: false }), "call");
    assert_eq!(file.does(Event::Unlink { last: true }), "call");
    file.now += 9 * SECOND;
    assert_eq!(file.does(Event::Tick), "");
    assert_eq!(file.does(Event::Close), "give up");
}

#[test]
fn what_was_synced_comes_home_though_it_is_unlinked() {
    // Until the unlinking is durable a crash would bring the file back.
    let mut file = Driver::held();
    file.append(50);
    file.does(Event::Sync { data_only: true });
    file.does(Event::Unlink { last: true });
    assert_eq!(file.does(Event::Close), "home 100..150, fdatasync, HOME, give up");
}

#[test]
fn what_is_mapped_for_writing_gets_no_lease() {
    let mut file = Driver::plain();
    assert_eq!(file.does(Event::MapShared), "call");
    file.now += 3600 * SECOND;
    assert_eq!(file.does(Event::Tick), "");
    assert_eq!(file.does(Event::Unmap), "call");
    assert_eq!(file.does(Event::Tick), "lease");
}

#[test]
fn a_sync_of_everything_has_held_bytes() {
    let mut file = Driver::held();
    file.append(50);
    assert_eq!(file.does(Event::SyncAll), "home 100..150, call");
}

#[test]
fn what_is_handed_to_a_stranger_is_plain_for_good() {
    let mut file = Driver::held();
    file.append(50);
    file.does(Event::Sync { data_only: true });
    assert_eq!(file.does(Event::HandOver), "home 100..150, fdatasync, HOME, give up, call");
    assert_eq!(file.inode.due(), None);
    file.now += 3600 * SECOND;
    assert_eq!(file.does(Event::Tick), "");
    let mut file = Driver::plain();
    assert_eq!(file.does(Event::HandOver), "call");
    assert_eq!(file.does(Event::Tick), "");
}

#[test]
fn who_opens_it_elsewhere_waits_for_home_and_the_lease_is_tried_ever_more_rarely() {
    let mut file = Driver::held();
    file.append(50);
    file.does(Event::Sync { data_only: true });
    assert_eq!(file.does(Event::OpenedElsewhere), "home 100..150, fdatasync, HOME, give up");
    assert_eq!(file.inode.state(), State::Plain);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let due = file.inode.due().unwrap();
        pauses.push((due - file.now) / SECOND);
        file.now = due - 1;
        assert_eq!(file.does(Event::Tick), "");
        file.now = due;
        assert_eq!(file.does(Event::Tick), "lease");
        file.inode.refused(file.now);
    }
    assert_eq!(pauses, [0, 2, 4, 8], "(the first one began with the lease)");
}

#[test]
fn time_brings_home_what_was_never_synced_and_ends_what_is_live() {
    let mut file = Driver::held();
    file.append(50);
    let due = file.inode.due().unwrap();
    assert!((5..6).contains(&(due / SECOND)));
    file.now = due - 1;
    assert_eq!(file.does(Event::Tick), "");
    file.now = due;
    assert_eq!(file.does(Event::Tick), "home 100..150");
    file.does(Event::Sync { data_only: true });
    let live = file.inode.live().unwrap();
    assert_eq!(file.inode.due(), Some(live.since + LIVE_AGE));
    file.now = live.since + LIVE_AGE;
    assert_eq!(file.does(Event::Tick), "fdatasync, HOME");
    assert_eq!(file.inode.due(), None);
}

#[test]
fn a_megabyte_goes_home_by_itself() {
    let mut file = Driver::held();
    file.append(2 << 20);
    assert_eq!(file.inode.due(), Some(0));
    assert_eq!(file.does(Event::Tick), format!("home 100..{}", 2 << 20));
}

#[test]
fn no_more_is_held_than_there_is_room_for() {
    let mut file = Driver::held();
    let piece = 1 << 20;
    let mut homes = 0;
    for _ in 0..40 {
        let words = file.append(piece);
        homes += u32::from(words.contains("home"));
        assert!(words.ends_with(&format!("hold {}+{piece}", file.inode.end() - piece)), "{words}");
        assert!(file.inode.end() - file.inode.kept() <= file.inode.limits().held);
    }
    assert!((2..5).contains(&homes), "{homes} times home");
    // Bytes that have left the memory can't go to the log.
    file.append(10);
    let words = file.does(Event::Sync { data_only: true });
    assert!(words.contains("fdatasync, DATA"), "{words}");
}

#[test]
fn a_full_disk_is_said_by_the_write_itself() {
    let mut file = Driver::held();
    file.append(50);
    file.fails = |step| matches!(step, Step::Reserve { .. }).then_some(ENOSPC);
    let length = 5 << 20;
    assert_eq!(file.append(length), "reserve, reserve, home 100..150, give up, call");
    assert_eq!(file.inode.state(), State::Plain);
}

#[test]
fn a_sync_that_the_log_does_not_take_is_the_files_own() {
    let mut file = Driver::held();
    file.append(50);
    file.fails = |step| matches!(step, Step::Log { .. }).then_some(ENOSPC);
    let words = file.does(Event::Sync { data_only: true });
    // (Records that the flush left may be there, so `HOME` follows.)
    assert_eq!(words, "DATA 100..150, home 100..150, fdatasync, HOME");
    assert!(!file.inode.failed());
}

#[test]
fn after_a_failure_a_sync_says_so_until_all_was_written_and_synced_again() {
    let sync = Event::Sync { data_only: true };
    let mut file = Driver::held();
    file.append(50);
    file.fails = |step| matches!(step, Step::Log { .. } | Step::SyncFile { .. }).then_some(EIO);
    assert_eq!(file.does(sync), "DATA 100..150, home 100..150, fdatasync, error 5");
    // The kernel would forget it now. The bytes that are kept go home again, nothing is logged.
    assert_eq!(file.does(sync), "home 100..150, fdatasync, error 5");
    file.fails = |step| matches!(step, Step::LogHome).then_some(EIO);
    assert_eq!(file.does(sync), "home 100..150, fdatasync, HOME, error 5");
    assert!(file.inode.failed());
    file.fails = |_| None;
    assert_eq!(file.does(sync), "fdatasync, HOME");
    assert!(!file.inode.failed());
    file.append(5);
    assert_eq!(file.does(sync), "DATA 150..155");
}

/// Appends so many megabytes that no sync makes durable: the first ones leave the memory.
fn with_forgotten_bytes(megabytes: u64) -> Driver {
    let mut file = Driver::held();
    for _ in 0..megabytes {
        file.append(1 << 20);
    }
    file.fails = |step| matches!(step, Step::SyncFile { .. }).then_some(EIO);
    file
}

#[test]
fn what_has_left_the_memory_is_written_again_when_the_files_own_sync_fails() {
    let sync = Event::Sync { data_only: true };
    let mut file = with_forgotten_bytes(20);
    let words = file.does(sync);
    let kept = file.inode.kept();
    assert!(words.ends_with(&format!("fdatasync, rewrite 100..{kept}, error 5")), "{words}");
    file.fails = |_| None;
    let words = file.does(sync);
    assert!(words.starts_with(&format!("home {kept}..")) && !words.contains("error"), "{words}");
    assert!(!file.inode.failed());
}

#[test]
fn bytes_that_are_lost_are_said_to_be_for_good() {
    let sync = Event::Sync { data_only: true };
    let mut file = with_forgotten_bytes(40);
    file.does(sync);
    file.fails = |_| None;
    for _ in 0..2 {
        let words = file.does(sync);
        assert!(words.ends_with("error 5"), "{words}");
    }
    assert!(file.inode.lost());
}

#[test]
fn a_file_that_cannot_come_home_keeps_its_lease_and_its_bytes() {
    let mut file = Driver::held();
    file.append(50);
    file.fails = |step| matches!(step, Step::Home { .. }).then_some(EIO);
    assert_eq!(file.does(Event::OpenedElsewhere), "home 100..150, error 5");
    assert_eq!(file.inode.state(), State::Leaving);
    assert_eq!(file.inode.append(5), None);
    file.fails = |_| None;
    assert_eq!(file.does(Event::Tick), "home 100..150, give up");
}

#[test]
fn a_file_that_gains_nothing_goes_plain() {
    let mut file = Driver::held();
    file.takes = |step| match step {
        Step::Log { .. } => 300_000,
        Step::SyncFile { .. } => 100_000,
        _ => 1,
    };
    let (mut logged, mut own) = (0, 0);
    for _ in 0..300 {
        file.append(5);
        let words = file.does(Event::Sync { data_only: true });
        logged += u32::from(words.contains("DATA"));
        own += u32::from(words.contains("fdatasync"));
    }
    assert!(logged < 75 && own > 220, "{logged} logged, {own} its own");
    assert_eq!(file.inode.due(), Some(0));
    assert!(file.does(Event::Tick).ends_with("give up"));
    assert_eq!(file.inode.state(), State::Plain);
    assert_eq!((file.inode.due().unwrap() - file.now) / SECOND, RETRY_MAX / SECOND - 1);
}

#[test]
fn one_in_some_syncs_goes_the_other_way_where_the_log_is_cheaper() {
    let mut file = Driver::held();
    file.takes = |step| match step {
        Step::Log { .. } => 80_000,
        Step::SyncFile { .. } => 140_000,
        _ => 1,
    };
    let mut own = 0;
    for _ in 0..640 {
        file.append(5);
        own += u32::from(file.does(Event::Sync { data_only: true }).contains("fdatasync"));
    }
    assert_eq!(own, 20);
    let (log, plain) = file.inode.timing().averages();
    assert!((80_000..81_000).contains(&log) && (140_000..141_000).contains(&plain));
}

#[test]
fn who_dies_over_a_sync_leaves_what_is_to_be_synced() {
    let mut file = Driver::held();
    file.append(5);
    let mut job = file.inode.begin(Event::Sync { data_only: true }, 5);
    let step = file.inode.next(&mut job, Outcome::Done, 5);
    assert_eq!(step, Step::Log { home: false });
    file.inode.entering(9, 5);
    // Its process is killed. The record that it was about to write may be there.
    assert!(file.inode.live().is_some());
    assert_eq!(file.does(Event::Sync { data_only: true }), "DATA 100..105");
}

#[test]
fn who_dies_over_the_files_own_sync_may_have_been_told_that_it_failed() {
    let mut file = Driver::held();
    file.append(50);
    file.does(Event::Sync { data_only: true });
    let mut job = file.inode.begin(Event::OpenedElsewhere, 5);
    let mut step = file.inode.next(&mut job, Outcome::Done, 5);
    while !matches!(step, Step::SyncFile { .. }) {
        step = file.inode.next(&mut job, Outcome::Done, 5);
    }
    // Its process is killed; what the log has is not given up for a sync that says nothing.
    assert_eq!(file.does(Event::Close), "home 100..150, fdatasync, HOME, give up");
}

#[test]
fn who_appends_during_a_sync_waits_for_the_next_one() {
    let mut file = Driver::held();
    file.append(50);
    let mut job = file.inode.begin(Event::Sync { data_only: true }, 5);
    assert_eq!(file.inode.next(&mut job, Outcome::Done, 5), Step::Log { home: false });
    file.inode.entering(0, 5);
    assert_eq!(file.inode.append(10), Some(150));
    file.inode.appended(10, 6);
    assert_eq!(file.range(), "100..150");
    let step = file.inode.next(&mut job, Outcome::Done, 7);
    assert_eq!(step, Step::Answer(Answer::Done));
    assert_eq!(file.does(Event::Sync { data_only: true }), "DATA 150..160");
}
