//! The table of rows of `uncopy-bench short`, for people.

use comfy_table::Table;
use uncopy_measure::units;

use super::args::ShortArgs;
use super::rows::Row;
use crate::rpc::table::{Line, compared};

/// One line for each row; times are microseconds.
pub fn table(rows: &[Row]) -> Table {
    let lines = rows.iter().map(|row| {
        let of = &row.of;
        let first = vec![
            units::grouped(of.rpcs as u64),
            units::grouped(of.connections as u64),
            of.wait.name().into(),
        ];
        Line::of(row, first, |side| {
            [side.besides.connect_p50_us.map_or_else(|| "-".into(), |us| format!("{us:.1}"))]
        })
    });
    compared(&["RPCs", "conns", "wait"], lines.collect(), &["connect\nLinux", "\nuncopy"])
}

/// The meaning of the columns, how it was measured, and on what.
pub fn notes(args: &ShortArgs, rows: &[Row]) -> String {
    let connections: u64 =
        rows.iter().map(|row| row.linux.besides.connections + row.uncopy.besides.connections).sum();
    format!(
        "RPCs: requests of {} bytes, one after the other, after which a connection is closed and \
         made anew. A connection\n\
         is Linux' until it has been used a few times. connect: median time until it is there, us. \
         {} were made and ended.\n{}",
        units::size(args.size as u64),
        units::grouped(connections),
        args.pairs.notes(rows.iter().map(|row| row.verified).sum()),
    )
}

/// A table of fixed rows.
#[cfg(test)]
pub fn screen() -> String {
    use super::rows::{Connections, Parameters};
    use crate::rpc::choices::{Api, Wait};
    use crate::rpc::rows::fixed;
    let row = |rpcs: usize, connect_p50_us: Option<f64>, factor: f64| {
        let (connections, size, wait, api) = (1024, 64, Wait::Sleep, Api::Sockets);
        let of = Parameters { rpcs, connections, size, wait, api };
        fixed(of, Connections { connect_p50_us, connections: 5_000 }, factor)
    };
    table(&[row(1, Some(2_345.6), 0.9), row(256, None, 9.0)]).to_string()
}
