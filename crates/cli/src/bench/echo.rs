//! `uncopy bench echo`: the rows, the turns, and what they come to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use super::echo_rows::{Results, Row};
use super::echo_rows::{Samples, table};
use super::echo_server::{Allocation, Checksum, Plan, Touched};
use super::echo_turns::Contender;
use super::stats::{median, quotient, round};
use super::{Side, cores, progress};
use crate::run::userfaultfd;
use crate::{Outcome, library, units};

/// Options of `bench echo`.
#[derive(Clone, Debug, clap::Args)]
pub struct EchoArgs {
    /// Message sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "512K", value_parser = size)]
    pub sizes: Vec<usize>,
    /// Copies that the server makes of every message
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1,4,12")]
    pub copies: Vec<usize>,
    /// Connections, each with one message under way
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16", value_parser = positive)]
    pub connections: Vec<usize>,
    /// Threads of the server
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = positive)]
    pub threads: Vec<usize>,
    /// Pages of every message that the server reads and writes back
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0")]
    pub touch_pages: Vec<usize>,
    /// In which buffers it touches them
    #[arg(long, value_enum, default_value = "both")]
    pub touched: Touched,
    /// Touch other pages in each message, so that none is known beforehand
    #[arg(long)]
    pub touch_moving: bool,
    /// Copies whose every byte the server reads and sums up (without copies, the message's own);
    /// copies with different sums end it
    #[arg(long, value_enum, default_value = "none")]
    pub checksum: Checksum,
    /// How the server allocates its copies
    #[arg(long, value_enum, default_value = "malloc")]
    pub alloc: Allocation,
    /// Times that fresh servers, plain and under uncopy, are measured side by side; medians are shown
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub repeats: usize,
    /// Timed load on each of them, in short turns
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = seconds)]
    pub seconds: Duration,
    /// Load on each before that, while call sites learn; 0 shows what learning costs
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub warmup: Duration,
    /// Random messages on each connection that are compared byte by byte before each window, and
    /// as many after it
    #[arg(long, value_name = "N", default_value = "3")]
    pub verify: usize,
    /// Core of the server's first thread [default: the first one]
    #[arg(long, value_name = "CORE")]
    pub server_core: Option<usize>,
    /// Core of the load generator [default: the second one]
    #[arg(long, value_name = "CORE")]
    pub load_core: Option<usize>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options of the library, as environment variables of the uncopy side.
    #[arg(skip)]
    pub environment: Vec<(&'static str, &'static str)>,
    /// Whether to measure rows without copies where the ideal ratio needs them.
    #[arg(skip = true)]
    pub ideal: bool,
}

impl Default for EchoArgs {
    fn default() -> Self {
        super::defaults()
    }
}

/// A size above 0.
pub fn size(text: &str) -> Result<usize, String> {
    units::parse_size(text)
        .and_then(|n| if n == 0 { Err("it must be at least 1".into()) } else { Ok(n) })
}

/// A number above 0.
pub fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| "it must be a whole number above 0".to_owned())
}

/// A length of time.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| *d <= Duration::from_secs(3600))
        .ok_or_else(|| "it must be a number of seconds".to_owned())
}

/// Measures and prints.
pub fn main(args: &EchoArgs) -> Outcome {
    let library = library::find(args.library.as_deref())?;
    let refused = userfaultfd::check();
    if let Err(why) = &refused {
        eprintln!("uncopy: nothing can be elided: {why}");
    }
    let results = measure(args, &library)?;
    if refused.is_ok() {
        for warning in results.rows.iter().filter_map(nothing_elided) {
            eprintln!("uncopy: {warning}");
        }
    }
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return crate::print(&format!("{json}\n"));
    }
    crate::print(&format!(
        "{}\n\
         Medians of {} fresh pairs of servers, {} s each in short turns after {} s of load. ratio: uncopy over plain; ideal: plain without copies over plain.\n\
         cpu: of the server, us a request; latencies in us; calls: page-table calls in 100 requests.\n\
         Echoes are not compared while time is taken; before and after, every byte of {} random\n\
         messages was, on both sides, and all of them were right.\n",
        table(&results.rows),
        args.repeats,
        args.seconds.as_secs_f64(),
        args.warmup.as_secs_f64(),
        units::grouped(results.rows.iter().map(|row| row.verified_messages).sum()),
    ))
}

