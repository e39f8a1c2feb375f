//! At a point: power is lost, in many ways; programs and service are killed. Then recovery, and the
//! oracle.

use crate::oracle::Violation;
use crate::platter::{Fate, LOG};
use crate::promises::Promises;
use crate::world::{Interleaving, Mutation, Probe, Saved, World};
use uncopy_log_book::recovery::{OnDisk, Recovery, Refusal, Task};
use uncopy_log_book::{Event, Plan, Verdict};
use uncopy_log_record::{BLOCK, Gap, HEAD, Superblock};

/// The crashes that are tried in each point of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thoroughness {
    /// Every way to lose power, interrupted recoveries, strangers, kills.
    All,
    /// So many in a million points, in one way each; for long scripts.
    Some(u32),
}

/// Crashes a world at its points, and keeps what the oracle says.
#[derive(Debug)]
pub struct Crashes {
    /// The faults that were found.
    pub wrong: Vec<String>,
    /// Points that were looked at.
    pub points: u64,
    /// Crashes that were recovered from and judged.
    pub crashes: u64,
    /// Of these, those after which something was replayed.
    pub replayed: u64,
    thoroughness: Thoroughness,
    rng: fastrand::Rng,
    /// The script of the run, for the report.
    script: String,
}

/// Nobody looks.
struct Nobody;

impl Probe for Nobody {
    fn point(&mut self, _: &World) {}
    fn wrong(&mut self, _: String) {}
}

impl Crashes {
    /// None yet.
    pub fn new(thoroughness: Thoroughness, seed: u64) -> Crashes {
        Crashes {
            wrong: Vec::new(),
            points: 0,
            crashes: 0,
            replayed: 0,
            thoroughness,
            rng: fastrand::Rng::with_seed(seed),
            script: String::new(),
        }
    }

    /// The acts that follow are done by this script.
    pub fn script(&mut self, script: String) {
        self.script = script;
    }

    fn judge(&mut self, what: &str, result: Result<(), Violation>) {
        if let Err(why) = result
            && self.wrong.len() < 20
        {
            self.wrong.push(format!("{}: {what}: {why}", self.script));
            if std::env::var_os("LOG_SIM_TRACE").is_some() {
                eprintln!("wrong: {what}: {why}");
            }
        }
    }

    /// Power is lost so; a stranger may come before recovery; recovery may be interrupted.
    fn power(
        &mut self,
        world: &World,
        fate: &Fate,
        committed: usize,
        stranger: bool,
        interrupted: Option<usize>,
    ) -> Option<World> {
        self.crashes += 1;
        let what = || {
            let stranger = if stranger { ", a stranger" } else { "" };
            format!("power lost ({fate:?}, {committed} of the journal{stranger}, {interrupted:?})")
        };
        let mut after = world.clone();
        after.lose_power(fate, committed);
        let mut theirs = Vec::new();
        if stranger {
            for file in 0..after.histories.len() {
                theirs.push(after.visit(file));
            }
        }
        if let Some(tasks) = interrupted {
            match after.recover(Some(tasks)) {
                // It was through before that.
                Ok(Recovered { through: true, .. }) => return None,
                Ok(_) => {}
                Err(why) => self.judge(&what(), Err(why)),
            }
            let all = after.files.uncommitted();
            after.lose_power(&Fate::Alternate(tasks), all / 2);
        }
        let recovered = match after.recover(None) {
            Ok(recovered) => recovered,
            Err(why) => {
                self.judge(&what(), Err(why));
                return None;
            }
        };
        self.replayed += u64::from(recovered.replayed > 0);
        for file in 0..after.histories.len() {
            if !after.files.has_name(file) {
                continue;
            }
            let content = after.files.content(file);
            let result = match theirs.get(file) {
                Some(Some(theirs)) if theirs != content => {
                    Err(Violation::new("a stranger's durable write is lost"))
                }
                Some(_) => Ok(()),
                None => after.histories[file].is_safe(content),
            };
            self.judge(&what(), result.map_err(|why| why.of(file)));
        }
        if !stranger && recovered.refused > 0 {
            let Recovered { verdicts, gaps, .. } = &recovered;
            self.judge(
                &what(),
                Err(Violation::new(format_args!("refused without a cause: {verdicts:?} {gaps:?}"))),
            );
        }
        Some(after)
    }

