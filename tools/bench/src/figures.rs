//! The paper's microbenchmarks (zIO, 5.1), each a set of rows of `uncopy-bench echo`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uncopy_measure::echo::{Checksum, EchoArgs, Results, Row, Touched};
use uncopy_measure::side::Side;
use uncopy_measure::values::{self, Settings};
use uncopy_measure::{Failure, complain, cores, echo, library, units, userfaultfd};

use super::echo_table::table;

/// Options of the modes.
#[derive(Clone, Debug, clap::Args)]
pub struct FigureArgs {
    /// Fewer rows and short windows: a look, not a measurement
    #[arg(long)]
    pub quick: bool,
    /// Times that fresh servers, plain and under uncopy, are measured side by side [default: 3;
    /// quick: 1]
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub repeats: Option<usize>,
    /// Timed load on each of them, in short turns [default: 0.75; quick: 0.12]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub seconds: Option<Duration>,
    /// Load on each before that, while call sites learn [default: 1; quick: 0.08]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub warmup: Option<Duration>,
    /// Connections [default: 16]
    #[arg(long, value_name = "N", value_parser = values::positive)]
    pub connections: Option<usize>,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Time for all rows: fewer of them, repeats dropped and windows shortened to stay within it.
    #[arg(skip)]
    pub allowed: Option<Duration>,
}

/// A row of five sides takes about so much, three times: what a full grid must be able to have.
const ROW: Duration = Duration::from_secs(18);
/// In a budget a row is repeated as long as there is time, so often at most.
const MOST_REPEATS: usize = 5;
/// Where copies go into buffers that live as long as their connection, plain's memory is kept
/// anyway.
const BUT_KEPT: [Side; 5] = [Side::Plain, Side::Again, Side::Placed, Side::NoElision, Side::Uncopy];

/// A mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Figure 4.
    Copies,
    /// Figure 6.
    Sizes,
    /// Figure 8.
    Threads,
    /// Figure 9.
    Faults,
    /// Figure 10.
    Misspeculation,
    /// Not in the paper: headers, trailers and checksums.
    Touch,
}

