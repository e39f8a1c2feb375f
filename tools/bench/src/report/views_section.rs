//! The cost of an elided copy.

use uncopy_measure::medians::quotient;
use uncopy_measure::units;

use super::section::{Fact, Section, Table, line, with_spread};
use crate::plot::{Axis, Line, Plot, Point, Scale, Unit, short};
use crate::views::{ProcessRow, ViewsResults};

/// The section.
pub fn section(results: &ViewsResults) -> Section {
    let unique = |pick: fn(&ProcessRow) -> usize| -> Vec<usize> {
        let mut all: Vec<usize> = results.processes.iter().map(pick).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (counts, sizes) = (unique(|r| r.views), unique(|r| r.size));
    let ns = |label, scale| Axis { label, scale, unit: Unit::Number };
    let plot = |name: &str, title: &str, x, y, lines| Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x,
        y,
        lines,
        rules: Vec::new(),
    };
    Section {
        name: "views",
        title: "The cost of an elided copy",
        text: "A process holds so many views of 16 KB and copies received data of other sizes to \
            four destinations in turns, from another source each time, so that each copy ends a \
            view and makes one. The books alone: the tracker without the library's lock, shims and \
            filter, on memory that does not exist. The policy is told not to back off, so that the \
            views are really made."
            .to_owned(),
        plots: vec![
            plot(
                "views-size",
                "ns a copy, over its size",
                ns("", Scale::Log2).sized(),
                ns("ns a copy", Scale::Log),
                over_size(results, &counts),
            ),
            plot(
                "views-count",
                "ns an elided copy, over live views",
                ns("live views", Scale::Log),
                ns("ns a copy", Scale::Log),
                over_views(results, &sizes),
            ),
        ],
        facts: facts(results, &counts, &sizes),
        table: table(results),
        command: "uncopy-bench views".to_owned(),
    }
}

/// A row under uncopy, at `x`.
fn process(row: &ProcessRow, x: f64) -> Point {
    Point {
        x,
        y: row.uncopy_ns,
        spread: row.uncopy_ns_spread,
        note: format!(
            "uncopy, {} among {} views: {} ns",
            units::size(row.size as u64),
            units::grouped(row.views as u64),
            with_spread(row.uncopy_ns, row.uncopy_ns_spread)
        ),
    }
}

/// ns a copy over its size: plain, and among each number of views.
fn over_size(results: &ViewsResults, counts: &[usize]) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(most) = counts.last() {
        let rows = || results.processes.iter().filter(|row| row.views == *most);
        let plain = rows().map(|row| Point {
            x: row.size as f64,
            y: row.plain_ns,
            spread: row.plain_ns_spread,
            note: format!(
                "plain, {}: {} ns",
                units::size(row.size as u64),
                with_spread(row.plain_ns, row.plain_ns_spread)
            ),
        });
        lines.push(line("plain memcpy", 0, plain.collect()));
    }
    let shown =
        counts.iter().zip([3, 6, 4, 2, 1].into_iter().skip(5_usize.saturating_sub(counts.len())));
    for (views, color) in shown {
        let rows = results.processes.iter().filter(|row| row.views == *views);
        let name = format!("{} views", units::grouped(*views as u64));
        lines.push(line(name, color, rows.map(|row| process(row, row.size as f64)).collect()));
    }
    lines
}

/// ns an elided copy over the number of views, for the smallest and the largest size.
fn over_views(results: &ViewsResults, sizes: &[usize]) -> Vec<Line> {
    let mut lines = Vec::new();
    let chosen = [sizes.first(), sizes.last()];
    for (size, (color, books_color)) in chosen.into_iter().flatten().zip([(1, 3), (2, 4)]) {
        let text = units::size(*size as u64);
        let rows = results.processes.iter().filter(|row| row.size == *size);
        let points = rows.map(|row| process(row, row.views as f64)).collect();
        lines.push(line(format!("{text}, in a process"), color, points));
        let books = results.books.iter().filter(|row| row.size == *size).map(|row| Point {
            x: row.views as f64,
            y: row.ns,
            spread: row.ns_spread,
            note: format!("books alone, {text}: {} ns", with_spread(row.ns, row.ns_spread)),
        });
        lines.push(line(format!("{text}, the books alone"), books_color, books.collect()));
    }
    lines
}

impl Axis {
    /// An axis of sizes.
    fn sized(self) -> Self {
        Self { label: "bytes copied", unit: Unit::Bytes, ..self }
    }
}

fn facts(results: &ViewsResults, counts: &[usize], sizes: &[usize]) -> Vec<Fact> {
    let at = |views: usize, size: usize| {
        results.processes.iter().find(|r| r.views == views && r.size == size)
    };
    let books = |views: usize, size: usize| {
        results.books.iter().find(|r| r.views == views && r.size == size)
    };
    let (Some(&few), Some(&many)) = (counts.first(), counts.last()) else { return Vec::new() };
    let (Some(&small), Some(&large)) = (sizes.first(), sizes.last()) else { return Vec::new() };
    let mut facts = Vec::new();
    if let (Some(a), Some(b)) = (at(few, small), at(few, large)) {
        facts.push(Fact::new(
            format!("{} instead of {}", units::size(large as u64), units::size(small as u64)),
            "not measured (190 ns for a skiplist operation)",
            format!("{:.0} ns instead of {:.0} ns", b.uncopy_ns, a.uncopy_ns),
        ));
    }
    for &size in &[small, large] {
        if let (Some(a), Some(b), Some(c), Some(d)) =
            (at(few, size), at(many, size), books(few, size), books(many, size))
        {
            facts.push(Fact::new(
                format!(
                    "{} views instead of {}, copies of {}",
                    units::grouped(many as u64),
                    units::grouped(few as u64),
                    units::size(size as u64)
                ),
                "not measured",
                format!(
                    "{:.0} ns instead of {:.0} ns in a process ({:.1}×); books alone {:.0} instead \
                     of {:.0} ns ({:.1}×)",
                    b.uncopy_ns,
                    a.uncopy_ns,
                    quotient(b.uncopy_ns, a.uncopy_ns),
                    d.ns,
                    c.ns,
                    quotient(d.ns, c.ns)
                ),
            ));
        }
    }
    facts
}

fn table(results: &ViewsResults) -> Table {
    let header = vec![
        "views",
        "size",
        "books alone ns",
        "uncopy ns",
        "plain ns",
        "plain again ns",
        "live views",
        "elided",
        "verified",
    ];
    let rows = results.books.iter().zip(&results.processes).map(|(books, row)| {
        vec![
            units::grouped(row.views as u64),
            units::size(row.size as u64),
            with_spread(books.ns, books.ns_spread),
            with_spread(row.uncopy_ns, row.uncopy_ns_spread),
            with_spread(row.plain_ns, row.plain_ns_spread),
            short(row.again_ns),
            units::grouped(row.live_views),
            format!("{:.1}%", row.elided_share * 100.0),
            units::rough_size(row.verified_bytes as f64),
        ]
    });
    Table::new(&header, rows.collect())
}