    /// Programs and service are killed. The next process that starts brings all home, in the same
    /// boot.
    fn kill(&mut self, world: &World) -> World {
        self.crashes += 1;
        let mut after = world.clone();
        after.traces = false;
        (after.faults, after.busy, after.ending) = (None, Vec::new(), false);
        after.promises_of_the_dead(&mut Nobody);
        for file in 0..after.entries.len() {
            after.job(file, Event::Close, &[], Interleaving::Nothing, &mut Nobody);
            if after.files.has_name(file) {
                let result = after.histories[file].is_current(after.files.content(file));
                self.judge("killed", result.map_err(|why| why.of(file)));
            }
        }
        after.superblock = after.superblock.succeed(&after.here(), after.now);
        after.write_superblock();
        after.begin_epoch();
        after
    }

    /// A crash of one kind, after which the world goes on: for long scripts.
    pub fn crash_and_go_on(&mut self, world: &World, kind: u8) -> World {
        let seed = self.rng.u64(..);
        let committed = self.rng.usize(0..=world.files.uncommitted());
        let after = match kind % 3 {
            0 => Some(self.kill(world)),
            _ => self.power(world, &Fate::Coins(seed), committed, false, None),
        };
        let mut after = after.unwrap_or_else(|| world.clone());
        after.go_on();
        after
    }

    fn all(&mut self, world: &World) {
        let uncommitted = world.files.uncommitted();
        let cached = world.platter.cached();
        let mut fates = vec![Fate::None];
        if cached > 0 {
            fates.extend([Fate::All, Fate::Alternate(0), Fate::Alternate(1), Fate::Garbage]);
        }
        if cached > 1 {
            fates.extend((0..cached.min(6)).flat_map(|i| [Fate::Only(i), Fate::Without(i)]));
        }
        for fate in &fates {
            for committed in [0, uncommitted] {
                self.power(world, fate, committed, false, None);
                if uncommitted == 0 {
                    break;
                }
            }
        }
        for committed in 1..uncommitted {
            self.power(world, &Fate::None, committed, false, None);
        }
        self.power(world, &Fate::None, 0, true, None);
        for task in 0..12 {
            if self.power(world, &Fate::All, uncommitted, false, Some(task)).is_none() {
                break;
            }
        }
        let killed = self.kill(world);
        self.power(&killed, &Fate::None, 0, false, None);
    }

    fn one(&mut self, world: &World) {
        let seed = self.rng.u64(..);
        let uncommitted = world.files.uncommitted();
        let committed = self.rng.usize(0..=uncommitted);
        match self.rng.u8(0..8) {
            0 => {
                let killed = self.kill(world);
                self.power(&killed, &Fate::Coins(seed), 0, false, None);
            }
            1 => {
                self.power(world, &Fate::Coins(seed), committed, true, None);
            }
            2 => {
                let task = self.rng.usize(0..8);
                self.power(world, &Fate::Coins(seed), committed, false, Some(task));
            }
            3 => {
                self.power(world, &Fate::Garbage, committed, false, None);
            }
            _ => {
                self.power(world, &Fate::Coins(seed), committed, false, None);
            }
        }
    }
}

impl Probe for Crashes {
    fn point(&mut self, world: &World) {
        match self.thoroughness {
            Thoroughness::All => {
                self.points += 1;
                self.all(world);
            }
            Thoroughness::Some(millionths) => {
                if self.rng.u32(0..1_000_000) < millionths {
                    self.points += 1;
                    self.one(world);
                }
            }
        }
    }

    fn wrong(&mut self, what: String) {
        self.judge("no crash", Err(Violation::new(what)));
    }
}

/// The outcome of a recovery.
struct Recovered {
    through: bool,
    replayed: usize,
    refused: usize,
    verdicts: Vec<Verdict>,
    gaps: Vec<Gap>,
}

impl World {
    /// Power is lost, and the host starts again, a second later.
    fn lose_power(&mut self, fate: &Fate, committed: usize) {
        self.files.lose_power(&mut self.platter, fate, committed);
        (self.entries, self.busy, self.ending) = (Vec::new(), Vec::new(), false);
        self.now += 1_000_000_000;
        self.booted = self.now;
    }

    /// Somebody writes to a file before recovery, durably. Returns what it is then.
    fn visit(&mut self, file: usize) -> Option<Vec<u8>> {
        if !self.files.has_name(file) {
            return None;
        }
        self.now += 1_000_000;
        self.files.write(file, 0, b"a stranger's", self.now);
        self.files.write_back(&mut self.platter, file);
        self.files.sync(&mut self.platter, file, false);
        Some(self.files.content(file).to_vec())
    }

    /// Programs start again.
    fn go_on(&mut self) {
        for file in 0..self.histories.len() {
            let content = self.files.content(file).to_vec();
            self.histories[file] = crate::oracle::History::new(&content);
            // (Bytes that recovery and closing brought need not all be durable, and bytes that a
            // failed sync made the kernel forget are not; the oracle takes it so.)
            self.files.write(file, 0, &content, self.now);
            self.files.write_back(&mut self.platter, file);
            self.files.sync(&mut self.platter, file, false);
        }
        self.promises = Promises::none();
        self.open_all();
    }

