//! The answer as text and as JSON.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};
use uncopy_counters::Snapshot;
use uncopy_measure::medians::{median, round, spread};
use uncopy_measure::printable::{self, printable};
use uncopy_measure::side::{KEEP, TUNABLES};
use uncopy_measure::units;

use super::compare::{Pair, RULE, Standing};
use super::counters;
use super::load::Load;
use super::sides::{Program, Side, by_side};
use super::turn::{Measured, Pace, Rehearsed};
use super::verdict::{Facts, Verdict};

/// The counted turns of each side, in the order of [`Side::ALL`].
pub type Turns = [Vec<Measured>; Side::ALL.len()];

/// Everything.
pub struct Report<'a> {
    load: Option<&'a Load>,
    program: &'a Program,
    turns: &'a Turns,
    rehearsed: Option<Rehearsed>,
    /// Uncopy's work in a run, on the average.
    did: Snapshot,
    facts: Facts,
    verdict: Verdict,
}

/// How the sides stand so far.
fn standing(turns: &Turns) -> Standing {
    let all =
        |of: fn(&Measured) -> f64| by_side(|side| turns[side as usize].iter().map(of).collect());
    Standing::new(all(Measured::cost), all(Measured::time))
}

/// How the sides stand so far, in a line.
pub fn so_far(standing: &Standing) -> String {
    let gains = Side::ALL[2..].iter().map(|side| {
        let (cpu, time) = (standing.cpu_gain(*side), standing.time_gain(*side));
        format!("{} {cpu:.2} (time {time:.2})", side.name())
    });
    format!("gain over plain so far: {}", gains.collect::<Vec<_>>().join(", "))
}

/// The facts that tell cases apart, and uncopy's work in all turns.
pub fn facts(load: Option<&Load>, rehearsed: Option<Rehearsed>, turns: &Turns) -> Facts {
    let runs = &turns[Side::Uncopy as usize];
    let run = median(runs.iter().map(|turn| turn.cpu));
    Facts {
        standing: standing(turns),
        saved: runs.iter().map(|turn| counters::saved(&turn.counters)).sum(),
        worked: rehearsed.map_or(run, |of| f64::from(of.pace.learns) * run),
        learning_counts: rehearsed.is_none(),
        fixed_time: load.filter(|load| !load.counts()).and_then(|_| fixed_time(turns)),
    }
}

/// How long the loads took, in seconds, if they took long, and as long as each other.
fn fixed_time(turns: &Turns) -> Option<f64> {
    let [least, most] = extremes(turns.iter().flatten().map(|turn| turn.elapsed).collect());
    // (A load for a fixed time takes that and its own start.)
    (least > 0.5 && most - least < 0.05 && most < 1.02 * least).then_some(least)
}

impl<'a> Report<'a> {
    /// A report from the counted turns.
    pub fn new(
        program: &'a Program,
        load: Option<&'a Load>,
        rehearsed: Option<Rehearsed>,
        turns: &'a Turns,
    ) -> Self {
        let runs = &turns[Side::Uncopy as usize];
        let total = counters::sum(runs.iter().map(|turn| turn.counters));
        let did = Snapshot::from_values(total.iter().map(|(_, n)| n / runs.len().max(1) as u64));
        let facts = facts(load, rehearsed, turns);
        Self { load, program, turns, rehearsed, did, verdict: Verdict::of(&facts), facts }
    }

    fn costs(&self, side: Side) -> Vec<f64> {
        self.turns[side as usize].iter().map(Measured::cost).collect()
    }

    fn median(&self, side: Side) -> f64 {
        median(self.costs(side))
    }

    /// Rounds of all sides.
    fn counted(&self) -> usize {
        self.turns[0].len()
    }

    /// The sides that were in more rounds, in words.
    fn more_often(&self) -> String {
        let more = |side: &Side| self.turns[*side as usize].len() > self.counted();
        let times =
            |side: Side| format!("{} {} times", side.name(), self.turns[side as usize].len());
        let sides: Vec<String> = Side::ALL.into_iter().filter(more).map(times).collect();
        if sides.is_empty() { String::new() } else { format!(" ({})", sides.join(", ")) }
    }

