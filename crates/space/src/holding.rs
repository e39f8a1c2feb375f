//! Memory that is held beyond what the program has asked for: how much there is, how much may be,
//! and what of it is given back while the program does nothing.
//!
//! How much may be follows from what the program has had, and from the room below the lowest limit
//! of memory that applies ([`uncopy_ranges::allowance`]). The limit is looked up when it matters
//! first; what is used of it, and whether somebody waits for memory, the monitor reads now and
//! then, from files that it has opened in its own table of descriptors. A thread that is about to
//! keep more than may be gives back at once; the monitor does, and gives back what lies idle, where
//! nobody comes.
//!
//! These files are opened, read and closed by the calls that the dynamic linker has made for this
//! process: a filter that was in force then lets them pass.
//!
//! unsafe: drops pages of ours that nobody has.

use crate::held::{Known, holding};
use crate::hold::swapped;
use crate::space::{Books, Space};
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use uncopy_cgroup::{self as cgroup, Place, UNLIMITED, Version, Waiting};
use uncopy_counters::add;
use uncopy_kernel::descriptors::OwnFd;
use uncopy_kernel::uffd::Fds;
use uncopy_kernel::{clock, critical, mapping, procfs};
use uncopy_ranges::span::Span;

/// Longest list of mounts, or groups, that is looked at, in bytes.
const TEXT_MAX: usize = 1 << 20;
/// The longest text of a file with numbers.
const TEXT: usize = 4096;
/// How often something is given back, by 2 MB, until the monitor looks again.
const TIMES: usize = 64;
/// When the monitor looks again, in ms: under a limit, while the program is busy or something is
/// held; where something is held; where nothing is.
const SOON: u64 = 100;
const LATER: u64 = 1000;
const SELDOM: u64 = 10_000;
/// One part in so many of the time that somebody waits for memory is much.
const WAITED_SHARE: u64 = 10;
/// Less than one part in so many of a limit is little room.
const SHORT_SHARE: u64 = 8;
/// So much room, in bytes, there is to be below a limit before anything is elided: books, a monitor
/// and what both map take a part of it.
const START_ROOM: u64 = 8 << 20;
/// So much, in bytes, is nothing.
const LITTLE: u64 = 1 << 20;

/// Gives back a part: told the time in seconds, and how pages that nobody has are dropped, if that
/// is worth it and possible. Returns whether it did.
pub type Tend = fn(i64, &mut dyn FnMut(Span) -> bool) -> bool;

impl Space {
    /// By how many bytes more is held than may be.
    #[inline]
    pub fn over(&self) -> usize {
        self.allowance.over(&holding(self.counters())) as usize
    }

    /// Whether so little may be held that blocks are better the program's allocator's, which uses
    /// what is freed for others of any size.
    #[inline]
    pub fn tight(&self) -> bool {
        self.allowance.is_tight()
    }

    /// The twin allocator has promised the program so many bytes.
    #[inline]
    pub fn promises(&self, bytes: u64) {
        self.allowance.promised(bytes);
    }

    /// Now and then; it is `now`, in seconds.
    pub fn looks(&self, now: i64) {
        self.allowance.look(now, holding(self.counters()).promised);
    }

    /// Nothing could be given back, though more is held than may be.
    pub fn nothing_given_back(&self) {
        self.allowance.found_nothing(self.over() as u64);
    }

    /// Looks up which limits of memory apply, if nobody has.
    pub fn read_limits(&self) {
        if self.limit_known.load(Relaxed) || critical::inside() {
            return;
        }
        // (No handler of the program runs on this thread meanwhile: it might fork, and leave what
        // is open here to its child.)
        let mask = critical::block_signals();
        critical::within(|| self.look_up_limits());
        critical::restore_signals(mask);
    }

