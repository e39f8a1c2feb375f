//! Kept files: read once while a lease holds every change off, and answered from memory from then
//! on.
//!
//! The book of them: which file is read often enough, which is kept, who is using it, which is to
//! go. Nothing here makes a system call; everything has a fixed size, because reads come from
//! signal handlers too. A kept byte never changes: a lease that ends takes a file out of the book,
//! and readers that got bytes of it before have them.

#![forbid(unsafe_code)]

mod candidates;
mod stamp;

use self::candidates::Candidates;
pub use self::stamp::Stamp;
use uncopy_ranges::span::{PAGE, Span, page_up};

/// Files that can be kept at once.
pub const FILES: usize = 64;
/// Bytes of a file that are read into memory at once.
pub const CHUNK: usize = 1 << 20;
/// Largest file that is kept, in bytes: one bit for each chunk.
pub const FILE_MAX: u64 = (CHUNK * 64 * WORDS) as u64;
/// Smallest read that is answered from a kept file, in bytes; and the smallest file.
pub const READ_MIN: usize = 64 << 10;
/// The time after which an unused file goes, in ns.
pub const IDLE: u64 = 5_000_000_000;
/// The time within which a used file makes no room for another, in ns.
const BUSY: u64 = 1_000_000_000;
/// Kept for so long, it is forgiven its changes, in ns.
const FORGIVEN: u64 = 60_000_000_000;
const WORDS: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Vacant,
    /// Wanted: somebody is to get a lease.
    Wanted,
    /// Kept: the content is that of `stamp`.
    Kept,
    /// No longer: goes once nobody uses it.
    Leaving,
}

#[derive(Clone, Copy, Debug, Default)]
struct File {
    state: State,
    stamp: Stamp,
    /// Where its bytes are, once read.
    base: usize,
    filled: [u64; WORDS],
    filling: bool,
    users: u32,
    /// Whether reads set its time of access.
    timed: bool,
    /// A descriptor of the program's, by which it can be found while it is wanted.
    fd: i32,
    since: u64,
    used: u64,
}

impl File {
    fn span(&self) -> Span {
        Span::sized(self.base, page_up(self.stamp.size as usize))
    }
}

/// The answer to a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Read it.
    Plain,
    /// Read it; the keeper of leases has something to do.
    PlainAndWake,
    /// It is kept; [`Shelf::done`] must follow.
    Kept(Hit),
}

/// A kept file in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its place on the shelf.
    pub file: usize,
    /// Where its first byte is.
    pub base: usize,
    /// Its length in bytes.
    pub size: u64,
    /// Whether a plain read may set its time of access.
    pub timed: bool,
}

/// The result of getting a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is held, and the file is what it was when it was asked for.
    Leased {
        /// Whether reads set its time of access.
        timed: bool,
    },
    /// It is not to be had.
    Refused,
    /// The descriptor was another's by then, or the file had changed.
    Missed,
}

/// The state of a chunk that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// It is there.
    There,
    /// The caller reads it, then says so: [`Shelf::filled`].
    Yours,
    /// Somebody else reads it now, or the file is no longer kept.
    NotNow,
}

/// The book.
#[derive(Debug)]
pub struct Shelf {
    files: [File; FILES],
    candidates: Candidates,
    space: Span,
    most: usize,
    kept: usize,
}

impl Default for Shelf {
    fn default() -> Self {
        Self::new()
    }
}

impl Shelf {
    /// Empty, and without room.
    pub const fn new() -> Self {
        const FILE: File = File {
            state: State::Vacant,
            stamp: Stamp::NONE,
            base: 0,
            filled: [0; WORDS],
            filling: false,
            users: 0,
            timed: false,
            fd: -1,
            since: 0,
            used: 0,
        };
        Self {
            files: [FILE; FILES],
            candidates: Candidates::new(),
            space: Span { start: 0, end: 0 },
            most: 0,
            kept: 0,
        }
    }

    /// Files may take `most` bytes in `space`, which is empty memory.
    pub fn furnish(&mut self, space: Span, most: usize) {
        (self.space, self.most) = (space, most);
    }

    /// Whether it has room at all.
    pub fn furnished(&self) -> bool {
        !self.space.is_empty()
    }

