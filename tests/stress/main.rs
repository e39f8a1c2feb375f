//! Programs with many threads under uncopy, which verify every byte themselves: shared buffers
//! while other threads fork and signals arrive, processes that end while faults are pending,
//! threads and libraries that come and go.
//!
//! `cargo test -p uncopy-tests --test stress [NAME]`
//!
//! One seed and 4 seconds for each by default; `SEEDS=10 EACH_SECONDS=20` for longer, `SEED=N` to
//! repeat one (what threads do is seeded, the order in which they do it is not: repeat it several
//! times). `PLAIN=1` runs without uncopy: what fails there is the test's own fault.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::under;
use uncopy_tests::run::Bounded;
use uncopy_tests::verdict::{Stop, number, set, test};

/// The checking side must not use what it checks. Not position-independent: shared_buffers wants
/// its static data at the lowest addresses.
const FLAGS: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-no-pie",
    "-ldl",
];
const LIBRARY: &[&str] = &[
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-shared",
    "-fPIC",
];

/// One way to run a program.
struct Line {
    name: &'static str,
    /// Of `uncopy run`.
    options: &'static [&'static str],
    /// A command in front of it all.
    before: &'static [&'static str],
    program: &'static str,
    /// The program's.
    words: &'static [&'static str],
}

const fn line(name: &'static str, program: &'static str, words: &'static [&'static str]) -> Line {
    Line { name, options: &[], before: &[], program, words }
}

const LINES: &[Line] = &[
    line("threads", "shared_buffers", &["--threads", "8", "--forkers", "0"]),
    line("forks", "shared_buffers", &["--forkers", "1"]),
    line("many_forks", "shared_buffers", &["--threads", "8", "--forkers", "2"]),
    // Fork copies memory upwards: with the old layout buffers lie above the library.
    Line {
        before: &["setarch", "-L"],
        ..line("forks_bottom_up", "shared_buffers", &["--forkers", "2"])
    },
    line("signals", "shared_buffers", &["--forkers", "0", "--signals", "1"]),
    line("signals_and_forks", "shared_buffers", &["--forkers", "1", "--signals", "1"]),
    Line {
        options: &["--extent-memory=2M", "--max-mappings=40"],
        ..line("tiny_limits", "shared_buffers", &["--forkers", "1"])
    },
    line("ends_with_faults_pending", "exit_while_faulting", &[]),
    line("threads_come_and_go", "short_lived", &[]),
];

fn main() -> ExitCode {
    let first = number("SEED").unwrap_or_else(|| fastrand::u64(1..100_000));
    let mut trials: Vec<Trial> = Vec::new();
    for seed in first..first + number("SEEDS").unwrap_or(1) {
        for line in LINES {
            trials.push(test(format!("{}::{}::seed_{seed}", line.program, line.name), move || {
                stressed(line, seed)
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn stressed(line: &Line, seed: u64) -> Result<(), Stop> {
    if let [command, ..] = line.before
        && !on_path(command)
    {
        return Err(Stop::Skip(format!("no {command}")));
    }
    let seconds = number("EACH_SECONDS").unwrap_or(4);
    let source = format!("stress/{}.c", line.program);
    let parts =
        [Part::named("stress/arrays.c", "libarrays.so", LIBRARY), Part::program(&source, FLAGS)];
    let mut words = vec![compile(line.program, &parts)?.join(line.program).into_os_string()];
    words.extend(line.words.iter().map(OsString::from));
    let how = [
        "--seed",
        &seed.to_string(),
        "--seconds",
        &seconds.to_string(),
        "--rounds",
        &(seconds * 8).to_string(),
    ];
    words.extend(how.map(OsString::from));
    if !set("PLAIN") {
        words = under(&[&["--threshold=8K", "--backoff=no"], line.options].concat(), &words)?;
    }
    words.splice(0..0, line.before.iter().map(OsString::from));
    let said =
        Bounded { words: &words, environment: &[], seconds: Some(seconds * 20 + 300) }.run()?;
    if said.status == 0 && said.output.starts_with("ok:") {
        return Ok(());
    }
    let why = said.errors.lines().next().unwrap_or_default();
    let again = format!(
        "SEED={seed} EACH_SECONDS={seconds} cargo test -p uncopy-tests --test stress {}",
        line.name
    );
    Err(format!("{}: {why}\nrepeat: {again}", said.end()).into())
}

fn on_path(command: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|place| Path::new(&place).join(command).exists())
}
