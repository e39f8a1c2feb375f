//! A crash's remains come home: from memory, where this boot's is still there; else from the logs.
//! Bytes that cannot be brought home for sure are put into files of their own, and said.

use crate::held::{give_back, put_aside};
use crate::homes::{said, whole};
use crate::identity::{Gone, find};
use crate::lease;
use crate::place::{NoPlace, Place, now};
use crate::refused::Refused;
use crate::report::Report;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, Stat, fcntl_getfl, fcntl_setfl, fdatasync, fstat, renameat};
use rustix::io::{Errno, pread, pwrite};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use uncopy_log_record::superblock::GRACE;
use uncopy_log_record::{Body, Gap, Origin, Scan, ScanItem, Superblock, Unusable};
use uncopy_log_share::claims::{Claim, Claims};
use uncopy_log_share::homing::{Ending, Which, bring, finish, reconsider};
use uncopy_log_share::layout::{Named, State};
use uncopy_log_share::memory::Memory;
use uncopy_log_share::writer::{NoLog, write_superblock};
use uncopy_log_store::{HeldMemory, Kind, Store, open};

/// So long a recovery waits for programs that bring their bytes home themselves.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Set in the index of a file that an earlier version logged while it was overwritten: its bytes
/// are put aside. Nobody can tell whether the file has newer ones, of a stranger's
/// (docs/decisions/overwritten-files-are-not-logged.md).
const OVERWRITTEN: u32 = 1 << 31;

/// Recovers what is in `place`, while nobody serves there.
///
/// # Errors
/// Somebody does, or recovers.
pub fn recover(place: &Place, kind: Kind) -> Result<Report, NoPlace> {
    let _lock = place.lock()?;
    // (On a thread of its own: signals that it hears of otherwise are not blocked in the caller's,
    // which may execute a program next.)
    let report = std::thread::scope(|scope| scope.spawn(|| recover_locked(place, kind)).join());
    report.or_else(|_| {
        let why = format!("{}: recovery failed", place.path().display());
        Ok(Report { said: vec![why.clone()], lost: false, kept: Some(why) })
    })
}

/// As [`recover`], by who has the place's lock.
pub(crate) fn recover_locked(place: &Place, kind: Kind) -> Report {
    let mut report = Report::default();
    let mut settled = said(place, kind);
    from_memory(place, &mut settled, &mut report);
    if report.kept.is_none() {
        from_logs(place, kind, &mut settled, &mut report);
    }
    if let Err(why) = Report::append(place, &report.said) {
        eprintln!("uncopy log: {}: {why}", place.path().join("recovered").display());
    }
    report
}

/// The bytes that are held in memory come home.
fn from_memory(place: &Place, settled: &mut HashSet<u32>, report: &mut Report) {
    let path = place.memory();
    // (A process that opens a file meanwhile waits until it is done with; nobody is killed by
    // hearing of it.)
    let _heard = lease::signals();
    let memory = match Memory::open(&path) {
        Ok(memory) => memory,
        Err(Errno::NOENT) => return,
        // (The memory may be good, and this process has no room for it, or no descriptor.)
        Err(why) if why != Errno::INVAL => {
            return report.keep(format!("{}: {}", path.display(), std::io::Error::from(why)));
        }
        Err(why) => {
            let aside = path.with_extension(format!("{}", now()));
            let (from, to) = (path.display(), aside.display());
            return match std::fs::rename(&path, &aside) {
                Ok(()) => report.lose(format!(
                    "{from}: memory of another version, or damaged ({why}); it is now {to}"
                )),
                Err(error) => report.keep(format!("{from}: {error}")),
            };
        }
    };
    let claims = match Claims::of(memory.file()) {
        Ok(claims) => claims,
        Err(why) => return report.keep(format!("{}: {why}", path.display())),
    };
    // (For all that programs hold together.)
    let until = Instant::now() + TIMEOUT;
    for slot in 0..uncopy_log_share::SLOTS {
        if memory.entry(slot).state() == State::Held
            && is_left(&memory, &claims, slot, until, report)
        {
            from_entry(place, &memory, &claims, slot, settled, report);
        }
        if memory.entry(slot).state() == State::Plain && !lives(&memory, &claims, slot) {
            memory.entry(slot).free();
        }
    }
    if memory.entries().all(|(_, entry)| entry.state() == State::Free) {
        let _ = std::fs::remove_file(path);
    }
}