    /// Whether so many bytes may be held beside what is counted here: an eighth of the room below a
    /// limit of memory, as far as that is known.
    pub fn may_hold(&self, bytes: u64) -> bool {
        if critical::inside() {
            self.look_up_limits();
        } else {
            self.read_limits();
        }
        bytes <= self.allowance.most()
    }

    fn look_up_limits(&self) {
        if self.limit_known.swap(true, Relaxed) {
            return;
        }
        let lowest = self.place().map(|place| lowest(&levels(place, true)));
        match lowest {
            Some(limit) if limit != UNLIMITED => {
                self.allowance.limit(limit);
                self.knows_limit(limit);
            }
            _ => self.allowance.unlimited(),
        }
    }

    /// The lowest limit is `bytes`, or [`UNLIMITED`].
    fn knows_limit(&self, bytes: u64) {
        self.limit.store(!bytes, Relaxed);
        // (0 is a limit, too; there it says that none is known.)
        let told = if bytes == UNLIMITED { 0 } else { bytes.max(1) };
        self.counters().memory_limit_bytes.store(told, Relaxed);
    }

    fn limit(&self) -> u64 {
        !self.limit.load(Relaxed)
    }

    /// Where this process's group is. (The mounts are read anew only where it is in another group
    /// than it was: they are many.)
    fn place(&self) -> Option<&'static Place> {
        let groups = procfs::whole(c"/proc/self/cgroup", TEXT_MAX)?;
        // SAFETY: what is stored there is never given back.
        let known = unsafe { self.place.load(Acquire).as_ref() };
        if let Some(known) = known.filter(|known| known.groups == groups) {
            return known.place.as_ref();
        }
        let mounts = procfs::whole(c"/proc/self/mountinfo", TEXT_MAX)?;
        let place = cgroup::place(&groups, &mounts);
        let known = Box::into_raw(Box::new(Known { groups, place }));
        self.place.store(known, Release);
        // SAFETY: as above.
        unsafe { &*known }.place.as_ref()
    }

    /// Whether there is too little room below a limit for books and a monitor. (The files are not
    /// read at each call.) In a critical section in which no signal comes.
    pub(crate) fn lacks_room(&self) -> bool {
        self.look_up_limits();
        if self.limit() == UNLIMITED {
            return false;
        }
        let now = clock::millis();
        if now < self.room_again.load(Relaxed) {
            return true;
        }
        let found = self.place().map(|place| room(&mut levels(place, true), place.version));
        let lacks = matches!(found, Some(Headroom::Room { room, .. }) if room < START_ROOM);
        self.counters().off_limit.store(u64::from(lacks), Relaxed);
        if lacks {
            self.room_again.store(now + LATER, Relaxed);
        }
        lacks
    }

    /// Whether the monitor goes to the twin allocator's book: then its lock is to be taken for
    /// good, also by a program's only thread.
    #[inline(always)]
    pub fn visited(&self) -> bool {
        self.visited.load(Relaxed)
    }

    /// The bytes that extents may take by default: an eighth of the machine's memory, or of what
    /// limits it.
    pub fn default_extent_bytes(&self) -> usize {
        const SHARE: usize = 8;
        let memory = rustix::system::sysinfo().totalram as usize;
        memory.min(usize::try_from(self.limit()).unwrap_or(usize::MAX)) / SHARE
    }

    /// The limit that was found and what follows, for the user.
    pub fn said_of_limits(&self) -> Option<String> {
        const MB: f64 = (1 << 20) as f64;
        let limit = self.limit();
        (limit != UNLIMITED).then(|| {
            format!(
                "memory is limited to {:.0} MB: {:.1} MB are kept at first",
                limit as f64 / MB,
                self.allowance.allowed(0) as f64 / MB
            )
        })
    }

    /// Drops pages of ours that nobody has, on the monitor's thread, with the lock held. Returns
    /// whether they are gone: not where most of them have no memory, because they are registered
    /// and missing.
    ///
    /// The kernel has whoever drops registered pages wait for the monitor, and so would have it
    /// wait for itself. The books alone do not tell: where the kernel refused to end a
    /// registration, it is out of the books all the same. So exactly these pages are unregistered
    /// before, and nobody registers any without the lock.
    fn drop_nobodys(&self, span: Span, books: &mut Books) -> bool {
        if self.perhaps_excluded(span) {
            return false;
        }
        if books.tracks(span) {
            if mostly_missing(&books.unmapped_in(span), span) {
                return false;
            }
            books.untrack(span);
        }
        let plain = !books.tracks(span)
            && books.memory.fds.as_ref().is_some_and(|fds| fds.program.unregister(span).is_ok());
        // SAFETY: the caller's promise: pages of ours that nobody has.
        plain && unsafe { mapping::empty(span) }
    }

    /// Whether most of `span`, which nobody has, is missing as it is.
    pub fn mostly_missing(&'static self, span: Span) -> bool {
        self.serving()
            && self
                .with_after_fork(|books| mostly_missing(&books.unmapped_in(span), span))
                .unwrap_or(false)
    }

    /// Whether nothing of `span` is registered or excluded.
    pub fn surely_plain(&self, span: Span) -> bool {
        !self.filter.perhaps_tracked(span.start, span.len()) && !self.perhaps_excluded(span)
    }

    /// See [`uncopy_monitor::serve::Server::tend`].
    pub(crate) fn tend_idle(&self, own: &mut Option<Fds>, sources: &mut Sources) -> u64 {
        let c = self.counters();
        let (now, seconds) = (clock::millis(), clock::seconds());
        if now >= sources.due {
            // (So long, if there is something to give back all the time.)
            sources.due = now + SOON;
            sources.times = TIMES;
            self.apply(sources.look(now));
            self.allowance.look(seconds, holding(c).promised);
        }
        let gave = sources.times > 0 && self.give_back_part(seconds, own);
        let holding = holding(c);
        c.memory_allowed_bytes.store(self.allowance.allowed(holding.promised), Relaxed);
        c.memory_held_bytes.store(holding.beyond(), Relaxed);
        if gave {
            // (Faults are answered first.)
            sources.times -= 1;
            return 0;
        }
        let done = c.twin_blocks.load(Relaxed).wrapping_add(self.copied.load(Relaxed));
        let busy = core::mem::replace(&mut sources.done, done) != done;
        let holds = holding.beyond() > LITTLE;
        let wait = match sources.headroom {
            Headroom::Room { .. } | Headroom::Pressed if busy || holds => SOON,
            _ if busy || holds => LATER,
            _ => SELDOM,
        };
        sources.due = now + wait;
        wait
    }

    fn apply(&self, headroom: Headroom) {
        self.limit_known.store(true, Relaxed);
        match headroom {
            Headroom::Room { limit, room } => {
                self.allowance.room(room, &holding(self.counters()));
                self.knows_limit(limit);
            }
            Headroom::NoLimit => {
                self.allowance.unlimited();
                self.knows_limit(UNLIMITED);
            }
            // (The known value holds.)
            Headroom::Nothing => {}
            Headroom::Pressed => self.allowance.pressed(),
        }
    }

    /// Gives back 2 MB or so of what lies idle, or is held beyond what may be; it is `now`, in
    /// seconds. Returns whether there was something.
    ///
    /// All of it with the lock held, and not while a fork is under way: so a child, however it is
    /// made, has no book of blocks that the monitor is just changing. (A thread that is in that
    /// book never waits for this lock.)
    fn give_back_part(&self, now: i64, own: &mut Option<Fds>) -> bool {
        let ready = &self.counters().pool_free_bytes;
        let tend = self.tend_blocks.load(Relaxed);
        let mut gave = false;
        self.locked(|books| {
            if self.gate.frozen() {
                return;
            }
            swapped(books, own, |books| {
                let before = ready.load(Relaxed);
                books.drop_idle(now);
                books.give_back();
                gave = ready.load(Relaxed) < before;
                if !gave && !tend.is_null() {
                    // SAFETY: `tended_by` put a function of this type there.
                    let tend: Tend = unsafe { core::mem::transmute(tend) };
                    gave = tend(now, &mut |span| self.drop_nobodys(span, books));
                }
            });
        });
        gave
    }

    /// See [`uncopy_monitor::serve::Server::sources`].
    pub(crate) fn open_sources(&self) -> Sources {
        let mut sources = Sources::none();
        let place = self.place();
        if let Some(place) = place {
            sources.version = place.version;
            sources.levels = levels(place, false);
        }
        // (The waiting that the outermost group of version 2 reports is the machine's, and that one
        // has no limit.)
        let own = sources.levels.first().is_some_and(|level| level.innermost);
        sources.pressure = Pressure::open(place.filter(|_| own));
        sources
    }

    /// `tend` gives back what blocks of the twin allocator have left idle, or hold beyond what may
    /// be, on the monitor's thread: see [`Tend`].
    pub fn tended_by(&self, tend: Tend) {
        self.tend_blocks.store(tend as *mut (), Relaxed);
    }

    /// Memory was given back because more was held than may be.
    pub fn gave_back(&self) {
        add(&self.counters().memory_given_back, 1);
    }
}

