//! Rows of the echo server as points of pictures, and as a table.

use std::collections::BTreeSet;

use uncopy_measure::echo::{Compared, Places, Row, ratio, touch_text};
use uncopy_measure::units;

use super::section::{Table, times, with_spread};
use crate::figures::FigureResults;
use crate::plot::{Axis, Line, Plot, Point, Scale, Unit, short};

/// The quantity that a picture shows.
#[derive(Clone, Copy)]
pub enum Quantity {
    /// Messages a second.
    Rate,
    /// Gigabytes a second.
    Bandwidth,
    /// CPU a message.
    Cpu,
}

/// A point of one side of a row.
pub fn point(row: &Row, x: f64, uncopy: bool, what: Quantity) -> Point {
    let numbers = if uncopy { &row.uncopy.common } else { &row.plain };
    let (y, spread, unit) = match what {
        Quantity::Rate => (numbers.req_per_s, numbers.req_per_s_spread, "messages/s"),
        Quantity::Bandwidth => {
            let gb = |rate: f64| rate * row.size as f64 / 1e9;
            (gb(numbers.req_per_s), numbers.req_per_s_spread.map(gb), "GB/s")
        }
        Quantity::Cpu => (numbers.cpu_us_per_req, numbers.cpu_us_per_req_spread, "µs of CPU"),
    };
    let side = if uncopy { "uncopy" } else { "plain" };
    Point {
        x,
        y,
        spread,
        note: format!("{side}, {}: {} {unit}", named(row), with_spread(y, spread)),
    }
}

fn named(row: &Row) -> String {
    let mut text = format!("{}, {} copies", units::size(row.size as u64), row.copies);
    if row.threads > 1 {
        text += &format!(", {} threads", row.threads);
    }
    if row.touched_pages > 0 {
        text += &format!(", {} pages touched", row.touched_pages);
    }
    text
}

/// Points of one side of rows.
pub fn points(rows: &[Row], x: fn(&Row) -> f64, uncopy: bool, what: Quantity) -> Vec<Point> {
    rows.iter().map(|row| point(row, x(row), uncopy, what)).collect()
}

/// An axis.
pub fn axis(label: &'static str, scale: Scale, unit: Unit) -> Axis {
    Axis { label, scale, unit }
}

/// An axis of rates.
pub fn rate_axis() -> Axis {
    axis("messages/s", Scale::Linear, Unit::Number)
}

/// An axis of CPU times.
pub fn cpu_axis() -> Axis {
    axis("µs of server CPU a message", Scale::Linear, Unit::Number)
}

/// A picture without rules.
pub fn plot(name: &str, title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Plot {
    Plot { name: name.to_owned(), title: title.to_owned(), x, y, lines, rules: Vec::new() }
}

/// The ratio of a row that is more than 1 where uncopy is better.
pub fn ratio_point(row: &Row, x: f64, cpu: bool) -> Point {
    let (y, spread, what) = if cpu {
        (row.cpu_ratio, row.cpu_ratio_spread, "CPU, plain over uncopy")
    } else {
        (row.ratio, row.ratio_spread, "throughput, uncopy over plain")
    };
    Point { x, y, spread, note: format!("{}: {what} {}", named(row), times(y, spread)) }
}

/// All numbers of rows.
pub fn table(results: &FigureResults) -> Table {
    let header = [
        "series",
        "size",
        "copies",
        "connections",
        "threads",
        "pages touched",
        "plain CPU µs",
        "CPU: plain again",
        "memory kept",
        "uncopy's allocator alone",
        "uncopy without elision",
        "uncopy",
        "faster copies' own",
        "elision's own",
        "the most it could be",
        "plain msg/s",
        "rate: plain again",
        "uncopy",
        "p99 µs: plain",
        "plain again",
        "uncopy",
        "faults/msg",
        "elided/msg",
        "messages verified",
        "within the page: plain",
        "uncopy",
    ];
    let rows = results
        .series
        .iter()
        .flat_map(|series| series.rows.iter().map(|row| cells(&series.label, row)))
        .collect();
    Table::new(&header, rows)
}

/// The numbers of a row of `series`.
fn cells(series: &str, row: &Row) -> Vec<String> {
    let (plain, uncopy) = (&row.plain, &row.uncopy.common);
    let cpu = |side: Option<&Compared>| ratio(side.map(|side| side.cpu_ratio));
    vec![
        series.to_owned(),
        units::size(row.size as u64),
        row.copies.to_string(),
        row.connections.to_string(),
        row.threads.to_string(),
        touch_text(row),
        with_spread(plain.cpu_us_per_req, plain.cpu_us_per_req_spread),
        times(row.again.cpu_ratio, row.again.cpu_ratio_spread),
        cpu(row.kept.as_ref()),
        cpu(row.placed.as_ref()),
        cpu(row.unelided.as_ref()),
        times(row.cpu_ratio, row.cpu_ratio_spread),
        ratio(row.copies_cpu_ratio),
        ratio(row.elision_cpu_ratio),
        ratio(row.elision_most),
        with_spread(plain.req_per_s, plain.req_per_s_spread),
        times(row.again.ratio, row.again.ratio_spread),
        times(row.ratio, row.ratio_spread),
        short(plain.p99_us),
        short(row.again.common.p99_us),
        short(uncopy.p99_us),
        short(row.uncopy.faults_per_req),
        units::rough_size(row.uncopy.elided_bytes_per_req),
        row.verified_messages.to_string(),
        places(&plain.places),
        places(&uncopy.places),
    ]
}

/// Where it receives, and over which distances it copies.
fn places(places: &Places) -> String {
    let distances: BTreeSet<usize> = places.distances.iter().copied().collect();
    let distances: Vec<String> = distances.iter().map(usize::to_string).collect();
    if distances.is_empty() {
        return format!("at {}", places.received_at);
    }
    format!("at {}, over {}", places.received_at, distances.join(" "))
}
