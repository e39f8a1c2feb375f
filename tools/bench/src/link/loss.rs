//! `uncopy-bench loss`: what is left of a link's rate where frames are lost (TAS, Figure 3.7).

use comfy_table::CellAlignment;
use serde::{Deserialize, Serialize};
use uncopy_measure::Failure;
use uncopy_measure::medians::{quotient, round, spread};
use uncopy_measure::values::positive;
use uncopy_tcp_link::Report;

use super::hosts::{Ends, Hosts, LinkArgs, Point, middle, named};

/// Options of `uncopy-bench loss`.
#[derive(Clone, Debug, clap::Args)]
pub struct LossArgs {
    /// Frames of a hundred that are lost, each way. Without loss is always measured, first
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0.1,1,5",
        value_parser = percent,
    )]
    pub loss: Vec<f64>,
    /// Flows
    #[arg(long, value_name = "N", default_value = "100", value_parser = positive)]
    pub flows: usize,
    #[command(flatten)]
    pub link: LinkArgs,
}

fn percent(text: &str) -> Result<f64, Failure> {
    text.parse()
        .ok()
        .filter(|loss| (0.0..100.0).contains(loss))
        .ok_or_else(|| Failure::new("it must be a number of percent below 100"))
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    hosts: Hosts,
    /// The second time: what it differs by is noise.
    again: bool,
    flows: usize,
    /// Frames of a hundred.
    loss_percent: f64,
    /// Payload that arrived, of all flows.
    mbit_per_s: f64,
    /// Its smallest and largest of the single times.
    mbit_per_s_spread: [f64; 2],
    /// The share of the link's rate.
    share: f64,
    /// The share of its own rate without loss.
    kept: f64,
    /// The longest time that the link itself came too late.
    late_us: f64,
    /// The facts of its connections.
    ends: Ends,
}

/// Measures and prints.
pub fn main(args: &LossArgs) -> Result<(), Failure> {
    let losses: Vec<f64> =
        [0.0].into_iter().chain(args.loss.iter().copied().filter(|loss| *loss > 0.0)).collect();
    let points: Vec<Point> = args
        .link
        .hosts()
        .flat_map(|hosts| losses.iter().map(move |&loss| (hosts, loss)))
        .map(|((hosts, again), loss)| Point {
            hosts,
            to: hosts,
            again,
            senders: 1,
            flows: args.flows,
            loss,
        })
        .collect();
    let mut without = 0.0;
    let row = |point: &Point, reports: &[Report]| {
        let goodput = middle(reports, 0, Report::goodput);
        if point.loss == 0.0 {
            without = goodput;
        }
        Row {
            hosts: point.hosts,
            again: point.again,
            flows: point.flows,
            loss_percent: point.loss,
            mbit_per_s: round(goodput * 8e-6, 2),
            mbit_per_s_spread: spread(reports.iter().map(|report| report.goodput() * 8e-6), 2),
            share: round(quotient(goodput, args.link.bytes_per_s()), 3),
            kept: round(quotient(goodput, without), 3),
            late_us: latest(reports),
            ends: Ends::of(&reports[0]),
        }
    };
    args.link.rows("loss", &points, row, |rows| text(rows, args.flows))
}

/// The longest time, of all, that the link came too late, us.
pub fn latest(reports: &[Report]) -> f64 {
    let late = reports.iter().map(|report| report.late).max().unwrap_or_default();
    round(late.as_secs_f64() * 1e6, 0)
}

fn text(rows: &[Row], flows: usize) -> String {
    let header = ["TCP", "loss", "Mbit/s", "of the rate", "of its own without", "late, us"];
    let mut table = crate::table::table(&header, 100);
    for row in rows {
        table.add_row([
            named(row.hosts, row.again),
            format!("{}%", row.loss_percent),
            format!("{:.1}", row.mbit_per_s),
            format!("{:.3}", row.share),
            format!("{:.3}", row.kept),
            format!("{:.0}", row.late_us),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n{flows} flows from one host to another. ")
}