fn lives(memory: &Memory<HeldMemory>, claims: &Claims, slot: usize) -> bool {
    let client = memory.entry(slot).client.load(Ordering::Acquire);
    claims.is_others(Claim::Client(client))
}

/// Whether no program brings home what `slot` holds: one that has lost its service does so by
/// itself, at its next call. Until then it is waited for.
fn is_left(
    memory: &Memory<HeldMemory>,
    claims: &Claims,
    slot: usize,
    until: Instant,
    report: &mut Report,
) -> bool {
    let entry = memory.entry(slot);
    while lives(memory, claims, slot) && entry.state() == State::Held {
        if Instant::now() > until {
            let path = entry.named().path;
            report.keep(format!(
                "{}: a program that was served before holds it still; it ends, or goes on plainly \
                 at its next call",
                path.escape_ascii()
            ));
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn from_entry(
    place: &Place,
    memory: &Memory<HeldMemory>,
    claims: &Claims,
    slot: usize,
    settled: &mut HashSet<u32>,
    report: &mut Report,
) {
    let entry = memory.entry(slot);
    if entry.state() != State::Held || !claims.claim(Claim::Entry(slot)) {
        return;
    }
    let index = entry.index.load(Ordering::Acquire);
    if index & OVERWRITTEN != 0 {
        // (The kernel has its bytes, and the log those that were synced.)
        entry.free();
        return claims.give_up(Claim::Entry(slot));
    }
    entry.words.close();
    let named = entry.named();
    let path = named.path.escape_ascii().to_string();
    let aside = |report: &mut Report, why: String| match put_aside(memory, slot, place) {
        Ok(said) => report.lose(format!("{why}; {said}")),
        Err(error) => report.keep(format!("{why}; its bytes cannot be put aside: {error}")),
    };
    match find(place.as_fd(), &named) {
        Ok(file) => match home(place, memory, slot, &file) {
            Ok(0) => {}
            Ok(held) => report.said.push(format!("{path}: {held} bytes came home")),
            Err(why) => aside(report, format!("{path}: {why}")),
        },
        Err(Gone::Deleted) => report.said.push(format!("{path}: the file is no more")),
        Err(Gone::Unknown) => aside(report, format!("{path}: the file is not there any more")),
        Err(Gone::Refused(why)) => aside(report, format!("{path}: {why}")),
    }
    if report.kept.is_none() {
        settled.insert(index);
        entry.free();
    }
    claims.give_up(Claim::Entry(slot));
}

/// Brings home what the ring has of a file, durably. Returns how many bytes were not there.
fn home(
    place: &Place,
    memory: &Memory<HeldMemory>,
    slot: usize,
    file: &OwnedFd,
) -> Result<u64, Refused> {
    // (Somebody may have it open: what he appends meanwhile is not written over.)
    let entry = memory.entry(slot);
    if entry.aside.load(Ordering::SeqCst) != 0 {
        return Ok(0);
    }
    let (was, is) = (memory.header().mount.load(Ordering::Acquire), place.mount());
    if was != is && was != 0 && is != 0 {
        reconsider(memory, slot, file.as_fd())?;
    }
    let held = entry.words.end().at().saturating_sub(entry.words.home());
    let appends = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::APPEND));
    appends?;
    let alone = lease::take(file.as_fd()).is_ok();
    let came = bring(memory, slot, file.as_fd(), Which::All, false);
    let came = came.map_err(Refused::from).and_then(|end| {
        let ending = Ending { logged: true, alone: true, open: !alone };
        if !finish(memory, slot, file.as_fd(), ending)? {
            return Err(Refused::SyncFailed);
        }
        if alone {
            give_back(file.as_fd(), entry, end);
        }
        Ok(())
    });
    if alone {
        lease::give_up(file.as_fd());
    }
    came.map(|()| held)
}

/// A file of which a log has bytes.
#[derive(Debug, Default)]
struct OfLog {
    named: Named,
    pieces: Vec<(u64, Vec<u8>)>,
    /// Of each piece: the sequence of its record.
    sequences: Vec<u64>,
}

impl OfLog {
    /// The bytes of records up to this one are in the file.
    fn ends(&mut self, upto: u64) {
        let live = self.sequences.partition_point(|sequence| *sequence <= upto);
        self.sequences.drain(..live);
        self.pieces.drain(..live);
    }
}

fn from_logs(place: &Place, kind: Kind, settled: &mut HashSet<u32>, report: &mut Report) {
    let mut used: Vec<(Box<dyn Store>, Superblock)> = Vec::new();
    let mut files: BTreeMap<(usize, u32), (OfLog, Option<Gap>, u64)> = BTreeMap::new();
    for number in 1..crate::place::LOGS {
        let name = Place::log_name(number);
        let shown = place.path().join(&name);
        let shown = shown.display();
        let file = match place.log(number) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(why) => return report.keep(format!("{shown}: {why}")),
        };
        let store = match open(file, kind) {
            Ok(store) => store,
            Err(why) => return report.keep(format!("{shown}: {why}")),
        };
        let (superblock, bytes) = match whole(&*store) {
            Ok(whole) => whole,
            // (Its making was not completed: it has nothing.)
            Err(NoLog::Unusable(Unusable::Empty)) => continue,
            Err(NoLog::Kernel(why)) => return report.keep(format!("{shown}: {why}")),
            Err(NoLog::Unusable(why)) => {
                set_aside(place, &name, &why.to_string(), report);
                continue;
            }
        };
        let origin = superblock.origin(&place.here());
        if origin == Origin::OtherFileSystem {
            let why = "it was written on another file system, whose files it means";
            set_aside(place, &name, why, report);
            continue;
        }
        let scan = match Scan::new(&superblock.log(), &bytes) {
            Ok(scan) => scan,
            Err(why) => {
                set_aside(place, &name, &why.to_string(), report);
                continue;
            }
        };
        let mut damaged = None;
        for found in scan {
            match found {
                ScanItem::Gap(gap) => {
                    report.lose(format!("{shown}: {gap}"));
                    damaged.get_or_insert(gap);
                }
                ScanItem::Record(record) => {
                    let key = (number, record.index);
                    let (file, ..) = files.entry(key).or_default();
                    match record.body {
                        Body::Name(name) => {
                            file.named = Named {
                                device: name.device,
                                inode: name.inode,
                                generation: name.generation,
                                handle_kind: name.handle_kind,
                                handle: name.handle.to_vec(),
                                path: name.path.to_vec(),
                            };
                        }
                        Body::Data(data) => {
                            for (at, bytes) in data.pieces() {
                                file.pieces.push((at, bytes.to_vec()));
                                file.sequences.push(record.sequence);
                            }
                        }
                        Body::Home { upto: u64::MAX } => {
                            settled.insert(record.index);
                        }
                        // (An earlier version wrote so of a file that was overwritten.)
                        Body::Home { upto } => file.ends(upto),
                    }
                }
            }
        }
        for ((of, _), (_, why, latest)) in &mut files {
            if *of == number {
                (*why, *latest) = (damaged, latest_of_ours(&superblock, origin));
            }
        }
        used.push((store, superblock));
    }
    // Should this be interrupted, what it has written by then is no stranger's.
    let replays = files
        .iter()
        .any(|((_, index), (file, ..))| !settled.contains(index) && !file.pieces.is_empty());
    for (store, superblock) in used.iter_mut().filter(|_| replays) {
        let next = superblock.adopt(&place.here(), now());
        if let Err(why) = write_superblock(&mut **store, &next) {
            let path = place.path().display();
            return report.keep(format!("{path}: recovery cannot be begun in a log: {why}"));
        }
        *superblock = next;
    }
    for ((_, index), (file, damaged, latest)) in &files {
        if !settled.contains(index) && !file.pieces.is_empty() {
            if index & OVERWRITTEN != 0 {
                put_pieces_aside(place, file, Refused::Overwritten, merged(&file.pieces), report);
            } else {
                from_log(place, file, *damaged, *latest, report);
            }
        }
    }
    if report.kept.is_some() {
        return;
    }
    // From here on nothing of them counts any more.
    for (mut store, superblock) in used {
        let next = superblock.succeed(&place.here(), now());
        if let Err(why) = write_superblock(&mut *store, &next) {
            report.keep(format!("{}: a log cannot be begun anew: {why}", place.path().display()));
        }
    }
}

