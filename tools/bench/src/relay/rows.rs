//! Rows of `uncopy-bench relay`, and what people read of them.

use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};
use uncopy_measure::machine::Machine;
use uncopy_measure::medians::{median, quotient, round};
use uncopy_measure::units;

use super::args::RelayArgs;
use super::chain::{Of, Sample};
use super::plan::{Touch, Way};

/// The result of one side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RelayFigures {
    /// Which.
    pub way: Way,
    /// Messages a second.
    pub per_s: f64,
    /// Processor time of all programs for a message.
    pub cpu_us: f64,
}

/// A combination of parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Relays.
    pub hops: usize,
    /// Bytes of a message.
    pub size: usize,
    /// The bytes that the sink looks at.
    pub touch: Touch,
    /// Copies that each relay makes of a message.
    pub copies: usize,
    /// Medians.
    pub sides: Vec<RelayFigures>,
    /// Messages of all sides that came to the sink.
    pub messages: u64,
}

impl Row {
    fn of(&self, way: Way) -> RelayFigures {
        let found = self.sides.iter().find(|side| side.way == way).copied();
        found.unwrap_or(RelayFigures { way, per_s: 0.0, cpu_us: 0.0 })
    }
}

/// The results of all repeats.
#[derive(Default)]
pub struct Samples(Vec<Sample>);

impl Samples {
    /// One more.
    pub fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Medians.
    pub fn row(&self, of: &Of) -> Row {
        let side = |way: Way| {
            let its = |what: fn(&Sample) -> f64| {
                let samples = self.0.iter().filter(|sample| sample.way == way);
                round(median(samples.map(what)), 2)
            };
            RelayFigures {
                way,
                per_s: its(|sample| sample.per_s),
                cpu_us: its(|sample| sample.cpu_us),
            }
        };
        Row {
            hops: of.hops,
            size: of.size,
            touch: of.touch,
            copies: of.copies,
            sides: Way::ALL.map(side).to_vec(),
            messages: self.0.iter().map(|sample| sample.messages).sum(),
        }
    }
}

/// One line for each row; times are microseconds.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "size",
        "touch",
        "hops",
        "copies",
        "CPU\nLinux",
        "\nrings",
        "\nby copy",
        "\nuncopy",
        "over Linux\nagain",
        "\nrings",
        "\nby copy",
        "\nuncopy",
        "over rings\nuncopy",
        "over copied\nuncopy",
        "a second\nLinux",
        "\nrings",
        "\nby copy",
        "\nuncopy",
    ]);
    for row in rows {
        let [linux, rings, again, copied, uncopy] = Way::ALL.map(|way| row.of(way));
        let ratio =
            |a: RelayFigures, b: RelayFigures| format!("{:.2}", quotient(a.cpu_us, b.cpu_us));
        let cpu = [linux, rings, copied, uncopy].map(|side| format!("{:.2}", side.cpu_us));
        let per_s = [linux, rings, copied, uncopy].map(|side| units::grouped(side.per_s as u64));
        let first = [
            units::size(row.size as u64),
            row.touch.name().to_owned(),
            row.hops.to_string(),
            row.copies.to_string(),
        ];
        let others = [(again, linux), (rings, linux), (copied, linux), (uncopy, linux)];
        let ratios = others.into_iter().chain([(uncopy, rings), (uncopy, copied)]);
        let ratios = ratios.map(|(a, b)| ratio(a, b));
        table.add_row(first.into_iter().chain(cpu).chain(ratios).chain(per_s));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    table
}

/// The meaning of the columns, how it was measured, and on what.
pub fn notes(args: &RelayArgs, rows: &[Row]) -> String {
    format!(
        "CPU: user and system time of all programs for a message, us. rings: --tcp --elide=no; by \
         copy: --tcp\n\
         --tcp-references=no; uncopy: --tcp --tcp-references=yes. A ratio below 1 is a gain. \
         again: a second chain over Linux,\n\
         whose difference is noise. touch: which of the messages' bytes the sink looks at, and \
         compares: all, or those of one\n\
         message in 256. copies: those that each relay makes of a message. Medians of {} times \
         fresh chains of processes, {} s\n\
         each in short turns after {} s of load. Processor: {}. {} messages came, and no byte was \
         wrong.\n",
        args.repeats,
        args.seconds.as_secs_f64(),
        args.warmup.as_secs_f64(),
        Machine::own().cpu,
        units::grouped(rows.iter().map(|row| row.messages).sum()),
    )
}
