//! The table of rows of `uncopy-bench echo`, for people.

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, Table};
use uncopy_measure::echo::{EchoArgs, Places, Row, ratio, touch_text};
use uncopy_measure::machine::Machine;
use uncopy_measure::units;

/// One line for each row; times are microseconds.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "size",
        "copies",
        "conns",
        "thr",
        "touch",
        "req/s\nplain",
        "\nuncopy",
        "over plain\nagain",
        "\nkept",
        "\nplaced",
        "\nno el.",
        "\nuncopy",
        "cpu\nplain",
        "\nuncopy",
        "plain over\nagain",
        "\nkept",
        "\nplaced",
        "\nno el.",
        "\nuncopy",
        "own:\ncopies",
        "\nelision",
        "\nmost",
        "p99\nplain",
        "\nagain",
        "\nuncopy",
        "faults",
        "calls",
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    table
}

/// The cells of a row.
fn cells(row: &Row) -> Vec<String> {
    let (plain, uncopy) = (&row.plain, &row.uncopy.common);
    let [kept, placed, unelided] = [&row.kept, &row.placed, &row.unelided].map(Option::as_ref);
    vec![
        units::size(row.size as u64),
        row.copies.to_string(),
        row.connections.to_string(),
        row.threads.to_string(),
        touch_text(row),
        units::grouped(plain.req_per_s as u64),
        units::grouped(uncopy.req_per_s as u64),
        ratio(Some(row.again.ratio)),
        ratio(kept.map(|side| side.ratio)),
        ratio(placed.map(|side| side.ratio)),
        ratio(unelided.map(|side| side.ratio)),
        ratio(Some(row.ratio)),
        format!("{:.1}", plain.cpu_us_per_req),
        format!("{:.1}", uncopy.cpu_us_per_req),
        ratio(Some(row.again.cpu_ratio)),
        ratio(kept.map(|side| side.cpu_ratio)),
        ratio(placed.map(|side| side.cpu_ratio)),
        ratio(unelided.map(|side| side.cpu_ratio)),
        ratio(Some(row.cpu_ratio)),
        ratio(row.copies_cpu_ratio),
        ratio(row.elision_cpu_ratio),
        ratio(row.elision_most),
        format!("{:.0}", plain.p99_us),
        format!("{:.0}", row.again.common.p99_us),
        format!("{:.0}", uncopy.p99_us),
        row.uncopy.faults.to_string(),
        row.uncopy.page_table_calls_per_100_req.to_string(),
    ]
}

/// The meaning of the columns, how it was measured, and on what.
pub fn notes(args: &EchoArgs, rows: &[Row]) -> String {
    format!(
        "Medians of {} times fresh servers, one of each side, {} s each in short turns after {} s \
         of load.\n\
         Ratios: above 1 is a gain. again: a second plain server, whose difference is noise. kept: \
         plain, with glibc told to keep\n\
         memory. no el.: uncopy without elision and lending. placed: and with libc's copies. own \
         gains: copies of the former over the\n\
         latter, elision of uncopy over the former, which could gain most where no copy were made \
         at all.\n\
         cpu: of the server, us a request; p99 in us; calls: page-table calls in 100 requests.\n\
         Processor: {}. {}\n\
         Echoes are not compared while time is taken; before and after, every byte of {} random \
         messages was, on all\n\
         sides, and all of them were right.\n",
        args.repeats,
        args.seconds.as_secs_f64(),
        args.warmup.as_secs_f64(),
        Machine::own().cpu,
        places_text(rows),
        units::grouped(rows.iter().map(|row| row.verified_messages).sum()),
    )
}

/// Where plain's and uncopy's buffers lie within the page: some processors copy slowly where the
/// destination lies 1 to 63 bytes behind the source.
pub fn places_text(rows: &[Row]) -> String {
    let of = |pick: fn(&Row) -> &Places| -> String {
        let all: BTreeSet<&Places> = rows.iter().map(pick).collect();
        let offsets: BTreeSet<usize> = all.iter().map(|places| places.received_at).collect();
        let distances: BTreeSet<usize> = all.iter().flat_map(|p| &p.distances).copied().collect();
        let copied = if distances.is_empty() {
            String::new()
        } else {
            format!(" and copies over {} bytes", list(&distances))
        };
        format!("receives at {}{copied}", list(&offsets))
    };
    format!(
        "Within the page, plain {}; uncopy {}.",
        of(|row| &row.plain.places),
        of(|row| &row.uncopy.common.places)
    )
}

/// The first of them, and how many more there are.
fn list(numbers: &BTreeSet<usize>) -> String {
    const SHOWN: usize = 4;
    let first: Vec<String> = numbers.iter().take(SHOWN).map(usize::to_string).collect();
    match numbers.len().saturating_sub(SHOWN) {
        0 => first.join(", "),
        more => format!("{} and {more} others", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_places_are_counted_instead_of_listed() {
        assert_eq!(list(&BTreeSet::from([16])), "16");
        assert_eq!(list(&(0..7).collect()), "0, 1, 2, 3 and 3 others");
    }
}
