//! Events in, steps out: what each call, and each thing that happens, means for a file.
//!
//! A job has a *goal*: what must hold before the call is made or answered. `Job::step` compares it
//! with the inode and says what comes next; so all jobs do things in one order.
//!
//! | event | of a held file |
//! | --- | --- |
//! | write at the end | to memory |
//! | write elsewhere; read, mapping, sendfile of it | home, `HOME`, plain |
//! | truncate, fallocate, clone, splice | home, `HOME`, plain |
//! | sync of few bytes | log |
//! | other syncs | home, the file's own sync, part of a block to the log |
//! | first sync; after failure | home, the file's own sync, `HOME` |
//! | rename | home; `NAME` |
//! | last unlink | what is unsynced is never written |
//! | sync of everything | home |
//! | the library is not there | home, `HOME`, plain for good |
//! | opened elsewhere, closed, died | home, `HOME`, plain |
//!
//! "`HOME`" means: if there are live records, the file's own sync, and then that record.

use crate::inode::{Health, Inode, Live, State, block_down};
use crate::timing::SyncBy;
use crate::{HELD_AGE, LIVE_AGE, RETRY_MAX};
use uncopy_log_record::Range;

/// An error's number, as in errno.h.
pub type Errno = i32;

/// The error that a sync says for good once bytes are lost.
const EIO: Errno = 5;

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// To the end: O_APPEND, or the position is there.
    End,
    /// The write goes to this offset.
    Offset(u64),
}

/// A call of a program, or an event of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// write, writev, pwrite, pwritev.
    Write {
        /// Where.
        at: At,
        /// So many bytes.
        length: u64,
    },
    /// read, a private mapping, sendfile from it.
    Read,
    /// fsync, or fdatasync; also what a write with O_SYNC, O_DSYNC, RWF_DSYNC asks for.
    Sync {
        /// fdatasync: nothing but the bytes, and what is needed to find them.
        data_only: bool,
    },
    /// Its name is about to change.
    Rename,
    /// A name of it is about to go.
    Unlink {
        /// The last one.
        last: bool,
    },
    /// ftruncate, fallocate, clone, splice into it.
    Truncate,
    /// Mode, owner, times, attributes, a further name.
    Change,
    /// A mapping by which it can be written unseen is about to be made.
    MapShared,
    /// Such a mapping is gone.
    Unmap,
    /// sync, syncfs.
    SyncAll,
    /// It is about to get into the hands of a process without the library, by exec or a message.
    HandOver,
    /// The lease was broken: somebody waits in open, or truncates.
    OpenedElsewhere,
    /// The last descriptor was closed; or all that had it died.
    Close,
    /// A second has passed, or [`Inode::due`] says so.
    Tick,
    /// The log is full, and this inode has the oldest live record.
    MakeRoom,
}

/// The next thing to do. Then [`Inode::next`] is told what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Copy the write's bytes to the memory for this offset. ([`Outcome::Done`] publishes them.)
    Hold {
        /// Where in the file.
        offset: u64,
        /// So many bytes.
        length: u64,
    },
    /// fallocate up to there, with FALLOC_FL_KEEP_SIZE.
    Reserve {
        /// So many bytes the file must have room for.
        to: u64,
    },
    /// Write held bytes to the file. Whole blocks from the block of `from` on can go directly.
    Home {
        /// The first byte that is not there.
        from: u64,
        /// Up to there.
        to: u64,
    },
    /// Read [`Inode::range`] from the file and write it there again, by write, at once: a sync of
    /// it failed, and the kernel takes for clean what it could not write. It still has it.
    Rewrite,
    /// The file's own fsync, or fdatasync.
    SyncFile {
        /// fdatasync suffices.
        data_only: bool,
    },
    /// Make `DATA` with [`Inode::range`], from memory, durable in the log, with `NAME` where the
    /// segment lacks it. [`Inode::entering`] comes before that.
    Log {
        /// Behind it, in the same flush, `HOME` up to the sequence before the first of it.
        home: bool,
    },
    /// Make `HOME` durable in the log, up to the sequence before its own.
    LogHome,
    /// Make `NAME` durable in the log.
    LogName,
    /// Give the lease up.
    GiveUpLease,
    /// Make the program's call as it is.
    Call,
    /// All is done.
    Answer(Answer),
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done, all of it.
    Done,
    /// It failed, with this error. A flush that finds no room in the log has failed (ENOSPC).
    Failed(Errno),
}

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success. Of a write: all its bytes.
    Done,
    /// The result of the call itself.
    AsCalled,
    /// An error.
    Failed(Errno),
    /// A lease may be tried: then [`Inode::granted`] or [`Inode::refused`].
    TryLease,
}

