//! Sending, and copying files.

use uncopy_measure::medians::quotient;
use uncopy_measure::units;

use super::section::{Fact, Section, Table, line, times, with_spread};
use crate::file::java::Java;
use crate::file::{self, FileResults, To};
use crate::plot::{At, Axis, Line, Plot, Point, Rule, Scale, Unit};
use crate::send::{self, SendResults, Times};

/// The values that a picture and a table need of one way in one row.
struct Cell {
    x: f64,
    name: &'static str,
    cpu: f64,
    spread: [f64; 2],
    /// The same of the row's first way.
    base: f64,
}

/// The same colour for a way in every picture.
fn color(name: &str) -> usize {
    match name {
        "send, uncopy" | "read, write, uncopy" => 1,
        "MSG_ZEROCOPY" | "mmap" => 2,
        "send, again" | "read, write, again" => 0,
        "sendfile" => 3,
        "splice" => 4,
        "copy_file_range" => 5,
        _ => 6,
    }
}

/// CPU over that of the first way, a line for each other way.
fn plot(name: &str, title: &str, label: &'static str, cells: &[Cell]) -> Plot {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.name) {
            names.push(cell.name);
        }
    }
    let lines = names.iter().map(|name| {
        let own = cells.iter().filter(|c| c.name == *name);
        let points = own.map(|c| {
            let y = quotient(c.cpu, c.base);
            let spread = c.spread.map(|v| quotient(v, c.base));
            let cpu = with_spread(c.cpu, c.spread);
            let size = units::size(c.x as u64);
            Point {
                x: c.x,
                y,
                spread,
                note: format!("{name}, {size}: {cpu} µs, {}", times(y, [y; 2])),
            }
        });
        line(*name, color(name), points.collect())
    });
    let lines: Vec<Line> = lines.collect();
    Plot {
        name: name.to_owned(),
        title: title.to_owned(),
        x: Axis { label: "bytes", scale: Scale::Log2, unit: Unit::Bytes },
        y: Axis { label, scale: Scale::Linear, unit: Unit::Times },
        lines,
        rules: vec![Rule { at: At::Y(1.0), text: "" }],
    }
}

/// The section of `uncopy-bench send`.
pub fn send(results: &SendResults) -> Section {
    let cells = |times: Times| -> Vec<Cell> {
        let most = results.rows.iter().map(|row| row.buffers).max();
        results
            .rows
            .iter()
            .filter(|row| row.times == times && Some(row.buffers) == most)
            .flat_map(|row| {
                let base = row.columns.first().map_or(0.0, |c| c.cpu_us);
                row.columns.iter().skip(1).filter(|c| c.refused.is_none()).map(move |c| Cell {
                    x: row.size as f64,
                    name: send::name(c),
                    cpu: c.cpu_us,
                    spread: c.cpu_us_spread,
                    base,
                })
            })
            .collect()
    };
    let label = "CPU of the sender; 1: plain send";
    Section {
        name: "send",
        title: "Sending",
        text:
            "A program sends buffers over loopback TCP: many times as they are, as caches do, or \
             once each, every byte written anew before. Plain send is 1×; below it a way needs \
             less CPU. On loopback the receiver's queue would hold the sender's own pages, so the \
             kernel copies what was to be sent by reference (“copied after all”, by its own \
             report). sendfile is not shown for buffers that are written again: what is still in \
             the queue would change."
                .to_owned(),
        plots: vec![
            plot("send-many", "Sent many times", label, &cells(Times::Many)),
            plot("send-once", "Sent once, written anew", label, &cells(Times::Once)),
        ],
        facts: Vec::new(),
        table: send_table(results),
        command: "uncopy-bench send".to_owned(),
    }
}

