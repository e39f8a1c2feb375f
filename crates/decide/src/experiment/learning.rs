//! What learning costs, on paper: programs of known prices, on machines of known noise, each with
//! many seeds. The table is kept: `UPDATE_EXPECT=1 cargo test -p uncopy-decide` writes it anew, and
//! `git diff` then shows what a changed rule does to each of them.

use super::{Experiment, Progress};
use core::fmt::Write;
use expect_test::expect_file;

const MB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
/// Programs tell each time that they have copied so much more (as in `uncopy_space::work`).
const TOLD_EVERY: u64 = 8;
/// Runs of each program, which differ in their noise.
const SEEDS: u64 = 100;
/// Processor time of the better way, in ns, whose share is lost.
const SPANS: [u64; 3] = [500 * MS, 2_000 * MS, 10_000 * MS];
/// An experiment that has not ended by then, in ns, has not decided.
const LATEST: u64 = 20_000 * MS;

/// What else the machine does.
#[derive(Clone, Copy)]
enum Machine {
    /// Each 10 ms take up to 2% more or less.
    Quiet,
    /// Each 10 ms take up to a tenth more or less; for 30 to 150 ms at a time, which is a third of
    /// all, all takes up to twice as long. (As Redis was seen on a shared host: pairs of stretches
    /// of one and the same server are off by 15% half of the time.)
    Busy,
}

/// A program that copies without a pause.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    /// Processor time for 1 MB where none elides, in ns, and where all do.
    copying: u64,
    eliding: u64,
    /// In its first requests all takes so many percent longer; half as much after so many ms, a
    /// third after twice as many, and so on.
    warms: (u64, u64),
    /// So many percent more in every second period of so many ms, whoever elides.
    phases: (u64, u64),
    /// So many percent more in every second part that is told, and less in the others.
    beats: u64,
    /// The thousandths of its time that eliding saves by prices.
    said: u64,
    /// From so many ms on all takes so many percent of the time.
    level: (u64, u64),
    /// So many MB of buffers are invested in before eliding has its price, for so many ns each MB;
    /// and as much to make them ordinary again.
    buffers: (u64, u64),
}

const LOSES_OR_GAINS: [(&str, u64); 8] = [
    ("takes 1.75 times", 1_750),
    ("takes 1.25 times", 1_250),
    ("takes 1.10 times", 1_100),
    ("makes no difference", 1_000),
    ("takes .95", 950),
    ("takes .90", 900),
    ("takes .75", 750),
    ("takes .50", 500),
];

impl Program {
    fn new(name: &'static str, thousandths: u64) -> Self {
        let copying = 320_000;
        let eliding = copying * thousandths / 1_000;
        let said = if thousandths < 1_000 { (1_000 - thousandths) / 2 } else { 50 };
        let (warms, phases, buffers, beats) = ((0, 0), (0, 0), (0, 0), 0);
        Self { name, copying, eliding, warms, phases, beats, said, level: (0, 0), buffers }
    }

    fn in_beats(self) -> Self {
        Self { beats: 50, ..self }
    }

    fn saying(self, said: u64) -> Self {
        Self { said, ..self }
    }

    fn changing(self) -> Self {
        Self { level: (180, 50), ..self }
    }

    fn warming(self) -> Self {
        Self { warms: (300, 50), ..self }
    }

    fn with_phases(self) -> Self {
        Self { phases: (40, 70), ..self }
    }

    fn with_buffers(self, mb: u64) -> Self {
        Self { buffers: (mb, 400_000), ..self }
    }
}

struct Noise {
    state: u64,
    /// Until when, and by how much.
    short: (u64, u64),
    long: (u64, u64),
    machine: Machine,
}

impl Noise {
    fn new(seed: u64, machine: Machine) -> Self {
        Self { state: seed * 2 + 1, short: (0, 0), long: (0, 1_000), machine }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) % n
    }

    /// The thousandths of its price that something takes at this time, in ns.
    fn at(&mut self, now: u64) -> u64 {
        let percent = match self.machine {
            Machine::Quiet => 2,
            Machine::Busy => 10,
        };
        if now >= self.short.0 {
            self.short = (now + 10 * MS, 1_000 - 10 * percent + self.below(20 * percent + 1));
        }
        if matches!(self.machine, Machine::Busy) && now >= self.long.0 {
            let begins = self.long.1 == 1_000;
            let (lasts, more) = if begins {
                (30 + self.below(121), 50 + self.below(951))
            } else {
                (30 + self.below(221), 0)
            };
            self.long = (now + lasts * MS, 1_000 + more);
        }
        self.short.1 * self.long.1 / 1_000
    }
}

/// What became of one run.
struct Run {
    /// Whether it elides after its first experiment.
    elides: bool,
    /// When that ended, in ns of processor time,
    decided: u64,
    /// and how many MB had been elided by then.
    elided: u64,
    /// Time lost in each of [`SPANS`], in ns.
    lost: [u64; SPANS.len()],
}

