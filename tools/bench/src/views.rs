//! `uncopy-bench views`: what one elided copy costs among many live views, over its size.
//!
//! Twice: the tracker's books alone, on memory that does not exist, and a process under the
//! library beside the same process without it. In both, the copies that are timed go to the same
//! few destinations, each time from another source than before, so that each ends a view and
//! makes one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};
use uncopy_measure::facts::Facts;
use uncopy_measure::medians::{median, round, spread};
use uncopy_measure::side::Side;
use uncopy_measure::values::{Settings, positive, size};
use uncopy_measure::{Failure, cores, library, progress, units};

use super::views_books;
use super::views_loop::{self, Answer, Task};

/// Options of `uncopy-bench views`.
#[derive(Clone, Debug, clap::Args)]
pub struct ViewsArgs {
    /// Live views of 16 KB each [default: 10,100,1000,10000,100000; quick: 10,1000,100000]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    pub views: Vec<usize>,
    /// Sizes of the copies that are timed [default: 16K,64K,256K,1M,4M,16M; quick: 16K,512K,16M]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub sizes: Vec<usize>,
    /// Fewer rows and turns: a look, not a measurement
    #[arg(long)]
    pub quick: bool,
    /// Processes on each side, in turns [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub repeats: Option<usize>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The results that `--json` prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct ViewsResults {
    /// The mode.
    pub bench: String,
    /// How it was measured.
    pub settings: Settings,
    /// The books alone.
    pub books: Vec<BooksRow>,
    /// Processes.
    pub processes: Vec<ProcessRow>,
    /// The facts of each side's processes. (Not in results of older versions.)
    #[serde(default)]
    pub sides: BTreeMap<String, Facts>,
}

/// Books of one copy.
#[derive(Debug, Serialize, Deserialize)]
pub struct BooksRow {
    /// Live views.
    pub views: usize,
    /// Bytes of the copy.
    pub size: usize,
    /// Median.
    pub ns: f64,
    /// Smallest and largest of the samples.
    pub ns_spread: [f64; 2],
}

/// One copy in a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Live views (copies that were carried out, on the plain side).
    pub views: usize,
    /// Bytes of the copy.
    pub size: usize,
    /// Without the library.
    pub plain_ns: f64,
    /// Smallest and largest of the samples.
    pub plain_ns_spread: [f64; 2],
    /// Without it once more: what it differs by is noise.
    pub again_ns: f64,
    /// The time with uncopy.
    pub uncopy_ns: f64,
    /// Smallest and largest of the samples.
    pub uncopy_ns_spread: [f64; 2],
    /// Views alive while the copies were timed, by the library's own count.
    pub live_views: u64,
    /// Bytes elided, of those copied while time was taken.
    pub elided_share: f64,
    /// Bytes compared, before and after, on both sides.
    pub verified_bytes: u64,
}

/// Measures and prints.
pub fn main(args: &ViewsArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    let results = measure(args, &library)?;
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return uncopy_measure::print(&format!("{json}\n"));
    }
    let verified: u64 = results.processes.iter().map(|row| row.verified_bytes).sum();
    uncopy_measure::print(&format!(
        "{}\nus a copy, medians of {} processes on each side; the books alone without the \
         library's lock and shims.\n\
         Live: views alive by the library's count. Elided: share of the bytes of the timed copies. \
         again: plain once more, noise.\n\
         {} were compared before and after the timing, and all of them were right.\n",
        table(&results),
        results.settings.repeats,
        units::rough_size(verified as f64)
    ))
}

/// Measures.
pub fn measure(args: &ViewsArgs, library: &Path) -> Result<ViewsResults, Failure> {
    let or = |given: &[usize], full: &[usize], quick: &[usize]| match (given, args.quick) {
        ([], false) => full.to_vec(),
        ([], true) => quick.to_vec(),
        _ => given.to_vec(),
    };
    let counts = or(&args.views, &[10, 100, 1000, 10_000, 100_000], &[10, 1000, 100_000]);
    let kb = |sizes: &[usize]| sizes.iter().map(|kb| kb << 10).collect::<Vec<_>>();
    let sizes = or(&args.sizes, &kb(&[16, 64, 256, 1024, 4096, 16_384]), &kb(&[16, 512, 16_384]));
    let repeats = args.repeats.unwrap_or(if args.quick { 1 } else { 3 });
    cores::pin(cores::all()?[0])?;
    let mut results = ViewsResults {
        bench: "views".to_owned(),
        settings: Settings { quick: args.quick, repeats, seconds: 0.0 },
        books: Vec::new(),
        processes: Vec::new(),
        sides: BTreeMap::new(),
    };
    let bar = progress::bar(counts.len() * (repeats * 3 + 1));
    for &views in &counts {
        bar.set_message(format!("{} views, the books", units::grouped(views as u64)));
        for (size, samples) in sizes.iter().zip(views_books::measure(views, &sizes)?) {
            results.books.push(BooksRow {
                views,
                size: *size,
                ns: round(median(samples.iter().copied()), 1),
                ns_spread: spread(samples, 1),
            });
        }
        bar.inc(1);
        let task = Task { views, sizes: sizes.clone() };
        let mut answers: BTreeMap<Side, Vec<Answer>> = BTreeMap::new();
        for turn in 0..repeats {
            for side in Side::three_in_turn(turn) {
                bar.set_message(format!("{} views, {side}", units::grouped(views as u64)));
                answers.entry(side).or_default().push(views_loop::run(&task, side, library)?);
                bar.inc(1);
            }
        }
        for (side, answers) in &answers {
            results.sides.insert(side.to_string(), answers[0].facts.clone());
        }
        let rows = sizes.iter().enumerate();
        results.processes.extend(rows.map(|(i, size)| process_row(views, *size, i, &answers)));
    }
    bar.finish_and_clear();
    Ok(results)
}

/// The row of the size with number `i`.
fn process_row(
    views: usize,
    size: usize,
    i: usize,
    answers: &BTreeMap<Side, Vec<Answer>>,
) -> ProcessRow {
    let samples = |side| answers[&side].iter().flat_map(|a| a.ns[i].iter().copied());
    let eliding = &answers[&Side::Uncopy];
    ProcessRow {
        views,
        size,
        plain_ns: round(median(samples(Side::Plain)), 1),
        plain_ns_spread: spread(samples(Side::Plain), 1),
        again_ns: round(median(samples(Side::Again)), 1),
        uncopy_ns: round(median(samples(Side::Uncopy)), 1),
        uncopy_ns_spread: spread(samples(Side::Uncopy), 1),
        live_views: median(eliding.iter().map(|a| a.live_views as f64)) as u64,
        elided_share: round(median(eliding.iter().map(|a| a.elided_share[i])), 4),
        verified_bytes: answers.values().flatten().map(|a| a.verified_bytes[i]).sum(),
    }
}

fn table(results: &ViewsResults) -> Table {
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "views",
        "size",
        "books\nalone",
        "process\nuncopy",
        "\nplain",
        "\nagain",
        "\nratio",
        "live",
        "elided",
    ]);
    let us = |ns: f64| format!("{:.2}", ns / 1000.0);
    for (books, row) in results.books.iter().zip(&results.processes) {
        table.add_row([
            units::grouped(row.views as u64),
            units::size(row.size as u64),
            us(books.ns),
            us(row.uncopy_ns),
            us(row.plain_ns),
            us(row.again_ns),
            format!("{:.1}", uncopy_measure::medians::quotient(row.plain_ns, row.uncopy_ns)),
            units::grouped(row.live_views),
            format!("{:.3}", row.elided_share),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