fn mostly_missing(missing: &[Span], span: Span) -> bool {
    missing.iter().map(|part| part.len()).sum::<usize>() > span.len() / 2
}

/// The lowest limit.
fn lowest(levels: &[Level]) -> u64 {
    levels.iter().map(|level| level.limit).min().unwrap_or(UNLIMITED)
}

/// The files of one group.
struct Level {
    /// Whether it is the process's own.
    innermost: bool,
    limits: ArrayVec<OwnFd, 2>,
    usage: OwnFd,
    statistics: Option<OwnFd>,
    events: Option<OwnFd>,
    /// Its limit, and what was left below it, in bytes, when that was read last.
    limit: u64,
    left: Option<u64>,
    /// How often it had come to its limit when that was looked at last.
    at_limit: u64,
}

/// A file of pressure.
struct Pressure {
    file: OwnFd,
    waiting: Waiting,
    /// Time that was waited until the last look, in us, and when that was, in ms.
    waited: u64,
    looked: u64,
}

/// The files that the monitor has open to see how much of a limit is used, and whether somebody
/// waits for memory.
pub struct Sources {
    version: Version,
    levels: Levels,
    pressure: Option<Pressure>,
    /// The result of the last look.
    headroom: Headroom,
    /// When to look again, in ms.
    due: u64,
    /// How often something may be given back until then.
    times: usize,
    /// The work that the program had done at the last look.
    done: u64,
}

