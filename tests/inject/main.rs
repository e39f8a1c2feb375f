//! Every system call that uncopy makes is made to fail (UNCOPY_INJECT, see ARCHITECTURE.md), limits
//! are made tiny, and the address space is limited: a program must compute what it computes
//! plainly, end by itself, and what was given up must be counted with its reason.
//!
//! `cargo test -p uncopy-tests --test inject [RULE]`; without a rule a representative part, `ALL=1`
//! all. `SEED=N` to repeat one.

#![forbid(unsafe_code)]

mod programs;
mod rules;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use programs::{Program, sum};
use rules::{Counted, Given, RULES, Rule};
use uncopy_tests::product::under;
use uncopy_tests::run::Bounded;
use uncopy_tests::verdict::{Stop, number, set, test};

const EAGER: &[&str] = &["--verbose=counters", "--backoff=no", "--threshold=8K"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let seed = number("SEED").unwrap_or(1);
    let all = set("ALL") || arguments.filter.is_some();
    let trials: Vec<Trial> = RULES
        .iter()
        .filter(|rule| all || rule.often)
        .map(|rule| test(rule.name(), move || injected(rule, seed)))
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn injected(rule: &Rule, seed: u64) -> Result<(), Stop> {
    let program = Program::of(rule.text);
    let plain = program.plain()?;
    let inject = format!("{},seed={seed}", rule.text);
    let words = words(rule, &program.words()?)?;
    let environment = [("UNCOPY_INJECT", OsStr::new(&inject))];
    let said = Bounded { words: &words, environment: &environment, seconds: Some(120) }.run()?;
    let why = |what: String| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Stop::Fail(format!("{what}\nrepeat: UNCOPY_INJECT={inject} {}", words.join(" ")))
    };
    if said.status != 0 {
        let ours = |line: &&str| line.starts_with("uncopy: ");
        let wrong = said.output.lines().find(|line| line.contains("WRONG"));
        let last = wrong.or_else(|| said.errors.lines().rfind(|line| !ours(line)));
        return Err(why(format!("{}: {}", said.end(), last.unwrap_or_default())));
    }
    // (That something is not elided is no wonder here.)
    let missed = ["NOT ELIDED", "NOT UNMAPPED", "NOTHING ELIDED", "NOTHING UNMAPPED"];
    let kept = said.output.lines().filter(|line| !missed.iter().any(|word| line.contains(word)));
    if !kept.eq(plain.lines()) {
        return Err(why("the output differs".into()));
    }
    let counts = |name: &str| sum(&said.errors, name);
    match rule.counted {
        Counted::Silent => Ok(()),
        _ if !rule.text.ends_with("move:0/1") && counts("injected") == 0 => {
            Err(why("nothing was made to fail".into()))
        }
        Counted::Somewhere(name) if counts(name) == 0 => Err(why(format!("{name} is 0"))),
        Counted::Nowhere | Counted::Somewhere(_) => Ok(()),
    }
}

/// `uncopy run` of the program, with the rule's options and limits.
fn words(rule: &Rule, program: &[OsString]) -> Result<Vec<OsString>, Stop> {
    let mut options = EAGER.to_vec();
    if let Given::Options(more) = rule.given {
        // In the place of an eager one of that name.
        let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
        options.retain(|old| more.iter().all(|new| name(new) != name(old)));
        options.extend(more);
    }
    let mut words = under(&options, program)?;
    if let Given::AddressSpace(kilobytes) = rule.given {
        let limit = format!("ulimit -v {kilobytes}; exec \"$@\"");
        words.splice(0..0, ["sh".into(), "-c".into(), limit.into(), "sh".into()]);
    }
    Ok(words)
}
