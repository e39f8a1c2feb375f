//! `uncopy stat`: what a program under uncopy did, and does.

pub mod files;
pub mod json;
pub mod process;
pub mod program;
pub mod prometheus;
pub mod symbols;
pub mod text;
pub mod view;

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use uncopy_counters::Snapshot;
use uncopy_measure::Failure;
use uncopy_measure::values::{self, BadValue};

use self::symbols::Symbols;
use self::view::View;

/// The options of `uncopy stat`.
#[derive(Args, Clone, Debug)]
pub struct StatArgs {
    /// Only this process; without it, a line for each program under uncopy
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// Again every so many seconds, with what was done in that time
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = seconds)]
    watch: Option<f64>,
    /// How often to print with -w; without it, until interrupted or the process ends
    #[arg(short = 'n', long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// One JSON object a line
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Prometheus' text format
    #[arg(long)]
    prometheus: bool,
}

fn seconds(text: &str) -> Result<f64, BadValue> {
    values::within(text, 0.01..=86_400.0, "0.01 to 86400")
}

/// Prints them.
pub fn main(args: &StatArgs) -> Result<(), Failure> {
    let mut symbols: HashMap<u32, Symbols> = HashMap::new();
    let mut earlier: HashMap<u32, (Instant, Snapshot)> = HashMap::new();
    let mut printed = 0;
    loop {
        let now = Instant::now();
        let programs = match args.pid {
            None => files::all(),
            Some(pid) => match files::of(pid) {
                Ok(program) => vec![program],
                // It was there, and has ended.
                Err(_) if printed > 0 && process::user(pid).is_none() => return Ok(()),
                Err(why) => return Err(why),
            },
        };
        let views: Vec<View> = programs
            .into_iter()
            .map(|p| {
                let before = earlier.insert(p.pid, (now, p.counters));
                View::new(p, before)
            })
            .collect();
        symbols.retain(|pid, _| views.iter().any(|v| v.program.pid == *pid));
        for v in &views {
            // The map of a living process grows; it is read again where it is shown again.
            if args.pid.is_some() || args.json || args.prometheus {
                symbols.entry(v.program.pid).or_insert_with(|| Symbols::of(v.program.pid));
            }
        }
        uncopy_measure::print(&if args.prometheus {
            prometheus::text(&views, &mut symbols)
        } else if args.json {
            json::lines(&views, &mut symbols)
        } else if args.pid.is_some() {
            views.iter().map(|v| text::program(v, &mut symbols)).collect()
        } else {
            text::list(&views)
        })?;
        printed += 1;
        let Some(interval) = args.watch else { return Ok(()) };
        if args.count == Some(printed) {
            return Ok(());
        }
        sleep(Duration::from_secs_f64(interval).saturating_sub(now.elapsed()));
    }
}
