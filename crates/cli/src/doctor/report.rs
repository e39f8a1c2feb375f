//! The doctor's findings, as tables and as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use comfy_table::Table;
use serde_json::{Value, json};
use uncopy_decide::Costs;
use uncopy_measure::machine::Machine;
use uncopy_measure::printable::{self, printable};
use uncopy_measure::units;

use super::cells::{number, right, table};
use super::checks::Check;
use super::copies::Grid;
use super::derive::{FURTHEST, HOW};
use super::measured::Measured;

/// Whether the costs are there for the next `uncopy run`.
#[derive(Debug)]
pub enum Kept {
    /// The prices are in this file.
    In(PathBuf),
    /// Not: the reason.
    Not(String),
}

/// Everything.
#[derive(Debug)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Cores that may be used.
    pub cores: usize,
    /// Runnable threads for each.
    pub busy_share: f64,
    /// Features and permissions.
    pub checks: Vec<Check>,
    /// Why nothing can be elided.
    pub obstacle: Option<String>,
    /// Times.
    pub results: Vec<Measured>,
    /// Copies that stay.
    pub copies: Grid,
    /// Prices.
    pub costs: Option<Costs>,
    /// Where they are.
    pub kept: Kept,
    /// The costs that `uncopy run` finds now.
    pub in_use: Option<Costs>,
}

impl Report {
    /// The report for programs.
    pub fn json(&self) -> String {
        let prices = |costs: Costs| {
            Value::Object(costs.iter().map(|(name, ns)| (name.to_owned(), ns.into())).collect())
        };
        let measured: Vec<Value> = self
            .results
            .iter()
            .map(|m| {
                let reference = m.work.reference(m.bytes);
                json!({ "work": m.work, "bytes": m.bytes, "ns": m.ns, "reference_ns": reference })
            })
            .collect();
        let (kept, reason) = match &self.kept {
            Kept::In(path) => (Some(path.display().to_string()), None),
            Kept::Not(why) => (None, Some(why)),
        };
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "machine": self.machine,
            "cores": self.cores,
            "busy_share": self.busy_share,
            "can_elide": self.obstacle.is_none(),
            "obstacle": self.obstacle,
            "checks": self.checks,
            "measured": measured,
            "copies": self.copies,
            "costs": self.costs.map(prices),
            "reference_costs": prices(Costs::REFERENCE),
            "kept_in": kept,
            "not_kept": reason,
            "in_use": self.in_use.map(prices),
        });
        format!("{}\n", printable::json(&report))
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = match &self.obstacle {
            None => "Copies can be elided here.\n".to_owned(),
            Some(why) => format!("Nothing can be elided here: {}\n", printable(why)),
        };
        let _ = writeln!(
            text,
            "{}, {} cores, Linux {}\n\n{}",
            self.machine.cpu,
            self.cores,
            self.machine.kernel,
            self.check_table()
        );
        for check in self.checks.iter().filter(|c| !c.ok) {
            let _ = writeln!(text, "{} is missing. What it costs: {}.", check.name, check.costs);
            if let Some(command) = &check.command {
                let _ = writeln!(text, "  To get it: {command}");
            }
        }
        let _ = writeln!(text, "\n{}\n{NOTE}\n", self.time_table());
        let _ = writeln!(text, "{}", self.copies.text());
        if self.costs.is_some() {
            let _ = writeln!(
                text,
                "{}\nNo cost is kept further than {FURTHEST} times from the reference machine's: \
                 what is, is noise.\n",
                self.cost_table()
            );
        }
        let _ = match &self.kept {
            Kept::In(path) => writeln!(text, "Kept for 'uncopy run' in {}.", printable(path)),
            Kept::Not(why) => writeln!(text, "Not kept for 'uncopy run': {}.", printable(why)),
        };
        text
    }

    fn check_table(&self) -> Table {
        let mut table = table(&["", "state", "found", "missing, it costs"]);
        for check in &self.checks {
            let state = if check.ok { "ok" } else { "missing" };
            table.add_row([check.name, state, &check.found, check.costs]);
        }
        table
    }

    fn time_table(&self) -> Table {
        let mut table = table(&["ns", "size", "here", "reference machine"]);
        for m in &self.results {
            let size = if m.bytes == 0 { String::new() } else { units::size(m.bytes as u64) };
            let reference = m.work.reference(m.bytes).map_or_else(String::new, number);
            table.add_row([m.work.text().to_owned(), size, number(m.ns), reference]);
        }
        right(&mut table, 1..4);
        table
    }

    fn cost_table(&self) -> Table {
        let mut table = table(&["cost, ns", "here", "reference machine", "from"]);
        let here = self.costs.unwrap_or(Costs::REFERENCE);
        for (((name, ns), (_, reference)), (_, how)) in
            here.iter().zip(Costs::REFERENCE.iter()).zip(HOW)
        {
            let numbers = [number(ns as f64), number(reference as f64)];
            let [here, reference] = numbers;
            table.add_row([name.to_owned(), here, reference, how.to_owned()]);
        }
        right(&mut table, 1..3);
        table
    }
}

const NOTE: &str = "Medians. A fault: with one page filled, and with 16 around it. Books: of the \
    tracker on memory that does not exist.";
