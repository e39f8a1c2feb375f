//! The books of a file: what is held, what is at home, what is durable, what is logged.
//!
//! ```text
//!              kept          durable     homed        logged           end
//!  in memory    |- - - - - - - - | - - - - - | - - - - - - - | - - - - - - |
//!  in the file  |--------------------------- |
//!  durable in it|----------------|
//!  in the log                    |===========================|
//! ```
//!
//! All bytes that a sync has acknowledged are below `logged`: they are durable in the file, or in
//! live `DATA`.

use crate::timing::Timing;
use crate::{HELD_AGE, LIVE_AGE, RETRY, RETRY_MAX};
use uncopy_log_record::{BLOCK, Range};

/// How a file is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It is the kernel's business; nothing is held or live.
    #[default]
    Plain,
    /// Appends stay in memory.
    Held,
    /// It is on its way to plain; until it is there the lease is kept.
    Leaving,
}

/// How many bytes of a file are too many; in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pending: more go home at a sync, instead of to the log.
    pub log: u64,
    /// Whole blocks that are held: so many go home by themselves.
    pub home: u64,
    /// Held in memory, durable in the file or not.
    pub held: u64,
    /// Room in the file is asked for so many bytes ahead.
    pub ahead: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { log: 256 << 10, home: 1 << 20, held: 16 << 20, ahead: 4 << 20 }
    }
}

/// `DATA` that recovery would bring to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The oldest segment with such records.
    pub segment: u64,
    /// Since when, in ns.
    pub since: u64,
}

/// Whether a sync may say that all is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Well,
    /// Something could not be written. The bytes that are kept must be written again.
    Failed,
    /// The same, and not all of it is kept.
    Lost,
}

/// The book of one inode: plain data, for its entry in shared memory, under the entry's lock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inode {
    pub(crate) state: State,
    pub(crate) limits: Limits,
    pub(crate) end: u64,
    pub(crate) kept: u64,
    pub(crate) durable: u64,
    pub(crate) homed: u64,
    pub(crate) logged: u64,
    /// Room in the file was asked for up to here.
    pub(crate) reserved: u64,
    /// The bytes that the step under way is about.
    pub(crate) taken: Range,
    /// The file's own sync failed, and what it should have brought was not written again yet.
    pub(crate) forgotten: bool,
    /// The file's own sync is under way. A process that dies over it does not tell whether it
    /// failed.
    pub(crate) unsure: bool,
    pub(crate) live: Option<Live>,
    /// The oldest segment that the flush under way goes to.
    pub(crate) entered: Option<u64>,
    /// The segment that has its `NAME`.
    pub(crate) named: Option<u64>,
    pub(crate) health: Health,
    /// The next sync of any kind must be the file's own: it is new to us.
    pub(crate) fresh: bool,
    /// The next fsync must be the file's own: its mode, owner, times may have changed.
    pub(crate) changed: bool,
    pub(crate) unlinked: bool,
    pub(crate) mapped: u32,
    /// Since when something held was never synced; ns.
    pub(crate) unsynced: Option<u64>,
    /// Never to be logged again.
    pub(crate) barred: bool,
    /// When a lease is to be tried, and how long the pause before that was; ns.
    pub(crate) retry: Option<u64>,
    pub(crate) pause: u64,
    pub(crate) timing: Timing,
}

impl Inode {
    /// A file that a program opened alone: a lease may be tried at once.
    #[must_use]
    pub fn new(now: u64) -> Inode {
        Inode::with_limits(now, Limits::default())
    }

    /// The same, with other limits.
    #[must_use]
    pub fn with_limits(now: u64, limits: Limits) -> Inode {
        Inode { retry: Some(now), limits, ..Inode::default() }
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How it is treated.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Its size as the program sees it, while it is held.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How far the file has the bytes that were held: it has all below.
    #[must_use]
    pub fn homed(&self) -> u64 {
        self.homed
    }

    /// From here on the bytes must stay in memory. A multiple of [`BLOCK`].
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Its live records.
    #[must_use]
    pub fn live(&self) -> Option<Live> {
        self.live
    }

    /// The times of its syncs.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Whether the last sync failed, and none has made up for it.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.health != Health::Well
    }

