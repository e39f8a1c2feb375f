//! `uncopy-bench bulk`: many flows between Linux' TCP and uncopy's, in all combinations of who
//! sends and who receives, over the same link.

use comfy_table::CellAlignment;
use serde::{Deserialize, Serialize};
use uncopy_measure::Failure;
use uncopy_measure::medians::{quotient, round, spread};
use uncopy_measure::values::positive;
use uncopy_tcp_link::Report;

use super::hosts::{Ends, Hosts, LinkArgs, Point, middle, named};

/// Options of `uncopy-bench bulk`.
#[derive(Clone, Debug, clap::Args)]
pub struct BulkArgs {
    /// Flows from one host to the other
    #[arg(long, value_name = "N", default_value = "100", value_parser = positive)]
    pub flows: usize,
    /// Whose TCP receives. (How fast it goes is the sender's to say: see --hosts)
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "linux-cubic,uncopy-cubic"
    )]
    pub to: Vec<Hosts>,
    #[command(flatten)]
    pub link: LinkArgs,
}

/// One combination.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    /// The sender.
    from: Hosts,
    /// The second time: what it differs by is noise.
    again: bool,
    /// The receiver.
    to: Hosts,
    flows: usize,
    /// Payload that arrived, of all flows.
    mbit_per_s: f64,
    /// Its smallest and largest of the single times.
    mbit_per_s_spread: [f64; 2],
    /// The share of the link's rate.
    share: f64,
    /// The ratio to the first row's.
    ratio: f64,
    /// The share over the median that one flow in a hundred falls short of, of all of the time.
    p1_over_median: f64,
    /// The share that one exceeds.
    p99_over_median: f64,
    /// Frames of a hundred that the link's queue had no room for.
    dropped_percent: f64,
    /// Frames of a hundred that were marked.
    marked_percent: f64,
    /// The longest time that the link itself came too late.
    late_us: f64,
    /// The facts of its connections.
    ends: Ends,
}

impl Row {
    /// Medians of the times that it was measured.
    fn of(point: &Point, reports: &[Report], rate: f64, first: f64) -> Self {
        let once = |report| Self::once(point, report, rate, first);
        let all: Vec<Self> = reports.iter().map(once).collect();
        let mid = |digits, pick: fn(&Self) -> f64| middle(&all, digits, pick);
        Self {
            mbit_per_s: mid(2, |row| row.mbit_per_s),
            mbit_per_s_spread: spread(all.iter().map(|row| row.mbit_per_s), 2),
            share: mid(3, |row| row.share),
            ratio: mid(3, |row| row.ratio),
            p1_over_median: mid(2, |row| row.p1_over_median),
            p99_over_median: mid(2, |row| row.p99_over_median),
            dropped_percent: mid(2, |row| row.dropped_percent),
            marked_percent: mid(2, |row| row.marked_percent),
            late_us: all.iter().map(|row| row.late_us).fold(0.0, f64::max),
            ..all[0].clone()
        }
    }

    fn once(point: &Point, report: &Report, rate: f64, first: f64) -> Self {
        let mut flows = vec![0; point.flows];
        for interval in &report.got {
            flows.iter_mut().zip(interval).for_each(|(all, bytes)| *all += bytes);
        }
        flows.sort_unstable();
        let at = |p: f64| flows[((flows.len() - 1) as f64 * p) as usize] as f64;
        let frames = report.counts.frames as f64;
        let percent = |of: u64| round(100.0 * quotient(of as f64, frames), 2);
        let goodput = report.goodput();
        Self {
            from: point.hosts,
            again: point.again,
            to: point.to,
            flows: point.flows,
            mbit_per_s: round(goodput * 8e-6, 2),
            mbit_per_s_spread: [0.0; 2],
            share: round(quotient(goodput, rate), 3),
            ratio: round(quotient(goodput, first), 3),
            p1_over_median: round(quotient(at(0.01), at(0.5)), 2),
            p99_over_median: round(quotient(at(0.99), at(0.5)), 2),
            dropped_percent: percent(report.counts.overflowed),
            marked_percent: percent(report.counts.marked),
            late_us: round(report.late.as_secs_f64() * 1e6, 0),
            ends: Ends::of(report),
        }
    }
}

/// Measures and prints.
pub fn main(args: &BulkArgs) -> Result<(), Failure> {
    let points: Vec<Point> = args
        .link
        .hosts()
        .flat_map(|hosts| args.to.iter().map(move |&to| (hosts, to)))
        .map(|((hosts, again), to)| Point {
            hosts,
            to,
            again,
            senders: 1,
            flows: args.flows,
            loss: 0.0,
        })
        .collect();
    let mut first = None;
    let row = |point: &Point, reports: &[Report]| {
        let first = *first.get_or_insert(middle(reports, 0, Report::goodput));
        Row::of(point, reports, args.link.bytes_per_s(), first)
    };
    args.link.rows("bulk", &points, row, |rows| text(rows, args.flows))
}

fn text(rows: &[Row], flows: usize) -> String {
    let header = [
        "from",
        "to",
        "Mbit/s",
        "of the rate",
        "of the first",
        "1%",
        "99%",
        "dropped",
        "marked",
        "late, us",
    ];
    let mut table = crate::table::table(&header, 120);
    for row in rows {
        table.add_row([
            named(row.from, row.again),
            row.to.name(),
            format!("{:.1}", row.mbit_per_s),
            format!("{:.3}", row.share),
            format!("{:.3}", row.ratio),
            format!("{:.2}", row.p1_over_median),
            format!("{:.2}", row.p99_over_median),
            format!("{:.2}%", row.dropped_percent),
            format!("{:.2}%", row.marked_percent),
            format!("{:.0}", row.late_us),
        ]);
    }
    table.column_iter_mut().skip(2).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    format!(
        "{table}\n{flows} flows from one host to another. 1%, 99%: what one flow in a hundred \
         falls short of, or exceeds, over the median flow. "
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn flows_are_compared_over_all_of_the_time_and_rates_with_the_first_row() {
        // 99 flows get 1000 bytes in all, one after the other; one gets 3000.
        let intervals = (0..10).map(|i| {
            let mut got: Vec<u64> =
                (0..99).map(|flow| if flow % 10 == i { 1000 } else { 0 }).collect();
            got.push(300);
            got
        });
        let report = Report {
            got: intervals.collect(),
            seconds: 1.0,
            counts: Default::default(),
            late: Duration::ZERO,
            ends: Default::default(),
        };
        let point = Point {
            hosts: Hosts::LinuxCubic,
            to: Hosts::UncopyCubic,
            again: false,
            senders: 1,
            flows: 100,
            loss: 0.0,
        };
        let row = Row::of(&point, &[report], 204_000.0, 51_000.0);
        assert_eq!((row.share, row.ratio, row.mbit_per_s), (0.5, 2.0, 0.82));
        assert_eq!((row.p1_over_median, row.p99_over_median), (1.0, 1.0));
    }
}