/// Whether a row that should have elided something did not.
pub fn nothing_elided(row: &Row) -> Option<String> {
    let threshold = std::env::var("UNCOPY_THRESHOLD").ok();
    let spec = &uncopy_options::OPTIONS[uncopy_options::index_of("threshold")];
    let threshold =
        threshold.and_then(|text| uncopy_options::parse(spec, &text).ok()).unwrap_or(spec.default);
    let expected = row.copies > 0 && row.size as u64 >= threshold;
    (expected && row.uncopy.elided_bytes == 0).then(|| {
        format!(
            "nothing was elided at size {}, copies {}: the ratio shows noise only",
            units::size(row.size as u64),
            row.copies
        )
    })
}

/// Size, connections, threads and pages touched: what a baseline without copies is shared by.
type Group = (usize, usize, usize, usize);

/// Measures every row.
pub fn measure(args: &EchoArgs, library: &Path) -> Outcome<Results> {
    let available = cores::all()?;
    let server_core = args.server_core.unwrap_or(available[0]);
    let load_core = args.load_core.unwrap_or(*available.get(1).unwrap_or(&available[0]));
    let mut plans = Vec::new();
    for &size in &args.sizes {
        for &connections in &args.connections {
            for &threads in &args.threads {
                for &touch_pages in &args.touch_pages {
                    for &copies in &args.copies {
                        let cores = cores::plan(&available, threads, server_core, load_core)?;
                        let allocation = args.alloc;
                        plans.push(Plan {
                            size,
                            copies,
                            connections,
                            touch_pages,
                            touched: args.touched,
                            touch_moving: args.touch_moving,
                            checksum: args.checksum,
                            allocation,
                            cores: cores.server,
                        });
                    }
                }
            }
        }
    }
    cores::pin(load_core)?;

    let group = |plan: &Plan| -> Group {
        (plan.size, plan.connections, plan.cores.len(), plan.touch_pages)
    };
    let bar = progress::bar(plans.len() * args.repeats);
    let mut baselines: BTreeMap<Group, f64> = BTreeMap::new();
    let mut rows = Vec::new();
    for plan in &plans {
        let listed = plans.iter().any(|other| other.copies == 0 && group(other) == group(plan));
        let wants_baseline = args.ideal && !listed && !baselines.contains_key(&group(plan));
        let mut samples = Samples::default();
        let mut baseline = Vec::new();
        let without = Plan { copies: 0, ..plan.clone() };
        for repeat in 0..args.repeats {
            let [first, second] = Side::in_turn(repeat);
            let mut entries = vec![(first, plan), (second, plan)];
            if wants_baseline {
                entries.push((Side::Plain, &without));
            }
            bar.set_message(format!("{}, {} copies", units::size(plan.size as u64), plan.copies));
            let mut contenders = entries
                .iter()
                .map(|(side, plan)| Contender::start(args, plan, *side, library))
                .collect::<Outcome<Vec<_>>>()?;
            Contender::race(&mut contenders, args.seconds)?;
            for ((side, of), contender) in entries.into_iter().zip(contenders) {
                let sample = contender.end(args, library)?;
                if of.copies == plan.copies {
                    samples.of(side).push(sample);
                } else {
                    baseline.push(sample.numbers.req_per_s);
                }
            }
            bar.inc(1);
        }
        let row = samples.row(plan)?;
        if plan.copies == 0 {
            baselines.insert(group(plan), row.plain.req_per_s);
        } else if wants_baseline {
            baselines.insert(group(plan), median(baseline));
        }
        rows.push(row);
    }
    bar.finish_and_clear();
    for (row, plan) in rows.iter_mut().zip(&plans) {
        let baseline = baselines.get(&group(plan)).copied().unwrap_or(0.0);
        row.ideal_ratio = round(quotient(baseline, row.plain.req_per_s), 3);
    }
    Ok(Results { bench: "echo".to_owned(), rows })
}