type Levels = ArrayVec<Level, { cgroup::LEVELS }>;

/// The result of a look at the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Headroom {
    /// The lowest limit, and what is left below one at least, both in bytes.
    Room { limit: u64, room: u64 },
    /// There is none.
    NoLimit,
    /// There is nothing to look at.
    Nothing,
    /// Somebody waits for memory.
    Pressed,
}

impl Sources {
    fn none() -> Self {
        Self {
            version: Version::Two,
            levels: ArrayVec::new(),
            pressure: None,
            headroom: Headroom::Nothing,
            due: 0,
            times: 0,
            done: 0,
        }
    }

    /// Looks; it is `now`, in ms.
    fn look(&mut self, now: u64) -> Headroom {
        let found = room(&mut self.levels, self.version);
        let mut text = [0; TEXT];
        let mut came = false;
        for level in &mut self.levels {
            came |= level.came_to_limit(self.version, &mut text);
        }
        let short =
            came && matches!(found, Headroom::Room { limit, room } if room < limit / SHORT_SHARE);
        let waits = self.pressure.as_mut().is_some_and(|p| p.is_high(now, &mut text));
        self.headroom = if short || waits { Headroom::Pressed } else { found };
        self.headroom
    }
}

/// Opens the files of the groups; `limited`: only of those that have a limit now.
fn levels(place: &Place, limited: bool) -> Levels {
    let mut path = Vec::new();
    let level = |(i, directory): (usize, &Vec<u8>)| {
        let mut file = |name: &str| {
            path.clear();
            path.extend_from_slice(directory);
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
            procfs::open(&path)
        };
        let files = place.version.limits().iter().copied();
        let limits: ArrayVec<OwnFd, 2> = files.filter_map(&mut file).collect();
        let mut level = Level {
            innermost: i == 0,
            usage: file(place.version.usage()).filter(|_| !limits.is_empty())?,
            limits,
            // (The innermost group of version 1 knows the limits of others by it.)
            statistics: file(place.version.statistics()),
            events: None,
            limit: UNLIMITED,
            left: None,
            at_limit: u64::MAX,
        };
        level.read_limit(place.version, &mut [0; TEXT]);
        if limited && level.limit == UNLIMITED {
            return None;
        }
        level.events = file(place.version.events());
        Some(level)
    };
    place.directories.iter().enumerate().filter_map(level).collect()
}

