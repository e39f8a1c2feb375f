//! The cost where a program touches what it copied: figures 9 and 10, and more.

use uncopy_measure::echo::Row;
use uncopy_measure::units;

use super::row_pictures::{Quantity, axis, cpu_axis, plot, points, rate_axis, ratio_point};
use super::section::{Fact, Section, dashed, line, times};
use crate::figures::FigureResults;
use crate::plot::{At, Line, Plot, Rule, Scale, Stroke, Unit};

/// Figure 9.
pub fn faults(mut section: Section, policy: &[Row], stubborn: &[Row], uncopied: &[Row]) -> Section {
    section.title = "Page faults across threads (figure 9)";
    section.text = "The server touches pages of each 512 KB message, in the buffer that was \
        received into and in the copy. The paper makes no copy and unmaps the receive buffer for \
        each message; uncopy unmaps nothing that is not copied (“no copy” in the table), so here \
        one copy is made, and other pages are touched in each message, so that none is known \
        beforehand. Once as anyone gets it, where the call site is left alone when touches cost \
        more than copies, and once with that switched off, which shows what the faults cost."
        .to_owned();
    let x = |row: &Row| row.touched_pages as f64;
    let lines = |rows: &[Row], what| -> Vec<Line> {
        let mut counts: Vec<usize> = rows.iter().map(|row| row.threads).collect();
        counts.dedup();
        let mut lines = Vec::new();
        for (i, &threads) in counts.iter().enumerate() {
            let own: Vec<Row> = rows.iter().filter(|r| r.threads == threads).cloned().collect();
            let noun = if threads == 1 { "thread" } else { "threads" };
            let plain = points(&own, x, false, what);
            let uncopy = points(&own, x, true, what);
            let draw = if i % 2 == 0 { line } else { dashed };
            let color = i / 2 * 2;
            lines.push(draw(format!("plain, {threads} {noun}"), color, plain));
            lines.push(draw(format!("uncopy, {threads} {noun}"), color + 1, uncopy));
        }
        lines
    };
    let pages = || axis("pages touched in each buffer", Scale::Log, Unit::Number);
    section.plots = vec![
        plot(
            "faults-cpu",
            "CPU, as anyone gets it",
            pages(),
            cpu_axis(),
            lines(policy, Quantity::Cpu),
        ),
        plot(
            "faults-all-cpu",
            "CPU, never backing off",
            pages(),
            cpu_axis(),
            lines(stubborn, Quantity::Cpu),
        ),
        plot(
            "faults-rate",
            "Throughput, as anyone gets it",
            pages(),
            rate_axis(),
            lines(policy, Quantity::Rate),
        ),
        plot(
            "faults-all-rate",
            "Throughput, never backing off",
            pages(),
            rate_axis(),
            lines(stubborn, Quantity::Rate),
        ),
    ];
    section.facts.extend(fault_facts(policy, stubborn, uncopied));
    section
}

fn fault_facts(policy: &[Row], stubborn: &[Row], uncopied: &[Row]) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (rows, how) in [(policy, "as anyone gets it"), (stubborn, "never backing off")] {
        for row in rows.iter().filter(|row| row.touched_pages == 2) {
            let paper = if facts.is_empty() {
                "“still scales well”; beyond 2, TLB shootdowns limit it (no numbers in the text)"
            } else {
                "the same"
            };
            let noun = if row.threads == 1 { "thread" } else { "threads" };
            facts.push(Fact::new(
                format!("2 pages touched, {} {noun}, {how}", row.threads),
                paper,
                format!(
                    "throughput {}, CPU {}, {:.2} faults a message",
                    times(row.ratio, row.ratio_spread),
                    times(row.cpu_ratio, row.cpu_ratio_spread),
                    row.uncopy.faults_per_req
                ),
            ));
        }
    }
    if let Some(row) = uncopied.iter().find(|row| row.touched_pages == 2) {
        facts.push(Fact::new(
            "2 pages touched, no copy (the paper's set-up)",
            "the same",
            format!(
                "throughput {}, {:.2} faults a message",
                times(row.ratio, row.ratio_spread),
                row.uncopy.faults_per_req
            ),
        ));
    }
    facts
}

