//! The program, done again: each operation as the shims and the stack's calls would hand it to the
//! tracker.

use crate::paper::Paper;
use crate::stage::Stage;
use crate::tally::Tally;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use uncopy_core::memory::FillError;
use uncopy_core::plan::{CopyPlan, InputPlan, OutputPlan, Went};
use uncopy_core::tracker::{Limits, PoolShape, Tracker};
use uncopy_decide::{Basis, Control, Costs, Event, Observer, Operation, Refusal, SiteId, Times};
use uncopy_ranges::span::Span;
use uncopy_trace::{Entry, EntryKind, Trace};

/// Inputs smaller than this are not remembered as input (as in `uncopy_space::space`).
const ORIGIN_MIN: usize = 1024;
/// Halves of a copy that is too fragmented are tried where it is twice as long (as in
/// `uncopy_stack::copy`).
const PART_MIN: usize = 16 << 10;
/// The tracker is told each time that so many bytes more were copied (as in `uncopy_space::work`).
const TOLD_EVERY: u64 = 8 << 20;
/// Pages that give way at once where a cap was met (as in `uncopy_space::events`).
const EVICT_PAGES: usize = 256;

/// Times that a recording is done again at most, whatever time that takes.
const ROUNDS_MAX: usize = 20_000;

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// With the controller that was asked for.
    pub tally: Tally,
    /// Processor time of the program if nothing were elided, in ns: what it is to be compared with.
    pub plain_cpu: i64,
    /// The time that executing all copies takes, in ns.
    pub plain_ns: i64,
}

impl Outcome {
    /// The gain against eliding nothing, in ns.
    pub fn gained(&self) -> i64 {
        self.plain_ns.saturating_sub(self.tally.ns)
    }

    /// The same as a part of the processor time that the program takes where nothing is elided.
    pub fn share(&self) -> f64 {
        self.gained() as f64 / self.plain_cpu as f64
    }
}

thread_local! {
    /// How late it is for the program that is done again.
    static NOW: Cell<Times> = const { Cell::new(Times { cpu: 0, wall: 0 }) };
}

fn now() -> Option<Times> {
    Some(NOW.get())
}

/// The cost of eliding to the program where no event shows it, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// The cost of each elided copy.
    pub copy: i64,
    /// The cost of each MB that was elided.
    pub mb: i64,
}

impl Unseen {
    pub(crate) fn of(self, event: Event) -> i64 {
        match event {
            Event::ElidedAgain { bytes } | Event::Elided { bytes } => {
                self.copy + ((bytes as i64).saturating_mul(self.mb) >> 20)
            }
            _ => 0,
        }
    }
}

/// Adds up what the controller is told.
struct Till {
    unseen: Unseen,
    tally: Arc<Mutex<Tally>>,
    costs: Costs,
}

impl Observer for Till {
    fn did(&mut self, _: Operation) {}

    fn told(&mut self, _: SiteId, event: Event) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.told(&self.costs, event);
        tally.ns = tally.ns.saturating_add(self.unseen.of(event));
    }
}

/// The tally of the events when `trace` was recorded.
pub fn recorded(trace: &Trace) -> Tally {
    let (mut tally, mut halves) = (Tally::default(), Halves::default());
    for entry in &trace.entries {
        match entry.what {
            EntryKind::Did(operation) => {
                if let Operation::Copy { to, from, len, .. } = operation
                    && halves.begins(to, from, len)
                {
                    tally.copy(&trace.start.costs, len);
                }
            }
            EntryKind::Told(_, event) => tally.told(&trace.start.costs, event),
        }
    }
    tally
}

/// Does again what `trace` says: all of it once, and its second half until the program has used
/// `cpu` ns of processor time, as recorded. Eliding costs it what is `unseen`, too. The controller
/// is made by `control`, which is also handed the number of the copy that is asked about.
pub fn play(
    trace: &Trace,
    stage: &Stage,
    cpu: u64,
    unseen: Unseen,
    control: impl FnOnce(Basis, Arc<Mutex<u64>>) -> Control,
) -> Outcome {
    stage.clear();
    NOW.set(Times::default());
    let start = &trace.start;
    let number = Arc::new(Mutex::new(0));
    let tally = Arc::new(Mutex::new(Tally::default()));
    let basis = stage.basis(start.threshold, start.backoff, start.costs);
    let control = control(basis, number.clone()).timed_by(now);
    let pages = Paper::POOL_PAGES;
    let limits = Limits { extent_bytes: start.extent_bytes, ranges: start.ranges, views: 1 << 20 };
    let shape = PoolShape { boundary: pages / 2, pages };
    let mut tracker =
        Tracker::new(Paper::default(), shape, limits, control, stage.filter, stage.counters);
    tracker.observed_by(Some(Box::new(Till { unseen, tally: tally.clone(), costs: start.costs })));
    let mut play = Play {
        tracker,
        stage,
        costs: start.costs,
        threshold: start.threshold,
        tally,
        number,
        calls: HashMap::new(),
        halves: Halves::default(),
        was: Tally::default(),
        plain_ns: 0,
        copied: (0, 0),
        tells: copied(&trace.entries).next().is_none(),
    };
    let (all, second) = (&trace.entries[..], &trace.entries[trace.entries.len() / 2..]);
    let mut program = Times::default();
    for round in 0..ROUNDS_MAX {
        if round > 0 && program.cpu >= cpu {
            break;
        }
        let entries = if round == 0 { all } else { second };
        let mut last = Times::default();
        if round > 0 {
            last = entries.first().map_or(last, |e| e.at);
            play.copied.0 = copied(&all[..all.len() - entries.len()]).last().unwrap_or(0);
        }
        play.round(entries, last, &mut program);
    }
    let tally = *play.tally();
    let plain_cpu = (program.cpu as i64).saturating_add(play.plain_ns.saturating_sub(play.was.ns));
    Outcome { tally, plain_cpu: plain_cpu.max(1), plain_ns: play.plain_ns }
}