/// The bytes left below the limits.
fn room(levels: &mut [Level], version: Version) -> Headroom {
    let mut text = [0; TEXT];
    let mut found = if levels.is_empty() { Headroom::Nothing } else { Headroom::NoLimit };
    for level in levels {
        level.read_limit(version, &mut text);
        if level.limit == UNLIMITED {
            continue;
        }
        level.left = level.read_left(version, &mut text).or(level.left);
        let left = level.left.unwrap_or(level.limit);
        found = match found {
            Headroom::Room { limit, room } => {
                Headroom::Room { limit: limit.min(level.limit), room: room.min(left) }
            }
            _ => Headroom::Room { limit: level.limit, room: left },
        };
    }
    found
}

impl Level {
    /// Reads its limit. Where a file cannot be read, that is as it was.
    fn read_limit(&mut self, version: Version, text: &mut [u8; TEXT]) {
        let mut lowest = Some(UNLIMITED);
        for file in &self.limits {
            let limit = procfs::again(file, text).and_then(cgroup::limit);
            lowest = lowest.zip(limit).map(|(a, b)| a.min(b));
        }
        if let Version::One = version
            && self.innermost
            && let Some(file) = &self.statistics
        {
            let outer = procfs::again(file, text).and_then(cgroup::outer_limit);
            lowest = lowest.zip(outer).map(|(a, b)| a.min(b));
        }
        self.limit = lowest.unwrap_or(self.limit);
    }

    /// The bytes left below its limit: that less what is used and not to be had back.
    fn read_left(&self, version: Version, text: &mut [u8; TEXT]) -> Option<u64> {
        let used = cgroup::number(procfs::again(&self.usage, text)?)?;
        // (The statistics take the kernel longer.)
        if used < self.limit / 2 {
            return Some(self.limit - used);
        }
        let statistics = self.statistics.as_ref().and_then(|file| procfs::again(file, text));
        let cache = statistics.map_or(0, |text| cgroup::file_cache(version, text));
        Some(self.limit.saturating_sub(used.saturating_sub(cache)))
    }

    /// Whether the group came to its limit since that was asked last.
    fn came_to_limit(&mut self, version: Version, text: &mut [u8; TEXT]) -> bool {
        let events = self.events.as_ref().and_then(|file| procfs::again(file, text));
        let Some(times) = events.map(|text| cgroup::times_at_limit(version, text)) else {
            return false;
        };
        times > core::mem::replace(&mut self.at_limit, times)
    }
}

