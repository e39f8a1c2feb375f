//! The torture program: a random script of operations on memory, run plainly and under uncopy. Both
//! must log the same.

mod drive;
mod program;

use clap::{Args, Parser, Subcommand};
use drive::process::Runner;
use drive::variant::Variant;
use drive::{Driver, Tallies};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uncopy_torture::generate::{Profile, generate};
use uncopy_torture::script::Script;
use uncopy_torture::text::BadText;

/// Runs random scripts of operations on memory plainly and under uncopy; what they log must be the
/// same.
#[derive(Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    what: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Runs seeds, one script each, in all ways; shrinks what fails
    Run {
        #[command(flatten)]
        kind: Kind,
        /// How many seeds (100, or as many as there is time for)
        #[arg(long)]
        seeds: Option<u64>,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// No new seed after so many seconds
        #[arg(long)]
        seconds: Option<u64>,
        /// Scripts at a time
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        #[command(flatten)]
        how: How,
    },
    /// Runs scripts from files in all ways
    Replay {
        /// The scripts
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// How often
        #[arg(long, default_value_t = 1)]
        repeat: usize,
        #[command(flatten)]
        how: How,
    },
    /// Prints the script of a seed
    Show {
        #[command(flatten)]
        kind: Kind,
        /// The seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Carries out a script in this process and prints the log
    Exec {
        /// The script
        file: PathBuf,
    },
}

/// The operations that scripts are made of. Without any of these, each seed has its own mix.
#[derive(Args, Clone)]
struct Kind {
    /// Threads
    #[arg(long)]
    threads: Option<usize>,
    /// Children that go on beside their parents
    #[arg(long)]
    forks: bool,
    /// A timer that interrupts all the time
    #[arg(long)]
    signals: bool,
    /// Operations in a script
    #[arg(long, default_value_t = 160)]
    lines: usize,
}

impl Kind {
    fn profile(&self, seed: u64) -> Profile {
        let base = Profile { lines: self.lines, ..Profile::default() };
        if self.threads.is_some() || self.forks || self.signals {
            let threads = self.threads.unwrap_or(1).clamp(1, 64);
            return Profile { threads, forks: self.forks, signals: self.signals, ..base };
        }
        let (threads, forks, signals) = match seed % 8 {
            0 | 1 => (1, false, false),
            2 => (1, false, true),
            3 => (1, true, false),
            4 => (2, false, false),
            5 => (4, false, true),
            6 => (3, true, true),
            _ => (8, false, false),
        };
        // Some with buffers that huge pages fit into.
        let large = if seed % 16 / 8 == 1 && seed.is_multiple_of(3) { 3 << 20 } else { base.large };
        Profile { threads, forks, signals, large, ..base }
    }
}

#[derive(Args)]
struct How {
    /// A way to run under uncopy: default, eager, libc, tiny, or NAME=OPTIONS of `uncopy run`
    #[arg(long = "way")]
    ways: Vec<Variant>,
    /// NAME=VALUE in the environment of what runs under uncopy
    #[arg(long = "env", value_parser = pair)]
    environment: Vec<(String, String)>,
    /// The uncopy command
    #[arg(long)]
    uncopy: Option<PathBuf>,
    /// Seconds after which a run counts as hanging
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Runs that shrinking one script may take; 0 for none
    #[arg(long, default_value_t = 400)]
    effort: usize,
    /// How often a script is run while it is shrunk, before it counts as right
    #[arg(long, default_value_t = 1)]
    tries: usize,
    /// Where scripts and logs are written
    #[arg(long)]
    directory: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), BadText> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is needed")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl How {
    fn driver(&self) -> Driver {
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("uncopy");
        Driver {
            runner: Runner {
                uncopy: self.uncopy.clone().unwrap_or_else(beside),
                environment: self.environment.clone(),
                timeout: Duration::from_secs(self.timeout),
            },
            ways: if self.ways.is_empty() { Variant::known() } else { self.ways.clone() },
            directory: self.directory.clone().unwrap_or_else(drive::default_directory),
            tries: self.tries,
            effort: self.effort,
        }
    }
}

fn main() -> ExitCode {
    let done: Result<bool, Box<dyn Error>> = match Command::parse().what {
        Mode::Run { kind, seeds, seed, seconds, jobs, how } => {
            let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
            let seeds = seeds.unwrap_or(if end.is_some() { u64::MAX } else { 100 });
            let seeds = seed..seed.saturating_add(seeds);
            run_seeds(&kind, seeds, end, jobs, &how.driver()).map_err(Into::into)
        }
        Mode::Replay { files, repeat, how } => replay(&files, repeat, &how.driver()),
        Mode::Show { kind, seed } => {
            print!("{}", generate(seed, &kind.profile(seed)).text(&format!("seed {seed}")));
            Ok(true)
        }
        Mode::Exec { file } => read(&file).map(program::run),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("uncopy-torture: {why}");
            ExitCode::from(2)
        }
    }
}

fn read(file: &PathBuf) -> Result<Script, Box<dyn Error>> {
    let named = |why: &dyn Error| BadText::new(format_args!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|why| named(&why))?;
    Ok(text.parse::<Script>().map_err(|why| named(&why))?)
}

fn run_seeds(
    kind: &Kind,
    seeds: std::ops::Range<u64>,
    end: Option<Instant>,
    jobs: usize,
    driver: &Driver,
) -> io::Result<bool> {
    let start = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let total = Mutex::new(drive::tallies(&driver.ways));
    let problem = Mutex::new(None);
    let work = || {
        let mut tallies: Tallies = drive::tallies(&driver.ways);
        while end.is_none_or(|e| Instant::now() < e) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let script = generate(seed, &kind.profile(seed));
            if let Err(e) = driver.script(&format!("seed-{seed}"), &script, &mut tallies) {
                *problem.lock().expect("no thread panics") = Some(e);
                break;
            }
        }
        drive::add(&mut total.lock().expect("no thread panics"), &tallies);
    };
    std::thread::scope(|s| {
        (1..jobs.max(1)).for_each(|_| drop(s.spawn(work)));
        work();
    });
    if let Some(why) = problem.into_inner().expect("no thread panics") {
        return Err(why);
    }
    let last = next.into_inner().min(seeds.end);
    println!("seeds {}..{last}, {:.0} s", seeds.start, start.elapsed().as_secs_f64());
    Ok(drive::report(&driver.ways, &total.into_inner().expect("no thread panics")))
}

fn replay(files: &[PathBuf], repeat: usize, driver: &Driver) -> Result<bool, Box<dyn Error>> {
    let mut tallies = drive::tallies(&driver.ways);
    for file in files {
        let script = read(file)?;
        let name = file.file_stem().map_or("script".into(), |n| n.to_string_lossy());
        for _ in 0..repeat {
            driver.script(&format!("{name}.again"), &script, &mut tallies)?;
        }
    }
    println!("{} scripts, each {repeat} times", files.len());
    Ok(drive::report(&driver.ways, &tallies))
}
