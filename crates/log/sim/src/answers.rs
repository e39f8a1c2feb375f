//! Syncs that return before they are durable: what has left the process, and so must be.
//!
//! A program answers after each such sync: that all it was promised so far is durable. The oracle
//! takes a promise for acknowledged when somebody outside can know of it: an answer has left,
//! something else has (an exit code, a lock that was given up), or somebody opens a file, where the
//! program may have written it.

use crate::files::FileId;
use crate::promises::Promises;
use crate::world::{Interleaving, Mutation, Probe, World};
use uncopy_log_book::answers::Leaves;
use uncopy_log_book::{Answer, Event, State};

impl World {
    /// A sync returns early, where the file is held, and the program answers.
    pub fn sync_later(&mut self, file: FileId, probe: &mut dyn Probe) {
        let inode = &self.entries[file].inode;
        if inode.state() == State::Held && !inode.failed() && !inode.lost() {
            self.promise(file);
        } else {
            self.sync(file, true, Interleaving::Nothing, probe);
        }
        self.answer(probe);
    }

    fn promise(&mut self, file: FileId) -> bool {
        let version = self.histories[file].at();
        let given = self.promises.answers.give(file as u32).is_some();
        if given {
            self.promises.made.push((file, version));
        }
        given
    }

    fn answer(&mut self, probe: &mut dyn Probe) {
        let claim = self.promises.made.len();
        let stream = claim as u32 % 2;
        let answer = (claim as u64).to_le_bytes();
        loop {
            match self.promises.answers.sends(stream, &[&answer]) {
                Leaves::Now => self.seen(claim),
                Leaves::Queued if self.mutation == Some(Mutation::AnswerUnheld) => self.seen(claim),
                Leaves::Waits(_) => {
                    self.flush_promised(Interleaving::Nothing, probe);
                    continue;
                }
                Leaves::Queued | Leaves::Never => {}
            }
            break;
        }
        probe.point(self);
    }

    /// Another thread writes, syncs and answers while a flush is under way.
    pub(crate) fn promise_beside(&mut self, file: FileId) -> bool {
        if self.entries[file].inode.state() != State::Held || !self.write_beside(file) {
            return false;
        }
        if self.promise(file) {
            let claim = self.promises.made.len();
            let answer = (claim as u64).to_le_bytes();
            let sent = self.promises.answers.sends(claim as u32 % 2, &[&answer]);
            assert_ne!(sent, Leaves::Now, "an answer leaves during its flush");
        }
        true
    }

    /// Somebody outside knows of the first so many promises.
    fn seen(&mut self, claim: usize) {
        for &(file, version) in &self.promises.made[..claim] {
            self.histories[file].acked(version);
        }
    }

    /// The versions that were promised become durable, and answers leave.
    pub fn flush_promised(&mut self, meanwhile: Interleaving, probe: &mut dyn Probe) {
        let (number, files) = self.promises.answers.begin();
        for file in files {
            let file = file as usize;
            let sync = Event::Sync { data_only: true };
            let versions: Vec<usize> = self.histories.iter().map(|history| history.at()).collect();
            match self.job(file, sync, &[], meanwhile, probe) {
                Answer::Failed(_) if self.faults.is_some() => self.promises.answers.fails(),
                Answer::Failed(errno) => probe.wrong(format!("a flush failed: error {errno}")),
                _ if self.mutation == Some(Mutation::LateNumbers) => {}
                // (The version that it has made durable is no less than the one that it answers
                // for.)
                _ => assert!(versions[file] <= self.histories[file].at()),
            }
        }
        let late = self.mutation == Some(Mutation::LateNumbers);
        let number = if late { self.promises.answers.begin().0 } else { number };
        self.promises.answers.flushed(number);
        while let Some((stream, bytes)) = self.promises.answers.next() {
            // (The kernel takes them in two parts.)
            let bytes = bytes.to_vec();
            let first = bytes.len().div_ceil(2);
            if let Ok(answer) = <[u8; 8]>::try_from(&bytes[..]) {
                self.seen(u64::from_le_bytes(answer) as usize);
            }
            self.promises.answers.left(stream, first);
        }
        probe.point(self);
    }

    /// Something leaves that is no answer on a stream: it waits first.
    pub fn leaves(&mut self, waits: bool, probe: &mut dyn Probe) {
        if waits && matches!(self.promises.answers.leaves(None), Leaves::Waits(_)) {
            self.flush_promised(Interleaving::Nothing, probe);
        }
        if self.promises.answers.leaves(None) != Leaves::Never {
            self.seen(self.promises.made.len());
        }
        probe.point(self);
    }

    /// The program was killed, and what it wrote is about to come home, where others see it: what
    /// it was promised becomes durable before. Nothing of its queues leaves.
    pub(crate) fn promises_of_the_dead(&mut self, probe: &mut dyn Probe) {
        if self.mutation != Some(Mutation::DeadUnsynced) && self.promises.answers.waits().is_some()
        {
            for file in self.promises.answers.begin().1 {
                let sync = Event::Sync { data_only: true };
                self.job(file as usize, sync, &[], Interleaving::Nothing, probe);
            }
        }
        if self.promises.answers.leaves(None) != Leaves::Never {
            self.seen(self.promises.made.len());
        }
        self.promises = Promises::none();
    }
}
