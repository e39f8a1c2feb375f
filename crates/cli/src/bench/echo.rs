//! `uncopy bench echo`: the rows, the turns, and what they come to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use indicatif::ProgressBar;
use serde::Serialize;

use super::echo_load::Load;
use super::echo_server::{Allocation, Plan};
use super::server_process::ServerProcess;
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
    /// How the server allocates its copies
    #[arg(long, value_enum, default_value = "malloc")]
    pub alloc: Allocation,
    /// Times that plain and uncopy are measured in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "5", value_parser = positive)]
    pub repeats: usize,
    /// Length of each timed window
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    pub seconds: Duration,
    /// Time under load before each window
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
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
}

fn size(text: &str) -> Result<usize, String> {
    units::parse_size(text)
        .and_then(|n| if n == 0 { Err("it must be at least 1".into()) } else { Ok(n) })
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| "it must be a whole number above 0".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .filter(|d| *d <= Duration::from_secs(3600))
        .ok_or_else(|| "it must be a number of seconds".to_owned())
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub struct Results {
    bench: &'static str,
    /// One for each combination of parameters.
    pub rows: Vec<Row>,
}

/// One combination of parameters.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Bytes in a message.
    pub size: usize,
    /// Copies that the server makes of each.
    pub copies: usize,
    /// Connections.
    pub connections: usize,
    /// Threads of the server.
    pub threads: usize,
    /// Pages of each message that it touches.
    pub touched_pages: usize,
    /// Medians without the library.
    pub plain: Numbers,
    /// Medians with it.
    pub uncopy: UncopyNumbers,
    /// Requests a second with it over those without.
    pub ratio: f64,
    /// Requests a second without it and without copies over those without it.
    pub ideal_ratio: f64,
    /// Smallest and largest ratio of the single turns.
    pub ratio_spread: [f64; 2],
    /// Messages that were compared byte by byte, on both sides.
    pub verified_messages: u64,
}

/// What is measured on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Numbers {
    /// Requests answered in a second.
    pub req_per_s: f64,
    /// The server's CPU time for a request.
    pub cpu_us_per_req: f64,
    /// Median latency.
    pub p50_us: f64,
    /// Latency that one request in a hundred exceeds.
    pub p99_us: f64,
    /// Resident memory at the end.
    pub rss_kb: u64,
    /// The load generator's CPU time for a request: near `1e6 / req_per_s` it is what limits.
    pub load_cpu_us_per_req: f64,
}

/// What is measured under uncopy: of counters, what the timed window added.
#[derive(Debug, Serialize)]
pub struct UncopyNumbers {
    /// What is measured on both sides.
    #[serde(flatten)]
    pub common: Numbers,
    /// Bytes of copies that were elided.
    pub elided_bytes: u64,
    /// Page faults on views.
    pub faults: u64,
    /// `UFFDIO_MOVE` calls.
    pub moves: u64,
    /// Registrations and their ends.
    pub registrations: u64,
    /// Events of the memory map.
    pub events: u64,
    /// Calls that touch page tables: moves, registrations and materialized pages.
    pub page_table_calls_per_100_req: f64,
}

/// One timed window.
struct Sample {
    numbers: Numbers,
    requests: u64,
    counters: BTreeMap<String, u64>,
    preloaded: bool,
    verified: u64,
}

impl Sample {
    fn counter(&self, name: &str) -> f64 {
        self.counters.get(name).copied().unwrap_or(0) as f64
    }

    fn page_table_calls(&self) -> f64 {
        self.counter("moves") + self.counter("registrations") + self.counter("materialized_pages")
    }
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
         Medians of {} turns of {} s. ratio: uncopy over plain; ideal: plain without copies over plain.\n\
         cpu: of the server, us a request; latencies in us; calls: page-table calls in 100 requests.\n\
         Echoes are not compared while time is taken; before and after, every byte of {} random\n\
         messages was, on both sides, and all of them were right.\n",
        table(&results.rows),
        args.repeats,
        args.seconds.as_secs_f64(),
        units::grouped(results.rows.iter().map(|row| row.verified_messages).sum()),
    ))
}

fn nothing_elided(row: &Row) -> Option<String> {
    let threshold = std::env::var("UNCOPY_THRESHOLD").ok();
    let spec = &uncopy_core::options::OPTIONS[uncopy_core::options::index_of("threshold")];
    let threshold = threshold
        .and_then(|text| uncopy_core::options::parse(spec, &text).ok())
        .unwrap_or(spec.default);
    let expected = row.copies > 0 && row.size as u64 >= threshold;
    (expected && row.uncopy.elided_bytes == 0).then(|| {
        format!(
            "nothing was elided at size {}, copies {}: the ratio shows noise only",
            units::size(row.size as u64),
            row.copies
        )
    })
}

/// Parameters that a baseline without copies is shared by.
type Group = (usize, usize, usize, usize);

