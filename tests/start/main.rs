//! Programs as they are started: with functions of libc's that they define themselves, with a title
//! over their environment, beside other preloaded libraries, and what they execute that cannot run
//! under uncopy. Each runs plainly, under `uncopy run`, with `--tcp`, and with everything switched
//! off; what it says, on standard error too, and its exit status must be the same.
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

/// The words of a program when something is wrong.
const WRONG: &[&str] =
    &["WRONG", "NOT ELIDED", "NOT UNMAPPED", "NOTHING ELIDED", "NOT BY RINGS", "failed:"];

const RUN: (&str, &[&str]) = ("run", &[]);
const TCP: (&str, &[&str]) = ("tcp", &["--tcp"]);
const OFF: (&str, &[&str]) =
    ("off", &["--elide=no", "--allocator=no", "--lend=no", "--copies=libc", "--stats=no"]);

/// Where a library that is preloaded besides stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    After,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    /// Below `tests/`.
    source: String,
    flags: Vec<String>,
    /// The files that are made before: source, file, flags.
    others: &'static [(&'static str, &'static str, &'static [&'static str])],
    preload: Option<(&'static str, Place)>,
    ways: &'static [(&'static str, &'static [&'static str])],
    /// As programs of `tests/process` want it.
    elides_at_once: bool,
}

const LIBRARY: &[&str] = &["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"];
const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

fn cases() -> Vec<Case> {
    let one = |name: &str| Case {
        name: name.to_owned(),
        source: format!("start/{name}.c"),
        flags: STRICT.map(str::to_owned).to_vec(),
        others: &[],
        preload: None,
        ways: &[RUN, TCP, OFF],
        elides_at_once: false,
    };
    let mut all = vec![
        Case {
            flags: [&STRICT[..], &["-rdynamic"]].concat().iter().map(|f| (*f).to_owned()).collect(),
            ..one("handlers_by_its_own_sigaction")
        },
        Case {
            others: &[
                ("start/present_library.c", "present.so", LIBRARY),
                ("start/foreign_library.c", "foreign.so", LIBRARY),
            ],
            preload: Some(("present.so", Place::After)),
            ..one("title_over_its_environment")
        },
        Case {
            others: &[
                (
                    "start/first_library.c",
                    "libasan.so.8",
                    &["-shared", "-fPIC", "-Wl,-soname,libasan.so.8"],
                ),
                ("start/present_library.c", "present.so", LIBRARY),
                (
                    "start/says_so.c",
                    "with_another_loader",
                    &["-DALONE", "-Wl,--dynamic-linker={dir}/ld-other.so.1"],
                ),
                (
                    "start/says_so.c",
                    "with_a_sanitizer",
                    &["-DALONE", "-Wl,--no-as-needed", "{dir}/libasan.so.8", "-Wl,-rpath,{dir}"],
                ),
                ("start/says_so.c", "like_this_one", &[]),
                ("start/says_so.c", "static_one", &["-static", "-DSTATIC"]),
            ],
            ..one("executes_what_cannot_run_under_it")
        },
        Case {
            others: &[("start/says_so.c", "alone", &["-DALONE"])],
            ..one("executes_in_another_root")
        },
    ];
    for place in [Place::Before, Place::After] {
        let suffix = if place == Place::Before { "before" } else { "after" };
        all.push(Case {
            name: format!("chained_handlers_{suffix}"),
            others: &[("start/chaining_library.c", "chaining.so", LIBRARY)],
            preload: Some(("chaining.so", place)),
            ..one("chained_handlers")
        });
        all.push(Case {
            name: format!("stopped_clock_{suffix}"),
            others: &[("start/stopping_library.c", "stopping.so", LIBRARY)],
            preload: Some(("stopping.so", place)),
            ..one("stopped_clock")
        });
    }
    all.extend(names::cases());
    all
}

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = Vec::new();
    for case in cases() {
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
    for (source, target, flags) in case.others {
        parts.push(Part::named(source, target, flags));
    }
    let flags: Vec<&str> = case.flags.iter().map(String::as_str).collect();
    let program = Path::new(&case.source).file_stem().expect("it is named").to_string_lossy();
    if case.elides_at_once {
        parts.push(names::part()?);
    }
    parts.push(Part::named(&case.source, &program, &flags));
    let directory = compile(&format!("start-{}", case.name), &parts)?;

    let mut words: Vec<OsString> = vec![directory.join(&*program).into()];
    let mut environment: Vec<(&str, OsString)> = Vec::new();
    match case.preload.map(|(file, place)| (directory.join(file), place)) {
        // (Plainly, too, it is in a program that executes this one.)
        Some((library, Place::After)) => {
            environment.push(("LD_PRELOAD", library.into()));
            words.insert(0, "env".into());
        }
        Some((library, Place::Before)) => {
            let mut script = OsString::from("LD_PRELOAD=");
            script.push(library);
            script.push("${LD_PRELOAD:+:$LD_PRELOAD} exec \"$0\"");
            words = [OsString::from("sh"), "-c".into(), script].into_iter().chain(words).collect();
        }
        None => {}
    }
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
