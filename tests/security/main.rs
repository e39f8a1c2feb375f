//! The promises of docs/security.md, as far as they can be tested: no byte of one buffer in another
//! nor where zeros are promised; programs with more rights than their user's are left alone; the
//! environment cannot break anything; executed programs get no descriptor of ours.
//!
//! `cargo test -p uncopy-tests --test security [NAME]`; `SEED=N` and `ROUNDS=N` for the recycled
//! pages.
//!
//! The set-user-ID tests need root (to make such a program and to become another user).

#![forbid(unsafe_code)]

mod set_user_id;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use uncopy_tests::compile::{Part, compile};
use uncopy_tests::product::{library, uncopy, under};
use uncopy_tests::run::Bounded;
use uncopy_tests::verdict::{Stop, number, test};

const FLAGS: &[&str] =
    &["-Wall", "-Wextra", "-Werror", "-fno-builtin", "-fno-tree-loop-distribute-patterns"];

/// Environments that nobody means: name of the test, variable, value.
const BAD: &[(&str, &str, &[u8])] = &[
    ("a_word_for_a_number", "UNCOPY_THRESHOLD", b"many"),
    ("a_negative_number", "UNCOPY_THRESHOLD", b"-1"),
    ("a_number_too_large", "UNCOPY_EXTENT_MEMORY", b"99999999999999999999"),
    ("a_switch_of_two", "UNCOPY_VERBOSE", b"2"),
    ("nothing_for_a_switch", "UNCOPY_BACKOFF", b""),
    ("a_library_nowhere", "UNCOPY_LIBRARY", b"/nowhere"),
    ("a_number_of_5000_digits", "UNCOPY_MAX_MAPPINGS", &[b'9'; 5000]),
    ("bytes_that_are_no_text", "UNCOPY_THRESHOLD", b"\xff\xfe"),
    ("an_unknown_variable", "UNCOPY_NONSENSE", b"1"),
];
/// Those that `uncopy run` warns of.
const WARNED: &[&str] = &["a_word_for_a_number", "a_switch_of_two", "an_unknown_variable"];

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = vec![
        test("recycled_pages_show_nothing_of_what_they_held", || recycled(&[])),
        test("recycled_pages_show_nothing_with_tiny_limits", || {
            recycled(&["--extent-memory=2M", "--max-mappings=40"])
        }),
        test("an_executed_program_gets_none_of_our_descriptors", executed),
    ];
    for &(name, variable, value) in BAD {
        let value = OsStr::from_bytes(value);
        trials.push(test(format!("the_library_bears::{name}"), move || borne(variable, value)));
        if WARNED.contains(&name) {
            trials.push(test(format!("run_warns_in_one_line_of::{name}"), move || {
                warned(variable, value)
            }));
        }
    }
    trials.extend(set_user_id::trials());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The program that says what it finds.
fn secure() -> Result<PathBuf, Stop> {
    Ok(compile("secure", &[Part::program("security/secure.c", FLAGS)])?.join("secure"))
}

fn expect(found: &str, expected: bool, what: &str) -> Result<(), Stop> {
    if expected { Ok(()) } else { Err(format!("{what}, but: '{found}'").into()) }
}

fn recycled(limits: &[&str]) -> Result<(), Stop> {
    let program = compile("recycled_pages", &[Part::program("security/recycled_pages.c", FLAGS)])?;
    let seed = number("SEED").unwrap_or_else(|| fastrand::u64(0..100_000)).to_string();
    let mut words: Vec<OsString> = vec![program.join("recycled_pages").into()];
    words.extend(["--seed", &seed].map(OsString::from));
    if let Some(rounds) = number("ROUNDS") {
        words.extend(["--rounds", &rounds.to_string()].map(OsString::from));
    }
    let words = under(&[&["--threshold=8K", "--backoff=no"], limits].concat(), &words)?;
    let said = Bounded { words: &words, environment: &[], seconds: Some(300) }.run()?;
    let found = format!("{}{}", said.errors, said.output);
    expect(&found, found.starts_with("ok:"), &format!("it should say 'ok:' (SEED={seed})"))
}

/// By hand, past uncopy's own checks: the library must bear it in silence.
fn borne(variable: &'static str, value: &OsStr) -> Result<(), Stop> {
    let library = library()?;
    let environment = [(variable, value), ("LD_PRELOAD", library.as_os_str())];
    let said =
        Bounded { words: &[secure()?.into()], environment: &environment, seconds: None }.run()?;
    let found = format!("{}{}", said.errors, said.output);
    let expected = said.status == 0 && found.starts_with("secure=0 library=1 userfaultfds=");
    expect(&found, expected, "it should say 'secure=0 library=1 userfaultfds=' and nothing else")
}

fn warned(variable: &'static str, value: &OsStr) -> Result<(), Stop> {
    let words = under(&[], &[secure()?.into()])?;
    let said = Bounded { words: &words, environment: &[(variable, value)], seconds: None }.run()?;
    let one = said.errors.lines().count() == 1;
    let expected = said.status == 0 && one && said.output.starts_with("secure=0 library=1");
    let found = format!("status {}: {}{}", said.status, said.errors, said.output);
    expect(&found, expected, "it should warn in one line and go on")
}

fn executed() -> Result<(), Stop> {
    let words: [OsString; 8] = [
        uncopy()?.into(),
        "run".into(),
        "--follow-exec=no".into(),
        "--".into(),
        "env".into(),
        "-u".into(),
        "LD_PRELOAD".into(),
        secure()?.into(),
    ];
    let said = Bounded { words: &words, environment: &[], seconds: None }.run()?;
    let expected = said.output.trim_end() == "secure=0 library=0 userfaultfds=0";
    expect(&said.output, expected, "it should find no library and no userfaultfd")
}
