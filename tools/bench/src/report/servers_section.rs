//! The gains and the losses: the first table of a report, and the README's.

use uncopy_measure::side::Side;
use uncopy_measure::units;

use super::noise;
use super::section::{Section, Table};
use super::servers::{ServerNumbers, ServerResults, ServerRow};

/// As many connections as the table for readers has: neither a ping-pong nor a crowd.
const SHOWN: usize = 4;

/// The section: every row.
pub fn section(results: &ServerResults) -> Section {
    let header = [
        "what",
        "server",
        "size",
        "connections",
        "plain CPU µs",
        "CPU: plain again",
        "memory kept",
        "uncopy's allocator alone",
        "uncopy without elision",
        "uncopy",
        "middle half",
        "faster copies' own",
        "elision's own",
        "congestion control",
        "the switch to Reno's own",
        "uncopy, the same on both sides",
        "plain req/s",
        "rate: plain again",
        "uncopy",
        "p99 µs: plain",
        "plain again",
        "uncopy",
        "turns",
    ];
    Section {
        name: "servers",
        title: "What gains, and what does not",
        text: "Servers as they are installed, fresh processes side by side on one core, in turns; \
            the load is on another core. CPU is the server’s for a request, plain over the \
            column’s: above 1 is a gain. A second plain process shows the noise. Memory kept: \
            plain, with glibc told not to give memory back. Allocator alone: uncopy with nothing \
            elided or sent by reference, and libc’s copies. Without elision: the same with faster \
            copies (--copies), whose own gain is that over the allocator alone. Elision’s own gain \
            is uncopy over uncopy without it. Where BBR is the congestion control, uncopy sets \
            Reno for its listeners on loopback: what that brings by itself is plain over a plain \
            server with Reno, and what uncopy gains with the same on both sides the latter over \
            uncopy. Every answer is compared byte by byte before and after the turns."
            .to_owned(),
        plots: Vec::new(),
        facts: Vec::new(),
        table: Table::new(&header, results.rows.iter().map(cells).collect()),
        command: results.command.clone().unwrap_or_else(|| "bench/apps/all.py".to_owned()),
    }
}

/// The cells of a row.
fn cells(row: &ServerRow) -> Vec<String> {
    let cpu = |side| ratio(row, side);
    let of = |side, pick: fn(&ServerNumbers) -> f64| row.sides.get(&side).map_or(0.0, pick);
    let [low, high] = row.sides.get(&Side::Uncopy).map_or([0.0; 2], |side| side.cpu_spread);
    vec![
        row.words.clone(),
        named(row),
        units::size(row.size as u64),
        row.connections.to_string(),
        format!("{:.1}", of(Side::Plain, |side| side.cpu_us)),
        cpu(Side::Again),
        cpu(Side::Kept),
        cpu(Side::Placed),
        cpu(Side::NoElision),
        cpu(Side::Uncopy),
        format!("{low:.2} to {high:.2}"),
        known(row.copies_cpu),
        format!("{:.2}", row.elision_cpu),
        row.congestion.clone().unwrap_or_else(|| "–".to_owned()),
        known(row.switch_cpu),
        known(row.same_cpu),
        units::grouped(of(Side::Plain, |side| side.per_s) as u64),
        format!("{:.2}", of(Side::Again, |side| side.rate_ratio)),
        format!("{:.2}", of(Side::Uncopy, |side| side.rate_ratio)),
        units::grouped(of(Side::Plain, |side| side.p99_us) as u64),
        units::grouped(of(Side::Again, |side| side.p99_us) as u64),
        units::grouped(of(Side::Uncopy, |side| side.p99_us) as u64),
        row.turns.to_string(),
    ]
}

/// The server, and the options that uncopy got.
fn named(row: &ServerRow) -> String {
    if row.options.is_empty() {
        return row.name.clone();
    }
    format!("{} ({})", row.name, row.options.join(" "))
}

fn ratio(row: &ServerRow, side: Side) -> String {
    known(row.sides.get(&side).map(|side| side.cpu_ratio))
}

/// The time within which 99 of 100 requests are answered, plain over the side.
fn late(row: &ServerRow, side: Side) -> String {
    let p99 = |side| row.sides.get(&side).map(|side| side.p99_us).filter(|us| *us > 0.0);
    known(p99(Side::Plain).zip(p99(side)).map(|(plain, other)| plain / other))
}

