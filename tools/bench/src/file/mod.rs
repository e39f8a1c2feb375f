//! `uncopy-bench file`: copies of a file to a socket and to a file, in the ways that Linux has,
//! and under uncopy, which runs the program that calls `read` and `write`.
//!
//! | file | one idea |
//! | --- | --- |
//! | `copier` | the program that copies |
//! | `place` | the files, and that copies are right |
//! | `java` | the article's experiment |

pub mod copier;
pub mod java;
mod place;

use std::path::{Path, PathBuf};
use std::time::Duration;

use comfy_table::{CellAlignment, Table};
use serde::{Deserialize, Serialize};
use uncopy_measure::facts::Facts;
use uncopy_measure::medians::{median, quotient, round, spread};
use uncopy_measure::server_process::ServerProcess;
use uncopy_measure::side::Side;
use uncopy_measure::values::{Settings, positive, seconds, size};
use uncopy_measure::{Failure, cores, failure, library, progress, units};

use self::copier::{CopyMethod, CopyPlan, Target};
use self::java::Java;
use self::place::WorkDirectory;
use super::receiver::{Done, Listener, Order, Receiver, Socket};
use super::send::shortened;
use super::warm;

/// Options of `uncopy-bench file`.
#[derive(Clone, Debug, clap::Args)]
pub struct FileArgs {
    /// Sizes of the file
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "64K,1M,64M",
        value_parser = size,
    )]
    pub sizes: Vec<usize>,
    /// Where to
    #[arg(long, value_enum, value_delimiter = ',', default_value = "socket,file")]
    pub to: Vec<To>,
    /// Ways besides that of the plain program
    #[arg(long, value_enum, value_delimiter = ',', default_value = "mmap,sendfile,splice,range")]
    pub ways: Vec<CopyMethod>,
    /// Bytes that the program reads at a time
    #[arg(long, value_name = "SIZE", default_value = "256K", value_parser = size)]
    pub piece: usize,
    /// Times that the columns are measured in turns; medians are shown
    #[arg(long, value_name = "N", default_value = "3", value_parser = positive)]
    pub repeats: usize,
    /// Length of each timed window; at least one whole copy
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    pub seconds: Duration,
    /// Directory for the files [default: /dev/shm where that is memory]
    #[arg(long, value_name = "DIRECTORY")]
    pub dir: Option<PathBuf>,
    /// Also the article's three methods in Java (needs javac; takes about a minute)
    #[arg(long)]
    pub java: bool,
    /// Size of the file that Java copies
    #[arg(long, value_name = "SIZE", default_value = "880M", value_parser = size)]
    pub java_size: usize,
    /// Times that each Java method is run on each side
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive)]
    pub java_repeats: usize,
    /// The preload library [default: as for 'uncopy run']
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where a file is copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum To {
    /// A TCP connection over the loopback device.
    Socket,
    /// Another file in the same directory.
    File,
}

/// The results that `--json` prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileResults {
    /// The mode.
    pub bench: String,
    /// How it was measured.
    pub settings: Settings,
    /// Where the files were.
    pub file_system: String,
    /// One for each target and size.
    pub rows: Vec<FileRow>,
    /// The article's experiment.
    pub java: Option<Java>,
}

/// One target and size.
#[derive(Debug, Serialize, Deserialize)]
pub struct FileRow {
    /// Where to.
    pub to: To,
    /// Bytes of the file.
    pub size: usize,
    /// Plain `read` and `write`, the same again (what it differs by is noise), under uncopy, then
    /// the other ways.
    pub columns: Vec<Column>,
}

/// One way in one row.
#[derive(Debug, Serialize, Deserialize)]
pub struct Column {
    /// The way.
    pub way: CopyMethod,
    /// On which side.
    pub side: Side,
    /// Why there are no numbers.
    pub refused: Option<String>,
    /// The program's CPU time for a file.
    pub cpu_us: f64,
    /// Smallest and largest.
    pub cpu_us_spread: [f64; 2],
    /// Files in a second.
    pub files_per_s: f64,
    /// Smallest and largest.
    pub files_per_s_spread: [f64; 2],
    /// Bytes that were compared.
    pub verified_bytes: u64,
    /// The facts of the copying program. (Not in results of older versions.)
    #[serde(default)]
    pub facts: Facts,
}

