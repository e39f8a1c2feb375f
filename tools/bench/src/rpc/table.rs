//! The table of rows of `uncopy-bench rpc`, for people.

use comfy_table::{CellAlignment, Table};
use uncopy_measure::machine::Machine;
use uncopy_measure::units;

use super::args::RpcArgs;
use super::choices::{Api, Way, Wire};
use super::rows::{Compared, Limit, Measured, Ratios, Row, RpcFigures};
use super::smc;

/// From so many connections on their memory is more than the programs' own.
const MANY: usize = 1000;

/// A row as the table has it.
pub struct Line<'a> {
    first: Vec<String>,
    linux: &'a RpcFigures,
    again: &'a Compared,
    uncopy: &'a RpcFigures,
    ratios: &'a Ratios,
    last: Vec<String>,
}

impl<'a> Line<'a> {
    /// The rows, the measured columns at the beginning; at the end `last`, each of Linux and of
    /// uncopy.
    pub fn of<P, B, const N: usize>(
        row: &'a Row<P, B>,
        first: Vec<String>,
        last: impl Fn(&Measured<B>) -> [String; N],
    ) -> Self {
        let [linux, uncopy] = [&row.linux, &row.uncopy].map(last);
        Self {
            first,
            linux: &row.linux.numbers,
            again: &row.again,
            uncopy: &row.uncopy.numbers,
            ratios: &row.ratios,
            last: linux.into_iter().zip(uncopy).flat_map(<[String; 2]>::from).collect(),
        }
    }
}

/// A table of both sides, with columns of its own at its beginning and its end; times are
/// microseconds.
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
        let both = |of: fn(&RpcFigures) -> f64| [line.linux, line.uncopy].map(of);
        let rate = both(|n| n.rpc_per_s).map(|n| units::grouped(n as u64));
        let cpu = both(|n| n.cpu_us_per_rpc).map(|n| format!("{n:.2}"));
        // (Requests that nobody answers have none.)
        let latency = |us: f64| if us > 0.0 { format!("{us:.1}") } else { "-".to_owned() };
        let [p50, p99] = [both(|n| n.p50_us), both(|n| n.p99_us)].map(|two| two.map(latency));
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
    let lines = rows.iter().map(|row| {
        let of = &row.of;
        let first = vec![
            units::grouped(of.connections as u64),
            units::size(of.size as u64),
            units::grouped(of.work),
            of.wait.name().into(),
        ];
        Line::of(row, first, |side| {
            [match of.connections {
                MANY.. => units::grouped(side.numbers.memory_per_connection as u64),
                _ => "-".into(),
            }]
        })
    });
    compared(&["conns", "size", "work", "wait"], lines.collect(), &["B/conn\nLinux", "\nuncopy"])
}

/// Where nobody answers: of how many rows the client was what limits.
fn by_the_client(rows: &[Row]) -> String {
    /// Less waiting of the client's, and the server waits for it.
    const WAITED: f64 = 0.1;
    let share = |side: &Measured<Limit>| side.besides.waited_share;
    let limited = |row: &&Row| {
        [share(&row.linux), share(&row.uncopy)].into_iter().flatten().any(|share| share < WAITED)
    };
    match rows.iter().filter(limited).count() {
        0 => String::new(),
        n => format!(
            " In {n} of {} rows the client hardly waited on one side: it is what limits there, and \
             not receiving.",
            rows.len()
        ),
    }
}

/// The meaning of the columns, how it was measured, and on what.
pub fn notes(args: &RpcArgs, rows: &[Row]) -> String {
    let calls = match args.pairs.api {
        Api::Sockets => {
            "Both programs are ordinary ones, with libuncopy.so in front and UNCOPY_TCP=yes on \
             uncopy's side."
        }
        Api::Rings => "On uncopy's side both programs call the socket library themselves.",
        Api::Lanes => "",
    };
    let calls = match args.wire {
        Wire::Shared => calls,
        Wire::Xdp => {
            "Both sides: the programs are in network namespaces with a veth pair between them. On \
             uncopy's side they are\n\
             applications of lanes, which run in them, over AF_XDP; on Linux' side they call \
             libc's sockets, with SO_BUSY_POLL where they spin."
        }
        Wire::Tap => {
            "Both sides: the programs are in network namespaces, with a veth pair between two \
             bridges. On uncopy's side they are\n\
             applications of lanes, which run in them, each over a TAP device on its bridge; on \
             Linux' side they call libc's sockets, and the\n\
             bridges have their addresses."
        }
    };
    let pipeline = match args.pipeline {
        1 => String::new(),
        n => format!(" {n} requests are sent at once, and answered before the next."),
    };
    let way = match args.way {
        Way::Both => "",
        Way::In => {
            " Nobody answers: the server only receives, and compares. The client sends as many in \
             a call as fit."
        }
        Way::Out => " Nobody answers: the server only sends, and the client compares.",
    };
    let smc = match args.wire {
        Wire::Shared => smc::words() + "\n",
        Wire::Xdp | Wire::Tap => String::new(),
    };
    let limited = by_the_client(rows);
    let without = if args.only_uncopy { " Linux' side was left out." } else { "" };
    format!(
        "Medians of {} times fresh pairs of processes, {} s each in short turns after {} s of \
         load. {calls}{pipeline}{way}{limited}{without}\n\
         Ratios: above 1 is a gain. again: a second pair over Linux, whose difference is noise. \
         CPU: user and system time of\n\
         both processes, and of uncopy's service, us for an RPC. Where both spin, each has a core \
         of its own, and calls on Linux' side do not wait. work: cycles\n\
         of the server for each. B/conn: memory of both programs, from 1,000 connections on; the \
         kernel's is not in it.\n\
         {smc}Processor: {}. All {} answers were compared, and right.\n",
        args.pairs.repeats,
        args.pairs.seconds.as_secs_f64(),
        args.pairs.warmup.as_secs_f64(),
        Machine::own().cpu,
        units::grouped(rows.iter().map(|row| row.verified).sum()),
    )
}