/// A ratio that older results do not have.
fn known(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// The part that a reader sees first.
#[derive(Debug)]
pub struct Summary {
    /// The run that its rows are of.
    pub run: String,
    /// One line for each kind of server.
    pub gains: Table,
    /// The same in three columns, of the largest size.
    pub short: Table,
    /// How much of that is noise.
    pub noise: Table,
}

/// All of it. `machine`: that of older rows, which do not name it.
pub fn summary(machine: &str, results: &ServerResults) -> Summary {
    Summary {
        run: results.of_one_run(machine),
        gains: gains(results),
        short: short(results),
        noise: noise::table(results),
    }
}

/// A kind of server.
struct Kind<'a> {
    words: &'a str,
    name: &'a str,
    /// The congestion control under which it was measured. (Older results do not say.)
    control: Option<&'a str>,
}

impl<'a> Kind<'a> {
    /// Its row of this size, as readers are shown it.
    fn row(&self, results: &'a ServerResults, size: usize) -> Option<&'a ServerRow> {
        let is =
            |row: &&ServerRow| row.name == self.name && row.congestion.as_deref() == self.control;
        let shown = |row: &&ServerRow| row.size == size && row.connections == SHOWN;
        results.rows.iter().filter(is).find(shown)
    }

    fn named(&self, row: &ServerRow) -> String {
        let under = self.control.map_or_else(String::new, |control| format!(", {control}"));
        format!("{}: {}{under}", self.words, named(row))
    }
}

/// Of each kind of server the first, under each congestion control, in their order.
fn kinds(results: &ServerResults) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind> = Vec::new();
    for row in &results.rows {
        let control = row.congestion.as_deref();
        let has = |kind: &Kind| {
            kind.words == row.words && (kind.name != row.name || kind.control == control)
        };
        if !kinds.iter().any(has) {
            kinds.push(Kind { words: &row.words, name: &row.name, control });
        }
    }
    kinds
}

/// A column's name, and what a row has there.
type Column = (&'static str, fn(&ServerRow) -> Option<f64>);

/// The gain of a switch of the congestion control, and uncopy with the same on both sides.
const CONTROLLED: [Column; 2] = [
    ("the switch to Reno's own", |row| row.switch_cpu),
    ("the same congestion control", |row| row.same_cpu),
];

/// These columns: none, where no row has them.
fn controlled(results: &ServerResults) -> &'static [Column] {
    let any = results.rows.iter().any(|row| row.congestion.is_some());
    if any { &CONTROLLED } else { &[] }
}

/// The gain of 1 MB, and how much of it is elision's.
fn short(results: &ServerResults) -> Table {
    let controlled = controlled(results);
    let rows = kinds(results).into_iter().filter_map(|kind| {
        let row = kind.row(results, 1 << 20)?;
        let gain = format!("**{}** ({})", ratio(row, Side::Uncopy), ratio(row, Side::Again));
        let late = format!("{} ({})", late(row, Side::Uncopy), late(row, Side::Again));
        let mut cells = vec![kind.named(row), gain, format!("{:.2}", row.elision_cpu), late];
        cells.extend(controlled.iter().map(|(_, of)| known(of(row))));
        Some(cells)
    });
    let mut header = vec![
        "server, answers or uploads of 1 MB",
        "gain (noise)",
        "elision's own",
        "99th percentile (noise)",
    ];
    header.extend(controlled.iter().map(|(name, _)| *name));
    Table::new(&header, rows.collect())
}

fn gains(results: &ServerResults) -> Table {
    let sizes = results.sizes();
    let columns = sizes.iter().map(|(_, name)| format!("{name} (noise)"));
    let columns: Vec<String> = columns.collect();
    let mut header = vec!["what"];
    header.extend(columns.iter().map(String::as_str));
    header.extend(["of it: memory kept", "placed", "copied faster", "elision's own"]);
    let controlled = controlled(results);
    header.extend(controlled.iter().map(|(name, _)| *name));
    let rows = kinds(results).into_iter().filter_map(|kind| {
        let at = |size: usize| kind.row(results, size);
        let large = at(1 << 20);
        let any = sizes.iter().find_map(|(size, _)| at(*size))?;
        let of =
            |row: Option<&ServerRow>, side| row.map_or_else(|| "–".into(), |row| ratio(row, side));
        let gain = |row| format!("**{}** ({})", of(row, Side::Uncopy), of(row, Side::Again));
        let mut cells = vec![kind.named(any)];
        cells.extend(sizes.iter().map(|(size, _)| gain(at(*size))));
        cells.extend([
            of(large, Side::Kept),
            of(large, Side::Placed),
            known(large.and_then(|row| row.copies_cpu)),
            known(large.map(|row| row.elision_cpu)),
        ]);
        cells.extend(controlled.iter().map(|(_, of)| known(large.and_then(of))));
        Some(cells)
    });
    Table::new(&header, rows.collect())
}