impl Figure {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Sizes => "sizes",
            Self::Threads => "threads",
            Self::Faults => "faults",
            Self::Misspeculation => "misspeculation",
            Self::Touch => "touch",
        }
    }

    /// The sentence that describes it.
    pub fn about(self) -> &'static str {
        match self {
            Self::Copies => "Echo of 512 KB over the number of copies (zIO, figure 4)",
            Self::Sizes => "Echo of 8 KB to 1 MB with 0 and 5 copies (zIO, figure 6)",
            Self::Threads => "Echo of 512 KB with 1 copy over the server's threads (zIO, figure 8)",
            Self::Faults => "Page faults across threads (zIO, figure 9)",
            Self::Misspeculation => "Copied data that is touched after all (zIO, figure 10)",
            Self::Touch => "Headers, trailers and checksums of copied data",
        }
    }

    /// The rows, under the name of what sets them apart.
    fn grids(self, quick: bool, cores: usize) -> Vec<(&'static str, EchoArgs)> {
        let echo = EchoArgs::default();
        let sizes = |full: &[usize], few: &[usize]| -> Vec<usize> {
            (if quick { few } else { full }).iter().map(|kb| kb << 10).collect()
        };
        let list = |full: &[usize], few: &[usize]| (if quick { few } else { full }).to_vec();
        let threads: Vec<usize> =
            (0..).map(|i| 1 << i).take_while(|n| *n <= cores.max(2)).collect();
        match self {
            Self::Copies => {
                vec![("", EchoArgs { copies: list(&[0, 1, 2, 4, 8, 12], &[0, 1, 4, 12]), ..echo })]
            }
            Self::Sizes => {
                let all = sizes(&[8, 16, 32, 64, 128, 256, 512, 1024], &[8, 64, 512, 1024]);
                let echo = EchoArgs { copies: vec![0, 5], sizes: all, ..echo };
                let small = EchoArgs {
                    copies: vec![5],
                    sizes: sizes(&[8, 16], &[8]),
                    environment: vec![("UNCOPY_THRESHOLD", "8K")],
                    ..echo.clone()
                };
                vec![("", echo), (LOW_THRESHOLD, small)]
            }
            Self::Threads => vec![("", EchoArgs { copies: vec![1], threads, ..echo })],
            Self::Faults => {
                let echo = EchoArgs {
                    threads,
                    copies: vec![1],
                    touch_pages: list(&[0, 1, 2, 4, 16], &[0, 2, 16]),
                    touch_moving: true,
                    ..echo
                };
                let stubborn =
                    EchoArgs { environment: vec![("UNCOPY_BACKOFF", "no")], ..echo.clone() };
                let uncopied = EchoArgs {
                    copies: vec![0],
                    touch_pages: list(&[0, 2, 16], &[2]),
                    ..echo.clone()
                };
                vec![(POLICY, echo), (NO_POLICY, stubborn), (NO_COPY, uncopied)]
            }
            Self::Misspeculation => {
                let echo =
                    EchoArgs { touched: Touched::Last, copies: vec![1, 3, 6], most: false, ..echo };
                let grid = |name, moving, kb: usize, pages: Vec<usize>| {
                    let sizes = vec![kb << 10];
                    let touch_pages = pages;
                    (name, EchoArgs { sizes, touch_pages, touch_moving: moving, ..echo.clone() })
                };
                vec![
                    grid(SAME, false, 64, list(&[0, 1, 4, 16], &[1, 16])),
                    grid(SAME, false, 256, list(&[0, 1, 4, 16, 64], &[1, 16])),
                    grid(SAME, false, 1024, list(&[0, 1, 4, 16, 64, 256], &[1, 16, 256])),
                    grid(MOVING, true, 64, list(&[1, 4], &[4])),
                    grid(MOVING, true, 256, list(&[1, 4, 16], &[4])),
                    grid(MOVING, true, 1024, list(&[1, 4, 16, 64], &[16])),
                ]
            }
            Self::Touch => {
                let echo = EchoArgs { sizes: sizes(&[64, 512], &[512]), most: false, ..echo };
                let pages = EchoArgs { copies: vec![4], touch_pages: vec![2], ..echo.clone() };
                let sums = |checksum| EchoArgs { copies: vec![2], checksum, ..echo.clone() };
                vec![
                    ("header and trailer, 4 copies", pages),
                    ("nothing read, 2 copies", sums(Checksum::None)),
                    ("last copy read, 2 copies", sums(Checksum::Last)),
                    ("every copy read, 2 copies", sums(Checksum::Every)),
                ]
            }
        }
    }
}

/// Names of series that the report tells apart.
pub const LOW_THRESHOLD: &str = "threshold 8 KB";
/// Fig. 9, as anyone gets it.
pub const POLICY: &str = "1 copy";
/// Fig. 9, faults and all.
pub const NO_POLICY: &str = "1 copy, never backing off";
/// Fig. 9 as in the paper.
pub const NO_COPY: &str = "no copy";
/// Fig. 10, the places that are touched.
pub const SAME: &str = "the same pages in each message";
/// Fig. 10, the places that are touched.
pub const MOVING: &str = "other pages in each message";

/// The results that `--json` prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct FigureResults {
    /// The mode.
    pub bench: String,
    /// How it was measured.
    pub settings: Settings,
    /// Rows by what sets them apart.
    pub series: Vec<Series>,
    /// Rows for which no time was left.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Some rows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Series {
    /// The label that sets them apart; empty where there is one series.
    pub label: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Measures and prints.
