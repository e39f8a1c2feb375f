//! The answer as text and as JSON.

use std::ffi::OsString;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};
use uncopy_counters::Snapshot;
use uncopy_measure::medians::{median, quotient, round, spread};
use uncopy_measure::printable::{self, printable};
use uncopy_measure::units;

use super::compare::{Plain, RULE};
use super::counters;
use super::load::Load;
use super::sides::{Program, Side};
use super::turn::Measured;
use super::verdict::{Facts, Verdict};

type Turns = [Vec<Measured>; Side::ALL.len()];

/// Everything.
pub struct Report<'a> {
    load: Option<&'a Load>,
    program: &'a Program,
    turns: &'a Turns,
    plain: Plain,
    /// What uncopy did in a turn, on the average.
    did: Snapshot,
    facts: Facts,
    verdict: Verdict,
}

impl<'a> Report<'a> {
    /// From the counted turns.
    pub fn new(program: &'a Program, load: Option<&'a Load>, turns: &'a Turns) -> Self {
        let costs = |side| costs(turns, side);
        let plain = Plain::new(&costs(Side::Plain), &costs(Side::Again));
        let (uncopy, kept) = (costs(Side::Uncopy), costs(Side::Kept));
        let runs = &turns[Side::Uncopy as usize];
        let total = counters::sum(runs.iter().map(|turn| turn.counters));
        let did = Snapshot::from_values(total.iter().map(|(_, n)| n / runs.len().max(1) as u64));
        let part = |side: &[f64]| quotient(median(side.iter().copied()), plain.median);
        let facts = Facts {
            uncopy: plain.compare(&uncopy, &plain.turns),
            kept: plain.compare(&kept, &plain.turns),
            beyond: plain.compare(&uncopy, &kept),
            parts: [part(&uncopy), part(&kept)],
            saved: counters::saved(&total),
            spread: plain.spread,
        };
        Self { load, program, turns, plain, did, facts, verdict: Verdict::of(&facts) }
    }

    fn costs(&self, side: Side) -> Vec<f64> {
        costs(self.turns, side)
    }

    fn median(&self, side: Side) -> f64 {
        median(self.costs(side))
    }

    /// A side's CPU as a part of another's.
    fn over(&self, side: Side, other: Side) -> f64 {
        quotient(self.median(side), self.median(other))
    }

    /// A side's CPU as a part of what both plain sides need.
    fn part(&self, side: Side) -> f64 {
        quotient(self.median(side), self.plain.median)
    }

    fn counted(&self) -> usize {
        self.turns[0].len()
    }

    fn advice(&self) -> String {
        let options = self.program.options.iter().map(|(name, value)| format!("--{name}={value} "));
        let words = words(&self.program.words);
        let start = format!("uncopy run {}-- {words}", options.collect::<String>());
        self.verdict.advice(&self.facts, &start)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", printable(words(&self.program.words)));
        if let Some(load) = self.load {
            let _ = writeln!(text, "under: {}", printable(&load.text));
        }
        let _ = writeln!(text, "\n{}\n", self.table());
        for sentence in [self.gain(), self.origin(), self.deeds()] {
            let _ = writeln!(text, "{sentence}");
        }
        let _ = writeln!(text, "\n{}\n\n{RULE}", printable(self.advice()));
        if self.counted() < 3 {
            let _ =
                writeln!(text, "With so few turns it happens by chance: more --rounds are surer.");
        }
        text
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        let counts = self.load.is_some_and(Load::counts);
        let cpu = if counts { "CPU for 1 counted" } else { "CPU, a run" };
        table.load_style(units::TABLE_STYLE);
        table.set_header(["", cpu, "smallest to largest", "of plain", "elapsed"]);
        for side in Side::ALL {
            let [least, most] = extremes(self.costs(side));
            let elapsed = median(self.turns[side as usize].iter().map(|turn| turn.elapsed));
            table.add_row([
                side.name().to_owned(),
                seconds(self.median(side)),
                format!("{} to {}", seconds(least), seconds(most)),
                format!("{:.2}", self.part(side)),
                seconds(elapsed),
            ]);
        }
        for column in 1..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// How much, and how sure that is.
    fn gain(&self) -> String {
        let part = self.part(Side::Uncopy);
        let times = if part < 1.0 { quotient(1.0, part) } else { part };
        let direction = if part < 1.0 { "less" } else { "more" };
        format!(
            "uncopy needs {part:.2} of plain's CPU ({times:.2} times {direction}); the two plain sides differ by \
             {:.1}%, all their turns spread over {:.1}%.",
            self.plain.differ * 100.0,
            self.plain.spread * 100.0
        )
    }

    /// Where it comes from.
    fn origin(&self) -> String {
        format!(
            "Of that, elision and sending by reference: {:.2} (uncopy over uncopy without elision); faster copies \
             (--copies): {:.2} (that over uncopy's allocator alone); the allocator, which recycles memory: {:.2} (over plain). \
             With memory kept by glibc itself: {:.2}.",
            self.over(Side::Uncopy, Side::NoElision),
            self.over(Side::NoElision, Side::Placed),
            self.part(Side::Placed),
            self.part(Side::Kept)
        )
    }

    /// What was done for it.
    fn deeds(&self) -> String {
        let did = &self.did;
        format!(
            "In a run uncopy elided {} in {} copies, sent {} by reference in {} calls, and answered {} page faults.",
            units::rough_size(did.elided_bytes as f64),
            units::grouped(did.elided_copies),
            units::rough_size(did.lent_bytes as f64),
            units::grouped(did.lent_sends),
            units::grouped(did.faults)
        )
    }

    /// For programs.
    pub fn json(&self) -> String {
        let sides: Vec<Value> = Side::ALL.iter().map(|side| self.side_json(*side)).collect();
        let did: serde_json::Map<String, Value> =
            self.did.iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.program.words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>(),
            "options": self.program.options.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
            "load": self.load.map(|load| &load.text),
            "counted_rounds": self.counted(),
            "work_counted": self.load.is_some_and(Load::counts),
            "sides": sides,
            "plain_differ": round(self.plain.differ, 4),
            "plain_spread": round(self.plain.spread, 4),
            "uncopy_of_plain": round(self.part(Side::Uncopy), 4),
            "elision": round(self.over(Side::Uncopy, Side::NoElision), 4),
            "copies": round(self.over(Side::NoElision, Side::Placed), 4),
            "allocator": round(self.part(Side::Placed), 4),
            "memory_kept": round(self.part(Side::Kept), 4),
            "counters_per_run": did,
            "verdict": self.verdict.name(),
            "advice": self.advice(),
        });
        format!("{}\n", printable::json(&report))
    }

    fn side_json(&self, side: Side) -> Value {
        let turns = &self.turns[side as usize];
        let [least, most] = extremes(self.costs(side));
        json!({
            "name": side.name(),
            "cpu_s": turns.iter().map(|turn| turn.cpu).collect::<Vec<_>>(),
            "elapsed_s": turns.iter().map(|turn| turn.elapsed).collect::<Vec<_>>(),
            "count": turns.iter().map(|turn| turn.count).collect::<Vec<_>>(),
            "median": self.median(side),
            "smallest": least,
            "largest": most,
            "of_plain": round(self.part(side), 4),
        })
    }
}

fn costs(turns: &Turns, side: Side) -> Vec<f64> {
    turns[side as usize].iter().map(Measured::cost).collect()
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