impl Pressure {
    /// That of the innermost group of `place`, or of the machine.
    fn open(place: Option<&Place>) -> Option<Self> {
        let own = place.and_then(|place| {
            let directory = place.directories.first()?;
            procfs::open(&[directory, &b"/memory.pressure"[..]].concat())
        });
        let (file, waiting) = match own {
            Some(file) => (file, Waiting::Some),
            // (There somebody always waits, in a group of his own.)
            None => (procfs::open(b"/proc/pressure/memory")?, Waiting::All),
        };
        Some(Self { file, waiting, waited: u64::MAX, looked: 0 })
    }

    /// Whether much of the time since that was asked last went in waiting; it is `now`, in ms.
    fn is_high(&mut self, now: u64, text: &mut [u8; TEXT]) -> bool {
        let text = procfs::again(&self.file, text);
        let Some(waited) = text.and_then(|text| cgroup::waited(self.waiting, text)) else {
            return false;
        };
        let passed = now.saturating_sub(core::mem::replace(&mut self.looked, now));
        let more = waited.saturating_sub(core::mem::replace(&mut self.waited, waited));
        more * WAITED_SHARE > passed * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const MB: u64 = 1 << 20;

    /// Directories as groups have them, the outer one first; gone at the end.
    struct Groups(PathBuf);

    impl Groups {
        fn new(name: &str) -> Self {
            let at = std::env::temp_dir().join(format!("uncopy-{name}-{}", std::process::id()));
            fs::create_dir_all(at.join("in")).unwrap();
            Self(at)
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.0.join(file), text).unwrap();
        }

        fn place(&self, version: Version) -> Place {
            let bytes = |path: PathBuf| path.into_os_string().into_encoded_bytes();
            let directories = vec![bytes(self.0.join("in")), bytes(self.0.clone())];
            Place { version, directories }
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn found(limit: u64, room: u64) -> Headroom {
        Headroom::Room { limit: limit * MB, room: room * MB }
    }

    #[test]
    fn a_limit_that_an_outer_group_gets_later_counts_and_one_that_cannot_be_read_stays() {
        let groups = Groups::new("outer-limit");
        for group in ["", "in/"] {
            groups.write(&format!("{group}memory.max"), "max\n");
            groups.write(&format!("{group}memory.high"), "max\n");
            groups.write(&format!("{group}memory.current"), "10485760\n");
        }
        let place = groups.place(Version::Two);
        assert!(levels(&place, true).is_empty());
        let mut all = levels(&place, false);
        assert_eq!(room(&mut all, Version::Two), Headroom::NoLimit);
        groups.write("memory.high", "33554432\n");
        assert_eq!(room(&mut all, Version::Two), found(32, 22));
        for unreadable in ["memory.high", "memory.max", "memory.current"] {
            groups.write(unreadable, "");
            assert_eq!(room(&mut all, Version::Two), found(32, 22), "{unreadable}");
        }
        groups.write("in/memory.max", "0\n");
        assert_eq!(room(&mut all, Version::Two), found(0, 0), "nothing is a limit");
    }

    #[test]
    fn a_limit_of_a_group_that_cannot_be_seen_is_that_of_the_own_statistics() {
        let groups = Groups::new("unseen-limit");
        groups.write("in/memory.limit_in_bytes", "9223372036854771712\n");
        groups.write("in/memory.usage_in_bytes", "62914560\n");
        let statistics = |limit: &str| {
            let text = format!("hierarchical_memory_limit {limit}\ntotal_inactive_file 10485760\n");
            groups.write("in/memory.stat", &text);
        };
        statistics("67108864");
        let mut all = levels(&groups.place(Version::One), true);
        assert_eq!((all.len(), lowest(&all)), (1, 64 * MB));
        assert_eq!(room(&mut all, Version::One), found(64, 14));
        groups.write("in/memory.stat", "");
        let Headroom::Room { limit, .. } = room(&mut all, Version::One) else { panic!() };
        assert_eq!(limit, 64 * MB);
        statistics("9223372036854771712");
        assert_eq!(room(&mut all, Version::One), Headroom::NoLimit);
    }
}