/// A log that cannot be used gets another name.
fn set_aside(place: &Place, name: &str, why: &str, report: &mut Report) {
    let to = format!("{name}.unusable.{}", now());
    let shown = place.path().join(name);
    match renameat(place, name, place, &to) {
        Ok(()) => report.lose(format!("{}: {why}; it is now {to}", shown.display())),
        Err(error) => report.keep(format!("{}: {why}; {error}", shown.display())),
    }
}

/// The file whose bytes a log has.
///
/// # Errors
/// Why they cannot go there.
fn home_of(place: &Place, file: &OfLog, damaged: Option<Gap>) -> Result<OwnedFd, Refused> {
    if let Some(gap) = damaged {
        return Err(Refused::Damaged(gap));
    }
    find(place.as_fd(), &file.named).map_err(|gone| match gone {
        Gone::Deleted => Refused::Deleted,
        Gone::Unknown => Refused::Gone,
        Gone::Refused(why) => Refused::Kernel(why),
    })
}

fn from_log(place: &Place, file: &OfLog, damaged: Option<Gap>, latest: u64, report: &mut Report) {
    let path = file.named.path.escape_ascii().to_string();
    let (first, bytes) = joined(&file.pieces);
    let last = first + bytes.len() as u64;
    let came = home_of(place, file, damaged);
    match came.and_then(|there| replay(&there, first, &bytes, latest)) {
        Ok(0) => {}
        Ok(n) => report.said.push(format!("{path}: {n} bytes up to {last} came from the log")),
        Err(Refused::Deleted) => report.said.push(format!("{path}: {}", Refused::Deleted)),
        Err(why) => put_pieces_aside(place, file, why, vec![(first, bytes)], report),
    }
}