/// Figure 10.
pub fn misspeculation(mut section: Section, same: &[Row], moving: &[Row]) -> Section {
    section.title = "Mis-speculation (figure 10)";
    section.text = "64 KB, 256 KB and 1 MB, copied 1, 3 and 6 times; pages of the last copy are \
        read and written before it is sent. Each point is a combination; x is the bytes of the \
        pages that were touched over the bytes copied. The same pages in each message (a program \
        that looks at headers), and other pages in each (nothing can be known beforehand)."
        .to_owned();
    let dots = |rows: &[Row], cpu: bool| -> Vec<Line> {
        [64 << 10, 256 << 10, 1 << 20]
            .into_iter()
            .zip([3, 2, 1])
            .map(|(size, color)| Line {
                name: units::size(size as u64),
                color,
                stroke: Stroke::Dots,
                points: rows
                    .iter()
                    .filter(|row| row.size == size)
                    .map(|row| ratio_point(row, touched(row), cpu))
                    .collect(),
            })
            .collect()
    };
    let scatter = |name: &str, title: &str, rows: &[Row], cpu: bool| Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x: axis("bytes touched over bytes copied", Scale::Log, Unit::Percent),
        y: axis("above 1: a gain", Scale::Linear, Unit::Times),
        lines: dots(rows, cpu),
        rules: vec![
            Rule { at: At::Y(1.0), text: "" },
            Rule { at: At::X(0.06), text: "6%: the paper's end of gain" },
        ],
    };
    section.plots = vec![
        scatter("misspeculation-cpu", "CPU, plain over uncopy: the same pages", same, true),
        scatter("misspeculation-moving-cpu", "CPU, plain over uncopy: other pages", moving, true),
        scatter("misspeculation", "Throughput, uncopy over plain: the same pages", same, false),
        scatter(
            "misspeculation-moving",
            "Throughput, uncopy over plain: other pages",
            moving,
            false,
        ),
    ];
    section.facts.extend(misspeculation_facts(same, moving));
    section
}

/// The bytes of the touched pages over the bytes copied.
fn touched(row: &Row) -> f64 {
    (row.touched_pages * 4096).min(row.size) as f64 / (row.size * row.copies) as f64
}

fn misspeculation_facts(same: &[Row], moving: &[Row]) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (rows, how) in [(same, "the same pages"), (moving, "other pages each time")] {
        let above: Vec<&Row> = rows.iter().filter(|row| touched(row) > 0.06).collect();
        let worst = |cpu: bool| {
            above
                .iter()
                .map(|row| ratio_point(row, touched(row), cpu))
                .min_by(|a, b| a.y.total_cmp(&b.y))
        };
        if let (Some(rate), Some(cpu)) = (worst(false), worst(true)) {
            let gains = above.iter().filter(|row| row.cpu_ratio >= 1.0).count();
            facts.push(Fact::new(
                format!("More than 6% touched, {how}"),
                "a loss",
                format!(
                    "{gains} of {} combinations need no more CPU; worst: CPU {:.2}×, throughput \
                     {:.2}×",
                    above.len(),
                    cpu.y,
                    rate.y
                ),
            ));
        }
        let all = rows.iter().map(|row| row.cpu_ratio);
        if !rows.is_empty() {
            facts.push(Fact::new(
                format!("The whole grid, {how}"),
                "points only drawn",
                format!("CPU {:.2}× at worst", all.fold(f64::INFINITY, f64::min)),
            ));
        }
    }
    facts
}

/// Headers, trailers, checksums.
pub fn touch(mut section: Section, results: &FigureResults) -> Section {
    section.title = "Headers, trailers, checksums (not in the paper)";
    section.text = "Programs that look at what they copied: a byte of the first and of the last \
        page read and written in the received buffer and in the last copy; every byte of the last \
        copy, or of every copy, read for a sum."
        .to_owned();
    for series in &results.series {
        for row in &series.rows {
            section.facts.push(Fact::new(
                format!("{}, {}", units::size(row.size as u64), series.label),
                "not measured",
                format!(
                    "throughput {}, CPU {}, {} faults a message",
                    times(row.ratio, row.ratio_spread),
                    times(row.cpu_ratio, row.cpu_ratio_spread),
                    row.uncopy.faults_per_req
                ),
            ));
        }
    }
    section
}