/// Measures every row.
pub fn measure(args: &EchoArgs, library: &Path) -> Outcome<Results> {
    let available = cores::available()?;
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
    let bar = progress::bar(plans.len() * args.repeats * 2);
    let mut baselines: BTreeMap<Group, f64> = BTreeMap::new();
    let mut rows = Vec::new();
    for plan in &plans {
        let listed = plans.iter().any(|other| other.copies == 0 && group(other) == group(plan));
        let wants_baseline = !listed && !baselines.contains_key(&group(plan));
        let mut samples = Samples::default();
        let mut baseline = Vec::new();
        if wants_baseline {
            bar.inc_length(args.repeats as u64);
        }
        for turn in 0..args.repeats {
            for side in Side::in_turn(turn) {
                samples.of(side).push(sample(args, plan, side, library, &bar)?);
            }
            if wants_baseline {
                let plan = Plan { copies: 0, ..plan.clone() };
                baseline.push(sample(args, &plan, Side::Plain, library, &bar)?.numbers.req_per_s);
            }
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
    Ok(Results { bench: "echo", rows })
}

/// One fresh server: verified, warmed up, timed, verified.
fn sample(
    args: &EchoArgs,
    plan: &Plan,
    side: Side,
    library: &Path,
    bar: &ProgressBar,
) -> Outcome<Sample> {
    bar.set_message(format!("{}, {} copies, {side}", units::size(plan.size as u64), plan.copies));
    let mut server = ServerProcess::start(plan, side, library)?;
    let mut sample = load(args, plan, &mut server).map_err(|e| server.explain(e))?;
    server.stop()?;
    if side == Side::Uncopy && !sample.preloaded {
        return Err(format!(
            "{} was not loaded into the echo server, or has no counters; is it the library of this uncopy?",
            library.display()
        ));
    }
    sample.numbers.req_per_s = round(sample.numbers.req_per_s, 1);
    bar.inc(1);
    Ok(sample)
}

fn load(args: &EchoArgs, plan: &Plan, server: &mut ServerProcess) -> Outcome<Sample> {
    let mut load = Load::connect(server.port, plan.connections, plan.size, fastrand::u64(..))?;
    load.verify(args.verify)?;
    load.begin()?;
    load.run(args.warmup)?;
    let before = server.report()?;
    let timed = load.run(args.seconds)?;
    let after = server.report()?;
    load.finish()?;
    load.verify(args.verify)?;
    let requests = timed.requests as f64;
    let cpu_us = after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1000.0;
    let percentile = |p| round(timed.latency.value_at_percentile(p) as f64 / 1000.0, 1);
    let earlier = before.counters.unwrap_or_default();
    let preloaded = after.counters.is_some();
    let counters = after
        .counters
        .unwrap_or_default()
        .into_iter()
        .map(|(name, n)| {
            let since = n.saturating_sub(earlier.get(&name).copied().unwrap_or(0));
            (name, since)
        })
        .collect();
    Ok(Sample {
        numbers: Numbers {
            req_per_s: requests / timed.elapsed.as_secs_f64(),
            cpu_us_per_req: round(quotient(cpu_us, requests), 2),
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            rss_kb: after.rss_kb,
            load_cpu_us_per_req: round(quotient(timed.cpu_ns as f64 / 1000.0, requests), 2),
        },
        requests: timed.requests,
        counters,
        preloaded,
        verified: load.verified(),
    })
}

/// The windows of one row.
#[derive(Default)]
struct Samples {
    plain: Vec<Sample>,
    uncopy: Vec<Sample>,
}

impl Samples {
    fn of(&mut self, side: Side) -> &mut Vec<Sample> {
        match side {
            Side::Plain => &mut self.plain,
            Side::Uncopy => &mut self.uncopy,
        }
    }

    /// Medians, all but the ideal ratio, which other rows have a part in.
    fn row(&self, plan: &Plan) -> Outcome<Row> {
        if let Some(stalled) = self.plain.iter().chain(&self.uncopy).find(|s| s.requests == 0) {
            return Err(format!(
                "no request was answered within the timed window (CPU time {} us); make it longer with --seconds",
                stalled.numbers.cpu_us_per_req
            ));
        }
        let counter = |name: &str| median(self.uncopy.iter().map(|s| s.counter(name))) as u64;
        let (plain, uncopy) = (numbers(&self.plain), numbers(&self.uncopy));
        let pairs = || {
            self.plain
                .iter()
                .zip(&self.uncopy)
                .map(|(p, u)| quotient(u.numbers.req_per_s, p.numbers.req_per_s))
        };
        Ok(Row {
            size: plan.size,
            copies: plan.copies,
            connections: plan.connections,
            threads: plan.cores.len(),
            touched_pages: plan.touch_pages,
            ratio: round(quotient(uncopy.req_per_s, plain.req_per_s), 3),
            ideal_ratio: 0.0,
            ratio_spread: [
                round(pairs().fold(f64::INFINITY, f64::min), 3),
                round(pairs().fold(0.0, f64::max), 3),
            ],
            verified_messages: self.plain.iter().chain(&self.uncopy).map(|s| s.verified).sum(),
            plain,
            uncopy: UncopyNumbers {
                common: uncopy,
                elided_bytes: counter("elided_bytes"),
                faults: counter("faults"),
                moves: counter("moves"),
                registrations: counter("registrations"),
                events: counter("events"),
                page_table_calls_per_100_req: round(
                    median(
                        self.uncopy
                            .iter()
                            .map(|s| 100.0 * quotient(s.page_table_calls(), s.requests as f64)),
                    ),
                    2,
                ),
            },
        })
    }
}

fn numbers(samples: &[Sample]) -> Numbers {
    let of = |pick: fn(&Numbers) -> f64| median(samples.iter().map(|s| pick(&s.numbers)));
    Numbers {
        req_per_s: round(of(|n| n.req_per_s), 1),
        cpu_us_per_req: round(of(|n| n.cpu_us_per_req), 2),
        p50_us: round(of(|n| n.p50_us), 1),
        p99_us: round(of(|n| n.p99_us), 1),
        rss_kb: of(|n| n.rss_kb as f64) as u64,
        load_cpu_us_per_req: round(of(|n| n.load_cpu_us_per_req), 2),
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "size",
        "copies",
        "conns",
        "thr",
        "touch",
        "req/s\nplain",
        "\nuncopy",
        "\nratio",
        "\nideal",
        "cpu\nplain",
        "\nuncopy",
        "p50\nplain",
        "\nuncopy",
        "p99\nplain",
        "\nuncopy",
        "faults",
        "calls",
    ]);
    for row in rows {
        let (plain, uncopy) = (&row.plain, &row.uncopy.common);
        table.add_row([
            units::size(row.size as u64),
            row.copies.to_string(),
            row.connections.to_string(),
            row.threads.to_string(),
            row.touched_pages.to_string(),
            units::grouped(plain.req_per_s as u64),
            units::grouped(uncopy.req_per_s as u64),
            format!("{:.2}", row.ratio),
            format!("{:.2}", row.ideal_ratio),
            format!("{:.1}", plain.cpu_us_per_req),
            format!("{:.1}", uncopy.cpu_us_per_req),
            format!("{:.0}", plain.p50_us),
            format!("{:.0}", uncopy.p50_us),
            format!("{:.0}", plain.p99_us),
            format!("{:.0}", uncopy.p99_us),
            row.uncopy.faults.to_string(),
            row.uncopy.page_table_calls_per_100_req.to_string(),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(req_per_s: f64, elided: u64) -> Sample {
        Sample {
            numbers: Numbers {
                req_per_s,
                cpu_us_per_req: 1.0,
                p50_us: 1.0,
                p99_us: 2.0,
                rss_kb: 1,
                load_cpu_us_per_req: 1.0,
            },
            requests: 200,
            counters: [("elided_bytes".to_owned(), elided), ("moves".to_owned(), 2)].into(),
            preloaded: true,
            verified: 10,
        }
    }

    #[test]
    fn a_row_is_made_of_medians_and_its_json_has_the_agreed_shape() {
        let samples = Samples {
            plain: vec![sample(100.0, 0), sample(80.0, 0), sample(120.0, 0)],
            uncopy: vec![sample(300.0, 7), sample(160.0, 9), sample(240.0, 8)],
        };
        let plan = Plan {
            size: 524_288,
            copies: 12,
            connections: 16,
            touch_pages: 0,
            allocation: Allocation::Malloc,
            cores: vec![0],
        };
        let row = samples.row(&plan).unwrap();
        assert_eq!((row.ratio, row.ratio_spread), (2.4, [2.0, 3.0]));
        assert_eq!((row.uncopy.elided_bytes, row.verified_messages), (8, 60));
        assert_eq!(row.uncopy.page_table_calls_per_100_req, 1.0);
        let json = serde_json::to_value(Results { bench: "echo", rows: vec![row] }).unwrap();
        assert_eq!(json["bench"], "echo");
        for key in [
            "size",
            "copies",
            "connections",
            "threads",
            "touched_pages",
            "ratio",
            "ideal_ratio",
            "verified_messages",
        ] {
            assert!(json["rows"][0][key].is_number(), "{key}");
        }
        for key in ["req_per_s", "cpu_us_per_req", "p50_us", "p99_us"] {
            assert!(json["rows"][0]["plain"][key].is_number(), "{key}");
            assert!(json["rows"][0]["uncopy"][key].is_number(), "{key}");
        }
        for key in ["elided_bytes", "faults"] {
            assert!(json["rows"][0]["uncopy"][key].is_number(), "{key}");
        }
    }
}