/// The refusals, with their reasons.
fn refusals(entries: &[Entry]) -> impl Iterator<Item = (Span, Refusal)> {
    entries.iter().filter_map(|entry| match entry.what {
        EntryKind::Did(Operation::Refused { span, why }) => Some((span, why)),
        _ => None,
    })
}

/// The sum of the program's large copies, at each entry that gives it.
fn copied(entries: &[Entry]) -> impl Iterator<Item = u64> {
    entries.iter().filter_map(|entry| match entry.what {
        EntryKind::Told(_, Event::Copied { total }) => Some(total),
        _ => None,
    })
}

/// The halves of copies that were too fragmented: recorded like others, though the program did not
/// ask for them.
#[derive(Default)]
struct Halves(Vec<(usize, usize, usize)>);

impl Halves {
    /// Whether this copy is the program's own.
    fn begins(&mut self, to: usize, from: usize, len: usize) -> bool {
        let half = len / 2;
        let halves = [(to, from, half), (to + half, from + half, len - half)];
        let known = self.0.iter().position(|h| *h == (to, from, len));
        match known {
            Some(i) => drop(self.0.swap_remove(i)),
            None => self.0.clear(),
        }
        if len >= 2 * PART_MIN {
            self.0.extend(halves);
        }
        known.is_none()
    }
}

struct Play<'a> {
    tracker: Tracker<Paper>,
    stage: &'a Stage,
    costs: Costs,
    threshold: usize,
    tally: Arc<Mutex<Tally>>,
    /// How many copies of the program's there were.
    number: Arc<Mutex<u64>>,
    /// Buffers of input and output calls that have not ended.
    calls: HashMap<u32, Vec<(usize, usize)>>,
    halves: Halves,
    /// The tally up to now when it was recorded.
    was: Tally,
    plain_ns: i64,
    /// The sum of the program's large copies when it was recorded, and in all rounds.
    copied: (u64, u64),
    /// That was never said, because it was recorded too shortly: the replay does.
    tells: bool,
}

