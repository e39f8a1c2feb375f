//! The paper's figures: pictures of rows of the echo bench, and what the paper says of them.
//!
//! The paper's figures are known by its text alone: the extracted text has no points.

use uncopy_measure::echo::{Row, chart, ratio};
use uncopy_measure::medians::quotient;
use uncopy_measure::units;

use super::row_pictures::{Quantity, axis, cpu_axis, plot, point, points, rate_axis, ratio_point};
use super::section::{Fact, Section, dashed, line, times};
use crate::echo_table::places_text;
use crate::figures::FigureResults;
use crate::plot::{At, Line, Plot, Point, Rule, Scale, Stroke, Unit};

const UNKNOWN: &str = "points of the curves: only drawn, not in the text";

/// Figure 4.
pub fn copies(mut section: Section, rows: &[Row]) -> Section {
    section.title = "Copies (figure 4)";
    section.text =
        "An echo server receives messages of 512 KB on 16 connections, copies each from buffer to \
         buffer and sends the last copy back. Plain Linux beside uncopy; the dashed line is the \
         plain server without copies, which no elision of copies can beat by itself."
            .to_owned();
    let x = |row: &Row| row.copies as f64;
    let bound = |what| -> Vec<Point> {
        let none = rows.iter().find(|row| row.copies == 0);
        let ends = none.iter().flat_map(|none| {
            let p = point(none, 0.0, false, what);
            rows.iter().map(move |r| Point {
                x: r.copies as f64,
                spread: [p.y; 2],
                note: p.note.clone(),
                ..p
            })
        });
        ends.collect()
    };
    let lines = |what| {
        let mut lines = vec![
            line("plain", 0, points(rows, x, false, what)),
            line("uncopy", 1, points(rows, x, true, what)),
        ];
        let name = "plain without copies".to_owned();
        lines.push(Line { name, color: 3, stroke: Stroke::Dashed, points: bound(what) });
        lines
    };
    let copies = || axis("copies of each message", Scale::Linear, Unit::Number);
    section.plots = vec![
        plot(
            "copies-rate",
            "Throughput over copies, 512 KB",
            copies(),
            rate_axis(),
            lines(Quantity::Rate),
        ),
        plot("copies-cpu", "CPU over copies, 512 KB", copies(), cpu_axis(), lines(Quantity::Cpu)),
    ];
    section.facts = copy_facts(rows);
    section
}

fn copy_facts(rows: &[Row]) -> Vec<Fact> {
    let none = rows.iter().find(|row| row.copies == 0);
    let (Some(row), Some(none)) = (rows.iter().find(|r| r.copies == 12), none) else {
        return Vec::new();
    };
    vec![
        Fact::new(
            "512 KB, 12 copies, over plain Linux",
            "3.8×",
            format!(
                "throughput {}, CPU {}",
                times(row.ratio, row.ratio_spread),
                times(row.cpu_ratio, row.cpu_ratio_spread)
            ),
        ),
        Fact::new(
            "12 copies against plain without any",
            "“close to the configuration without copies”",
            format!(
                "{} of its throughput, {} of its CPU",
                percent(quotient(row.uncopy.common.req_per_s, none.plain.req_per_s)),
                percent(quotient(row.uncopy.common.cpu_us_per_req, none.plain.cpu_us_per_req))
            ),
        ),
        Fact::new("1 to 11 copies", UNKNOWN, "see the picture"),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Figure 6.
pub fn sizes(mut section: Section, rows: &[Row], low: &[Row]) -> Section {
    section.title = "Sizes (figure 6)";
    section.text = "The same server with 0 and 5 copies of messages of 8 KB to 1 MB. The paper \
        switched its threshold off here; uncopy runs as anyone gets it (copies below 16 KB are \
        left alone), and once more with a threshold of 8 KB where that makes a difference."
        .to_owned();
    let with = |copies: usize| -> Vec<Row> {
        rows.iter().filter(|r| r.copies == copies).cloned().collect()
    };
    let (none, five) = (with(0), with(5));
    section.plots = size_plots(&none, &five, low);
    section.facts.extend(size_facts(&none, &five, low));
    section
}

/// Throughput and ratios over the size: without copies, with five, and with five at a `low`
/// threshold.
fn size_plots(none: &[Row], five: &[Row], low: &[Row]) -> Vec<Plot> {
    let x = |row: &Row| row.size as f64;
    let size = || axis("bytes in a message", Scale::Log2, Unit::Bytes);
    let ratios = |rows: &[Row], cpu: bool| -> Vec<Point> {
        rows.iter().map(|row| ratio_point(row, row.size as f64, cpu)).collect()
    };
    let mut cpu =
        vec![line("5 copies", 1, ratios(five, true)), dashed("0 copies", 1, ratios(none, true))];
    let mut rate =
        vec![line("5 copies", 1, ratios(five, false)), dashed("0 copies", 1, ratios(none, false))];
    if !low.is_empty() {
        cpu.push(line("5 copies, threshold 8 KB", 2, ratios(low, true)));
        rate.push(line("5 copies, threshold 8 KB", 2, ratios(low, false)));
    }
    let times_axis = |label| axis(label, Scale::Linear, Unit::Times);
    let ruled = |plot: Plot| Plot { rules: vec![Rule { at: At::Y(1.0), text: "" }], ..plot };
    vec![
        plot(
            "sizes-rate",
            "Throughput over size",
            size(),
            axis("GB/s echoed", Scale::Linear, Unit::Number),
            vec![
                dashed("plain, 0 copies", 0, points(none, x, false, Quantity::Bandwidth)),
                line("plain, 5 copies", 0, points(five, x, false, Quantity::Bandwidth)),
                dashed("uncopy, 0 copies", 1, points(none, x, true, Quantity::Bandwidth)),
                line("uncopy, 5 copies", 1, points(five, x, true, Quantity::Bandwidth)),
            ],
        ),
        ruled(plot(
            "sizes-ratio",
            "Throughput, uncopy over plain",
            size(),
            times_axis("above 1: uncopy serves more"),
            rate,
        )),
        ruled(plot(
            "sizes-cpu",
            "CPU a message, plain over uncopy",
            size(),
            times_axis("above 1: uncopy needs less"),
            cpu,
        )),
    ]
}

fn size_facts(none: &[Row], five: &[Row], low: &[Row]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let best = five.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio));
    if let Some(best) = best {
        let at = units::size(best.size as u64);
        facts.push(Fact::new(
            "Largest gain with 5 copies",
            "2.9×",
            format!("throughput {} at {at}", times(best.ratio, best.ratio_spread)),
        ));
    }
    for (rows, asked) in [(five, ""), (low, ", threshold 8 KB")] {
        if let Some(row) = rows.iter().find(|r| r.size == 8 << 10) {
            // (Its own column says whether it was so.)
            let elided = match (asked, row.uncopy.elided_bytes) {
                ("", _) => "",
                (_, 0) => ", nothing elided all the same",
                _ => ", elided all the same",
            };
            let about = format!("8 KB, 5 copies{asked}{elided}");
            facts.push(Fact::new(
                about,
                "down to 0.7× below 16 KB (threshold off)",
                format!("throughput {}", times(row.ratio, row.ratio_spread)),
            ));
        }
    }
    let reached: Vec<String> = five
        .iter()
        .filter(|r| r.size >= 512 << 10)
        .filter_map(|r| {
            let zero = none.iter().find(|n| n.size == r.size)?;
            let share = quotient(r.uncopy.common.req_per_s, zero.plain.req_per_s);
            Some(format!("{} at {}", percent(share), units::size(r.size as u64)))
        })
        .collect();
    facts.push(Fact::new(
        "5 copies against plain without any",
        "reached above 512 KB",
        reached.join(", "),
    ));
    facts.push(Fact::new("Each size", UNKNOWN, "see the pictures"));
    facts
}

