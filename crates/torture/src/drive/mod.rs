//! The driver: seeds, ways, comparison, report, shrinking.

pub mod process;
pub mod variant;

use process::{Outcome, Runner};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uncopy_torture::script::Script;
use uncopy_torture::shrink::shrink;
use variant::Variant;

/// While a script is being shrunk a run may take at most this long.
const SHRINKING_TIMEOUT: Duration = Duration::from_secs(15);

/// Runs scripts in all ways.
#[derive(Clone, Debug)]
pub struct Driver {
    /// How.
    pub runner: Runner,
    /// The ways besides plainly.
    pub ways: Vec<Variant>,
    /// Where scripts and logs are written.
    pub directory: PathBuf,
    /// How often a script is run while it is being shrunk, before it counts as right.
    pub tries: usize,
    /// Runs that shrinking may take; 0: it is not shrunk.
    pub effort: usize,
}

/// The work that was done in a way, over all scripts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Scripts that agreed.
    pub agreed: usize,
    /// Scripts that did not.
    pub failed: usize,
    /// Scripts in which no copy was elided.
    pub idle: usize,
    /// uncopy's counters.
    pub counters: BTreeMap<String, u64>,
}

/// The work in every way, in the order of the ways.
pub type Tallies = Vec<Tally>;

impl Driver {
    /// Runs `script` in all ways; reports what differs. `name` names its files. With `shorten`
    /// a script that fails is shrunk.
    ///
    /// # Errors
    /// When processes or files fail.
    pub fn script(&self, name: &str, script: &Script, tallies: &mut Tallies) -> io::Result<()> {
        let file = self.write(name, script, name)?;
        let plain = self.runner.run(&file, None)?;
        let mut failed = plain.end.is_some();
        if let Some(end) = &plain.end {
            println!("FAIL  {name} plainly: {end}");
            tallies.iter_mut().for_each(|t| t.failed += 1);
        }
        for (way, tally) in self.ways.iter().zip(tallies).filter(|_| plain.end.is_none()) {
            let outcome = self.runner.run(&file, Some(way))?;
            for (counter, n) in &outcome.counters {
                let sum = tally.counters.entry(counter.clone()).or_default();
                *sum = sum.wrapping_add(*n);
            }
            let elided = outcome.counters.get("elided_copies").copied().unwrap_or(0);
            tally.idle += usize::from(elided == 0);
            match difference(script, &plain, &outcome) {
                None => tally.agreed += 1,
                Some(what) => {
                    failed = true;
                    tally.failed += 1;
                    println!("FAIL  {name} {}: {what}\n      {}", way.name, file.display());
                    self.shorten(name, script, way)?;
                }
            }
        }
        if !failed {
            for extension in ["script", "plain.log", "plain.err"] {
                let _ = fs::remove_file(file.with_extension(extension));
            }
            for way in &self.ways {
                for kind in ["log", "err"] {
                    let _ = fs::remove_file(file.with_extension(format!("{}.{kind}", way.name)));
                }
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, script: &Script, comment: &str) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.directory)?;
        let file = self.directory.join(format!("{name}.script"));
        fs::write(&file, script.text(comment))?;
        Ok(file)
    }

    fn shorten(&self, name: &str, script: &Script, way: &Variant) -> io::Result<()> {
        if self.effort == 0 {
            return Ok(());
        }
        let timeout = self.runner.timeout.min(SHRINKING_TIMEOUT);
        let runner = Runner { timeout, ..self.runner.clone() };
        let scratch = format!("{name}.{}.shrinking", way.name);
        let mut last = None;
        let short = shrink(script, self.effort, |s| {
            let found = self.write(&scratch, s, "").and_then(|file| {
                let plain = runner.run(&file, None)?;
                for _ in 0..self.tries.max(1) {
                    let under = runner.run(&file, Some(way))?;
                    if let Some(what) = difference(s, &plain, &under) {
                        return Ok(Some(what));
                    }
                }
                Ok(None)
            });
            match found {
                Ok(Some(what)) => {
                    last = Some(what);
                    true
                }
                _ => false,
            }
        });
        let Some(what) = last else {
            println!("      it did not fail again; see --tries");
            return Ok(());
        };
        let comment = format!("{name}, way {} ({})\n{what}", way.name, way.options.join(" "));
        let file = self.write(&format!("{name}.{}.short", way.name), &short, &comment)?;
        println!("      {} lines are left: {}", short.lines.len(), file.display());
        for line in short.lines.iter().take(40) {
            println!("        {line}");
        }
        Ok(())
    }
}

/// How a run differs from the plain one: the first operation that does.
fn difference(script: &Script, plain: &Outcome, under: &Outcome) -> Option<String> {
    let mut keys: Vec<&String> = plain.log.keys().chain(under.log.keys()).collect();
    keys.sort_by_key(|k| (k.parse::<usize>().unwrap_or(usize::MAX), *k));
    let differs = |k: &&&String| plain.log.get(**k) != under.log.get(**k);
    let first = keys.iter().find(differs).map(|key| {
        let said = |o: &Outcome| o.log.get(*key).map_or("nothing", |s| s.trim()).to_owned();
        let line = key.parse::<usize>().ok().and_then(|i| script.lines.get(i));
        let line = line.map_or(String::new(), |l| format!(" ({l})"));
        format!("{key}{line}: plainly {}, under uncopy {}", said(plain), said(under))
    });
    match (&under.end, first) {
        (Some(end), Some(first)) => Some(format!("{end}; first at {first}")),
        (Some(end), None) => Some(end.clone()),
        (None, first) => first,
    }
}

/// A new tally for every way.
pub fn tallies(ways: &[Variant]) -> Tallies {
    vec![Tally::default(); ways.len()]
}

/// Adds tallies of the same ways.
pub fn add(to: &mut Tallies, more: &Tallies) {
    for (a, b) in to.iter_mut().zip(more) {
        (a.agreed, a.failed, a.idle) = (a.agreed + b.agreed, a.failed + b.failed, a.idle + b.idle);
        for (name, n) in &b.counters {
            let sum = a.counters.entry(name.clone()).or_default();
            *sum = sum.wrapping_add(*n);
        }
    }
}

/// Prints what was done, a line for each way; returns whether all agreed.
pub fn report(ways: &[Variant], tallies: &Tallies) -> bool {
    for (way, t) in ways.iter().zip(tallies) {
        let n = |name: &str| t.counters.get(name).copied().unwrap_or(0);
        println!(
            "{:<8} {} agreed, {} failed; elided {} copies ({} MB), nothing in {} scripts; moved {} \
             pages, {} faults, {} refusals, {} at a limit, {} evicted",
            way.name,
            t.agreed,
            t.failed,
            n("elided_copies"),
            n("elided_bytes") >> 20,
            t.idle,
            n("moved_pages"),
            n("faults"),
            n("refusals"),
            n("exhausted"),
            n("evicted_views"),
        );
    }
    tallies.iter().all(|t| t.failed == 0)
}

/// `target/torture`, beside the directory of this program.
pub fn default_directory() -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent);
    target.unwrap_or(Path::new(".")).join("torture")
}