/// How much of what is held has to be home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Homeward {
    #[default]
    Nothing,
    /// Its whole blocks.
    Blocks,
    All,
}

/// The lease's fate in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lease {
    #[default]
    Kept,
    /// Given up, and tried again later.
    GivenUp,
    /// Given up for good.
    ForGood,
}

/// The conditions that must hold before the call is made, or answered, in the order in which they
/// are brought about.
#[derive(Clone, Copy, Debug, Default)]
struct Goal {
    home: Homeward,
    /// The file's own sync; fdatasync suffices if this says true.
    sync: Option<bool>,
    /// `DATA` of what is pending.
    log: bool,
    /// No live records.
    none_live: bool,
    lease: Lease,
    /// Held bytes go to memory.
    hold: bool,
    /// The program's call is made.
    call: bool,
    /// `NAME` afterwards, if there are live records.
    name: bool,
    /// It is plain, and a lease may be tried.
    try_lease: bool,
}

/// Something that is being done with one inode.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    event: Event,
    goal: Goal,
    began: u64,
    /// End of the file when the job began: what comes later is not its business.
    to: u64,
    last: Option<Step>,
    /// A sync, made in this way.
    way: Option<SyncBy>,
    /// It cost more than such a sync: it had to end live records.
    dear: bool,
    /// Steps that this job has done.
    did: Did,
    answer: Answer,
}

/// Steps that a job has done, and that are done once.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    sync: bool,
    log: bool,
    /// No record that was live when the job began is live any more.
    home: bool,
    lease: bool,
    hold: bool,
    call: bool,
    name: bool,
    /// Room was refused; now for no more than is needed.
    refused: bool,
}

impl Inode {
    /// Begins a job for what happens now.
    pub fn begin(&mut self, event: Event, now: u64) -> Job {
        if self.unsure {
            self.sync_failed();
        }
        let mut job = Job {
            event,
            goal: Goal::default(),
            began: now,
            to: self.end,
            last: None,
            way: None,
            dear: false,
            did: Did::default(),
            answer: Answer::Done,
        };
        job.goal = self.goal(&mut job, event, now);
        if job.goal.lease != Lease::Kept {
            // From now on nobody appends beside it.
            self.state = if self.state == State::Plain { State::Plain } else { State::Leaving };
        }
        job
    }

    /// Tells what came of the last step (of none: [`Outcome::Done`]), and says what comes next.
    pub fn next(&mut self, job: &mut Job, outcome: Outcome, now: u64) -> Step {
        if let Some(last) = job.last.take() {
            match outcome {
                Outcome::Failed(errno) => job.failed(self, last, errno, now),
                Outcome::Done => job.done(self, last, now),
            }
        }
        let step = job.step(self);
        match step {
            Step::Log { .. } => {
                self.taken = Range { offset: self.logged, length: job.to - self.logged };
                self.entered = None;
            }
            Step::SyncFile { .. } => self.unsure = true,
            // (From memory goes home again what is there.)
            Step::Rewrite => {
                let length = self.kept.saturating_sub(self.durable);
                self.taken = Range { offset: self.durable, length };
            }
            Step::Call => self.is_called(job.event),
            Step::Answer(answer) => job.finish(self, answer, now),
            _ => {}
        }
        job.last = Some(step);
        step
    }

