//! What people read of rows of `bench rpc`.

use comfy_table::{CellAlignment, Table};

use super::args::{Api, RpcArgs};
use super::rows::{Compared, Numbers, Ratios, Row};
use crate::doctor::machine::Machine;
use crate::units;

/// A row as the table has it.
pub struct Line<'a> {
    /// What was measured.
    pub first: Vec<String>,
    /// Over Linux.
    pub linux: &'a Numbers,
    /// The same once more.
    pub again: &'a Compared,
    /// Under uncopy.
    pub uncopy: &'a Numbers,
    /// Both.
    pub ratios: &'a Ratios,
    /// What else was measured, of Linux and uncopy in turns.
    pub last: Vec<String>,
}

/// A table of both sides, with columns of its own at its beginning and its end; times are microseconds.
pub fn compared(first: &[&str], lines: Vec<Line>, last: &[&str]) -> Table {
    const HEADER: [&str; 12] = [
        "RPC/s\nLinux",
        "\nuncopy",
        "over Linux\nagain",
        "\nuncopy",
        "CPU/RPC\nLinux",
        "\nuncopy",
        "Linux over\nagain",
        "\nuncopy",
        "p50\nLinux",
        "\nuncopy",
        "p99\nLinux",
        "\nuncopy",
    ];
    let mut table = Table::new();
    table
        .load_style(units::TABLE_STYLE)
        .set_header(first.iter().chain(&HEADER).chain(last).copied());
    for line in lines {
        let both = |of: fn(&Numbers) -> f64| [line.linux, line.uncopy].map(of);
        let rate = both(|n| n.rpc_per_s).map(|n| units::grouped(n as u64));
        let cpu = both(|n| n.cpu_us_per_rpc).map(|n| format!("{n:.2}"));
        let [p50, p99] =
            [both(|n| n.p50_us), both(|n| n.p99_us)].map(|two| two.map(|n| format!("{n:.1}")));
        let ratios = [line.again.ratio, line.ratios.ratio].map(|n| format!("{n:.2}"));
        let cpu_ratios = [line.again.cpu_ratio, line.ratios.cpu_ratio].map(|n| format!("{n:.2}"));
        let middle = [rate, ratios, cpu, cpu_ratios, p50, p99].into_iter().flatten();
        table.add_row(line.first.into_iter().chain(middle).chain(line.last));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    table
}

/// One line for each row.
pub fn table(rows: &[Row]) -> Table {
    let lines = rows.iter().map(|row| Line {
        first: vec![
            units::grouped(row.connections as u64),
            units::size(row.size as u64),
            row.wait.name().into(),
        ],
        linux: &row.linux,
        again: &row.again,
        uncopy: &row.uncopy,
        ratios: &row.ratios,
        last: vec![],
    });
    compared(&["conns", "size", "wait"], lines.collect(), &[])
}

/// What the columns are, how it was measured, and on what.
pub fn notes(args: &RpcArgs, rows: &[Row]) -> String {
    let calls = match args.api {
        Api::Sockets => {
            "Both programs are ordinary ones, with libuncopy.so in front and UNCOPY_TCP=yes on uncopy's side."
        }
        Api::Rings => "On uncopy's side both programs call the socket library themselves.",
    };
    let pipeline = match args.pipeline {
        1 => String::new(),
        n => format!(" {n} requests are sent at once, and answered before the next."),
    };
    format!(
        "Medians of {} times fresh pairs of processes, {} s each in short turns after {} s of load. {calls}{pipeline}\n\
         Ratios: above 1 is a gain. again: a second pair over Linux, whose difference is noise. CPU: user and system time of\n\
         both processes, us for an RPC. Where both spin, each has a core of its own, and calls on Linux' side do not wait.\n\
         Processor: {}. All {} answers were compared, and right.\n",
        args.repeats,
        args.seconds.as_secs_f64(),
        args.warmup.as_secs_f64(),
        Machine::own().cpu,
        units::grouped(rows.iter().map(|row| row.verified).sum()),
    )
}
