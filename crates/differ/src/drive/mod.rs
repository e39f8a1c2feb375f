//! Runs scripts plainly and in other ways, compares what they say, shrinks those that fail.

pub mod pair;
mod run;
mod settle;
pub mod variant;

use core::fmt;
use pair::{Pair, Starts};
use run::{Entry, Run};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use uncopy_differ::script::Script;
use uncopy_differ::shrink::shrink;
use variant::Variant;

/// A fault: a wrong answer, or the harness cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of the harness, not of what is tested.
    pub is_harness: bool,
    what: String,
}

impl Fault {
    /// The harness itself cannot go on.
    pub fn harness(what: String) -> Self {
        Self { is_harness: true, what }
    }

    /// A process has died.
    pub fn dead(what: String) -> Self {
        Self { is_harness: false, what }
    }

    /// A call does not return.
    pub fn stuck(what: String) -> Self {
        Self { is_harness: false, what }
    }

    /// A call says what it may not say.
    pub fn wrong(what: String) -> Self {
        Self { is_harness: false, what }
    }

    /// Where it was.
    pub fn of(self, place: &str) -> Self {
        Self { what: format!("{place}: {}", self.what), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// A pair that scripts are run by in one way; begun anew after a fault.
struct Stage {
    way: Option<Variant>,
    pair: Option<Pair>,
}

/// The outcome of one script in one way.
struct Ran {
    log: Vec<Entry>,
    fault: Option<Fault>,
    /// Its connections had no rings in time.
    late: bool,
    counters: [u64; 3],
}

impl Ran {
    fn failed(fault: Fault) -> Self {
        Self { log: vec![], fault: Some(fault), late: false, counters: [0; 3] }
    }
}

/// The results of one way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Scripts that were right.
    pub right: usize,
    /// Scripts that were not.
    pub wrong: usize,
    /// Scripts whose connections had no rings in time, where they were to have them.
    pub late: usize,
    /// Connections with rings, calls that sent by them, that received.
    pub counters: [u64; 3],
}

impl Stage {
    fn new(way: Option<Variant>) -> Self {
        Self { way, pair: None }
    }

    fn run(&mut self, starts: &Starts, script: &Script) -> Ran {
        let mut pair = match self.pair.take() {
            Some(pair) => pair,
            None => match Pair::start(starts, self.way.as_ref()) {
                Ok(pair) => pair,
                Err(fault) => return Ran::failed(fault),
            },
        };
        let (log, done) = Run::script(&mut pair, script, self.way.as_ref());
        let whole = pair.is_whole();
        let counters = if whole && done.is_ok() { pair.counters() } else { [0; 3] };
        let late = done == Ok(false);
        let fault = done.err();
        if fault.is_none() && whole {
            self.pair = Some(pair);
        }
        Ran { log, fault, late, counters }
    }
}

/// A stage with a thread of its own: so a script is run in all ways at the same time. (Much of it
/// is waiting. The thread is its processes' parent, and they end with it.)
struct Runner {
    way: Option<Variant>,
    tally: Tally,
    asks: Option<mpsc::Sender<Arc<Script>>>,
    ran: mpsc::Receiver<Ran>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    fn new(starts: &Starts, way: Option<Variant>) -> Self {
        let (asks, scripts) = mpsc::channel::<Arc<Script>>();
        let (answers, ran) = mpsc::channel();
        let (starts, of) = (starts.clone(), way.clone());
        let thread = std::thread::spawn(move || {
            let mut stage = Stage::new(of);
            for script in scripts {
                if answers.send(stage.run(&starts, &script)).is_err() {
                    break;
                }
            }
        });
        let tally = Tally::default();
        Self { way, tally, asks: Some(asks), ran, thread: Some(thread) }
    }

    fn name(&self) -> &'static str {
        self.way.as_ref().map_or("plain", |way| way.name)
    }

    fn begins(&self, script: &Arc<Script>) {
        if let Some(asks) = &self.asks {
            // (A thread that is gone gives no answer, either.)
            let _ = asks.send(script.clone());
        }
    }

    fn ends(&self) -> Ran {
        let gone = |_| Ran::failed(Fault::harness("a thread of the driver's is gone".into()));
        self.ran.recv().unwrap_or_else(gone)
    }

    /// What the last script has left is not the next one's.
    fn begins_anew(&mut self, starts: &Starts) {
        let mut anew = Self::new(starts, self.way.clone());
        anew.tally = self.tally;
        *self = anew;
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.asks.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// See above.
pub struct Driver {
    /// How processes are started.
    pub starts: Starts,
    /// Where scripts that fail are written.
    pub directory: PathBuf,
    /// Runs that shrinking one script may take; 0 for none.
    pub effort: usize,
    /// How often a script is run while it is shrunk, before it counts as right.
    pub tries: usize,
    plain: Runner,
    stages: Vec<Runner>,
}

impl Driver {
    /// Scripts are run plainly, and in these ways.
    pub fn new(starts: Starts, ways: Vec<Option<Variant>>, directory: PathBuf) -> Self {
        let stages = ways.into_iter().map(|way| Runner::new(&starts, way)).collect();
        let plain = Runner::new(&starts, None);
        Self { starts, directory, effort: 200, tries: 1, plain, stages }
    }

    /// Runs `script` in all ways; reports what differs. `name` names its files.
    ///
    /// # Errors
    /// When processes or files fail.
    pub fn script(&mut self, name: &str, script: &Script) -> io::Result<()> {
        let all = Arc::new(script.clone());
        std::iter::once(&self.plain).chain(&self.stages).for_each(|runner| runner.begins(&all));
        let Ran { log: plain, fault, .. } = self.plain.ends();
        let others: Vec<Ran> = self.stages.iter().map(Runner::ends).collect();
        if let Some(fault) = fault {
            self.plain.tally.wrong += 1;
            if fault.is_harness {
                return Err(io::Error::other(fault.to_string()));
            }
            return self.report(name, script, None, &plain, &[], &fault);
        }
        self.plain.tally.right += 1;
        for (at, ran) in others.into_iter().enumerate() {
            let stage = &mut self.stages[at];
            stage.tally.late += usize::from(ran.late);
            for (sum, n) in stage.tally.counters.iter_mut().zip(ran.counters) {
                *sum += n;
            }
            let Some(fault) = ran.fault.or_else(|| difference(&plain, &ran.log)) else {
                stage.tally.right += 1;
                continue;
            };
            stage.tally.wrong += 1;
            stage.begins_anew(&self.starts);
            let way = stage.way.clone();
            self.report(name, script, way.as_ref(), &ran.log, &plain, &fault)?;
        }
        Ok(())
    }

    fn report(
        &self,
        name: &str,
        script: &Script,
        way: Option<&Variant>,
        log: &[Entry],
        plain: &[Entry],
        fault: &Fault,
    ) -> io::Result<()> {
        let of = way.map_or("plain", |way| way.name);
        println!("FAIL  {name} {of}: {}", said(script, log, plain, fault));
        let comment = format!("{name}, {of}\n{}", said(script, log, plain, fault));
        let file = self.write(&format!("{name}.{of}"), &script.text(&comment))?;
        println!("      {}", file.display());
        if self.effort > 0 && !fault.is_harness {
            self.shorten(&format!("{name}.{of}.short"), script, way)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.directory)?;
        let file = self.directory.join(format!("{name}.script"));
        fs::write(&file, text)?;
        Ok(file)
    }

    fn shorten(&self, name: &str, script: &Script, way: Option<&Variant>) -> io::Result<()> {
        let mut last = None;
        let short = shrink(script, self.effort, |script| {
            (0..self.tries.max(1)).any(|_| {
                // Each begins anew: what scripts before it have left does not count.
                let Ran { log, fault, .. } = Stage::new(way.cloned()).run(&self.starts, script);
                // (A difference between two answers that are both right is one, too.)
                let (plain, wrong) = match way {
                    Some(_) if fault.is_none() => {
                        let ran = Stage::new(None).run(&self.starts, script);
                        (ran.log, ran.fault)
                    }
                    _ => (vec![], None),
                };
                let difference =
                    || (way.is_some() && wrong.is_none()).then(|| difference(&plain, &log));
                match fault.or_else(|| difference().flatten()) {
                    Some(fault) if !fault.is_harness => {
                        last = Some(said(script, &log, &plain, &fault));
                        true
                    }
                    _ => false,
                }
            })
        });
        let Some(what) = last else {
            println!("      it did not fail again by itself; see --tries");
            return Ok(());
        };
        let file = self.write(name, &short.text(&format!("{name}\n{what}")))?;
        println!("      {} lines are left: {}: {what}", short.lines.len(), file.display());
        for line in short.to_string().lines().take(40) {
            println!("        {line}");
        }
        Ok(())
    }

    /// Some script was wrong.
    pub fn has_failed(&self) -> bool {
        std::iter::once(&self.plain).chain(&self.stages).any(|stage| stage.tally.wrong > 0)
    }

    /// Prints what was done, a line for each way; returns whether all was right. `random`: of many
    /// random scripts some go by rings; short ones that somebody wrote need not, after four calls.
    pub fn finish(self, random: bool) -> bool {
        let mut right = true;
        for stage in std::iter::once(&self.plain).chain(&self.stages) {
            let Tally { right: good, wrong, late, counters: [connections, sends, receives] } =
                stage.tally;
            right &= wrong == 0;
            print!("{:<6} {good} right, {wrong} wrong", stage.name());
            if stage.way.is_some() {
                print!(
                    "; {connections} ends with rings, {sends} sends and {receives} receives by \
                     them, {late} scripts began without"
                );
                // Else it shows nothing.
                let shows = !random || good < 20 || sends > 0;
                right &= shows;
                if !shows {
                    print!("; NOTHING BY RINGS");
                }
            }
            println!();
        }
        right
    }
}

/// A fault, and the line at which it was found.
fn said(script: &Script, log: &[Entry], plain: &[Entry], fault: &Fault) -> String {
    let at = log.len();
    let line = script.lines.get(at).map_or("the end".into(), ToString::to_string);
    let plainly = plain.get(at).map_or(String::new(), |entry| format!("; plainly: {}", entry.text));
    format!("line {at} ({line}): {fault}{plainly}")
}

/// Where what was said differs though nothing else may be said. (Once something else may be, what
/// follows may differ too.)
fn difference(plain: &[Entry], log: &[Entry]) -> Option<Fault> {
    for (at, (was, is)) in plain.iter().zip(log).enumerate() {
        if was == is {
            continue;
        }
        if !was.exact || !is.exact {
            return None;
        }
        return Some(Fault::wrong(format!("entry {at}: {}; plainly {}", is.text, was.text)));
    }
    (plain.len() != log.len()).then(|| Fault::wrong("the logs are not of one length".into()))
}

/// `target/differ`, beside the directory of this program.
pub fn default_directory() -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent);
    target.unwrap_or(Path::new(".")).join("differ")
}
