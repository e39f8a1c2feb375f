//! `uncopy-bench incast`: how evenly flows from several hosts to one share its link (TAS, Figure
//! 3.13).

use comfy_table::CellAlignment;
use serde::{Deserialize, Serialize};
use uncopy_measure::medians::{quotient, round, spread};
use uncopy_measure::values::positive;
use uncopy_measure::{Failure, units};
use uncopy_tcp_link::Report;

use super::hosts::{Ends, Hosts, LinkArgs, Point, middle, named};

/// Options of `uncopy-bench incast`.
#[derive(Clone, Debug, clap::Args)]
pub struct IncastArgs {
    /// Flows of all hosts together
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "16,64,128",
        value_parser = positive,
    )]
    pub flows: Vec<usize>,
    /// Hosts that send
    #[arg(long, value_name = "N", default_value = "4", value_parser = hosts)]
    pub senders: usize,
    #[command(flatten)]
    pub link: LinkArgs,
}

fn hosts(text: &str) -> Result<usize, Failure> {
    let fits = |n: &usize| (1..=50).contains(n);
    text.parse().ok().filter(fits).ok_or_else(|| Failure::new("it must be a number from 1 to 50"))
}

/// One measurement: of what each flow got in each interval of 100 ms.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    hosts: Hosts,
    /// The second time: what it differs by is noise.
    again: bool,
    flows: usize,
    senders: usize,
    /// Payload that arrived, of all flows.
    mbit_per_s: f64,
    /// A flow's part, if all were alike.
    fair_mbit_per_s: f64,
    /// The median.
    median_mbit_per_s: f64,
    /// The share over the median that one in a hundred exceeds: at most 2.8 in the dissertation.
    p99_over_median: f64,
    /// Its smallest and largest of the single times.
    p99_over_median_spread: [f64; 2],
    /// The share over the median that one in a hundred falls short of.
    p1_over_median: f64,
    /// Of a hundred, those that got nothing.
    nothing_percent: f64,
    /// The longest time that the link itself came too late.
    late_us: f64,
    /// The facts of its connections.
    ends: Ends,
}

impl Row {
    /// Medians of the times that it was measured.
    fn of(point: &Point, reports: &[Report]) -> Self {
        let all: Vec<Self> = reports.iter().map(|report| Self::once(point, report)).collect();
        let mid = |digits, pick: fn(&Self) -> f64| middle(&all, digits, pick);
        Self {
            mbit_per_s: mid(2, |row| row.mbit_per_s),
            fair_mbit_per_s: mid(3, |row| row.fair_mbit_per_s),
            median_mbit_per_s: mid(3, |row| row.median_mbit_per_s),
            p99_over_median: mid(2, |row| row.p99_over_median),
            p99_over_median_spread: spread(all.iter().map(|row| row.p99_over_median), 2),
            p1_over_median: mid(2, |row| row.p1_over_median),
            nothing_percent: mid(2, |row| row.nothing_percent),
            late_us: all.iter().map(|row| row.late_us).fold(0.0, f64::max),
            ..all[0].clone()
        }
    }

    fn once(point: &Point, report: &Report) -> Self {
        let mut all: Vec<u64> = report.got.iter().flatten().copied().collect();
        all.sort_unstable();
        let at = |p: f64| all.get(((all.len() - 1) as f64 * p) as usize).map_or(0.0, |n| *n as f64);
        let intervals = report.got.len().max(1) as f64;
        let mbit = |bytes: f64| round(bytes * 8e-6 * intervals / report.seconds, 3);
        let nothing = all.iter().filter(|bytes| **bytes == 0).count() as f64;
        Self {
            hosts: point.hosts,
            again: point.again,
            flows: point.flows,
            senders: point.senders,
            mbit_per_s: round(report.goodput() * 8e-6, 2),
            fair_mbit_per_s: round(report.goodput() * 8e-6 / point.flows as f64, 3),
            median_mbit_per_s: mbit(at(0.5)),
            p99_over_median: round(quotient(at(0.99), at(0.5)), 2),
            p99_over_median_spread: [0.0; 2],
            p1_over_median: round(quotient(at(0.01), at(0.5)), 2),
            nothing_percent: round(100.0 * quotient(nothing, all.len() as f64), 2),
            late_us: round(report.late.as_secs_f64() * 1e6, 0),
            ends: Ends::of(report),
        }
    }
}

/// Measures and prints.
pub fn main(args: &IncastArgs) -> Result<(), Failure> {
    let points: Vec<Point> = args
        .flows
        .iter()
        .flat_map(|&flows| args.link.hosts().map(move |hosts| (flows, hosts)))
        .map(|(flows, (hosts, again))| {
            let senders = args.senders;
            Point { hosts, to: hosts, again, senders, flows, loss: 0.0 }
        })
        .collect();
    args.link.rows("incast", &points, Row::of, |rows| text(rows, args.senders))
}

fn text(rows: &[Row], senders: usize) -> String {
    let header = [
        "flows",
        "TCP",
        "Mbit/s",
        "fair",
        "median",
        "99% over it",
        "1% over it",
        "nothing",
        "late, us",
    ];
    let mut table = crate::table::table(&header, 110);
    for row in rows {
        table.add_row([
            units::grouped(row.flows as u64),
            named(row.hosts, row.again),
            format!("{:.1}", row.mbit_per_s),
            format!("{:.2}", row.fair_mbit_per_s),
            format!("{:.2}", row.median_mbit_per_s),
            format!("{:.2}", row.p99_over_median),
            format!("{:.2}", row.p1_over_median),
            format!("{:.1}%", row.nothing_percent),
            format!("{:.0}", row.late_us),
        ]);
    }
    table.column_iter_mut().skip(2).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    format!(
        "{table}\nFlows from {senders} hosts to one. fair: a flow's part, if all were alike. \
         median, 99%, 1%: of what a flow got in 100 ms; nothing: so many of these.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn shares_of_flows_are_compared_with_the_median() {
        // Ten intervals of 100 ms: 99 flows get 1000 bytes in each, one 5000.
        let mut interval = vec![1000; 99];
        interval.push(5000);
        let report = Report {
            got: vec![interval; 10],
            seconds: 1.0,
            counts: Default::default(),
            late: Duration::ZERO,
            ends: Default::default(),
        };
        let hosts = Hosts::UncopyDctcp;
        let point = Point { hosts, to: hosts, again: false, senders: 4, flows: 100, loss: 0.0 };
        let row = Row::of(&point, &[report]);
        assert_eq!((row.p99_over_median, row.p1_over_median, row.nothing_percent), (1.0, 1.0, 0.0));
        assert_eq!((row.mbit_per_s, row.median_mbit_per_s), (8.32, 0.08));
    }
}
