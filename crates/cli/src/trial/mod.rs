//! `uncopy try`: whether uncopy pays for a program of the user's, and where the gain comes from.
//!
//! | file | one idea |
//! | --- | --- |
//! | `sides` | what is compared, and how each side is started |
//! | `supervisor` | a side's whole process tree: its CPU time, its end |
//! | `tree` | who descends from whom, and who listens |
//! | `ready` | when a server can be loaded |
//! | `load` | the load, and the number that it prints |
//! | `turn` | one turn of one side |
//! | `said` | the end of what a program said, quoted where it failed |
//! | `counters` | what uncopy did in a turn |
//! | `compare` | which differences count |
//! | `chance` | how far chance goes |
//! | `verdict` | what they mean, and what to do |
//! | `report` | the answer as text and as JSON |

mod chance;
mod compare;
mod counters;
mod load;
mod ready;
mod report;
mod said;
mod sides;
#[cfg(test)]
mod simulated;
pub mod supervisor;
mod tree;
mod turn;
mod verdict;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use uncopy_measure::machine::Machine;
use uncopy_measure::printable::printable;
use uncopy_measure::words::parsed;
use uncopy_measure::{Failure, library, progress, userfaultfd, variables};

use self::load::Load;
use self::ready::Ready;
use self::report::{Report, Turns};
use self::sides::{Program, Side};
use self::turn::{Pace, Rehearsed, Work};
use self::verdict::{Facts, Verdict};
use crate::doctor::checks;
use crate::run::{self, program};

/// Further rounds end after so many seconds of measuring.
const CAP: f64 = 600.0;
/// There are at most so many times as many rounds as were asked for: the test's limit is for as
/// many looks.
const MOST: usize = 3;
/// And while all that is open is which of the sides that gain is better.
const MOST_OF_GAINS: usize = 6;
/// With fewer rounds nobody looks whether it is close.
const FEWEST: usize = 3;

