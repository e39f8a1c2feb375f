//! One turn of one side: started, loaded if it is a server, ended, and what it used.

use std::fs::File;
use std::io::{Read, Seek};
use std::thread::sleep;
use std::time::{Duration, Instant};

use uncopy_counters::Snapshot;
use uncopy_measure::{Failure, failure};

use super::counters;
use super::load::Load;
use super::ready::Ready;
use super::said::last_lines;
use super::sides::{Program, Side};
use super::supervisor::{Ended, Supervised};
use super::tree;

/// The work of a turn.
pub enum Work<'a> {
    /// The program runs to its end.
    Whole,
    /// It is a server, which is loaded.
    Server(Ready, &'a Load, Pace),
}

/// How often the load of a server runs in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Before what is measured: a server warms up, and uncopy learns.
    pub learns: u32,
    /// And is measured.
    pub counts: u32,
}

/// The results of a server's first turn, which is not measured.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsed {
    /// How often the load is to run.
    pub pace: Pace,
    /// CPU time of the server for the load that ran last, in seconds.
    pub cpu: f64,
    /// How long that took, in seconds.
    pub elapsed: f64,
    /// Whether uncopy had the time that it needs to learn.
    pub learnt: bool,
}

/// uncopy has learnt after so much CPU time, in seconds: its first experiment takes 24 stretches of
/// 55 ms at most, once 8 MB were copied; accounts that rest come back until then.
pub const LEARNS: f64 = 3.0;
/// The measured time is such a part of the CPU time before it, if loads can be repeated until then.
const COUNTS: f64 = 0.5;
/// A load is not repeated beyond so many seconds before it is measured.
const TIMEOUT: f64 = 8.0;
/// And not beyond so many times.
const REPEATS: u32 = 200;

impl Rehearsed {
    /// After so many `loads`, which took `all` of `wanted` seconds of CPU time; the last one took
    /// `cpu` of it, and `elapsed` seconds.
    fn new(wanted: f64, loads: u32, all: f64, cpu: f64, elapsed: f64) -> Self {
        let most = (COUNTS * TIMEOUT / elapsed.max(1e-3)).clamp(1.0, f64::from(REPEATS));
        let counts = (COUNTS * wanted / cpu.max(1e-6)).ceil().clamp(1.0, most) as u32;
        Self { pace: Pace { learns: loads, counts }, cpu, elapsed, learnt: all >= LEARNS }
    }

    /// How long a turn of a side takes, about, in seconds.
    pub fn turn(&self) -> f64 {
        self.elapsed * f64::from(self.pace.learns + self.pace.counts)
    }
}

/// The measurement.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// CPU time of the whole process tree, in seconds; of a server for one run of the load.
    pub cpu: f64,
    /// How long the program, or one run of the load, took, in seconds.
    pub elapsed: f64,
    /// How much work a run was, if it is counted.
    pub count: Option<f64>,
    /// Uncopy's work, in one run.
    pub counters: Snapshot,
}

impl Measured {
    /// The cost that is compared: CPU time, for a unit of work if work is counted.
    pub fn cost(&self) -> f64 {
        self.cpu / self.count.unwrap_or(1.0)
    }

    /// The time that it took, which is compared besides.
    pub fn time(&self) -> f64 {
        self.elapsed / self.count.unwrap_or(1.0)
    }
}

/// Runs a server under uncopy until it has taken `wanted` seconds of CPU time, and tells from that
/// how often the load is to run.
pub fn rehearse(
    program: &Program,
    ready: Ready,
    load: &Load,
    wanted: f64,
) -> Result<Rehearsed, Failure> {
    quoting(|writer| {
        ready.check_free()?;
        let command = program.command(Side::Uncopy, true)?;
        let mut server = Supervised::start(command, writer)?;
        begin(&mut server, ready)?;
        let since = Instant::now();
        let first = server.cpu_seconds();
        let (mut loads, mut all) = (0, 0.0);
        loop {
            let (elapsed, _) = run(&mut server, load)?;
            loads += 1;
            let before = all;
            all = server.cpu_seconds() - first;
            let seconds = since.elapsed().as_secs_f64();
            if all >= wanted || loads >= REPEATS || seconds >= TIMEOUT {
                server.end();
                server.wait().map_err(quoted)?;
                return Ok(Rehearsed::new(wanted, loads, all, all - before, elapsed));
            }
        }
    })
    .map(|(rehearsed, _)| rehearsed)
}

/// Takes one turn.
pub fn measure(program: &Program, side: Side, work: &Work) -> Result<Measured, Failure> {
    let command = program.command(side, matches!(work, Work::Server(..)))?;
    let (mut measured, words) = quoting(|writer| match work {
        Work::Whole => whole(&mut Supervised::start(command, writer)?),
        Work::Server(ready, load, pace) => {
            ready.check_free()?;
            serve(&mut Supervised::start(command, writer)?, *ready, load, *pace)
        }
    })?;
    // (Statistics of a process that lives need a place that is memory; its summary at exit does
    // not.)
    let runs = match work {
        Work::Whole => 1,
        Work::Server(.., pace) => u64::from(pace.learns + pace.counts),
    };
    let summed = counters::from_summaries(&words);
    let summed = Snapshot::from_values(summed.iter().map(|(_, n)| n / runs));
    measured.counters = counters::larger(measured.counters, summed);
    Ok(measured)
}