    fn advice(&self) -> String {
        self.verdict.advice(&self.facts, &|side| self.start(side))
    }

    /// The words that start the program on a side.
    fn start(&self, side: Side) -> String {
        let words = words(&self.program.words);
        if side == Side::Kept {
            return format!("{TUNABLES}={KEEP} {words}");
        }
        let own = side.options();
        let given =
            self.program.options.iter().filter(|(name, _)| !own.iter().any(|(of, _)| of == name));
        let options = own
            .iter()
            .map(|(name, value)| format!("--{name}={value} "))
            .chain(given.map(|(name, value)| format!("--{name}={value} ")));
        format!("uncopy run {}-- {words}", options.collect::<String>())
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", printable(words(&self.program.words)));
        if let Some(load) = self.load {
            let _ = writeln!(text, "under: {}", printable(&load.text));
        }
        let _ = writeln!(text, "\n{}\n\n{}\n", printable(self.advice()), self.table());
        for sentence in [self.noise(), self.origin(), self.work(), self.measured()] {
            let _ = writeln!(text, "{sentence}");
        }
        let _ = writeln!(text, "\n{RULE}");
        if self.counted() < 3 {
            let _ = writeln!(
                text,
                "With so few rounds hardly any difference counts: more --rounds tell more."
            );
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        let cpu = match self.load {
            Some(load) if load.counts() => "CPU for 1 counted",
            Some(_) => "CPU, a load",
            None => "CPU, a run",
        };
        let standing = &self.facts.standing;
        table.load_style(units::TABLE_STYLE);
        table.set_header(["", cpu, "smallest to largest", "over plain", "time", "over plain"]);
        for side in Side::ALL {
            let [least, most] = extremes(self.costs(side));
            let elapsed = median(self.turns[side as usize].iter().map(|turn| turn.elapsed));
            let plain = matches!(side, Side::Plain | Side::Again);
            let of = |pair: Pair| if plain { String::new() } else { pair.words() };
            table.add_row([
                side.name().to_owned(),
                seconds(self.median(side)),
                format!("{} to {}", seconds(least), seconds(most)),
                of(standing.cpu(side, Side::Plain)),
                seconds(elapsed),
                of(standing.time(side, Side::Plain)),
            ]);
        }
        for column in 1..6 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// How sure it is.
    fn noise(&self) -> String {
        let plain = self.facts.standing.plain();
        format!(
            "The two plain sides differ by {:.1}%, all their turns spread over {:.1}% (of CPU).",
            plain.differ * 100.0,
            plain.spread * 100.0
        )
    }

    /// Where it comes from.
    fn origin(&self) -> String {
        let standing = &self.facts.standing;
        let part = |side, other| standing.cpu(side, other).words();
        format!(
            "Of uncopy's CPU: elision and sending by reference {}, against uncopy without them; \
             faster copies (--copies) {}, against uncopy's allocator alone; the allocator, which \
             recycles memory, {}, against plain.",
            part(Side::Uncopy, Side::NoElision),
            part(Side::NoElision, Side::Placed),
            part(Side::Placed, Side::Plain),
        )
    }

    /// The work that was done for it.
    fn work(&self) -> String {
        let did = &self.did;
        format!(
            "In a {} uncopy elided {} in {} copies, sent {} by reference in {} calls, and answered \
             {} page faults.",
            if self.load.is_some() { "load" } else { "run" },
            units::rough_size(did.elided_bytes as f64),
            units::grouped(did.elided_copies),
            units::rough_size(did.lent_bytes as f64),
            units::grouped(did.lent_sends),
            units::grouped(did.faults)
        )
    }

    /// The unit of a turn.
    fn measured(&self) -> String {
        let rounds = self.counted();
        let more = self.more_often();
        match &self.rehearsed {
            Some(of) => {
                let Pace { learns, counts } = of.pace;
                format!(
                    "Each side was started {rounds} times{more}; the load ran {learns} times to \
                     warm up, in which uncopy learns, and {counts} times that count."
                )
            }
            None => format!(
                "Each side ran {rounds} times that count{more}, from start to end: what uncopy \
                 needs to learn counts."
            ),
        }
    }

    /// The report for programs.
    pub fn json(&self) -> String {
        let standing = &self.facts.standing;
        let uncopy = standing.cpu(Side::Uncopy, Side::Plain);
        let sides: Vec<Value> = Side::ALL.iter().map(|side| self.side_json(*side)).collect();
        let did: serde_json::Map<String, Value> =
            self.did.iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
        let options: BTreeMap<_, _> = self.program.options.iter().copied().collect();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.program.words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>(),
            "options": options,
            "load": self.load.map(|load| &load.text),
            "counted_rounds": self.counted(),
            "work_counted": self.load.is_some_and(Load::counts),
            "sides": sides,
            "loads_to_learn": self.rehearsed.map(|of| of.pace.learns),
            "loads_counted": self.rehearsed.map(|of| of.pace.counts),
            "learnt": self.rehearsed.map(|of| of.learnt),
            "plain_differ": round(standing.plain().differ, 4),
            "plain_spread": round(standing.plain().spread, 4),
            "seen_from": uncopy.seen_from().map(|part| round(part, 4)),
            "gain": round(standing.cpu_gain(Side::Uncopy), 4),
            "gain_in_time": round(standing.time_gain(Side::Uncopy), 4),
            "gain_by": {
                "elision": round(standing.cpu(Side::Uncopy, Side::NoElision).ratio(), 4),
                "copies": round(standing.cpu(Side::NoElision, Side::Placed).ratio(), 4),
                "allocator": round(standing.cpu_gain(Side::Placed), 4),
            },
            "counters_per_run": did,
            "verdict": self.verdict.name(),
            "recommended": self.verdict.side().name(),
            "or": self.verdict.other().map(Side::name),
            "advice": self.advice(),
        });
        format!("{}\n", printable::json(&report))
    }

