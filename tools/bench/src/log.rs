//! `uncopy-bench log`: appends that must be durable, and appends that must be so once a second,
//! plain and under `uncopy run --log`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Serialize;
use uncopy_measure::medians::{median, quotient, round};
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, failure, progress, units, values};

use crate::appender::{NAME, Took};

/// Options of `uncopy-bench log`.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// Where the files and the log are; the file system is what is measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Lengths of appends
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        default_value = "100,4K,64K",
        value_parser = values::size,
    )]
    sizes: Vec<usize>,
    /// Appends that each process measures, a sync after each
    #[arg(long, value_name = "N", default_value = "2000", value_parser = values::positive)]
    appends: usize,
    /// Seconds of appends with a sync a second; 0: none
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    held: u32,
    /// Megabytes a second of these at most
    #[arg(long, value_name = "MB", default_value = "200", value_parser = values::positive)]
    rate: usize,
    /// Times that the sides are measured in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = values::positive)]
    repeats: usize,
    /// The command [default: 'uncopy' beside this one]
    #[arg(long, value_name = "PATH")]
    uncopy: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    what: String,
    side: String,
    median_us: f64,
    p99_us: f64,
    cpu_us: f64,
    ratio: f64,
    cpu_ratio: f64,
}

/// A program that appends: so many bytes at once, so often (`None`: held, for some seconds).
type Case = (usize, bool);

/// Measures, and prints each kind of append once it is measured.
pub fn main(args: &LogArgs) -> Result<(), Failure> {
    let synced = args.sizes.iter().map(|size| (*size, true));
    let held = args.sizes.iter().filter(|_| args.held > 0).map(|size| (*size, false));
    let all: Vec<Case> = synced.chain(held).collect();
    let bar = progress::bar(args.repeats * all.len() * 3);
    let print = |text: &str| bar.suspend(|| uncopy_measure::print(text));
    if !args.json {
        let [side, median, p99, cpu] = ["side", "median us", "p99 us", "CPU us"];
        let head = format!("{:22} {side:12} {median:>9} {p99:>9} {cpu:>9}", "append");
        print(&format!("{head} {:>7} {:>7}\n", "median", "CPU"))?;
    }
    let mut rows = Vec::new();
    for what in all {
        let mut took: BTreeMap<Side, Vec<Took>> = BTreeMap::new();
        for turn in 0..args.repeats {
            for side in Side::three_in_turn(turn) {
                bar.set_message(side.to_string());
                took.entry(side).or_default().push(measured(args, what, side)?);
                bar.inc(1);
            }
        }
        let of = |side, get: fn(&Took) -> f64| median(took[&side].iter().map(get));
        for side in [Side::Plain, Side::Again, Side::Uncopy] {
            let ratio = |get| round(quotient(of(side, get), of(Side::Plain, get)), 3);
            let (size, syncs) = (units::size(what.0 as u64), what.1);
            let row = Row {
                what: format!("{size}{}", if syncs { ", sync each" } else { ", sync a second" }),
                side: if side == Side::Uncopy { "log".to_owned() } else { side.to_string() },
                median_us: round(of(side, |t| t.median_us), 2),
                p99_us: round(of(side, |t| t.p99_us), 2),
                cpu_us: round(of(side, |t| t.cpu_us), 2),
                ratio: ratio(|t| t.median_us),
                cpu_ratio: ratio(|t| t.cpu_us),
            };
            if !args.json {
                let Row { what, side, median_us, p99_us, cpu_us, ratio, cpu_ratio } = &row;
                let times = format!("{median_us:>9.1} {p99_us:>9.1} {cpu_us:>9.1}");
                print(&format!("{what:22} {side:12} {times} {ratio:>7.2} {cpu_ratio:>7.2}\n"))?;
            }
            rows.push(row);
        }
    }
    bar.finish_and_clear();
    if args.json {
        let json = serde_json::to_string(&rows).expect("results can be written");
        return uncopy_measure::print(&format!("{json}\n"));
    }
    uncopy_measure::print(&format!(
        "\nOf an append with its sync, or of an append; processor time with that of the log's \
         service. Medians of {} processes a side, as ratios of plain's.\n",
        args.repeats
    ))
}

fn measured(args: &LogArgs, (size, syncs): Case, side: Side) -> Result<Took, Failure> {
    let failed = |why: std::io::Error| failure!("cannot measure {side}").because(why);
    let own = std::env::current_exe().map_err(failed)?;
    let file = args.dir.join(format!("uncopy-bench-log.{}", std::process::id()));
    let log = args.dir.join("uncopy-bench-log");
    let mut command = match side {
        Side::Uncopy => {
            let beside = || own.with_file_name("uncopy");
            let mut command = Command::new(args.uncopy.clone().unwrap_or_else(beside));
            command.arg("run").arg(format!("--log={}", log.display())).arg("--").arg(&own);
            command
        }
        _ => Command::new(&own),
    };
    let count = if syncs { args.appends } else { 0 };
    command.arg(NAME).arg(&file).arg(size.to_string()).arg(count.to_string());
    command.arg(args.held.to_string()).arg(args.rate.to_string());
    let output = command.stderr(Stdio::inherit()).output().map_err(failed)?;
    let _ = std::fs::remove_file(&file);
    if !output.status.success() {
        return Err(failure!("the {side} measurement ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|why| failure!("the {side} measurement answered nonsense").because(why))
}
