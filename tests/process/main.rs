//! Uses of a process by programs: one small program for each, named after it. Each runs plainly,
//! under uncopy with the default options, and under uncopy with eager ones; what it says and its
//! exit status must be the same, and under uncopy its copies must have been elided (the programs
//! look at the counters and the page table, and say so where they were not).
//!
//! Differences are in docs/limitations.md: a program says "documented: PHRASE: as usual" or "...
//! differs". PHRASE must be there, and the answer must be "as usual" plainly and "differs" under
//! uncopy (else the limitation no longer holds: update the page).
//!
//! `cargo test -p uncopy-tests --test process [NAME]`; `VERBOSE=1` prints what each program says.

#![forbid(unsafe_code)]

mod needs;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Arguments, Trial};
use needs::{Needs, all};
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::{repository, under};
use uncopy_tests::run::{Bounded, Said};
use uncopy_tests::verdict::{Stop, set, test};

/// The words of a program when something is wrong.
const WRONG: &[&str] = &["WRONG", "NOT ELIDED", "NOT UNMAPPED", "NOTHING ELIDED", "failed:"];
const DOCUMENTED: &str = "documented: ";

/// How a program is run: plainly, or under uncopy with these options.
type Way = (&'static str, Option<&'static [&'static str]>);
const WAYS: &[Way] = &[
    ("plain", None),
    ("default", Some(&[])),
    ("eager", Some(&["--backoff=no", "--threshold=8K", "--copies=ours"])),
];

/// A program and its plain run, which all ways are compared with.
type Plain = LazyLock<Result<Said, Stop>, Box<dyn FnOnce() -> Result<Said, Stop> + Send>>;

fn main() -> ExitCode {
    let programs: Vec<(Needs, Arc<Plain>)> = all()
        .into_iter()
        .map(|needs| {
            let once = needs.clone();
            let plainly: Box<dyn FnOnce() -> _ + Send> = Box::new(move || run(&once, None));
            (needs, Arc::new(LazyLock::new(plainly)))
        })
        .collect();
    // Way by way: where several run at once, none waits for its plain run.
    let mut trials: Vec<Trial> = Vec::new();
    for &(way, options) in WAYS {
        for (needs, plain) in &programs {
            let (needs, plain) = (needs.clone(), plain.clone());
            trials.push(test(format!("{}::{way}", needs.name), move || {
                let plain = plain.as_ref().as_ref().map_err(Clone::clone)?;
                match options {
                    None => judge(&needs, plain, plain, "as usual"),
                    Some(_) => judge(&needs, plain, &run(&needs, options)?, "differs"),
                }
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The same prices, whatever `uncopy doctor` has kept for this machine: what is not named costs
/// what it does on the reference machine, as this does.
const REFERENCE: &str = "send_mb=60000";

/// Eliding begins with the first copy, not when it has shown a gain: the programs end before that.
const AT_ONCE: (&str, &str) = ("UNCOPY_CONTROLLER", "accounts-alone");

fn run(needs: &Needs, options: Option<&[&str]>) -> Result<Said, Stop> {
    let program = build(needs)?;
    let words = match options {
        Some(options) => under(options, &[program.into()])?,
        None => vec![program.into()],
    };
    let mut environment = Vec::new();
    environment.extend(needs.preload.map(|library| ("LD_PRELOAD", OsStr::new(library))));
    let costs = needs.costs.unwrap_or(REFERENCE);
    environment.push(("UNCOPY_COSTS", OsStr::new(costs)));
    environment.push((AT_ONCE.0, OsStr::new(AT_ONCE.1)));
    let said = Bounded { words: &words, environment: &environment, seconds: None }.run()?;
    if set("VERBOSE") {
        let way = if options.is_some() { "under uncopy" } else { "plainly" };
        said.output.lines().for_each(|line| eprintln!("      {} {way}: {line}", needs.name));
    }
    Ok(said)
}

fn build(needs: &Needs) -> Result<PathBuf, Stop> {
    const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];
    const LIBRARY: [&str; 5] = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"];
    if let Some(lacking) = needs.lacking() {
        return Err(Stop::Skip(lacking));
    }
    if needs.is_script() {
        return Ok(repository().join("tests/process").join(&needs.source));
    }
    let mut parts = Vec::new();
    let mut flags = [&STRICT[..], needs.flags].concat();
    if let Some(plugin) = needs.plugin {
        parts.push(Part::named(
            &format!("process/{plugin}"),
            &format!("{}.so", needs.name),
            &LIBRARY,
        ));
    }
    let linked = format!("{{dir}}/lib{}.so", needs.name);
    if let Some(library) = needs.library {
        parts.push(Part::named(
            &format!("process/{library}"),
            &format!("lib{}.so", needs.name),
            &LIBRARY,
        ));
        flags.extend([&*linked, "-Wl,-rpath,{dir}"]);
    }
    parts.push(Part::named(&format!("process/{}", needs.source), &needs.name, &flags));
    Ok(compile(&needs.name, &parts)?.join(&needs.name))
}

/// The failure of a run, if any. `answer`: what is to be said of documented differences.
fn judge(needs: &Needs, plain: &Said, said: &Said, answer: &str) -> Result<(), Stop> {
    if let Some(line) =
        said.output.lines().find(|line| WRONG.iter().any(|word| line.contains(word)))
    {
        return Err(line.to_owned().into());
    }
    if said.status != needs.status {
        let (end, should, last) = (said.end(), needs.status, said.last());
        return Err(format!(
            "{end}, should be {should}; last words: {last}; {}",
            said.last_error()
        )
        .into());
    }
    let (was, is) = (ordinary(plain), ordinary(said));
    if let Some(at) = (0..was.len().max(is.len())).find(|&at| was.get(at) != is.get(at)) {
        let line = |lines: &[&str]| {
            lines.get(at).map_or("nothing more".to_owned(), |line| format!("'{line}'"))
        };
        return Err(format!("line {} says {}, plainly {}", at + 1, line(&is), line(&was)).into());
    }
    for line in said.output.lines().filter_map(|line| line.strip_prefix(DOCUMENTED)) {
        let (phrase, said) = line.rsplit_once(": ").unwrap_or((line, ""));
        if !limitations().contains(phrase) {
            return Err(format!("not in docs/limitations.md: {phrase}").into());
        }
        if said != answer {
            return Err(format!("{phrase}: '{said}' should be '{answer}'").into());
        }
    }
    Ok(())
}

/// The lines that have to be the same on all sides.
fn ordinary(said: &Said) -> Vec<&str> {
    said.output.lines().filter(|line| !line.starts_with(DOCUMENTED)).collect()
}

fn limitations() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        std::fs::read_to_string(repository().join("docs/limitations.md"))
            .expect("docs/limitations.md is there")
    });
    &PAGE
}
