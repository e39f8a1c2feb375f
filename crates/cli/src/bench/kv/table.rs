//! What people read of rows of `bench kv`.

use comfy_table::Table;

use super::args::KvArgs;
use super::rows::Row;
use crate::bench::rpc::table::{Line, compared};
use crate::units;

/// One line for each row; times are microseconds.
pub fn table(rows: &[Row]) -> Table {
    let lines = rows.iter().map(|row| Line {
        first: vec![
            row.load.name().into(),
            units::grouped(row.connections as u64),
            row.wait.name().into(),
        ],
        linux: &row.linux.numbers,
        again: &row.again,
        uncopy: &row.uncopy.numbers,
        ratios: &row.ratios,
        last: [row.linux.p90_us, row.uncopy.p90_us, row.linux.p999_us, row.uncopy.p999_us]
            .map(|us| format!("{us:.1}"))
            .to_vec(),
    });
    let last = ["p90\nLinux", "\nuncopy", "p99.9\nLinux", "\nuncopy"];
    compared(&["keys", "conns", "wait"], lines.collect(), &last)
}

/// What the columns are, how it was measured, and on what.
pub fn notes(args: &KvArgs, rows: &[Row]) -> String {
    format!(
        "zipf: {} pairs of 32 and 64 bytes, s = 0.9; hot: one pair of 4 and 4 bytes. {} of 100 requests set a value, the others\n\
         get one; one request is under way on each connection. RPC/s and latencies are of both kinds.\n{}",
        units::grouped(args.keys as u64),
        args.sets,
        args.events.notes(rows.iter().map(|row| row.verified).sum()),
    )
}

/// A table of fixed rows.
#[cfg(test)]
pub fn screen() -> String {
    use super::plan::Load;
    use super::rows::Measured;
    use crate::bench::rpc::args::{Api, Wait};
    use crate::bench::rpc::rows::{Common, fixed};
    let row = |load: Load, wait: Wait, factor: f64| {
        let Common { linux, again, uncopy, ratios, verified } = fixed(factor);
        let with = |numbers| Measured { numbers, p90_us: 45.6, p999_us: 7_890.1, cdf: vec![] };
        let (keys, sets, connections, api) = (100_000, 10, 64, Api::Rings);
        let (linux, uncopy) = (with(linux), with(uncopy));
        Row { load, keys, sets, connections, wait, api, linux, again, uncopy, ratios, verified }
    };
    table(&[row(Load::Zipf, Wait::Spin, 8.0), row(Load::Hot, Wait::Sleep, 0.5)]).to_string()
}