pub fn main(figure: Figure, args: &FigureArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    if let Err(why) = userfaultfd::check() {
        complain(why.within("nothing can be elided"));
    }
    let results = measure(figure, args, &library)?;
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return uncopy_measure::print(&format!("{json}\n"));
    }
    let mut text = format!("{}\n", figure.about());
    for series in &results.series {
        let colon = if series.label.is_empty() { "" } else { ":" };
        text += &format!("\n{}{colon}\n{}\n", series.label, table(&series.rows));
    }
    let rows = || results.series.iter().flat_map(|s| &s.rows);
    let verified: u64 = rows().map(|row| row.verified_messages).sum();
    text += &format!(
        "Medians of {} fresh pairs of servers, {} s each in short turns; columns as of \
         'uncopy-bench echo'; ~: other pages in each message.\n\
         Every byte of {} random messages was compared, before and after the timing.\n",
        results.settings.repeats,
        results.settings.seconds,
        units::grouped(verified)
    );
    uncopy_measure::print(&text)
}

/// Measures.
pub fn measure(
    figure: Figure,
    args: &FigureArgs,
    library: &Path,
) -> Result<FigureResults, Failure> {
    let (repeats, seconds, warmup) = if args.quick { (1, 120, 80) } else { (3, 750, 1000) };
    let repeats = args.repeats.unwrap_or(repeats);
    let seconds = args.seconds.unwrap_or(Duration::from_millis(seconds));
    let warmup = args.warmup.unwrap_or(Duration::from_millis(warmup));
    // Taken before the load binds itself to one of them.
    let cores = cores::all()?.len();
    let all = figure.grids(false, cores);
    let rows_of =
        |grids: &[(&str, EchoArgs)]| -> usize { grids.iter().map(|(_, g)| g.rows()).sum() };
    let few = args.allowed.is_some_and(|time| ROW * rows_of(&all) as u32 > time);
    let grids = if args.quick || few { figure.grids(true, cores) } else { all };
    let mut rows_left = rows_of(&grids);
    let end = args.allowed.map(|time| Instant::now() + time);
    let repeats = if end.is_some() { MOST_REPEATS } else { repeats };
    let mut series: Vec<Series> = Vec::new();
    let mut left_out = Vec::new();
    for (label, grid) in grids {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let own = grid.rows();
        let allowed = left.map(|left| left.mul_f64(own as f64 / rows_left as f64));
        rows_left -= own;
        let grid = EchoArgs {
            repeats,
            seconds,
            warmup,
            verify: 2,
            connections: vec![args.connections.unwrap_or(16)],
            sides: BUT_KEPT.to_vec(),
            allowed,
            ..grid
        };
        let Results { rows, left_out: out, .. } = echo::measure(&grid, library)?;
        left_out.extend(out);
        match series.iter_mut().find(|s| s.label == label) {
            Some(series) => series.rows.extend(rows),
            None => series.push(Series { label: label.to_owned(), rows }),
        }
    }
    let settings = Settings { quick: args.quick, repeats, seconds: seconds.as_secs_f64() };
    Ok(FigureResults { bench: figure.name().to_owned(), settings, series, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Figure; 6] = [
        Figure::Copies,
        Figure::Sizes,
        Figure::Threads,
        Figure::Faults,
        Figure::Misspeculation,
        Figure::Touch,
    ];

    #[test]
    fn every_figure_has_rows_and_the_quick_ones_are_fewer() {
        let count = |figure: Figure, quick| -> usize {
            let grids = figure.grids(quick, 2);
            grids.iter().map(|(_, g)| g.rows()).sum()
        };
        for figure in ALL {
            assert!(count(figure, true) <= count(figure, false) && count(figure, true) > 0);
        }
        // Bounded: a row takes about 18 s in full, 0.6 s quick.
        assert!(ALL.iter().map(|f| count(*f, false)).sum::<usize>() <= 140);
        assert!(ALL.iter().map(|f| count(*f, true)).sum::<usize>() <= 70);
    }
}
