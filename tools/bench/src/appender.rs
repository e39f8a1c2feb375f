//! The program of `uncopy-bench log`: it appends to a file and syncs it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};
use uncopy_measure::own_process::cpu_ns;
use uncopy_measure::{Failure, failure, medians::median};

/// The hidden subcommand.
pub const NAME: &str = "__appender";

/// The appender's orders.
#[derive(Debug, clap::Args)]
pub struct AppenderArgs {
    file: PathBuf,
    size: usize,
    /// 0: for so many seconds, a sync a second.
    appends: usize,
    seconds: u64,
    /// Megabytes a second at most.
    rate: usize,
}

/// Microseconds of an append.
#[derive(Debug, Serialize, Deserialize)]
pub struct Took {
    pub median_us: f64,
    pub p99_us: f64,
    pub cpu_us: f64,
}

/// A sync waits in between, so that the file begins to be held, and the log is made.
const WARM: usize = 50;
const PAUSE: Duration = Duration::from_millis(1500);

/// Appends, and prints what it took.
pub fn main(args: &AppenderArgs) -> Result<(), Failure> {
    let failed = |why: std::io::Error| failure!("{}: {why}", args.file.display());
    let mut file = File::options().append(true).create(true).open(&args.file).map_err(failed)?;
    let bytes = vec![0x5a; args.size];
    for n in 0..WARM {
        file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(failed)?;
        if n == WARM / 2 {
            std::thread::sleep(PAUSE);
        }
    }
    let cpu = || Ok::<f64, Failure>((own()? + services()) / 1e3);
    let before = cpu()?;
    let mut times = Vec::new();
    if args.appends > 0 {
        for _ in 0..args.appends {
            let begun = Instant::now();
            file.write_all(&bytes).and_then(|()| file.sync_data()).map_err(failed)?;
            times.push(begun.elapsed());
        }
    } else {
        let each = Duration::from_secs_f64(args.size as f64 / (args.rate << 20) as f64);
        let begun = Instant::now();
        let mut synced = begun;
        while begun.elapsed() < Duration::from_secs(args.seconds) {
            let at = Instant::now();
            file.write_all(&bytes).map_err(failed)?;
            times.push(at.elapsed());
            if synced.elapsed() >= Duration::from_secs(1) {
                file.sync_data().map_err(failed)?;
                synced = Instant::now();
            }
            let due = each * times.len() as u32;
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        // (Bytes that are not home yet are work that is still to be done.)
        file.sync_data().map_err(failed)?;
    }
    let used = cpu()? - before;
    times.sort_unstable();
    let us = |time: &Duration| time.as_secs_f64() * 1e6;
    let took = Took {
        median_us: median(times.iter().map(us)),
        p99_us: us(&times[times.len() * 99 / 100]),
        cpu_us: used / times.len() as f64,
    };
    let json = serde_json::to_string(&took).expect("numbers can be written");
    uncopy_measure::print(&format!("{json}\n"))
}

fn own() -> Result<f64, Failure> {
    let used = cpu_ns(UsageWho::RUSAGE_SELF).map_err(Failure::new)?;
    Ok(used as f64)
}

/// Processor time in ns of the services of logs, of which there is one here.
fn services() -> f64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        if words.split(|byte| *byte == 0).nth(1) != Some(b"__log-service") {
            return None;
        }
        let text = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    processes.filter_map(of).sum()
}
