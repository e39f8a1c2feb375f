//! What programs are when they are started: with functions of libc's that they define themselves.
//! Each runs plainly and under uncopy; what it says, on standard error too, and its exit status
//! must be the same.
//!
//! `cargo test -p uncopy-tests --test start [NAME]`; `VERBOSE=1` prints what each program says.

#![forbid(unsafe_code)]

mod names;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::under;
use uncopy_tests::run::{Bounded, Said};
use uncopy_tests::verdict::{Stop, set, test};

/// What a program says when something is wrong.
const WRONG: &[&str] =
    &["WRONG", "NOT ELIDED", "NOT UNMAPPED", "NOTHING ELIDED", "NOT BY RINGS", "failed:"];

const RUN: (&str, &[&str]) = ("run", &[]);
const TCP: (&str, &[&str]) = ("tcp", &["--tcp"]);

#[derive(Clone, Debug)]
struct Case {
    name: String,
    /// Below `tests/`.
    source: String,
    flags: Vec<String>,
    ways: &'static [(&'static str, &'static [&'static str])],
    /// As programs of `tests/process` want it.
    elides_at_once: bool,
}

const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = Vec::new();
    for case in names::cases() {
        for &way in case.ways {
            let (case, name) = (case.clone(), format!("{}::{}", case.name, way.0));
            trials.push(test(name, move || judge(&case, way)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn judge(case: &Case, way: (&str, &[&str])) -> Result<(), Stop> {
    let plain = run(case, None)?;
    let said = run(case, Some(way))?;
    let wrong = |line: &&str| WRONG.iter().any(|word| line.contains(word));
    if let Some(line) = said.output.lines().chain(said.errors.lines()).find(wrong) {
        return Err(line.to_owned().into());
    }
    if plain.status != 0 {
        let (end, error) = (plain.end(), plain.last_error());
        return Err(format!("plainly {end}; {}; {error}", plain.last()).into());
    }
    if said.status != plain.status {
        let (end, last, error) = (said.end(), said.last(), said.last_error());
        return Err(format!("{end}, plainly 0; last words: {last}; {error}").into());
    }
    for (is, was) in [(&said.output, &plain.output), (&said.errors, &plain.errors)] {
        let (is, was): (Vec<_>, Vec<_>) = (is.lines().collect(), was.lines().collect());
        if let Some(at) = (0..was.len().max(is.len())).find(|&at| was.get(at) != is.get(at)) {
            let line = |lines: &[&str]| {
                lines.get(at).map_or("nothing more".to_owned(), |line| format!("'{line}'"))
            };
            let (is, was) = (line(&is), line(&was));
            return Err(format!("line {} says {is}, plainly {was}", at + 1).into());
        }
    }
    Ok(())
}

fn run(case: &Case, way: Option<(&str, &[&str])>) -> Result<Said, Stop> {
    let mut parts: Vec<Part> = Vec::new();
    let flags: Vec<&str> = case.flags.iter().map(String::as_str).collect();
    let program = Path::new(&case.source).file_stem().expect("it is named").to_string_lossy();
    if case.elides_at_once {
        parts.push(names::part()?);
    }
    parts.push(Part::named(&case.source, &program, &flags));
    let directory = compile(&format!("start-{}", case.name), &parts)?;

    let mut words: Vec<OsString> = vec![directory.join(&*program).into()];
    let mut environment: Vec<(&str, OsString)> = Vec::new();
    if case.elides_at_once {
        environment.push(("UNCOPY_COSTS", "send_mb=60000".into()));
        environment.push(("UNCOPY_CONTROLLER", "accounts-alone".into()));
    }
    let mut name = "plain";
    if let Some((way, options)) = way {
        name = way;
        words = under(options, &words)?;
        let service = format!("uncopy-start-{}-{}-{way}", std::process::id(), case.name);
        environment.push(("UNCOPY_TCP_SERVICE", service.into()));
    }
    let environment: Vec<(&str, &OsStr)> =
        environment.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    let said = Bounded { words: &words, environment: &environment, seconds: None }.run()?;
    if set("VERBOSE") {
        let lines = said.output.lines().chain(said.errors.lines());
        lines.for_each(|line| eprintln!("      {} {name}: {line}", case.name));
    }
    Ok(said)
}