/// Measures and prints.
pub fn main(args: &FileArgs) -> Result<(), Failure> {
    let library = library::find(args.library.as_deref())?;
    let results = measure(args, &library)?;
    if args.json {
        let json = serde_json::to_string(&results).expect("results can be written");
        return uncopy_measure::print(&format!("{json}\n"));
    }
    let columns = || results.rows.iter().flat_map(|row| &row.columns);
    let verified: u64 = columns().map(|column| column.verified_bytes).sum();
    let mut text = format!(
        "{}\nMedians of {} turns of {} s; files on {}, in the page cache. CPU: of the copying \
         program, us a file.\n\
         {} were compared, before and after the timing, and all were right.\n",
        table(&results.rows),
        args.repeats,
        args.seconds.as_secs_f64(),
        results.file_system,
        units::rough_size(verified as f64)
    );
    if let Some(java) = &results.java {
        text += &java_text(java);
    }
    uncopy_measure::print(&text)
}

/// Measures every row.
pub fn measure(args: &FileArgs, library: &Path) -> Result<FileResults, Failure> {
    let available = cores::all()?;
    cores::pin(*available.get(1).unwrap_or(&available[0]))?;
    let largest = args.sizes.iter().copied().max().unwrap_or(0);
    let largest = if args.java { largest.max(args.java_size) } else { largest };
    let place = WorkDirectory::new(args.dir.as_deref(), 2 * largest + (64 << 20))?;
    warm::memory((3 * largest).max(256 << 20))?;
    let mut ways =
        [Side::Plain, Side::Again, Side::Uncopy].map(|side| (CopyMethod::Read, side)).to_vec();
    ways.extend(args.ways.iter().filter(|w| **w != CopyMethod::Read).map(|w| (*w, Side::Plain)));
    let bar = progress::bar(args.to.len() * args.sizes.len() * args.repeats * ways.len());
    let mut rows = Vec::new();
    for &size in &args.sizes {
        place.fill(size)?;
        for &to in &args.to {
            let mut samples: Vec<Vec<Sample>> = ways.iter().map(|_| Vec::new()).collect();
            for turn in 0..args.repeats {
                for nth in 0..ways.len() {
                    let nth = (nth + turn) % ways.len();
                    let (way, side) = ways[nth];
                    bar.set_message(format!("{}, {}", units::size(size as u64), way.text()));
                    let core = available[0];
                    let job = Job { args, to, size, place: &place, library, core };
                    samples[nth].push(job.sample(way, side)?);
                    bar.inc(1);
                }
            }
            let columns = ways.iter().zip(&samples).map(|((way, side), s)| column(*way, *side, s));
            rows.push(FileRow { to, size, columns: columns.collect() });
        }
    }
    bar.finish_and_clear();
    let java = if args.java {
        cores::unpin()?;
        Some(java::measure(args.java_size, args.java_repeats, &place, library)?)
    } else {
        None
    };
    let settings =
        Settings { quick: false, repeats: args.repeats, seconds: args.seconds.as_secs_f64() };
    let file_system = place.file_system.to_owned();
    Ok(FileResults { bench: "file".to_owned(), settings, file_system, rows, java })
}

/// One window, and what was compared around it.
struct Sample {
    timed: Done,
    verified: u64,
    facts: Facts,
}

/// The means that a row is measured with.
struct Job<'a> {
    args: &'a FileArgs,
    to: To,
    size: usize,
    place: &'a WorkDirectory,
    library: &'a Path,
    core: usize,
}