    /// The program's call is made now: what later syncs must know of it, if it dies over it too.
    fn is_called(&mut self, event: Event) {
        match event {
            Event::Change => self.changed = true,
            Event::Unlink { last: true } => self.unlinked = true,
            Event::MapShared => self.mapped += 1,
            Event::Unmap => self.mapped = self.mapped.saturating_sub(1),
            _ => {}
        }
    }

    fn goal(&mut self, job: &mut Job, event: Event, now: u64) -> Goal {
        let all = Goal { home: Homeward::All, ..Goal::default() };
        let call = Goal { call: true, ..Goal::default() };
        let leave = Goal { none_live: true, lease: Lease::GivenUp, ..all };
        match event {
            Event::Tick => self.tick(now),
            _ if self.state == State::Plain => match event {
                Event::OpenedElsewhere | Event::Close | Event::MakeRoom => Goal::default(),
                Event::HandOver => {
                    self.barred = true;
                    call
                }
                _ => call,
            },
            // It has to get there first; then it is plain.
            _ if self.state == State::Leaving => match event {
                Event::OpenedElsewhere | Event::Close | Event::MakeRoom => leave,
                Event::HandOver => Goal { lease: Lease::ForGood, call: true, ..leave },
                _ => Goal { call: true, ..leave },
            },
            Event::Write { at, length } => {
                let at_end = at == At::End || at == At::Offset(self.end);
                if at_end && length > 0 && length <= self.limits.held / 2 {
                    Goal { hold: true, ..Goal::default() }
                } else {
                    Goal { call: true, ..leave }
                }
            }
            // (A replay behind a truncation that became durable would leave a hole of zeros.)
            Event::Read | Event::Truncate | Event::MapShared => Goal { call: true, ..leave },
            Event::Sync { data_only } => self.sync(job, data_only),
            Event::Rename => Goal { name: true, call: true, ..all },
            Event::SyncAll => Goal { call: true, ..all },
            Event::HandOver => Goal { lease: Lease::ForGood, call: true, ..leave },
            // Of a file without a name and without live records nobody will ask for the rest.
            Event::Close if self.unlinked && self.live.is_none() => {
                Goal { home: Homeward::Nothing, ..leave }
            }
            Event::OpenedElsewhere | Event::Close => leave,
            Event::MakeRoom => Goal { none_live: true, ..all },
            Event::Unlink { .. } | Event::Change | Event::Unmap => call,
        }
    }

    fn tick(&mut self, now: u64) -> Goal {
        let all = Goal { home: Homeward::All, ..Goal::default() };
        let passed = |since: u64, age: u64| now.saturating_sub(since) >= age;
        if self.state == State::Leaving {
            return Goal { none_live: true, lease: Lease::GivenUp, ..all };
        }
        if self.live.is_some_and(|live| passed(live.since, LIVE_AGE)) {
            return Goal { none_live: true, ..all };
        }
        if self.loses() {
            self.pause = RETRY_MAX;
            return Goal { none_live: true, lease: Lease::GivenUp, ..all };
        }
        if self.goes_home() && self.unsynced.is_some_and(|since| passed(since, HELD_AGE)) {
            return all;
        }
        if self.goes_home() && block_down(self.end).saturating_sub(self.homed) >= self.limits.home {
            return Goal { home: Homeward::Blocks, ..Goal::default() };
        }
        Goal { try_lease: self.lease_due(now), ..Goal::default() }
    }