/// Options of `try`, beside those of `run`.
#[derive(Debug, clap::Args)]
struct TryArgs {
    /// CMD is a server: start it, run this (by 'sh -c') when it listens, end it
    #[arg(long, value_name = "LOAD")]
    load: Option<String>,
    /// Load the server when 127.0.0.1:PORT accepts connections; none: at once
    /// [default: when it listens on any TCP port]
    #[arg(long, value_name = "PORT|none", requires = "load")]
    ready: Option<Ready>,
    /// How much work was done, if the load runs for a fixed time: a regular expression, whose first
    /// group is a number that the load prints. Without it the load is taken as a fixed amount of
    /// work
    #[arg(long, value_name = "REGEX", requires = "load")]
    count: Option<String>,
    /// How many turns of each side count, at least; without --load there is one more before, which
    /// warms up
    #[arg(long, value_name = "N", default_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// While it is close further rounds are run, up to three times as many in all, or six times of
    /// sides that gain, while it is open which gains more; none begins that would end later than
    /// this; 0: none
    #[arg(long, value_name = "SECONDS", default_value_t = CAP)]
    time_cap: f64,
    /// CPU time in seconds that a server takes before it is measured, in which it warms up and
    /// uncopy learns; half as much is measured
    #[arg(long, value_name = "SECONDS", requires = "load", default_value_t = turn::LEARNS)]
    warm_up: f64,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  uncopy try -- python3 convert.py input.dat
  uncopy try --load 'redis-benchmark -p 7777 -t get -d 1000000 -n 20000' -- redis-server --port 7777

Six sides take turns: the program as it is, twice (what they differ by is noise); with glibc told \
to keep memory; under uncopy's allocator alone; under uncopy without elision, which has faster \
copies besides; under uncopy. Measured are the CPU time of all its processes, and the time, from \
start to end, so a turn should take some seconds. Sides are compared within rounds; while it is \
close, rounds are added (--time-cap), in the end of those sides only that are close. A server is \
first loaded until uncopy has learnt (--warm-up); then a short load is repeated until what is \
measured takes half as much CPU time, as far as 12 s allow it. A server is ended by SIGTERM, by \
SIGKILL after 5 s. Programs get an empty standard input; their output is thrown away. Options of \
'uncopy run' hold for the sides under uncopy.";

/// The subcommand: its own options, and those of `run`.
pub fn command() -> Command {
    let command = uncopy_measure::words::with_args::<TryArgs>(
        Command::new("try").about("Find out whether uncopy pays for a program, and why"),
    )
    .override_usage("uncopy try [OPTIONS] [--load LOAD] -- CMD [ARGS]...")
    .after_help(EXAMPLES);
    run::with_options(command).arg(run::command_words())
}

/// Measures, compares, answers.
pub fn main(matches: &ArgMatches) -> Result<(), Failure> {
    let words = run::program_words(&command(), matches, std::env::args_os())?;
    let args: TryArgs = parsed(matches)?;
    variables::report(|_| false);
    let load = match &args.load {
        Some(text) => Some(Load::new(text, args.count.as_deref())?),
        None => None,
    };
    let program = Program { library: usable(&words, matches)?, options: options(matches), words };
    let rounds = args.rounds as usize;
    let (work, rehearsed) = match &load {
        Some(load) => {
            let ready = args.ready.unwrap_or(Ready::Listening);
            let rehearsed = rehearse(&program, ready, load, &args)?;
            (Work::Server(ready, load, rehearsed.pace), Some(rehearsed))
        }
        None => (Work::Whole, None),
    };
    let facts = |turns: &Turns| report::facts(load.as_ref(), rehearsed, turns);
    let turns = measure(&program, &work, rounds, args.time_cap, &facts)?;
    let report = Report::new(&program, load.as_ref(), rehearsed, &turns);
    uncopy_measure::print(&if args.json { report.json() } else { report.text() })
}

/// A side, as it stands in front of its failure.
fn quoted(side: Side) -> String {
    format!("'{}'", side.name())
}

/// How often a load is to run; says what it found, and how long all will take.
fn rehearse(
    program: &Program,
    ready: Ready,
    load: &Load,
    args: &TryArgs,
) -> Result<Rehearsed, Failure> {
    let rounds = args.rounds as usize;
    let found = turn::rehearse(program, ready, load, args.warm_up).map_err(|why| {
        // (A server that cannot be loaded as it is has nothing to do with uncopy.)
        let once = Work::Server(ready, load, Pace { learns: 0, counts: 1 });
        match turn::measure(program, Side::Plain, &once) {
            Ok(_) => why.within(quoted(Side::Uncopy)),
            Err(plain) => plain.within(quoted(Side::Plain)),
        }
    })?;
    let Pace { learns, counts } = found.pace;
    let about = found.turn() * (rounds * Side::ALL.len()) as f64;
    eprintln!(
        "uncopy try: under uncopy a load takes {:.2} s of CPU, {:.2} s in all. A turn runs it \
         {learns} times to warm up, and {counts} times that count; {rounds} rounds of {} sides take \
         about {about:.0} s{}.",
        found.cpu,
        found.elapsed,
        Side::ALL.len(),
        may_be_added(rounds, about, args.time_cap)
    );
    Ok(found)
}

/// The sentence about rounds that may be added to those that were asked for, which take `about` so
/// many seconds.
fn may_be_added(rounds: usize, about: f64, cap: f64) -> String {
    if rounds < FEWEST || cap <= about {
        "; no rounds are added".to_owned()
    } else {
        format!("; while it is close rounds are added, until {cap:.0} s at most (--time-cap)")
    }
}

/// The sides that one more round is to be of, after `done` rounds that count; none: it is over.
fn further(facts: &Facts, running: &[Side], done: usize, rounds: usize) -> Vec<Side> {
    let open = Verdict::of(facts).open_between(facts, running);
    let most = rounds * if open.contains(&Side::Plain) { MOST } else { MOST_OF_GAINS };
    if (FEWEST..most).contains(&done) { open } else { Vec::new() }
}

/// How long turns took, of each side together, and how many they were.
#[derive(Debug, Default)]
struct Pacing {
    took: [Duration; Side::ALL.len()],
    turns: [u32; Side::ALL.len()],
}

impl Pacing {
    fn add(&mut self, side: Side, took: Duration) {
        self.took[side as usize] += took;
        self.turns[side as usize] += 1;
    }

