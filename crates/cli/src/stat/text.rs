//! The statistics as tables.

use std::collections::HashMap;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table};
use uncopy_counters::connections;
use uncopy_decide::REASONS;
use uncopy_measure::printable::printable;
use uncopy_measure::units::{grouped, rough_size, size};

use super::program::{Decision, Site};
use super::symbols::Symbols;
use super::view::View;
use super::{files, process};

const PAGE: u64 = 4096;
/// So many call sites' decisions are explained.
const EXPLAINED: usize = 8;
/// Narrower terminals get a table of numbers; what is words follows in lines of its own.
const WIDE: u16 = 150;
/// Its columns.
const NUMBERS: usize = 7;

/// All there is to say about one program.
pub fn program(view: &View, symbols: &mut HashMap<u32, Symbols>) -> String {
    let p = &view.program;
    let age = process::age(p.start_time);
    let mut text = format!("{} [{}], running for {age:.0} s\n", printable(&p.command), p.pid);
    let watched = if view.seconds < age - 1.0 { "in this interval" } else { "on the average" };
    let mut table = table(["", "since start", &format!("a second, {watched}")]);
    for (name, value, rate) in view.rows().filter(|(_, value, _)| *value > 0) {
        table.add_row([name.replace('_', " "), amount(name, value as f64), rated(name, rate)]);
    }
    right(&mut table, 1);
    let _ = writeln!(text, "{table}");
    if let Some(line) = connections::line(&p.counters) {
        let _ = writeln!(text, "\n{line}.");
    }
    if p.sites.is_empty() {
        return text + "\nNo call site made a copy that was looked at.\n";
    }
    let mut sites: Vec<&Site> = p.sites.iter().collect();
    sites.sort_by_key(|s| std::cmp::Reverse((s.elided_bytes, s.seen())));
    let _ = writeln!(text, "\n{}\n\n{}", site_table(&sites, p.pid, symbols), p.why());
    let explained = if is_narrow() { sites.len() } else { EXPLAINED };
    for s in sites.iter().take(explained) {
        let place = symbols.get_mut(&p.pid).map(|all| format!(", {}", all.place(s.caller)));
        let place = place.unwrap_or_default();
        let _ = writeln!(text, "{} {}{place}: {}.", size(s.class), s.decision().name(), s.why());
    }
    let _ = write!(text, "{}", legend(&sites));
    text
}

fn site_table(sites: &[&Site], pid: u32, symbols: &mut HashMap<u32, Symbols>) -> Table {
    let header = [
        "copies from",
        "decision",
        "copies",
        "elided",
        "bytes elided",
        "touched",
        "faults",
        "left alone for",
        "not elided: why",
        "last",
        "call site",
    ];
    let columns = if is_narrow() { NUMBERS } else { header.len() };
    let mut table = crate::table::table(&header[..columns], 200);
    for s in sites {
        let why: Vec<String> =
            reasons(s).map(|(name, n)| format!("{name} {}", grouped(n))).collect();
        let place = symbols.get_mut(&pid).map(|all| all.place(s.caller).to_string());
        let rest = if s.decision() == Decision::Rests {
            format!("{} more", grouped(s.pause_left))
        } else {
            String::new()
        };
        let row = [
            size(s.class),
            s.decision().name().into(),
            grouped(s.seen()),
            grouped(s.elided),
            rough_size(s.elided_bytes as f64),
            rough_size(s.touched_pages as f64 * PAGE as f64),
            grouped(s.faults),
            rest,
            why.join(", "),
            s.last_reason().unwrap_or_default().into(),
            place.unwrap_or_default(),
        ];
        table.add_row(row.into_iter().take(columns));
    }
    right(&mut table, 0);
    for column in [1, 7, 8, 9, 10] {
        if let Some(c) = table.column_mut(column) {
            c.set_cell_alignment(CellAlignment::Left);
        }
    }
    table
}

/// The terminal has no room for a table with words in it.
fn is_narrow() -> bool {
    crate::table::table(&[], 200).width().is_some_and(|width| width < WIDE)
}

/// Reasons that occur, and how often.
pub fn reasons(site: &Site) -> impl Iterator<Item = (&'static str, u64)> {
    let rested = site.rested.saturating_sub(site.reasons.first().copied().unwrap_or(0));
    REASONS.iter().enumerate().filter_map(move |(i, (_, name, _))| {
        let n = site.reasons.get(i).copied().unwrap_or(0) + if i == 0 { rested } else { 0 };
        (n > 0).then_some((*name, n))
    })
}

/// The meanings of the reasons that occur.
fn legend(sites: &[&Site]) -> String {
    let occurs = |name: &str| sites.iter().any(|s| reasons(s).any(|(n, _)| n == name));
    let mut text = String::new();
    for (_, name, meaning) in REASONS.iter().filter(|(_, name, _)| occurs(name)) {
        let _ = writeln!(text, "{name}:{meaning}");
    }
    if sites.iter().any(|s| s.decision() == Decision::Abstains) {
        text += "abstains: no call site elides just now, because the program takes less time so, \
            or to find out whether it does; such copies of memory that is not tracked are not \
            counted\n";
    }
    text
}

/// One line for each program.
pub fn list(views: &[View]) -> String {
    if views.is_empty() {
        let none = "No program under uncopy that elides, or none that you may see";
        let hidden = match files::unwritable() {
            Some(why) => format!("; programs could not be seen here: {why}"),
            None => String::new(),
        };
        return format!("{none}{hidden}.\n");
    }
    let mut table = table([
        "pid",
        "command",
        "copies elided",
        "bytes elided",
        "elided/s",
        "copied/s",
        "touched/s",
        "faults/s",
        "extents",
        "allocator",
    ]);
    for v in views {
        let c = &v.program.counters;
        table.add_row([
            v.program.pid.to_string(),
            printable(&v.program.command),
            grouped(c.elided_copies),
            rough_size(c.elided_bytes as f64),
            rough_size(v.rate("elided_bytes")),
            rough_size(v.rate("copied_bytes")),
            rough_size(v.rate("touched_pages") * PAGE as f64),
            format!("{:.1}", v.rate("faults")),
            rough_size(c.extent_bytes as f64),
            rough_size(c.twin_live_bytes as f64),
        ]);
    }
    right(&mut table, 2);
    format!("{table}\n")
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    crate::table::table(&header, 200)
}

fn right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn amount(name: &str, value: f64) -> String {
    if name.ends_with("_bytes") { rough_size(value) } else { grouped(value as u64) }
}

fn rated(name: &str, rate: Option<f64>) -> String {
    match rate {
        None => String::new(),
        Some(rate) if name.ends_with("_bytes") => rough_size(rate),
        Some(rate) if rate < 100.0 => format!("{rate:.1}"),
        Some(rate) => grouped(rate as u64),
    }
}