    /// How a sync of a held file is made.
    fn sync(&mut self, job: &mut Job, data_only: bool) -> Goal {
        let own = Goal { home: Homeward::All, none_live: true, ..Goal::default() };
        if self.fresh || self.failed() || (self.changed && !data_only) {
            // (A new file's name: what only fsync is sure to bring.)
            job.dear = true;
            return Goal { sync: Some(data_only && !self.fresh), ..own };
        }
        let pending = self.pending();
        if pending == 0 {
            // Nothing was written. The kernel knows what else fsync brings.
            return if data_only { Goal::default() } else { Goal { sync: Some(false), ..own } };
        }
        let way = self.timing.way();
        // (Bytes that have left the memory are at home already, and can't go to the log.)
        let few = pending <= self.limits.log && self.kept <= self.logged;
        job.way = Some(way).filter(|_| few);
        job.dear = self.live.is_some();
        match way {
            SyncBy::Log if few => Goal { log: true, ..Goal::default() },
            // Many bytes go home; the part of a block behind them to the log.
            SyncBy::Log => Goal {
                home: Homeward::Blocks,
                sync: Some(data_only),
                log: true,
                none_live: true,
                ..Goal::default()
            },
            SyncBy::Plain => Goal { sync: Some(data_only), ..own },
        }
    }
}

impl Job {
    /// The next step: the first thing that the goal asks for and that does not hold.
    fn step(&mut self, inode: &mut Inode) -> Step {
        let Job { goal, did, .. } = *self;
        // Bytes that the kernel forgot are written again, before it has them no more.
        if inode.forgotten {
            return Step::Rewrite;
        }
        if let Answer::Failed(_) = self.answer {
            return Step::Answer(self.answer);
        }
        // Home. A file that leaves does not leave before all is there.
        let leaves = inode.state == State::Leaving;
        let to = match goal.home {
            Homeward::Nothing => 0,
            Homeward::Blocks => block_down(self.to),
            Homeward::All if leaves => inode.end,
            Homeward::All => self.to,
        };
        if inode.state != State::Plain && inode.homed < to {
            return Step::Home { from: inode.homed, to };
        }
        // The file's own sync: asked for, or because `HOME` never comes before it.
        let none_live = goal.none_live && inode.live.is_some() && !did.home;
        if (goal.sync.is_some() || none_live) && !did.sync {
            return Step::SyncFile { data_only: goal.sync.unwrap_or(true) };
        }
        // The log.
        if goal.log && !did.log && inode.logged < self.to {
            return Step::Log { home: none_live };
        }
        if none_live {
            return Step::LogHome;
        }
        if inode.health == Health::Lost && goal.sync.is_some() {
            return Step::Answer(Answer::Failed(EIO));
        }
        // Rule 2: the lease goes when nothing is live.
        if goal.lease != Lease::Kept && inode.state != State::Plain {
            return Step::GiveUpLease;
        }
        if goal.hold && !did.hold {
            return self.hold(inode);
        }
        if goal.call && !did.call {
            return Step::Call;
        }
        if goal.name && !did.name && inode.live.is_some() {
            return Step::LogName;
        }
        Step::Answer(match self.answer {
            Answer::Done if goal.try_lease => Answer::TryLease,
            answer => answer,
        })
    }

    /// The step that an append needs, and then itself.
    fn hold(&mut self, inode: &mut Inode) -> Step {
        let Event::Write { length, .. } = self.event else { return Step::Answer(self.answer) };
        let offset = inode.end;
        let end = offset.saturating_add(length);
        if end - inode.kept > inode.limits.held {
            // Bytes that are at home leave the memory, though they were never synced: as pages of
            // the kernel's that were written back.
            if block_down(inode.homed) == inode.kept {
                return Step::Home { from: inode.homed, to: offset };
            }
            inode.kept = block_down(inode.homed);
            if end - inode.kept > inode.limits.held {
                return Step::Home { from: inode.homed, to: offset };
            }
        }
        if end > inode.reserved {
            let ahead = if self.did.refused { 0 } else { inode.limits.ahead };
            return Step::Reserve { to: end.saturating_add(ahead) };
        }
        Step::Hold { offset, length }
    }