    /// The time of a round of these sides, in seconds.
    fn round(&self, sides: &[Side]) -> f64 {
        let mean = |side: &Side| self.took[*side as usize] / self.turns[*side as usize].max(1);
        sides.iter().map(mean).sum::<Duration>().as_secs_f64()
    }
}

/// The turns of each side that count, in the order of [`Side::ALL`]; says after each round how the
/// sides stand. While it is close there are more rounds than `rounds`, in the end of those sides
/// only that are close, until `cap` seconds are over.
fn measure(
    program: &Program,
    work: &Work,
    rounds: usize,
    cap: f64,
    facts: &dyn Fn(&Turns) -> Facts,
) -> Result<Turns, Failure> {
    let first = usize::from(matches!(work, Work::Whole));
    let mut wanted = first + rounds;
    let bar = progress::bar(wanted * Side::ALL.len());
    let mut turns = Turns::default();
    let (mut running, mut pacing) = (Side::ALL.to_vec(), Pacing::default());
    let begin = Instant::now();
    let mut done = 0;
    while done < wanted {
        for side in Side::some_in_turn(&running, done) {
            bar.set_message(side.name());
            let begin = Instant::now();
            let measured =
                turn::measure(program, side, work).map_err(|why| why.within(quoted(side)))?;
            pacing.add(side, begin.elapsed());
            if done >= first {
                turns[side as usize].push(measured);
            }
            bar.inc(1);
        }
        done += 1;
        let so_far = begin.elapsed().as_secs_f64();
        let mut stand = "warmed up".to_owned();
        if done > first {
            let facts = facts(&turns);
            stand = report::so_far(&facts.standing);
            if done == wanted {
                let open = further(&facts, &running, done - first, rounds);
                if !open.is_empty() && so_far + pacing.round(&open) < cap {
                    wanted += 1;
                    bar.inc_length(open.len() as u64);
                    let all = open.len() == running.len();
                    let of = if all { String::new() } else { of_these(&open) };
                    stand += &format!("; it is close: one more round{of}");
                    running = open;
                }
            }
        }
        let left = pacing.round(&running) * (wanted - done) as f64;
        // (Of a server it is said before.)
        let added =
            if done == first { may_be_added(rounds, so_far + left, cap) } else { String::new() };
        progress::say(
            &bar,
            &format!("uncopy try: round {done} of {wanted}, {left:.0} s left{added}; {stand}"),
        );
    }
    bar.finish_and_clear();
    Ok(turns)
}

/// Which sides alone the next round is of.
fn of_these(sides: &[Side]) -> String {
    let names: Vec<&str> = sides.iter().map(|side| side.name()).collect();
    format!(" of {}", names.join(" and "))
}

/// The library, if the program can be started and run under it here.
fn usable(words: &[OsString], matches: &ArgMatches) -> Result<PathBuf, Failure> {
    let name = printable(&words[0]);
    let path = std::env::var_os("PATH");
    let loaded = program::find(&words[0], path.as_deref())
        .and_then(|file| program::loaded(&file))
        .map_err(|why| why.text.within(&name))?;
    let library = library::find(matches.get_one::<PathBuf>("library").map(PathBuf::as_path))?;
    if let Some(why) = run::checks::obstacle(&loaded) {
        return Err(why.within("nothing to try"));
    }
    userfaultfd::check().map_err(|why| {
        let why = why.within("nothing can be elided here");
        match missing() {
            Some(missing) => why.advise(missing),
            None => why,
        }
    })?;
    Ok(library)
}

/// The names of what `uncopy doctor` finds missing here.
fn missing() -> Option<String> {
    let kernel = Machine::own().kernel;
    let all = checks::all(&kernel, std::thread::available_parallelism().map_or(1, usize::from));
    let names: Vec<&str> = all.iter().filter(|check| !check.ok).map(|check| check.name).collect();
    (!names.is_empty()).then(|| {
        format!("'uncopy doctor' finds missing, and says what to do: {}", names.join(", "))
    })
}

/// The given ones of `run`'s options, as they are to be handed on.
fn options(matches: &ArgMatches) -> Vec<(&'static str, u64)> {
    run::given(matches).map(|(spec, value)| (spec.name, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(words: &[&str]) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from([&["try"], words].concat())
    }

    #[test]
    fn options_of_run_are_handed_on() {
        let found = matches(&["--threshold=64K", "--rounds=3", "--", "cat", "--load"]).unwrap();
        assert_eq!(options(&found), [("threshold", 65536)]);
        let args: TryArgs = parsed(&found).unwrap();
        assert_eq!((args.rounds, args.load), (3, None));
    }

    #[test]
    fn rounds_that_may_be_added_are_announced_with_how_long_they_take_at_most() {
        let said = may_be_added(4, 200.0, 600.0);
        assert_eq!(said, "; while it is close rounds are added, until 600 s at most (--time-cap)");
        for (rounds, cap) in [(4, 0.0), (4, 200.0), (FEWEST - 1, 600.0)] {
            assert_eq!(may_be_added(rounds, 200.0, cap), "; no rounds are added");
        }
    }

    #[test]
    fn a_round_takes_what_the_turns_of_its_sides_took_on_the_average() {
        let mut pacing = Pacing::default();
        for (side, seconds) in [(Side::Plain, 9), (Side::Uncopy, 4), (Side::Uncopy, 6)] {
            pacing.add(side, Duration::from_secs(seconds));
        }
        assert_eq!(pacing.round(&[Side::Uncopy]), 5.0);
        assert_eq!(pacing.round(&[Side::Plain, Side::Uncopy]), 14.0);
    }

    #[test]
    fn options_of_servers_need_a_load() {
        assert!(matches(&["--count=([0-9]+)", "--", "cat"]).is_err());
        assert!(matches(&["--ready=7777", "--", "cat"]).is_err());
        assert!(matches(&["--ready=7777", "--load=true", "--", "cat"]).is_ok());
        assert!(matches(&["--ready=soon", "--load=true", "--", "cat"]).is_err());
        assert!(matches(&["--rounds=0", "--", "cat"]).is_err());
    }
}
