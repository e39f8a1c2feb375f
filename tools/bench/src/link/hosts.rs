//! Whose TCP the hosts have, and over what link they send.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uncopy_measure::values::{positive, seconds};
use uncopy_measure::{Outcome, progress};
use uncopy_tcp_link::way::Terms;
use uncopy_tcp_link::{Plan, Report, Tcp, run};
use uncopy_tcp_proto::Algorithm;

use crate::results::show;

/// Whose TCP, with which congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// Linux' CUBIC
    LinuxCubic,
    /// Linux' BBR
    LinuxBbr,
    /// Linux' DCTCP, where this kernel has it
    LinuxDctcp,
    /// uncopy's CUBIC
    UncopyCubic,
    /// uncopy's DCTCP, by rate
    UncopyDctcp,
    /// uncopy's TIMELY, by rate
    UncopyTimely,
}

impl Hosts {
    /// For people.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn tcp(self) -> Tcp {
        match self {
            Self::LinuxCubic => Tcp::Linux("cubic".into()),
            Self::LinuxBbr => Tcp::Linux("bbr".into()),
            Self::LinuxDctcp => Tcp::Linux("dctcp".into()),
            Self::UncopyCubic => Tcp::Uncopy(Algorithm::Cubic),
            Self::UncopyDctcp => Tcp::Uncopy(Algorithm::Dctcp),
            Self::UncopyTimely => Tcp::Uncopy(Algorithm::Timely),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Whose TCP sends.
    pub hosts: Hosts,
    /// Whose receives.
    pub to: Hosts,
    /// Hosts that send.
    pub senders: usize,
    /// Flows of all of them.
    pub flows: usize,
    /// Frames of a hundred that are lost.
    pub loss: f64,
}

impl Point {
    fn name(&self) -> String {
        let (from, to) = (self.hosts.name(), self.to.name());
        format!("{from} to {to}, {} flows, {}% lost", self.flows, self.loss)
    }
}

/// Options of all.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkArgs {
    /// Whose TCP sends and receives
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "linux-cubic,uncopy-cubic,uncopy-dctcp"
    )]
    pub hosts: Vec<Hosts>,
    /// The link's rate, in millions of bits a second: little enough that no processor is the limit
    #[arg(long, value_name = "MBIT", default_value = "200", value_parser = positive)]
    pub rate: usize,
    /// Length of a measurement
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// Time before that, from when all flows have begun
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,
    /// Which frames are lost
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// From one end of the link to the other.
const DELAY: Duration = Duration::from_micros(50);
/// What its queue holds, bytes.
const QUEUE: u64 = 1_000_000;
/// Where frames are marked: 65 packets, as the dissertation's switch does.
const MARK: u64 = 65 * 1500;
/// Bytes of each flow are noted so often.
const INTERVAL: Duration = Duration::from_millis(100);

impl LinkArgs {
    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        self.rate as f64 * 125_000.0
    }

    /// Measures each point, and prints a row of each.
    pub fn rows<R: Serialize>(
        &self,
        bench: &str,
        points: &[Point],
        mut row: impl FnMut(&Point, &Report) -> R,
        text: impl FnOnce(&[R]) -> String,
    ) -> Outcome {
        let bar = progress::bar(points.len());
        let mut rows = Vec::new();
        for point in points {
            bar.set_message(point.name());
            rows.push(row(point, &self.measure(point)?));
            bar.inc(1);
        }
        bar.finish_and_clear();
        show(bench, rows, self.json, |rows| format!("{}{}", text(rows), self.notes()))
    }

    fn measure(&self, point: &Point) -> Outcome<Report> {
        let link = Terms {
            rate: self.bytes_per_s() as u64,
            delay: DELAY.as_nanos() as u64,
            queue: QUEUE,
            mark: MARK,
            loss: point.loss / 100.0,
        };
        let plan = Plan {
            from: point.hosts.tcp(),
            to: point.to.tcp(),
            senders: point.senders,
            flows: point.flows,
            link,
            seed: self.seed,
            warmup: self.warmup,
            length: self.seconds,
            interval: INTERVAL,
        };
        run(&plan).map_err(|e| format!("{}: {e} (Linux' hosts need root)", point.name()))
    }

    /// What the link is, and on what it ran.
    fn notes(&self) -> String {
        format!(
            "The link: {} Mbit/s, 50 us each way, a queue of 1 MB, marks from 65 packets on, in real time in this process. Linux is behind\n\
             TAP devices, in network namespaces; uncopy's TCP core is in this process: what programs reach is not measured, and no\n\
             processor time is compared. {} s after {} s. late: the longest time that the link itself came too late.\n\
             Processor: {}. The receiver compared every byte.\n",
            self.rate,
            self.seconds.as_secs_f64(),
            self.warmup.as_secs_f64(),
            uncopy_measure::machine::Machine::own().cpu,
        )
    }
}