/// Each way in each row.
fn send_table(results: &SendResults) -> Table {
    let mut table = Vec::new();
    for row in &results.rows {
        let base = row.columns.first().map_or(0.0, |c| c.cpu_us);
        for c in &row.columns {
            let mut cells = vec![
                send::name(c).to_owned(),
                format!("{:?}", row.socket).to_lowercase(),
                format!("{:?}", row.times).to_lowercase(),
                row.buffers.to_string(),
                units::size(row.size as u64),
            ];
            cells.extend(match &c.refused {
                Some(why) => [why.clone(), String::new(), String::new(), String::new()],
                None => [
                    with_spread(c.cpu_us, c.cpu_us_spread),
                    format!("{:.2}×", quotient(c.cpu_us, base)),
                    units::grouped((c.messages_per_s * row.size as f64 / 1e6) as u64),
                    c.copied_share.map_or_else(String::new, |s| format!("{:.0}%", s * 100.0)),
                ],
            });
            cells.push(c.verified_messages.to_string());
            table.push(cells);
        }
    }
    let header = vec![
        "way",
        "socket",
        "times",
        "buffers",
        "size",
        "CPU µs",
        "of send",
        "MB/s",
        "copied after all",
        "messages verified",
    ];
    Table::new(&header, table)
}

/// The section of `uncopy-bench file`.
pub fn file(results: &FileResults) -> Section {
    let cells = |to: To| -> Vec<Cell> {
        results
            .rows
            .iter()
            .filter(|row| row.to == to)
            .flat_map(|row| {
                let base = row.columns.first().map_or(0.0, |c| c.cpu_us);
                row.columns.iter().skip(1).filter(|c| c.refused.is_none()).map(move |c| Cell {
                    x: row.size as f64,
                    name: file::name(c),
                    cpu: c.cpu_us,
                    spread: c.cpu_us_spread,
                    base,
                })
            })
            .collect()
    };
    let label = "CPU; 1: plain read and write";
    Section {
        name: "file",
        title: "Files",
        text: format!(
            "A program copies a file that is in the page cache ({}) to a socket or to a file. \
             Plain read and write is 1×; below it a way needs less CPU. The article “Zero-copy: \
             Principle and Implementation” copies 880 MB in Java in three ways.",
            results.file_system
        ),
        plots: vec![
            plot("file-socket", "File to socket", label, &cells(To::Socket)),
            plot("file-file", "File to file", label, &cells(To::File)),
        ],
        facts: results.java.iter().flat_map(java).collect(),
        table: file_table(results),
        command: "uncopy-bench file --java".to_owned(),
    }
}

/// Each way in each row.
fn file_table(results: &FileResults) -> Table {
    let mut table = Vec::new();
    for row in &results.rows {
        let base = row.columns.first().map_or(0.0, |c| c.cpu_us);
        for c in &row.columns {
            let mut cells = vec![
                file::name(c).to_owned(),
                format!("{:?}", row.to).to_lowercase(),
                units::size(row.size as u64),
            ];
            cells.extend(match &c.refused {
                Some(why) => [why.clone(), String::new(), String::new()],
                None => [
                    with_spread(c.cpu_us, c.cpu_us_spread),
                    format!("{:.2}×", quotient(c.cpu_us, base)),
                    units::grouped((c.files_per_s * row.size as f64 / 1e6) as u64),
                ],
            });
            cells.push(units::rough_size(c.verified_bytes as f64));
            table.push(cells);
        }
    }
    Table::new(&["way", "to", "size", "CPU µs", "of read, write", "MB/s", "verified"], table)
}

fn java(java: &Java) -> Vec<Fact> {
    let size = units::size(java.size as u64);
    if let Some(why) = &java.refused {
        return vec![Fact::new("The article's three methods", "81% and 91% faster", why.clone())];
    }
    let percent = |share: f64| format!("{:.0}% less time", share * 100.0);
    java.methods
        .iter()
        .map(|method| {
            let (plain, uncopy) = (&method.plain, &method.uncopy);
            let saved = |share: f64| match method.article {
                Some(_) => format!(", {}", percent(share)),
                None => String::new(),
            };
            let published = match method.name.as_str() {
                "mmap" => "81% less time than buffered (the article)",
                "sendfile" => "91% less time than buffered (the article)",
                _ => "the base of the article's comparison",
            };
            Fact::new(
                format!("Java, {size}, {}", method.name),
                published,
                format!(
                    "plain {:.0} ms{}; uncopy {:.0} ms{}; CPU {:.0} and {:.0} ms",
                    plain.ms,
                    saved(plain.saved),
                    uncopy.ms,
                    saved(uncopy.saved),
                    plain.cpu_ms,
                    uncopy.cpu_ms
                ),
            )
        })
        .collect()
}