    /// The largest file that fits, in bytes.
    pub fn largest(&self) -> u64 {
        FILE_MAX.min(self.most as u64 / 2)
    }

    /// `fd`, which is at `stamp`, is read; `weight` is how many reads of `len` bytes this one
    /// stands for. `now` is any clock, in ns.
    pub fn ask(&mut self, stamp: &Stamp, fd: i32, len: usize, weight: u32, now: u64) -> Answer {
        if let Some(i) = self.find(stamp) {
            let f = &mut self.files[i];
            return match f.state {
                State::Kept if f.stamp == *stamp => {
                    f.users += 1;
                    f.used = now;
                    Answer::Kept(Hit { file: i, base: f.base, size: f.stamp.size, timed: f.timed })
                }
                // It changed, whatever became of the lease: a stopped process cannot answer for it.
                State::Kept => {
                    self.leave(i, now);
                    Answer::PlainAndWake
                }
                _ => Answer::Plain,
            };
        }
        if stamp.size < READ_MIN as u64 || stamp.size > self.largest() {
            return Answer::Plain;
        }
        if !self.candidates.worth_keeping(stamp, len as u64 * u64::from(weight), now) {
            return Answer::Plain;
        }
        match self.make_room(page_up(stamp.size as usize), now) {
            Reservation::At(file, base) => {
                self.kept += page_up(stamp.size as usize);
                self.files[file] = File {
                    state: State::Wanted,
                    stamp: *stamp,
                    base,
                    fd,
                    since: now,
                    used: now,
                    ..File::default()
                };
                Answer::PlainAndWake
            }
            Reservation::Soon => Answer::PlainAndWake,
            Reservation::None => {
                self.candidates.pause(stamp, now);
                Answer::Plain
            }
        }
    }

    fn find(&self, stamp: &Stamp) -> Option<usize> {
        self.files.iter().position(|f| f.state != State::Vacant && f.stamp.same_file(stamp))
    }

    fn make_room(&mut self, bytes: usize, now: u64) -> Reservation {
        let place = self.files.iter().position(|f| f.state == State::Vacant);
        if let Some(place) = place
            && self.kept + bytes <= self.most
            && let Some(base) = self.gap(bytes)
        {
            return Reservation::At(place, base);
        }
        // (One that is still used may be so for long: a call that sends it may wait.)
        if self.leaving().is_some() {
            return Reservation::Soon;
        }
        let oldest = (0..FILES)
            .filter(|i| self.files[*i].state == State::Kept && self.files[*i].users == 0)
            .min_by_key(|i| self.files[*i].used);
        match oldest {
            Some(i) if now.saturating_sub(self.files[i].used) >= BUSY => {
                self.files[i].state = State::Leaving;
                Reservation::Soon
            }
            _ => Reservation::None,
        }
    }

    fn gap(&self, bytes: usize) -> Option<usize> {
        let mut taken = [Span::new(0, 0); FILES];
        let mut n = 0;
        for f in self.files.iter().filter(|f| f.state != State::Vacant) {
            taken[n] = f.span();
            n += 1;
        }
        taken[..n].sort_unstable_by_key(|s| s.start);
        first_gap(self.space, &taken[..n], bytes)
    }

    /// A file for which a lease is wanted: its place, the program's descriptor, what it was, where
    /// its bytes are to be.
    pub fn wanted(&self) -> Option<(usize, i32, Stamp, Span)> {
        let i = self.files.iter().position(|f| f.state == State::Wanted)?;
        let f = &self.files[i];
        Some((i, f.fd, f.stamp, f.span()))
    }

    /// Enters the result of it for a wanted file.
    pub fn settle(&mut self, file: usize, outcome: Outcome, now: u64) {
        let f = &mut self.files[file];
        if f.state != State::Wanted {
            return;
        }
        let stamp = f.stamp;
        f.state = State::Leaving;
        match outcome {
            Outcome::Leased { timed } => {
                f.state = State::Kept;
                (f.since, f.used, f.timed) = (now, now, timed);
            }
            Outcome::Refused => self.candidates.pause(&stamp, now),
            Outcome::Missed => self.candidates.pause_briefly(&stamp, now),
        }
    }

