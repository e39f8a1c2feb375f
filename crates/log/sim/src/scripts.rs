//! The scripts of programs: all short ones, random long ones.

use crate::crash::{Crashes, Thoroughness};
use crate::world::{Interleaving, Mutation, Probe, World};
use uncopy_log_book::{Event, State};

/// One thing that a program, or somebody else, does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A few bytes at the end.
    Append,
    /// More than a block at the end.
    AppendBlocks,
    /// More than a sync logs, at the end.
    AppendMuch,
    /// A few bytes in the middle.
    Overwrite,
    /// fdatasync.
    Sync,
    /// fsync while another thread writes.
    SyncBusy,
    /// A read.
    Read,
    /// Another name.
    Rename,
    /// No name.
    Unlink,
    /// A smaller size.
    Truncate,
    /// Somebody without the library opens it, writes, syncs.
    Stranger,
    /// Six seconds.
    Time,
    /// Closed, opened again.
    Reopen,
    /// Mapped, stored to, synced, unmapped.
    Store,
    /// The kernel writes back.
    WriteBack,
    /// sync(2).
    SyncAll,
    /// chmod.
    Change,
    /// A sync that returns early, and an answer.
    SyncLater,
    /// The flush of what such syncs have promised.
    Flush,
    /// The same, while another thread writes, syncs and answers.
    FlushBusy,
    /// Something leaves that is no answer: an exit code, a signal, a byte in a pipe.
    Leave,
}

/// All of them.
pub const OPS: [Op; 17] = [
    Op::Append,
    Op::AppendBlocks,
    Op::AppendMuch,
    Op::Overwrite,
    Op::Sync,
    Op::SyncBusy,
    Op::Read,
    Op::Rename,
    Op::Unlink,
    Op::Truncate,
    Op::Stranger,
    Op::Time,
    Op::Reopen,
    Op::Store,
    Op::WriteBack,
    Op::SyncAll,
    Op::Change,
];

/// Those of a program whose syncs return early.
pub const WITH_ANSWERS: [Op; 15] = [
    Op::SyncLater,
    Op::Append,
    Op::AppendBlocks,
    Op::AppendMuch,
    Op::Flush,
    Op::FlushBusy,
    Op::Leave,
    Op::Stranger,
    Op::Overwrite,
    Op::Sync,
    Op::Rename,
    Op::Truncate,
    Op::Reopen,
    Op::Time,
    Op::Unlink,
];

/// The file that a script begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new file.
    New,
    /// A held file with live records.
    Held,
}

/// All of them.
pub const STARTS: [Start; 2] = [Start::New, Start::Held];

/// Nobody looks, and nothing may be wrong.
struct Strict;

impl Probe for Strict {
    fn point(&mut self, _: &World) {}
    fn wrong(&mut self, what: String) {
        panic!("{what}");
    }
}

/// The world as a script finds it.
pub fn begin(start: Start, mutation: Option<Mutation>) -> World {
    let content = if start == Start::New { Vec::new() } else { vec![0x77; 4000] };
    let mut world = World::new(&[content], mutation);
    if start != Start::New {
        world.write(0, None, 50, &mut Strict);
        world.sync(0, false, Interleaving::Nothing, &mut Strict);
        world.write(0, None, 60, &mut Strict);
        world.sync(0, true, Interleaving::Nothing, &mut Strict);
        assert!(world.entries[0].inode.live().is_some());
    }
    world
}