fn run(program: Program, machine: Machine, seed: u64) -> Run {
    let (mut experiment, mut noise) = (Experiment::default(), Noise::new(seed, machine));
    let (mut at, mut elided, mut lost, mut best) = (Progress::default(), 0, 0, 0);
    // (MB of buffers that are unmapped.)
    let mut invested = 0;
    let mut run = Run { elides: false, decided: 0, elided: 0, lost: [0; SPANS.len()] };
    let mut span = 0;
    while span < SPANS.len() || run.decided == 0 {
        let now = at.times.cpu;
        let elides = experiment.elides();
        let (percent, half) = program.warms;
        let mut share = 1_000 + percent * 10 * half * MS / (half * MS + now).max(1);
        let (percent, period) = program.phases;
        if period > 0 && (now / (period * MS)) % 2 == 1 {
            share += percent * 10;
        }
        let (from, percent) = program.level;
        if now > from * MS && percent > 0 {
            share = share * percent / 100;
        }
        // (Two in five, three in five: the beat is not that of what is told.)
        let beat = ((at.copied / MB / TOLD_EVERY) % 5).is_multiple_of(2);
        share = share * if beat { 100 - program.beats * 2 / 3 } else { 100 + program.beats } / 100;
        let share = share * noise.at(now);
        let takes = |price: u64| price * TOLD_EVERY * share / 1_000_000;
        let (mb, each) = program.buffers;
        let changes = if elides { mb - invested } else { invested }.min(TOLD_EVERY);
        invested = if elides { invested + changes } else { invested - changes };
        let better = takes(program.copying.min(program.eliding));
        let own = if elides { program.eliding } else { program.copying };
        let took = takes(own) + changes * each * share / 1_000_000;
        best += better;
        lost += took - better;
        elided += if elides { TOLD_EVERY } else { 0 };
        at.times.cpu += took;
        at.times.wall += took;
        at.prepared += changes * if elides { 2 } else { 1 } * MB;
        let said = if elides { took * program.said / 1_000 } else { 0 };
        at.saved += said.cast_signed();
        at.copied += TOLD_EVERY * MB;
        at.elided += if elides { TOLD_EVERY * MB } else { 0 };
        let ends = experiment.look(at).is_some();
        if run.decided == 0 && (ends || at.times.cpu > LATEST) {
            (run.elides, run.decided) = (experiment.has_gained(), at.times.cpu);
            run.elided = elided;
        }
        if span < SPANS.len() && best >= SPANS[span] {
            run.lost[span] = lost;
            span += 1;
        }
    }
    run
}

fn row(text: &mut String, program: Program, machine: Machine) {
    let runs: Vec<Run> = (0..SEEDS).map(|seed| run(program, machine, seed)).collect();
    let percent = |n: usize| 100.0 * n as f64 / runs.len() as f64;
    let mean =
        |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>() as f64 / runs.len() as f64;
    let _ = write!(text, "{:<42}", program.name);
    let elides = percent(runs.iter().filter(|run| run.elides).count());
    let decided = mean(&|run| run.decided) / 1e6;
    let _ = write!(text, "{elides:>9.1}{decided:>9.0}{:>9.0}", mean(&|run| run.elided));
    for (i, span) in SPANS.iter().enumerate() {
        let _ = write!(text, "{:>9.2}", 100.0 * mean(&|run| run.lost[i]) / *span as f64);
    }
    text.push('\n');
}

fn table() -> String {
    let plain = LOSES_OR_GAINS.map(|(name, price)| Program::new(name, price));
    let more = [
        Program::new("takes 1.25 times, and memory is new at first", 1_250).warming(),
        Program::new("makes no difference, memory is new at first", 1_000).warming(),
        Program::new("takes .75, and memory is new at first", 750).warming(),
        Program::new("takes 1.25 times, and has phases", 1_250).with_phases(),
        Program::new("takes .90, and has phases", 900).with_phases(),
        Program::new("takes .75, and has phases", 750).with_phases(),
        Program::new("takes 1.75 times, and prices say so", 1_750).saying(0),
        Program::new("takes 1.25 times, and prices say so", 1_250).saying(0),
        Program::new("takes 1.10 times, and prices say so", 1_100).saying(0),
        Program::new("takes .90, which prices do not say", 900).saying(0),
        Program::new("takes .75, which prices do not say", 750).saying(0),
        Program::new("takes 1.40 times, in beats, prices say so", 1_400).saying(0).in_beats(),
        Program::new("takes 1.40 times, in beats", 1_400).in_beats(),
        Program::new("takes .90, in beats", 900).in_beats(),
        Program::new("takes .75, in beats", 750).in_beats(),
        Program::new("takes 1.40 times, becomes twice as fast", 1_400).changing(),
        Program::new("takes .75, becomes twice as fast", 750).changing(),
        Program::new("takes 1.25 times, after 32 MB of buffers", 1_250).with_buffers(32),
        Program::new("takes .75, after 32 MB of buffers", 750).with_buffers(32),
        Program::new("takes .75, after 128 MB of buffers", 750).with_buffers(128),
        Program::new("takes .90, after 64 MB of buffers", 900).with_buffers(64),
    ];
    let mut text = String::new();
    for (machine, what) in [(Machine::Quiet, "a quiet machine"), (Machine::Busy, "a busy one")] {
        let _ = writeln!(
            text,
            "{:<42}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
            format!("eliding, on {what}:"),
            "elides %",
            "after ms",
            "MB",
            "of .5 s",
            "of 2 s",
            "of 10 s"
        );
        for program in plain.into_iter().chain(more) {
            row(&mut text, program, machine);
        }
        text.push('\n');
    }
    text
}

#[test]
fn learning_costs_what_is_written_down() {
    expect_file!["learning.txt"].assert_eq(&table());
}