    /// A step was done: what it means for the inode.
    fn done(&mut self, inode: &mut Inode, step: Step, now: u64) {
        let did = &mut self.did;
        match step {
            Step::Hold { length, .. } => {
                did.hold = true;
                inode.appended(length, now);
            }
            Step::Reserve { to } => inode.reserved = to,
            Step::Home { to, .. } => {
                inode.homed = inode.homed.max(to);
                inode.unsynced = (inode.homed < inode.end).then_some(now);
            }
            Step::Rewrite => inode.forgotten = false,
            Step::SyncFile { data_only } => {
                did.sync = true;
                inode.unsure = false;
                inode.fresh = false;
                inode.changed &= data_only;
                inode.durable = inode.homed;
                inode.logged = inode.logged.max(inode.durable);
                inode.kept = inode.kept.max(block_down(inode.durable));
            }
            Step::Log { home } => {
                did.log = true;
                inode.logged = self.to;
                // (Records that were live before are dead now, or there were none.)
                did.home = true;
                if home {
                    inode.live = inode.entered.map(|segment| Live { segment, since: now });
                }
            }
            Step::LogHome => {
                did.home = true;
                inode.live = None;
            }
            Step::LogName => did.name = true,
            Step::GiveUpLease => self.given_up(inode, now),
            Step::Call => {
                did.call = true;
                self.answer = Answer::AsCalled;
            }
            Step::Answer(_) => {}
        }
    }

    /// A step failed: what it means for the inode, and how the job goes on.
    fn failed(&mut self, inode: &mut Inode, step: Step, errno: Errno, now: u64) {
        match step {
            Step::Reserve { .. } if !self.did.refused => self.did.refused = true,
            // The write itself shall say what is wrong, if it is.
            Step::Reserve { .. } => {
                inode.state = State::Leaving;
                let (home, lease) = (Homeward::All, Lease::GivenUp);
                self.goal = Goal { home, lease, none_live: true, call: true, ..Goal::default() };
            }
            // The log does not take it: so the file itself. Records that the flush left may be
            // there.
            Step::Log { .. } => {
                self.way = None;
                self.did.sync = false;
                let (home, sync) = (Homeward::All, Some(true));
                self.goal = Goal { home, sync, none_live: true, log: false, ..self.goal };
            }
            // (The handle finds the file; the path is for people.)
            Step::LogName => {
                self.did.name = true;
                inode.named = None;
            }
            // The kernel took it already.
            Step::GiveUpLease => self.given_up(inode, now),
            Step::Call => {
                self.did.call = true;
                self.answer = Answer::AsCalled;
                if self.event == Event::MapShared {
                    inode.mapped = inode.mapped.saturating_sub(1);
                }
            }
            Step::SyncFile { .. } => {
                inode.sync_failed();
                self.answer = Answer::Failed(errno);
            }
            Step::Rewrite => {
                inode.forgotten = false;
                inode.health = Health::Lost;
                self.answer = Answer::Failed(errno);
            }
            Step::Home { .. } | Step::LogHome => {
                inode.ail();
                self.answer = Answer::Failed(errno);
            }
            Step::Hold { .. } | Step::Answer(_) => self.answer = Answer::Failed(errno),
        }
    }

    fn given_up(&mut self, inode: &mut Inode, now: u64) {
        self.did.lease = true;
        let Inode { limits, end, mapped, pause, timing, unlinked, .. } = *inode;
        let barred = inode.barred || self.goal.lease == Lease::ForGood;
        *inode = Inode { limits, end, mapped, pause, timing, unlinked, barred, ..Inode::default() };
        inode.rest(now);
    }

    fn finish(&mut self, inode: &mut Inode, answer: Answer, now: u64) {
        if answer != Answer::Done {
            return;
        }
        if self.did.sync && inode.live.is_none() && inode.health == Health::Failed {
            // Written again, and synced.
            inode.health = Health::Well;
        }
        if let Some(way) = self.way {
            let counts = way == SyncBy::Log || !self.dear;
            inode.timing.took(way, now.saturating_sub(self.began), counts);
        }
    }
}
