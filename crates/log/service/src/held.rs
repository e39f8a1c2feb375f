//! A held file, from the service's side, and how it becomes plain.

use crate::lease;
use crate::place::Place;
use crate::plain_reason::PlainReason;
use crate::report::Report;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, fstat, ftruncate, seek};
use rustix::io::Errno;
use std::time::{Duration, Instant};
use uncopy_inject::{Call, Point};
use uncopy_kernel::inject;
use uncopy_log_share::homing::{Ending, NotHome, Which, bring, finish, sync};
use uncopy_log_share::layout::{Entry, FOR_GOOD, ONCE, RING};
use uncopy_log_share::memory::Memory;

/// So long a file that cannot be brought home is tried again, at first soon, then this far apart.
const TIMEOUT: Duration = Duration::from_secs(30);
const APART: Duration = Duration::from_secs(1);
/// From so many bytes on whole blocks go past the page cache.
const DIRECT: u64 = 128 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) file: OwnedFd,
    pub(crate) index: u32,
    pub(crate) client: u64,
    /// It is to be plain, for this reason.
    pub(crate) leaves: Option<PlainReason>,
    /// Ticks since something of it was neither home nor durable.
    pub(crate) waits: u32,
    /// Since when it cannot be brought home; when it is tried again.
    refused: Option<Instant>,
    next: Option<(Instant, Duration)>,
}

/// The outcome of making a file plain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It is. `logged`: some program's log has bytes of it.
    Plain {
        /// See above.
        logged: bool,
    },
    /// Not yet: it is tried again.
    Later,
    /// Its bytes could not be brought home, and were put aside: what is said of that.
    Lost(String),
}

impl Hold {
    pub(crate) fn new(file: OwnedFd, index: u32, client: u64) -> Self {
        Self { file, index, client, leaves: None, waits: 0, refused: None, next: None }
    }

    /// Brings bytes home.
    pub(crate) fn bring<F: AsFd>(
        &self,
        memory: &Memory<F>,
        slot: usize,
        which: Which,
    ) -> Result<u64, NotHome> {
        let words = &memory.entry(slot).words;
        let direct = words.end().at().saturating_sub(words.home()) >= DIRECT;
        bring(memory, slot, self.file.as_fd(), which, direct)
    }

    /// All that was appended is home, and durable. `Ok(false)`: as [`sync`].
    pub(crate) fn settle<F: AsFd>(&self, memory: &Memory<F>, slot: usize) -> Result<bool, NotHome> {
        self.bring(memory, slot, Which::All)?;
        sync(memory, slot, self.file.as_fd()).map_err(NotHome::Refused)
    }

    /// Nothing is appended any more; all that was is home, and durable if some log has any of it.
    /// The lease is still held: what the log has is to be struck out first. `alone`: its program is
    /// no more.
    pub(crate) fn leave<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        slot: usize,
        place: &Place,
        alone: bool,
    ) -> Left {
        let entry = memory.entry(slot);
        let end = entry.words.close();
        inject::point(Point::Closed);
        core::sync::atomic::fence(Ordering::SeqCst);
        // (Read after that: a program says that it logs before it looks whether it still may.)
        let logged = entry.logged.load(Ordering::SeqCst) != 0;
        if entry.aside.load(Ordering::SeqCst) != 0 {
            return Left::Plain { logged: true };
        }
        let now = Instant::now();
        if self.next.is_some_and(|(at, _)| now < at) {
            return Left::Later;
        }
        let ending = Ending { logged, alone, open: false };
        let settled = self
            .bring(memory, slot, Which::All)
            .and_then(|_| finish(memory, slot, self.file.as_fd(), ending));
        let why = match settled {
            Ok(sure) => {
                inject::point(Point::Settled);
                give_back(self.file.as_fd(), entry, end);
                return if sure { Left::Plain { logged } } else { Left::Lost(unsure(entry)) };
            }
            Err(NotHome::Refused(Errno::AGAIN)) => return Left::Later,
            Err(why) => why,
        };
        let begun = *self.refused.get_or_insert(now);
        if (matches!(why, NotHome::Changed { .. }) || begun.elapsed() >= TIMEOUT)
            && let Ok(said) = put_aside(memory, slot, place)
        {
            hand_position_over(self.file.as_fd(), entry);
            return Left::Lost(format!("{why}; {said}"));
        }
        self.is_refused(entry, error(why));
        Left::Later
    }

    /// It cannot be plain for now, for this reason.
    pub(crate) fn is_refused(&mut self, entry: &Entry, why: u32) {
        let pause = self.next.map_or(Duration::from_millis(20), |(_, last)| (last * 2).min(APART));
        self.next = Some((Instant::now() + pause, pause));
        entry.refuses(why);
    }

    /// It is plain: all who wait for it go on.
    pub(crate) fn let_go<F: AsFd>(self, memory: &Memory<F>, slot: usize) {
        lease::give_up(self.file.as_fd());
        inject::point(Point::GivenUp);
        drop(self.file);
        memory.entry(slot).plain();
    }
}

