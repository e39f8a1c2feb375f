//! Uses of TCP connections within a host: one small program for each kind of thing. Each runs
//! plainly, under `uncopy run --tcp` with both ends, so with eager options, and so with all
//! messages in blocks, those that send files also where these are kept; what it says and its exit
//! status must be the same, and under uncopy bytes must have gone through rings (the programs look
//! at the counters, and say so where they did not). Each run has a service of its own, which must
//! end by itself.
//!
//! `cargo test -p uncopy-tests --test connections [NAME]`; `VERBOSE=1` prints what each program
//! says.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::under;
use uncopy_tests::run::{Bounded, Said};
use uncopy_tests::verdict::{Stop, set, test};

/// The words of a program when something is wrong.
const WRONG: &[&str] = &["WRONG", "NOT BY RINGS", "NOT UPGRADED", "failed:"];
const EAGER: &[&str] = &["--tcp", "--backoff=no", "--threshold=8K"];
const WAYS: &[(&str, Option<&[&str]>)] =
    &[("plain", None), ("tcp", Some(&["--tcp"])), ("eager", Some(EAGER)), ("blocks", Some(EAGER))];
/// The variable of the way of that name.
const BLOCKS: (&str, &str) = ("UNCOPY_TCP_BLOCKS", "1");
/// The programs that send files run so, too, in blocks of any size and of large messages.
const FILES: &[&str] = &["files", "kept_files", "closed_files"];
const KEEPING: &[&str] = &["--tcp", "--backoff=no", "--threshold=8K", "--file-memory=64M"];
const FILE_WAYS: &[(&str, Option<&[&str]>)] =
    &[("kept", Some(KEEPING)), ("kept blocks", Some(KEEPING))];

fn main() -> ExitCode {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("connections");
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("the programs are there")
        .flatten()
        .filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".c")?.to_owned()))
        .collect();
    names.sort();
    let mut trials: Vec<Trial> = Vec::new();
    let of_files = FILE_WAYS.iter().map(|way| (way, true));
    for (&(way, options), of_files) in WAYS.iter().map(|way| (way, false)).chain(of_files) {
        for name in names.iter().filter(|name| !of_files || FILES.contains(&name.as_str())) {
            let name = name.clone();
            trials.push(test(format!("{name}::{way}"), move || judge(&name, way, options)));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn judge(name: &str, way: &str, options: Option<&[&str]>) -> Result<(), Stop> {
    let plain = run(name, "plain", None)?;
    let said = match options {
        Some(_) => run(name, way, options)?,
        None => plain.clone(),
    };
    if let Some(line) =
        said.output.lines().find(|line| WRONG.iter().any(|word| line.contains(word)))
    {
        return Err(line.to_owned().into());
    }
    if said.status != 0 {
        let (end, last) = (said.end(), said.last());
        return Err(format!("{end}; last words: {last}; {}", said.last_error()).into());
    }
    let (was, is): (Vec<_>, Vec<_>) =
        (plain.output.lines().collect(), said.output.lines().collect());
    if let Some(at) = (0..was.len().max(is.len())).find(|&at| was.get(at) != is.get(at)) {
        let line = |lines: &[&str]| {
            lines.get(at).map_or("nothing more".to_owned(), |line| format!("'{line}'"))
        };
        return Err(format!("line {} says {}, plainly {}", at + 1, line(&is), line(&was)).into());
    }
    Ok(())
}

fn run(name: &str, way: &str, options: Option<&[&str]>) -> Result<Said, Stop> {
    const FLAGS: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pthread", "-rdynamic"];
    let program = compile(name, &[Part::program(&format!("connections/{name}.c"), FLAGS)])?;
    let program = program.join(name);
    let words = match options {
        Some(options) => under(options, &[program.into()])?,
        None => vec![program.into()],
    };
    let service =
        format!("uncopy-tcp-test-{}-{name}-{}", std::process::id(), way.replace(' ', "-"));
    let environment = [("UNCOPY_TCP_SERVICE", OsStr::new(&service)), (BLOCKS.0, BLOCKS.1.as_ref())];
    let environment = match way {
        "plain" => &environment[..0],
        "blocks" | "kept blocks" => &environment[..],
        _ => &environment[..1],
    };
    let said = Bounded { words: &words, environment, seconds: None }.run()?;
    if set("VERBOSE") {
        said.output.lines().for_each(|line| eprintln!("      {name} {way}: {line}"));
    }
    let begun = Instant::now();
    while options.is_some() && runs(&service) {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err("the service did not end with its last program".to_owned().into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(said)
}

/// Somebody listens under this name.
fn runs(service: &str) -> bool {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    all.lines().any(|line| line.ends_with(&format!("@{service}")))
}
