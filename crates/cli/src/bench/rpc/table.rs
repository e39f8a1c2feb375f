//! What people read of rows of `bench rpc`.

use comfy_table::{CellAlignment, Table};

use super::args::{Api, RpcArgs, Wire};
use super::rows::{Numbers, Row};
use crate::doctor::machine::Machine;
use crate::units;

/// One line for each row; times are microseconds.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "conns",
        "size",
        "wait",
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
    ]);
    for row in rows {
        let both = |of: fn(&Numbers) -> f64| [&row.linux, &row.uncopy].map(of);
        let rate = both(|n| n.rpc_per_s).map(|n| units::grouped(n as u64));
        let cpu = both(|n| n.cpu_us_per_rpc).map(|n| format!("{n:.2}"));
        let [p50, p99] =
            [both(|n| n.p50_us), both(|n| n.p99_us)].map(|two| two.map(|n| format!("{n:.1}")));
        let ratios = [row.again.ratio, row.ratio].map(|n| format!("{n:.2}"));
        let cpu_ratios = [row.again.cpu_ratio, row.cpu_ratio].map(|n| format!("{n:.2}"));
        let first = [
            units::grouped(row.connections as u64),
            units::size(row.size as u64),
            row.wait.name().into(),
        ];
        table.add_row(
            first
                .into_iter()
                .chain([rate, ratios, cpu, cpu_ratios, p50, p99].into_iter().flatten()),
        );
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    table
}

/// What the columns are, how it was measured, and on what.
pub fn notes(args: &RpcArgs, rows: &[Row]) -> String {
    let calls = match args.api {
        Api::Sockets => {
            "Both programs are ordinary ones, with libuncopy.so in front and UNCOPY_TCP=yes on uncopy's side."
        }
        Api::Rings => "On uncopy's side both programs call the socket library themselves.",
        Api::Lanes => "",
    };
    let calls = match args.wire {
        Wire::Shared => calls,
        Wire::Xdp => {
            "Both sides: the programs are in network namespaces with a veth pair between them. On uncopy's side they are\n\
             applications of lanes, which run in them, over AF_XDP; on Linux' side they call libc's sockets, with SO_BUSY_POLL where they spin."
        }
        Wire::Tap => {
            "Both sides: the programs are in network namespaces, with a veth pair between two bridges. On uncopy's side they are\n\
             applications of lanes, which run in them, each over a TAP device on its bridge; on Linux' side they call libc's sockets, and the\n\
             bridges have their addresses."
        }
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