    fn side_json(&self, side: Side) -> Value {
        let turns = &self.turns[side as usize];
        let [least, most] = extremes(self.costs(side));
        let standing = &self.facts.standing;
        let range = |pair: Pair| pair.range().map(|of| of.map(|ratio| round(ratio, 4)));
        json!({
            "name": side.name(),
            "cpu_s": turns.iter().map(|turn| turn.cpu).collect::<Vec<_>>(),
            "elapsed_s": turns.iter().map(|turn| turn.elapsed).collect::<Vec<_>>(),
            "count": turns.iter().map(|turn| turn.count).collect::<Vec<_>>(),
            "median": self.median(side),
            "smallest": least,
            "largest": most,
            "gain": round(standing.cpu_gain(side), 4),
            "gain_range": range(standing.cpu(side, Side::Plain)),
            "gain_in_time": round(standing.time_gain(side), 4),
            "gain_in_time_range": range(standing.time(side, Side::Plain)),
        })
    }
}

/// The smallest and the largest, in seconds.
fn extremes(values: Vec<f64>) -> [f64; 2] {
    const NANOSECONDS: i32 = 9;
    spread(values, NANOSECONDS)
}

/// Three digits of a time, in the unit that suits it.
fn seconds(value: f64) -> String {
    let (number, unit) = match value {
        v if v >= 1.0 => (v, "s"),
        v if v >= 1e-3 => (v * 1e3, "ms"),
        v => (v * 1e6, "us"),
    };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

/// A command line as a shell would take it, as far as words without quotes go.
fn words(all: &[OsString]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    let word = |word: &OsString| {
        let text = word.to_string_lossy();
        if !text.is_empty() && text.chars().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    all.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        assert_eq!(seconds(1.234), "1.23 s");
        assert_eq!(seconds(0.0456), "45.6 ms");
        assert_eq!(seconds(0.000_789), "789 us");
        assert_eq!(seconds(0.0), "0.00 us");
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        let all = ["sh", "-c", "it's", ""].map(OsString::from);
        assert_eq!(words(&all), r"sh -c 'it'\''s' ''");
    }
}