    /// The file's lease is being broken, or it has changed: no longer kept.
    pub fn leave(&mut self, file: usize, now: u64) {
        let f = &mut self.files[file];
        if !matches!(f.state, State::Kept | State::Wanted) {
            return;
        }
        let (stamp, since) = (f.stamp, f.since);
        f.state = State::Leaving;
        if now.saturating_sub(since) >= FORGIVEN {
            self.candidates.forgive(&stamp, now);
        }
        self.candidates.pause(&stamp, now);
    }

    /// Lets go of files that nobody has used for long.
    pub fn leave_idle(&mut self, now: u64) {
        for f in self.files.iter_mut().filter(|f| f.state == State::Kept && f.users == 0) {
            if now.saturating_sub(f.used) >= IDLE {
                f.state = State::Leaving;
            }
        }
    }

    /// Everything goes.
    pub fn leave_all(&mut self) {
        for f in &mut self.files {
            if matches!(f.state, State::Kept | State::Wanted) {
                f.state = State::Leaving;
            }
        }
    }

    /// Whether the file at this place is kept.
    pub fn is_kept(&self, file: usize) -> bool {
        self.files[file].state == State::Kept
    }

    /// Whether anything is kept or on its way.
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(|f| f.state == State::Vacant)
    }

    /// Files and bytes that are kept.
    pub fn totals(&self) -> (usize, usize) {
        let kept = self.files.iter().filter(|f| f.state == State::Kept);
        (kept.count(), self.kept)
    }

    /// A file that is to go and that nobody uses: its memory may go. [`Shelf::gone`] follows.
    pub fn leaving(&self) -> Option<(usize, Span)> {
        let free = |f: &&File| f.state == State::Leaving && f.users == 0;
        let i = self.files.iter().position(|f| free(&f))?;
        Some((i, self.files[i].span()))
    }

    /// Its memory is gone.
    pub fn gone(&mut self, file: usize) {
        self.kept -= self.files[file].span().len();
        self.files[file] = File::default();
    }

    /// In a forked child, whose leases are its parent's and whose other threads are gone.
    pub fn disown(&mut self) {
        self.leave_all();
        for f in &mut self.files {
            (f.users, f.filling) = (0, false);
        }
    }

    /// The chunk at number `chunk` of a file in use is needed.
    pub fn need(&mut self, file: usize, chunk: usize) -> Chunk {
        let f = &mut self.files[file];
        if f.filled[chunk / 64] >> (chunk % 64) & 1 != 0 {
            return Chunk::There;
        }
        if f.filling || f.state != State::Kept {
            return Chunk::NotNow;
        }
        f.filling = true;
        Chunk::Yours
    }

    /// The caller has read the chunk, and then found the file at the stamp; or could not. Returns
    /// whether it is good: the lease held all the while.
    pub fn filled(&mut self, file: usize, chunk: usize, found: Option<Stamp>) -> bool {
        let f = &mut self.files[file];
        f.filling = false;
        let good = f.state == State::Kept && found == Some(f.stamp);
        if good {
            f.filled[chunk / 64] |= 1 << (chunk % 64);
        }
        good
    }

    /// The caller has what it wanted. Returns whether the file waits for that to go.
    pub fn done(&mut self, hit: &Hit) -> bool {
        let f = &mut self.files[hit.file];
        f.users -= 1;
        f.state == State::Leaving && f.users == 0
    }
}

enum Reservation {
    At(usize, usize),
    Soon,
    None,
}

/// The lowest `bytes` of `space` that none of `taken`, which are in order, takes.
fn first_gap(space: Span, taken: &[Span], bytes: usize) -> Option<usize> {
    let mut at = space.start;
    for t in taken {
        if t.start.saturating_sub(at) >= bytes {
            return Some(at);
        }
        at = at.max(t.end);
    }
    (space.end.saturating_sub(at) >= bytes).then_some(at)
}

/// Numbers of the chunks that `len` bytes (at least one) from `at` on touch.
pub fn chunks(at: u64, len: usize) -> std::ops::RangeInclusive<usize> {
    at as usize / CHUNK..=(at as usize + len - 1) / CHUNK
}

/// How much address space is needed for `most` bytes of files: twice as much, because they leave
/// gaps.
pub fn address_space(most: usize) -> usize {
    2 * page_up(most).max(PAGE)
}

#[cfg(test)]
mod tests;
