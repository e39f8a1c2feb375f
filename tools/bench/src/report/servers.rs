//! Servers as they are installed, driven by `bench/apps/all.py`: it prints a JSON object for each
//! row.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use uncopy_measure::side::Side;
use uncopy_measure::{Failure, cores, failure};

/// The driver, from the root of the repository.
const DRIVER: &str = "bench/apps/all.py";
/// How every mode begins to say that a byte was not what it must be: a report ends there.
const WRONG: &str = "WRONG DATA";
/// It keeps to its time by itself; if it is so late, it hangs.
const GRACE: Duration = Duration::from_secs(60);

/// Sizes that tables have a column for, and their names.
const SIZES: [(usize, &str); 3] = [(1 << 10, "1 KB"), (64 << 10, "64 KB"), (1 << 20, "1 MB")];

/// All of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ServerResults {
    /// The measurements.
    pub rows: Vec<ServerRow>,
    /// The rows that were not measured, and why.
    pub missing: Vec<Missing>,
    /// The command that measures it again. (Not in older results.)
    pub command: Option<String>,
    /// Of which commit and machine all rows are. (Not in older results, which may be of several.)
    #[serde(default)]
    pub run: Option<Run>,
}

/// One run of the driver's.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    /// The commit of the uncopy that was measured, and its date.
    pub commit: String,
    /// The processor.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// When it began.
    pub date: String,
}

/// A server, a size and a number of connections.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerRow {
    /// The program and how it is set up.
    pub name: String,
    /// Its meaning to a user.
    pub words: String,
    /// Bytes of a value, body or message.
    pub size: usize,
    /// Connections, each with one request under way.
    pub connections: usize,
    /// The measurements.
    pub sides: BTreeMap<Side, ServerNumbers>,
    /// Faster copies' gain in CPU: uncopy without elision over its allocator alone. (Not in older
    /// results.)
    pub copies_cpu: Option<f64>,
    /// uncopy's gain in CPU over uncopy without elision.
    pub elision_cpu: f64,
    /// Options that uncopy got.
    pub options: Vec<String>,
    /// Turns of each side.
    pub turns: usize,
    /// The congestion control under which it was measured. (This and what follows: not in older
    /// results.)
    #[serde(default)]
    pub congestion: Option<String>,
    /// The congestion controls of each side's connections at the end, as they say.
    #[serde(default)]
    pub controls: BTreeMap<String, Vec<String>>,
    /// A plain server with Reno, which uncopy sets instead of BBR: its gain in CPU over plain is
    /// that of the switch.
    #[serde(default)]
    pub switched: Option<ServerNumbers>,
    /// See `switched`.
    #[serde(default)]
    pub switch_cpu: Option<f64>,
    /// uncopy's gain in CPU over a plain server whose connections have the same congestion control.
    /// None: no side has.
    #[serde(default)]
    pub same_cpu: Option<f64>,
}

/// A side.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerNumbers {
    /// CPU time of the server for a request.
    pub cpu_us: f64,
    /// Requests a second.
    pub per_s: f64,
    /// Latency that one request in a hundred exceeds.
    pub p99_us: f64,
    /// Plain's CPU over its own: the median of the turns.
    pub cpu_ratio: f64,
    /// Its requests a second over plain's: the median of the turns.
    pub rate_ratio: f64,
    /// The middle half of the turns' own ratios of CPU.
    pub cpu_spread: [f64; 2],
}

/// A row that was not measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Missing {
    /// The server.
    pub name: String,
    /// Which program is not here and how it is installed, or what went wrong.
    pub why: String,
}

/// A line of the driver's.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Command(String),
    Run(Run),
    Row(Box<ServerRow>),
    Missing(Missing),
    Wrong(String),
}

