//! The part of a log that is brought to its files, and the part that is refused.
//!
//! In the boot in which it was written, memory has all that is held, and the kernel has newer bytes
//! than the log: each inode's entry gets [`Event::Close`](crate::Event::Close), and nothing is
//! replayed. In another boot only the disk is left: that is what this module is for.
//!
//! [`Recovery`] says what is to be done, in the one order in which it may be interrupted anywhere
//! and begun again:
//!
//! 1. Every file is looked at, before anything is written.
//! 2. Refused bytes are saved, durably, under a name that says which log, epoch and index they are
//!    of. A recovery that begins again finds them, and refuses again.
//! 3. A heartbeat: what recovery writes is no stranger's change, even if it has to begin again.
//! 4. The others are replayed and synced.
//! 5. The next epoch begins.

use std::fmt;
use uncopy_log_record::superblock::GRACE;
use uncopy_log_record::{Body, End, Gap, Here, Name, Origin, Scan, ScanItem, Superblock, Unusable};

/// Which file an index means: as [`Name`] says, kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Generation.
    pub generation: u64,
    /// Kind of the handle.
    pub handle_kind: i32,
    /// Handle.
    pub handle: Vec<u8>,
    /// Path.
    pub path: Vec<u8>,
}

impl From<Name<'_>> for Owner {
    fn from(name: Name<'_>) -> Owner {
        let Name { device, inode, generation, handle_kind, handle, path } = name;
        let (handle, path) = (handle.to_vec(), path.to_vec());
        Owner { device, inode, generation, handle_kind, handle, path }
    }
}

impl Owner {
    fn is(&self, name: &Name<'_>) -> bool {
        self.device == name.device && self.inode == name.inode && self.generation == name.generation
    }
}

/// Bytes that are to be in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Sequence of its record.
    pub sequence: u64,
    /// Where in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A file with live records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// Index of its entry.
    pub index: u32,
    /// Which file it is; `None` if the log does not say.
    pub owner: Option<Owner>,
    /// Its live bytes, in the order in which they are to be written.
    pub pieces: Vec<Piece<'a>>,
    /// It is at least so long afterwards, in bytes.
    pub size: u64,
}

/// The work that a log asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// Files with live records.
    pub files: Vec<File<'a>>,
    /// Damage.
    pub gaps: Vec<Gap>,
    /// Where the log ends.
    pub end: End,
    /// Records that were read.
    pub records: u64,
}

impl<'a> Plan<'a> {
    /// Reads all of a log file.
    ///
    /// # Errors
    /// The file is shorter than the log.
    pub fn new(superblock: &Superblock, file: &'a [u8]) -> Result<Plan<'a>, Unusable> {
        let mut scan = Scan::new(&superblock.log(), file)?;
        let (mut files, mut gaps, mut records) = (Vec::<File<'a>>::new(), Vec::new(), 0);
        for found in scan.by_ref() {
            let record = match found {
                ScanItem::Gap(gap) => {
                    gaps.push(gap);
                    continue;
                }
                ScanItem::Record(record) => record,
            };
            records += 1;
            let index = record.index;
            let last = files.iter_mut().rfind(|file| file.index == index);
            match record.body {
                Body::Name(name) => match last {
                    Some(file) if file.owner.as_ref().is_none_or(|owner| owner.is(&name)) => {
                        file.owner = Some(name.into());
                    }
                    _ => {
                        let owner = Some(name.into());
                        files.push(File { index, owner, pieces: Vec::new(), size: 0 });
                    }
                },
                Body::Data(data) => {
                    if last.is_none() {
                        files.push(File { index, owner: None, pieces: Vec::new(), size: 0 });
                    }
                    let Some(file) = files.iter_mut().rfind(|file| file.index == index) else {
                        continue;
                    };
                    let sequence = record.sequence;
                    file.pieces.extend(data.pieces().map(|(offset, bytes)| Piece {
                        sequence,
                        offset,
                        bytes,
                    }));
                    file.size = file.size.max(record.size);
                }
                Body::Home { upto } => {
                    for file in files.iter_mut().filter(|file| file.index == index) {
                        file.pieces.retain(|piece| piece.sequence > upto);
                        if file.pieces.is_empty() {
                            file.size = 0;
                        }
                    }
                }
            }
        }
        files.retain(|file| !file.pieces.is_empty());
        let fallback = End { offset: 0, sequence: 0, why: uncopy_log_record::Why::Nothing };
        Ok(Plan { files, gaps, end: scan.end().unwrap_or(fallback), records })
    }
}

/// The state of a file that has live records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// No file has this handle; or at this path is none, or one with another inode or generation.
    Gone,
    /// It is there.
    There {
        /// Its mtime, in ns since 1970.
        modified: u64,
    },
    /// Whether it is there can't be said: an error other than "no such file".
    Unknown,
    /// An earlier attempt refused it; its bytes were saved.
    Saved,
}

/// The fate of a file's live bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are written to it.
    Replay,
    /// The file is gone, and its bytes with it.
    Gone,
    /// They are saved, and the file stays as it is.
    Refuse(Refusal),
}