/// Does one thing.
pub fn perform(world: &mut World, file: usize, op: Op, probe: &mut dyn Probe) {
    if world.entries[file].gone {
        return;
    }
    // Others may see what these do. (Of an open: before the lease is given up.)
    let seen = matches!(
        op,
        Op::Rename
            | Op::Unlink
            | Op::Truncate
            | Op::Stranger
            | Op::Reopen
            | Op::Store
            | Op::SyncAll
            | Op::Change
    );
    if seen {
        let unheld = op == Op::Stranger && world.mutation == Some(Mutation::OpenUnheld);
        world.leaves(!unheld, probe);
    }
    match op {
        Op::Append => world.write(file, None, 100, probe),
        Op::AppendBlocks => world.write(file, None, 5000, probe),
        Op::AppendMuch => world.write(file, None, 9000, probe),
        Op::Overwrite => world.write(file, Some(50), 700, probe),
        Op::Sync => world.sync(file, true, Interleaving::Nothing, probe),
        Op::SyncBusy => world.sync(file, false, Interleaving::Write, probe),
        Op::Read => {
            world.event(file, Event::Read, probe);
        }
        Op::Rename if world.files.has_name(file) => {
            world.event(file, Event::Rename, probe);
        }
        Op::Unlink if world.files.has_name(file) => {
            world.event(file, Event::Unlink { last: true }, probe);
        }
        Op::Rename | Op::Unlink => {}
        Op::Truncate => world.truncate(file, 60, probe),
        Op::Stranger => world.stranger(file, probe),
        Op::Time => world.time(probe),
        Op::Reopen => world.reopen(file, probe),
        Op::Store => world.store(file, true, probe),
        Op::WriteBack => world.write_back(file, probe),
        Op::SyncAll => {
            world.event(file, Event::SyncAll, probe);
        }
        Op::Change => {
            world.event(file, Event::Change, probe);
        }
        Op::SyncLater => world.sync_later(file, probe),
        Op::Flush => world.flush_promised(Interleaving::Nothing, probe),
        Op::FlushBusy => world.flush_promised(Interleaving::Promise, probe),
        Op::Leave => world.leaves(world.mutation != Some(Mutation::LeavesUnheld), probe),
    }
}

/// Runs every script of so many of `ops` from one start, with every crash at every point.
/// `part` of `parts`: each has its share of the scripts.
pub fn every_script(
    ops: &[Op],
    start: Start,
    length: u32,
    mutation: Option<Mutation>,
    (part, parts): (usize, usize),
) -> Crashes {
    let mut crashes = Crashes::new(Thoroughness::All, 1);
    let world = begin(start, mutation);
    walk(ops, &world, &mut Vec::new(), start, length, (part, parts), &mut crashes);
    crashes
}

/// Depth first: what scripts have in common is done once, and looked at once.
fn walk(
    ops: &[Op],
    world: &World,
    script: &mut Vec<Op>,
    start: Start,
    left: u32,
    (part, parts): (usize, usize),
    crashes: &mut Crashes,
) {
    if left == 0 || (world.mutation.is_some() && !crashes.wrong.is_empty()) {
        return;
    }
    for (i, &op) in ops.iter().enumerate() {
        if script.is_empty() && i % parts != part {
            continue;
        }
        let mut after = world.clone();
        script.push(op);
        crashes.script(format!("{start:?}, {script:?}"));
        perform(&mut after, 0, op, crashes);
        walk(ops, &after, script, start, left - 1, (part, parts), crashes);
        script.pop();
    }
}

/// A random script over two files, with crashes in it after which it goes on. `faults`: disks and
/// calls fail now and then.
pub fn random_script(
    ops: &[Op],
    seed: u64,
    mutation: Option<Mutation>,
    faults: bool,
    crashes: &mut Crashes,
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(&[vec![0x77; 4000], Vec::new()], mutation);
    world.traces = std::env::var_os("LOG_SIM_TRACE").is_some();
    let mut done = Vec::new();
    for _ in 0..rng.usize(4..40) {
        if rng.u8(0..20) == 0 {
            let kind = rng.u8(..);
            done.push(format!("crash {kind}"));
            crashes.script(format!("seed {seed}, {}", done.join(" ")));
            world = crashes.crash_and_go_on(&world, kind);
            continue;
        }
        if faults && world.faults.is_none() {
            world.begin_faults(rng.u64(..));
        }
        let (file, op) = (rng.usize(0..2), ops[rng.usize(0..ops.len())]);
        // (Syncs and appends of held files are what it is about.)
        let plain = world.entries[file].inode.state() == State::Plain;
        let op = match rng.u8(0..4) {
            _ if plain && rng.bool() => Op::Reopen,
            0 if ops.contains(&Op::SyncLater) => Op::SyncLater,
            0 => Op::Sync,
            1 => Op::Append,
            _ if op == Op::Unlink && rng.u8(0..4) > 0 => Op::Overwrite,
            _ => op,
        };
        done.push(format!("{op:?}{file}"));
        crashes.script(format!("seed {seed}, {}", done.join(" ")));
        perform(&mut world, file, op, crashes);
    }
}