impl ServerResults {
    /// Those that `bench/apps/all.py --json` wrote to a file.
    ///
    /// # Errors
    /// The file cannot be read, or has a line that is not of the driver's, or says that an answer
    /// was wrong.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let bad = |why: &dyn std::fmt::Display| {
            failure!("{} is not what '{DRIVER} --json' writes", path.display()).because(why)
        };
        let text = std::fs::read_to_string(path).map_err(|e| bad(&e))?;
        let mut results = Self::default();
        text.lines().try_for_each(|line| results.take(line)).map_err(|e| bad(&e))?;
        if results.rows.is_empty() { Err(bad(&"it has no row")) } else { Ok(results) }
    }

    /// Those of [`SIZES`] that were measured.
    pub fn sizes(&self) -> Vec<(usize, &'static str)> {
        let any = |(size, _): &(usize, &str)| self.rows.iter().any(|row| row.size == *size);
        SIZES.into_iter().filter(any).collect()
    }

    /// A line of the driver's.
    fn take(&mut self, line: &str) -> Result<(), Failure> {
        match serde_json::from_str(line) {
            Ok(Line::Command(command)) => self.command = Some(command),
            Ok(Line::Run(run)) => self.run = Some(run),
            Ok(Line::Row(row)) => self.rows.push(*row),
            Ok(Line::Missing(missing)) => self.missing.push(missing),
            Ok(Line::Wrong(what)) => return Err(failure!("{WRONG}: {what}")),
            Err(e) => return Err(failure!("{DRIVER} says nonsense ({e}): {line}")),
        }
        Ok(())
    }

    /// The first lines of a table, about its rows: of which run they are, or that they are older,
    /// and of which `machine`.
    pub fn of_one_run(&self, machine: &str) -> String {
        let command = self.command.as_deref().unwrap_or(DRIVER);
        self.run.as_ref().map_or_else(
            || {
                format!(
                    "**Older rows**, of several runs and commits, which they do not name. Plain \
                     has this machine's\ncongestion control, uncopy Reno instead of BBR. {machine}.",
                )
            },
            |run| {
                format!(
                    "All rows are of one run, commit {}, {}, {} cores, {}.\n`{command}`",
                    run.commit, run.cpu, run.cores, run.date
                )
            },
        )
    }

    /// The rows for which there was no program or no time.
    pub fn left_out(&self) -> Vec<String> {
        let mut missing: Vec<_> = self
            .missing
            .iter()
            .map(|missing| format!("{}: {}", missing.name, missing.why))
            .collect();
        // (It is missing under each congestion control.)
        missing.dedup();
        missing
    }
}

/// Drives them all, in about the time that is allowed.
pub fn measure(allowed: Duration) -> Result<ServerResults, Failure> {
    let driver = driver()?;
    // The servers and the load have cores of their own.
    cores::unpin()?;
    let own = std::env::current_exe()
        .map_err(|e| Failure::new("cannot tell where uncopy itself is").because(e))?;
    let mut command = Command::new("python3");
    command.arg(&driver).arg("--json");
    command
        .args(["--budget", &allowed.as_secs().to_string()])
        .arg("--uncopy")
        .arg(own.with_file_name("uncopy"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|e| {
        Failure::new("cannot start python3")
            .because(e)
            .advise("install it: apt-get install python3")
    })?;
    let mut results = ServerResults::default();
    let read = read(&mut child, Instant::now() + allowed + GRACE, &mut results);
    if read.is_err() {
        // It ends its servers then.
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
    }
    let status = child.wait().map_err(|e| failure!("lost {DRIVER}").because(e))?;
    let ended =
        if status.success() { Ok(()) } else { Err(failure!("{DRIVER} ended with {status}")) };
    // A measurement from before is worth having all the same.
    if let Err(why) = read.and(ended) {
        if why.to_string().starts_with(WRONG) {
            return Err(why);
        }
        let why = why.to_string();
        results.missing.push(Missing { name: "the other servers".to_owned(), why });
    }
    Ok(results)
}

/// Its lines until it ends.
fn read(child: &mut Child, end: Instant, results: &mut ServerResults) -> Result<(), Failure> {
    let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || output.lines().try_for_each(|line| sender.send(line)));
    loop {
        let line = match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => line.map_err(|e| failure!("cannot read what {DRIVER} says").because(e))?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => return Err(failure!("{DRIVER} does not end")),
        };
        results.take(&line)?;
    }
}

/// In the directory that we are in, or that this program was built in.
fn driver() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().unwrap_or_default();
    [Path::new(".")]
        .into_iter()
        .chain(own.ancestors())
        .map(|root| root.join(DRIVER))
        .find(|path| path.exists())
        .ok_or_else(|| {
            failure!("there is no {DRIVER}").advise("measure servers in a checkout of uncopy")
        })
}