/// Figure 8.
pub fn threads(mut section: Section, rows: &[Row]) -> Section {
    section.title = "Threads (figure 8)";
    section.text = "512 KB, 1 copy, a growing number of server threads with connections of their \
        own. The load generator is one thread on the last core: where the server's threads have to \
        share it, throughput is bounded by that, and the CPU of a message tells more."
        .to_owned();
    let x = |row: &Row| row.threads as f64;
    let sides = |what| {
        vec![
            line("plain", 0, points(rows, x, false, what)),
            line("uncopy", 1, points(rows, x, true, what)),
        ]
    };
    let threads = || axis("threads of the server", Scale::Log2, Unit::Number);
    section.plots = vec![
        plot(
            "threads-rate",
            "Throughput over threads",
            threads(),
            rate_axis(),
            sides(Quantity::Rate),
        ),
        plot("threads-cpu", "CPU over threads", threads(), cpu_axis(), sides(Quantity::Cpu)),
    ];
    for row in rows {
        let noun = if row.threads == 1 { "thread" } else { "threads" };
        section.facts.push(Fact::new(
            format!("{} {noun}, 1 copy of 512 KB", row.threads),
            "up to 1.19× (at which number is only drawn)",
            format!(
                "throughput {}, CPU {}",
                times(row.ratio, row.ratio_spread),
                times(row.cpu_ratio, row.cpu_ratio_spread)
            ),
        ));
    }
    section
}

/// One connection, a few, and many.
pub fn connections(mut section: Section, results: &FigureResults) -> Section {
    section.title = "One connection, four, sixty-four (not in the paper)";
    let rows: Vec<Row> = results.series.iter().flat_map(|s| s.rows.iter().cloned()).collect();
    section.text = format!(
        "The echo server with 64 KB and 512 KB, and what each part of uncopy has in the gain. {}",
        places_text(&rows)
    );
    for row in rows.iter().filter(|row| row.copies > 0) {
        let counted =
            |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        section.facts.push(Fact::new(
            format!(
                "{}, {}, {}",
                units::size(row.size as u64),
                counted(row.copies, "copy", "copies"),
                counted(row.connections, "connection", "connections")
            ),
            "not measured",
            format!(
                "CPU {}, of which elision {}×; a second plain one {:.2}×",
                times(row.cpu_ratio, row.cpu_ratio_spread),
                ratio(row.elision_cpu_ratio),
                row.again.cpu_ratio
            ),
        ));
    }
    section
}

/// The bars that `uncopy demo` draws, of figure 4's rows.
pub fn bars(results: &FigureResults) -> String {
    let rows = results.series.iter().flat_map(|s| &s.rows);
    chart(rows.filter(|row| [0, 1, 4, 12].contains(&row.copies)))
}
