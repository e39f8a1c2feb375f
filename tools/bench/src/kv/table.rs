//! The table of rows of `uncopy-bench kv`, for people.

use comfy_table::Table;
use uncopy_measure::units;

use super::args::KvArgs;
use super::rows::Row;
use crate::rpc::table::{Line, compared};

/// One line for each row; times are microseconds.
pub fn table(rows: &[Row]) -> Table {
    let lines = rows.iter().map(|row| {
        let of = &row.of;
        let first = vec![
            of.load.name().into(),
            units::grouped(of.connections as u64),
            of.wait.name().into(),
        ];
        Line::of(row, first, |side| {
            [side.besides.p90_us, side.besides.p999_us].map(|us| format!("{us:.1}"))
        })
    });
    let last = ["p90\nLinux", "\nuncopy", "p99.9\nLinux", "\nuncopy"];
    compared(&["keys", "conns", "wait"], lines.collect(), &last)
}

/// The meaning of the columns, how it was measured, and on what.
pub fn notes(args: &KvArgs, rows: &[Row]) -> String {
    format!(
        "zipf: {} pairs of 32 and 64 bytes, s = 0.9; hot: one pair of 4 and 4 bytes. {} of 100 \
         requests set a value, the others\n\
         get one; one request is under way on each connection. RPC/s and latencies are of both \
         kinds.\n{}",
        units::grouped(args.keys as u64),
        args.sets,
        args.pairs.notes(rows.iter().map(|row| row.verified).sum()),
    )
}

/// A table of fixed rows.
#[cfg(test)]
pub fn screen() -> String {
    use super::plan::Load;
    use super::rows::{Latencies, Parameters};
    use crate::rpc::choices::{Api, Wait};
    use crate::rpc::rows::fixed;
    let row = |load: Load, wait: Wait, factor: f64| {
        let (keys, sets, connections, api) = (100_000, 10, 64, Api::Rings);
        let of = Parameters { load, keys, sets, connections, wait, api };
        fixed(of, Latencies { p90_us: 45.6, p999_us: 7_890.1, cdf: vec![] }, factor)
    };
    table(&[row(Load::Zipf, Wait::Spin, 8.0), row(Load::Hot, Wait::Sleep, 0.5)]).to_string()
}