    /// Bytes were lost: syncs say so for good.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.health == Health::Lost
    }

    /// The bytes that the [`Log`](crate::Step::Log) step under way makes durable, or that
    /// [`Rewrite`](crate::Step::Rewrite) is about.
    #[must_use]
    pub fn range(&self) -> Range {
        self.taken
    }

    /// The service has a lease, and the file is `size` bytes long: appends are held from now on.
    /// The part of the file that lies in memory begins at [`kept`](Self::kept); the part of a block
    /// before its end must be read into it. The pages that the kernel has of it must have been
    /// written back before: bytes that go home directly behind it make the file longer, and a crash
    /// would leave a hole where those pages are missing.
    pub fn granted(&mut self, size: u64) {
        // (What was known of it counts no more, but for its limits, how long it rests, what its
        // syncs took, and whether it has a name.)
        let Inode { limits, pause, timing, unlinked, .. } = *self;
        *self = Inode {
            state: State::Held,
            limits,
            end: size,
            kept: block_down(size),
            homed: size,
            reserved: size,
            // The bytes that the kernel has of it need not be durable; nor need its name.
            fresh: true,
            changed: true,
            unlinked,
            pause,
            timing,
            ..Inode::default()
        };
    }

    /// The lease was refused, somebody else has the file open: it is tried again later.
    pub fn refused(&mut self, now: u64) {
        self.rest(now);
    }

    /// Where an append of `length` bytes goes, if it can be held without further ado. The bytes are
    /// copied there, then [`appended`](Self::appended) publishes them.
    #[must_use]
    pub fn append(&self, length: u64) -> Option<u64> {
        let end = self.end.checked_add(length)?;
        let room = end <= self.reserved && end - self.kept <= self.limits.held;
        (self.state == State::Held && room).then_some(self.end)
    }

    /// So many bytes were appended to what is held.
    pub fn appended(&mut self, length: u64, now: u64) {
        self.end += length;
        self.unsynced.get_or_insert(now);
    }

    /// A flush with `DATA` of this inode is about to be written to `segment`. From now on such a
    /// record may be there, whatever becomes of the flush.
    pub fn entering(&mut self, segment: u64, now: u64) {
        let live = self.live.get_or_insert(Live { segment, since: now });
        live.segment = live.segment.min(segment);
        self.entered = Some(self.entered.map_or(segment, |entered| entered.min(segment)));
    }

    /// Whether a flush to `segment` must name this inode first.
    #[must_use]
    pub fn unnamed(&self, segment: u64) -> bool {
        self.named != Some(segment)
    }

    /// A flush that names it was written to `segment`, and is durable.
    pub fn named(&mut self, segment: u64) {
        self.named = Some(segment);
    }

    /// Another epoch of the log began, durably, while all that was live was durable in its file:
    /// what is done when failures leave no room for `HOME`.
    pub fn epoch_began(&mut self) {
        (self.live, self.named) = (None, None);
    }

    /// When the next [`Tick`](crate::Event::Tick) would have something to do; ns. It may be past.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let lease = self.retry.filter(|_| self.may_be_logged());
        let age = self.unsynced.filter(|_| self.goes_home()).map(|since| since + HELD_AGE);
        let live = self.live.map(|live| live.since + LIVE_AGE);
        let now = match self.state {
            State::Leaving => Some(0),
            _ if self.loses() => Some(0),
            State::Held if block_down(self.end).saturating_sub(self.homed) >= self.limits.home => {
                Some(0)
            }
            _ => None,
        };
        [lease, age, live, now].into_iter().flatten().min()
    }

    /// It is plain, and need not stay so. (Writes by a mapping are seen by nobody, and the lease is
    /// no hindrance to them.)
    fn may_be_logged(&self) -> bool {
        self.state == State::Plain && !self.barred && self.mapped == 0
    }

    /// A lease may be tried.
    pub(crate) fn lease_due(&self, now: u64) -> bool {
        self.may_be_logged() && self.retry.is_some_and(|retry| retry <= now)
    }

    /// Its syncs gain nothing by the log.
    pub(crate) fn loses(&self) -> bool {
        self.state == State::Held && self.timing.loses()
    }

    /// The file's own sync failed, or nobody knows: the kernel takes what it could not write for
    /// clean. The bytes that are kept go home again; the rest is to be written again, from what the
    /// kernel still has.
    pub(crate) fn sync_failed(&mut self) {
        self.unsure = false;
        self.homed = self.homed.min(self.durable.max(self.kept));
        let forgotten = self.kept.saturating_sub(self.durable);
        self.ail();
        if forgotten > self.limits.held {
            self.health = Health::Lost;
        } else {
            self.forgotten = forgotten > 0;
        }
    }

    /// Something could not be written.
    pub(crate) fn ail(&mut self) {
        if self.health == Health::Well {
            self.health = Health::Failed;
        }
    }

    /// Held bytes are worth bringing home. (Of a file without a name nobody will read them.)
    pub(crate) fn goes_home(&self) -> bool {
        self.state == State::Held && !self.unlinked
    }

    /// No lease for a while, each time a longer one.
    pub(crate) fn rest(&mut self, now: u64) {
        self.pause = if self.pause == 0 { RETRY } else { (self.pause * 2).min(RETRY_MAX) };
        self.retry = Some(now.saturating_add(self.pause)).filter(|_| !self.barred);
    }

    /// Held bytes that no sync has made durable.
    pub(crate) fn pending(&self) -> u64 {
        self.end - self.logged.min(self.end)
    }
}

/// The beginning of the block that `at` lies in.
pub(crate) fn block_down(at: u64) -> u64 {
    at / BLOCK as u64 * BLOCK as u64
}