    fn image(&self) -> Vec<u8> {
        let mut image = self.platter.durable(LOG).to_vec();
        image.resize(self.superblock.size as usize, 0);
        image
    }

    /// Recovery in another boot; `stop` after so many tasks.
    fn recover(&mut self, stop: Option<usize>) -> Result<Recovered, Violation> {
        let mut image = self.image();
        let superblock = Superblock::find(&image).map_err(Violation::new)?;
        if self.mutation == Some(Mutation::NoChecksum) {
            forge(&superblock, &mut image);
        }
        let plan = Plan::new(&superblock, &image).map_err(Violation::new)?;
        let begun = Recovery::begin(&superblock, &plan, &self.here(), self.booted, self.now);
        let mut recovery = begun.map_err(Violation::new)?;
        let epoch = superblock.epoch;
        let inode =
            |at: usize| plan.files[at].owner.as_ref().map_or(0, |owner| owner.inode as usize);
        for task in 0.. {
            if stop == Some(task) {
                return Ok(Recovered {
                    through: false,
                    replayed: 0,
                    refused: 0,
                    verdicts: Vec::new(),
                    gaps: Vec::new(),
                });
            }
            self.now += 100_000;
            match recovery.task() {
                Task::Look(at) => {
                    let file = &plan.files[at];
                    let is_saved =
                        |saved: &Saved| saved.epoch == epoch && saved.index == file.index;
                    recovery.looked(if self.saved.iter().any(is_saved) {
                        OnDisk::Saved
                    } else if !self.files.has_name(inode(at)) {
                        OnDisk::Gone
                    } else if self.mutation == Some(Mutation::NoTime) {
                        OnDisk::There { modified: 0 }
                    } else {
                        OnDisk::There { modified: self.files.modified(inode(at)) }
                    });
                }
                Task::Save(at, _) => {
                    let file = &plan.files[at];
                    let pieces = file
                        .pieces
                        .iter()
                        .map(|piece| (piece.offset, piece.bytes.to_vec()))
                        .collect();
                    self.saved.push(Saved { epoch, index: file.index, pieces });
                }
                Task::Write(superblock) => {
                    self.superblock = superblock;
                    self.write_superblock();
                }
                Task::Replay(at) => {
                    let file = inode(at);
                    for piece in &plan.files[at].pieces {
                        self.files.write(file, piece.offset as usize, piece.bytes, self.now);
                    }
                    let (is, size) = (self.files.content(file).len(), plan.files[at].size as usize);
                    if is < size {
                        self.files.truncate(&mut self.platter, file, size, self.now);
                    }
                    if task % 2 == 0 {
                        self.files.write_back(&mut self.platter, file);
                    }
                }
                Task::Sync(at) => {
                    self.files.write_back(&mut self.platter, inode(at));
                    self.files.sync(&mut self.platter, inode(at), false);
                }
                Task::Done => break,
            }
        }
        self.begin_epoch();
        let count = |found: &dyn Fn(&Verdict) -> bool| {
            recovery.verdicts().iter().filter(|verdict| found(verdict)).count()
        };
        Ok(Recovered {
            through: true,
            verdicts: recovery.verdicts().to_vec(),
            gaps: plan.gaps.clone(),
            replayed: count(&|verdict| *verdict == Verdict::Replay),
            refused: count(
                &|verdict| matches!(verdict, Verdict::Refuse(why) if *why != Refusal::Before),
            ),
        })
    }
}

/// Gives whatever looks like a record of this epoch the checksum that it should have: so recovery
/// finds what it would find if it did not look at checksums.
fn forge(superblock: &Superblock, image: &mut [u8]) {
    let seed =
        crc32c::crc32c_append(crc32c::crc32c(&superblock.uuid), &superblock.epoch.to_le_bytes());
    let segment = superblock.segment as usize;
    for start in (HEAD..image.len()).step_by(segment) {
        let bytes = &mut image[start..start + segment];
        let mut at = BLOCK;
        while at + 56 <= segment {
            let length =
                u32::from_le_bytes([bytes[at + 8], bytes[at + 9], bytes[at + 10], bytes[at + 11]]);
            let length = length as usize;
            let epoch = &bytes[at + 32..at + 40];
            let looks = bytes[at..at + 4] == *b"ucRC" && *epoch == superblock.epoch.to_le_bytes();
            if looks && (56..=segment - at).contains(&length) {
                bytes[at + 4..at + 8].fill(0);
                let sum = crc32c::crc32c_append(seed, &bytes[at..at + length]);
                bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
            }
            at += 8;
        }
    }
}
