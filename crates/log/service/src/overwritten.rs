//! A held file that is overwritten: the kernel has its bytes, and a program's log what its syncs
//! made durable. It becomes plain once the file itself has that durably.

use crate::identity::{Gone, find};
use crate::lease;
use crate::place::Place;
use crate::refused::Refused;
use crate::report::Report;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::fstat;
use rustix::io::{Errno, pread, pwrite};
use uncopy_inject::Point;
use uncopy_kernel::inject;
use uncopy_log_share::Entry;
use uncopy_log_share::layout::{FOR_GOOD, Named, ONCE};
use uncopy_log_store::home;

/// Bytes of a file that are written once more after a sync failed, at most.
const AGAIN: u64 = 64 << 20;

/// The outcome of settling.
pub(crate) enum Settled {
    /// The bytes that were logged are durable in the file. `logged`: some log has them still.
    Yes {
        logged: bool,
    },
    /// A sync failed: its program has to write once more what that was about.
    ByProgram,
    Not(Errno),
}

/// The bytes that some log has of an overwritten file are made durable in it. Nothing is logged any
/// more.
pub(crate) fn settle(file: BorrowedFd<'_>, entry: &Entry, alone: bool) -> Settled {
    // (A program that died over a sync may have been told that it failed.)
    let died = alone && entry.is_synced_now();
    if died || entry.failed.load(Ordering::SeqCst) != 0 {
        if !alone {
            return Settled::ByProgram;
        }
        return match write_once_more(file).and_then(|()| home::sync(file, true)) {
            Ok(()) => {
                entry.made_good();
                Settled::Yes { logged: true }
            }
            Err(why) => Settled::Not(why),
        };
    }
    if !entry.has_logged() {
        return Settled::Yes { logged: false };
    }
    match entry.syncs_itself(|| home::sync(file, true)) {
        Ok(()) => Settled::Yes { logged: true },
        Err(why) => {
            entry.loses(ONCE);
            Settled::Not(why)
        }
    }
}

/// In the place of a service that is no more: the file of `entry` is plain. `struck` says in the
/// program's log that what is there is in the file, which it is then.
pub(crate) fn take_over(
    file: BorrowedFd<'_>,
    entry: &Entry,
    directory: Option<&std::path::Path>,
    hopeless: bool,
    struck: impl FnOnce(u64) -> bool,
) {
    let logged = match settle(file, entry, true) {
        Settled::Yes { logged } => logged,
        Settled::Not(_) if hopeless => {
            if let Some(place) = directory.and_then(|path| Place::open(path).ok()) {
                let _ = Report::append(&place, &[unsure(entry)]);
            }
            true
        }
        Settled::Not(why) => return entry.refuses(why.raw_os_error() as u32),
        Settled::ByProgram => return entry.refuses(Errno::IO.raw_os_error() as u32),
    };
    inject::point(Point::Settled);
    if logged && !struck(0) {
        return entry.refuses(Errno::IO.raw_os_error() as u32);
    }
    inject::point(Point::Struck);
    lease::give_up(file);
    inject::point(Point::GivenUp);
    entry.plain();
}

/// Programs and service are no more, in this boot: the kernel has all bytes, and the disk gets
/// them. False: the file is not found, and what the log has of it is left.
pub(crate) fn recover(place: &Place, entry: &Entry, report: &mut Report) -> bool {
    entry.words.close();
    let named = entry.named();
    let path = named.path.escape_ascii().to_string();
    if !entry.has_logged() && entry.failed.load(Ordering::SeqCst) == 0 {
        return true;
    }
    match find(place.as_fd(), &named) {
        Ok(file) => {
            if let Settled::Not(why) = settle(file.as_fd(), entry, true) {
                report.lose(format!("{path}: {why}; {}", unsure(entry)));
            }
        }
        Err(Gone::Deleted) => report.said.push(format!("{path}: the file is no more")),
        Err(Gone::Unknown | Gone::Refused(_)) => return false,
    }
    true
}

/// A sync failed, and what it was about could not be written again. Returns the message.
pub(crate) fn unsure(entry: &Entry) -> String {
    entry.loses(FOR_GOOD);
    let path = entry.named().path;
    format!(
        "{}: a sync of it failed, and what was durable may not be on its disk; each sync says so",
        path.escape_ascii()
    )
}

/// The kernel takes for clean what it could not write, and has it still: it is written once more.
/// Nobody else writes meanwhile.
fn write_once_more(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let size = fstat(file)?.st_size as u64;
    if size > AGAIN {
        return Err(Errno::IO);
    }
    home::once_more(file, 0, size)
}

/// Bytes of an overwritten file, as a log has them: of those that were written twice the later
/// ones, in order of their places.
pub(crate) fn latest(pieces: &[(u64, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
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

/// Brings what a log has of an overwritten file to it. Nobody but us changed the file after `ours`,
/// or nothing is. Returns how many bytes were others.
///
/// # Errors
/// The kernel's, or somebody else changed the file.
pub(crate) fn replay(
    file: BorrowedFd<'_>,
    pieces: &[(u64, Vec<u8>)],
    changed_later: impl Fn() -> bool,
) -> Result<u64, Refused> {
    let mut differ = 0;
    for (at, bytes) in pieces {
        let mut there = vec![0; bytes.len()];
        let mut got = 0;
        while got < there.len() {
            match pread(file, &mut there[got..], at + got as u64)? {
                0 => break,
                n => got += n,
            }
        }
        let same = there[..got].iter().zip(bytes).filter(|(is, wanted)| is == wanted).count();
        differ += (bytes.len() - same) as u64;
    }
    if differ == 0 {
        // (A recovery before may have written them, and not have come to its sync.)
        return Ok(rustix::fs::fdatasync(file).map(|()| 0)?);
    }
    if changed_later() {
        return Err(Refused::Changed);
    }
    for (at, bytes) in pieces {
        let mut done = 0;
        while done < bytes.len() {
            done += pwrite(file, &bytes[done..], at + done as u64)?;
        }
    }
    rustix::fs::fdatasync(file)?;
    Ok(differ)
}

/// Bytes that do not get into their file go into files of their own. Returns the message.
pub(crate) fn put_aside(
    place: &Place,
    named: &Named,
    pieces: &[(u64, Vec<u8>)],
) -> Result<String, Errno> {
    let path = named.path.escape_ascii().to_string();
    let name = path.rsplit('/').next().unwrap_or("file");
    let mut said = Vec::new();
    for (at, bytes) in pieces {
        let last = at + bytes.len() as u64;
        let kept = place.lose(&format!("{name}.{at}-{last}"), bytes)?;
        said.push(format!("{at} to {last} in {}", kept.display()));
    }
    Ok(format!("its bytes are put aside: {}", said.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_was_written_twice_the_later_counts_wherever_it_lies() {
        let piece = |at: u64, text: &str| (at, text.as_bytes().to_vec());
        let of = |all: &[(u64, Vec<u8>)]| latest(all);
        assert_eq!(of(&[piece(9, "b"), piece(0, "a")]), [piece(0, "a"), piece(9, "b")]);
        assert_eq!(of(&[piece(0, "abcd"), piece(1, "XY")]), [piece(0, "aXYd")]);
        assert_eq!(of(&[piece(2, "cd"), piece(0, "ABC")]), [piece(0, "ABCd")]);
        assert_eq!(
            of(&[piece(0, "ab"), piece(4, "ef"), piece(1, "1234"), piece(0, "Z")]),
            [piece(0, "Z1234f")]
        );
    }
}