/// Why live bytes are not brought to their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The log is damaged: what is missing may have said that these bytes are old.
    Damaged,
    /// The log does not say which file they are of.
    Nameless,
    /// The file changed after all that had a lease for it were gone.
    Changed {
        /// Its mtime, in ns since 1970.
        modified: u64,
        /// The latest that uncopy can have caused.
        limit: u64,
    },
    /// It can't be opened.
    Unknown,
    /// An earlier attempt refused it.
    Before,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Damaged => f.write_str("the log is damaged, so these bytes may be outdated"),
            Refusal::Nameless => f.write_str("the log does not say which file they are of"),
            Refusal::Changed { modified, limit } => write!(
                f,
                "the file was changed without uncopy, {} ms after uncopy can have done so",
                modified.saturating_sub(*limit) / 1_000_000
            ),
            Refusal::Unknown => f.write_str("the file can't be opened"),
            Refusal::Before => f.write_str("an earlier attempt refused them"),
        }
    }
}

/// Why a log is not recovered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its superblock or its length.
    Unusable(Unusable),
    /// It was copied here from another file system.
    OtherFileSystem,
    /// It is another host's, which may be using it.
    OtherHost,
    /// It was written in this boot: what memory has is newer.
    ThisBoot,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unusable(why) => why.fmt(f),
            Refused::OtherFileSystem => {
                f.write_str("the log was copied here from another file system: its files are there")
            }
            Refused::OtherHost => f.write_str(
                "the log is another host's: recover it there, or make sure that it is off",
            ),
            Refused::ThisBoot => f.write_str("the log is of this boot: memory has what is newer"),
        }
    }
}

impl std::error::Error for Refused {}

/// The next task of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Look at the file with this number in the plan: [`Recovery::looked`].
    Look(usize),
    /// Save its bytes, durably, for this reason.
    Save(usize, Refusal),
    /// Write this superblock, durably.
    Write(Superblock),
    /// Write its pieces to it, in order; if it is shorter than its size then, extend it.
    Replay(usize),
    /// Its own fsync.
    Sync(usize),
    /// All is done.
    Done,
}

/// Recovery of a log of another boot: a task at a time. One that fails ends it; then it is begun
/// again from the start.
#[derive(Clone, Debug)]
pub struct Recovery {
    superblock: Superblock,
    here: Here,
    limit: u64,
    now: u64,
    damaged: bool,
    nameless: Vec<bool>,
    verdicts: Vec<Verdict>,
    at: (u8, usize),
}

impl Recovery {
    /// Begins it, here and now (ns since 1970, as is `booted`: when this boot began).
    ///
    /// # Errors
    /// This log is not to be recovered here.
    pub fn begin(
        superblock: &Superblock,
        plan: &Plan<'_>,
        here: &Here,
        booted: u64,
        now: u64,
    ) -> Result<Recovery, Refused> {
        match superblock.origin(here) {
            Origin::EarlierBoot => {}
            // An attempt of this boot that was interrupted.
            Origin::ThisBoot if superblock.recovering => {}
            Origin::ThisBoot => return Err(Refused::ThisBoot),
            Origin::OtherHost => return Err(Refused::OtherHost),
            Origin::OtherFileSystem => return Err(Refused::OtherFileSystem),
        }
        let latest = superblock.heartbeat.saturating_add(GRACE);
        // A file that was changed in this boot was changed without us. (Unless the clock was set
        // back.)
        let limit = match superblock.boot != here.boot && booted > superblock.heartbeat {
            true => latest.min(booted),
            false => latest,
        };
        Ok(Recovery {
            superblock: *superblock,
            here: *here,
            limit,
            now,
            damaged: !plan.gaps.is_empty(),
            nameless: plan.files.iter().map(|file| file.owner.is_none()).collect(),
            verdicts: Vec::new(),
            at: (0, 0),
        })
    }

    /// The next task. The one before is done.
    pub fn task(&mut self) -> Task {
        let files = self.nameless.len();
        loop {
            let (phase, at) = self.at;
            self.at = (phase, at + 1);
            let verdict = self.verdicts.get(at).copied();
            match phase {
                0 if at < files => return Task::Look(at),
                1 if at < files => match verdict {
                    Some(Verdict::Refuse(Refusal::Before)) => {}
                    Some(Verdict::Refuse(why)) => return Task::Save(at, why),
                    _ => {}
                },
                2 if at == 0 => {
                    self.superblock = self.superblock.adopt(&self.here, self.now);
                    return Task::Write(self.superblock);
                }
                3 | 4 if at < files => {
                    if verdict == Some(Verdict::Replay) {
                        return if phase == 3 { Task::Replay(at) } else { Task::Sync(at) };
                    }
                }
                5 if at == 0 => {
                    self.superblock = self.superblock.succeed(&self.here, self.now);
                    return Task::Write(self.superblock);
                }
                0..=5 => self.at = (phase + 1, 0),
                _ => return Task::Done,
            }
        }
    }

    /// The file that was to be looked at is `found` so: returns what becomes of its bytes.
    pub fn looked(&mut self, found: OnDisk) -> Verdict {
        let at = self.verdicts.len();
        let verdict = match found {
            OnDisk::Saved => Verdict::Refuse(Refusal::Before),
            _ if self.damaged => Verdict::Refuse(Refusal::Damaged),
            _ if self.nameless.get(at) == Some(&true) => Verdict::Refuse(Refusal::Nameless),
            OnDisk::Gone => Verdict::Gone,
            OnDisk::Unknown => Verdict::Refuse(Refusal::Unknown),
            OnDisk::There { modified } if modified > self.limit => {
                Verdict::Refuse(Refusal::Changed { modified, limit: self.limit })
            }
            OnDisk::There { .. } => Verdict::Replay,
        };
        self.verdicts.push(verdict);
        verdict
    }

    /// The fate of each file.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The superblock as it is now.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
}