/// Bytes that do not go into their file, for this reason, go into files of their own.
fn put_pieces_aside(
    place: &Place,
    file: &OfLog,
    why: Refused,
    pieces: Vec<(u64, Vec<u8>)>,
    report: &mut Report,
) {
    let path = file.named.path.escape_ascii().to_string();
    let name = path.rsplit('/').next().unwrap_or("file");
    for (first, bytes) in pieces {
        let last = first + bytes.len() as u64;
        match place.lose(&format!("{name}.{first}-{last}"), &bytes) {
            Ok(kept) => report.lose(format!(
                "{path}: {why}; its bytes {first} to {last} are in {}",
                kept.display()
            )),
            Err(error) => {
                return report
                    .keep(format!("{path}: {why}; its bytes cannot be put aside: {error}"));
            }
        }
    }
}

/// Whether a file was changed later than we did, who did so at `latest` at the latest.
fn later(stat: &Stat, latest: u64) -> bool {
    let changed = (stat.st_mtime as u64).saturating_mul(1_000_000_000) + stat.st_mtime_nsec;
    // (ext4 dates files that were growing past the page cache when it mounts: see `mounted`.)
    changed > latest.max(mounted(stat).map_or(0, |at| at.saturating_add(GRACE)))
}

/// The bytes from the first on; of what was logged twice the later counts. (An append follows the
/// one before. Where one is missing, because its segment was written over, it was durable in its
/// file, and so was all before: what counts begins behind.)
fn joined(pieces: &[(u64, Vec<u8>)]) -> (u64, Vec<u8>) {
    let mut first = 0;
    let mut bytes: Vec<u8> = Vec::new();
    for (at, piece) in pieces {
        let end = first + bytes.len() as u64;
        if bytes.is_empty() || *at > end || *at < first {
            (first, bytes) = (*at, piece.clone());
            continue;
        }
        bytes.truncate((*at - first) as usize);
        bytes.extend_from_slice(piece);
    }
    (first, bytes)
}

