//! One turn of one side: started, loaded if it is a server, ended, and what it used.

use std::fs::File;
use std::io::{Read, Seek};
use std::thread::sleep;
use std::time::{Duration, Instant};

use uncopy_counters::Snapshot;
use uncopy_measure::Outcome;

use super::counters;
use super::load::Load;
use super::ready::Ready;
use super::said::last_lines;
use super::sides::{Program, Side};
use super::supervisor::{Ended, Supervised};
use super::tree;

/// What a turn is.
pub enum Work<'a> {
    /// The program runs to its end.
    Whole,
    /// It is a server, and this is its load.
    Server(Ready, &'a Load),
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// CPU time of the whole process tree, in seconds.
    pub cpu: f64,
    /// How long the load or the program took, in seconds.
    pub elapsed: f64,
    /// How much work that was, if it is counted.
    pub count: Option<f64>,
    /// What uncopy did.
    pub counters: Snapshot,
}

impl Measured {
    /// What is compared: CPU time, for a unit of work if work is counted.
    pub fn cost(&self) -> f64 {
        self.cpu / self.count.unwrap_or(1.0)
    }
}

/// Takes it.
pub fn measure(program: &Program, side: Side, work: &Work) -> Outcome<Measured> {
    let mut said = scratch()?;
    let writer = said.try_clone().map_err(|e| format!("no descriptor is left ({e})"))?;
    let command = program.command(side, matches!(work, Work::Server(..)))?;
    let measured = match work {
        Work::Whole => whole(&mut Supervised::start(command, writer)?),
        Work::Server(ready, load) => {
            ready.check_free()?;
            serve(&mut Supervised::start(command, writer)?, *ready, load)
        }
    };
    let words = said.rewind().and_then(|()| {
        let mut words = Vec::new();
        said.read_to_end(&mut words).map(|_| words)
    });
    let words = words.unwrap_or_default();
    let mut measured = measured.map_err(|Failed { why, quote }| {
        if quote { format!("{why}; it said: {}", last_lines(&words)) } else { why }
    })?;
    measured.counters = counters::larger(measured.counters, counters::from_summaries(&words));
    Ok(measured)
}

/// Why there is no result, and whether what the program said helps.
struct Failed {
    why: String,
    quote: bool,
}

/// Who listens, and does nothing for so long, waits for clients.
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
            return Err(quoted(format!(
                "it listens on a TCP port and has done nothing for {seconds} s, as a server does; \
                 give what loads it: uncopy try --load 'LOAD' -- CMD"
            )));
        }
    }
    Ok(())
}

fn whole(program: &mut Supervised) -> Result<Measured, Failed> {
    ends_by_itself(program)?;
    let ended = program.wait().map_err(quoted)?;
    if !ended.success {
        return Err(quoted(format!(
            "the program ended with {}; if it should, try: sh -c 'CMD; true'",
            ended.how
        )));
    }
    let Ended { cpu, elapsed, .. } = ended;
    Ok(Measured { cpu, elapsed, count: None, counters: Snapshot::default() })
}

fn serve(server: &mut Supervised, ready: Ready, load: &Load) -> Result<Measured, Failed> {
    ready.wait(server).map_err(quoted)?;
    check_alive(server, "before it could be loaded")?;
    let (elapsed, count) = match load.run() {
        Ok(done) => done,
        Err(why) => {
            check_alive(server, "under the load")?;
            return Err(Failed { why, quote: false });
        }
    };
    let counters = counters::of_living(&server.processes());
    check_alive(server, "under the load")?;
    server.end();
    let Ended { cpu, .. } = server.wait().map_err(quoted)?;
    Ok(Measured { cpu, elapsed, count, counters })
}

fn check_alive(server: &mut Supervised, when: &str) -> Result<(), Failed> {
    if !server.has_ended() {
        return Ok(());
    }
    let ended = server.wait().map_err(quoted)?;
    let remedy = "a server has to stay; what ends by itself is tried without --load";
    Err(quoted(format!("the server ended {when} with {}; {remedy}", ended.how)))
}

fn quoted(why: String) -> Failed {
    Failed { why, quote: true }
}

/// Memory for what a side's processes say.
fn scratch() -> Outcome<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    memfd_create(c"uncopy-try", MFdFlags::MFD_CLOEXEC)
        .map(File::from)
        .map_err(|e| format!("no memory for what the program says ({e})"))
}