impl Play<'_> {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How late it is where it was so late when it was recorded.
    fn at(&self, then: Times) -> Times {
        let more = self.tally().ns.saturating_sub(self.was.ns);
        let shift = |t: u64| t.saturating_add_signed(more);
        Times { cpu: shift(then.cpu), wall: shift(then.wall) }
    }

    /// Does `entries` again, which follow one of `last`. The time passes as the `program`'s does,
    /// and never backwards.
    fn round(&mut self, entries: &[Entry], mut last: Times, program: &mut Times) {
        self.tracker.memory.refuse_only(refusals(entries));
        for entry in entries {
            program.cpu = program.cpu.saturating_add(entry.at.cpu - last.cpu);
            program.wall = program.wall.saturating_add(entry.at.wall - last.wall);
            last = entry.at;
            let (now, passed) = (self.at(*program), NOW.get());
            NOW.set(Times { cpu: now.cpu.max(passed.cpu), wall: now.wall.max(passed.wall) });
            self.entry(entry.what);
        }
    }

    fn entry(&mut self, what: EntryKind) {
        match what {
            EntryKind::Told(_, event) => {
                self.was.told(&self.costs, event);
                match event {
                    Event::Copied { total } => {
                        let more = total.saturating_sub(self.copied.0);
                        self.copied = (total, self.copied.1.saturating_add(more));
                        self.tracker.copied(self.copied.1);
                    }
                    Event::AnswersNear(near) => self.tracker.answers_near(near),
                    _ => {}
                }
            }
            EntryKind::Did(operation) => self.does(operation),
        }
    }

    fn does(&mut self, operation: Operation) {
        match operation {
            Operation::Copy { to, from, len, caller, input } => {
                if self.halves.begins(to, from, len) {
                    self.was.copy(&self.costs, len);
                    self.plain_ns = self.plain_ns.saturating_add(self.costs.copying(len));
                    *self.number.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                    self.tally().copy(&self.costs, len);
                    self.count(len);
                    self.copy(to, from, len, caller, input);
                }
            }
            Operation::Receive { call, addr, len } | Operation::Send { call, addr, len } => {
                self.calls.entry(call).or_default().push((addr, len));
            }
            Operation::Received { call, bytes } => self.receive(call, bytes),
            Operation::Sent { call, bytes } => self.send(call, bytes),
            Operation::Freed(span) => {
                if self.perhaps_tracked(span.start, span.len()) {
                    self.tracker.freed(span.start, span.len());
                }
            }
            Operation::Unmapped(span) => {
                self.tracker.munmapped(span);
                self.tracker.memory.unmapped(span.covering_pages());
            }
            Operation::Remapped { from, to, len } => {
                self.tracker.remapped(from, to, len);
                self.tracker.memory.moved(from, to, len);
            }
            Operation::Untracked(span) => self.tracker.untrack(span),
            Operation::MadeOrdinary(span) => {
                let _ = self.tracker.make_ordinary(span);
            }
            Operation::MadeResident(span) => {
                let _ = self.tracker.materialize(span);
            }
            Operation::Touch { addr } => {
                if self.tracker.memory.is_missing(addr) {
                    self.tracker.fault(addr);
                }
            }
            // (Known from the beginning.)
            Operation::Refused { .. } => {}
        }
    }

    /// The program copies `len` bytes.
    fn count(&mut self, len: usize) {
        let before = self.copied.1;
        if self.tells {
            self.copied.1 = before.saturating_add(len as u64);
            if before / TOLD_EVERY != self.copied.1 / TOLD_EVERY {
                self.tracker.copied(self.copied.1);
            }
        }
    }

    fn perhaps_tracked(&self, addr: usize, len: usize) -> bool {
        len > 0 && self.stage.filter.perhaps_tracked(addr, len)
    }

    fn copy(&mut self, to: usize, from: usize, len: usize, caller: usize, input: bool) {
        let tracked = self.perhaps_tracked(to, len) || self.perhaps_tracked(from, len);
        let apart = to.abs_diff(from) >= len;
        let input =
            input || apart && len >= self.threshold && self.stage.filter.is_input(from, len);
        if !tracked {
            if !input {
                return;
            }
            if self.stage.pauses.rests_copies(caller, len) {
                return;
            }
        }
        let mut plan = CopyPlan::default();
        self.tracker.copy_begin(to, from, len, caller, input, &mut plan);
        if plan.bypass {
            self.evict();
            if plan.fragmented && len >= 2 * PART_MIN {
                let half = len / 2;
                self.copy(to, from, half, caller, input);
                self.copy(to + half, from + half, len - half, caller, input);
            }
            return;
        }
        if !plan.staged.is_empty() {
            self.tracker.copy_commit(&mut plan);
        }
        self.tracker.unpin(&mut plan.pins);
    }

    fn receive(&mut self, call: u32, bytes: usize) {
        let buffers = self.calls.remove(&call).unwrap_or_default();
        let bytes = bytes.min(buffers.iter().map(|b| b.1).sum());
        if buffers.iter().any(|b| self.perhaps_tracked(b.0, b.1)) {
            let mut plan = InputPlan::default();
            self.tracker.input_begin(&buffers, &mut plan);
            if plan.bypass {
                self.evict();
            } else {
                self.tracker.input_commit(&mut plan, bytes);
                self.tracker.unpin(&mut plan.pins);
            }
        }
        let mut left = if bytes < ORIGIN_MIN { 0 } else { bytes };
        for (addr, len) in buffers {
            let got = len.min(left);
            self.stage.filter.input(addr, got);
            left -= got;
        }
    }

    fn send(&mut self, call: u32, bytes: usize) {
        let buffers = self.calls.remove(&call).unwrap_or_default();
        let bytes = bytes.min(buffers.iter().map(|b| b.1).sum());
        if !buffers.iter().any(|b| self.perhaps_tracked(b.0, b.1)) {
            return;
        }
        let mut plan = OutputPlan::default();
        self.tracker.output_begin(&buffers, &mut plan);
        if !plan.bypass {
            self.tracker.output_done(&mut plan, bytes, Went::Copied);
        }
    }

    fn evict(&mut self) {
        while self.tracker.wants_eviction() {
            match self.tracker.evict(EVICT_PAGES) {
                Ok(true) => {}
                Ok(false) | Err(FillError::Again | FillError::Refused) => return,
            }
        }
    }
}
