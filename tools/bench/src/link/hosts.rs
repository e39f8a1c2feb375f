//! The hosts' TCP, and the link over which they send.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use uncopy_measure::medians::median;
use uncopy_measure::values::{positive, seconds};
use uncopy_measure::{Failure, failure, progress};
use uncopy_tcp_link::direction::Terms;
use uncopy_tcp_link::{Facts, Plan, Report, Tcp, run};
use uncopy_tcp_proto::Algorithm;

use crate::results::show;

/// The TCP of a host, with its congestion control.
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
    /// uncopy's BBR
    UncopyBbr,
}

impl Hosts {
    /// The name for people.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn is_linux(self) -> bool {
        matches!(self, Self::LinuxCubic | Self::LinuxBbr | Self::LinuxDctcp)
    }

    fn tcp(self) -> Tcp {
        match self {
            Self::LinuxCubic => Tcp::Linux("cubic".into()),
            Self::LinuxBbr => Tcp::Linux("bbr".into()),
            Self::LinuxDctcp => Tcp::Linux("dctcp".into()),
            Self::UncopyCubic => Tcp::Uncopy(Algorithm::Cubic),
            Self::UncopyDctcp => Tcp::Uncopy(Algorithm::Dctcp),
            Self::UncopyTimely => Tcp::Uncopy(Algorithm::Timely),
            Self::UncopyBbr => Tcp::Uncopy(Algorithm::Bbr),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The TCP that sends.
    pub hosts: Hosts,
    /// The TCP that receives.
    pub to: Hosts,
    /// The same once more: what it differs by is noise.
    pub again: bool,
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

/// The TCP of a row, for people.
pub fn named(hosts: Hosts, again: bool) -> String {
    hosts.name() + if again { ", again" } else { "" }
}

/// The facts of the connections of both ends of a row ([`uncopy_tcp_link::facts`]).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ends {
    /// The sender's facts.
    pub from: BTreeMap<String, String>,
    /// The receiver's facts.
    pub to: BTreeMap<String, String>,
}

impl Ends {
    /// The facts that the link has.
    pub fn of(report: &Report) -> Self {
        let all = |facts: &Facts| facts.iter().map(|(&k, v)| (k.to_owned(), v.clone())).collect();
        Self { from: all(&report.ends[0]), to: all(&report.ends[1]) }
    }
}

/// The median of what `pick` says of the times that a point was measured.
pub fn middle<T>(of: &[T], digits: i32, pick: impl Fn(&T) -> f64) -> f64 {
    uncopy_measure::medians::round(median(of.iter().map(pick)), digits)
}

/// Options of all.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkArgs {
    /// Whose TCP sends and receives. The first of Linux' is measured once more
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
    /// Times that each row is measured, all rows in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    pub repeats: usize,
    /// No connection asks for marks, neither Linux' nor uncopy's (net.ipv4.tcp_ecn = 0)
    #[arg(long)]
    pub no_ecn: bool,
    /// Which frames are lost
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// From one end of the link to the other.
const DELAY: Duration = Duration::from_micros(50);
/// The room of its queue, in bytes.
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

    /// The TCPs that have rows, and whether it is the second time.
    pub fn hosts(&self) -> impl Iterator<Item = (Hosts, bool)> + Clone {
        let again = self.hosts.iter().copied().find(|hosts| hosts.is_linux());
        self.hosts.iter().map(|&hosts| (hosts, false)).chain(again.map(|hosts| (hosts, true)))
    }

    /// Measures all points in turns, and prints a row of each.
    pub fn rows<R: Serialize>(
        &self,
        bench: &str,
        points: &[Point],
        mut row: impl FnMut(&Point, &[Report]) -> R,
        text: impl FnOnce(&[R]) -> String,
    ) -> Result<(), Failure> {
        let bar = progress::bar(points.len() * self.repeats);
        let mut reports: Vec<Vec<Report>> = points.iter().map(|_| vec![]).collect();
        for repeat in 0..self.repeats {
            for i in 0..points.len() {
                // (Each is the first, and each the last, in its turn.)
                let next = (i + repeat * points.len().div_ceil(self.repeats)) % points.len();
                bar.set_message(points[next].name());
                reports[next].push(self.measure(&points[next])?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let rows =
            points.iter().zip(&reports).map(|(point, reports)| row(point, reports)).collect();
        show(bench, rows, self.json, |rows| format!("{}{}", text(rows), self.notes()))
    }

    fn measure(&self, point: &Point) -> Result<Report, Failure> {
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
            ecn: !self.no_ecn,
            seed: self.seed,
            warmup: self.warmup,
            length: self.seconds,
            interval: INTERVAL,
        };
        run(&plan).map_err(|e| failure!("{}: {e}", point.name()).because("Linux' hosts need root"))
    }

    /// The link's settings, and the machine on which it ran.
    fn notes(&self) -> String {
        format!(
            "The link: {} Mbit/s, 50 us each way, a queue of 1 MB, marks from 65 packets on, in \
             real time in this process. Linux is behind\n\
             TAP devices, in network namespaces; uncopy's TCP core is in this process: what \
             programs reach is not measured, and no\n\
             processor time is compared. Both ask for marks ({}), and the threads of both are of \
             the same class of the kernel's schedule.\n\
             Medians of {} times, all rows in turns, {} s each after {} s. late: the longest time \
             that the link itself came too late.\n\
             Processor: {}. The receiver compared every byte.\n",
            self.rate,
            if self.no_ecn { "here neither does: --no-ecn" } else { "ECN" },
            self.repeats,
            self.seconds.as_secs_f64(),
            self.warmup.as_secs_f64(),
            uncopy_measure::machine::Machine::own().cpu,
        )
    }
}