/// The result of `side`, and what it wrote to the file that it is given; that is quoted where it
/// fails.
fn quoting<T>(side: impl FnOnce(File) -> Result<T, Failed>) -> Result<(T, Vec<u8>), Failure> {
    let mut said = scratch()?;
    let writer = said.try_clone().map_err(|e| Failure::new("no descriptor is left").because(e))?;
    let done = side(writer);
    let words = said.rewind().and_then(|()| {
        let mut words = Vec::new();
        said.read_to_end(&mut words).map(|_| words)
    });
    let words = words.unwrap_or_default();
    match done {
        Ok(done) => Ok((done, words)),
        Err(Failed { why, quote: true }) => {
            Err(why.advise(format_args!("it said: {}", last_lines(&words))))
        }
        Err(Failed { why, .. }) => Err(why),
    }
}

/// Why there is no result, and whether what the program said helps.
struct Failed {
    why: Failure,
    quote: bool,
}

impl From<Failure> for Failed {
    fn from(why: Failure) -> Self {
        Self { why, quote: false }
    }
}

/// The time without work after which a program that listens waits for clients.
const IDLE: Duration = Duration::from_secs(10);
/// That is nothing: 5% of that time, in clock ticks of 10 ms.
const NOTHING: u64 = 50;
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until the program ends; an error where it seems to be a server, which would not.
fn ends_by_itself(program: &mut Supervised) -> Result<(), Failed> {
    let (mut ticks, mut since) = (0, Instant::now());
    // (Most programs are short, and every 10 ms would count in those of a second.)
    let mut pause = Duration::from_millis(1);
    while !program.has_ended() {
        sleep(pause);
        pause = (2 * pause).min(LOOK);
        if pause < LOOK {
            continue;
        }
        let processes = program.processes();
        let now = tree::ticks(&processes);
        if now > ticks + NOTHING {
            (ticks, since) = (now, Instant::now());
        }
        if since.elapsed() > IDLE && tree::listens(&processes) {
            let seconds = IDLE.as_secs();
            let idle = failure!(
                "it listens on a TCP port and has done nothing for {seconds} s, as a server does"
            );
            let advice = "give what loads it: uncopy try --load 'LOAD' -- CMD";
            return Err(quoted(idle.advise(advice)));
        }
    }
    Ok(())
}

fn whole(program: &mut Supervised) -> Result<Measured, Failed> {
    ends_by_itself(program)?;
    let ended = program.wait().map_err(quoted)?;
    if !ended.success {
        let why = failure!("the program ended with {}", ended.how);
        return Err(quoted(why.advise("if it should, try: sh -c 'CMD; true'")));
    }
    let Ended { cpu, elapsed, .. } = ended;
    Ok(Measured { cpu, elapsed, count: None, counters: Snapshot::default() })
}

fn serve(
    server: &mut Supervised,
    ready: Ready,
    load: &Load,
    pace: Pace,
) -> Result<Measured, Failed> {
    begin(server, ready)?;
    for _ in 0..pace.learns {
        run(server, load)?;
    }
    let (cpu_before, before) = (server.cpu_seconds(), counters::of_living(&server.processes()));
    let (mut elapsed, mut count) = (0.0, None);
    for _ in 0..pace.counts {
        let (seconds, work) = run(server, load)?;
        elapsed += seconds;
        count = work.map(|work| work + count.unwrap_or(0.0));
    }
    let cpu = server.cpu_seconds() - cpu_before;
    let did = counters::between(&before, &counters::of_living(&server.processes()));
    server.end();
    server.wait().map_err(quoted)?;
    let runs = f64::from(pace.counts);
    let counters = did.iter().map(|(_, n)| n / u64::from(pace.counts));
    Ok(Measured {
        cpu: cpu / runs,
        elapsed: elapsed / runs,
        count: count.map(|all| all / runs),
        counters: Snapshot::from_values(counters),
    })
}

/// Waits until a server can be loaded.
fn begin(server: &mut Supervised, ready: Ready) -> Result<(), Failed> {
    ready.wait(server).map_err(quoted)?;
    check_alive(server, "before it could be loaded")
}

/// One run of the load, which a server has to outlive.
fn run(server: &mut Supervised, load: &Load) -> Result<(f64, Option<f64>), Failed> {
    let done = load.run();
    check_alive(server, "under the load")?;
    Ok(done?)
}

fn check_alive(server: &mut Supervised, when: &str) -> Result<(), Failed> {
    if !server.has_ended() {
        return Ok(());
    }
    let ended = server.wait().map_err(quoted)?;
    let remedy = "a server has to stay; what ends by itself is tried without --load";
    Err(quoted(failure!("the server ended {when} with {}", ended.how).advise(remedy)))
}

fn quoted(why: Failure) -> Failed {
    Failed { why, quote: true }
}

/// Memory for what a side's processes say.
fn scratch() -> Result<File, Failure> {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    memfd_create(c"uncopy-try", MFdFlags::MFD_CLOEXEC)
        .map(File::from)
        .map_err(|e| Failure::new("no memory for what the program says").because(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_load_is_repeated_until_what_is_measured_is_long_enough() {
        let pace = |cpu, elapsed| Rehearsed::new(3.0, 4, 3.1, cpu, elapsed).pace.counts;
        assert_eq!(pace(0.5, 0.6), 3);
        assert_eq!(pace(2.0, 2.5), 1);
        // But not for ever: a load that mostly waits, and one that does next to nothing.
        assert_eq!(pace(0.01, 2.0), 2);
        assert_eq!(pace(0.0, 0.0), 200);
    }
}