/// Bytes that lie anywhere: of those that were logged twice the later ones, in order of their
/// places. Pieces that touch are one.
fn merged(pieces: &[(u64, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
    let mut merged: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, bytes) in pieces {
        let (mut from, mut to) = (*at, *at + bytes.len() as u64);
        let touches =
            |(start, there): &(u64, Vec<u8>)| *start <= to && start + there.len() as u64 >= from;
        let (touched, mut apart): (Vec<_>, Vec<_>) = merged.into_iter().partition(touches);
        for (start, there) in &touched {
            (from, to) = (from.min(*start), to.max(start + there.len() as u64));
        }
        let mut all = vec![0; (to - from) as usize];
        for (start, there) in touched.iter().chain([&(*at, bytes.clone())]) {
            let place = (*start - from) as usize;
            all[place..place + there.len()].copy_from_slice(there);
        }
        apart.push((from, all));
        merged = apart;
    }
    merged.sort_by_key(|(at, _)| *at);
    merged
}

/// When we have changed files of this log at the latest.
fn latest_of_ours(log: &Superblock, origin: Origin) -> u64 {
    if log.recovering {
        // (Of a recovery that was interrupted: its own writes are younger than any heartbeat.)
        return u64::MAX;
    }
    let booted = if origin == Origin::EarlierBoot { booted() } else { 0 };
    no_later(log.heartbeat, booted)
}

/// The heartbeat and some seconds, but no later than a boot that came after it.
fn no_later(heartbeat: u64, booted: u64) -> u64 {
    let latest = heartbeat.saturating_add(GRACE);
    // (A boot that seems to be older than the heartbeat: the clock was set.)
    if booted >= heartbeat { latest.min(booted) } else { latest }
}

/// When this host was booted, in ns since 1970.
fn booted() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    let up = clock_gettime(ClockId::Boottime);
    now().saturating_sub(up.tv_sec as u64 * 1_000_000_000 + up.tv_nsec as u64)
}

/// When the ext4 that has this file was mounted, in ns since 1970, as far as that can be known.
///
/// A mount after a crash truncates each file to its length that was being made longer past the page
/// cache, or had room given back, and dates it so. Bytes of ours that were on their way home then
/// would be taken for a stranger's.
fn mounted(stat: &Stat) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = device.file_name()?.to_str()?;
    mounted_by_superblock(&format!("/dev/{name}"), stat.st_dev).or_else(|| mounted_by_thread(name))
}

/// Its superblock says so, to root.
fn mounted_by_superblock(device: &str, number: u64) -> Option<u64> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open(device, flags, rustix::fs::Mode::empty()).ok()?;
    let mut superblock = [0; 1024];
    let is_it = fstat(&device).is_ok_and(|stat| stat.st_rdev == number)
        && pread(&device, &mut superblock, 1024) == Ok(1024)
        && superblock[0x38..0x3a] == 0xef53u16.to_le_bytes();
    // `s_mtime`, and its upper bits.
    let low = u32::from_le_bytes(*superblock[0x2c..].first_chunk()?);
    let at = u64::from(superblock[0x274]) << 32 | u64::from(low);
    is_it.then_some(at * 1_000_000_000)
}