/// A program brings its bytes home in the place of a service that is no more: `file` is its own
/// description. `struck` says in its log that what is there is home, which it is then. The lease is
/// the description's, and so is this program's to give up. Where bytes cannot come home they are
/// put aside in `directory`, or kept until the next try; `hopeless`: there were enough of these. No
/// other thread of the program syncs the file meanwhile.
pub fn take_over<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    directory: Option<&std::path::Path>,
    hopeless: bool,
    struck: impl FnOnce(u64) -> bool,
) {
    let entry = memory.entry(slot);
    // (A number that came back past us is another file's.)
    if !fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == entry.identity()) {
        return entry.refuses(Errno::BADF.raw_os_error() as u32);
    }
    let end = entry.words.close();
    inject::point(Point::Closed);
    core::sync::atomic::fence(Ordering::SeqCst);
    let logged = entry.logged.load(Ordering::SeqCst) != 0;
    // (The service may have died while it wrote past the page cache: a file that is held never has
    // this flag of the program's.)
    if let Ok(flags) = fcntl_getfl(file)
        && flags.contains(OFlags::DIRECT)
    {
        let _ = fcntl_setfl(file, flags - OFlags::DIRECT);
    }
    let place = || directory.and_then(|path| Place::open(path).ok());
    if entry.aside.load(Ordering::SeqCst) == 0 {
        let ending = Ending { logged, alone: true, open: false };
        let settled = bring(memory, slot, file, Which::All, false)
            .and_then(|_| finish(memory, slot, file, ending));
        match settled {
            Ok(sure) => {
                inject::point(Point::Settled);
                if !sure && let Some(place) = place() {
                    let _ = Report::append(&place, &[unsure(entry)]);
                }
                give_back(file, entry, end);
            }
            Err(why) => {
                // (Else it is tried again.)
                let lost = hopeless || matches!(why, NotHome::Changed { .. });
                let aside = place().filter(|_| lost).and_then(|place| {
                    let said = put_aside(memory, slot, &place).ok()?;
                    let _ = Report::append(&place, &[format!("{why}; {said}")]);
                    Some(())
                });
                if aside.is_none() {
                    return entry.refuses(error(why));
                }
                hand_position_over(file, entry);
            }
        }
    }
    // (Else the lease stays, and it is tried again.)
    if !logged || struck(end) {
        inject::point(Point::Struck);
        lease::give_up(file);
        inject::point(Point::GivenUp);
        entry.plain();
    } else {
        entry.refuses(Errno::IO.raw_os_error() as u32);
    }
}

/// A sync failed, and nobody has any more what it was about. Returns the message.
fn unsure(entry: &Entry) -> String {
    entry.loses(FOR_GOOD);
    let path = entry.named().path;
    format!(
        "{}: a sync of it failed, and its bytes before {} may not be on its disk; each sync says \
         so",
        path.escape_ascii(),
        entry.words.end().at().saturating_sub(RING)
    )
}

/// The error that a program is told.
pub(crate) fn error(why: NotHome) -> u32 {
    match why {
        NotHome::Refused(why) => why.raw_os_error() as u32,
        NotHome::Changed { .. } => Errno::IO.raw_os_error() as u32,
    }
}

/// Room that was reserved behind the file's end goes back, and the position is what it should be.
/// Nobody else has the file open for writing: so its length is its length.
pub(crate) fn give_back(file: BorrowedFd<'_>, entry: &Entry, end: u64) {
    if entry.reserved.load(Ordering::Acquire) > end
        && entry.roomy.load(Ordering::Acquire) == 0
        && inject::check(Call::LogTrim).is_ok()
        && fstat(file).is_ok_and(|stat| stat.st_size as u64 == end)
    {
        // (Where that is refused the room stays the file's.)
        let _ = ftruncate(file, end);
        inject::point(Point::Trimmed);
    }
    hand_position_over(file, entry);
}

fn hand_position_over(file: BorrowedFd<'_>, entry: &Entry) {
    entry.hands_position_over(|position| {
        let _ = seek(file, SeekFrom::Start(position));
    });
}

/// Bytes that do not get into their file go into one of their own. Returns the message.
pub(crate) fn put_aside<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    place: &Place,
) -> Result<String, Errno> {
    let entry = memory.entry(slot);
    let (mut home, end) = (entry.words.home(), entry.words.end().at());
    if entry.logged.load(Ordering::SeqCst) != 0 {
        // (Bytes that were promised to be durable, and are not in the file for sure, go along.)
        let base = entry.base.load(Ordering::Acquire).max(end.saturating_sub(RING));
        home = home.min(entry.words.durable().max(base));
    }
    let bytes = held_bytes(memory, slot, home, end);
    let path = entry.named().path;
    let path = String::from_utf8_lossy(&path).into_owned();
    let name = path.rsplit('/').next().unwrap_or("file");
    let kept = place.lose(&format!("{name}.{home}-{end}"), &bytes)?;
    entry.aside.store(1, Ordering::SeqCst);
    entry.loses(ONCE);
    Ok(format!("{path}: its bytes {home} to {end} are in {}", kept.display()))
}

/// Bytes of a ring that nobody appends to any more.
pub(crate) fn held_bytes<F: AsFd>(memory: &Memory<F>, slot: usize, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; to.saturating_sub(from) as usize];
    memory.copy_out(slot, from, &mut bytes);
    bytes
}
