//! A held file, from the service's side, and how it becomes plain.

use crate::lease;
use crate::place::Place;
use crate::reason::Reason;
use crate::report::Report;
use core::sync::atomic::Ordering;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, fstat, ftruncate, seek};
use rustix::io::Errno;
use uncopy_inject::Call;
use uncopy_kernel::inject;
use uncopy_log_share::homing::{NotHome, Which, bring, sync};
use uncopy_log_share::layout::{Entry, RING};
use uncopy_log_share::memory::Memory;

/// So often a file that cannot be brought home is tried again, a second apart.
const TRIES: u32 = 30;
/// From so many bytes on whole blocks go past the page cache.
const DIRECT: u64 = 128 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) file: OwnedFd,
    pub(crate) index: u32,
    pub(crate) client: u64,
    /// It is to be plain, for this reason.
    pub(crate) leaves: Option<Reason>,
    /// Ticks since something of it was neither home nor durable.
    pub(crate) waits: u32,
    tries: u32,
}

/// What came of making a file plain.
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
        Self { file, index, client, leaves: None, waits: 0, tries: 0 }
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

    /// All that was appended is home, and durable.
    pub(crate) fn settle<F: AsFd>(&self, memory: &Memory<F>, slot: usize) -> Result<(), NotHome> {
        self.bring(memory, slot, Which::All)?;
        sync(memory, slot, self.file.as_fd()).map_err(NotHome::Refused)
    }

    /// Nothing is appended any more; all that was is home, and durable if some log has any of it.
    /// The lease is still held: what the log has is to be struck out first.
    pub(crate) fn leave<F: AsFd>(
        &mut self,
        memory: &Memory<F>,
        slot: usize,
        place: &Place,
    ) -> Left {
        let entry = memory.entry(slot);
        let end = entry.words.close();
        core::sync::atomic::fence(Ordering::SeqCst);
        // (Read after that: a program says that it logs before it looks whether it still may.)
        let logged = entry.logged.load(Ordering::SeqCst) != 0;
        let settled = self
            .bring(memory, slot, Which::All)
            .and_then(|_| if logged { self.settle(memory, slot) } else { Ok(()) });
        let why = match settled {
            Ok(()) => {
                give_back(self.file.as_fd(), entry, end);
                return Left::Plain { logged };
            }
            Err(why) => why,
        };
        self.tries += 1;
        if matches!(why, NotHome::Refused(_)) && self.tries < TRIES {
            entry.error.store(error(why), Ordering::Release);
            entry.turned();
            return Left::Later;
        }
        match put_aside(memory, slot, place) {
            Ok(said) => {
                hand_position_over(self.file.as_fd(), entry);
                Left::Lost(format!("{why}; {said}"))
            }
            Err(_) => Left::Later,
        }
    }

    /// It is plain: whoever waits for it goes on.
    pub(crate) fn let_go<F: AsFd>(self, memory: &Memory<F>, slot: usize) {
        lease::give_up(self.file.as_fd());
        drop(self.file);
        memory.entry(slot).plain();
    }
}

/// A program brings its bytes home in the place of a service that is no more: `file` is its own
/// description. `struck` says in its log that what is there is home, which it is then. The lease is
/// the description's, and so is this program's to give up. Where bytes cannot come home they are put
/// aside in `directory`, or kept until the next try.
pub fn take_over<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    file: BorrowedFd<'_>,
    directory: Option<&std::path::Path>,
    struck: impl FnOnce(u64) -> bool,
) {
    let entry = memory.entry(slot);
    // (A number that came back past us is another file's.)
    if !fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == entry.identity()) {
        entry.error.store(Errno::BADF.raw_os_error() as u32, Ordering::Release);
        return entry.turned();
    }
    let end = entry.words.close();
    core::sync::atomic::fence(Ordering::SeqCst);
    let logged = entry.logged.load(Ordering::SeqCst) != 0;
    // (The service may have died while it wrote past the page cache: a file that is held never has
    // this flag of the program's.)
    if let Ok(flags) = fcntl_getfl(file)
        && flags.contains(OFlags::DIRECT)
    {
        let _ = fcntl_setfl(file, flags - OFlags::DIRECT);
    }
    let settled = bring(memory, slot, file, Which::All, false).and_then(|_| {
        if logged { sync(memory, slot, file).map_err(NotHome::Refused) } else { Ok(()) }
    });
    match settled {
        Ok(()) => give_back(file, entry, end),
        Err(why) => {
            // (Else it is tried again.)
            let changed = matches!(why, NotHome::Changed { .. });
            let place = directory.filter(|_| changed).and_then(|path| Place::open(path).ok());
            let aside = place.and_then(|place| {
                let said = put_aside(memory, slot, &place).ok()?;
                let _ = Report::append(&place, &[format!("{why}; {said}")]);
                Some(())
            });
            if aside.is_none() {
                entry.error.store(error(why), Ordering::Release);
                return entry.turned();
            }
            hand_position_over(file, entry);
        }
    }
    // (Else the lease stays, and it is tried again.)
    if !logged || struck(end) {
        lease::give_up(file);
        entry.plain();
    }
}

/// As a program is told.
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
        && inject::check(Call::LogTrim).is_ok()
        && fstat(file).is_ok_and(|stat| stat.st_size as u64 == end)
    {
        // (Where that is refused the room stays the file's.)
        let _ = ftruncate(file, end);
    }
    hand_position_over(file, entry);
}

fn hand_position_over(file: BorrowedFd<'_>, entry: &Entry) {
    entry.hands_position_over(|position| {
        let _ = seek(file, SeekFrom::Start(position));
    });
}

/// Bytes that do not get into their file go into one of their own. What is said of that.
pub(crate) fn put_aside<F: AsFd>(
    memory: &Memory<F>,
    slot: usize,
    place: &Place,
) -> Result<String, Errno> {
    let entry = memory.entry(slot);
    let (mut home, end) = (entry.words.home(), entry.words.end().at());
    if entry.logged.load(Ordering::SeqCst) != 0 {
        // (What was promised to be durable, and is not in the file for sure.)
        let base = entry.base.load(Ordering::Acquire).max(end.saturating_sub(RING));
        home = home.min(entry.words.durable().max(base));
    }
    let bytes = held_bytes(memory, slot, home, end);
    let path = entry.named().path;
    let path = String::from_utf8_lossy(&path).into_owned();
    let name = path.rsplit('/').next().unwrap_or("file");
    let kept = place.lose(&format!("{name}.{home}-{end}"), &bytes)?;
    Ok(format!("{path}: its bytes {home} to {end} are in {}", kept.display()))
}

/// Bytes of a ring that nobody appends to any more.
pub(crate) fn held_bytes<F: AsFd>(memory: &Memory<F>, slot: usize, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; to.saturating_sub(from) as usize];
    memory.copy_out(slot, from, &mut bytes);
    bytes
}
