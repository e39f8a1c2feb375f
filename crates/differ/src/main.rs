//! Random calls of two processes on connections between them, plainly and by rings: what they say
//! must be the same, and what TCP over loopback promises.

mod drive;
mod worker;

use clap::{Args, Parser, Subcommand};
use drive::Driver;
use drive::pair::Starts;
use drive::variant::Variant;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use uncopy_differ::generate::generate;
use uncopy_differ::script::Script;
use uncopy_differ::vocabulary::Without;
use uncopy_torture::text::BadText;

/// Runs random scripts of calls on connections plainly and by rings; what they say must be the
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
        /// How many seeds (100, or as many as there is time for)
        #[arg(long)]
        seeds: Option<u64>,
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// No new seed after so many seconds
        #[arg(long)]
        seconds: Option<u64>,
        /// Lines in a script
        #[arg(long, default_value_t = 60)]
        lines: usize,
        /// Words that the scripts are to do without, with commas between them
        #[arg(long, default_value_t)]
        without: Without,
        /// Ends with the first seed that fails
        #[arg(long)]
        first: bool,
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
        /// The seed
        #[arg(default_value_t = 0)]
        seed: u64,
        /// Lines in a script
        #[arg(long, default_value_t = 60)]
        lines: usize,
    },
    /// One of the two processes
    #[command(hide = true)]
    Worker {
        /// A child that has executed this program
        #[arg(long)]
        child: bool,
    },
}

#[derive(Args)]
struct How {
    /// A way to run besides plainly: once (rings from the first call on), four (after four calls),
    /// views (all messages in blocks), eager
    #[arg(long = "way")]
    ways: Vec<Variant>,
    /// Runs plainly twice, and in no other way
    #[arg(long)]
    plain: bool,
    /// NAME=VALUE in the environment of what runs under uncopy
    #[arg(long = "env", value_parser = pair)]
    environment: Vec<(String, String)>,
    /// The uncopy command
    #[arg(long)]
    uncopy: Option<PathBuf>,
    /// Seconds after which a call that is to return counts as stuck
    #[arg(long, default_value_t = 20)]
    timeout: u64,
    /// Runs that shrinking one script may take; 0 for none
    #[arg(long, default_value_t = 200)]
    effort: usize,
    /// How often a script is run while it is shrunk, before it counts as right
    #[arg(long, default_value_t = 2)]
    tries: usize,
    /// Where scripts that fail are written
    #[arg(long)]
    directory: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), BadText> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is needed")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl How {
    fn driver(self) -> Driver {
        let beside = || std::env::current_exe().unwrap_or_default().with_file_name("uncopy");
        let starts = Starts {
            uncopy: self.uncopy.unwrap_or_else(beside),
            service: format!("uncopy-differ-{}", std::process::id()),
            environment: self.environment,
            timeout: Duration::from_secs(self.timeout),
        };
        let ways = if self.ways.is_empty() { Variant::usual() } else { self.ways };
        let ways = if self.plain { vec![None] } else { ways.into_iter().map(Some).collect() };
        let directory = self.directory.unwrap_or_else(drive::default_directory);
        let mut driver = Driver::new(starts, ways, directory);
        driver.effort = self.effort;
        driver.tries = self.tries;
        driver
    }
}

fn main() -> ExitCode {
    let done: Result<bool, Box<dyn Error>> = match Command::parse().what {
        Mode::Run { seeds, seed, seconds, lines, without, first, how } => {
            let end = seconds.map(|s| Instant::now() + Duration::from_secs(s));
            let seeds = seeds.unwrap_or(if end.is_some() { u64::MAX } else { 100 });
            let seeds = seed..seed.saturating_add(seeds);
            let script = |seed| without.of(generate(seed, lines));
            run(seeds, end, script, first, how.driver()).map_err(Into::into)
        }
        Mode::Replay { files, repeat, how } => replay(&files, repeat, how.driver()),
        Mode::Show { seed, lines } => {
            print!("{}", generate(seed, lines).text(&format!("seed {seed}")));
            Ok(true)
        }
        Mode::Worker { child } => worker::work(child),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("uncopy-differ: {why}");
            ExitCode::from(2)
        }
    }
}

fn run(
    seeds: std::ops::Range<u64>,
    end: Option<Instant>,
    script: impl Fn(u64) -> Script,
    first: bool,
    mut driver: Driver,
) -> io::Result<bool> {
    let start = Instant::now();
    let mut last = seeds.start;
    for seed in seeds.clone() {
        if end.is_some_and(|end| Instant::now() >= end) || first && driver.has_failed() {
            break;
        }
        driver.script(&format!("seed-{seed}"), &script(seed))?;
        last = seed + 1;
    }
    println!("seeds {}..{last}, {:.0} s", seeds.start, start.elapsed().as_secs_f64());
    Ok(driver.finish(true))
}

fn replay(files: &[PathBuf], repeat: usize, mut driver: Driver) -> Result<bool, Box<dyn Error>> {
    for file in files {
        let named = |why: &dyn Error| BadText::new(format_args!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|why| named(&why))?;
        let script = text.parse::<Script>().map_err(|why| named(&why))?;
        let name = file.file_stem().map_or("script".into(), |n| n.to_string_lossy());
        for _ in 0..repeat {
            driver.script(&format!("{name}.again"), &script)?;
        }
    }
    println!("{} scripts, each {repeat} times", files.len());
    Ok(driver.finish(false))
}