/// Its journal's thread began then. (Everybody may ask, but not where that thread is not seen.)
fn mounted_by_thread(name: &str) -> Option<u64> {
    let thread = std::fs::read_to_string(format!("/sys/fs/ext4/{name}/journal_task")).ok()?;
    let said = std::fs::read_to_string(format!("/proc/{}/stat", thread.trim())).ok()?;
    // (Behind the name, which may be anything, the 20th is the time of its start.)
    let ticks: u64 = said.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(booted() + ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Brings logged bytes into their file, which we have changed at `latest` at the latest. Returns
/// how many were not there.
///
/// # Errors
/// The kernel's, or somebody else changed the file.
fn replay(file: &OwnedFd, first: u64, bytes: &[u8], latest: u64) -> Result<u64, Refused> {
    let stat = fstat(file)?;
    let size = stat.st_size as u64;
    if size < first {
        return Err(Refused::Shorter { is: size, least: first });
    }
    let mut there = vec![0; bytes.len().min((size - first) as usize)];
    let mut got = 0;
    while got < there.len() {
        let n = pread(file, &mut there[got..], first + got as u64)?;
        if n == 0 {
            break;
        }
        got += n;
    }
    there.truncate(got);
    if there == bytes {
        return Ok(0);
    }
    // (Zeros are what a crash leaves of bytes that had not come to the disk.)
    let differs = there.iter().zip(bytes).any(|(is, wanted)| is != wanted && *is != 0);
    if differs || later(&stat, latest) {
        return Err(Refused::Changed);
    }
    let mut done = 0;
    while done < bytes.len() {
        done += pwrite(file, &bytes[done..], first + done as u64)?;
    }
    fdatasync(file)?;
    Ok(bytes.len() as u64 - there.iter().zip(bytes).filter(|(a, b)| a == b).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_ends_our_changes_and_a_clock_that_was_set_does_not() {
        let beat = 1_000 * GRACE;
        assert_eq!(no_later(beat, 0), beat + GRACE);
        assert_eq!(no_later(beat, beat - 1), beat + GRACE, "the clock was set back");
        assert_eq!(no_later(beat, beat + 1), beat + 1, "booted at once");
        assert_eq!(no_later(beat, beat + 2 * GRACE), beat + GRACE);
    }

    #[test]
    fn pieces_are_joined_and_the_later_of_two_counts() {
        let piece = |at: u64, text: &str| (at, text.as_bytes().to_vec());
        assert_eq!(joined(&[piece(5, "abc"), piece(8, "def")]), (5, b"abcdef".to_vec()));
        assert_eq!(joined(&[piece(5, "abc"), piece(7, "XYZ")]), (5, b"abXYZ".to_vec()));
        assert_eq!(joined(&[piece(5, "abc"), piece(100, "d")]), (100, b"d".to_vec()));
    }

    #[test]
    fn of_bytes_that_were_logged_twice_anywhere_the_later_count() {
        let piece = |at: u64, text: &str| (at, text.as_bytes().to_vec());
        assert_eq!(merged(&[piece(9, "b"), piece(0, "a")]), [piece(0, "a"), piece(9, "b")]);
        assert_eq!(merged(&[piece(0, "abcd"), piece(1, "XY")]), [piece(0, "aXYd")]);
        assert_eq!(merged(&[piece(2, "cd"), piece(0, "ABC")]), [piece(0, "ABCd")]);
        assert_eq!(
            merged(&[piece(0, "ab"), piece(4, "ef"), piece(1, "1234"), piece(0, "Z")]),
            [piece(0, "Z1234f")]
        );
    }
}