impl Job<'_> {
    fn sample(&self, way: CopyMethod, side: Side) -> Result<Sample, Failure> {
        let listener = Listener::new(Socket::Tcp)?;
        let to = match self.to {
            To::Socket => Target::Socket(listener.address()?),
            To::File => Target::File(self.place.target()),
        };
        let plan = CopyPlan { from: self.place.source(), to, way, piece: self.args.piece };
        let mut command = side.own_command(copier::NAME, self.library)?;
        command.arg(serde_json::to_string(&plan).expect("a plan can be written"));
        let mut copier = ServerProcess::launch(command, side, "file copier", &[self.core])?;
        let receiver = match self.to {
            To::Socket => Some(Receiver::new(listener.accept()?, self.size)),
            To::File => None,
        };
        let measured = self.windows(&mut copier, receiver);
        let mut sample = measured.map_err(|e| copier.explain(e))?;
        sample.facts = copier.facts();
        copier.stop()?;
        if side == Side::Uncopy && !sample.timed.preloaded {
            return Err(failure!("{} was not loaded into the copier", self.library.display()));
        }
        Ok(sample)
    }

    fn windows(
        &self,
        copier: &mut ServerProcess,
        mut receiver: Option<Receiver>,
    ) -> Result<Sample, Failure> {
        let mut verified = 0;
        let mut run = |order: Order, compare: bool| -> Result<Done, Failure> {
            let Some(receiver) = &mut receiver else {
                copier.tell(&serde_json::to_string(&order).expect("an order can be written"))?;
                let done: Done = copier.answer()?;
                if compare && done.refused.is_none() {
                    verified += self.place.compare(self.size)?;
                }
                return Ok(done);
            };
            let unit = place::unit(self.size);
            let done = receiver.carry_out(copier, order, compare.then_some((unit, &|n| n)))?;
            if compare {
                verified += done.messages * self.size as u64;
            }
            Ok(done)
        };
        let once = Order { messages: 1, nanos: 0 };
        let window = |time: Duration| Order {
            messages: 0,
            nanos: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        };
        let first = run(once, true)?;
        if first.refused.is_some() {
            return Ok(Sample { timed: first, verified: 0, facts: Facts::new() });
        }
        run(window(self.args.seconds / 4), false)?;
        let timed = run(window(self.args.seconds), false)?;
        run(once, true)?;
        Ok(Sample { timed, verified, facts: Facts::new() })
    }
}

fn column(way: CopyMethod, side: Side, samples: &[Sample]) -> Column {
    let cpu =
        || samples.iter().map(|s| quotient(s.timed.cpu_ns as f64 / 1e3, s.timed.messages as f64));
    let rate = || {
        samples.iter().map(|s| quotient(s.timed.messages as f64 * 1e9, s.timed.elapsed_ns as f64))
    };
    Column {
        way,
        side,
        refused: samples.iter().find_map(|s| s.timed.refused.clone()),
        cpu_us: round(median(cpu()), 2),
        cpu_us_spread: spread(cpu(), 2),
        files_per_s: round(median(rate()), 2),
        files_per_s_spread: spread(rate(), 2),
        verified_bytes: samples.iter().map(|s| s.verified).sum(),
        facts: samples.first().map(|s| s.facts.clone()).unwrap_or_default(),
    }
}

/// The column's headline.
pub fn name(column: &Column) -> &'static str {
    match column.side {
        Side::Uncopy => "read, write, uncopy",
        Side::Again => "read, write, again",
        _ => column.way.text(),
    }
}

fn table(rows: &[FileRow]) -> Table {
    let mut table = Table::new();
    table
        .load_style(units::TABLE_STYLE)
        .set_header(["to", "size", "way", "CPU", "spread", "of read", "MB/s"]);
    for row in rows {
        let plain = row.columns.first().map_or(0.0, |c| c.cpu_us);
        for (i, column) in row.columns.iter().enumerate() {
            let to = format!("{:?}", row.to).to_lowercase();
            let shape = [to, units::size(row.size as u64)];
            let mut cells = if i == 0 { shape.to_vec() } else { vec![String::new(); 2] };
            cells.push(name(column).to_owned());
            if let Some(why) = &column.refused {
                cells.push(shortened(why));
            } else {
                let [low, high] = column.cpu_us_spread;
                cells.extend([
                    format!("{:.1}", column.cpu_us),
                    format!("{low:.1}-{high:.1}"),
                    format!("{:.2}", quotient(column.cpu_us, plain)),
                    units::grouped((column.files_per_s * row.size as f64 / 1e6) as u64),
                ]);
            }
            table.add_row(cells);
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn java_text(java: &Java) -> String {
    let size = units::size(java.size as u64);
    if let Some(why) = &java.refused {
        return format!("\nJava: {why}\n");
    }
    let mut table = Table::new();
    table.load_style(units::TABLE_STYLE).set_header([
        "Java",
        "ms\nplain",
        "\nuncopy",
        "CPU ms\nplain",
        "\nuncopy",
        "saved\nplain",
        "\nuncopy",
        "article",
    ]);
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    for method in &java.methods {
        table.add_row([
            method.name.clone(),
            format!("{:.0}", method.plain.ms),
            format!("{:.0}", method.uncopy.ms),
            format!("{:.0}", method.plain.cpu_ms),
            format!("{:.0}", method.uncopy.cpu_ms),
            percent(method.plain.saved),
            percent(method.uncopy.saved),
            method.article.map_or_else(String::new, percent),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "\n{table}\nThe article's three methods on a file of {size}, in Java, as it is and under \
         uncopy. saved: of the\n\
         buffered method's time on the same side.\n"
    )
}
